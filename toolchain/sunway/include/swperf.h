/* swperf.h: of the performance counters, that of cycles. */
#ifndef SWAMP_SUNWAY_SWPERF_H_
#define SWAMP_SUNWAY_SWPERF_H_

#include <swamp_sunway/side.h>

SWAMP_SUNWAY_BEGIN

/* The counts begin at each one's init(); a slave counts its own. */
#ifdef __sw_slave__
void penv_slave0_cycle_init(void);
void penv_slave0_cycle_count(unsigned long* cycles);
#else
void penv_host0_cycle_init(void);
void penv_host0_cycle_count(unsigned long* cycles);
#endif

SWAMP_SUNWAY_END

#endif /* SWAMP_SUNWAY_SWPERF_H_ */
