/* athread.h: the athread interface, of the side that is being compiled. */
#ifndef SWAMP_SUNWAY_ATHREAD_H_
#define SWAMP_SUNWAY_ATHREAD_H_

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <swamp_sunway/side.h>

#ifdef __sw_slave__
#include <swamp_sunway/slave_api.h>
#else
#include <swamp_sunway/host_api.h>
#endif

#endif /* SWAMP_SUNWAY_ATHREAD_H_ */
