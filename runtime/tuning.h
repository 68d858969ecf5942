// The measured numbers of the runtime, the benches that gave them, and what is
// decided by them. A machine with other numbers has them in its row in
// config.cpp.
#ifndef SWAMP_RUNTIME_TUNING_H_
#define SWAMP_RUNTIME_TUNING_H_

#include <cstddef>
#include <cstdint>

#include "runtime/launch.h"

namespace swamp::runtime {

// SpawnCost is what the spawn and join of a launch cost: the bytes of traffic
// that one thread handles in that time, in all and for each thread.
struct SpawnCost {
  double bytes = 0;
  double thread_bytes = 0;
};

struct Tuning {
  // The master computes alone if that takes no longer than a spawn and join,
  // and its share. On 2 cores of an AMD EPYC a spawn pays from 512 KiB of
  // float32 on with warm data, and earlier with cold data or more arithmetic.
  // On 16 cores of an Intel Xeon it pays from 600 KiB on with warm and from 200
  // KiB with cold data; an empty spawn takes 4 us there, 1.3 us with 2 threads.
  // swamp_bench
  // --benchmark_filter=threshold.
  SpawnCost spawn{240 * 1024, 8 * 1024};
  // A launch of at least so much traffic for each thread is divided into
  // claimed_parts parts for each, which threads claim: beside other programs,
  // and on cores of different speeds, the slowest thread does not decide.
  // swamp_bench --benchmark_filter=claims.
  std::size_t claim_traffic_bytes = 8 * 1024 * 1024;
  int claimed_parts = 16;
  // Tile of the widest operand in transfer modes copy and check. Copies cost
  // more if the tiles exceed the host's L1 cache. swamp_bench
  // --benchmark_filter=transfer.
  std::size_t tile_bytes = 8 * 1024;
  // How far ahead the kernels prefetch in view mode, in lists of more traffic
  // than prefetch_traffic_bytes; prefetch instructions on data in L1 and L2
  // cost up to 40 %. A Zen 4 with fast memory gained 3 to 28 % over 2
  // and 4 KiB, and lost 10 to 17 % with 512 bytes. On a Zen 5 one thread in
  // memory has the same speed with all distances, but Adam in L3 lost 5 to 10 %
  // against 2 KiB. Without prefetch norm loses on both. swamp_bench
  // --benchmark_filter=prefetch.
  std::uint32_t prefetch_bytes = 256;
  std::size_t prefetch_traffic_bytes = 2 * 1024 * 1024;
  // From this traffic on, operands that are only written are stored past the
  // caches: a cast took 0.6 to 0.8 of the time from twice the L3 (of 32 MiB)
  // on, but twice the time in L2. swamp_bench
  // --benchmark_filter='non_temporal|cached'.
  std::size_t non_temporal_traffic_bytes = 40 * 1024 * 1024;
};

// view_hints() returns the hints of a launch in transfer mode view. Tiles in
// LDM need no hints.
inline MemoryHints view_hints(const Tuning& tuning,
                              const Launch& launch) noexcept {
  MemoryHints hints;
  hints.non_temporal = launch.traffic_bytes > tuning.non_temporal_traffic_bytes;
  if (launch.traffic_bytes <= tuning.prefetch_traffic_bytes) return hints;
  hints.prefetch_bytes = tuning.prefetch_bytes;
  return hints;
}

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_TUNING_H_
