// The argument structs of running launches, as they were when they were
// spawned.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_ARGS_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_ARGS_H_

#include <cstddef>

#include "toolchain/sunway/emulator/world.h"

namespace swamp::sunway::check {

// remember_args() is a launch of the core groups of `mask`, forget_args() is
// when they are joined or may see other arguments.
void remember_args(unsigned mask, const void* argument, const void* pc);
void forget_args(unsigned mask);
// args_written() is a slave's or, after a meeting with it, the master's write.
void args_written(const volatile void* address, std::size_t bytes);
// check_args() reports when what a slave gets is no longer what was spawned.
void check_args(const Slave& slave, const volatile void* main,
                std::size_t bytes, const void* pc);
// may_have_changed() is true when the master has, before the join, changed
// arguments that slaves may read with their own instructions.
bool may_have_changed() noexcept;
// check_args_alive() is a join of these groups, in a function of `frame`.
void check_args_alive(unsigned mask, const void* frame, const void* pc);

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_ARGS_H_
