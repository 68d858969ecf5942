#include <crts.h>

#include "host.h"

volatile long word;

int main(void) {
  args_t args = {in, out, flag};
  begin();
  for (int i = 0; i < 20; ++i) {
    athread_lock(&word);
    athread_spawn(kernel, &args);
    athread_unlock(&word);
    CRTS_sync_master_array();
    athread_lock(&word); /* BUG: hang */
    athread_unlock(&word);
    athread_join();
  }
  return finish();
}
