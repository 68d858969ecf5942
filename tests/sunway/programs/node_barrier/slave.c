#include <slave.h>

extern int in[6 * 64], seen[6 * 64];
extern volatile int used;

/* Each slave reads twice what a slave of another core group wrote. */
void step(void* unused) {
  const int self = _CGN * 64 + _PEN;
  const int other = (_CGN + 1) % used * 64 + _PEN;
  in[self] = 1;
  athread_ssync_node();
  seen[self] = in[other];
  athread_ssync_node();
  in[self] = 2;
  athread_ssync_node();
  if (seen[self] == 1) seen[self] = in[other];
}
