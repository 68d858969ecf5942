#include <slave.h>
__thread_local int big[80000];
void work(int* n) { n[0] = big[_PEN]; }
