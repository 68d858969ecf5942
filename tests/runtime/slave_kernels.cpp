// The trivial kernels: code for slaves, so no more than kernels may need.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/float_environment.h"
#include "swamp/kernel.h"
#include "tests/runtime/test_kernel_ids.h"

namespace swamp {
namespace {

void add(const void* args, void* const* tiles, std::size_t count,
         std::size_t first, Result& result) {
  auto* data = static_cast<std::uint32_t*>(tiles[0]);
  for (std::size_t i = 0; i < count; ++i) {
    if (data[i] == test::kFlagged) result.flag(first + i, 1);
    data[i] += static_cast<const test::Args*>(args)->value;
  }
}

void widen(const void* args, void* const* tiles, std::size_t count, std::size_t,
           Result&) {
  const auto* in = static_cast<const std::uint16_t*>(tiles[0]);
  auto* out = static_cast<std::uint32_t*>(tiles[1]);
  auto* sum = static_cast<std::uint64_t*>(tiles[2]);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = in[i] + static_cast<const test::Args*>(args)->value;
    sum[i] += in[i];
  }
}

void environment(const void*, void* const* tiles, std::size_t count,
                 std::size_t, Result&) {
  auto* out = static_cast<std::uint32_t*>(tiles[0]);
  std::fill(out, out + count,
            static_cast<std::uint32_t>(runtime::read_float_environment()));
}

void side(const void*, void* const* tiles, std::size_t count, std::size_t,
          Result&) {
#ifdef __sw_slave__
  constexpr std::uint32_t kSlave = 1;
#else
  constexpr std::uint32_t kSlave = 0;
#endif
  auto* out = static_cast<std::uint32_t*>(tiles[0]);
  std::fill(out, out + count, kSlave);
}

void tally(const void* args, void* const* tiles, std::size_t count, std::size_t,
           Result& result) {
  auto* data = static_cast<std::uint8_t*>(tiles[0]);
  auto& sum = *static_cast<std::uint64_t*>(result.partial);
  for (std::size_t i = 0; i < count; ++i) {
    sum += data[i];
    data[i] = static_cast<std::uint8_t>(
        data[i] + static_cast<const test::Args*>(args)->value);
  }
}

constexpr KernelRow kRows[test::kKernelCount] = {{"add", &add},
                                                 {"widen", &widen},
                                                 {"environment", &environment},
                                                 {"tally", &tally},
                                                 {"side", &side}};
constexpr KernelTable kTables[] = {
    {"first", true, kRows}, {"absent", false, kRows}, {"second", true, kRows}};

}  // namespace

KernelTables kernel_tables() noexcept { return {kTables, 3}; }

}  // namespace swamp
