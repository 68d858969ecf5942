/* Transfers between the LDMs of slaves. */
#include "gallery.h"

__thread_local crts_rply_t sent, came;

static inline void start(void) {
  sent = came = 0;
  CRTS_ssync_array();
}

#ifdef BUG_unwaited_rma_get
__thread_local double other;

KERNEL(bug) {
  reply = 0;
  static __thread_local crts_rply_t remote;
  athread_ssync_array();
  athread_rma_iget(&other, &reply, 8, (_PEN + 1) % kSlaves, &part[0], &remote);
  if (kRight) athread_rma_wait_value(&reply, 1);
  /* BUG unwaited_rma_get: missing-wait */
  double mine = other;
  athread_rma_wait_value(&reply, 1);
  athread_ssync_array();
  part[0] += mine - other;
}
#endif

#ifdef BUG_rma_unwaited_receive
__thread_local double edge[4];
double edges[kSlaves];

KERNEL(bug) {
  start();
  CRTS_rma_iput(part, &sent, sizeof edge, (_PEN + 1) % kSlaves, edge, &came);
  CRTS_rma_wait_value(&sent, 1); /* for what this slave sends */
  if (kRight) CRTS_rma_wait_value(&came, 1);
  /* BUG rma_unwaited_receive: missing-wait */
  edges[_PEN] = edge[0];
}
#endif

#if defined BUG_rma_only_barrier || defined BUG_rma_only_sender || \
    defined BUG_rma_source_received || defined BUG_rma_reply_reset
__thread_local double edge[2][4];
double edges[kSlaves];

/* Barriers, local replies and messages of other slaves do not tell that data
 * has arrived. */
KERNEL(bug) {
  const int next = (_PEN + 1) % kSlaves;
  start();
#ifdef BUG_rma_source_received
  CRTS_rma_iput(part, &sent, 32, next, edge[0], &came);
  if (kRight) CRTS_rma_wait_value(&sent, 1);
  CRTS_rma_wait_value(&came, 1);
  /* BUG rma_source_received: source-modified */
  part[0] += edge[0][0] - edge[0][0];
#elif defined BUG_rma_reply_reset
  CRTS_rma_iput(part, &sent, 32, next, edge[0], &came);
  CRTS_rma_wait_value(&came, 1);
  if (kRight) CRTS_ssync_array();
  /* BUG rma_reply_reset: stale-reply */
  sent = 0;
  CRTS_rma_iput(part, &sent, 32, next, edge[1], &came);
  CRTS_rma_wait_value(&sent, 1);
  CRTS_rma_wait_value(&came, 2);
#else
  CRTS_rma_iput(part, &sent, 32, next, edge[0], &came);
#ifdef BUG_rma_only_sender
  CRTS_rma_wait_value(&sent, 1);
  if (kRight) CRTS_rma_wait_value(&came, 1);
#elif defined RIGHT
  CRTS_rma_barrier();
#endif
  CRTS_ssync_array();
  /* BUG rma_only_barrier: missing-wait */
  /* BUG rma_only_sender: missing-wait */
  edges[_PEN] = edge[0][0];
  CRTS_rma_wait_value(&sent, 1);
#endif
  CRTS_ssync_array();
}
#endif

#ifdef BUG_rma_source
__thread_local double edge[4];
__thread_local crts_rply_t got;

void kernel(args_t* from) {
  get_args(from);
  got = 0;
  start();
  CRTS_dma_iget(part, args.in + _PEN * kPart, sizeof part, &got);
  if (kRight) CRTS_dma_wait_value(&got, 1);
  /* BUG rma_source: missing-wait */
  CRTS_rma_iput(part, &sent, sizeof edge, (_PEN + 1) % kSlaves, edge, &came);
  CRTS_dma_wait_value(&got, 1);
  CRTS_rma_wait_value(&sent, 1);
  CRTS_rma_wait_value(&came, 1);
  compute();
  put_part();
}
#endif

#ifdef BUG_rma_reset
__thread_local double first;

/* The message of slave 63 may arrive before the others have reset the word. */
KERNEL(bug) {
  if (kRight) sent = came = 0;
  CRTS_ssync_array();
  if (!kRight) sent = came = 0;
  first = part[0];
  if (_PEN == 63) CRTS_rma_ibcast(&first, &first, &sent, sizeof first, &came);
  /* BUG rma_reset: hang */
  CRTS_rma_wait_value(&came, 1);
}
#endif

#ifdef BUG_rma_without_sender
__thread_local double first;

KERNEL(bug) {
  reply = 0;
  athread_ssync_array();
  if (kRight && _PEN == 0) athread_rma_put(&part[0], 8, 1, &first, &reply);
  if (_PEN == 1) {
    /* BUG rma_without_sender: hang */
    athread_rma_wait_value(&reply, 1);
  }
}
#endif

#ifdef BUG_rma_overlap
__thread_local double mine, of[2];
double sums[kSlaves];

/* Slave 0 waits for both messages, but either may overwrite the other. */
KERNEL(bug) {
  int place = _PEN - 1;
  mine = part[0];
  if (!kRight) place = 0;
  start();
  if (_PEN == 1 || _PEN == 2) {
    /* BUG rma_overlap: overlap */
    CRTS_rma_iput(&mine, &sent, sizeof mine, 0, &of[place], &came);
    CRTS_rma_wait_value(&sent, 1);
  }
  if (_PEN == 0) {
    CRTS_rma_wait_value(&came, 2);
    sums[0] = of[0] + of[1];
  }
}
#endif

#ifdef BUG_rma_get_overlap
__thread_local double shown, seen;
__thread_local crts_rply_t mine, other;
double copies[kSlaves];

/* Slave 1 reads the LDM of slave 0 while slave 2 writes it. */
KERNEL(bug) {
  mine = other = 0;
  shown = part[0];
  CRTS_ssync_array();
  if (_PEN == 1) {
    CRTS_rma_iget(&seen, &mine, sizeof seen, 0, &shown, &other);
    CRTS_rma_wait_value(&mine, 1);
    copies[1] = 0 * seen;
  }
  if (kRight) CRTS_ssync_array();
  if (_PEN == 2) {
    /* BUG rma_get_overlap: overlap */
    CRTS_rma_iput(&shown, &mine, sizeof shown, 0, &shown, &other);
    CRTS_rma_wait_value(&mine, 1);
  }
  if (_PEN == 0) CRTS_rma_wait_value(&other, 2);
}
#endif

#ifdef BUG_rma_no_slave
__thread_local double first;

KERNEL(bug) {
  int to = _PEN + 1;
  if (kRight) to %= kSlaves;
  start();
  /* BUG rma_no_slave: ldm-range */
  CRTS_rma_iput(&part[1], &sent, 8, to, &first, &came);
  CRTS_rma_wait_value(&sent, 1);
  CRTS_rma_wait_value(&came, 1);
}
#endif

#if defined BUG_rma_remote_block || defined BUG_rma_remote_end || \
    defined BUG_rma_remote_local
__thread_local double edge[4];

KERNEL(bug) {
#ifdef BUG_rma_remote_block
  /* Slave 1 has no block at that place. */
  const int count = 4;
  double* to = (double*)ldm_malloc(64);
  if (!kRight && _PEN == 1) ldm_free(to, 64);
#else
  const int count = kRight ? 4 : 5;
#ifdef BUG_rma_remote_local
  double edge[4];
#endif
  double* to = edge;
#endif
  start();
  if (_PEN == 0) {
    /* BUG rma_remote_block: ldm-range */
    /* BUG rma_remote_end: ldm-range */
    /* BUG rma_remote_local: ldm-range */
    CRTS_rma_iput(part, &sent, count * 8, 1, to, &came);
    CRTS_rma_wait_value(&sent, 1);
  }
  if (_PEN == 1) CRTS_rma_wait_value(&came, 1);
}
#endif

#if defined BUG_rma_source_modified || defined BUG_rma_source_filled
__thread_local double edge[2][4];

/* RIGHT: the wait for the reply, or a barrier after the receiver's wait. */
KERNEL(bug) {
  start();
  for (int i = 0; i < 2; ++i) {
    CRTS_rma_iput(part, &sent, 32, (_PEN + 1) % kSlaves, edge[i], &came);
#ifdef RIGHT
    if (i == 0) {
      CRTS_rma_wait_value(&sent, 1);
    } else {
      CRTS_rma_wait_value(&came, 2);
      CRTS_ssync_array();
    }
#endif
#ifdef BUG_rma_source_modified
    /* BUG rma_source_modified: source-modified */
    part[3] += 0 * part[2];
#else
    reply = 0;
    /* BUG rma_source_filled: reuse-in-flight */
    CRTS_dma_iget(part, args.in + _PEN * kPart, 32, &reply);
    CRTS_dma_wait_value(&reply, 1);
#endif
  }
  CRTS_rma_wait_value(&sent, 2);
  CRTS_rma_wait_value(&came, 2);
}
#endif

#ifdef BUG_rma_overwritten
__thread_local double lines[2][4], sums;
double totals[kSlaves];

/* Slave 0 sends two lines; slave 1 may read the first after the second came. */
KERNEL(bug) {
  sums = 0;
  start();
  for (int i = 0; i < 2; ++i) {
    double* line = lines[kRight ? i : 0];
    if (_PEN == 0) {
      /* BUG rma_overwritten: overlap */
      CRTS_rma_iput(part + 4 * i, &sent, 32, 1, line, &came);
      CRTS_rma_wait_value(&sent, i + 1);
    }
    if (_PEN == 1) {
      CRTS_rma_wait_value(&came, i + 1);
      for (int j = 0; j < 4; ++j) sums += line[j];
    }
  }
  totals[_PEN] = sums;
}
#endif

#ifdef BUG_rma_batch
__thread_local double line[4], one, sums;
__thread_local crts_rply_t answered;
double totals[kSlaves];

/* Slave 1 reads after the first three messages, and slave 0 does not wait for
 * its answer before it sends the fourth. */
KERNEL(bug) {
  answered = 0;
  one = sums = 0;
  start();
  for (int i = 1; i <= 4; ++i) {
    if (_PEN == 0) {
      if (kRight && i == 4) CRTS_rma_wait_value(&answered, 1);
      /* BUG rma_batch: overlap */
      CRTS_rma_iput(part + 4 * i, &sent, 32, 1, line, &came);
      CRTS_rma_wait_value(&sent, i);
    }
    if (_PEN == 1 && i >= 3) {
      CRTS_rma_wait_value(&came, i);
      for (int j = 0; j < 4; ++j) sums += line[j];
      CRTS_rma_put(&one, sizeof one, 0, &one, &answered);
    }
  }
  totals[_PEN] = sums;
}
#endif

#ifdef BUG_rma_get_early
__thread_local double seen[4];
__thread_local crts_rply_t mine, other;
double copies[kSlaves];

/* The neighbour may already have computed. */
void kernel(args_t* from) {
  get_args(from);
  get_part();
  mine = other = 0;
  CRTS_ssync_array();
  CRTS_rma_iget(seen, &mine, sizeof seen, (_PEN + 1) % kSlaves, part, &other);
  CRTS_rma_wait_value(&mine, 1);
  if (kRight) CRTS_rma_wait_value(&other, 1);
  copies[_PEN] = seen[0];
  for (int i = 0; i < kPart; ++i) {
    /* BUG rma_get_early: overlap */
    part[i] = 2 * part[i] + 1;
  }
  put_part();
  CRTS_rma_wait_value(&other, 1);
}
#endif

#if defined BUG_reduce_from || defined BUG_reduce_to ||     \
    defined BUG_alltoall_from || defined BUG_alltoall_to || \
    defined BUG_reduce_heap
__thread_local int small[kSlaves], large[kSlaves + 2];

/* Collective calls that read or write more than their array has. */
void kernel(args_t* from) {
  int* mine = large;
  int* result = large;
  get_args(from);
  get_part();
#ifndef RIGHT
#if defined BUG_reduce_from || defined BUG_alltoall_from
  mine = small;
#else
  result = small;
#endif
#endif
#ifdef BUG_reduce_heap
  result = (int*)ldm_malloc(result == large ? sizeof large : sizeof small);
#endif
  for (int i = 0; i < kSlaves; ++i) mine[i] = 0;
#if defined BUG_alltoall_from || defined BUG_alltoall_to
  /* BUG alltoall_from: ldm-range */
  /* BUG alltoall_to: ldm-range */
  CRTS_scoll_alltoall(mine + 2, result + 2, sizeof mine[0]);
#else
  /* BUG reduce_from: ldm-range */
  /* BUG reduce_to: ldm-range */
  /* BUG reduce_heap: ldm-range */
  CRTS_scoll_redurt(mine, result, kSlaves + 2, CRTS_int, OP_add, NULL, 0);
#endif
  compute();
  put_part();
}
#endif

#if defined BUG_sldm_from || defined BUG_sldm_to
__thread_local_share int shared[kSlaves + 8];
int numbers[kSlaves];

void kernel(args_t* from) {
  int first = 0;
  int bytes = sizeof numbers;
#ifndef RIGHT
#ifdef BUG_sldm_from
  bytes += 4;
#else
  first = 9;
#endif
#endif
  if (_PEN == 0) {
    /* BUG sldm_from: main-range */
    /* BUG sldm_to: main-range */
    CRTS_memcpy_sldm(shared + first, numbers, bytes, MEM_TO_LDM);
  }
  get_args(from);
  get_part();
  compute();
  put_part();
}
#endif

#ifdef BUG_broadcast_block
KERNEL(bug) {
  double* to = (double*)ldm_malloc(64);
  if (!kRight && _PEN == 1)
    ldm_free(to, 64); /* slave 1 has no block at that place */
  reply = 0;
  CRTS_ssync_array();
  /* BUG broadcast_block: ldm-range */
  if (_PEN == 0) athread_dma_ibcast(to, args.in, 64, &reply);
  athread_dma_wait_value(&reply, 1);
}
#endif

#ifdef BUG_packet_missing
KERNEL(bug) {
  long number = 7;
  if (kRight && _PEN == 0)
    asm volatile("putr %0,%1\n" ::"r"(number), "r"(1) : "memory");
  /* BUG packet_missing: hang */
  if (_PEN == 1) asm volatile("getr %0\n" : "=r"(number)::"memory");
}
#endif

#ifdef BUG_packet_left
KERNEL(bug) {
  long number = 7;
  if (_PEN == 0) {
    /* BUG packet_left: sync-divergence */
    asm volatile("putr %0,%1\n" ::"r"(number), "r"(1) : "memory");
  }
  if (kRight && _PEN == 1) asm volatile("getr %0\n" : "=r"(number)::"memory");
}
#endif

#ifdef BUG_remote_store
__thread_local double got;

/* A store by an address in the next slave's LDM. */
KERNEL(bug) {
  const unsigned long next = (_PEN + 1) % kSlaves;
  got = 0;
  athread_ssync_array();
  *(double*)((unsigned long)&got |
             next << 20 |
             1L << 45) = _PEN;
  if (kRight) athread_ssync_array();
  /* BUG remote_store: missing-wait */
  if (got < 0) part[0] = 0;
  athread_ssync_array();
}
#endif

#ifdef BUG_remote_other
__thread_local long own;
long* volatile places[kSlaves];

/* A slave computes an address in the next slave's LDM, and loads also by one of
 * another slave's that is in main memory. */
KERNEL(bug) {
  const unsigned long next = (_PEN + 1) % kSlaves;
  own = _PEN;
  places[_PEN] = &own;
  athread_ssync_array();
  long sum = *(long*)((unsigned long)&own | next << 20 | 1L << 45);
  /* BUG remote_other: ldm-range */
  sum += *(kRight ? &own : places[(_PEN + 2) % kSlaves]);
  if (sum > 1000) part[0] = 0;
  athread_ssync_array();
}
#endif

#if defined BUG_remote_number || defined BUG_remote_dma
__thread_local double own[4] __attribute__((aligned(32)));

/* Addresses in the LDM of a slave that does not exist, and of one as main
 * memory. */
KERNEL(bug) {
  const long bit = 1L << 45;
  own[0] = _PEN;
  CRTS_ssync_array();
#ifdef BUG_remote_number
  const long next = _PEN + 1, id = kRight ? next % kSlaves : next;
  /* BUG remote_number: ldm-range */
  part[0] += *(double*)((long)own | id << 20 | bit) * 0;
#else
  double* from = (double*)((long)own + (1L << 20) + bit);
  /* BUG remote_dma: main-range */
  if (!kRight) athread_dma_get(own, from, sizeof own);
#endif
  CRTS_ssync_array();
}
#endif
