// What is checked of the master's calls. In transfer mode copy they do nothing.
#ifndef SWAMP_RUNTIME_SUNWAY_CHECK_HOST_CHECK_H_
#define SWAMP_RUNTIME_SUNWAY_CHECK_HOST_CHECK_H_

namespace swamp::sunway::check {

void bad_launch(const void* pc, const char* text);
// These are called under the world's mutex.
void launched(const void* argument, const void* pc);
void joining(const void* pc, const void* frame);
void joined();
void master_met();
void halting(const void* pc);
// exiting() is the end of the program.
void exiting();

}  // namespace swamp::sunway::check

#endif  // SWAMP_RUNTIME_SUNWAY_CHECK_HOST_CHECK_H_
