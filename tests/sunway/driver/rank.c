#include <slave.h>
int f(void) { return athread_get(RANK_MODE, 0, 0, 4, 0, 0, 0, 0); }
