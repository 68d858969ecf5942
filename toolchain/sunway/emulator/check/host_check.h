// What is checked of the master's calls. In transfer mode copy they do nothing.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_HOST_CHECK_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_HOST_CHECK_H_

#include <cstdint>

namespace swamp::sunway::check {

void bad_launch(const void* pc, const char* text);
// These are called under the world's mutex.
// `mask`: of which core groups.
void launched(unsigned mask, const void* argument, const void* pc);
void joining(unsigned mask, const void* pc, const void* frame);
void joined(unsigned mask);
void master_met(unsigned mask);
// What a slave does before one of these calls comes before what another does
// after it: see masters_give() in clocks.h.
void master_gives(const volatile void* object, std::uint64_t number);
void master_takes(const volatile void* object, std::uint64_t number);
void halting(const void* pc);
// exiting() is the end of the program.
void exiting();

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_HOST_CHECK_H_
