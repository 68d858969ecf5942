// The kernels of mixtures of experts, compiled once per target by Highway:
// counting and positions are scalar loops, because each entry depends on those
// before it; the sum of rows of tokens is a loop over vectors.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "slave/kernel_table.h"
#include "slave/row_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/moe.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// for_each_grain() calls body(begin, end, counts) for the units of each grain
// of a tile.
template <class Body>
HWY_INLINE void for_each_grain(const MoeArgs& args, const Tile& tile,
                               const Body& body) {
  auto* counts = partial_result<std::uint32_t>(tile);
  std::size_t end = tile.count;
  if (tile.grain_units != 0) {
    end = std::min(end, tile.grain_units - tile.first % tile.grain_units);
  }
  for (std::size_t begin = 0; begin < tile.count;) {
    body(begin, end, counts);
    counts += args.counts();
    begin = end;
    end = std::min(tile.count, end + tile.grain_units);
  }
}

// is_expert() is false for negative numbers.
template <class Index>
HWY_INLINE bool is_expert(const MoeArgs& args, Index expert) {
  return static_cast<std::make_unsigned_t<Index>>(expert) < args.experts;
}

template <class Index>
HWY_INLINE void count(const void* arguments, const Tile& tile, Result& result) {
  const auto& args = *static_cast<const MoeArgs*>(arguments);
  const auto* expert = operand<const Index>(tile, 0);
  for_each_grain(args, tile,
                 [&](std::size_t begin, std::size_t end, std::uint32_t* counts)
                     HWY_ATTR {
                       for (std::size_t i = begin; i < end; ++i) {
                         if (HWY_LIKELY(is_expert(args, expert[i]))) {
                           ++counts[expert[i]];
                         } else if (expert[i] != -1) {
                           result.flag(tile.first + i, 1);
                         }
                       }
                     });
}

HWY_INLINE void count_map(const void* arguments, const Tile& tile, Result&) {
  const auto& args = *static_cast<const MoeArgs*>(arguments);
  const auto* map = operand<const std::uint8_t>(tile, 0);
  for_each_grain(
      args, tile,
      [&](std::size_t begin, std::size_t end, std::uint32_t* counts) HWY_ATTR {
        for (std::size_t i = begin; i < end; ++i, map += args.experts) {
          for (std::uint32_t e = 0; e < args.experts; ++e) {
            counts[e] += map[e] != 0 ? 1 : 0;
          }
        }
      });
}

// next_position() counts an entry of an expert and returns its position.
HWY_INLINE std::int32_t next_position(const MoeArgs& args, std::uint32_t base,
                                      std::uint32_t& count) {
  const std::uint32_t position = base + count++;
  return position < args.capacity ? static_cast<std::int32_t>(position) : -1;
}

template <class Index>
HWY_INLINE void position(const void* arguments, const Tile& tile, Result&) {
  using At = MoePositionOperand;
  const auto& args = *static_cast<const MoeArgs*>(arguments);
  const auto* expert = operand<const Index>(tile, At::expert);
  const auto* base = operand<const std::uint32_t>(tile, At::base);
  auto* positions = operand<std::int32_t>(tile, At::position);
  auto* counts = partial_result<std::uint32_t>(tile);
  for (std::size_t i = 0; i < tile.count; ++i) {
    const Index e = expert[i];
    positions[i] =
        is_expert(args, e) ? next_position(args, base[e], counts[e]) : -1;
  }
}

HWY_INLINE void position_map(const void* arguments, const Tile& tile, Result&) {
  using At = MoePositionOperand;
  const auto& args = *static_cast<const MoeArgs*>(arguments);
  const auto* map = operand<const std::uint8_t>(tile, At::map);
  const auto* base = operand<const std::uint32_t>(tile, At::base);
  auto* positions = operand<std::int32_t>(tile, At::position);
  auto* counts = partial_result<std::uint32_t>(tile);
  for (std::size_t i = 0; i < tile.count; ++i) {
    for (std::uint32_t e = 0; e < args.experts; ++e) {
      positions[e] = map[e] != 0 ? next_position(args, base[e], counts[e]) : -1;
    }
    map += args.experts;
    positions += args.experts;
  }
}

// Sum has kCount inputs, then a float32 sum if kSum, then the output.
template <class In, class Out, int kCount, bool kSum>
struct Sum {
  VF factor[kMoeSources];

  template <int k, class Operands>
  HWY_INLINE void add(const Operands& operands, VF& sum) const {
    if constexpr (k < kCount) {
      const auto term =
          hn::Mul(In::load(DF(), std::get<k>(operands)), factor[k]);
      sum = k == 0 && !kSum ? term : hn::Add(sum, term);
    }
  }
  template <class NonTemporal, class... At>
  HWY_INLINE void operator()(NonTemporal non_temporal, At... at) const {
    const DF df;
    const std::tuple<At...> operands(at...);
    VF sum = hn::Zero(df);
    if constexpr (kSum) sum = hn::LoadU(df, std::get<kCount>(operands));
    add<0>(operands, sum);
    add<1>(operands, sum);
    add<2>(operands, sum);
    store_as<Out>(df, sum, non_temporal, std::get<kCount + kSum>(operands));
  }
};

template <class In, class Out, int kCount, bool kSum>
HWY_INLINE void sum_of(const Tile& tile) {
  using At = MoeSumOperand;
  const DF df;
  // Without factors they are 1, which changes no term.
  Sum<In, Out, kCount, kSum> sum{
      {hn::Set(df, 1.0f), hn::Set(df, 1.0f), hn::Set(df, 1.0f)}};
  if (const auto* factors = operand<const MoeFactors>(tile, At::factors)) {
    for (int k = 0; k < kCount; ++k) {
      sum.factor[k] = hn::Set(df, factors->factor[k]);
    }
  }
  const Output<Out> out(tile, At::y);
  const Input<In> x0(tile, At::x0), x1(tile, At::x1), x2(tile, At::x2);
  const Input<Float32> before(tile, At::sum);
  if constexpr (kSum && kCount == 1) {
    for_each_vector_out(tile, sum, out, x0, before);
  } else if constexpr (kSum && kCount == 2) {
    for_each_vector_out(tile, sum, out, x0, x1, before);
  } else if constexpr (kSum) {
    for_each_vector_out(tile, sum, out, x0, x1, x2, before);
  } else if constexpr (kCount == 1) {
    for_each_vector_out(tile, sum, out, x0);
  } else if constexpr (kCount == 2) {
    for_each_vector_out(tile, sum, out, x0, x1);
  } else {
    for_each_vector_out(tile, sum, out, x0, x1, x2);
  }
}

template <class In, class Out, int kCount>
HWY_INLINE void sum_of(const Tile& tile) {
  tile.operands[MoeSumOperand::sum] == nullptr
      ? sum_of<In, Out, kCount, false>(tile)
      : sum_of<In, Out, kCount, true>(tile);
}

template <class In, class Out>
HWY_INLINE void sum(const void*, const Tile& tile, Result&) {
  using At = MoeSumOperand;
  auto* y = operand<typename Out::Element>(tile, At::y);
  const std::size_t bytes = tile.count * sizeof *y;
  if (tile.operands[At::x0] == nullptr) {
    std::memset(y, 0, bytes);
  } else if (std::is_same<In, Out>::value && tile.operands[At::x1] == nullptr &&
             tile.operands[At::sum] == nullptr &&
             tile.operands[At::factors] == nullptr) {
    std::memcpy(y, tile.operands[At::x0], bytes);
  } else if (tile.operands[At::x1] == nullptr) {
    sum_of<In, Out, 1>(tile);
  } else if (tile.operands[At::x2] == nullptr) {
    sum_of<In, Out, 2>(tile);
  } else {
    sum_of<In, Out, 3>(tile);
  }
}

}  // namespace

SWAMP_KERNELS(moe_count, kIntegers, count<A>)
SWAMP_KERNELS(moe_count_map, kNoFormat, count_map)
SWAMP_KERNELS(moe_position, kIntegers, position<A>)
SWAMP_KERNELS(moe_position_map, kNoFormat, position_map)
SWAMP_KERNELS(moe_sum, kSameOrWide, sum<A, B>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
