#include "host.h"

int main(void) {
  begin();
  args_t args = {in, out, flag};
  athread_spawn(kernel, &args);
#ifndef RIGHT
  args.flag = NULL;
#endif
  athread_join();
  return finish();
}
