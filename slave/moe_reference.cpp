// The scalar references of the kernels of mixtures of experts.
#include <cstdint>

#include "slave/reference.h"
#include "slave/row_args.h"

namespace swamp::slave::reference {
namespace {

// counts_of() are the counts of the grain of unit i of a tile.
std::uint32_t* counts_of(const MoeArgs& args, const Tile& tile, std::size_t i) {
  auto* counts = static_cast<std::uint32_t*>(tile.partial);
  if (tile.grain_units == 0) return counts;
  const std::size_t grain = (tile.first + i) / tile.grain_units;
  return counts + (grain - tile.first / tile.grain_units) * args.counts();
}

template <class Index>
void count(const void* arguments, const Tile& tile, Result& result) {
  const auto& args = *static_cast<const MoeArgs*>(arguments);
  const auto* expert = static_cast<const Index*>(tile.operands[0]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    if (expert[i] == -1) continue;
    if (expert[i] < 0 ||
        static_cast<std::uint64_t>(expert[i]) >= args.experts) {
      result.flag(tile.first + i, 1);
    } else {
      ++counts_of(args, tile, i)[expert[i]];
    }
  }
}

void count_map(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const MoeArgs*>(arguments);
  const auto* map = static_cast<const std::uint8_t*>(tile.operands[0]);
  for (std::size_t i = 0; i < tile.count * args.experts; ++i) {
    if (map[i] == 0) continue;
    ++counts_of(args, tile, i / args.experts)[i % args.experts];
  }
}

void one_position(const MoeArgs& args, const Tile& tile, std::size_t i,
                  std::size_t expert) {
  using At = MoePositionOperand;
  const auto* base = static_cast<const std::uint32_t*>(tile.operands[At::base]);
  auto* counts = static_cast<std::uint32_t*>(tile.partial);
  const std::uint32_t position = base[expert] + counts[expert];
  counts[expert] += 1;
  if (position < args.capacity) {
    static_cast<std::int32_t*>(tile.operands[At::position])[i] =
        static_cast<std::int32_t>(position);
  }
}

template <class Index>
void position(const void* arguments, const Tile& tile, Result&) {
  using At = MoePositionOperand;
  const auto& args = *static_cast<const MoeArgs*>(arguments);
  const auto* expert = static_cast<const Index*>(tile.operands[At::expert]);
  for (std::size_t i = 0; i < tile.count; ++i) {
    static_cast<std::int32_t*>(tile.operands[At::position])[i] = -1;
    if (expert[i] < 0 ||
        static_cast<std::uint64_t>(expert[i]) >= args.experts) {
      continue;
    }
    one_position(args, tile, i, static_cast<std::size_t>(expert[i]));
  }
}

void position_map(const void* arguments, const Tile& tile, Result&) {
  using At = MoePositionOperand;
  const auto& args = *static_cast<const MoeArgs*>(arguments);
  const auto* map = static_cast<const std::uint8_t*>(tile.operands[At::map]);
  for (std::size_t i = 0; i < tile.count * args.experts; ++i) {
    static_cast<std::int32_t*>(tile.operands[At::position])[i] = -1;
    if (map[i] != 0) one_position(args, tile, i, i % args.experts);
  }
}

template <class In, class Out>
void sum(const void*, const Tile& tile, Result&) {
  using At = MoeSumOperand;
  const auto* before = static_cast<const float*>(tile.operands[At::sum]);
  const auto* factors =
      static_cast<const MoeFactors*>(tile.operands[At::factors]);
  auto* y = static_cast<typename Out::Element*>(tile.operands[At::y]);
  for (std::size_t j = 0; j < tile.count; ++j) {
    bool empty = before == nullptr;
    float sum = empty ? 0.0f : before[j];
    for (int k = 0; k < kMoeSources; ++k) {
      const auto* x =
          static_cast<typename In::Element*>(tile.operands[At::x0 + k]);
      if (x == nullptr) break;
      float term = In::widen(x[j]);
      if (factors != nullptr) term = term * factors->factor[k];
      sum = empty ? term : sum + term;
      empty = false;
    }
    y[j] = Out::narrow(sum);
  }
}

}  // namespace

SWAMP_KERNELS(moe_count, kIntegers, count<A>)
SWAMP_KERNELS(moe_count_map, kNoFormat, count_map)
SWAMP_KERNELS(moe_position, kIntegers, position<A>)
SWAMP_KERNELS(moe_position_map, kNoFormat, position_map)
SWAMP_KERNELS(moe_sum, kSameOrWide, sum<A, B>)

}  // namespace swamp::slave::reference
