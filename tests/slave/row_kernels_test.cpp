// Every row kernel of the list, in each of its passes: the bits of the
// reference, without one byte read or written outside of the operands, and in
// other float environments; and no "invalid operation" for ordinary data. The
// kernels of attention, the units of which the master sets, are tested in
// attention_test.cpp.
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

constexpr std::size_t kRows = 5;

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// The arguments of each type, for rows of so many columns.
template <class Args>
Args sample(std::size_t columns);
template <>
slave::SoftmaxArgs sample(std::size_t columns) {
  return {columns, 0, 0.125f, 0, 1, 0};
}
template <>
slave::SoftmaxBackwardArgs sample(std::size_t columns) {
  return {columns, 0, 0.125f, 0};
}
template <>
slave::CrossEntropyArgs sample(std::size_t columns) {
  return {columns, 0, -100, 0.9, 0.1 / 128, 128, 1e-4, 8, 0};
}
template <>
slave::RowNormArgs sample(std::size_t columns) {
  return {columns, 1e-5, 1, 0};
}
template <>
slave::ResidualAddArgs sample(std::size_t columns) {
  return {columns};
}
template <>
slave::MoeSumArgs sample(std::size_t) {
  return {};
}
template <>
slave::MoeArgs sample(std::size_t columns) {
  return {static_cast<std::uint32_t>(columns), 3};
}
template <>
slave::AdamBlockArgs sample(std::size_t columns) {
  return {{0.5f, 0.3f, 0.6f, 0.99f, 1e-2f, 0.3f, 0.7f, 0.1f, 0.1f, 0.99f},
          static_cast<std::uint32_t>(columns)};
}

// Case is a kernel with arguments and operands, in one pass.
struct Case {
  const KernelInfo* kernel;
  Pass pass;
  Bytes args;
  std::vector<Bytes> operands;  // empty: null
  std::vector<bool> written;
  std::size_t units;
  Bytes partial;

  std::string text() const {
    const char* const passes[] = {"rows", "sum", "map"};
    return std::string(kernel->name) + " " +
           passes[static_cast<std::size_t>(pass)];
  }
};

// Maker makes the cases of one number of columns. Magnitudes go down to
// subnormal ones.
struct Maker {
  std::size_t columns;
  bool with_minus_infinity;
  Random random;
  std::vector<Case> all;

  // numbers() is ordinary numbers, or positive ones.
  Bytes numbers(ScalarType type, std::size_t count, bool positive) {
    Data data(type, count);
    for (std::size_t i = 0; i < count; ++i) {
      const float small = !positive && random.below(16) == 0 ? 1e-38f : 1.0f;
      const float value = normal(random) * small;
      data.set(i, positive ? 0.5f + std::fabs(value) : value);
    }
    return {reinterpret_cast<std::byte*>(data.data()),
            reinterpret_cast<std::byte*>(data.data()) + data.bytes()};
  }

  // of_no_type() is the values of an operand that is not of a ScalarType.
  Bytes of_no_type(const KernelInfo& kernel, int s, std::size_t bytes,
                   std::size_t count) {
    if (kernel.family == F::scaled_softmax && s == 3) {
      return bytes_of(std::vector<slave::SoftmaxFactor>(
          columns / slave::kChunkColumns + 1, {0.25f, 0.5f}));
    }
    if (kernel.family == F::cross_entropy_backward && s == 2) {
      return bytes_of(std::vector<slave::CrossEntropyRow>(count, {1, 1, 1}));
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
      return any;
    }
    if (kernel.args_bytes == sizeof(slave::AdamBlockArgs)) {  // absmax
      return numbers(kFloat32, 2 * count, true);
    }
    // Targets, experts, their first positions, and columns that count.
    Bytes numbers(bytes * count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t value =
          s == 4 ? columns - columns / 3 : random.below(columns);
      std::memcpy(&numbers[i * bytes], &value, bytes);
    }
    return numbers;
  }

  void add(const KernelInfo& kernel, Pass pass, const Bytes& args) {
    const bool by_row = kernel.is_by_row();
    const std::size_t units = pass != Pass::rows ? columns
                              : by_row           ? kRows
                                                 : kRows * columns;
    Case one{&kernel, pass, args, {}, {}, units, {}};
    for (int s = 0; s < kernel.operand_count; ++s) {
      const TypedOperand& operand = kernel.operands[s];
      Operand unit{kernel.unit_bytes(s, columns), operand.access};
      if (pass != Pass::rows) unit = kernel.column_operand(s, pass);
      const bool is_softmax = kernel.family == F::scaled_softmax ||
                              kernel.family == F::softmax_backward;
      if (is_softmax &&
          (s == 3 ? pass != Pass::map : s == 4 && pass == Pass::rows)) {
        unit.unit_bytes = 0;  // only passes on columns have them
      }
      if (kernel.family == F::scaled_softmax && s == 1 && columns % 2 == 0) {
        unit.unit_bytes = 0;  // no mask
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
      if (unit.unit_bytes == 0) {
        one.operands.emplace_back();
      } else if (is_norm_map) {
        one.operands.push_back(bytes_of(
            std::vector<slave::NormBackwardRow>{{0.01f, 1.1f, 0.2f, 0.1f}}));
      } else if (operand.type == kNoScalarType) {
        one.operands.push_back(of_no_type(kernel, s, operand.bytes, count));
      } else {
        // Values of a row are statistics.
        one.operands.push_back(numbers(static_cast<ScalarType>(operand.type),
                                       count, by_row && !operand.row));
      }
    }
    if (with_minus_infinity && pass == Pass::rows &&
        (kernel.family == F::scaled_softmax ||
         kernel.family == F::cross_entropy_backward)) {
      Data x(static_cast<ScalarType>(kernel.operands[0].type), kRows * columns);
      std::memcpy(x.data(), one.operands[0].data(), x.bytes());
      for (std::size_t i = 0; i < x.count(); i += 3) {
        x.set(i, -std::numeric_limits<float>::infinity());
      }
      std::memcpy(one.operands[0].data(), x.data(), x.bytes());
    }
    // Enough for the gradients of weight and bias, the records of the chunks
    // and the counts of experts.
    one.partial.resize((columns + 1) * 2 * sizeof(double) +
                       (columns / slave::kChunkColumns + 1) *
                           sizeof(slave::NormBackwardSums));
    all.push_back(one);
  }

  template <class Args>
  void add_family(F family) {
    const Args args = sample<Args>(columns);
    const Bytes bytes = bytes_of(std::vector<Args>{args});
    const bool has_sum = family != F::cross_entropy_backward;
    const bool has_map = family != F::cross_entropy;
    constexpr bool kPasses = !std::is_same_v<Args, slave::ResidualAddArgs> &&
                             !std::is_same_v<Args, slave::MoeSumArgs> &&
                             !std::is_same_v<Args, slave::MoeArgs> &&
                             !std::is_same_v<Args, slave::AdamBlockArgs>;
    if (std::is_same_v<Args, slave::AdamBlockArgs> && columns > 256) return;
    for (const KernelInfo& kernel : slave::kKernels) {
      if (kernel.family != family) continue;
      add(kernel, Pass::rows, bytes);
      if (kPasses && has_sum) add(kernel, Pass::sum, bytes);
      if (kPasses && has_map) add(kernel, Pass::map, bytes);
    }
  }
};

std::vector<Case> make_cases(std::size_t columns, bool with_minus_infinity) {
  Maker maker{columns, with_minus_infinity, Random(columns), {}};
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
  std::byte* const partial = memory.back();
  std::memset(partial, 0, one.partial.size());
  run_rows(table, one.kernel->id, one.args.data(), operands, one.units, 0,
           partial, false, nullptr, one.pass);
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

// same() compares two results; a nan may have any payload. What a kernel only
// reads must be as it was.
testing::AssertionResult same(const Case& one, const std::vector<Bytes>& actual,
                              const std::vector<Bytes>& expected) {
  for (std::size_t s = 0; s < actual.size(); ++s) {
    const bool is_partial = s == one.operands.size();
    const std::uint8_t type =
        is_partial ? kNoScalarType : one.kernel->operands[s].type;
    if (!is_partial && !one.written[s]) {
      if (actual[s] != one.operands[s]) {
        return testing::AssertionFailure() << "operand " << s << " changed";
      }
    } else if (type == kNoScalarType) {
      if (actual[s] != expected[s]) {
        return testing::AssertionFailure()
               << (is_partial ? "partial result" : "operand ") << s;
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
