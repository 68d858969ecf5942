// What the master and the slaves of the athread backend tell each other: plain
// data, which a slave gets by DMA and answers by DMA.
#ifndef SWAMP_RUNTIME_ATHREAD_PROTOCOL_H_
#define SWAMP_RUNTIME_ATHREAD_PROTOCOL_H_

#include <cstdint>

#include "runtime/job.h"
#include "runtime/ldm.h"

namespace swamp::runtime::athread {

// A chip has no more slaves than this: 6 core groups of 64.
inline constexpr int kMaxGroups = 6;
inline constexpr int kSlavesPerGroup = 64;
inline constexpr int kMaxSlaves = kMaxGroups * kSlavesPerGroup;

// Greeting is what a slave says of itself, in a line of main memory of its own.
struct alignas(kLdmAlignment) Greeting {
  std::uint32_t present = 0;
  std::uint32_t ldm_bytes = 0;  // that ldm_malloc() would give
};

// GreetingCall asks every slave for its greeting, at
// core group * kSlavesPerGroup + slave.
struct GreetingCall {
  Greeting* greetings;
};

// JobCall hands out a job: slave `i` of the job is run by slave core
// i % slave_cores, counted over core groups of group_cores each.
struct JobCall {
  RemoteJob remote;
  std::int32_t group_cores = 0;
  std::int32_t slave_cores = 0;
};

// Slaves clear the result of a part before they run it. A part whose result
// still has this first segment after the join was not run.
inline constexpr std::uint64_t kNotRun = SlaveResult::kNone - 1;

}  // namespace swamp::runtime::athread

#endif  // SWAMP_RUNTIME_ATHREAD_PROTOCOL_H_
