/* athread.h: the athread interface of the side that is compiled. */
#ifndef SWAMP_SUNWAY_ATHREAD_H_
#define SWAMP_SUNWAY_ATHREAD_H_

/* Not needed here, but existing programs rely on them. */
#include <stdlib.h>
/* In slave code in C, swcc includes <stdio.h> if the program needs it: others
 * have variables named gets and puts. */
#if defined(__sw_host__) || defined(__cplusplus)
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#endif
#include <swamp_sunway/side.h>

#ifdef __sw_slave__
#include <swamp_sunway/slave_api.h>
#else
#include <swamp_sunway/host_api.h>
#endif

#endif /* SWAMP_SUNWAY_ATHREAD_H_ */
