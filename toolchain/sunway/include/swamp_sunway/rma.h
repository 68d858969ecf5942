/* rma.h: transfers from LDM to LDM inside a core group (SW26010-Pro). Remote
 * addresses and reply words are addresses in the LDM of any slave of the group:
 * they mean the same offset in the other slave's LDM. */
#ifndef SWAMP_SUNWAY_RMA_H_
#define SWAMP_SUNWAY_RMA_H_

#include <swamp_sunway/side.h>

SWAMP_SUNWAY_BEGIN

SWAMP_SUNWAY_CALL(rma_iget, void* local, volatile void* local_reply, int length,
                  int slave, void* remote, volatile void* remote_reply)
SWAMP_SUNWAY_CALL(rma_iput, void* local, volatile void* local_reply, int length,
                  int slave, void* remote, volatile void* remote_reply)
/* These return when the local side is complete. */
SWAMP_SUNWAY_CALL(rma_get, void* local, int length, int slave, void* remote,
                  volatile void* remote_reply)
SWAMP_SUNWAY_CALL(rma_put, void* local, int length, int slave, void* remote,
                  volatile void* remote_reply)
/* Returns when *reply >= value. */
SWAMP_SUNWAY_CALL(rma_wait_value, volatile void* reply, int value)
SWAMP_SUNWAY_CALL(rma_barrier, void)
SWAMP_SUNWAY_CALL(rma_all_barrier, void)

/* A send has a second name, NAME_other, by which the sender does not receive. */
#define SWAMP_RMA_SEND(name, ...)      \
  SWAMP_SUNWAY_CALL(name, __VA_ARGS__) \
  SWAMP_SUNWAY_CALL(name##_other, __VA_ARGS__)

/* Called by one slave; all slaves of its array (row, column, rows or columns of
 * the mask), itself included, receive. local_reply may be 0. */
SWAMP_RMA_SEND(rma_bcast, void* to, void* from, int length,
               volatile void* remote_reply)
SWAMP_RMA_SEND(rma_ibcast, void* to, void* from, volatile void* local_reply,
               int length, volatile void* remote_reply)
SWAMP_RMA_SEND(rma_row_bcast, void* to, void* from, int length,
               volatile void* remote_reply)
SWAMP_RMA_SEND(rma_col_bcast, void* to, void* from, int length,
               volatile void* remote_reply)
SWAMP_RMA_SEND(rma_row_ibcast, void* to, void* from, int length,
               volatile void* local_reply, volatile void* remote_reply)
SWAMP_RMA_SEND(rma_col_ibcast, void* to, void* from, int length,
               volatile void* local_reply, volatile void* remote_reply)
SWAMP_RMA_SEND(rma_row_mcast, void* to, void* from, int length, int mask,
               volatile void* remote_reply)
SWAMP_RMA_SEND(rma_col_mcast, void* to, void* from, int length, int mask,
               volatile void* remote_reply)
SWAMP_RMA_SEND(rma_row_imcast, void* to, void* from, int length,
               volatile void* local_reply, int mask,
               volatile void* remote_reply)
SWAMP_RMA_SEND(rma_col_imcast, void* to, void* from, int length,
               volatile void* local_reply, int mask,
               volatile void* remote_reply)
/* Called by all slaves of the array (row, column); `root` sends. */
SWAMP_RMA_SEND(rma_bcast_coll, void* to, void* from, int length, int root)
SWAMP_RMA_SEND(rma_row_bcast_coll, void* to, void* from, int length,
               int root)
SWAMP_RMA_SEND(rma_col_bcast_coll, void* to, void* from, int length,
               int root)
#undef SWAMP_RMA_SEND

SWAMP_SUNWAY_END

#endif /* SWAMP_SUNWAY_RMA_H_ */
