#include <slave.h>
__thread_local_share int x;
void work(int* n) { x = *n; }
