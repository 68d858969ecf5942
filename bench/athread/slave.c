#include <slave.h>

void nothing(void* unused) { (void)unused; }
