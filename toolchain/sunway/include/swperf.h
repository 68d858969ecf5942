/* swperf.h: the cycle counter; the other performance counters are not
 * emulated. */
#ifndef SWAMP_SUNWAY_SWPERF_H_
#define SWAMP_SUNWAY_SWPERF_H_

#include <swamp_sunway/side.h>

SWAMP_SUNWAY_BEGIN

/* Cycles since the last init() of the caller; each slave has its own
 * counter. */
#ifdef __sw_slave__
void penv_slave0_cycle_init(void);
void penv_slave0_cycle_count(unsigned long* cycles);
#else
void penv_host0_cycle_init(void);
void penv_host0_cycle_count(unsigned long* cycles);
#endif

SWAMP_SUNWAY_END

#endif /* SWAMP_SUNWAY_SWPERF_H_ */
