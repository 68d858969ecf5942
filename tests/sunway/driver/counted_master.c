#include <athread.h>
long numbers[65];
extern SLAVE_FUN(direct)(long*);
int main() {
  athread_init();
  athread_spawn(direct, numbers);
  athread_join();
  return 0;
}
