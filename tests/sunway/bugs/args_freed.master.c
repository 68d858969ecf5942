#include "host.h"

int main(void) {
  begin();
  args_t* args = (args_t*)malloc(sizeof *args);
  args->in = in;
  args->out = out;
  args->flag = flag;
  athread_spawn(kernel, args); /* BUG: args-changed */
#ifndef RIGHT
  free(args);
#endif
  athread_join();
#ifdef RIGHT
  free(args);
#endif
  return finish();
}
