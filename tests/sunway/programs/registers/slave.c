/* Register communication, as a matrix product shares its panels. */
#include <simd.h>
#include <slave.h>

#define GET_ROW(row) asm volatile("rcsr %0, 1" : "=r"(row))
#define GET_COLUMN(column) asm volatile("rcsr %0, 2" : "=r"(column))
#define REG_PUTR(value, to) \
  asm volatile("putr %0,%1\n" ::"r"(value), "r"(to) : "memory")
#define REG_PUTC(value, to) asm volatile("putc %0,%1\n" ::"r"(value), "r"(to))
#define REG_GETR(value) asm volatile("getr %0\n" : "=r"(value)::"memory")
#define REG_GETC(value) asm volatile("getc %0\n" : "=r"(value))

/* Whether no message has come by row. */
static int is_row_empty(void) {
  int empty;
  asm volatile("rcsr %0,0x34\n" : "=r"(empty));
  return empty;
}

static double panels[64][4] __attribute__((aligned(128)));
static long sums[64];

enum { kRounds = 60 };

__thread_local double panel[4] __attribute__((aligned(32)));

void work(int* bad) {
  volatile int reply = 0;
  doublev4 mine, other, sum = 0;
  long total, part;
  int row, column, i, k;
  GET_ROW(row);
  GET_COLUMN(column);
  for (k = 0; k < 4; ++k) panels[_PEN][k] = 4 * _PEN + k;
  athread_get(PE_MODE, panels[row * 8 + column], panel, sizeof panel,
              (void*)&reply, 0, 0, 0);
  dma_wait(&reply, 1);
  simd_load(mine, panel);
  /* The slave of each column in turn sends its panel to the row. */
  for (k = 0; k < 8; ++k) {
    if (column == k) {
      REG_PUTR(mine, 8);
      other = mine;
    } else {
      while (is_row_empty()) {
      }
      REG_GETR(other);
    }
    sum = sum + other;
  }
  /* The same many times: a packet sent to all arrives everywhere before a packet
   * that a receiver of the first one sends. */
  for (i = 0; i < kRounds; ++i) {
    for (k = 0; k < 8; ++k) {
      part = 8 * i + k;
      if (column == k) {
        REG_PUTR(part, 8);
      } else {
        REG_GETR(part);
      }
      if (part != 8 * i + k) sum = sum + 1;
    }
  }
  total = sum[0] + sum[1] + sum[2] + sum[3];
  /* Down each column, from one slave to the next, and back to all of them. */
  if (row != 0) {
    REG_GETC(part);
    total += part;
  }
  if (row != 7) {
    REG_PUTC(total, row + 1);
    REG_GETC(total);
  } else {
    REG_PUTC(total, 8);
  }
  reply = 0;
  panel[0] = 0;
  *(long*)panel = total;
  athread_put(PE_MODE, panel, &sums[row * 8 + column], sizeof(long),
              (void*)&reply, 0, 0);
  dma_wait(&reply, 1);
  bad[_PEN] += sums[_PEN] != 32640;
}
