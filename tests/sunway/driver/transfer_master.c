#include <athread.h>
#include <stdlib.h>
typedef struct {
  char* memory;
  int bytes, put;
} job_t;
extern SLAVE_FUN(transfer)(job_t*);
int main(int argc, char** argv) {
  const int bytes = atoi(argv[1]), put = atoi(argv[2]), offset = atoi(argv[3]);
  char* memory = (char*)libc_set_aligned_malloc(64l * (bytes + 128) + 128, 128);
  job_t job = {memory + offset, bytes, put};
  athread_init();
  athread_spawn(transfer, &job);
  athread_join();
  return 0;
}
