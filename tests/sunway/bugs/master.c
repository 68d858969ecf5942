/* The master of every bug. A bug without a section here has a plain master,
 * which spawns and joins. */
#include <athread.h>
#include <crts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MASTER
#include "gallery.h"

double in[kCount] __attribute__((aligned(128)));
double out[kCount] __attribute__((aligned(128)));
long flag[kSlaves];

extern SLAVE_FUN(kernel)(args_t*);

static args_t plain = {in, out, flag};

static void begin(void) {
  for (int i = 0; i < kCount; ++i) in[i] = i;
  athread_init();
}

static int finish(void) {
  int wrong = 0;
  for (int i = 0; i < kCount; ++i) wrong += out[i] != 2.0 * i + 1;
  printf("%s\n", wrong == 0 ? "right" : "wrong");
  athread_halt();
  return 0;
}

#if defined BUG_args_changed || defined BUG_args_read
double later[kCount] __attribute__((aligned(128)));

int main(void) {
  begin();
  args_t args = {in, out, flag};
  athread_spawn(kernel, &args);
#if defined BUG_args_changed && !defined RIGHT
  args.flag = NULL;
#elif !defined RIGHT
  args.in = later;
#endif
  athread_join();
  return finish();
}

#elif defined BUG_args_died
static __attribute__((noinline)) void start(void) {
  args_t args = {in, out, flag};
  /* BUG args_died: args-changed */
  athread_spawn(kernel, &args);
}

int main(void) {
  begin();
#ifdef RIGHT
  args_t args = {in, out, flag};
  athread_spawn(kernel, &args);
#else
  start();
#endif
  athread_join();
  return finish();
}

#elif defined BUG_args_freed
int main(void) {
  begin();
  args_t* args = (args_t*)malloc(sizeof *args);
  args->in = in;
  args->out = out;
  args->flag = flag;
  /* BUG args_freed: args-changed */
  athread_spawn(kernel, args);
  if (!kRight) free(args);
  athread_join();
  if (kRight) free(args);
  return finish();
}

#elif defined BUG_freed_memory
int main(void) {
  begin();
  double* mine = (double*)malloc(kCount * sizeof(double));
  memcpy(mine, in, kCount * sizeof(double));
  args_t args = {mine, out, flag};
  if (!kRight) free(mine);
  athread_spawn(kernel, &args);
  athread_join();
  if (kRight) free(mine);
  return finish();
}

#elif defined BUG_unset_block || defined BUG_unset_direct
int main(void) {
  begin();
  double* mine = (double*)malloc(kCount * sizeof(double));
  if (kRight) memcpy(mine, in, kCount * sizeof(double));
  args_t args = {mine, out, flag};
  athread_spawn(kernel, &args);
  athread_join();
  free(mine);
  return finish();
}

#elif defined BUG_main_range_heap || defined BUG_main_range_local
enum { kCopy = kRight ? kCount : kCount - 8 };

int main(void) {
  begin();
  double* mine = (double*)malloc(kCount * sizeof(double));
#ifdef BUG_main_range_heap
  double* copy = (double*)malloc(kCopy * sizeof(double));
#else
  double copy[kCopy];
#endif
  memcpy(mine, in, kCount * sizeof(double));
  args_t args = {mine, copy, flag};
  athread_spawn(kernel, &args);
  athread_join();
  memcpy(out, copy, (kCount - 8) * sizeof(double));
  for (int i = kCount - 8; i < kCount; ++i) out[i] = 2.0 * i + 1;
  free(mine);
#ifdef BUG_main_range_heap
  free(copy);
#endif
  return finish();
}

#elif defined BUG_master_stores
/* RIGHT: variables that no slave uses, and what a spawn follows, may change. */
int main(void) {
  begin();
  for (int i = 0; i < 2; ++i) {
    athread_spawn(kernel, &plain);
    if (kRight) {
      flag[i] = 1;
    } else {
      in[7 * kPart + 3] = 1;
    }
    athread_join();
    in[5] = 5.5;
    in[5] = 5;
  }
  return finish();
}

#elif defined BUG_master_reads || defined BUG_master_copies
/* RIGHT: it may read what slaves only read, and results after the join. */
double seen[2];

int main(void) {
  begin();
  for (int i = 0; i < 2; ++i) {
    athread_spawn(kernel, &plain);
    seen[0] += in[i] + flag[i];
#if defined RIGHT
    athread_join();
    seen[1] += out[3 * kPart + 1];
#elif defined BUG_master_reads
    seen[1] += out[3 * kPart + 1];
    athread_join();
#else
    memcpy(&seen[1], &out[3 * kPart + 1], sizeof seen[1]);
    athread_join();
#endif
  }
  if (seen[0] != 1) printf("wrong\n");
  return finish();
}

#elif defined BUG_array_stored || defined BUG_array_read
/* The argument of the spawn is the array. RIGHT: after the join. */
int main(void) {
  double seen = 0;
  begin();
  memcpy(out, in, sizeof in);
  athread_spawn(kernel, (args_t*)out);
  if (kRight) athread_join();
#ifdef BUG_array_read
  seen += out[5];
#else
  out[5] += 100;
#endif
#ifdef RIGHT
#ifdef BUG_array_stored
  out[5] -= 100;
#endif
#else
  athread_join();
#endif
  if (seen < 0) printf("%g\n", seen);
  return finish();
}

#elif defined BUG_master_reads_late
/* Sleeping is no join. RIGHT: a slave may also tell by a flag that it has
 * ended, for which the master waits. */
volatile int ended;

int main(void) {
  double seen;
  begin();
  athread_spawn(kernel, &plain);
#ifdef RIGHT
  while (ended != kSlaves) {
  }
#else
  usleep(100000);
#endif
  seen = out[3 * kPart + 1];
  athread_join();
  if (seen != out[3 * kPart + 1]) printf("wrong\n");
  return finish();
}

#elif defined BUG_single_reads || defined BUG_single_stores
/* RIGHT: between the launch of one slave and that of another one. */
int main(void) {
  double seen = 0;
  begin();
  for (int i = 0; i < kSlaves; ++i) {
    athread_create(i, kernel, &plain);
#ifdef RIGHT
    if (i % 2 == 0) athread_wait(i);
    if (i % 2 == 0) seen += out[i * kPart];
#endif
  }
#if defined BUG_single_reads && !defined RIGHT
  seen = out[3 * kPart + 1];
#elif !defined RIGHT
  in[3 * kPart + 1] = 3 * kPart + 1.5;
  seen = in[3 * kPart];
#endif
  for (int i = 0; i < kSlaves; ++i) athread_wait(i);
  if (seen < 0) printf("wrong\n");
  return finish();
}

#elif defined BUG_master_loads_ldm || defined BUG_master_stores_ldm || \
    defined BUG_master_copies_ldm
/* RIGHT: it may keep the address. */
int main(void) {
  double seen[2];
  begin();
  athread_spawn(kernel, &plain);
  athread_join();
  double* shown = kRight ? out : (double*)flag[3];
#ifdef BUG_master_loads_ldm
  /* BUG master_loads_ldm: ldm-range */
  seen[0] = shown[1];
#elif defined BUG_master_stores_ldm
  seen[0] = out[0];
  /* BUG master_stores_ldm: ldm-range */
  shown[0] = seen[0];
#else
  /* BUG master_copies_ldm: ldm-range */
  memcpy(seen, shown, sizeof seen);
#endif
  flag[0] = seen[0] == 0;
  return finish();
}

#elif defined BUG_cache_master
int main(void) {
  begin();
  athread_spawn(kernel, &plain);
  CRTS_sync_master_array();
  flag[0] = 5;
  CRTS_sync_master_array();
  athread_join();
  return finish();
}

#elif defined BUG_volatile_groups
int main(void) {
  begin();
  athread_spawn_cgs(kernel, &plain);
  athread_join_cgs();
  return finish();
}

#elif defined BUG_unjoined
int main(void) {
  begin();
  /* BUG unjoined: unjoined */
  athread_spawn(kernel, &plain);
  if (kRight) athread_join();
  return finish();
}

#elif defined BUG_double_spawn
int main(void) {
  begin();
  athread_spawn(kernel, &plain);
  if (kRight) athread_join();
  /* BUG double_spawn: unjoined */
  athread_spawn(kernel, &plain);
  athread_join();
  return finish();
}

#elif defined BUG_join_without_spawn
int main(void) {
  begin();
  athread_spawn(kernel, &plain);
  athread_join();
  /* BUG join_without_spawn: unjoined */
  if (!kRight) athread_join();
  return finish();
}

#elif defined BUG_no_init
int main(void) {
  for (int i = 0; i < kCount; ++i) in[i] = i;
  if (kRight) athread_init();
  /* BUG no_init: unjoined */
  athread_spawn(kernel, &plain);
  athread_join();
  return finish();
}

#elif defined BUG_lock_kept_returned
volatile long word;

int main(void) {
  begin();
  for (int i = 0; i < 20; ++i) {
    athread_lock(&word);
    athread_spawn(kernel, &plain);
    athread_unlock(&word);
    CRTS_sync_master_array();
    /* BUG lock_kept_returned: hang */
    athread_lock(&word);
    athread_unlock(&word);
    athread_join();
  }
  return finish();
}

#else
int main(void) {
  args_t args = {in, out, flag};
  begin();
  athread_spawn(kernel, &args);
  athread_join();
  return finish();
}
#endif
