#include <slave.h>
__thread_local char odd[36];
void work(int* numbers) {
  size_t bytes = 1, none = 1;
  void* all = ldm_malloc_max(&bytes);
  void* more = ldm_malloc_max(&none);
  int right = bytes == 262144 - 1024 - sizeof odd && more == NULL && none == 0;
  ldm_free(all, bytes);
  right = right && get_allocatable_size() == bytes;
#ifdef TOO_MUCH
  all = ldm_malloc(262144 - sizeof odd);
  right = right && all == NULL;
#endif
  if (_PEN == 5) numbers[32 * 5 + 1] = right ? 5 : 0;
}
