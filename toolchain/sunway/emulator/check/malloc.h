// The allocations of the malloc family, recorded in check mode.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_MALLOC_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_MALLOC_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace swamp::sunway::check {

// Allocation is the memory that one call returned; bytes is 0 if there is none.
struct Allocation {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  const void* pc = nullptr;
};

// find_allocation() returns the allocation that holds an address.
Allocation find_allocation(std::uintptr_t address);

// Neighbours are the allocations before and after an address that is in none.
struct Neighbours {
  Allocation before, after;
};
Neighbours find_neighbours(std::uintptr_t address);

// Memory that malloc() returns holds a value in every word, up to 1 MiB of a
// block, so that it is known what nobody wrote. is_unset() returns whether all
// words that [at, at + bytes) touches hold it, and unset_of() how much of the
// block that holds such an address nobody wrote.
bool is_unset(const void* at, std::size_t bytes) noexcept;
enum class Unset { no_block, part, all };
Unset unset_of(std::uintptr_t address);

// releases() changes whenever memory is freed or unmapped.
inline std::atomic<std::uint64_t> release_count{0};
inline std::uint64_t releases() noexcept {
  return release_count.load(std::memory_order_relaxed);
}

// add_allocation() records memory that was allocated for the caller at `pc`.
void add_allocation(const void* memory, std::size_t bytes,
                    const void* pc) noexcept;

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_MALLOC_H_
