#include <slave.h>

typedef struct {
  int* out;
  int add;
  int group;
} para_t;

/* Each launch shifts the slaves' places, so that a slave adds to a place that
 * another one wrote in the previous launch. */
void add(para_t* para) {
  if (_PEN == 0) para->group = _CGN;
  CRTS_ssync_master_array();
  athread_ssync_array();
  const int place = (_PEN + para->add) % 64;
  para->out[place] += place * para->add;
  athread_ssync_array();
}
