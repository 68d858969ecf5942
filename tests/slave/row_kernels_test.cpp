// Every row kernel of the list, in each of its passes: the bits of the
// reference, for rows and options of all kinds, without one byte read or
// written outside of the operands, and in other float environments; and no
// "invalid operation" for ordinary data. The kernels of attention and products,
// which have units of their own, are tested in attention_test.cpp and
// product_test.cpp; that whole rows and passes have the same bits, in
// tests/master/rows_test.cpp.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstring>
#include <memory>

#include "row_kernel_cases.h"
#include "support/ci.h"
#include "support/float_environment_scope.h"
#include "support/guarded_pages.h"

namespace swamp::test {
namespace {

// run() runs a case on `memory`, which has a place for each operand and for the
// partial result, and returns what it wrote there.
std::vector<Bytes> run(const RowKernelCase& one, const KernelTable& table,
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
  Operand layout[kMaxOperands];
  for (std::size_t s = 0; s < one.operands.size() && one.units != 0; ++s) {
    layout[s] = Operand::dense(
        static_cast<std::uint32_t>(one.operands[s].size() / one.units),
        Access::in);
  }
  static Data scratch(kFloat32, slave::kChunkColumns);
  const bool has_scratch =
      one.variant % 4 > 1 && one.kernel->family == F::scaled_softmax;
  run_rows(table, one.kernel->id, one.args.data(), operands, one.units,
           one.first, partial, one.variant % 2 == 1,
           has_scratch ? reinterpret_cast<float*>(scratch.data()) : nullptr,
           one.pass, layout);
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
std::vector<Bytes> run(const RowKernelCase& one, const KernelTable& table) {
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
bool same_partials(const RowKernelCase& one, const Bytes& actual,
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
testing::AssertionResult same(const RowKernelCase& one,
                              const std::vector<Bytes>& actual,
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
    for (const RowKernelCase& one : make_row_kernel_cases(columns, false)) {
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
  int number = 0;
  for (const std::size_t columns : kRowLengths) {
    ++number;
    // Long rows take most of the time.
    const int variants = columns > 4097 ? 2 : kVariants;
    for (int variant = 1; variant < variants; ++variant) {
      // Outside of CI, a length has every other variant, and the next length
      // the rest.
      if (!is_ci() && variants == kVariants && (number + variant) % 2 == 0) {
        continue;
      }
      for (const RowKernelCase& one :
           make_row_kernel_cases(columns, false, variant)) {
        const auto& tables = row_tables();
        const std::vector<Bytes> expected = run(one, tables[0]);
        for (std::size_t i = 1; i < tables.size(); ++i) {
          ASSERT_TRUE(same(one, run(one, tables[i]), expected))
              << one.text() << ' ' << tables[i].isa << " columns " << columns;
        }
      }
    }
  }
}

TEST(RowKernels, HaveTheBitsOfTheReferenceInOtherEnvironments) {
  for (const std::size_t columns : {33u, 1000u, 4097u}) {
    for (const RowKernelCase& one : make_row_kernel_cases(columns, true)) {
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
    for (const RowKernelCase& one :
         make_row_kernel_cases(columns, columns > 3)) {
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
