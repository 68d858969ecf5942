// Attention: large scores, hidden keys, and the errors. operators_test.cpp
// compares every bit with the reference, on all machines, exact_golden_test.cpp
// results with exact ones.
#include "swamp/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "machines.h"
#include "row_values.h"
#include "support/errors.h"
#include "swamp/float_formats.h"

namespace swamp::test {
namespace {

// Array is heads of ordinary numbers, and their memory.
struct Array {
  Bytes memory;
  Heads heads;

  Array(std::size_t batch, std::size_t head_count, std::size_t rows,
        std::size_t columns, ScalarType type)
      : memory(batch * head_count * rows * columns * format_of(type).bytes + 1),
        heads{memory.data(), batch, head_count, rows, columns, type} {}
  Array(std::size_t batch, std::size_t head_count, std::size_t rows,
        std::size_t columns, ScalarType type, Random& random)
      : Array(batch, head_count, rows, columns, type) {
    for (std::size_t i = 0; i < batch * head_count * rows * columns; ++i) {
      set(i, static_cast<float>(static_cast<int>(random.below(4001)) - 2000) /
                 1000);
    }
  }
  Array(const Array& other) : memory(other.memory), heads(other.heads) {
    heads.data = memory.data();
  }
  void set(std::size_t i, float value) {
    store_value(heads.dtype, memory.data(), i, value);
  }
  // Element c of a row; `head` counts the heads of all batches.
  double operator()(std::size_t head, std::size_t row, std::size_t c) const {
    return static_cast<double>(
        widen(heads.dtype, memory.data(),
              (head * heads.rows + row) * heads.columns + c));
  }
};

struct Case {
  std::size_t batch, heads, key_heads, queries, keys, columns;
  AttentionCausal causal;
};

// Problem is a case with its operands.
struct Problem {
  Array q, k, v;
  AttentionOptions options;

  Problem(const Case& one, ScalarType type, Random& random)
      : q(one.batch, one.heads, one.queries, one.columns, type, random),
        k(one.batch, one.key_heads, one.keys, one.columns, type, random),
        v(one.batch, one.key_heads, one.keys, one.columns, type, random) {
    options.causal = one.causal;
  }
};

// All keys of a head are equal, so that each visible key has the same
// probability, however large the scores are. Those of head 0 are 0.
TEST(Attention, LargeScores) {
  Random random(34);
  for (const ScalarType type : kRowTypes) {
    for (const AttentionCausal causal :
         {AttentionCausal::none, AttentionCausal::top_left}) {
      const Case one{2, 2, 2, 150, 140, 16, causal};
      Problem problem(one, type, random);
      for (std::size_t i = 0; i < 4 * 150 * 16; ++i) {
        problem.q.set(i, i < 150 * 16 ? 0 : 8000);
      }
      for (std::size_t i = 0; i < 4 * 140 * 16; ++i) problem.k.set(i, 8000);
      const Array gradient(2, 2, 150, 16, type, random);
      Array out(2, 2, 150, 16, type), dq = problem.q, dk = problem.k,
                                      dv = problem.v;
      std::vector<float> lse(4 * 150);
      attention(problem.q.heads, problem.k.heads, problem.v.heads, out.heads,
                lse.data(), problem.options);
      attention_backward(gradient.heads, problem.q.heads, problem.k.heads,
                         problem.v.heads, out.heads, lse.data(), dq.heads,
                         dk.heads, dv.heads, problem.options);
      for (std::size_t head = 0; head < 4; ++head) {
        for (std::size_t key = 0; key < 140; ++key) {
          double exact = 0, size = 0;
          for (std::size_t i = 0; i < 150; ++i) {
            const bool top_left = causal == AttentionCausal::top_left;
            if (top_left && i < key) continue;
            const double p =
                1 / static_cast<double>(top_left && i < 139 ? i + 1 : 140);
            exact += p * gradient(head, i, 3);
            size += p * std::fabs(gradient(head, i, 3));
          }
          const double unit =
              std::ldexp(1.0, -static_cast<int>(format_of(type).mantissa_bits));
          ASSERT_NEAR(dv(head, key, 3), exact,
                      unit * std::fabs(exact) + 1e-6 * size)
              << head << " " << key;
        }
      }
    }
  }
}

// A key that a query does not see has no effect on it, whatever it is.
TEST(Attention, HiddenKeysHaveNoEffect) {
  Random random(32);
  const Case one{1, 1, 1, 70, 70, 16, AttentionCausal::top_left};
  Problem problem(one, kFloat32, random);
  Array out(1, 1, 70, 16, kFloat32), expected = out;
  std::vector<float> lse(70), expected_lse(70);
  attention(problem.q.heads, problem.k.heads, problem.v.heads, expected.heads,
            expected_lse.data(), problem.options);
  const std::size_t key = 41;
  for (std::size_t c = 0; c < 16; ++c) {
    problem.k.set(key * 16 + c, std::nanf(""));
    problem.v.set(key * 16 + c, std::numeric_limits<float>::infinity());
  }
  attention(problem.q.heads, problem.k.heads, problem.v.heads, out.heads,
            lse.data(), problem.options);
  const std::size_t bytes = key * 16 * sizeof(float);
  EXPECT_EQ(std::memcmp(out.memory.data(), expected.memory.data(), bytes), 0);
  EXPECT_EQ(std::memcmp(lse.data(), expected_lse.data(), key * 4), 0);
  for (std::size_t i = key; i < 70; ++i) EXPECT_TRUE(std::isnan(out(0, i, 3)));
}

TEST(Attention, Errors) {
  Random random(33);
  const Case one{2, 4, 2, 5, 6, 8, AttentionCausal::none};
  const Problem good(one, kFloat16, random);
  Array out(2, 4, 5, 8, kFloat16);
  std::vector<float> lse(40), mask(60);
  static float* values;
  values = mask.data();
  struct Call {
    Heads q, k, v, out;
    AttentionOptions options;
  };
  const std::vector<Refusal<Call>> rows = {
      {[](Call& c) { c.q.data = nullptr; }, "q.data: got null, expected"},
      {[](Call& c) { c.q.dtype = kFloat64; },
       "q.dtype: got 3 (float64), expected", SWAMP_UNSUPPORTED},
      {[](Call& c) { c.k.dtype = kFloat32; },
       "k.dtype: got float32, expected float16 (as 'q' has)"},
      {[](Call& c) { c.v.batch = 1; },
       "v.batch: got 1, expected 2 (as 'q' has)"},
      {[](Call& c) { c.k.columns = 7; },
       "k.columns: got 7, expected 8 (as 'q' has)"},
      {[](Call& c) { c.q.columns = 0; }, "q.columns: got 0, expected 1 to 512"},
      {[](Call& c) { c.q.columns = 513; },
       "q.columns: got 513, expected 1 to 512", SWAMP_UNSUPPORTED},
      {[](Call& c) { c.k.heads = c.v.heads = 3; },
       "k.heads: got 3, expected a divisor of q.heads, 4"},
      {[](Call& c) { c.v.rows = 5; }, "v.rows: got 5, expected 6 (as 'k' has)"},
      {[](Call& c) { c.out.columns = 9; },
       "out.columns: got 9, expected 8 (as 'v' has)"},
      {[](Call& c) { c.out.rows = 4; },
       "out.rows: got 4, expected 5 (as 'q' has)"},
      {[](Call& c) {
         c.q.heads = std::size_t{1} << 62;
         c.k.heads = c.v.heads = 1;
       },
       "q.heads: got 4611686018427387904, expected at most"},
      {[](Call& c) { c.options.mask = {values, 1, 3, 1, 6, false, kFloat32}; },
       "options.mask.heads: got 3, expected 1 or 4"},
      {[](Call& c) { c.options.mask = {values, 1, 1, 1, 6, false, kBFloat16}; },
       "options.mask.dtype: got bfloat16, expected float16 (as 'q' has) or "
       "float32"},
  };
  const Bytes before = out.memory;
  expect_refusals({good.q.heads, good.k.heads, good.v.heads, out.heads, {}},
                  rows, [&](Call& call) {
                    attention(call.q, call.k, call.v, call.out, lse.data(),
                              call.options);
                  });
  expect_refused(
      [&] {
        attention(good.q.heads, good.k.heads, good.v.heads, out.heads, nullptr);
      },
      {"lse: got null, expected the address of 40 values"});
  MachineConfig small;
  small.transfer = "copy";
  small.ldm_bytes = 8 * 1024;
  Machine machine(small);
  const Case wide{1, 1, 1, 5, 6, 256, AttentionCausal::none};
  const Problem large(wide, kFloat16, random);
  Array large_out(1, 1, 5, 256, kFloat16);
  expect_refused(
      [&] {
        attention(large.q.heads, large.k.heads, large.v.heads, large_out.heads,
                  lse.data(), {}, &machine);
      },
      {"q: got rows of 512 bytes", "a slave has 8192 (SWAMP_LDM_BYTES)"},
      SWAMP_UNSUPPORTED);
  EXPECT_TRUE(out.memory == before);
  EXPECT_EQ(lse, std::vector<float>(40));
}

}  // namespace
}  // namespace swamp::test
