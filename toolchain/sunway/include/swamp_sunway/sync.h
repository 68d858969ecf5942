/* sync.h: barriers of slaves, and collectives over the array. */
#ifndef SWAMP_SUNWAY_SYNC_H_
#define SWAMP_SUNWAY_SYNC_H_

#include <swamp_sunway/side.h>

SWAMP_SUNWAY_BEGIN

SWAMP_SUNWAY_CALL(ssync_array, void) /* all launched slaves of the core group */
SWAMP_SUNWAY_CALL(ssync_row, void)
SWAMP_SUNWAY_CALL(ssync_col, void)
/* A barrier of all slaves of all core groups that are spawned and not joined.
 * It returns only after the master waits, for example in a join, or has spawned
 * on all core groups, because until then the master may spawn on others. */
SWAMP_SUNWAY_CALL(ssync_node, void)
SWAMP_SUNWAY_CALL(ssync_peer, int slave) /* called by both */
/* With the master, which calls CRTS_sync_master_array() or _spe(). */
SWAMP_SUNWAY_CALL(ssync_master_array, void)
SWAMP_SUNWAY_CALL(ssync_master_spe, void)

/* Barriers of parts of the array: n slaves in order, or n clusters of two by
 * two. Pairs of slaves synchronise, for one bit of their numbers after the
 * other. */
#define CRTS_ssync_2spe() athread_ssync_peer(_PEN ^ 1)
#define CRTS_ssync_4spe() (CRTS_ssync_2spe(), athread_ssync_peer(_PEN ^ 2))
#define CRTS_ssync_8spe() athread_ssync_row()
#define CRTS_ssync_16spe() (athread_ssync_row(), athread_ssync_peer(_PEN ^ 8))
#define CRTS_ssync_32spe() (CRTS_ssync_16spe(), athread_ssync_peer(_PEN ^ 16))
#define CRTS_ssync_1spc() (CRTS_ssync_2spe(), athread_ssync_peer(_PEN ^ 8))
#define CRTS_ssync_2spc() (CRTS_ssync_4spe(), athread_ssync_peer(_PEN ^ 8))
#define CRTS_ssync_4spc() CRTS_ssync_16spe()
#define CRTS_ssync_8spc() CRTS_ssync_32spe()
#define CRTS_ssync_sldm() athread_ssync_array()
#define athread_ssync_sldm() athread_ssync_array()

typedef enum { ROW_SCOPE, COL_SCOPE, ARRAY_SCOPE, PP_SCOPE } scope;
/* The mask selects slaves of the caller's row or column, which must include the
 * caller, or the whole array (0xffff). For PP_SCOPE it is the number of the
 * other slave. */
int athread_syn(scope what, int mask);
#define athread_ssync(what, mask) athread_syn(what, mask)
#define CRTS_ssync_col_left() athread_syn(COL_SCOPE, 0x0f)
#define CRTS_ssync_col_right() athread_syn(COL_SCOPE, 0xf0)

/* Types and operations of reductions. */
#define CRTS_int 0x0
#define CRTS_uint 0x1
#define CRTS_long 0x2
#define CRTS_ulong 0x3
#define CRTS_float 0x4
#define CRTS_double 0x5
#define CRTS_intv8 0x6
#define CRTS_uintv8 0x7
#define CRTS_int256 0x8
#define CRTS_uint256 0x9
#define CRTS_floatv4 0xa
#define CRTS_doublev4 0xb
#define CRTS_intv16 0xc
#define CRTS_uintv16 0xd
#define CRTS_int512 0xe
#define CRTS_uint512 0xf
#define CRTS_floatv8 0x10
#define CRTS_doublev8 0x11
#define athread_int CRTS_int
#define athread_uint CRTS_uint
#define athread_long CRTS_long
#define athread_ulong CRTS_ulong
#define athread_float CRTS_float
#define athread_double CRTS_double
#define athread_intv8 CRTS_intv8
#define athread_uintv8 CRTS_uintv8
#define athread_int256 CRTS_int256
#define athread_uint256 CRTS_uint256
#define athread_floatv4 CRTS_floatv4
#define athread_doublev4 CRTS_doublev4
#define athread_intv16 CRTS_intv16
#define athread_uintv16 CRTS_uintv16
#define athread_int512 CRTS_int512
#define athread_uint512 CRTS_uint512
#define athread_floatv8 CRTS_floatv8
#define athread_doublev8 CRTS_doublev8
#define OP_add 0x1
#define OP_and 0x2
#define OP_or 0x3
#define OP_xor 0x4
#define OP_eqv 0x5
#define OP_min 0x6
#define OP_max 0x7
/* Called by all slaves of the array, which all receive the reduction of `count`
 * elements. The vendor's library uses the buffer; this one does not. */
int CRTS_scoll_redurt(void* from, void* to, int count, int type, int operation,
                      void* buffer, int buffer_count);
#define athread_redurt CRTS_scoll_redurt
#define athread_scoll_redurt CRTS_scoll_redurt
/* All call: slave j receives, as its piece i, piece j of slave i. A piece has
 * `bytes` bytes. */
int CRTS_scoll_alltoall(void* from, void* to, int bytes);
#define athread_alltoall CRTS_scoll_alltoall
#define CRTS_scoll_alltoall_inplace(all, bytes, buffer, buffer_count) \
  ((void)(buffer), (void)(buffer_count), (void)CRTS_scoll_alltoall(all, all, bytes))
#define athread_alltoall_inplace CRTS_scoll_alltoall_inplace

SWAMP_SUNWAY_END

#endif /* SWAMP_SUNWAY_SYNC_H_ */
