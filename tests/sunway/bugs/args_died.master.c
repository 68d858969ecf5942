#include "host.h"

static __attribute__((noinline)) void start(void) {
  args_t args = {in, out, flag};
  athread_spawn(kernel, &args); /* BUG: args-changed */
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
