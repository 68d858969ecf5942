/* The master of most of the gallery: out is to become 2 * in + 1. */
#include "host.h"

int main(void) {
  args_t args = {in, out, flag};
  begin();
  athread_spawn(kernel, &args);
  athread_join();
  return finish();
}
