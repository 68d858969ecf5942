#include <slave.h>
long f(int* p, long id) { return *(int*)((long)p | id << 20 | 1L << 45); }
