/* Accesses of several slaves to the same bytes of main memory. */
#include <stdlib.h>

#include "gallery.h"

#ifdef BUG_overlap_write
void kernel(args_t* from) {
  get_args(from);
  get_part();
  compute();
#ifndef RIGHT
  if (_PEN == 9) {
    /* BUG overlap_write: overlap */
    athread_dma_put(args.out, part, 8);
  }
#endif
  put_part();
}
#endif

#ifdef BUG_overlap_read
void kernel(args_t* from) {
  double neighbour[4];
  get_args(from);
  get_part();
  compute();
  /* BUG overlap_read: overlap */
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
#ifdef RIGHT
  athread_ssync_array();
#endif
  athread_dma_get(neighbour, args.out + (_PEN + 1) % kSlaves * kPart,
                  sizeof neighbour);
}
#endif

#ifdef BUG_overlap_direct
void kernel(args_t* from) {
  get_args(from);
#ifdef RIGHT
  flag[_PEN] += _PEN;
#else
  /* BUG overlap_direct: overlap */
  flag[0] += _PEN;
#endif
  get_part();
  compute();
  put_part();
}
#endif

#ifdef BUG_overlap_heap
long* volatile shared;

/* Two slaves write memory that a third one allocated. */
void kernel(args_t* from) {
  int place = _PEN;
  get_args(from);
  get_part();
#ifndef RIGHT
  place = 0;
#endif
  if (_PEN == 0) shared = malloc(kSlaves * sizeof *shared);
  athread_ssync_array();
  /* BUG overlap_heap: overlap */
  if (_PEN == 3 || _PEN == 4) shared[place] = _PEN;
  compute();
  put_part();
}
#endif

#ifdef BUG_overlap_neighbour
long sums[kSlaves];

void kernel(args_t* from) {
  get_args(from);
  get_part();
  compute();
  put_part();
  /* BUG overlap_neighbour: overlap */
  flag[_PEN] = _PEN + 1;
#ifdef RIGHT
  athread_ssync_array();
#endif
  sums[_PEN] = flag[(_PEN + 1) % kSlaves];
}
#endif

#ifdef BUG_overlap_broadcast
__thread_local long word[8], seen[8];

/* Slave 63 writes memory that slave 0 broadcasts to its row. */
void kernel(args_t* from) {
  get_args(from);
  get_part();
  reply = 0;
  for (int i = 0; i < 8; ++i) word[i] = 0;
  CRTS_ssync_array();
  if (_PEN == 0) CRTS_dma_row_ibcast(seen, args.flag, sizeof seen, &reply);
  if (_PEN < 8) CRTS_dma_wait_value(&reply, 1);
#ifdef RIGHT
  CRTS_ssync_array();
  if (_PEN == 63) CRTS_dma_put(args.flag, word, sizeof word);
#endif
  compute();
  put_part();
#ifndef RIGHT
  /* BUG overlap_broadcast: overlap */
  if (_PEN == 63) CRTS_dma_put(args.flag, word, sizeof word);
#endif
}
#endif

#ifdef BUG_overlap_next_round
/* A slow slave may leave a barrier after a fast one has reached the next one.
 * RUN overlap_next_round: SWAMP_CHECK_SCHEDULES=0 */
void kernel(args_t* from) {
  get_args(from);
  for (int i = 0; i < 4; ++i) {
    const long left = flag[(_PEN + kSlaves - 1) % kSlaves];
    athread_ssync_array();
    /* BUG overlap_next_round: overlap */
    flag[_PEN] = left + 1;
#ifdef RIGHT
    athread_ssync_array();
#endif
  }
  get_part();
  compute();
  put_part();
}
#endif

#ifdef BUG_overlap_next_pair
/* overlap_next_round with barriers of two slaves.
 * RUN overlap_next_pair: SWAMP_CHECK_SCHEDULES=0 */
void kernel(args_t* from) {
  get_args(from);
  for (int i = 0; i < 4; ++i) {
    const long other = flag[_PEN ^ 1];
    athread_ssync_peer(_PEN ^ 1);
    /* BUG overlap_next_pair: overlap */
    flag[_PEN] = other + 1;
#ifdef RIGHT
    athread_ssync_peer(_PEN ^ 1);
#endif
  }
  get_part();
  compute();
  put_part();
}
#endif

#ifdef BUG_overlap_next_reply
/* A receiver that waits for the first message is not ordered after what the
 * sender did before the second one, even if both have arrived.
 * RUN overlap_next_reply: SWAMP_CHECK_SCHEDULES=0 SWAMP_CHECK_SEED=1 */
__thread_local long mine[2], theirs[2];
__thread_local crts_rply_t sent, came;

void kernel(args_t* from) {
  get_args(from);
  sent = came = 0;
  athread_ssync_array();
  if (_PEN % 2 == 0) {
    athread_rma_iput(&mine[0], &sent, sizeof(long), _PEN + 1, &theirs[0],
                     &came);
    /* BUG overlap_next_reply: overlap */
    flag[_PEN] = 1;
    athread_rma_iput(&mine[1], &sent, sizeof(long), _PEN + 1, &theirs[1],
                     &came);
    athread_rma_wait_value(&sent, 2);
  } else {
#ifdef RIGHT
    athread_rma_wait_value(&came, 2);
#else
    athread_rma_wait_value(&came, 1);
#endif
    flag[_PEN] = flag[_PEN - 1];
    athread_rma_wait_value(&came, 2);
  }
  get_part();
  compute();
  put_part();
}
#endif

#ifdef BUG_overlap_next_packet
/* overlap_next_reply with packets of register communication.
 * RUN overlap_next_packet: SWAMP_CHECK_SCHEDULES=0 SWAMP_CHECK_SEED=1 */
#define PUTR(value, to) \
  asm volatile("putr %0,%1\n" ::"r"(value), "r"(to) : "memory")
#define GETR(value) asm volatile("getr %0\n" : "=r"(value)::"memory")

void kernel(args_t* from) {
  long packet = 1;
  get_args(from);
  if (_PEN % 2 == 0) {
    PUTR(packet, _PEN % 8 + 1);
    /* BUG overlap_next_packet: overlap */
    flag[_PEN] = 1;
    PUTR(packet, _PEN % 8 + 1);
  } else {
    GETR(packet);
#ifdef RIGHT
    GETR(packet);
#endif
    flag[_PEN] = flag[_PEN - 1];
#ifndef RIGHT
    GETR(packet);
#endif
  }
  get_part();
  compute();
  put_part();
}
#endif

#ifdef BUG_overlap_word
/* Stores of a part of a word write all of it. */
void kernel(args_t* from) {
  char* done = (char*)flag;
  get_args(from);
  get_part();
  compute();
  put_part();
#ifdef RIGHT
  done[4 * _PEN] = 1;
#else
  /* BUG overlap_word: overlap */
  done[_PEN] = 1;
#endif
}
#endif

#ifdef BUG_overlap_early_flag
/* The flag may be seen before the data of the put. */
volatile long ready;
void kernel(args_t* from) {
  get_args(from);
  get_part();
  compute();
  reply = 0;
  if (_PEN == 0) {
    /* BUG overlap_early_flag: overlap */
    athread_dma_iput(args.out, part, sizeof part, &reply);
#ifdef RIGHT
    athread_dma_wait_value(&reply, 1);
#endif
    ready = 1;
    athread_dma_wait_value(&reply, 1);
  } else {
    put_part();
  }
  if (_PEN == 1) {
    while (ready == 0) {
    }
    athread_dma_get(part, args.out, sizeof part);
  }
}
#endif

#ifdef BUG_overlap_loop
/* A loop whose addresses are known before it reads what another slave writes:
 * check mode has a copy of such loops without tests. */
void kernel(args_t* from) {
  double sum = 0;
  get_args(from);
  get_part();
  const double* read = args.in + _PEN * kPart;
#ifndef RIGHT
  read = args.out + (_PEN + 1) % kSlaves * kPart;
#endif
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kPart; ++i) sum += read[i];
  }
  compute();
  part[0] += 0 * sum;
  /* BUG overlap_loop: overlap */
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
#endif
