// DMA and RMA transfers, and the waits for them.
#ifndef SWAMP_SUNWAY_EMULATOR_TRANSFER_H_
#define SWAMP_SUNWAY_EMULATOR_TRANSFER_H_

#include <cstddef>
#include <cstdint>

#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway {

// Transfer is one DMA. `stride` is the gap between two blocks in main memory;
// LDM is dense. Bytes.
struct Transfer {
  enum class Kind { get, put, remote_get };  // remote_get: from another LDM
  Kind kind;
  std::byte* ldm;
  std::byte* main;
  long length;
  long block;
  long stride;
  volatile void* reply;
  const char* call;  // the function's name

  bool writes_main() const noexcept { return kind == Kind::put; }
  // extent() is the number of bytes of main memory from the first to the last.
  std::size_t extent() const noexcept;
};

// Rma is one transfer between the LDM of a slave and that of another one, or of
// several for a broadcast.
struct Rma {
  void* local;
  volatile void* local_reply;
  int length;
  void* remote;
  volatile void* remote_reply;
  const char* call;
  const void* pc;
};

// for_blocks() visits the blocks that are contiguous in main memory.
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

// cpu_time() returns the CPU time of a slave's thread in nanoseconds.
unsigned long cpu_time(const Slave& slave);

// carry_out() copies the data.
void carry_out(const Transfer& transfer) noexcept;

// add_reply() adds one to a reply word.
inline void add_reply(volatile void* reply) noexcept {
  __atomic_fetch_add(static_cast<volatile int*>(reply), 1, __ATOMIC_RELEASE);
}
inline int read_reply(const volatile void* reply) noexcept {
  return __atomic_load_n(static_cast<const volatile int*>(reply),
                         __ATOMIC_ACQUIRE);
}

// count() adds the transfer to the slave's counters.
void count(Slave& slave, const Transfer& transfer) noexcept;

// remember_get() notes an asynchronous transfer for Counters::get_waits.
void remember_get(Slave& slave, const Transfer& transfer) noexcept;

// as_seen_by() translates an address in the LDM of any slave of the core group
// to the same place in `other`'s: on the machine the LDMs have the same
// addresses. An address outside LDM stays as it is.
std::byte* as_seen_by(const Slave& other,
                      const volatile void* address) noexcept;

// let_receivers_run() models the latency of RMA: receivers run on before the
// data arrives, and often reset the reply word in that time. It returns when
// the receivers wait for something, have ended, or had enough time. In check
// mode only seed 0 with late transfers does that; the other orders, including
// those of replays, find programs that rely on it.
void let_receivers_run(Slave& slave, Slave& receiver);
void let_receivers_run(Slave& slave, Range range, unsigned mask);

// wait_reply() returns after the word has reached the value.
void wait_reply(const char* call, volatile void* reply, int value,
                const void* pc);

// notify_receivers() wakes the slaves whose reply words have been raised.
void notify_receivers();

inline std::size_t bytes_of(const Transfer& t) {
  return static_cast<std::size_t>(t.length);
}

// address_of() returns an address as an integer.
inline std::uintptr_t address_of(const volatile void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

// overlaps() returns whether two ranges of LDM share a byte.
inline bool overlaps(std::uintptr_t begin, std::uintptr_t end,
                     const volatile void* other, std::size_t bytes) {
  return begin < address_of(other) + bytes && address_of(other) < end;
}

inline bool overlaps(const Transfer& a, const Transfer& b) {
  return overlaps(address_of(a.ldm),
                  address_of(a.ldm) + static_cast<std::size_t>(a.length), b.ldm,
                  static_cast<std::size_t>(b.length));
}

// overlaps_main() returns whether a transfer accesses a byte of [begin, end) in
// main memory. The gaps between its blocks do not count.
inline bool overlaps_main(const Transfer& t, std::uintptr_t begin,
                          std::uintptr_t end) {
  const std::uintptr_t base = address_of(t.main);
  if (end <= base || begin >= base + t.extent()) return false;
  if (t.stride == 0 || t.block <= 0) return true;
  const auto block = static_cast<std::uintptr_t>(t.block);
  const std::uintptr_t period = block + static_cast<std::uintptr_t>(t.stride);
  const std::uintptr_t from = begin > base ? begin - base : 0;
  return from % period < block || (from / period + 1) * period < end - base;
}

inline bool overlaps_main(const Transfer& a, const Transfer& b) {
  bool found = false;
  for_blocks(a, [&](std::byte* main, std::byte*, std::size_t bytes) {
    found =
        found || overlaps_main(b, address_of(main), address_of(main) + bytes);
  });
  return found;
}

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_TRANSFER_H_
