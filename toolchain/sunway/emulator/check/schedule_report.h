// The words of category `schedule`.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_SCHEDULE_REPORT_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_SCHEDULE_REPORT_H_

#include <string>
#include <vector>

#include "toolchain/sunway/emulator/check/difference.h"
#include "toolchain/sunway/emulator/world.h"

namespace swamp::sunway::check {

// order_of_slaves() is a remark: in which order of the slaves, and with which
// transfers, a run found something.
std::string order_of_slaves(const Order& order);

void report_schedule(const std::vector<Difference>& found, const Order& order);

// report_crash() is a run that a signal ended.
void report_crash(int signal, const Order& order);

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_SCHEDULE_REPORT_H_
