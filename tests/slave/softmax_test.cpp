// The softmax kernels: the bits of the reference on every ISA, in one visit and
// in two, and an oracle of higher precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "row_cases.h"

namespace swamp::test {
namespace {

using slave::kChunkColumns;
using slave::SoftmaxArgs;
using slave::SoftmaxBackwardArgs;
using slave::SoftmaxChunk;
using slave::SoftmaxFactor;

std::size_t rows_for(std::size_t columns) { return columns > 4097 ? 2 : 8; }

// piece_columns() is the width of the next tile of a row.
std::size_t piece_columns(std::size_t left, Random& random) {
  return std::min(left, kChunkColumns * (1 + random.below(3)));
}

struct Softmax {
  SoftmaxArgs args;
  bool masked;
  Data x;
  std::vector<std::uint8_t> mask;
  std::size_t first;

  std::size_t rows() const { return x.count() / args.columns; }
  int id() const { return kernel_of(F::scaled_softmax, {x.type()}); }
  std::vector<void*> inputs(Data& in, std::size_t at) {
    return {in.at(at), masked ? mask.data() + at : nullptr};
  }

  Data run(const KernelTable& table, bool in_place, float* scratch,
           bool hints) {
    Data in = x;
    Data out(x.type(), x.count());
    Data& y = in_place ? in : out;
    std::vector<void*> operands = inputs(in, 0);
    operands.insert(operands.end(), {y.data(), nullptr, nullptr});
    run_rows(table, id(), &args, operands, rows(), first, nullptr, hints,
             scratch);
    return y;
  }

  Data run_passes(const KernelTable& table, Random& random) {
    Data y = x;  // in place
    const std::size_t columns = args.columns;
    for (std::size_t row = 0; row < rows(); ++row) {
      const std::size_t start = row * columns;
      std::uint64_t valid =
          args.causal_rows == 0
              ? columns
              : std::min(columns, (first + row) % args.causal_rows + 1);
      std::uint64_t* const limit = valid == columns ? nullptr : &valid;
      std::vector<SoftmaxChunk> chunks(columns / kChunkColumns + 1);
      for (std::size_t at = 0; at < columns;) {
        const std::size_t count = piece_columns(columns - at, random);
        std::vector<void*> operands = inputs(y, start + at);
        operands.insert(operands.end(), {nullptr, nullptr, limit});
        run_pass(Pass::sum, table, id(), &args, operands, count, at,
                 &chunks[at / kChunkColumns]);
        at += count;
      }
      chunks.resize((columns + kChunkColumns - 1) / kChunkColumns);
      const auto total = slave::combine_chunks(chunks.data(), chunks.size());
      std::vector<SoftmaxFactor> factors;
      for (const SoftmaxChunk& chunk : chunks) {
        factors.push_back(slave::softmax_factor(args, chunk.max, total));
      }
      for (std::size_t at = 0; at < columns;) {
        const std::size_t count = piece_columns(columns - at, random);
        std::vector<void*> operands = inputs(y, start + at);
        operands.push_back(y.at(start + at));
        operands.push_back(&factors[at / kChunkColumns]);
        operands.push_back(limit);
        run_pass(Pass::map, table, id(), &args, operands, count, at);
        at += count;
      }
    }
    return y;
  }
};

Softmax softmax_case(ScalarType type, std::size_t columns, int variant,
                     Random& random) {
  const bool masked = variant % 2 == 1;
  const std::size_t rows = rows_for(columns);
  const int first_kind =
      rows < kRowKinds ? static_cast<int>(random.below(kRowKinds)) : 0;
  Softmax one{{columns, 0, 1.0f, 0, 0, 0},
              masked,
              filled_rows(type, rows, columns, random, first_kind),
              {},
              0};
  const float scales[] = {1.0f, 0.125f, 0.10206207f, 7.0f};
  one.args.scale = scales[random.below(4)];
  one.args.round_scale = static_cast<std::uint32_t>(random.below(2));
  one.args.zero_masked_rows = static_cast<std::uint32_t>(random.below(2));
  if (variant / 2 == 1) {
    one.args.causal_rows = std::max<std::size_t>(columns, 2);
    one.first = columns < 2 ? 0 : columns - 2 + 3 * columns;
  }
  one.mask.resize(rows * columns + 64);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t j = 0; j < columns; ++j) {
      one.mask[row * columns + j] =
          row == 2 ? 1
          : random.below(4) == 0
              ? static_cast<std::uint8_t>(1 + random.below(255))
              : 0;
    }
  }
  return one;
}

TEST(Softmax, HasTheBitsOfTheReference) {
  Random random(11);
  std::vector<float> scratch_memory(kChunkColumns + 16);
  float* scratch = scratch_memory.data();
  while (reinterpret_cast<std::uintptr_t>(scratch) % 64 != 0) ++scratch;
  for (const ScalarType type : kRowTypes) {
    for (const std::size_t columns : kRowLengths) {
      for (int variant = 0; variant < 4; ++variant) {
        Softmax one = softmax_case(type, columns, variant, random);
        SCOPED_TRACE(kFloatFormats[type].name + std::string(" columns ") +
                     std::to_string(columns) + " variant " +
                     std::to_string(variant));
        const Data expected = one.run(row_tables()[0], false, nullptr, false);
        for (const KernelTable& table : row_tables()) {
          SCOPED_TRACE(table.isa);
          ASSERT_TRUE(
              same_bits(one.run(table, false, scratch, true), expected));
          ASSERT_TRUE(
              same_bits(one.run(table, true, nullptr, false), expected));
          ASSERT_TRUE(same_bits(one.run(table, true, scratch, true), expected));
          ASSERT_TRUE(same_bits(one.run_passes(table, random), expected));
        }
      }
    }
  }
}

// The oracle takes e_j = f32(x_j * scale) and f32(e_j - max) as given.
TEST(Softmax, IsCorrectlyRounded) {
  Random random(12);
  for (const ScalarType type : kRowTypes) {
    for (const std::size_t columns : kRowLengths) {
      if (columns > kChunkColumns) break;
      Softmax one = softmax_case(type, columns, 0, random);
      one.args.scale = 0.10206207f;
      one.args.round_scale = 0;
      const Data y = one.run(row_tables()[0], false, nullptr, false);
      for (std::size_t row = 0; row < one.rows(); ++row) {
        const std::size_t start = row * columns;
        std::vector<float> e;
        for (std::size_t j = 0; j < columns; ++j) {
          e.push_back(static_cast<float>(one.x.value(start + j)) * 0.10206207f);
        }
        const float max = *std::max_element(e.begin(), e.end());
        if (std::isnan(y.value(start))) continue;
        long double sum = 0;
        for (const float value : e) {
          sum += std::exp(static_cast<long double>(value - max));
        }
        for (std::size_t j = 0; j < columns; ++j) {
          const long double exact =
              std::exp(static_cast<long double>(e[j] - max)) / sum;
          if (exact < 1.5e-38L) continue;
          ASSERT_TRUE(is_rounded(y, start + j, static_cast<double>(exact)))
              << kFloatFormats[type].name << " columns " << columns << ": "
              << y.value(start + j) << " expected "
              << static_cast<double>(exact);
        }
      }
    }
  }
}

TEST(Softmax, RowsThatAreAllMasked) {
  for (const KernelTable& table : row_tables()) {
    for (const bool zero : {false, true}) {
      Random random(3);
      Softmax one = softmax_case(kFloat16, 32, 1, random);
      one.args.zero_masked_rows = zero;
      const Data y = one.run(table, false, nullptr, false);
      EXPECT_EQ(y.value(2 * 32), zero ? 0.0 : 1.0 / 32) << table.isa;
      EXPECT_EQ(y.value(3 * 32 - 1), zero ? 0.0 : 1.0 / 32);
      EXPECT_GT(y.value(0) + y.value(1) + y.value(2) + y.value(3), 0.0);
    }
  }
}

struct Backward {
  SoftmaxBackwardArgs args;
  Data g, y;
  std::size_t first;

  std::size_t rows() const { return y.count() / args.columns; }
  int id() const { return kernel_of(F::softmax_backward, {y.type()}); }
  Data run(const KernelTable& table, int in_place) {
    Data gradient = g;
    Data output = y;
    Data out(y.type(), y.count());
    Data& dx = in_place == 0 ? out : in_place == 1 ? gradient : output;
    run_rows(table, id(), &args,
             {gradient.data(), output.data(), dx.data(), nullptr, nullptr},
             rows(), first);
    return dx;
  }
  Data run_passes(const KernelTable& table, Random& random) {
    Data dx = g;
    Data output = y;
    const std::size_t columns = args.columns;
    for (std::size_t row = 0; row < rows(); ++row) {
      const std::size_t start = row * columns;
      std::uint64_t valid =
          args.causal_rows == 0
              ? columns
              : std::min(columns, (first + row) % args.causal_rows + 1);
      std::vector<slave::ChainSums> sums((columns + kChunkColumns - 1) /
                                         kChunkColumns);
      for (std::size_t at = 0; at < columns;) {
        const std::size_t count = piece_columns(columns - at, random);
        run_pass(Pass::sum, table, id(), &args,
                 {dx.at(start + at), output.at(start + at), nullptr, nullptr,
                  &valid},
                 count, at, &sums[at / kChunkColumns]);
        at += count;
      }
      double sum = 0;
      for (const slave::ChainSums& one : sums) {
        sum += static_cast<double>(one.total());
      }
      auto dot = static_cast<float>(sum);
      for (std::size_t at = 0; at < columns;) {
        const std::size_t count = piece_columns(columns - at, random);
        run_pass(Pass::map, table, id(), &args,
                 {dx.at(start + at), output.at(start + at), dx.at(start + at),
                  &dot, &valid},
                 count, at);
        at += count;
      }
    }
    return dx;
  }
};

Backward backward_case(ScalarType type, std::size_t columns, bool causal,
                       Random& random) {
  Softmax forward = softmax_case(type, columns, causal ? 2 : 0, random);
  const std::size_t rows = forward.rows();
  return {{columns, forward.args.causal_rows, forward.args.scale, 0},
          filled_rows(type, rows, columns, random, 0),
          forward.run(row_tables()[0], false, nullptr, false),
          forward.first};
}

TEST(SoftmaxBackward, HasTheBitsOfTheReference) {
  Random random(13);
  for (const ScalarType type : kRowTypes) {
    for (const std::size_t columns : kRowLengths) {
      for (const bool causal : {false, true}) {
        Backward one = backward_case(type, columns, causal, random);
        SCOPED_TRACE(kFloatFormats[type].name + std::string(" columns ") +
                     std::to_string(columns));
        const Data expected = one.run(row_tables()[0], 0);
        for (const KernelTable& table : row_tables()) {
          SCOPED_TRACE(table.isa);
          for (int in_place = 0; in_place < 3; ++in_place) {
            ASSERT_TRUE(same_bits(one.run(table, in_place), expected));
          }
          ASSERT_TRUE(same_bits(one.run_passes(table, random), expected));
        }
      }
    }
  }
}

// The error of float32 arithmetic is relative to the terms, which cancel.
TEST(SoftmaxBackward, IsNearTheExactGradient) {
  Random random(14);
  for (const ScalarType type : kRowTypes) {
    for (const std::size_t columns : kRowLengths) {
      Backward one = backward_case(type, columns, false, random);
      const Data dx = one.run(row_tables()[0], 0);
      for (std::size_t row = 0; row < one.rows(); ++row) {
        const std::size_t start = row * columns;
        double dot = 0;
        double size = 0;
        for (std::size_t j = start; j < start + columns; ++j) {
          dot += one.g.value(j) * one.y.value(j);
          size += std::fabs(one.g.value(j) * one.y.value(j));
        }
        if (!std::isfinite(dot)) continue;
        for (std::size_t j = start; j < start + columns; ++j) {
          const double y = one.y.value(j);
          const double scale = one.args.scale;
          const double exact = scale * (one.g.value(j) - dot) * y;
          const double terms =
              std::fabs(scale * y) * (std::fabs(one.g.value(j)) + size);
          const double rounding =
              type == kFloat32
                  ? 0
                  : std::fabs(exact) * (type == kFloat16 ? 0x1p-11 : 0x1p-8);
          ASSERT_LE(
              std::fabs(dx.value(j) - exact),
              rounding + terms * 0x1p-20 + (type == kFloat16 ? 0x1p-25 : 1e-40))
              << kFloatFormats[type].name << " columns " << columns;
        }
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
