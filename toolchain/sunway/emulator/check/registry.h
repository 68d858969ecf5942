// What of main memory a slave may transfer to and from: allocations, statics,
// mappings and the stacks of the master's threads.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_REGISTRY_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_REGISTRY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "toolchain/sunway/emulator/world.h"

namespace swamp::sunway::check {

// Block is a piece of malloc's; bytes 0: none.
struct Block {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  const void* pc = nullptr;
};

// add_block() and remove_block() are for malloc's own calls; they allocate by
// the C library's inner functions.
void add_block(const void* memory, std::size_t bytes, const void* pc) noexcept;
// remove_block() returns what the block was.
Block remove_block(const void* memory) noexcept;

// While an OwnAllocations lives, what the calling thread allocates and frees is
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

// allocate() is memalign() that was called where `pc` returns to.
void* allocate(std::size_t alignment, std::size_t bytes, const void* pc);

// find_block() finds the block that holds an address.
Block find_block(std::uintptr_t address);

// why_not_main() says what is wrong with [address, address + bytes) as main
// memory to read (or, `write`, to write); empty when nothing is.
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
