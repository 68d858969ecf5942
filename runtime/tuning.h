// The measured numbers of the runtime, and the bench that gave them.
#ifndef SWAMP_RUNTIME_TUNING_H_
#define SWAMP_RUNTIME_TUNING_H_

#include <cstddef>
#include <cstdint>

namespace swamp::runtime {

struct Tuning {
  // Below this traffic the master works alone: a spawn would cost more than it
  // saves. Measured on 2 cores of an AMD EPYC with warm data: a spawn pays from
  // 512 KiB of float32 and from 128 KiB of bfloat16, whose bytes take longer;
  // in between little is won or lost. swamp_bench --benchmark_filter=threshold.
  std::size_t spawn_traffic_bytes = 512 * 1024;
  // Tile of the transfer modes copy and check, of the widest stream: beyond the
  // host's L1 the copies cost more. swamp_bench --benchmark_filter=transfer.
  std::size_t tile_bytes = 8 * 1024;
  // How far ahead the kernels prefetch in view mode, in lists of more traffic
  // than prefetch_traffic_bytes: in memory 4 KiB gave 10 %, in L1 and L2 the
  // instructions cost up to 40 %. swamp_bench --benchmark_filter=roof.
  std::uint32_t prefetch_bytes = 4 * 1024;
  std::uint32_t read_prefetch_bytes = 512;
  std::uint32_t streams_prefetch_bytes = 2048;
  std::size_t prefetch_traffic_bytes = 2 * 1024 * 1024;
  std::size_t past_caches_traffic_bytes = 40 * 1024 * 1024;
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_TUNING_H_
