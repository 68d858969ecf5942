// What SWAMP_PREDICT=1 prints: the traffic of core groups, and what each
// function that was spawned needs: LDM, transfers, arithmetic.
#ifndef SWAMP_SUNWAY_EMULATOR_PREDICTION_H_
#define SWAMP_SUNWAY_EMULATOR_PREDICTION_H_

namespace swamp::sunway {

struct Slave;

// begin_part() and end_part() enclose a slave's part of a launch.
void begin_part(Slave& slave);
void end_part(Slave& slave);

// print_prediction() prints, at the end of the program, on stderr:
// - with SWAMP_PREDICT=1 the traffic of each core group, and of each function
// by
//   what it is bound;
// - with that or SWAMP_TRACE the largest amount of LDM that a slave of each
//   function needed, which the file of SWAMP_CHECK_REPORT gets, too.
void print_prediction();

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_PREDICTION_H_
