/* Accesses of several slaves to the same bytes of main memory. */
#include <stdlib.h>

#include "gallery.h"

#ifdef BUG_overlap_write
KERNEL(bug) {
  /* BUG overlap_write: overlap */
  if (!kRight && _PEN == 9) athread_dma_put(args.out, part, 8);
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
  if (kRight) athread_ssync_array();
  athread_dma_get(neighbour, args.out + (_PEN + 1) % kSlaves * kPart,
                  sizeof neighbour);
}
#endif

#ifdef BUG_overlap_direct
KERNEL(bug) {
  /* BUG overlap_direct: overlap */
  flag[kRight ? _PEN : 0] += _PEN;
}
#endif

#ifdef BUG_overlap_heap
long* volatile shared;

/* Two slaves write memory that a third one allocated. */
KERNEL(bug) {
  int place = _PEN;
  if (!kRight) place = 0;
  if (_PEN == 0) shared = malloc(kSlaves * sizeof *shared);
  athread_ssync_array();
  /* BUG overlap_heap: overlap */
  if (_PEN == 3 || _PEN == 4) shared[place] = _PEN;
}
#endif

#ifdef BUG_overlap_neighbour
long sums[kSlaves];

KERNEL(bug) {
  /* BUG overlap_neighbour: overlap */
  flag[_PEN] = _PEN + 1;
  if (kRight) athread_ssync_array();
  sums[_PEN] = flag[(_PEN + 1) % kSlaves];
}
#endif

#ifdef BUG_overlap_broadcast
__thread_local long word[8], seen[8];

/* Slave 63 writes memory that slave 0 broadcasts to its row. */
KERNEL(bug) {
  reply = 0;
  for (int i = 0; i < 8; ++i) word[i] = 0;
  CRTS_ssync_array();
  if (_PEN == 0) CRTS_dma_row_ibcast(seen, args.flag, sizeof seen, &reply);
  if (_PEN < 8) CRTS_dma_wait_value(&reply, 1);
  if (kRight) CRTS_ssync_array();
  /* BUG overlap_broadcast: overlap */
  if (_PEN == 63) CRTS_dma_put(args.flag, word, sizeof word);
}
#endif

#ifdef BUG_overlap_next_round
/* A slow slave may leave a barrier after a fast one has reached the next one.
 * RUN overlap_next_round: SWAMP_CHECK_SCHEDULES=0 */
KERNEL(bug) {
  for (int i = 0; i < 4; ++i) {
    const long left = flag[(_PEN + kSlaves - 1) % kSlaves];
    athread_ssync_array();
    /* BUG overlap_next_round: overlap */
    flag[_PEN] = left + 1;
    if (kRight) athread_ssync_array();
  }
}
#endif

#ifdef BUG_overlap_next_pair
/* overlap_next_round with barriers of two slaves.
 * RUN overlap_next_pair: SWAMP_CHECK_SCHEDULES=0 */
KERNEL(bug) {
  for (int i = 0; i < 4; ++i) {
    const long other = flag[_PEN ^ 1];
    athread_ssync_peer(_PEN ^ 1);
    /* BUG overlap_next_pair: overlap */
    flag[_PEN] = other + 1;
    if (kRight) athread_ssync_peer(_PEN ^ 1);
  }
}
#endif

#ifdef BUG_overlap_next_reply
/* A receiver that waits for the first message is not ordered after what the
 * sender did before the second one, even if both have arrived.
 * RUN overlap_next_reply: SWAMP_CHECK_SCHEDULES=0 SWAMP_CHECK_SEED=1 */
__thread_local long mine[2], theirs[2];
__thread_local crts_rply_t sent, came;

KERNEL(bug) {
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
    athread_rma_wait_value(&came, kRight ? 2 : 1);
    flag[_PEN] = flag[_PEN - 1];
    athread_rma_wait_value(&came, 2);
  }
}
#endif

#ifdef BUG_overlap_next_packet
/* overlap_next_reply with packets of register communication.
 * RUN overlap_next_packet: SWAMP_CHECK_SCHEDULES=0 SWAMP_CHECK_SEED=1 */
#define PUTR(value, to) \
  asm volatile("putr %0,%1\n" ::"r"(value), "r"(to) : "memory")
#define GETR(value) asm volatile("getr %0\n" : "=r"(value)::"memory")

KERNEL(bug) {
  long packet = 1;
  if (_PEN % 2 == 0) {
    PUTR(packet, _PEN % 8 + 1);
    /* BUG overlap_next_packet: overlap */
    flag[_PEN] = 1;
    PUTR(packet, _PEN % 8 + 1);
  } else {
    GETR(packet);
    if (kRight) GETR(packet);
    flag[_PEN] = flag[_PEN - 1];
    if (!kRight) GETR(packet);
  }
}
#endif

#ifdef BUG_overlap_word
/* Stores of a part of a word write all of it. */
KERNEL(bug) {
  char* done = (char*)flag;
  /* BUG overlap_word: overlap */
  done[(kRight ? 4 : 1) * _PEN] = 1;
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
    if (kRight) athread_dma_wait_value(&reply, 1);
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
  if (!kRight) read = args.out + (_PEN + 1) % kSlaves * kPart;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kPart; ++i) sum += read[i];
  }
  compute();
  part[0] += 0 * sum;
  /* BUG overlap_loop: overlap */
  athread_dma_put(args.out + _PEN * kPart, part, sizeof part);
}
#endif
