#ifndef SWAMP_SUNWAY_EMULATOR_WAIT_H_
#define SWAMP_SUNWAY_EMULATOR_WAIT_H_

namespace swamp::sunway {

// wait_reply() returns when the word has reached the value.
void wait_reply(const char* call, volatile void* reply, int value,
                const void* pc);

// replies_came() wakes those whose reply words another slave has raised.
void replies_came();

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_WAIT_H_
