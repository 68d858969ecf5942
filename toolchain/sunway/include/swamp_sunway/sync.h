/* sync.h: meetings of slaves, and collectives over the array. */
#ifndef SWAMP_SUNWAY_SYNC_H_
#define SWAMP_SUNWAY_SYNC_H_

#include <swamp_sunway/side.h>

SWAMP_SUNWAY_BEGIN

int athread_ssync_array(void); /* all launched slaves of the core group */
int athread_ssync_row(void);
int athread_ssync_col(void);
int athread_ssync_node(void); /* all launched slaves of all core groups */
int athread_ssync_peer(int slave); /* both call */
/* The master calls CRTS_sync_master_array() or _spe(). */
int athread_ssync_master_array(void);
int athread_ssync_master_spe(void);
#define CRTS_ssync_array athread_ssync_array
#define CRTS_ssync_row athread_ssync_row
#define CRTS_ssync_col athread_ssync_col
#define CRTS_ssync_node athread_ssync_node
#define CRTS_ssync_peer athread_ssync_peer
#define CRTS_ssync_master_array athread_ssync_master_array
#define CRTS_ssync_master_spe athread_ssync_master_spe

typedef enum { ROW_SCOPE, COL_SCOPE, ARRAY_SCOPE } scope;
/* The mask must name the whole row, column or array. */
int athread_syn(scope what, int mask);
#define athread_ssync(what, mask) athread_syn(what, mask)

typedef enum {
  CRTS_int,
  CRTS_unsigned_int,
  CRTS_long,
  CRTS_unsigned_long,
  CRTS_float,
  CRTS_double
} crts_type;
typedef enum { OP_add, OP_and, OP_or, OP_xor, OP_min, OP_max } crts_operation;
/* All slaves of the array call; all receive the reduction of `count` elements.
 * The buffer is the vendor's; it is not used here. */
int CRTS_scoll_redurt(void* from, void* to, int count, crts_type type,
                      crts_operation operation, void* buffer, int buffer_count);
#define athread_redurt CRTS_scoll_redurt
#define athread_scoll_redurt CRTS_scoll_redurt

SWAMP_SUNWAY_END

#endif /* SWAMP_SUNWAY_SYNC_H_ */
