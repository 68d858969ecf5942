/* crts.h: as athread.h; host code includes it too and gets the host's calls. */
#ifndef SWAMP_SUNWAY_CRTS_H_
#define SWAMP_SUNWAY_CRTS_H_

#include <athread.h>

#endif /* SWAMP_SUNWAY_CRTS_H_ */
