// The main memory that a slave may transfer to and from: allocations, statics,
// mappings and the stacks of the master's threads.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_REGISTRY_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_REGISTRY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway::check {

// Block is a block of malloc(); bytes is 0 if there is none.
struct Block {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  const void* pc = nullptr;
};

// add_block() and remove_block() are called inside malloc() and free(); they
// use the C library's internal allocator.
void add_block(const void* memory, std::size_t bytes, const void* pc) noexcept;
// remove_block() returns what the block was.
Block remove_block(const void* memory) noexcept;

// While an OwnAllocations exists, allocations of the calling thread count as
// the checker's, not the slave's.
class OwnAllocations {
 public:
  OwnAllocations() noexcept;
  ~OwnAllocations();
  OwnAllocations(const OwnAllocations&) = delete;
  OwnAllocations& operator=(const OwnAllocations&) = delete;

 private:
  bool outer_;
};

// allocate() is memalign() for a caller at `pc`.
void* allocate(std::size_t alignment, std::size_t bytes, const void* pc);

// find_block() finds the block that holds an address.
Block find_block(std::uintptr_t address);

// why_not_main() returns why [address, address + bytes) is not main memory that
// may be read (or, with `write`, written); empty if it may.
std::string why_not_main(std::uintptr_t address, std::size_t bytes, bool write);

// ldm_owner() is the slave in whose LDM an address is, or nullptr.
const Slave* ldm_owner(std::uintptr_t address);

// shares_memory() returns whether the process has writable memory that a child
// would share with it (MAP_SHARED).
bool shares_memory();

// readable_bytes() is how much of one variable, block or mapping there is from
// an address on, at most `most`.
std::size_t readable_bytes(std::uintptr_t address, std::size_t most);

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_REGISTRY_H_
