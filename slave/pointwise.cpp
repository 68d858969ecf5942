// Functions of each element of a matrix, and of other operands, that take a
// few operations: of 16 bits, compiled once per target by Highway.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "slave/kernel_table.h"
#include "slave/pointwise_args.h"
#include "slave/row_args.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/pointwise.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/pairs-inl.h"
#include "slave/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// limited() leaves nan, and zeros that are equal to a limit, as they are.
HWY_INLINE VF limited(VF x, VF low, VF high) {
  const auto raised = hn::IfThenElse(hn::Lt(x, low), low, x);
  return hn::IfThenElse(hn::Lt(high, raised), high, raised);
}

HWY_INLINE VF hard(VF x) {
  const DF df;
  return limited(hn::Add(x, hn::Set(df, 3.0f)), hn::Zero(df),
                 hn::Set(df, 6.0f));
}

struct Numbers {
  VF alpha, beta, gamma;
};

// Each function is of(x, z, w, numbers).
struct Unary {
  static constexpr bool kHasSecond = false, kHasThird = false;
};
struct Binary {
  static constexpr bool kHasSecond = true, kHasThird = false;
};
struct Ternary {
  static constexpr bool kHasSecond = true, kHasThird = true;
};
struct Clamp : Unary {
  static HWY_INLINE VF of(VF x, VF, VF, const Numbers& n) {
    return limited(x, n.alpha, n.beta);
  }
};
struct HardSwish : Unary {
  static HWY_INLINE VF of(VF x, VF, VF, const Numbers&) {
    return hn::Div(hn::Mul(x, hard(x)), hn::Set(DF(), 6.0f));
  }
};
struct HardSigmoid : Unary {
  static HWY_INLINE VF of(VF x, VF, VF, const Numbers&) {
    return hn::Div(hard(x), hn::Set(DF(), 6.0f));
  }
};
struct LeakyRelu : Unary {
  static HWY_INLINE VF of(VF x, VF, VF, const Numbers& n) {
    return hn::IfThenElse(hn::Lt(hn::Zero(DF()), x), x, hn::Mul(x, n.alpha));
  }
};
struct Affine : Unary {
  static HWY_INLINE VF of(VF x, VF, VF, const Numbers& n) {
    return hn::Add(hn::Mul(x, n.alpha), n.beta);
  }
};
struct Sum : Binary {
  static HWY_INLINE VF of(VF x, VF z, VF, const Numbers& n) {
    return hn::Add(hn::Mul(x, n.alpha), hn::Mul(z, n.beta));
  }
};
// Leaves out the factors of a sum, which are 1: no bit changes.
struct PlainSum : Binary {
  static HWY_INLINE VF of(VF x, VF z, VF, const Numbers&) {
    return hn::Add(x, z);
  }
};
struct Product : Binary {
  static HWY_INLINE VF of(VF x, VF z, VF, const Numbers&) {
    return hn::Mul(x, z);
  }
};
struct DifferenceBy : Ternary {
  static HWY_INLINE VF of(VF x, VF z, VF w, const Numbers& n) {
    const VF d = limited(hn::Sub(x, z), hn::Neg(n.gamma), n.gamma);
    return hn::Mul(hn::Mul(d, n.alpha), w);
  }
};
struct Difference : Binary {
  static HWY_INLINE VF of(VF x, VF z, VF, const Numbers& n) {
    return DifferenceBy::of(x, z, n.beta, n);
  }
};
struct Loss : Binary {
  static HWY_INLINE VF of(VF x, VF z, VF, const Numbers& n) {
    const VF d = hn::Abs(hn::Sub(x, z));
    const VF m = hn::IfThenElse(hn::Lt(n.gamma, d), n.gamma, d);
    const VF rest = hn::Sub(d, hn::Mul(m, hn::Set(DF(), 0.5f)));
    return hn::Mul(hn::Mul(m, n.alpha), rest);
  }
};
// Is the loss with alpha 2 and no limit; only the sign of nan may differ.
struct Square : Binary {
  static HWY_INLINE VF of(VF x, VF z, VF, const Numbers&) {
    const VF d = hn::Sub(x, z);
    return hn::Mul(d, d);
  }
};
struct ScaledRelu : Binary {
  static HWY_INLINE VF of(VF x, VF z, VF, const Numbers&) {
    return hn::IfThenElse(hn::Lt(hn::Zero(DF()), x), x, hn::Mul(x, z));
  }
};
struct Above : Binary {
  static HWY_INLINE VF of(VF x, VF z, VF, const Numbers& n) {
    return hn::IfThenZeroElse(hn::Le(x, n.alpha), z);
  }
};
struct Between : Binary {
  static HWY_INLINE VF of(VF x, VF z, VF, const Numbers& n) {
    const auto is_in = hn::And(hn::Lt(n.alpha, x), hn::Lt(x, n.beta));
    return hn::IfThenElseZero(is_in, hn::Mul(z, n.gamma));
  }
};
struct LeakyGradient : Binary {
  static HWY_INLINE VF of(VF x, VF z, VF, const Numbers& n) {
    return hn::IfThenElse(hn::Lt(hn::Zero(DF()), x), z, hn::Mul(z, n.alpha));
  }
};

struct Maximum : Binary {
  static HWY_INLINE VF of(VF x, VF z, VF, const Numbers&) {
    return hn::IfThenElse(hn::Or(hn::Lt(z, x), hn::IsNaN(x)), x, z);
  }
};
struct Minimum : Binary {
  static HWY_INLINE VF of(VF x, VF z, VF, const Numbers&) {
    return hn::IfThenElse(hn::Or(hn::Lt(x, z), hn::IsNaN(x)), x, z);
  }
};
struct LerpBy : Ternary {
  static HWY_INLINE VF of(VF x, VF z, VF w, const Numbers&) {
    const DF df;
    const auto is_near = hn::Lt(hn::Abs(w), hn::Set(df, 0.5f));
    const VF rest = hn::Sub(hn::Set(df, 1.0f), w);
    const VF part = hn::Mul(hn::Sub(z, x), hn::IfThenElse(is_near, w, rest));
    return hn::IfThenElse(is_near, hn::Add(x, part), hn::Sub(z, part));
  }
};
struct Lerp : Binary {
  static HWY_INLINE VF of(VF x, VF z, VF, const Numbers& n) {
    return LerpBy::of(x, z, n.alpha, n);
  }
};
struct SumOfProduct : Ternary {
  static HWY_INLINE VF of(VF x, VF z, VF w, const Numbers& n) {
    return hn::Add(x, hn::Mul(hn::Mul(z, n.alpha), w));
  }
};
struct SumOfQuotient : Ternary {
  static HWY_INLINE VF of(VF x, VF z, VF w, const Numbers& n) {
    return hn::Add(x, hn::Div(hn::Mul(z, n.alpha), w));
  }
};

// Apply loads and stores; without a second row, z is the same for all elements.
template <class Format, class Function>
struct Apply {
  using Element = typename Format::Element;
  Numbers numbers;
  VF z;

  HWY_INLINE void operator()(std::false_type, const Element* x,
                             Element* y) const {
    const VF value = Function::of(Format::load(DF(), x), z, z, numbers);
    store_as<Format>(DF(), value, std::false_type(), y);
  }
  HWY_INLINE void operator()(std::false_type, const Element* x,
                             const Element* other, Element* y) const {
    const VF second = Format::load(DF(), other);
    const VF value =
        Function::of(Format::load(DF(), x), second, second, numbers);
    store_as<Format>(DF(), value, std::false_type(), y);
  }
  HWY_INLINE void operator()(std::false_type, const Element* x,
                             const Element* other, const Element* third,
                             Element* y) const {
    const VF value =
        Function::of(Format::load(DF(), x), Format::load(DF(), other),
                     Format::load(DF(), third), numbers);
    store_as<Format>(DF(), value, std::false_type(), y);
  }
};

// compute_pairs() returns the number of elements, from the first on, that are
// computed. Of clamp() nothing is rounded, as its limits are.
template <class Function>
HWY_INLINE std::size_t compute_pairs(const Apply<BFloat16, Function>& body,
                                     const Tile& tile, const std::uint16_t* x,
                                     const std::uint16_t* z,
                                     const std::uint16_t* w, std::uint16_t* y) {
  constexpr std::size_t kStep = Pairs::kStep;
  std::size_t i = 0;
  for (; i + kStep <= tile.count; i += kStep) {
    prefetch(x + i, kStep, tile.prefetch_bytes);
    const Pairs from = Pairs::load(x + i);
    Pairs second{body.z, body.z};
    if (Function::kHasSecond && z != nullptr) {
      prefetch(z + i, kStep, tile.prefetch_bytes);
      second = Pairs::load(z + i);
    }
    Pairs third = second;
    if constexpr (Function::kHasThird) {
      prefetch(w + i, kStep, tile.prefetch_bytes);
      third = Pairs::load(w + i);
    }
    Pairs{Function::of(from.even, second.even, third.even, body.numbers),
          Function::of(from.odd, second.odd, third.odd, body.numbers)}
        .template store<std::is_same_v<Function, Clamp>>(y + i);
  }
  return i;
}

template <class Format, class Function>
HWY_INLINE void compute(const PointwiseArgs& args, const Tile& tile) {
  using At = PointwiseOperand;
  using Element = typename Format::Element;
  RowPart part = part_of_rows(tile, args.columns);
  const auto* const values = operand<float>(tile, At::value);
  auto* const line = operand<Element>(tile, At::line);
  auto* const all = operand<Element>(tile, At::x);
  if (values == nullptr && line == nullptr) {  // one long row
    part.columns *= part.rows;
    part.rows = 1;
  }
  Tile row = tile;
  void* operands[At::count] = {};
  row.operands = operands;
  const auto number = [](float value) HWY_ATTR {
    const VF same = hn::Set(DF(), value);
    return std::is_same_v<Function, Clamp> ? Format::round(DF(), same) : same;
  };
  Apply<Format, Function> body{
      {number(args.alpha), number(args.beta), number(args.gamma)},
      hn::Zero(DF())};
  for (std::size_t i = 0; i < part.rows; ++i) {
    const std::size_t at = i * part.columns;
    auto* const x = all == nullptr ? line : all + at;
    auto* const y = operand<Element>(tile, At::y) + at;
    Element* z = nullptr;
    if (values != nullptr) {
      body.z = hn::Set(DF(), values[i]);
    } else if (Function::kHasSecond) {
      z = line != nullptr ? line : operand<Element>(tile, At::z) + at;
    }
    Element* w = nullptr;
    if constexpr (Function::kHasThird) {
      w = operand<Element>(tile, At::w) + at;
    }
    std::size_t done = 0;
    if constexpr (kInPairs && std::is_same_v<Format, BFloat16>) {
      row.count = part.columns;
      done = compute_pairs(body, row, x, z, w, y);
    }
    if (done == part.columns) continue;
    row.count = part.columns - done;
    operands[At::x] = x + done;
    operands[At::y] = y + done;
    if constexpr (Function::kHasThird) {
      operands[At::z] = z + done;
      operands[At::w] = w + done;
      for_each_vector(row, body, Input<Format>(row, At::x),
                      Input<Format>(row, At::z), Input<Format>(row, At::w),
                      Output<Format>(row, At::y));
      continue;
    } else if constexpr (Function::kHasSecond) {
      if (z != nullptr) {
        operands[At::z] = z + done;
        for_each_vector(row, body, Input<Format>(row, At::x),
                        Input<Format>(row, At::z), Output<Format>(row, At::y));
        continue;
      }
    }
    for_each_vector(row, body, Input<Format>(row, At::x),
                    Output<Format>(row, At::y));
  }
}

template <class Format>
HWY_INLINE void pointwise(const void* arguments, const Tile& tile, Result&) {
  using A = PointwiseArgs;
  const auto& args = *static_cast<const A*>(arguments);
  switch (args.function) {
    case A::clamp:
      return compute<Format, Clamp>(args, tile);
    case A::hard_swish:
      return compute<Format, HardSwish>(args, tile);
    case A::hard_sigmoid:
      return compute<Format, HardSigmoid>(args, tile);
    case A::leaky_relu:
      return compute<Format, LeakyRelu>(args, tile);
    case A::affine:
      return compute<Format, Affine>(args, tile);
    case A::sum:
      return args.alpha == 1 && args.beta == 1
                 ? compute<Format, PlainSum>(args, tile)
                 : compute<Format, Sum>(args, tile);
    case A::product:
      return compute<Format, Product>(args, tile);
    case A::difference:
      return compute<Format, Difference>(args, tile);
    case A::loss:
      return args.alpha == 2 && args.gamma == std::numeric_limits<float>::max()
                 ? compute<Format, Square>(args, tile)
                 : compute<Format, Loss>(args, tile);
    case A::scaled_relu:
      return compute<Format, ScaledRelu>(args, tile);
    case A::above:
      return compute<Format, Above>(args, tile);
    case A::between:
      return compute<Format, Between>(args, tile);
    case A::leaky_gradient:
      return compute<Format, LeakyGradient>(args, tile);
    case A::maximum:
      return compute<Format, Maximum>(args, tile);
    case A::minimum:
      return compute<Format, Minimum>(args, tile);
    case A::lerp:
      return compute<Format, Lerp>(args, tile);
    case A::sum_of_product:
      return compute<Format, SumOfProduct>(args, tile);
    case A::sum_of_quotient:
      return compute<Format, SumOfQuotient>(args, tile);
    case A::lerp_by:
      return compute<Format, LerpBy>(args, tile);
    default:
      return compute<Format, DifferenceBy>(args, tile);
  }
}

}  // namespace

SWAMP_KERNELS(pointwise, kHalf, pointwise<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
