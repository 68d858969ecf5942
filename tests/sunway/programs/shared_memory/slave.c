#include <slave.h>

void count(long* sum) { updt_addl(_PEN + 1, sum); }
