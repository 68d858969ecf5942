#include "shared.h"

void stop(work_t* work) { work->stop = 1; }
