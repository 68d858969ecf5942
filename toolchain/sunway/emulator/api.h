// What the library gives to programs that swcc links, and the headers that
// declare it to them.
#ifndef SWAMP_SUNWAY_EMULATOR_API_H_
#define SWAMP_SUNWAY_EMULATOR_API_H_

#define SWAMP_SUNWAY_API __attribute__((visibility("default")))
// Where in the program's sources the calling function was called.
#define SWAMP_SUNWAY_CALLER() __builtin_return_address(0)

#endif  // SWAMP_SUNWAY_EMULATOR_API_H_
