// The kernels of Adam with block-wise 8-bit moments, compiled once per target
// by Highway.
#include "slave/block_code.h"
#include "slave/kernel_args.h"
#include "slave/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/adam_8bit.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/adam-inl.h"
#include "slave/quantize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;

HWY_INLINE VI set_int(std::int32_t value) { return hn::Set(DI(), value); }

// The bits of |value|.
HWY_INLINE VI magnitude(VF value) {
  return hn::And(hn::BitCast(DI(), value), set_int(0x7fffffff));
}

// Table is a table of 8 floats: in a register if the target has lanes for it.
class Table {
 public:
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  explicit HWY_INLINE Table(const float* values)
      : values_(load_twice(values)) {}
  // Indices are 0 to 7.
  HWY_INLINE VF operator[](VI index) const {
    return hn::TableLookupLanes(values_, hn::IndicesFromVec(DF(), index));
  }

 private:
  static HWY_INLINE VF load_twice(const float* values) {
    HWY_ALIGN float copy[hn::MaxLanes(DF())];
    for (std::size_t i = 0; i < hn::Lanes(DF()); ++i) copy[i] = values[i % 8];
    return hn::Load(DF(), copy);
  }
  VF values_;
#else
  explicit HWY_INLINE Table(const float* values) : values_(values) {}
  HWY_INLINE VF operator[](VI index) const {
    HWY_ALIGN std::int32_t at[hn::MaxLanes(DI())];
    HWY_ALIGN float found[hn::MaxLanes(DF())];
    hn::Store(index, DI(), at);
    for (std::size_t i = 0; i < hn::Lanes(DF()); ++i) found[i] = values_[at[i]];
    return hn::Load(DF(), found);
  }

 private:
  const float* values_;
#endif
};

// Decoder computes the numbers of a map. Undefined for c = 0.
struct Decoder {
  Table low, step;

  explicit HWY_INLINE Decoder(const DecadeTables& tables)
      : low(tables.low), step(tables.step) {}

  HWY_INLINE VF operator()(VI c) const {
    const VF number = hn::ConvertTo(DF(), c);
    const VI bits = hn::BitCast(DI(), number);
    const VF power = hn::BitCast(DF(), hn::And(bits, set_int(0x7f800000)));
    const VI j =
        hn::And(hn::Sub(hn::ShiftRight<23>(bits), set_int(127)), set_int(7));
    return hn::Add(low[j], hn::Mul(step[j], hn::Sub(number, power)));
  }
};

// Encoder computes numbers. kFirst is the first decade that has a threshold.
template <int kFirst>
struct Encoder {
  Table parts, offset, last, threshold;
  VF unit;
  VI below_one;

  HWY_INLINE Encoder(const DecadeTables& tables, float block_unit)
      : parts(tables.parts),
        offset(tables.offset),
        last(tables.last),
        threshold(tables.threshold),
        unit(set(block_unit)),
        below_one(set_int(static_cast<std::int32_t>(float_to_bits(tables.one)) -
                          1)) {}

  // The number of |value| * unit. Floats of at least 0 are compared as
  // integers, in which nan is above 1.
  HWY_INLINE VI operator()(VF value) const {
    const VU bits = hn::BitCast(DU(), hn::Mul(hn::Abs(value), unit));
    const VI ratio =
        hn::BitCast(DI(), hn::Min(bits, hn::Set(DU(), 0x3f800000U)));
    // The bits of a float are nearly its logarithm to base 2, times 2^23. The
    // number of the decade is `near`, or the one before, by the threshold; so
    // the errors of the logarithm do not matter.
    constexpr float kDecadesPerBit = 0.30103f * 0x1p-23f;
    constexpr float kDecadeOfOne = 7.55f + kFirst;
    constexpr float kDecadeOfZero =
        kDecadeOfOne - kDecadesPerBit * 127.0f * 0x1p23f;
    VI near = hn::ConvertTo(
        DI(), hn::Add(hn::Mul(hn::ConvertTo(DF(), ratio), set(kDecadesPerBit)),
                      set(kDecadeOfZero)));
    near = hn::Max(near, set_int(kFirst));
    if (kFirst != 0) near = hn::Min(near, set_int(7));
    // A true mask is -1.
    const VI j = hn::Add(
        near, hn::VecFromMask(
                  DI(), hn::Gt(hn::BitCast(DI(), threshold[near]), ratio)));
    const VI decade = kFirst == 0 ? hn::Max(j, set_int(0)) : j;
    const VF number = hn::Add(hn::Mul(hn::BitCast(DF(), ratio), parts[decade]),
                              offset[decade]);
    const VI c = hn::ConvertTo(DI(), hn::Min(number, last[decade]));
    if (kFirst == 0) return hn::IfThenZeroElse(hn::Lt(j, set_int(0)), c);
    return hn::IfThenElse(hn::Gt(ratio, below_one), set_int(256), c);
  }
};

// Code is the format of an operand of codes.
struct Code {
  using Element = std::uint8_t;
  static HWY_INLINE VI load(const Element* at) {
    return hn::PromoteTo(DI(), hn::LoadU(hn::Rebind<Element, DF>(), at));
  }
  static HWY_INLINE void store(VI code, Element* at) {
    const hn::Rebind<Element, DF> d8;
    hn::StoreU(hn::DemoteTo(d8, code), d8, at);
  }
};

// MapCodes and Float8Codes are the two kinds of codes. m() and v() decode
// moments, but for the factor of their block.
struct MapCodes {
  Decoder m_decoder{kSignedTables}, v_decoder{kUnsignedTables};

  HWY_INLINE MapCodes() = default;
  static HWY_INLINE VF factor(float absmax) { return set(absmax); }
  HWY_INLINE VF m(const std::uint8_t* at) const {
    const VI signed_c = hn::Sub(Code::load(at), set_int(127));
    const VF sign = hn::BitCast(
        DF(),
        hn::And(signed_c, set_int(static_cast<std::int32_t>(0x80000000U))));
    const VF m = m_decoder(hn::Abs(signed_c));
    return hn::IfThenZeroElse(
        hn::RebindMask(DF(), hn::Eq(signed_c, set_int(0))), hn::Or(m, sign));
  }
  HWY_INLINE VF v(const std::uint8_t* at) const {
    const VI c = hn::Add(Code::load(at), set_int(1));
    return hn::IfThenElse(hn::RebindMask(DF(), hn::Eq(c, set_int(256))),
                          set(1.0f), v_decoder(c));
  }

  struct Encode {
    Encoder<0> m_encoder;
    Encoder<1> v_encoder;

    HWY_INLINE Encode(float m_absmax, float v_absmax)
        : m_encoder(kSignedTables, block_unit(m_absmax)),
          v_encoder(kUnsignedTables, block_unit(v_absmax)) {}
    template <class NonTemporal>
    HWY_INLINE void operator()(NonTemporal, const float* at_m,
                               const float* at_v, std::uint8_t* m_codes,
                               std::uint8_t* v_codes) const {
      const VF m = load(at_m);
      const VI c = m_encoder(m);
      // A nan has no sign, because a CPU's depends on the order of operands.
      constexpr std::int32_t kNegativeNan = -0x7fffff;  // the least of them
      const auto is_negative =
          hn::Lt(hn::BitCast(DI(), m), set_int(kNegativeNan));
      const VI negative = hn::Sub(set_int(127), hn::Min(c, set_int(127)));
      const VI positive = hn::Add(set_int(127), c);
      Code::store(hn::IfThenElse(is_negative, negative, positive), m_codes);
      // A v above 0 never becomes 0: see block_code.h.
      const VF v = load(at_v);
      const VI is_positive =
          hn::VecFromMask(DI(), hn::Gt(magnitude(v), hn::Zero(DI())));
      const VI v_code = hn::Sub(v_encoder(v), set_int(1));
      Code::store(hn::Max(v_code, hn::And(is_positive, set_int(1))), v_codes);
    }
  };
};

struct Float8Codes {
  static constexpr std::uint32_t kLeastExponent = 121;  // 2^-6

  static HWY_INLINE VF factor(float absmax) {
    return set(float8_scale(absmax));
  }
  static HWY_INLINE VF m(const std::uint8_t* at) {
    return Float8E4M3FN::load(DF(), at);
  }
  static HWY_INLINE VF v(const std::uint8_t* at) { return m(at); }

  struct Encode {
    VF m_scale, v_scale;

    HWY_INLINE Encode(float m_absmax, float v_absmax)
        : m_scale(factor(m_absmax)), v_scale(factor(v_absmax)) {}
    template <class NonTemporal>
    HWY_INLINE void operator()(NonTemporal, const float* at_m,
                               const float* at_v, std::uint8_t* m_codes,
                               std::uint8_t* v_codes) const {
      store_code(load(at_m), m_scale, m_codes);
      store_code(load(at_v), v_scale, v_codes);
    }
    // Only nan has a ratio above the largest number.
    static HWY_INLINE void store_code(VF value, VF scale, std::uint8_t* at) {
      const VI ratio = magnitude(hn::Div(value, scale));
      const VI code =
          hn::BitCast(DI(), quantizing::nearest_even_code(
                                hn::BitCast(DU(), ratio), 3, kLeastExponent));
      const VI sign = hn::And(
          hn::BitCast(DI(), hn::ShiftRight<24>(hn::BitCast(DU(), value))),
          set_int(0x80));
      Code::store(hn::IfThenElse(hn::Gt(ratio, set_int(0x7f800000)),
                                 set_int(0x7f), hn::Or(code, sign)),
                  at);
    }
  };
};

// BlockStep takes a step on a block, and leaves the moments in memory.
template <class Gradient, class Weight, class Codes>
struct BlockStep {
  const Adam<Gradient>& adam;
  const Codes& codes;
  const RandomWords& random;
  VF m_factor, v_factor;
  VI *m_largest, *v_largest;

  template <class NonTemporal, class... More>
  HWY_INLINE void operator()(NonTemporal non_temporal, std::uint32_t index,
                             const typename Gradient::Element* at_gradient,
                             typename Weight::Element* at_weight,
                             const std::uint8_t* m_codes,
                             const std::uint8_t* v_codes, float* at_m,
                             float* at_v, More*... more) const {
    VF m = hn::Mul(codes.m(m_codes), m_factor);
    VF v = hn::Mul(codes.v(v_codes), v_factor);
    VF weight = Weight::load(at_weight, more...);
    adam.moments(at_gradient, weight, m, v);
    store(m, at_m);
    store(v, at_v);
    *m_largest = hn::Max(*m_largest, magnitude(m));
    *v_largest = hn::Max(*v_largest, magnitude(v));
    weight = adam.stepped(weight, m, v);
    VU word = hn::Zero(DU());
    if constexpr (Weight::kRandom) word = random.first(index);
    Weight::store(weight, upper_half(word), non_temporal, at_weight, more...);
  }
};

// largest_of() is the absmax of a block, with one pattern for all nan.
HWY_INLINE float largest_of(VI lanes) {
  HWY_ALIGN std::int32_t all[hn::MaxLanes(DI())];
  hn::Store(lanes, DI(), all);
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < hn::Lanes(DI()); ++i) {
    if (all[i] > largest) largest = all[i];
  }
  return float_from_bits(
      largest > 0x7f800000 ? 0x7fc00000 : static_cast<std::uint32_t>(largest));
}

// coded_blocks() computes all blocks of a tile. `More` is the operand after the
// absmax that belongs to the weight, if there is one.
template <class Codes, class Gradient, class Weight, class... More>
HWY_INLINE void coded_blocks(const AdamBlockArgs& args, const Tile& tile,
                             const RoundingKey& key) {
  using At = AdamBlockOperand;
  const std::size_t columns = args.columns;
  const Adam<Gradient> adam(args.adam);
  const Codes codes;
  const RandomWords random(key);
  HWY_ALIGN float m[kBlockColumns];
  HWY_ALIGN float v[kBlockColumns];
  for (std::size_t row = 0; row < tile.count; ++row) {
    const std::size_t at = row * columns;
    void* operands[] = {
        operand<typename Gradient::Element>(tile, At::gradient) + at,
        operand<typename Weight::Element>(tile, At::weight) + at,
        operand<std::uint8_t>(tile, At::m) + at,
        operand<std::uint8_t>(tile, At::v) + at,
        m,
        v,
        operand<typename More::Element>(tile, At::more) + at...};
    float* const absmax = operand<float>(tile, At::absmax) + 2 * row;
    Tile block;
    block.operands = operands;
    block.count = columns;
    block.prefetch_bytes = tile.prefetch_bytes;
    VI m_largest = hn::Zero(DI());
    VI v_largest = hn::Zero(DI());
    const BlockStep<Gradient, Weight, Codes> step{adam,
                                                  codes,
                                                  random,
                                                  Codes::factor(absmax[0]),
                                                  Codes::factor(absmax[1]),
                                                  &m_largest,
                                                  &v_largest};
    for_each_vector(
        block, step, ElementIndex(tile.first * columns + at),
        Input<Gradient>(block, 0), OperandData<Weight, Access::inout>(block, 1),
        Input<Code>(block, 2), Input<Code>(block, 3), Output<Float32>(block, 4),
        Output<Float32>(block, 5), InOut<More>(block, 6)...);
    absmax[0] = largest_of(m_largest);
    absmax[1] = largest_of(v_largest);
    const typename Codes::Encode encode(absmax[0], absmax[1]);
    block.prefetch_bytes = 0;
    for_each_vector(block, encode, Input<Float32>(block, 4),
                    Input<Float32>(block, 5), Output<Code>(block, 2),
                    Output<Code>(block, 3));
  }
}

template <class Gradient, class Weight, class... More>
HWY_INLINE void adam_blocks(const void* args_bytes, const Tile& tile, Result&) {
  const auto& args = *static_cast<const AdamBlockArgs*>(args_bytes);
  RoundingKey key{};
  if constexpr (Weight::kRandom) {
    key = *operand<RoundingKey>(tile, AdamBlockOperand::more);
  }
  if (args.float8 != 0) {
    coded_blocks<Float8Codes, Gradient, Weight, More...>(args, tile, key);
  } else {
    coded_blocks<MapCodes, Gradient, Weight, More...>(args, tile, key);
  }
}

template <class Format, class Model>
HWY_INLINE void adam_8bit(const void* args, const Tile& tile, Result& result) {
  if constexpr (std::is_same_v<Model, element::None>) {
    adam_blocks<Format, RoundedWeight<Format>>(args, tile, result);
  } else {
    adam_blocks<Format, MasterWeight<Format>, Format>(args, tile, result);
  }
}

}  // namespace

SWAMP_KERNELS(adam_8bit, kBlockSteps, adam_8bit<A, B>)
SWAMP_KERNELS(adam_8bit_stochastic, kHalf, adam_blocks<A, RoundedWeight<A>>)
SWAMP_KERNELS(adam_8bit_kahan, kHalf, adam_blocks<A, CompensatedWeight<A>, A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
