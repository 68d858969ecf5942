/* slave_api.h: what slave cores call. Every call has two names, athread_* and
 * CRTS_*. A reply word is any 4-byte aligned word in LDM. */
#ifndef SWAMP_SUNWAY_SLAVE_API_H_
#define SWAMP_SUNWAY_SLAVE_API_H_

#include <swamp_sunway/side.h>

typedef volatile int crts_rply_t;
typedef volatile long athread_rply_t;

#include <swamp_sunway/dma.h>
#include <swamp_sunway/rma.h>
#include <swamp_sunway/sync.h>

SWAMP_SUNWAY_BEGIN

/* The identity of a slave. */
extern SWAMP_SUNWAY_THREAD char _PEN;  /* 0..63 in its core group */
extern SWAMP_SUNWAY_THREAD char _ROW;  /* 0..7 */
extern SWAMP_SUNWAY_THREAD char _COL;  /* 0..7 */
extern SWAMP_SUNWAY_THREAD char _CGN;  /* core group */
extern SWAMP_SUNWAY_THREAD int _MYID;  /* 0.. over all groups of the launch */
extern SWAMP_SUNWAY_THREAD int _cache_size; /* KiB */
extern SWAMP_SUNWAY_THREAD int _ldm_share_mode;
extern SWAMP_SUNWAY_THREAD int _ldm_share_size;
#define athread_tid _PEN
#define athread_rid _ROW
#define athread_cid _COL
#define athread_cgn _CGN
#define CRTS_tid _PEN
#define CRTS_rid _ROW
#define CRTS_cid _COL
#define CRTS_cgn _CGN
#define CRTS_CGN _CGN
#define CRTS_smng_get_tid() _PEN
#define CRTS_smng_get_rid() _ROW
#define CRTS_smng_get_cid() _COL
#define CRTS_smng_get_cgn() _CGN
#define CRTS_array_trank _PEN
#define CRTS_node_trank _MYID
#define CRTS_array_tsize 64
#define CRTS_pen CRTS_array_tsize
int athread_node_tsize(void); /* launched slaves of all core groups */
#define CRTS_node_tsize athread_node_tsize()
/* Numbers in the order of the clusters of two by two slaves. */
#define CRTS_spc_tid ((_PEN & 0x31) | (_PEN & 6) << 1 | (_PEN & 8) >> 2)
#define CRTS_spcn (CRTS_spc_tid >> 2)
#define CRTS_smng_get_spc_tid() CRTS_spc_tid
#define CRTS_smng_get_spcn() CRTS_spcn
#define CRTS_smng_get_tid_from_spc(c) \
  (((c) & 0x31) | ((c) & 12) >> 1 | ((c) & 2) << 2)
int athread_get_id(int core); /* -1: its own */
#define CRTS_athread_get_id athread_get_id
SWAMP_SUNWAY_CALL(get_tid, void)
SWAMP_SUNWAY_CALL(get_rid, void)
SWAMP_SUNWAY_CALL(get_cid, void)
SWAMP_SUNWAY_CALL(get_cgn, void)
int athread_get_num_threads(void);

/* The slave's cycle counter, at 2.25 GHz; two reads always differ. */
unsigned long athread_stime_cycle(void);
#define CRTS_stime_cycle athread_stime_cycle
#define CRTS_time_cycle athread_stime_cycle
#define athread_time_cycle athread_stime_cycle
#define RTC() athread_stime_cycle()
#define RPCC(x)                 \
  {                             \
    (x) = athread_stime_cycle(); \
  }

/* Main memory is coherent here. With SWAMP_CHECK_CACHE=1 the size of the cache
 * is 128 KiB, else 0. */
void flush_slave_cache(void);
void evict_slave_cache(void);
void evict_slave_cache_cont(volatile void* begin, volatile void* end);
int set_cache_size(int kib); /* ends the checks of the caches */
int set_ptr_uncached(void** pointer);
int set_ptr_cached(void** pointer);
long get_slave_cache_size(void); /* bytes */
#define CRTS_scache_flush_all flush_slave_cache
#define CRTS_scache_evict evict_slave_cache_cont
#define CRTS_scache_get_size get_slave_cache_size
#define sw_slave_evictd(x) evict_slave_cache_cont((void*)(x), (void*)(x))
#define sw_slave_flushd(x) sw_slave_evictd(x)
#define sw_slave_write_hint(x) ((void)(x))
#define sw_slave_private_section0(start, end) ((void)(start), (void)(end))
#define sw_slave_private_section1 sw_slave_private_section0
#define sw_slave_private_section2 sw_slave_private_section0
#define sw_slave_private_section3 sw_slave_private_section0
void CRTS_memb(void);
#define CRTS_MEMB() CRTS_memb()

/* Memory of the slave's LDM, 64-byte aligned; NULL if the static variables leave
 * less. */
void* ldm_malloc(size_t bytes);
/* `bytes` must be the size passed to ldm_malloc(). */
void ldm_free(void* memory, size_t bytes);
unsigned get_allocatable_size(void);
/* Allocates the largest free piece; NULL and 0 bytes if there is none. */
void* ldm_malloc_max(size_t* bytes);
void ldm_free_all(void);
#define CRTS_pldm_malloc ldm_malloc
#define CRTS_pldm_free ldm_free
#define CRTS_pldm_get_free_size get_allocatable_size

/* One lock for each part of a core group: the array, its rows, columns, n
 * slaves, or n clusters of two by two. */
#define SWAMP_PART_LOCK(part)         \
  int CRTS_smutex_lock_##part(void);  \
  int CRTS_smutex_unlock_##part(void);
SWAMP_PART_LOCK(array)
SWAMP_PART_LOCK(row)
SWAMP_PART_LOCK(col)
SWAMP_PART_LOCK(32spe)
SWAMP_PART_LOCK(16spe)
SWAMP_PART_LOCK(2spe)
SWAMP_PART_LOCK(1spc)
SWAMP_PART_LOCK(2spc)
SWAMP_PART_LOCK(4spc)
SWAMP_PART_LOCK(8spc)
#undef SWAMP_PART_LOCK
#define CRTS_smutex_lock_node CRTS_mutex_lock_node
#define CRTS_smutex_unlock_node CRTS_mutex_unlock_node
#define CRTS_smutex_lock_8spe CRTS_smutex_lock_row
#define CRTS_smutex_unlock_8spe CRTS_smutex_unlock_row
#define CRTS_smutex_lock_custom athread_lock
#define CRTS_smutex_unlock_custom athread_unlock
#define lock_long athread_lock
#define unlock_long athread_unlock
#define athread_smutex_lock_array CRTS_smutex_lock_array
#define athread_smutex_unlock_array CRTS_smutex_unlock_array
/* Each adds to a word of main memory atomically and returns the old value. */
int faaw(volatile int* word, int value);
long faal(volatile long* word, long value);
#define atomic_inc1_w(word) faaw((volatile int*)(word), 1)
#define atomic_inc1_l(word) faal((volatile long*)(word), 1)
int updt_addw(int value, volatile int* word);
int updt_subw(int value, volatile int* word);
#define updt_addw_i updt_addw
#define updt_subw_i updt_subw
long updt_addl(long value, volatile long* word);

/* Half precision other than IEEE binary16 is not emulated. */
void set_bf16_mode(void) SWAMP_SUNWAY_REFUSE("bf16 mode is not emulated");
/* A slave cannot start slaves. */
int swamp_slave_spawn(void)
    SWAMP_SUNWAY_REFUSE("athread_spawn is the host's: compile with -mhost");
#define athread_spawn(function, argument) swamp_slave_spawn()
#define athread_join() swamp_slave_spawn()
/* printf, one line at a time. */
#define ordered_printf printf

SWAMP_SUNWAY_END

#endif /* SWAMP_SUNWAY_SLAVE_API_H_ */
