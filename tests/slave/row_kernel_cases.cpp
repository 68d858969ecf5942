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

// Attention and products have units of their own, and their own tests.
template <class Args, class... Others>
constexpr bool kIsAny = (std::is_same_v<Args, Others> || ...);
template <class Args>
constexpr bool kHasSample =
    !kIsAny<Args, slave::AttentionArgs, slave::AttentionBackwardArgs,
            slave::ProductPackArgs, slave::ProductArgs,
            slave::ScaledProductArgs>;

// The elements of a unit of the kernels of 8-bit formats that have no rows; 0
// for others.
template <class Args>
constexpr std::size_t kUnitElements =
    kIsAny<Args, slave::QuantizeArgs, slave::DequantizeArgs, slave::AmaxArgs>
        ? 1
    : kIsAny<Args, slave::HadamardArgs> ? slave::kHadamard
                                        : 0;
// Those of 8-bit formats that have rows, whose blocks are so long.
template <class Args>
constexpr bool kHasBlocks =
    kIsAny<Args, slave::BlockArgs, slave::DequantizeBlockArgs>;
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
  slave::CrossEntropyArgs args{columns, 0, -100, 0.9, 0.1 / n, n, 1e-4, 8, 0};
  if (variant == 1 || variant == 4) args.confidence = 1, args.uniform = 0;
  if (variant == 2) args.first_class = static_cast<std::int64_t>(columns);
  if (variant % 2 == 1) args.z_loss = 0, args.target_bytes = 4;
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

// is_absent() returns whether a variant leaves out an operand that may be null.
bool is_absent(F family, int s, int variant) {
  switch (family) {
    case F::scaled_softmax:
      return s == 1 && variant % 2 == 0;
    case F::cross_entropy:
      return (s == 2 && variant % 3 == 2) || (s == 5 && variant == 1);
    case F::cross_entropy_backward:
      return s == 3 && variant % 3 == 2;
    case F::layer_norm:
      return (s == 1 && variant == 3) || (s == 2 && variant % 3 == 2);
    case F::rms_norm:
    case F::residual_add:
      return s == 1 && variant == 3;
    case F::layer_norm_backward:
      return (s == 4 && variant == 3) || (s == 5 && variant == 5);
    case F::rms_norm_backward:
      return (s == 3 && variant == 3) || (s == 4 && variant == 5);
    case F::quantize:
      return s == 2 && variant % 2 == 0;
    case F::quantize_blocks:  // along columns: quantize_test.cpp
      return s == 3 || s == 4 || (s == 5 && variant % 2 == 0);
    case F::moe_sum:  // the last sources first
      return (s < 3 && s >= 4 - variant && variant != 5) ||
             (s == 3 && variant % 2 == 0 && variant != 0) ||
             (s == 4 && variant % 3 == 2);
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

  // Returns the first column of the piece of a row that passes compute.
  std::size_t first_column() const {
    return variant == 1 ? 2 * slave::kChunkColumns : 0;
  }

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
    if (s == 2 && (quantizes || kernel.family == F::dequantize_blocks)) {
      return block_bytes(columns, quantizes && variant % 3 == 2 ? 4 : 1);
    }
    return kernel.operands[s].row ? columns : 1;
  }

  // of_no_type() is the values of an operand that is not of a ScalarType.
  Bytes of_no_type(const KernelInfo& kernel, int s, std::size_t bytes,
                   std::size_t count, std::size_t first) {
    const bool is_softmax = kernel.family == F::scaled_softmax;
    const bool is_loss = kernel.family == F::cross_entropy ||
                         kernel.family == F::cross_entropy_backward;
    if (is_softmax && s == 3) {
      const float nan = std::nanf("");
      std::vector<slave::SoftmaxFactor> factors(
          columns / slave::kChunkColumns + 1, {0.25f, 0.5f});
      if (variant == 3) factors.back() = {nan, nan};
      return bytes_of(factors);
    }
    if (kernel.family == F::cross_entropy_backward && s == 2) {
      std::vector<slave::CrossEntropyRow> losses(count, {{1, 0}, 1, 1});
      for (std::size_t i = 1; i < count; ++i) {
        losses[i] = {{4 * normal(random), normal(random)},
                     0.37f * static_cast<float>(i + 1),
                     0.7f};
      }
      return bytes_of(losses);
    }
    if (kernel.family == F::softmax_backward && s == 3) {
      return bytes_of(std::vector<float>{0.3f});
    }
    if (kernel.family == F::moe_sum) {
      return bytes_of(std::vector<slave::MoeFactors>{{{1.7f, 0.3f, -1.0f}, 0}});
    }
    if (bytes == 1 || (kernel.family == F::adam_8bit_stochastic && s == 5)) {
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
    // Targets, experts, their first positions, and columns that count.
    Bytes numbers(bytes * count);
    const std::size_t width = is_loss && variant % 2 == 1 ? 4 : bytes;
    const std::size_t classes = variant == 2 ? 3 * columns : columns;
    for (std::size_t i = 0; i < count; ++i) {
      std::int64_t value = static_cast<std::int64_t>(
          s == 4 ? first + columns - columns / 3
                 : first * is_loss + random.below(is_loss ? classes : columns));
      if (is_loss && variant != 0 && i == 1) value = -100;
      std::memcpy(&numbers[i * width], &value, width);
    }
    return numbers;
  }

  void add(const KernelInfo& kernel, Pass pass, const Bytes& args) {
    const bool by_row = kernel.is_by_row();
    const std::size_t units = pass != Pass::rows ? columns
                              : by_row           ? rows
                                                 : rows * columns;
    std::size_t first = variant == 1 ? 3 : 0;
    if (variant == 2) first = columns < 2 ? 0 : columns - 2 + 3 * columns;
    if (pass != Pass::rows) first = first_column();
    RowKernelCase one{&kernel, pass, variant, args, {}, {}, units, first, {}};
    for (int s = 0; s < kernel.operand_count; ++s) {
      const TypedOperand& operand = kernel.operands[s];
      Operand unit =
          Operand::dense(kernel.unit_bytes(s, columns), operand.access);
      if (pass != Pass::rows) unit = kernel.column_operand(s, pass);
      const bool is_softmax = kernel.family == F::scaled_softmax ||
                              kernel.family == F::softmax_backward;
      // Only passes on columns have the last operands of softmax.
      if (is_softmax &&
          (s == 3 ? pass != Pass::map : s == 4 && pass == Pass::rows)) {
        unit.unit_bytes = 0;
      }
      if (is_absent(kernel.family, s, variant) &&
          !(pass == Pass::map && unit.access == Access::out)) {
        unit.unit_bytes = 0;
      }
      const bool is_norm_map = pass == Pass::map && s == 2 &&
                               (kernel.family == F::layer_norm_backward ||
                                kernel.family == F::rms_norm_backward);
      const std::size_t elements = unit_elements(kernel, s);
      const std::size_t count = unit.access == Access::constant ? elements
                                : pass == Pass::rows ? elements * units
                                                     : units;
      one.written.push_back(
          unit.unit_bytes != 0 &&
          (unit.access == Access::out || unit.access == Access::inout));
      const auto type = static_cast<ScalarType>(operand.type);
      if (unit.unit_bytes == 0) {
        one.operands.emplace_back();
      } else if (is_norm_map) {
        one.operands.push_back(bytes_of(
            std::vector<slave::NormBackwardRow>{{0.01f, 1.1f, 0.2f, 0.1f}}));
      } else if (kernel.family == F::cross_entropy && pass == Pass::sum &&
                 s == 1) {
        one.operands.push_back(
            bytes_of(std::vector<slave::SoftmaxChunk>{{1.7f, 20}}));
      } else if (has_values(kernel, s)) {
        std::vector<float> values;
        for (int code = 0; code < 256; ++code) {
          values.push_back(slave::element::Float8E4M3FN::widen(
              static_cast<std::uint8_t>(code)));
        }
        one.operands.push_back(bytes_of(values));
      } else if (operand.type == kNoScalarType) {
        one.operands.push_back(
            of_no_type(kernel, s, operand.bytes, count, first));
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
    if (with_minus_infinity && pass == Pass::rows &&
        (kernel.family == F::scaled_softmax ||
         kernel.family == F::cross_entropy_backward)) {
      Data x(static_cast<ScalarType>(kernel.operands[0].type), rows * columns);
      std::memcpy(x.data(), one.operands[0].data(), x.bytes());
      for (std::size_t i = 0; i < x.count(); i += 3) {
        x.set(i, -std::numeric_limits<float>::infinity());
      }
      one.operands[0] = bytes_of(x);
    }
    // Enough for the gradients of weight and bias, the records of the chunks
    // and the counts of experts.
    one.partial.resize((first_column() + columns + 1) * 2 * sizeof(double) +
                       (columns / slave::kChunkColumns + 1) *
                           sizeof(slave::NormBackwardSums));
    all.push_back(one);
  }

  template <class Args>
  void add_family(F family) {
    const Bytes whole =
        bytes_of(std::vector<Args>{sample<Args>(columns, variant)});
    const Bytes piece = bytes_of(
        std::vector<Args>{sample<Args>(first_column() + columns, variant)});
    const bool has_sum = family != F::cross_entropy_backward;
    const bool has_map = family != F::cross_entropy;
    constexpr bool kPasses = !std::is_same_v<Args, slave::ResidualAddArgs> &&
                             !std::is_same_v<Args, slave::MoeSumArgs> &&
                             !std::is_same_v<Args, slave::MoeArgs> &&
                             !std::is_same_v<Args, slave::AdamBlockArgs> &&
                             kUnitElements<Args> == 0 && !kHasBlocks<Args>;
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
        units.add(kernel, Pass::rows, whole);
        all.push_back(units.all.back());
        continue;
      }
      add(kernel, Pass::rows, whole);
      if (kPasses && has_sum) add(kernel, Pass::sum, piece);
      if (kPasses && has_map) add(kernel, Pass::map, piece);
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
