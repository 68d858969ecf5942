/* crts.h: the same as athread.h; in host code, the host's calls. */
#ifndef SWAMP_SUNWAY_CRTS_H_
#define SWAMP_SUNWAY_CRTS_H_

#include <athread.h>

#endif /* SWAMP_SUNWAY_CRTS_H_ */
