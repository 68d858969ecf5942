// The messages between the master and the slaves of backend athread: plain
// data, transferred by DMA.
#ifndef SWAMP_RUNTIME_ATHREAD_PROTOCOL_H_
#define SWAMP_RUNTIME_ATHREAD_PROTOCOL_H_

#include <cstdint>

#include "runtime/launch.h"
#include "runtime/ldm.h"

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

// LaunchCall passes a launch to the slave cores: slave i of the launch runs on
// slave core i % slave_cores, counted over core groups of group_cores each.
struct LaunchCall {
  Launch launch;
  std::int32_t group_cores = 0;
  std::int32_t slave_cores = 0;
};

// The first segment of a result that no slave has written: a slave resets the
// result of a part before it runs the part.
inline constexpr std::uint64_t kNotRun = SlaveResult::kNone - 1;

}  // namespace swamp::runtime::athread

#endif  // SWAMP_RUNTIME_ATHREAD_PROTOCOL_H_
