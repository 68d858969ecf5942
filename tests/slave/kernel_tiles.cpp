#include "kernel_tiles.h"

#include <cstring>

#include "support/compare.h"

namespace swamp::test {

KernelTiles::KernelTiles(const KernelCase& kernel, std::size_t count, Fill fill,
                         Random& random)
    : kernel_(&kernel), count_(count) {
  for (const StreamCase& stream : kernel.streams) {
    streams_.emplace_back(count * stream.format->bytes);
    fill(*stream.format, streams_.back().data(), count, random);
  }
}

void KernelTiles::set(const std::vector<std::uint64_t>& bits) {
  for (std::size_t i = 0; i < bits.size(); ++i) {
    store_bits(*kernel_->streams[0].format, stream(0), i, bits[i]);
  }
}

void KernelTiles::flip_out() {
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    if (kernel_->streams[s].access != Access::out) continue;
    for (std::byte& byte : streams_[s]) byte = ~byte;
  }
}

KernelResult KernelTiles::run(KernelFunction function, const ArgsSample& args,
                              std::size_t first) {
  void* tiles[kMaxStreams] = {};
  for (std::size_t s = 0; s < streams_.size(); ++s) tiles[s] = stream(s);
  return run_kernel(*kernel_, function, args, tiles, count_, first);
}

testing::AssertionResult compare_written(const KernelCase& kernel,
                                         const ArgsSample& args,
                                         void* const* tiles,
                                         const KernelTiles& expected,
                                         const KernelTiles& original) {
  for (std::size_t s = 0; s < kernel.streams.size(); ++s) {
    const StreamCase& stream = kernel.streams[s];
    const bool read_only = stream.access == Access::in;
    const testing::AssertionResult same = same_elements(
        *stream.format, tiles[s],
        read_only ? original.stream(s) : expected.stream(s), expected.count(),
        read_only || (stream.format->nan_payload && args.nan_payload));
    if (!same) {
      return testing::AssertionFailure()
             << "stream " << s << ": " << same.message();
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult run_against_reference(const KernelOnIsa& param,
                                               const ArgsSample& args,
                                               const KernelTiles& original,
                                               void* const* tiles,
                                               std::size_t first) {
  const KernelCase& kernel = *param.kernel;
  const std::size_t count = original.count();
  for (std::size_t s = 0; s < kernel.streams.size() && count != 0; ++s) {
    std::memcpy(tiles[s], original.stream(s), original.bytes(s));
  }
  KernelTiles expected = original;
  expected.flip_out();
  const KernelResult want = expected.run(kernel.reference, args, first);
  const KernelResult got =
      run_kernel(kernel, param.function(), args, tiles, count, first);
  const testing::AssertionResult same = same_result(kernel, got, want);
  if (!same) return same;
  return compare_written(kernel, args, tiles, expected, original);
}

testing::AssertionResult run_against_reference(const KernelOnIsa& param,
                                               const ArgsSample& args,
                                               const KernelTiles& original,
                                               std::size_t first) {
  KernelTiles actual = original;
  void* tiles[kMaxStreams] = {};
  for (std::size_t s = 0; s < param.kernel->streams.size(); ++s) {
    tiles[s] = actual.stream(s);
  }
  return run_against_reference(param, args, original, tiles, first);
}

}  // namespace swamp::test
