#include "host.h"

int main(void) {
  begin();
  args_t args = {in, out, flag};
  athread_spawn(kernel, &args); /* BUG: unjoined */
#ifdef RIGHT
  athread_join();
#endif
  return finish();
}
