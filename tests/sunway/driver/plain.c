#include <slave.h>
void work(int* n) { n[0] = 1; }
