#include "host.h"

int main(void) {
  begin();
  args_t args = {in, out, flag};
  athread_spawn(kernel, &args);
  athread_join();
#ifndef RIGHT
  athread_join(); /* BUG: unjoined */
#endif
  return finish();
}
