#include "host.h"

int main(void) {
  begin();
  args_t args = {in, out, flag};
  athread_spawn(kernel, &args);
#ifdef RIGHT
  athread_join();
#endif
  athread_spawn(kernel, &args); /* BUG: unjoined */
  athread_join();
  return finish();
}
