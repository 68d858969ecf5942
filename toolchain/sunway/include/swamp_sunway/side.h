/* side.h: which side is compiled, and the storage keywords of both. */
#ifndef SWAMP_SUNWAY_SIDE_H_
#define SWAMP_SUNWAY_SIDE_H_

#if !defined(__sw_host__) && !defined(__sw_slave__)
#error "Sunway headers are for swcc: compile with swcc -mhost or swcc -mslave"
#endif

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define SWAMP_SUNWAY_BEGIN extern "C" {
#define SWAMP_SUNWAY_END }
#define SWAMP_SUNWAY_THREAD thread_local
#else
#define SWAMP_SUNWAY_BEGIN
#define SWAMP_SUNWAY_END
#define SWAMP_SUNWAY_THREAD _Thread_local
#endif

/* Declares a call by its two names, athread_NAME and CRTS_NAME. */
#define SWAMP_SUNWAY_CALL(name, ...) \
  int athread_##name(__VA_ARGS__);   \
  int CRTS_##name(__VA_ARGS__) __asm__("athread_" #name);

/* Calls of what is not emulated do not compile, instead of doing nothing. */
#define SWAMP_SUNWAY_REFUSE(text) __attribute__((__error__("swcc: " text)))

/* Main memory is coherent here, so all kinds of it are the same. The sections
 * are for SWAMP_CHECK_CACHE=1. The assembler refuses the second one for
 * variables with initial values, and gcc both for what is not a global or
 * static variable; swcc compiles such a source again (Options::Uncached). */
#define __cross
#ifdef SWAMP_SUNWAY_UNCACHED_UNKNOWN
#define __uncached
__asm__(
    ".pushsection .rodata.swamp_uncached_unknown,\"a\",@progbits\n"
    "\t.weak swamp_uncached_unknown\n"
    "swamp_uncached_unknown:\n"
    "\t.string \"gcc cannot place an __uncached variable of " __BASE_FILE__
    "\"\n\t.popsection");
#elif defined SWAMP_SUNWAY_UNCACHED_DATA
#define __uncached __attribute__((__section__("swamp_uncached")))
#else
#define __uncached \
  __attribute__((__section__("swamp_uncached_zero,\"aw\",@nobits#")))
#endif
#define __atomic __uncached
#define __uncached_cross __uncached
#define __atomic_cross __uncached

#define CRTS_MAX_LDM_SIZE (256 * 1024)
#define CRTS_MAX_MPE_NUM 6
#define CRTS_MAX_SPE_NUM 64
#define CRTS_SMAK_ALL 0x3f

SWAMP_SUNWAY_BEGIN
/* The process of an MPI program, and the number of processes; 0 and 1 of a
 * program without. */
long swamp_mpi_rank(void);
long swamp_mpi_size(void);
#define CRTS_rank swamp_mpi_rank()
#define CRTS_size swamp_mpi_size()
/* Every process has a chip of its own, which is a node. */
#define CRTS_node_rank 0L
#define CRTS_node_size 1L
#define CRTS_jobid 0L

/* Locks in main memory. */
int athread_lock(volatile long* lock);
int athread_unlock(volatile long* lock);
SWAMP_SUNWAY_CALL(mutex_lock, volatile int64_t* lock)
SWAMP_SUNWAY_CALL(mutex_trylock, volatile int64_t* lock)
SWAMP_SUNWAY_CALL(mutex_unlock, volatile int64_t* lock)
SWAMP_SUNWAY_CALL(mutex_lock_node, void)
SWAMP_SUNWAY_CALL(mutex_trylock_node, void)
SWAMP_SUNWAY_CALL(mutex_unlock_node, void)
SWAMP_SUNWAY_END

#ifdef __sw_slave__
/* One variable per slave, in its LDM, which keeps its value between
 * launches. */
#define __thread_local SWAMP_SUNWAY_THREAD
#define __thread_local_fix SWAMP_SUNWAY_THREAD
#define __thread_mix SWAMP_SUNWAY_THREAD
#define __uncached_thread SWAMP_SUNWAY_THREAD
#define __atomic_thread SWAMP_SUNWAY_THREAD
#define __ldm SWAMP_SUNWAY_THREAD
#define __ldm_fix SWAMP_SUNWAY_THREAD
#define __ldm_kernel(...) SWAMP_SUNWAY_THREAD
#define __thread_kernel(...) SWAMP_SUNWAY_THREAD
#else
#define SWAMP_SUNWAY_IS_SLAVE_CODE \
  _Pragma("GCC error \"slave code: compile it with swcc -mslave -c\"")
#define __thread_local SWAMP_SUNWAY_IS_SLAVE_CODE SWAMP_SUNWAY_THREAD
#define __thread_local_fix __thread_local
#define __ldm __thread_local
#define __ldm_fix __thread_local
#define _PEN SWAMP_SUNWAY_IS_SLAVE_CODE 0
#define _MYID SWAMP_SUNWAY_IS_SLAVE_CODE 0
#endif

/* LDM that all slaves of an array share. There is one in the emulation, so only
 * one core group at a time can run such a program. */
#define __thread_local_share __attribute__((__section__("swamp_shared_ldm")))
#define __ldm_share __thread_local_share

#endif /* SWAMP_SUNWAY_SIDE_H_ */
