/* dlopen, use, dlclose, repeatedly, with a thread that ends after dlclose. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swamp/c_api.h"

typedef swamp_status (*unscale_function)(swamp_machine*, const swamp_tensor*,
                                         size_t, float*, const float*);

enum { kCount = 100000 };

static int use(void* library) {
  unscale_function unscale;
  void* symbol =
      dlsym(library, "swamp_amp_foreach_non_finite_check_and_unscale");
  float* data = malloc(kCount * sizeof *data);
  float found_inf = 0.0f;
  const float inv_scale = 0.5f;
  swamp_tensor tensor;
  size_t i;
  int good;
  if (symbol == NULL || data == NULL) return 0;
  memcpy(&unscale, &symbol, sizeof unscale);
  for (i = 0; i < kCount; ++i) data[i] = 3.0f;
  tensor.data = data;
  tensor.count = kCount;
  tensor.dtype = SWAMP_FLOAT32;
  good = unscale(NULL, &tensor, 1, &found_inf, &inv_scale) == SWAMP_OK &&
         found_inf == 0.0f;
  for (i = 0; i < kCount; ++i) good = good && data[i] == 1.5f;
  free(data);
  return good;
}

static void* use_in_thread(void* library) {
  return use(library) ? library : NULL;
}

int main(int argc, char** argv) {
  int round;
  if (argc != 2) {
    fprintf(stderr, "usage: %s libswamp.so\n", argv[0]);
    return 2;
  }
  for (round = 0; round < 3; ++round) {
    pthread_t thread;
    void* result = NULL;
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
    if (pthread_create(&thread, NULL, use_in_thread, library) != 0) return 1;
    if (!use(library) || pthread_join(thread, &result) != 0 || !result) {
      fprintf(stderr, "round %d: wrong result\n", round);
      return 1;
    }
    if (dlclose(library) != 0) {
      fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
  }
  return 0;
}
