// Every row kernel of the list, on whole rows and on rows in pieces: the bits
// of the reference, for rows and options of all kinds, without one byte read or
// written outside of the operands, and in other float environments; and no
// "invalid operation" for ordinary data. The kernels of attention and products,
// which have units of their own, are tested in attention_test.cpp and
// product_test.cpp.
#include <gtest/gtest.h>

#include <cfenv>
#include <cstring>
#include <memory>

#include "row_kernel_cases.h"
#include "runtime/launch.h"
#include "support/ci.h"
#include "support/float_environment_scope.h"
#include "support/guarded_pages.h"

namespace swamp::test {
namespace {

// run_whole() runs a case on whole rows.
void run_whole(const RowKernelCase& one, const KernelTable& table,
               const std::vector<void*>& operands, std::byte* partial,
               void* state) {
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
           state, layout);
  EXPECT_TRUE(scratch.intact());
}

// run_pieces() runs a case on pieces of rows, as the tile loop does, which have
// `most` columns or the least that a pass takes.
void run_pieces(const RowKernelCase& one, const KernelTable& table,
                const std::vector<void*>& operands, std::byte* partial,
                void* state, std::size_t most) {
  Operation rows(*one.kernel, nullptr, one.columns);
  for (std::size_t s = 0; s < operands.size(); ++s) {
    if (operands[s] == nullptr) rows.remove_operand(static_cast<int>(s));
  }
  const bool has_partial = one.kernel->family == F::layer_norm_backward ||
                           one.kernel->family == F::rms_norm_backward;
  const std::size_t lines = one.kernel->operand_count == 6 ? 2 : 1;
  for (std::size_t i = 0; i < one.units; ++i) {
    for (const Pass pass : {Pass::sum, Pass::map}) {
      if (!rows.has_pass(pass, has_partial)) continue;
      Tile tile;
      tile.pass = pass;
      tile.state = state;
      tile.row = one.first + i;
      const bool is_last_pass =
          pass == Pass::map || !rows.has_pass(Pass::map, has_partial);
      Operation piece;
      piece.set_piece(rows, pass, is_last_pass);
      const std::size_t step =
          std::max<std::size_t>(1, most / piece.tile_step) * piece.tile_step;
      for (tile.first = 0; tile.first < one.columns; tile.first += tile.count) {
        tile.count = std::min(step, one.columns - tile.first);
        tile.is_last = is_last_pass && tile.first + tile.count == one.columns;
        void* at[kMaxOperands];
        for (std::size_t s = 0; s < operands.size(); ++s) {
          const bool is_row = rows.operands[s].column_bytes != 0;
          const std::size_t row_bytes =
              rows.operands[s].is_shared() ? 0
                                           : one.operands[s].size() / one.units;
          at[s] = piece.operands[s].unit_bytes == 0
                      ? nullptr
                      : static_cast<std::byte*>(operands[s]) + i * row_bytes +
                            is_row * tile.first * rows.operands[s].column_bytes;
        }
        tile.operands = at;
        std::vector<double> sums(lines * tile.count);
        const auto move_sums = [&](bool out) {
          for (std::size_t line = 0; line < lines; ++line) {
            double* const here = &sums[line * tile.count];
            std::byte* const there =
                partial + (line * one.columns + tile.first) * sizeof(double);
            const std::size_t bytes = tile.count * sizeof(double);
            if (out) std::memcpy(there, here, bytes);
            if (!out) std::memcpy(here, there, bytes);
          }
        };
        if (has_partial && pass == Pass::map) {
          tile.partial = sums.data();
          move_sums(false);
        }
        Result result;
        (*table.rows[one.kernel->id].function)(one.args.data(), tile, result);
        if (tile.partial != nullptr) move_sums(true);
      }
    }
  }
}

// run() runs a case on `memory`, which has a place for each operand and for the
// partial result, and returns what it wrote there. If `piece` is not 0, rows
// come in pieces of about `piece` columns.
std::vector<Bytes> run(const RowKernelCase& one, const KernelTable& table,
                       const std::vector<std::byte*>& memory,
                       std::size_t piece) {
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
  Data state(kFloat32, one.kernel->state.bytes(one.columns) / 4);
  std::memset(state.data(), 0xff, state.bytes());
  if (piece == 0) {
    run_whole(one, table, operands, partial, state.data());
  } else {
    run_pieces(one, table, operands, partial, state.data(), piece);
  }
  EXPECT_TRUE(state.intact());
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
std::vector<Bytes> run(const RowKernelCase& one, const KernelTable& table,
                       std::size_t piece = 0) {
  std::vector<std::vector<std::uint64_t>> storage;
  std::vector<std::byte*> memory;
  for (const Bytes& operand : one.operands) {
    storage.emplace_back(operand.size() / 8 + 1);
    memory.push_back(reinterpret_cast<std::byte*>(storage.back().data()));
  }
  storage.emplace_back(one.partial.size() / 8 + 1);
  memory.push_back(reinterpret_cast<std::byte*>(storage.back().data()));
  return run(one, table, memory, piece);
}

// same_words() compares floats, doubles or integers. A nan equals any other.
bool same_words(const Bytes& actual, const Bytes& expected) {
  for (std::size_t at = 0; at < actual.size(); at += 8) {
    if (std::memcmp(&actual[at], &expected[at], 8) == 0) continue;
    double wide[2];
    float narrow[2][2];
    std::memcpy(&wide[0], &actual[at], 8);
    std::memcpy(&wide[1], &expected[at], 8);
    if (std::isnan(wide[0]) && std::isnan(wide[1])) continue;
    std::memcpy(narrow[0], &actual[at], 8);
    std::memcpy(narrow[1], &expected[at], 8);
    for (int i = 0; i < 2; ++i) {
      if (std::isnan(narrow[0][i]) && std::isnan(narrow[1][i])) continue;
      if (std::memcmp(&narrow[0][i], &narrow[1][i], 4) != 0) return false;
    }
  }
  return true;
}

// pieces_of() returns the sizes of pieces to try: 0 is whole rows, which alone
// the references take.
std::vector<std::size_t> pieces_of(const RowKernelCase& one,
                                   const KernelTable& table) {
  const bool is_streamed = one.kernel->state.is_streamed;
  if (!is_streamed || std::strcmp(table.isa, "reference") == 0) return {0};
  return {0, 1, one.columns < 1000 ? 128u : 5000u};
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
      if (!same_words(actual[s], expected[s])) {
        return testing::AssertionFailure() << "partial result";
      }
    } else if (one.kernel->family == F::cross_entropy && s == 3 &&
               one.variant == 5) {  // CrossEntropyParts
      if (!same_words(actual[s], expected[s])) {
        return testing::AssertionFailure() << "parts";
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
          for (const std::size_t piece : pieces_of(one, table)) {
            ASSERT_TRUE(same(one, run(one, table, memory, piece), expected))
                << one.text() << ' ' << table.isa << " piece " << piece;
          }
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
          for (const std::size_t piece : pieces_of(one, tables[i])) {
            ASSERT_TRUE(same(one, run(one, tables[i], piece), expected))
                << one.text() << ' ' << tables[i].isa << " piece " << piece;
          }
        }
      }
    }
  }
}

// Lines with and without gaps, between protected pages.
TEST(RowKernels, ColumnSumsHaveTheBitsOfTheReference) {
  using At = slave::ColumnSumsOperand;
  Random random(3);
  for (const slave::Formats& formats : slave::kSums) {
    const KernelInfo& kernel =
        slave::kKernels[kernel_of(F::column_sums, formats)];
    const auto from = static_cast<ScalarType>(formats.a),
               to = static_cast<ScalarType>(formats.b);
    const std::size_t bytes = kFloatFormats[from].bytes;
    for (const std::size_t columns : {1u, 2u, 7u, 8u, 16u, 40u, 64u, 129u}) {
      for (const std::size_t lines : {1u, 2u, 3u, 191u}) {
        for (const std::size_t gap : {0u, 1u, 24u}) {
          const std::size_t step = columns + gap;
          Data values(from, (lines - 1) * step + columns);
          for (std::size_t i = 0; i < values.count(); ++i) {
            const int exponent = static_cast<int>(random.below(30)) - 20;
            values.set(i, std::ldexp(normal(random), exponent));
          }
          if (columns > 3) {
            values.set(2, std::numeric_limits<float>::infinity());
          }
          const GuardedPages x(values.bytes()),
              sums(columns * kFloatFormats[to].bytes);
          std::byte* const in = x.end() - values.bytes();
          std::memcpy(in, values.data(), values.bytes());
          std::byte* const result =
              sums.end() - columns * kFloatFormats[to].bytes;
          Operation operation(kernel, nullptr);
          operation.set_lines(At::x, lines, static_cast<std::uint32_t>(bytes),
                              step * bytes, bytes);
          Data expected(to, columns);
          for (const KernelTable& table : row_tables()) {
            Data actual(to, columns);
            std::memset(result, 0xff, actual.bytes());
            run_rows(table, kernel.id, nullptr, {in, result}, columns, 0,
                     nullptr, false, nullptr, nullptr, operation.operands);
            std::memcpy(actual.data(), result, actual.bytes());
            if (&table == &row_tables()[0]) expected = actual;
            ASSERT_TRUE(same_bits(actual, expected))
                << table.isa << ' ' << kFloatFormats[from].name << ' '
                << columns << " x " << lines << " gap " << gap;
          }
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
              << one.text() << ' ' << table.isa << ' ' << environment.name;
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
            << one.text() << ' ' << table.isa;
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
