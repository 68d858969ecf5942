#include <slave.h>

typedef struct {
  int* out;
  int add;
  int group;
} para_t;

/* Of a launch of any thread: what a slave adds to its place, and not to its
 * place of the launch before. */
void add(para_t* para) {
  if (_PEN == 0) para->group = _CGN;
  CRTS_ssync_master_array();
  athread_ssync_array();
  const int place = (_PEN + para->add) % 64;
  para->out[place] += place * para->add;
  athread_ssync_array();
}
