/* rma.h: transfers from LDM to LDM inside a core group (SW26010-Pro). Remote
 * addresses and reply words are passed as addresses in the caller's LDM: they
 * mean the same offset in the other slave's LDM. */
#ifndef SWAMP_SUNWAY_RMA_H_
#define SWAMP_SUNWAY_RMA_H_

#include <swamp_sunway/side.h>

SWAMP_SUNWAY_BEGIN

int athread_rma_iget(void* local, volatile void* local_reply, int length,
                     int slave, void* remote, volatile void* remote_reply);
int athread_rma_iput(void* local, volatile void* local_reply, int length,
                     int slave, void* remote, volatile void* remote_reply);
/* These return when the local side is complete. */
int athread_rma_get(void* local, int length, int slave, void* remote,
                    volatile void* remote_reply);
int athread_rma_put(void* local, int length, int slave, void* remote,
                    volatile void* remote_reply);
/* Returns when *reply >= value. */
int athread_rma_wait_value(volatile void* reply, int value);
int athread_rma_barrier(void);
int athread_rma_all_barrier(void);

/* Called by one slave; all slaves of its array (row, column, rows or columns of
 * the mask), itself included, receive. local_reply may be 0. */
int athread_rma_bcast(void* to, void* from, int length,
                      volatile void* remote_reply);
int athread_rma_ibcast(void* to, void* from, volatile void* local_reply,
                       int length, volatile void* remote_reply);
int athread_rma_row_bcast(void* to, void* from, int length,
                          volatile void* remote_reply);
int athread_rma_col_bcast(void* to, void* from, int length,
                          volatile void* remote_reply);
int athread_rma_row_ibcast(void* to, void* from, int length,
                           volatile void* local_reply,
                           volatile void* remote_reply);
int athread_rma_col_ibcast(void* to, void* from, int length,
                           volatile void* local_reply,
                           volatile void* remote_reply);
int athread_rma_row_mcast(void* to, void* from, int length, int mask,
                          volatile void* remote_reply);
int athread_rma_col_mcast(void* to, void* from, int length, int mask,
                          volatile void* remote_reply);
int athread_rma_row_imcast(void* to, void* from, int length,
                           volatile void* local_reply, int mask,
                           volatile void* remote_reply);
int athread_rma_col_imcast(void* to, void* from, int length,
                           volatile void* local_reply, int mask,
                           volatile void* remote_reply);
/* Called by all slaves of the array (row, column); `root` sends. */
int athread_rma_bcast_coll(void* to, void* from, int length, int root);
int athread_rma_row_bcast_coll(void* to, void* from, int length, int root);
int athread_rma_col_bcast_coll(void* to, void* from, int length, int root);

/* The same, but the sender does not receive. */
int athread_rma_bcast_other(void* to, void* from, int length,
                            volatile void* remote_reply);
int athread_rma_ibcast_other(void* to, void* from, volatile void* local_reply,
                             int length, volatile void* remote_reply);
int athread_rma_row_bcast_other(void* to, void* from, int length,
                                volatile void* remote_reply);
int athread_rma_col_bcast_other(void* to, void* from, int length,
                                volatile void* remote_reply);
int athread_rma_row_ibcast_other(void* to, void* from, int length,
                                 volatile void* local_reply,
                                 volatile void* remote_reply);
int athread_rma_col_ibcast_other(void* to, void* from, int length,
                                 volatile void* local_reply,
                                 volatile void* remote_reply);
int athread_rma_row_mcast_other(void* to, void* from, int length, int mask,
                                volatile void* remote_reply);
int athread_rma_col_mcast_other(void* to, void* from, int length, int mask,
                                volatile void* remote_reply);
int athread_rma_row_imcast_other(void* to, void* from, int length,
                                 volatile void* local_reply, int mask,
                                 volatile void* remote_reply);
int athread_rma_col_imcast_other(void* to, void* from, int length,
                                 volatile void* local_reply, int mask,
                                 volatile void* remote_reply);
int athread_rma_bcast_coll_other(void* to, void* from, int length, int root);
int athread_rma_row_bcast_coll_other(void* to, void* from, int length,
                                     int root);
int athread_rma_col_bcast_coll_other(void* to, void* from, int length,
                                     int root);

#define CRTS_rma_bcast_other athread_rma_bcast_other
#define CRTS_rma_ibcast_other athread_rma_ibcast_other
#define CRTS_rma_row_bcast_other athread_rma_row_bcast_other
#define CRTS_rma_col_bcast_other athread_rma_col_bcast_other
#define CRTS_rma_row_ibcast_other athread_rma_row_ibcast_other
#define CRTS_rma_col_ibcast_other athread_rma_col_ibcast_other
#define CRTS_rma_row_mcast_other athread_rma_row_mcast_other
#define CRTS_rma_col_mcast_other athread_rma_col_mcast_other
#define CRTS_rma_row_imcast_other athread_rma_row_imcast_other
#define CRTS_rma_col_imcast_other athread_rma_col_imcast_other
#define CRTS_rma_bcast_coll_other athread_rma_bcast_coll_other
#define CRTS_rma_row_bcast_coll_other athread_rma_row_bcast_coll_other
#define CRTS_rma_col_bcast_coll_other athread_rma_col_bcast_coll_other
#define CRTS_rma_iget athread_rma_iget
#define CRTS_rma_iput athread_rma_iput
#define CRTS_rma_get athread_rma_get
#define CRTS_rma_put athread_rma_put
#define CRTS_rma_wait_value athread_rma_wait_value
#define CRTS_rma_barrier athread_rma_barrier
#define CRTS_rma_all_barrier athread_rma_all_barrier
#define CRTS_rma_bcast athread_rma_bcast
#define CRTS_rma_ibcast athread_rma_ibcast
#define CRTS_rma_row_bcast athread_rma_row_bcast
#define CRTS_rma_col_bcast athread_rma_col_bcast
#define CRTS_rma_row_ibcast athread_rma_row_ibcast
#define CRTS_rma_col_ibcast athread_rma_col_ibcast
#define CRTS_rma_row_mcast athread_rma_row_mcast
#define CRTS_rma_col_mcast athread_rma_col_mcast
#define CRTS_rma_row_imcast athread_rma_row_imcast
#define CRTS_rma_col_imcast athread_rma_col_imcast
#define CRTS_rma_bcast_coll athread_rma_bcast_coll
#define CRTS_rma_row_bcast_coll athread_rma_row_bcast_coll
#define CRTS_rma_col_bcast_coll athread_rma_col_bcast_coll

SWAMP_SUNWAY_END

#endif /* SWAMP_SUNWAY_RMA_H_ */
