/* slave_api.h: what slave cores call. Everything has two prefixes, athread_ and
 * CRTS_; reply words are any 4-byte aligned words in LDM. */
#ifndef SWAMP_SUNWAY_SLAVE_API_H_
#define SWAMP_SUNWAY_SLAVE_API_H_

#include <swamp_sunway/side.h>

typedef volatile int crts_rply_t;
typedef volatile long athread_rply_t;

#include <swamp_sunway/dma.h>
#include <swamp_sunway/ldm.h>
#include <swamp_sunway/rma.h>
#include <swamp_sunway/sync.h>

SWAMP_SUNWAY_BEGIN

/* Who a slave is. */
extern SWAMP_SUNWAY_THREAD char _PEN;  /* 0..63 in its core group */
extern SWAMP_SUNWAY_THREAD char _ROW;  /* 0..7 */
extern SWAMP_SUNWAY_THREAD char _COL;  /* 0..7 */
extern SWAMP_SUNWAY_THREAD char _CGN;  /* core group */
extern SWAMP_SUNWAY_THREAD int _MYID;  /* 0.. over all groups of the launch */
extern SWAMP_SUNWAY_THREAD int _cache_size; /* KiB; always 0 */
#define athread_tid _PEN
#define athread_rid _ROW
#define athread_cid _COL
#define athread_cgn _CGN
#define CRTS_tid _PEN
#define CRTS_rid _ROW
#define CRTS_cid _COL
#define CRTS_cgn _CGN
int athread_get_id(int core); /* its own for -1 */
int athread_get_tid(void);
int athread_get_rid(void);
int athread_get_cid(void);
int athread_get_cgn(void);
#define CRTS_get_tid athread_get_tid
#define CRTS_get_rid athread_get_rid
#define CRTS_get_cid athread_get_cid
#define CRTS_get_cgn athread_get_cgn
int athread_get_num_threads(void);

/* The counter of the slave's 2.25 GHz; two readings always differ. */
unsigned long athread_stime_cycle(void);
#define CRTS_stime_cycle athread_stime_cycle
#define CRTS_time_cycle athread_stime_cycle
#define athread_time_cycle athread_stime_cycle

/* There is no cache to flush: main memory is coherent here. */
void flush_slave_cache(void);
void evict_slave_cache(void);
void evict_slave_cache_cont(volatile void* begin, volatile void* end);
int set_cache_size(int kib);
int set_ptr_uncached(void** pointer);
void CRTS_memb(void);
#define CRTS_MEMB() CRTS_memb()

/* Locks and atomics in main memory. */
int athread_lock(volatile long* lock);
int athread_unlock(volatile long* lock);
int CRTS_mutex_lock(volatile int64_t* lock);
int CRTS_mutex_trylock(volatile int64_t* lock);
int CRTS_mutex_unlock(volatile int64_t* lock);
int CRTS_smutex_lock_array(void);
int CRTS_smutex_unlock_array(void);
#define athread_smutex_lock_array CRTS_smutex_lock_array
#define athread_smutex_unlock_array CRTS_smutex_unlock_array
/* Each adds in one step and returns what was there before. */
int faaw(volatile int* word, int value);
long faal(volatile long* word, long value);
int updt_addw(int value, volatile int* word);
long updt_addl(long value, volatile long* word);

/* Half precision in another format than IEEE's is not emulated. */
void set_bf16_mode(void) SWAMP_SUNWAY_REFUSE("bf16 mode is not emulated");
/* A slave cannot start slaves. */
int swamp_slave_spawn(void)
    SWAMP_SUNWAY_REFUSE("athread_spawn is the host's: compile with -mhost");
#define athread_spawn(function, argument) swamp_slave_spawn()
#define athread_join() swamp_slave_spawn()
/* Register communication of SW26010. */
int swamp_register_communication(void)
    SWAMP_SUNWAY_REFUSE("register communication (putr, getr...) is not emulated");
#define REG_PUTR(...) swamp_register_communication()
#define REG_PUTC(...) swamp_register_communication()
#define REG_GETR(...) swamp_register_communication()
#define REG_GETC(...) swamp_register_communication()
#define SIMD_REG(...) swamp_register_communication()

SWAMP_SUNWAY_END

#endif /* SWAMP_SUNWAY_SLAVE_API_H_ */
