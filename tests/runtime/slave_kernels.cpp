// The trivial kernels: code for slaves, so no more than kernels may need.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/float_environment.h"
#include "slave/kernel.h"
#include "tests/runtime/test_kernel_ids.h"

namespace swamp {
namespace {

void add(const void* args, const Tile& tile, Result& result) {
  auto* data = static_cast<std::uint32_t*>(tile.operands[0]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    if (data[i] == test::kFlagged) result.flag(tile.first + i, 1);
    data[i] += static_cast<const test::Args*>(args)->value;
  }
}

void widen(const void* args, const Tile& tile, Result&) {
  const auto* in = static_cast<const std::uint16_t*>(tile.operands[0]);
  auto* out = static_cast<std::uint32_t*>(tile.operands[1]);
  auto* sum = static_cast<std::uint64_t*>(tile.operands[2]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    out[i] = in[i] + static_cast<const test::Args*>(args)->value;
    sum[i] += in[i];
  }
}

void environment(const void*, const Tile& tile, Result&) {
  auto* out = static_cast<std::uint32_t*>(tile.operands[0]);
  std::fill(out, out + tile.count,
            static_cast<std::uint32_t>(runtime::read_float_environment()));
}

void side(const void*, const Tile& tile, Result&) {
#ifdef __sw_slave__
  constexpr std::uint32_t kSlave = 1;
#else
  constexpr std::uint32_t kSlave = 0;
#endif
  auto* out = static_cast<std::uint32_t*>(tile.operands[0]);
  std::fill(out, out + tile.count, kSlave);
}

void tally(const void* args, const Tile& tile, Result&) {
  auto* data = static_cast<std::uint8_t*>(tile.operands[0]);
  auto& sum = *static_cast<std::uint64_t*>(tile.partial);
  for (std::size_t i = 0; i < tile.count; ++i) {
    sum += data[i];
    data[i] = static_cast<std::uint8_t>(
        data[i] + static_cast<const test::Args*>(args)->value);
  }
}

void rows(const void* args, const Tile& tile, Result&) {
  const std::size_t columns = static_cast<const test::RowArgs*>(args)->columns;
  const auto* in = static_cast<const std::uint16_t*>(tile.operands[0]);
  const auto* constant = static_cast<const std::uint32_t*>(tile.operands[1]);
  const auto* value = static_cast<const std::uint64_t*>(tile.operands[2]);
  auto* out = static_cast<std::uint32_t*>(tile.operands[3]);
  auto* scratch = static_cast<std::uint32_t*>(tile.scratch);
  for (std::size_t r = 0; r < tile.count; ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      scratch[c] = in[r * columns + c] + constant[c] +
                   static_cast<std::uint32_t>(value[r]);
    }
    std::copy(scratch, scratch + columns, out + r * columns);
  }
}

void lines(const void* args, const Tile& tile, Result&) {
  const auto value = static_cast<const test::Args*>(args)->value;
  const std::size_t count = tile.layout[0].lines();
  for (std::size_t u = 0; u < tile.count; ++u) {
    for (std::size_t l = 0; l < count; ++l) {
      std::uint8_t* line[3];
      for (int s = 0; s < 3; ++s) {
        line[s] = static_cast<std::uint8_t*>(tile.operands[s]) +
                  u * tile.layout[s].unit_step + l * tile.layout[s].line_step;
      }
      for (std::size_t i = 0; i < tile.layout[0].line_bytes; ++i) {
        line[1][i] = static_cast<std::uint8_t>(line[0][i] + value);
        line[2][i] = static_cast<std::uint8_t>(line[2][i] + line[0][i]);
      }
    }
  }
}

constexpr KernelFunction kFunctions[] = {&add,  &widen, &environment, &tally,
                                         &side, &rows,  &lines};

// By id.
constexpr KernelRow kTableRows[test::kKernelCount] = {
    {test::kAdd.name, &kFunctions[0]},
    {test::kWiden.name, &kFunctions[1]},
    {test::kEnvironment.name, &kFunctions[2]},
    {test::kTally.name, &kFunctions[3]},
    {test::kSide.name, &kFunctions[4]},
    {test::kRows.name, &kFunctions[5]},
    {test::kLines.name, &kFunctions[6]}};
constexpr KernelTable kTables[] = {{"first", [] { return true; }, kTableRows},
                                   {"absent", [] { return false; }, kTableRows},
                                   {"second", [] { return true; }, kTableRows}};

}  // namespace

KernelTables kernel_tables() noexcept { return {kTables, 3}; }

}  // namespace swamp
