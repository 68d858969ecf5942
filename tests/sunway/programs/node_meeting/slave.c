#include <slave.h>

extern int in[6 * 64], seen[6 * 64];
extern volatile int used;

/* Twice each slave reads what another core group's has written. */
void meet(void* unused) {
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
