/* A copy that takes time, without Python's lock: see late_copies.py. */
#include <string.h>
#include <unistd.h>

void late_copy(void* to, const void* from, size_t bytes, unsigned microseconds) {
  usleep(microseconds);
  memmove(to, from, bytes);
}
