#include <slave.h>

int helper(int x) { return x & 31; }
