#include <crts.h>
#include <slave.h>

typedef struct {
  int* out;
  int groups;
} para_t;

__thread_local int line[32] __attribute__((aligned(128)));

void number(para_t* arg) {
  para_t para;
  CRTS_dma_get(&para, arg, sizeof para);
  int id = CRTS_cgn * 64 + CRTS_tid;
  if (id != _MYID) id = -1000;
  CRTS_ssync_node();
  for (int j = 0; j < 32; ++j) line[j] = id + para.groups * j;
  CRTS_dma_put(para.out + id * 32, line, sizeof line);
}
