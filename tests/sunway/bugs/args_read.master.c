#include "host.h"

double later[kCount] __attribute__((aligned(128)));

int main(void) {
  begin();
  args_t args = {in, out, flag};
  athread_spawn(kernel, &args);
#ifndef RIGHT
  args.in = later;
#endif
  athread_join();
  return finish();
}
