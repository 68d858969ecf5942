// Checks of the master's calls, and of its accesses to memory. What the core
// calls is the Observer in host_check.cpp.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_HOST_CHECK_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_HOST_CHECK_H_

#include <cstddef>
#include <cstdint>

#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway::check {

// Copies of the argument structs of running launches, made at the spawn.

// remember_args() is called at a launch of the core groups of `mask`,
// forget_args() after they were joined or when they may legally see other
// arguments.
void remember_args(unsigned mask, const void* argument, const void* pc);
void forget_args(unsigned mask);
// args_written() marks bytes that a slave wrote itself, or that are a flag, as
// changed legally.
void args_written(const volatile void* address, std::size_t bytes);
// check_args() finds bytes that a slave gets and that differ from those at the
// spawn. The report is made by forget_args(), because a slave may show later
// that they are a flag.
void check_args(const Slave& slave, const volatile void* main,
                std::size_t bytes, const void* pc);
// may_have_changed() returns whether the master changed arguments before the
// join that slaves may read with their own instructions.
bool may_have_changed() noexcept;
// are_args() returns whether all of [begin, end) may be arguments.
bool are_args(std::uintptr_t begin, std::uintptr_t end);
// check_args_alive() is called at a join of these groups; `frame` is the frame
// of the joining function.
void check_args_alive(unsigned mask, const void* frame, const void* pc);

// What the master changes and reads in memory between a spawn and its join:
// slaves must not access what it changed, nor write what it read, because the
// order is not defined. Only the first launch of each place is examined, or
// with SWAMP_CHECK_SCHEDULES=N every launch, and only if no slave has begun
// before the join. A launch of a single slave and the wait for it are a spawn
// and a join.

// remember_memory() is called at a spawn, and find_master_accesses() at its
// join, before the slaves begin.
void remember_memory(const void* pc);
void find_master_accesses();
// master_sets_flag() is called for a store to a volatile word or an atomic
// operation in a file that spawns: slaves may read and poll that word.
void master_sets_flag(const volatile void* address, std::size_t bytes);
// master_reads() and master_stores() are called for the accesses in a file that
// spawns; they report an access to LDM.
void master_reads(const volatile void* address, std::size_t bytes,
                  const void* pc, bool is_volatile);
void master_stores(const volatile void* address, std::size_t bytes,
                   const void* pc, bool is_volatile);
// master_polls() is called if the master looks whether slaves have ended.
void master_polls() noexcept;
// wants_to_wait() returns whether the slaves should not begin yet, because the
// master's accesses before the join are examined and it does not poll.
bool wants_to_wait() noexcept;
// forget_master_accesses() ends the examination, or that of a range to which a
// slave gives a new use.
void forget_master_accesses();
void forget_master_accesses(std::uintptr_t begin, std::uintptr_t end);
// acquired_from_master() is called if a slave reads a flag: what the master
// changed before it may be read then, too.
void acquired_from_master(std::uintptr_t begin, std::uintptr_t end);
// check_master_accesses() reports an access to what the master changed, or a
// store to what it read.
void check_master_accesses(const Slave& slave, std::uintptr_t begin,
                           std::uintptr_t end, bool write, const void* pc);

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_HOST_CHECK_H_
