#include "row_kernel_cases.h"

#include <cstring>

namespace swamp::test {
namespace {

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const std::byte*>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}
Bytes bytes_of(const Data& data) {
  const auto* begin = reinterpret_cast<const std::byte*>(data.data());
  return {begin, begin + data.bytes()};
}

// Attention, products, convolutions and column sums have units of their own,
// and their own tests.
template <class Args, class... Others>
constexpr bool kIsAny = (std::is_same_v<Args, Others> || ...);
template <class Args>
constexpr bool kHasSample =
    !kIsAny<Args, slave::AttentionArgs, slave::AttentionMaskArgs,
            slave::ProductPackArgs, slave::ProductArgs,
            slave::ScaledProductArgs, slave::ColumnSumsArgs,
            slave::ConvolutionArgs, slave::TransposeArgs>;

// The elements of a unit of the kernels of 8-bit formats that have no rows; 0
// for others.
template <class Args>
constexpr std::size_t kUnitElements =
    kIsAny<Args, slave::QuantizeArgs, slave::DequantizeArgs, slave::AmaxArgs>
        ? 1
    : kIsAny<Args, slave::HadamardArgs> ? slave::kHadamard
                                        : 0;
// The elements of a block of the 8-bit formats that have rows.
constexpr std::size_t kBlock = 32;

// block_bytes() is the bytes of the scales of a row.
std::size_t block_bytes(std::size_t columns, std::size_t scale_bytes) {
  return (columns + kBlock - 1) / kBlock * scale_bytes;
}

// The arguments of each type, for rows of so many columns.
template <class Args>
Args sample(std::size_t columns, int variant);
template <>
slave::SoftmaxArgs sample(std::size_t columns, int variant) {
  const float scales[] = {0.125f, 7.0f, 0.10206207f};
  return {columns,
          variant == 2 ? std::max<std::size_t>(columns, 2) : 0,
          scales[variant % 3],
          variant == 1 || variant == 4,
          variant % 4 < 2,
          variant == 3 || variant == 4};
}
template <>
slave::SoftmaxBackwardArgs sample(std::size_t columns, int variant) {
  const auto forward = sample<slave::SoftmaxArgs>(columns, variant);
  return {columns, forward.causal_rows, forward.scale, forward.log};
}
template <>
slave::CrossEntropyArgs sample(std::size_t columns, int variant) {
  const auto n = static_cast<double>(columns);
  slave::CrossEntropyArgs args{columns, 0, -100, 0.9, 0.1 / n, n, 1e-4, 0, 0};
  if (variant == 1 || variant == 4) args.confidence = 1, args.uniform = 0;
  if (variant == 2) args.first_class = static_cast<std::int64_t>(columns);
  if (variant % 2 == 1) args.z_loss = 0;
  args.gives_parts = variant == 5;
  return args;
}
template <>
slave::RowNormArgs sample(std::size_t columns, int variant) {
  return {columns, 1e-5, variant % 3 == 1 ? 0.0f : 1.0f, 0};
}
template <>
slave::ResidualAddArgs sample(std::size_t columns, int) {
  return {columns};
}
template <>
slave::RowSumsArgs sample(std::size_t columns, int variant) {
  return {columns, variant % 3 == 1, 0};
}
template <>
slave::RowAffineArgs sample(std::size_t columns, int) {
  return {columns};
}
template <>
slave::ActivationArgs sample(std::size_t columns, int variant) {
  using Args = slave::ActivationArgs;
  const std::size_t function =
      (columns + static_cast<std::size_t>(variant)) % Args::count;
  const float exponents[] = {1.5f, 2, 3, -1, -2};
  const float beta = function == Args::pow ? exponents[variant % 5] : 1.5f;
  return {
      columns, static_cast<Args::Function>(function), beta, 2.0f, 1.25f, 1.75f,
      0};
}
template <>
slave::MoeSumArgs sample(std::size_t, int) {
  return {};
}
template <>
slave::MoeArgs sample(std::size_t columns, int) {
  return {static_cast<std::uint32_t>(columns), 3};
}
template <>
slave::AdamBlockArgs sample(std::size_t columns, int variant) {
  const auto count = static_cast<std::uint32_t>(columns);
  const std::uint32_t float8 = variant / 2 % 2 == 0 ? 0 : 1;
  if (variant % 2 == 1) {
    return {
        {1, 1, 0.1f, 0.999f, 1e-3f, 1e-3f, 0.5f, 1e-8f, 0, 1}, count, float8};
  }
  return {{0.5f, 0.3f, 0.6f, 0.99f, 1e-2f, 0.3f, 0.7f, 0.1f, 0.1f, 0.99f},
          count,
          float8};
}

// float8_e4m3fn, MXINT8 and float8_e5m2; the first does not depend on the
// rounding mode.
template <>
slave::QuantizeArgs sample(std::size_t, int variant) {
  const slave::QuantizeArgs formats[] = {{0.7f,
                                          3,
                                          121,
                                          7,
                                          0x7e,
                                          0x7e,
                                          0x7f,
                                          0x7f,
                                          0xff,
                                          0x80,
                                          slave::kNearestAway,
                                          0,
                                          1,
                                          {17, 99},
                                          0},
                                         {1,
                                          6,
                                          127,
                                          7,
                                          0x7f,
                                          0x7f,
                                          0x7f,
                                          0,
                                          0,
                                          0,
                                          slave::kStochastic,
                                          0,
                                          1,
                                          {17, 99},
                                          1},
                                         {3,
                                          2,
                                          113,
                                          7,
                                          0x7b,
                                          0x7c,
                                          0x7c,
                                          0x7f,
                                          0xff,
                                          0x80,
                                          slave::kNearestEven,
                                          0,
                                          1,
                                          {},
                                          0}};
  return formats[variant % 3];
}
template <>
slave::DequantizeArgs sample(std::size_t, int) {
  return {0.7f, 1, 3, 121, 7, 0x7e, slave::kBeyond, 0};
}
template <>
slave::BlockArgs sample(std::size_t columns, int variant) {
  slave::BlockArgs args{};
  args.code = sample<slave::QuantizeArgs>(columns, variant);
  args.rows = std::size_t{1} << 20;
  args.columns = args.index_step = columns;
  args.block = kBlock;
  args.scale_bytes = variant % 3 == 2 ? 4 : 1;
  args.rule =
      variant % 3 == 2 ? slave::BlockRule::torchao : slave::BlockRule::te_mx;
  args.stripe_rows = 1;
  args.largest = variant % 3 == 1 ? 127.0f / 64 : 448;
  args.skips_nan = args.repeats = 1;
  return args;
}
template <>
slave::DequantizeBlockArgs sample(std::size_t columns, int) {
  return {sample<slave::DequantizeArgs>(columns, 0),
          1,
          0,
          slave::ScaleKind::e8m0,
          columns,
          kBlock};
}
template <>
slave::AmaxArgs sample(std::size_t, int) {
  return {};
}
template <>
slave::HadamardArgs sample(std::size_t, int) {
  return {};
}

using Block = slave::BlockOperand;
using CrossEntropy = slave::CrossEntropyOperand;
using MoeSum = slave::MoeSumOperand;

// is_absent() returns whether a variant leaves out an operand that may be null.
bool is_absent(F family, int s, int variant) {
  switch (family) {
    case F::scaled_softmax:
      return s == slave::SoftmaxOperand::mask && variant % 2 == 0;
    case F::softmax_backward:
      return (s == slave::SoftmaxBackwardOperand::dx && variant == 4) ||
             (s == slave::SoftmaxBackwardOperand::dot && variant % 2 == 0);
    case F::cross_entropy:  // variant 5 gives parts
      return (s == CrossEntropy::weight && variant % 3 == 2) ||
             (s == CrossEntropy::target && variant == 4) ||
             (s == CrossEntropy::loss && variant == 4) ||
             (s == CrossEntropy::low && variant == 1) ||
             (s > CrossEntropy::loss && variant == 5);
    case F::cross_entropy_backward:
      return (s == slave::CrossEntropyBackwardOperand::weight &&
              variant % 3 == 2) ||
             (s == slave::CrossEntropyBackwardOperand::target && variant == 4);
    case F::layer_norm:
      return (s == slave::NormOperand<true>::weight && variant == 3) ||
             (s == slave::NormOperand<true>::bias && variant % 3 == 2);
    case F::rms_norm:
      return s == slave::NormOperand<false>::weight && variant == 3;
    case F::residual_add:
      return s == slave::ResidualAddOperand::bias && variant == 3;
    case F::row_sums:
      return (s == slave::RowSumsOperand::factor && variant % 3 != 2) ||
             (s == slave::RowSumsOperand::shift && variant % 2 == 0);
    case F::row_affine:
      return s == slave::RowAffineOperand::gradient && variant % 2 == 1;
    case F::activation:
      return s == slave::ActivationOperand::up && variant % 2 == 1;
    case F::activation_backward:
      return (s == slave::ActivationBackwardOperand::up ||
              s == slave::ActivationBackwardOperand::dup) &&
             variant % 2 == 1;
    case F::layer_norm_backward:
      return (s == slave::NormBackwardOperand<true>::weight && variant == 3) ||
             (s == slave::NormBackwardOperand<true>::dx && variant == 5);
    case F::rms_norm_backward:
      return (s == slave::NormBackwardOperand<false>::weight && variant == 3) ||
             (s == slave::NormBackwardOperand<false>::dx && variant == 5);
    case F::quantize:
      return s == slave::QuantizeOperand::random && variant % 2 == 0;
    case F::quantize_blocks:  // along columns: quantize_test.cpp
      return s == Block::column_codes || s == Block::column_scales ||
             (s == Block::random && variant % 2 == 0);
    case F::moe_sum:  // the last sources first
      return (s <= MoeSum::x2 && s >= 4 - variant && variant != 5) ||
             (s == MoeSum::sum && variant % 2 == 0 && variant != 0) ||
             (s == MoeSum::factors && variant % 3 == 2);
    default:
      return false;
  }
}

// Maker makes the cases of one number of columns. Magnitudes go down to
// subnormal ones.
struct Maker {
  std::size_t columns;
  bool with_minus_infinity;
  int variant;
  std::size_t rows;
  Random random;
  std::vector<RowKernelCase> all;

  // numbers() is ordinary numbers, or positive ones.
  Bytes numbers(ScalarType type, std::size_t count, bool positive) {
    Data data(type, count);
    for (std::size_t i = 0; i < count; ++i) {
      const float small = !positive && random.below(16) == 0 ? 1e-38f : 1.0f;
      const float value = normal(random) * small;
      data.set(i, positive ? 0.5f + std::fabs(value) : value);
    }
    return bytes_of(data);
  }

  // special() is rows of all kinds, which begin with one of them.
  Bytes special(ScalarType type, std::size_t count, std::size_t kind) {
    return bytes_of(filled_rows(type, count / columns, columns, random,
                                static_cast<int>(kind)));
  }

  // has_values() returns whether an operand is the values of codes.
  static bool has_values(const KernelInfo& kernel, int s) {
    return kernel.operands[s].access == Access::constant &&
           (kernel.family == F::dequantize ||
            kernel.family == F::dequantize_blocks);
  }

  // unit_elements() is the elements of a unit of an operand.
  std::size_t unit_elements(const KernelInfo& kernel, int s) const {
    if (has_values(kernel, s)) return 256;
    const bool quantizes = kernel.family == F::quantize_blocks;
    if (s == Block::scales &&
        (quantizes || kernel.family == F::dequantize_blocks)) {
      return block_bytes(columns, quantizes && variant % 3 == 2 ? 4 : 1);
    }
    if (kernel.family == F::cross_entropy && s == CrossEntropy::loss &&
        variant == 5) {
      return sizeof(slave::CrossEntropyParts) / sizeof(float);
    }
    return kernel.operands[s].row ? columns : 1;
  }

  // of_no_type() is the values of an operand that is not of a ScalarType.
  Bytes of_no_type(const KernelInfo& kernel, int s, std::size_t bytes,
                   std::size_t count) {
    const bool is_softmax = kernel.family == F::scaled_softmax;
    const bool is_loss = kernel.family == F::cross_entropy ||
                         kernel.family == F::cross_entropy_backward;
    if (kernel.family == F::cross_entropy_backward &&
        s == slave::CrossEntropyBackwardOperand::row) {
      std::vector<slave::CrossEntropyRow> losses(count, {{1, 0}, 1, 1});
      for (std::size_t i = 1; i < count; ++i) {
        losses[i] = {{4 * normal(random), normal(random)},
                     0.37f * static_cast<float>(i + 1),
                     0.7f};
      }
      return bytes_of(losses);
    }
    if (kernel.family == F::row_affine) {
      std::vector<slave::RowFactors> factors(count);
      for (slave::RowFactors& one : factors) {
        one = {normal(random), normal(random), normal(random), normal(random)};
      }
      return bytes_of(factors);
    }
    if (kernel.family == F::moe_sum) {
      return bytes_of(std::vector<slave::MoeFactors>{{{1.7f, 0.3f, -1.0f}, 0}});
    }
    if (bytes == 1 || (kernel.family == F::adam_8bit_stochastic &&
                       s == slave::AdamBlockOperand::more)) {
      Bytes any(bytes * count);
      for (std::byte& b : any) b = static_cast<std::byte>(random.below(256));
      if (is_softmax && variant != 0) {  // a quarter, and all of a row
        for (std::size_t i = 0; i < any.size(); ++i) {
          const bool all_of_row = variant == 1 && i / columns == 2;
          if (i % 4 != 3 && !all_of_row) any[i] = std::byte{0};
        }
      }
      return any;
    }
    if (kernel.args_bytes == sizeof(slave::AdamBlockArgs)) {  // absmax
      Bytes absmax = numbers(kFloat32, 2 * count, true);
      for (std::size_t i = 5; variant != 0 && i < 2 * count; i += 7) {
        std::memset(&absmax[4 * i], 0, 4);
      }
      return absmax;
    }
    // Targets, experts, and their first positions.
    Bytes numbers(bytes * count);
    const std::size_t classes = variant == 2 ? 3 * columns : columns;
    for (std::size_t i = 0; i < count; ++i) {
      std::int64_t value =
          static_cast<std::int64_t>(random.below(is_loss ? classes : columns));
      if (is_loss && variant != 0 && i == 1) value = -100;
      std::memcpy(&numbers[i * bytes], &value, bytes);
    }
    return numbers;
  }

  void add(const KernelInfo& kernel, const Bytes& args) {
    const bool by_row = kernel.is_by_row();
    const std::size_t units = by_row ? rows : rows * columns;
    std::size_t first = variant == 1 ? 3 : 0;
    if (variant == 2) first = columns < 2 ? 0 : columns - 2 + 3 * columns;
    RowKernelCase one{&kernel, columns, variant, args, {},
                      {},      units,   first,   {}};
    for (int s = 0; s < kernel.operand_count; ++s) {
      const TypedOperand& operand = kernel.operands[s];
      Operand unit = kernel.operand(s, columns);
      if (is_absent(kernel.family, s, variant)) unit.unit_bytes = 0;
      const std::size_t elements = unit_elements(kernel, s);
      const std::size_t count =
          unit.access == Access::constant ? elements : elements * units;
      one.written.push_back(unit.unit_bytes != 0 && unit.is_written());
      const auto type = static_cast<ScalarType>(operand.type);
      if (unit.unit_bytes == 0) {
        one.operands.emplace_back();
      } else if (has_values(kernel, s)) {
        std::vector<float> values;
        for (int code = 0; code < 256; ++code) {
          values.push_back(slave::element::Float8E4M3FN::widen(
              static_cast<std::uint8_t>(code)));
        }
        one.operands.push_back(bytes_of(values));
      } else if (operand.type == kNoScalarType) {
        one.operands.push_back(of_no_type(kernel, s, operand.bytes, count));
      } else if (variant != 0 && (operand.row || !by_row) &&
                 count % columns == 0) {
        one.operands.push_back(
            special(type, count, static_cast<std::size_t>(s + variant)));
      } else {
        // Values of a row are statistics.
        one.operands.push_back(numbers(type, count, by_row && !operand.row));
      }
      if (variant != 0 && unit.access == Access::out &&
          operand.type != kNoScalarType && unit.unit_bytes != 0 &&
          kernel.args_bytes != sizeof(slave::AdamBlockArgs)) {
        for (int i = 0, turn = variant % 3; i < s; ++i) {
          const TypedOperand& input = kernel.operands[i];
          const bool fits = input.access == Access::in &&
                            input.type == operand.type &&
                            input.row == operand.row &&
                            !one.operands[static_cast<std::size_t>(i)].empty();
          // Of the inputs that may be the output, or none.
          if (!fits || turn-- != 0) continue;
          one.in_place = i;
          one.output = static_cast<std::size_t>(s);
        }
      }
    }
    if (with_minus_infinity && (kernel.family == F::scaled_softmax ||
                                kernel.family == F::cross_entropy_backward)) {
      Data x(static_cast<ScalarType>(kernel.operands[0].type), rows * columns);
      std::memcpy(x.data(), one.operands[0].data(), x.bytes());
      for (std::size_t i = 0; i < x.count(); i += 3) {
        x.set(i, -std::numeric_limits<float>::infinity());
      }
      one.operands[0] = bytes_of(x);
    }
    // Enough for the gradients of weight and bias, and the counts of experts.
    one.partial.resize((columns + 1) * 2 * sizeof(double));
    all.push_back(one);
  }

  template <class Args>
  void add_family(F family) {
    const Bytes whole =
        bytes_of(std::vector<Args>{sample<Args>(columns, variant)});
    if (std::is_same_v<Args, slave::AdamBlockArgs> && columns > 256) return;
    // The positions of every row of so many experts would take minutes.
    if (std::is_same_v<Args, slave::MoeArgs> && columns > 4097) return;
    for (const KernelInfo& kernel : slave::kKernels) {
      if (kernel.family != family) continue;
      if (kUnitElements<Args> != 0) {
        constexpr std::size_t kElements =
            std::max<std::size_t>(1, kUnitElements<Args>);
        Maker units{kElements, false,
                    variant,   (rows * columns + kElements - 1) / kElements,
                    random,    {}};
        units.add(kernel, whole);
        all.push_back(units.all.back());
        continue;
      }
      add(kernel, whole);
    }
  }
};

}  // namespace

std::vector<RowKernelCase> make_row_kernel_cases(std::size_t columns,
                                                 bool with_minus_infinity,
                                                 int variant) {
  const std::size_t rows = variant == 0 ? 5 : columns > 4097 ? 3 : 9;
  Maker maker{columns,
              with_minus_infinity,
              variant,
              rows,
              Random(columns + static_cast<std::size_t>(variant)),
              {}};
#define SWAMP_FAMILY(...)
#define SWAMP_ROW_FAMILY(name, Args, ...) \
  if constexpr (kHasSample<slave::Args>) maker.add_family<slave::Args>(F::name);
#include "slave/kernels.inc"
#undef SWAMP_FAMILY
  return maker.all;
}

}  // namespace swamp::test
