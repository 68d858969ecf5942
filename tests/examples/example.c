#include <stdint.h>
#include <stdio.h>

#include "swamp/c_api.h"

int main(void) {
  float weight_grad[4] = {65536.0f, -131072.0f, 0.0f, 1.0f};
  uint16_t bias_grad[2] = {0x3c00, 0x7c00}; /* float16: 1, inf */
  swamp_tensor grads[2] = {{weight_grad, 4, SWAMP_FLOAT32},
                           {bias_grad, 2, SWAMP_FLOAT16}};
  float scale = 65536.0f;
  float inv_scale = 1.0f / scale;
  float found_inf = 0.0f; /* never cleared by swamp */
  int32_t growth_tracker = 0;

  if (swamp_amp_foreach_non_finite_check_and_unscale(
          NULL, grads, 2, &found_inf, &inv_scale) != SWAMP_OK) {
    fprintf(stderr, "%s\n", swamp_last_error());
    return 1;
  }
  if (found_inf == 0.0f) {
    puts("step"); /* the optimizer's */
  } else {
    puts("overflow: skip the step");
  }
  swamp_amp_update_scale(&scale, &growth_tracker, &found_inf, 2.0, 0.5, 2000);
  printf("unscaled %g %g, next scale %g\n", weight_grad[0], weight_grad[1],
         scale);
  return 0;
}
