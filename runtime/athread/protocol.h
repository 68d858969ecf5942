// The messages between the master and the slaves of backend athread: plain
// data, transferred by DMA.
#ifndef SWAMP_RUNTIME_ATHREAD_PROTOCOL_H_
#define SWAMP_RUNTIME_ATHREAD_PROTOCOL_H_

#include <cstddef>
#include <cstdint>

#include "runtime/launch.h"
#include "runtime/ldm.h"
#include "runtime/tile_loop.h"

namespace swamp::runtime::athread {

// A chip has no more slaves than this: 6 core groups of 64.
inline constexpr int kMaxGroups = 6;
inline constexpr int kSlavesPerGroup = 64;
inline constexpr int kMaxSlaves = kMaxGroups * kSlavesPerGroup;

// Greeting describes a slave. Each has its own line of main memory.
struct alignas(kLdmAlignment) Greeting {
  std::uint32_t present = 0;
  std::uint32_t ldm_bytes = 0;  // that ldm_malloc() can allocate
};

// GreetingCall makes every slave write its greeting to
// greetings[core group * kSlavesPerGroup + slave].
struct GreetingCall {
  Greeting* greetings;
};

// SharedWords has a copy of every 4-byte word of main memory of which a slave
// owns a part only. The machine's direct stores write whole words, so the slave
// stores its bytes into the copy, and after the join the master copies them
// from there.
struct SharedWords {
  std::uint32_t* base = nullptr;
  int operand_count = 0;

  // A segment is shared by neighbouring slaves only, so there are fewer pairs
  // of a slave and a segment of which it has units than segments and slaves.
  std::size_t count(std::size_t segments, int slaves) const noexcept {
    return (segments + static_cast<std::size_t>(slaves)) *
           static_cast<std::size_t>(operand_count) * 2;
  }

  // copy() returns where the byte of `main`, which is in the slave's `part`, is
  // stored: at `main`, or in a copy if its word is shared.
  std::byte* copy(std::byte* main, const OperandPart& part,
                  int slave) const noexcept {
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(main) % 4;
    std::byte* const word = main - offset;
    const bool first = word < part.begin;
    if (!first && word + 4 <= part.end) return main;
    const std::size_t pair = part.segment + static_cast<std::size_t>(slave);
    const std::size_t operand = pair * static_cast<std::size_t>(operand_count) +
                                static_cast<std::size_t>(part.operand);
    return reinterpret_cast<std::byte*>(base + operand * 2 + (first ? 0 : 1)) +
           offset;
  }
};

// LaunchCall passes a launch to the slave cores: slave i of the launch runs on
// slave core i % slave_cores, counted over core groups of group_cores each.
struct LaunchCall {
  Launch launch;
  SharedWords shared_words;
  std::int32_t group_cores = 0;
  std::int32_t slave_cores = 0;
};

// The first segment of a result that no slave has written: a slave resets the
// result of a part before it runs the part.
inline constexpr std::uint64_t kNotRun = SlaveResult::kNone - 1;

}  // namespace swamp::runtime::athread

#endif  // SWAMP_RUNTIME_ATHREAD_PROTOCOL_H_
