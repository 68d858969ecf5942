// Every row kernel of the list, in each of its passes: the bits of the
// reference, for rows and options of all kinds, without one byte read or
// written outside of the operands, and in other float environments; and no
// "invalid operation" for ordinary data. The kernels of attention, the units of
// which the master sets, are tested in attention_test.cpp; that whole rows and
// passes have the same bits, in tests/master/rows_test.cpp.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstring>
#include <memory>

#include "row_cases.h"
#include "support/float_environment_scope.h"
#include "support/guarded_pages.h"

namespace swamp::test {
namespace {

using Bytes = std::vector<std::byte>;

// Variant 0 is plain options and ordinary values. The others are other options,
// absent operands, special values, outputs in place of an input, hints and
// scratch memory.
constexpr int kVariants = 6;

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const std::byte*>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}
Bytes bytes_of(const Data& data) {
  const auto* begin = reinterpret_cast<const std::byte*>(data.data());
  return {begin, begin + data.bytes()};
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
          0};
}
template <>
slave::SoftmaxBackwardArgs sample(std::size_t columns, int variant) {
  const auto forward = sample<slave::SoftmaxArgs>(columns, variant);
  return {columns, forward.causal_rows, forward.scale, 0};
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
  if (variant % 2 == 1) {
    return {{1, 1, 0.1f, 0.999f, 1e-3f, 1e-3f, 0.5f, 1e-8f, 0, 1}, count};
  }
  return {{0.5f, 0.3f, 0.6f, 0.99f, 1e-2f, 0.3f, 0.7f, 0.1f, 0.1f, 0.99f},
          count};
}

// is_absent() returns whether a variant leaves out an operand that may be null.
bool is_absent(F family, int s, int variant) {
  switch (family) {
    case F::scaled_softmax:
      return s == 1 && variant % 2 == 0;
    case F::cross_entropy:
      return s == 2 && variant % 3 == 2;
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
    case F::moe_sum:  // the last sources first
      return (s < 3 && s >= 4 - variant && variant != 5) ||
             (s == 3 && variant % 2 == 0 && variant != 0) ||
             (s == 4 && variant % 3 == 2);
    default:
      return false;
  }
}

// Case is a kernel with arguments and operands, in one pass.
struct Case {
  const KernelInfo* kernel;
  Pass pass;
  int variant;
  Bytes args;
  std::vector<Bytes> operands;  // empty: null
  std::vector<bool> written;
  std::size_t units, first;
  Bytes partial;
  // The output is in the memory of this input; -1: none is.
  int in_place = -1;
  std::size_t output = 0;

  std::string text() const {
    const char* const passes[] = {"rows", "sum", "map"};
    return std::string(kernel->name) + " " +
           passes[static_cast<std::size_t>(pass)] + " variant " +
           std::to_string(variant);
  }
};

// Maker makes the cases of one number of columns. Magnitudes go down to
// subnormal ones.
struct Maker {
  std::size_t columns;
  bool with_minus_infinity;
  int variant;
  std::size_t rows;
  Random random;
  std::vector<Case> all;

  // first_column() is that of the piece of a row that passes compute.
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
      std::vector<slave::CrossEntropyRow> losses(count, {1, 1, 1});
      for (std::size_t i = 1; i < count; ++i) {
        losses[i] = {4 * normal(random), 0.37f * static_cast<float>(i + 1),
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
    Case one{&kernel, pass, variant, args, {}, {}, units, first, {}};
    for (int s = 0; s < kernel.operand_count; ++s) {
      const TypedOperand& operand = kernel.operands[s];
      Operand unit{kernel.unit_bytes(s, columns), operand.access};
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
      const std::size_t count =
          unit.access == Access::constant
              ? (operand.row ? columns : 1)
              : (operand.row && pass == Pass::rows ? columns : 1) * units;
      one.written.push_back(
          unit.unit_bytes != 0 &&
          (unit.access == Access::out || unit.access == Access::inout));
      const auto type = static_cast<ScalarType>(operand.type);
      if (unit.unit_bytes == 0) {
        one.operands.emplace_back();
      } else if (is_norm_map) {
        one.operands.push_back(bytes_of(
            std::vector<slave::NormBackwardRow>{{0.01f, 1.1f, 0.2f, 0.1f}}));
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
                             !std::is_same_v<Args, slave::AdamBlockArgs>;
    if (std::is_same_v<Args, slave::AdamBlockArgs> && columns > 256) return;
    // The positions of every row of so many experts would take minutes.
    if (std::is_same_v<Args, slave::MoeArgs> && columns > 4097) return;
    for (const KernelInfo& kernel : slave::kKernels) {
      if (kernel.family != family) continue;
      add(kernel, Pass::rows, whole);
      if (kPasses && has_sum) add(kernel, Pass::sum, piece);
      if (kPasses && has_map) add(kernel, Pass::map, piece);
    }
  }
};

std::vector<Case> make_cases(std::size_t columns, bool with_minus_infinity,
                             int variant = 0) {
  const std::size_t rows = variant == 0 ? 5 : columns > 4097 ? 3 : 9;
  Maker maker{columns,
              with_minus_infinity,
              variant,
              rows,
              Random(columns + static_cast<std::size_t>(variant)),
              {}};
#define SWAMP_FAMILY(...)
#define SWAMP_ROW_FAMILY(name, Args, ...)                                     \
  if constexpr (!std::is_same_v<slave::Args, slave::AttentionArgs> &&         \
                !std::is_same_v<slave::Args, slave::AttentionBackwardArgs>) { \
    maker.add_family<slave::Args>(F::name);                                   \
  }
#include "slave/kernels.inc"
#undef SWAMP_FAMILY
  return maker.all;
}

// run() runs a case on `memory`, which has a place for each operand and for the
// partial result, and returns what it wrote there.
std::vector<Bytes> run(const Case& one, const KernelTable& table,
                       const std::vector<std::byte*>& memory) {
  std::vector<void*> operands(memory.begin(), memory.end() - 1);
  for (std::size_t s = 0; s < one.operands.size(); ++s) {
    const Bytes& from = one.operands[s];
    if (from.empty()) {
      operands[s] = nullptr;
    } else {
      std::memcpy(memory[s], from.data(), from.size());
    }
  }
  const auto input = static_cast<std::size_t>(one.in_place);
  if (one.in_place >= 0) operands[one.output] = memory[input];
  std::byte* const partial = memory.back();
  std::memset(partial, 0, one.partial.size());
  static Data scratch(kFloat32, slave::kChunkColumns);
  const bool has_scratch =
      one.variant % 4 > 1 && one.kernel->family == F::scaled_softmax;
  run_rows(table, one.kernel->id, one.args.data(), operands, one.units,
           one.first, partial, one.variant % 2 == 1,
           has_scratch ? reinterpret_cast<float*>(scratch.data()) : nullptr,
           one.pass);
  EXPECT_TRUE(scratch.intact());
  if (one.in_place >= 0) {
    std::memcpy(memory[one.output], memory[input],
                one.operands[one.output].size());
    std::memcpy(memory[input], one.operands[input].data(),
                one.operands[input].size());
  }
  std::vector<Bytes> result;
  for (std::size_t s = 0; s < one.operands.size(); ++s) {
    if (one.operands[s].empty()) {
      result.emplace_back();
    } else {
      result.emplace_back(memory[s], memory[s] + one.operands[s].size());
    }
  }
  result.emplace_back(partial, partial + one.partial.size());
  return result;
}

// run() in memory of its own.
std::vector<Bytes> run(const Case& one, const KernelTable& table) {
  std::vector<std::vector<std::uint64_t>> storage;
  std::vector<std::byte*> memory;
  for (const Bytes& operand : one.operands) {
    storage.emplace_back(operand.size() / 8 + 1);
    memory.push_back(reinterpret_cast<std::byte*>(storage.back().data()));
  }
  storage.emplace_back(one.partial.size() / 8 + 1);
  memory.push_back(reinterpret_cast<std::byte*>(storage.back().data()));
  return run(one, table, memory);
}

// same_partials() compares the words of two partial results: floats, doubles or
// integers. A nan equals any other. If the sum of a SoftmaxChunk is nan, its
// maximum may be any number.
bool same_partials(const Case& one, const Bytes& actual,
                   const Bytes& expected) {
  const bool has_chunks =
      one.pass == Pass::sum && (one.kernel->family == F::scaled_softmax ||
                                one.kernel->family == F::cross_entropy);
  const std::size_t stride = one.kernel->family == F::scaled_softmax ? 8 : 16;
  for (std::size_t at = 0; at < actual.size(); at += 8) {
    if (std::memcmp(&actual[at], &expected[at], 8) == 0) continue;
    double wide[2];
    float narrow[2][2];
    std::memcpy(&wide[0], &actual[at], 8);
    std::memcpy(&wide[1], &expected[at], 8);
    if (std::isnan(wide[0]) && std::isnan(wide[1])) continue;
    std::memcpy(narrow[0], &actual[at], 8);
    std::memcpy(narrow[1], &expected[at], 8);
    bool both_nan[2];
    for (int i = 0; i < 2; ++i) {
      both_nan[i] = std::isnan(narrow[0][i]) && std::isnan(narrow[1][i]);
    }
    const bool any_max = has_chunks && at % stride == 0 && both_nan[1];
    for (int i = 0; i < 2; ++i) {
      if (both_nan[i] || (i == 0 && any_max)) continue;
      if (std::memcmp(&narrow[0][i], &narrow[1][i], 4) != 0) return false;
    }
  }
  return true;
}

// same() compares two results; a nan may have any payload. What a kernel only
// reads must be as it was.
testing::AssertionResult same(const Case& one, const std::vector<Bytes>& actual,
                              const std::vector<Bytes>& expected) {
  for (std::size_t s = 0; s < actual.size(); ++s) {
    const bool is_partial = s == one.operands.size();
    const std::uint8_t type =
        is_partial ? kNoScalarType : one.kernel->operands[s].type;
    if (is_partial) {
      if (!same_partials(one, actual[s], expected[s])) {
        return testing::AssertionFailure() << "partial result";
      }
    } else if (!one.written[s] || type == kNoScalarType) {
      if (actual[s] != (one.written[s] ? expected[s] : one.operands[s])) {
        return testing::AssertionFailure() << "operand " << s;
      }
    } else {
      const auto format = static_cast<ScalarType>(type);
      const std::size_t count = actual[s].size() / kScalarTypeBytes[type];
      Data a(format, count), e(format, count);
      std::memcpy(a.data(), actual[s].data(), a.bytes());
      std::memcpy(e.data(), expected[s].data(), e.bytes());
      const testing::AssertionResult result = same_bits(a, e);
      if (!result) {
        return testing::AssertionFailure()
               << "operand " << s << ": " << result.message();
      }
    }
  }
  return testing::AssertionSuccess();
}

TEST(RowKernels, AccessNothingOutsideOfTheirOperands) {
  for (const std::size_t columns : {1u, 2u, 3u, 15u, 16u, 17u, 31u, 33u, 63u,
                                    64u, 65u, 100u, 129u, 1000u}) {
    for (const Case& one : make_cases(columns, false)) {
      const std::vector<Bytes> expected = run(one, row_tables()[0]);
      std::vector<std::unique_ptr<GuardedPages>> pages;
      for (const Bytes& operand : one.operands) {
        pages.push_back(std::make_unique<GuardedPages>(
            std::max<std::size_t>(operand.size(), 1)));
      }
      pages.push_back(std::make_unique<GuardedPages>(one.partial.size()));
      for (const bool at_end : {false, true}) {
        std::vector<std::byte*> memory;
        for (std::size_t s = 0; s < pages.size(); ++s) {
          const std::size_t bytes = s < one.operands.size()
                                        ? one.operands[s].size()
                                        : one.partial.size();
          memory.push_back(at_end ? pages[s]->end() - bytes
                                  : pages[s]->begin());
        }
        for (const KernelTable& table : row_tables()) {
          ASSERT_TRUE(same(one, run(one, table, memory), expected))
              << one.text() << ' ' << table.isa << " columns " << columns;
        }
      }
    }
  }
}

TEST(RowKernels, HaveTheBitsOfTheReference) {
  for (const std::size_t columns : kRowLengths) {
    // Long rows take most of the time.
    const int variants = columns > 4097 ? 4 : kVariants;
    for (int variant = 1; variant < variants; ++variant) {
      for (const Case& one : make_cases(columns, false, variant)) {
        const std::vector<Bytes> expected = run(one, row_tables()[0]);
        for (const KernelTable& table : row_tables()) {
          ASSERT_TRUE(same(one, run(one, table), expected))
              << one.text() << ' ' << table.isa << " columns " << columns;
        }
      }
    }
  }
}

TEST(RowKernels, HaveTheBitsOfTheReferenceInOtherEnvironments) {
  for (const std::size_t columns : {33u, 1000u, 4097u}) {
    for (const Case& one : make_cases(columns, true)) {
      for (const FloatEnvironment& environment : kFloatEnvironments) {
        std::vector<Bytes> expected;
        for (const KernelTable& table : row_tables()) {
          std::vector<Bytes> actual;
          {
            const ControlScope scope(environment.control);
            actual = run(one, table);
          }
          if (expected.empty()) expected = actual;
          ASSERT_TRUE(same(one, actual, expected))
              << one.text() << ' ' << table.isa << ' ' << environment.name
              << " columns " << columns;
        }
      }
    }
  }
}

TEST(RowKernels, FindNothingInvalidInOrdinaryData) {
  for (const std::size_t columns : {1u, 17u, 33u, 64u, 129u, 1000u}) {
    for (const Case& one : make_cases(columns, columns > 3)) {
      for (const KernelTable& table : row_tables()) {
#ifdef __clang__
        // clang vectorises the plain loops of the references, of EMU128 and of
        // 8-bit codes, computes on unused lanes and ignores the flags.
        if (std::strcmp(table.isa, "scalar") == 0) continue;
        if (std::strcmp(table.isa, "reference") == 0) continue;
        if (one.kernel->args_bytes == sizeof(slave::AdamBlockArgs)) continue;
#endif
        std::feclearexcept(FE_ALL_EXCEPT);
        run(one, table);
        ASSERT_EQ(std::fetestexcept(FE_INVALID), 0)
            << one.text() << ' ' << table.isa << " columns " << columns;
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
