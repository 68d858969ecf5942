#include <slave.h>

__thread_local int elsewhere = 2;
