#ifdef __x86_64__
#include <not/there.h>
#endif
