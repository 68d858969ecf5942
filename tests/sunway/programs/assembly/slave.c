#define error(text) fprintf(stderr, text)
#include <slave.h>

#include "dma.h"

extern int tickets;
extern long calls;
extern double in[64 * 32], out[64 * 32];
double broadcast(double value);
float times(void);

__thread_local double part[32];

static void sync_array(void) {
  int256 any;
  asm volatile(
      "ldi    %0, 0xff\n"
      "sync   %0\n"
      "synr   %0\n"
      :
      : "r"(any)
      : "memory");
}

static long numbers(void) {
  int row, column;
  long both;
  asm volatile(
      "rcsr %[row], 1\n\t"
      "rcsr %[column], 2   # the column\n\t"
      "mull %[row], 100, %[both]; addl %[both], %[column], %[both]\n\t"
      "stl %[both], 0(%[place])"
      : [row] "=&r"(row), [column] "=&r"(column), [both] "=&r"(both)
      : [place] "r"(&both)
      : "memory");
  return both;
}

/* The sum of n, n - 1, ... 1, in a loop. */
static long sum_to(long n) {
  long sum;
  asm("mov $31, %0\n"
      "ble %1, 2f\n"
      "1:\n\t"
      "addl %0, %1, %0\n\t"
      "subl %1, 1, %1\n\t"
      "bne %1, 1b\n"
      "2:\n\tnop"
      : "=&r"(sum), "+r"(n));
  return sum;
}

/* Vectors in registers, by number and as operands; a performance counter is
 * 0. */
static int vectors(void) {
  static __thread_local double four[8] __attribute__((aligned(64))) = {1, 2, 3, 4, 10, 20, 30, 40};
  static __thread_local int place[24] __attribute__((aligned(32)));
  doublev4 a, b, sum, reversed;
  intv8 low, high;
  double third;
  int match, wrong = 0, i;
  long counter = 1;
  asm volatile(
      "vldd %0, 0(%4)\n\t"
      "vldd %1, 32(%4)\n\t"
      "vaddd %0, %1, %2\n\t"
      "vshff %2, %2, 0x1b, %3\n\t"
      "vstd %3, 32(%4)\n\t"
      : "=&r"(a), "=&r"(b), "=&r"(sum), "=&r"(reversed)
      : "r"(four)
      : "memory");
  for (i = 0; i < 4; ++i) {
    wrong += sum[i] != 11 * (i + 1) || four[4 + i] != 11 * (4 - i);
  }
  asm("vinsf %2, %1, 1, %0" : "=r"(a) : "r"(b), "r"(-5.0));
  wrong += a[0] != 10 || a[1] != -5 || a[3] != 40;
  asm("vextf %1, 2, %0" : "=r"(third) : "r"(a));
  wrong += third != 30;
  asm("vsellt %1, $31, %1, %0\n\tvcpys $31, %1, %1" : "=&r"(b), "+r"(a));
  wrong += b[0] != 10 || b[1] != 0 || a[1] != 5;
  asm("vmatch %1, %2, %0" : "=r"(match) : "r"(sum), "r"(0x40260000));
  wrong += match == 0; /* the upper half of 11.0 */
  asm("vmatch %1, %2, %0" : "=r"(match) : "r"(sum), "r"(77));
  wrong += match != 0;
  for (i = 0; i < 24; ++i) place[i] = i;
  asm volatile(
      "vldw_ul %0, 0(%2)\n\t"
      "vldw_uh %1, 32(%2)\n\t"
      "vbisw %0, %1, %0\n\t"
      "vstw_ul %0, 0(%3)\n\t"
      "vstw_uh %0, 32(%3)\n\t"
      : "=&r"(low), "=&r"(high)
      : "r"(place + 3), "r"(place + 13)
      : "memory");
  for (i = 0; i < 24; ++i) {
    wrong += place[i] != (i >= 13 && i < 21 ? i - 10 : i);
  }
  /* Registers keep their values from one statement to the next. */
  asm volatile("vldd $40, 0(%0)\n\tldi $5, 2($31)" : : "r"(four) : "memory");
  asm volatile("vaddd $40, $40, $41" : : : "memory");
  asm volatile("vstd $41, 0(%1)\n\taddl $5, 3, %0"
               : "=r"(match)
               : "r"(four)
               : "memory");
  wrong += match != 5 || four[1] != 4 || four[3] != 8;
  asm("wcsr %1, 5\n\trcsr %0, 5" : "=r"(counter) : "r"(7L));
  return wrong + (counter != 0);
}

void instructions(long (*results)[8]) {
  long line[8] = {0};
  int words[2] = {5, 7};
  int ticket, seven;
  long bits;
  sync_array();
  line[0] = numbers();
  asm volatile("faaw %0, 0(%1)\n\t" : "=r"(ticket) : "r"(&tickets));
  line[1] = ticket >= 0 && ticket < 64;
  asm("faal $31, 0(%0)" : : "r"(&calls) : "memory");
  asm("ctpop %1, %0" : "=r"(bits) : "r"(0x1010001));
  line[2] = bits;
  asm("ldw %0, 4(%3)\n\tsll %1, 4, %1\n\tbis %0, %1, %1"
      : "=&r"(seven), "=r"(bits)
      : "1"(bits), "r"(words), "m"(words));
  line[3] = bits;
  line[4] = sum_to(5);
  line[5] = vectors();
  if (line[4] < 0) error("a negative sum\n");
  athread_dma_put(results[_MYID], line, sizeof line);
  sync_array();
}

void exchange(void) {
  volatile int reply = 0;
  int i;
  double from;
  dma_desc get = 0, put = 0;
  dma_set_op(&get, DMA_GET);
  dma_set_mode(&get, PE_MODE);
  dma_set_size(&get, sizeof part);
  dma_set_reply(&get, &reply);
  put = get;
  dma_set_op(&put, DMA_PUT);
  asm volatile("dma %0, %1, %2"
               :
               : "r"(get), "r"(in + 32 * _MYID), "r"(part), "r"(&reply)
               : "memory");
  dma_wait(&reply, 1);
  from = broadcast(_MYID);
  for (i = 0; i < 32; ++i) part[i] = times() * part[i] + from;
  dma(put, out + 32 * _MYID, part);
  dma_wait(&reply, 2);
}
