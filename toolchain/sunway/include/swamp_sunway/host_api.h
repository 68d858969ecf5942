/* host_api.h: what the master core calls. Functions return 0 for success; the
 * spawns return EBUSY if the core group is running or was not joined. */
#ifndef SWAMP_SUNWAY_HOST_API_H_
#define SWAMP_SUNWAY_HOST_API_H_

#include <swamp_sunway/side.h>

#ifdef __sw_host__
typedef volatile long crts_rply_t;
typedef volatile long athread_rply_t;
#endif

#define SLAVE_FUN(name) slave_##name

SWAMP_SUNWAY_BEGIN

/* Starting and ending. _init starts core group 0, _init_cgs all of the
 * machine. */
int swamp_athread_init(void);
int swamp_athread_init_cgs(void);
#define athread_init() swamp_athread_init()
#define athread_init_cgs() swamp_athread_init_cgs()
#define athread_init_all() swamp_athread_init_cgs()
int CRTS_init(void);
int CRTS_init_all(void);
int swamp_athread_halt(void);
#define athread_halt() swamp_athread_halt()
int athread_leave(void);

/* A host thread has a core group of its own: at its first launch it gets the
 * lowest that no other thread owns, and keeps it until it ends. Calls that name
 * no core group use that one, or core group 0 if the thread has none. */

/* Launches. In C, macros add the prefix slave_ to the function; in C++ they do
 * not. On SW26010 the first function has no third parameter. */
#ifdef __cplusplus
int __real_athread_spawn(void* function, void* argument, int flush = 1);
#else
int __real_athread_spawn();
#endif
int __real_athread_spawn_cgs(void* function, void* argument, int flush);
int __real_athread_spawn_cgmask(unsigned mask, void* function, void* argument,
                                int flush);
int __real_athread_spawn64_cgmask(unsigned mask, void* function,
                                  void* argument);
int __real_athread_create(int id, void* function, void* argument);
#ifdef __cplusplus
#define SWAMP_SUNWAY_SLAVE(name) ((void*)(name))
#else
#define SWAMP_SUNWAY_SLAVE(name) ((void*)slave_##name)
#endif
/* Some programs write the prefix where the macro adds it. This works where no
 * macro is between athread_spawn() and the ##. */
#define slave_SLAVE_FUN(name) slave_##name
/* athread_spawn64() has an argument on SW26010 only. */
#ifdef __cplusplus
#define athread_spawn(function, argument) \
  __real_athread_spawn((void*)(function), (void*)(argument), 1)
#define athread_spawn64(function, ...) \
  SWAMP_SUNWAY_SPAWN64((void*)(function), ##__VA_ARGS__, 0, 0)
#else
#define athread_spawn(function, argument) \
  __real_athread_spawn((void*)slave_##function, (void*)(argument), 1)
#define athread_spawn64(function, ...) \
  SWAMP_SUNWAY_SPAWN64((void*)slave_##function, ##__VA_ARGS__, 0, 0)
#endif
#define SWAMP_SUNWAY_SPAWN64(function, argument, ...) \
  __real_athread_spawn(function, (void*)(argument), 0)
#define athread_spawn_noflush(function, argument) \
  __real_athread_spawn(SWAMP_SUNWAY_SLAVE(function), (void*)(argument), 0)
#define athread_spawn_cgs(function, argument) \
  __real_athread_spawn_cgs(SWAMP_SUNWAY_SLAVE(function), (void*)(argument), 1)
#define athread_spawn_cgs_noflush(function, argument) \
  __real_athread_spawn_cgs(SWAMP_SUNWAY_SLAVE(function), (void*)(argument), 0)
#define athread_spawn_noflush_cgs athread_spawn_cgs_noflush
#define athread_spawn_all athread_spawn_cgs
#define athread_spawn_all_noflush athread_spawn_cgs_noflush
#define athread_spawn64_cgs(function) \
  __real_athread_spawn_cgs(SWAMP_SUNWAY_SLAVE(function), (void*)0, 0)
#define athread_spawn_cgmask_noflush athread_spawn_cgmask
#define athread_spawn_group athread_spawn_cgmask
#define athread_spawn64_cgmask(mask, function, argument)            \
  __real_athread_spawn64_cgmask(mask, SWAMP_SUNWAY_SLAVE(function), \
                                (void*)(argument))
#define __real_athread_spawn_all __real_athread_spawn_cgs
#define __real_athread_spawn64(function) \
  __real_athread_spawn(function, (void*)0, 0)
#define __real_athread_spawn64_arg(function, argument) \
  __real_athread_spawn(function, argument, 0)
#define athread_spawn_mpecg athread_spawn_cgs
#define athread_spawn_cgmask(mask, function, argument)                       \
  __real_athread_spawn_cgmask(mask, SWAMP_SUNWAY_SLAVE(function),            \
                              (void*)(argument), 1)
#define athread_spawn64_arg(function, argument) \
  __real_athread_spawn(SWAMP_SUNWAY_SLAVE(function), (void*)(argument), 0)
#define athread_create(id, function, argument)                 \
  __real_athread_create(id, SWAMP_SUNWAY_SLAVE(function),      \
                        (void*)(argument))
#define CRTS_athread_spawn athread_spawn
#define CRTS_athread_spawn_noflush athread_spawn_noflush
#define CRTS_athread_join athread_join
#define CRTS_athread_create athread_create
#define CRTS_athread_wait athread_wait
#define CRTS_athread_end athread_end
#define CRTS_athread_halt athread_halt
#define CRTS_athread_get_max_threads athread_get_max_threads
int athread_join(void);
int athread_join_cgs(void);
int athread_join_cgmask(unsigned mask);
#define athread_join_mpecg athread_join_cgs
#define athread_join_all athread_join_cgs
#define athread_join64_cgs athread_join_cgs
#define athread_join_group athread_join_cgmask
#define athread_enter64_cgs athread_enter64
#define athread_leave64_cgs athread_leave64
int athread_enter64(void);
int athread_enter64_arg(void);
int athread_join64(void);
int athread_join64_arg(void);
int athread_join64_cgmask(unsigned mask);
int athread_leave64(void);
int athread_leave64_arg(void);
int athread_wait(int id);
int athread_end(int id);
int athread_idle(void); /* slaves that have nothing to do */
int athread_set_num_threads(int count);
int athread_get_num_threads(void);
int athread_get_max_threads(void);
int current_array_id(void);
#define athread_get_arrayid current_array_id

/* Barriers with the slaves inside a launch. */
void CRTS_sync_master_array(void);
void CRTS_sync_master_spe(int id);
#define athread_sync_master_array CRTS_sync_master_array
#define athread_sync_master_spe CRTS_sync_master_spe
/* A barrier with the other processes of the node; the emulation has only
 * one. */
void CRTS_sync_node(void);
#define athread_sync_node CRTS_sync_node

/* Main memory. All kinds of it are the same here. */
void* _sw_xmalloc(size_t bytes);
void _sw_xfree(void* memory);
#define cross_malloc _sw_xmalloc
#define malloc_cross _sw_xmalloc
#define cross_free _sw_xfree
void* libc_aligned_malloc(size_t bytes); /* 64-byte aligned */
void libc_aligned_free(void* memory);
void* libc_set_aligned_malloc(size_t bytes, size_t alignment);
void* libc_uncached_malloc(size_t bytes);
#define libc_uncached_free _sw_xfree
void* libc_uncached_aligned_malloc(size_t bytes);
#define libc_uncached_aligned_free libc_aligned_free

unsigned long CRTS_time_cycle(void); /* at the master's 2.1 GHz */
#define athread_time_cycle CRTS_time_cycle

SWAMP_SUNWAY_END

#endif /* SWAMP_SUNWAY_HOST_API_H_ */
