// The measured numbers of the runtime, and the bench that gave them. A machine
// whose numbers are others has them in its row in config.cpp.
#ifndef SWAMP_RUNTIME_TUNING_H_
#define SWAMP_RUNTIME_TUNING_H_

#include <cstddef>
#include <cstdint>

namespace swamp::runtime {

struct Tuning {
  // Below this traffic the master works alone: a spawn would cost more than it
  // saves. Measured on 2 cores of an AMD EPYC: with warm data a spawn pays from
  // 512 KiB to 1 MiB of float32, with cold data from 512 KiB; what computes
  // more for a byte is better off sooner. swamp_bench
  // --benchmark_filter=threshold.
  std::size_t spawn_traffic_bytes = 512 * 1024;
  // Tile of the transfer modes copy and check, of the widest stream: beyond the
  // host's L1 the copies cost more. swamp_bench --benchmark_filter=transfer.
  std::size_t tile_bytes = 8 * 1024;
  // How far ahead the kernels prefetch in view mode, in lists of more traffic
  // than prefetch_traffic_bytes: one array that is moved in place, where 4 KiB
  // gave 10 % in memory; one that is only read, where it disturbs the CPU's own
  // prefetching least when it is near; several arrays, where 2 KiB were best
  // for an Adam step (8 to 14 % over 1 KiB). In L1 and L2 the instructions cost
  // up to 40 %. swamp_bench --benchmark_filter=prefetch.
  std::uint32_t prefetch_bytes = 4 * 1024;
  std::uint32_t read_prefetch_bytes = 512;
  std::uint32_t streams_prefetch_bytes = 2 * 1024;
  std::size_t prefetch_traffic_bytes = 2 * 1024 * 1024;
  // From this traffic on arrays that are only written are stored past the
  // caches: a cast took 0.6 to 0.8 of the time from twice the L3 (of 32 MiB)
  // on, but twice the time in L2. swamp_bench --benchmark_filter='past|cached'.
  std::size_t past_caches_traffic_bytes = 40 * 1024 * 1024;
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_TUNING_H_
