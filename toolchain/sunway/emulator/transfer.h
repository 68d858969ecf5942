#ifndef SWAMP_SUNWAY_EMULATOR_TRANSFER_H_
#define SWAMP_SUNWAY_EMULATOR_TRANSFER_H_

#include <cstddef>
#include <cstdint>

#include "toolchain/sunway/emulator/world.h"

namespace swamp::sunway {

// Transfer is one DMA. `stride` is the gap between two blocks in main memory;
// LDM is dense. Bytes.
struct Transfer {
  enum class Kind { get, put, remote_get };  // remote_get: another's LDM
  Kind kind;
  std::byte* ldm;
  std::byte* main;
  long length;
  long block;
  long stride;
  volatile void* reply;
  const char* call;  // the function's name

  bool writes_main() const noexcept { return kind == Kind::put; }
  // extent() is the main memory from the first to the last byte.
  std::size_t extent() const noexcept;
};

// for_blocks() visits the pieces that are contiguous in main memory.
template <class Visit>
void for_blocks(const Transfer& t, Visit visit) {
  const long block = t.stride == 0 || t.block <= 0 ? t.length : t.block;
  std::byte* main = t.main;
  for (long done = 0; done < t.length; done += block) {
    const long left = t.length - done;
    const auto bytes = static_cast<std::size_t>(left < block ? left : block);
    visit(main, t.ldm + done, bytes);
    main += block + t.stride;
  }
}

// carry_out() moves the data.
void carry_out(const Transfer& transfer) noexcept;

// add_reply() adds one to a reply word and wakes who waits for it.
void add_reply(volatile void* reply) noexcept;
int read_reply(const volatile void* reply) noexcept;

// count() enters the transfer into the slave's counters.
void count(Slave& slave, const Transfer& transfer) noexcept;

// as_seen_by() is the address in `other`'s LDM of what is at `address` in
// `slave`'s; an address outside LDM stays.
std::byte* as_seen_by(const Slave& other, const Slave& slave,
                      const volatile void* address) noexcept;

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_TRANSFER_H_
