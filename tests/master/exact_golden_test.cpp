// Norms, attention and mixtures of experts against exact results in float64:
// tests/golden/rows/exact.py. An error is at most one rounding to the dtype,
// and a few of float32 relative to the terms of the element.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "golden.h"
#include "row_values.h"
#include "swamp/attention.h"
#include "swamp/moe.h"

namespace swamp::test {
namespace {

std::size_t number_of(const Json& record, const char* name) {
  return record.at("numbers").at(name);
}

// input() is input `seed` of the records.
Values input(ScalarType type, std::size_t rows, std::size_t columns,
             std::size_t seed, bool absolute = false) {
  Values values(rows, columns, type);
  for (std::size_t i = 0; i < rows * columns; ++i) {
    const auto step =
        static_cast<float>((7 * i * i + 37 * i + 101 * seed) % 257);
    const float value = (step - 128) / 64;
    store_value(type, values.memory.data(), i,
                absolute ? std::fabs(value) : value);
  }
  return values;
}

// expect_near() compares what `at(i)` returns of the elements of a result. With
// `rounded` inputs that are results themselves, each term has been rounded.
template <class At>
void expect_near(const Json& record, const char* name, ScalarType type, At at,
                 bool rounded = false) {
  // The distance of the elements kept, their exact values, and their terms.
  const Json& kept = record.at("results").at(name);
  const std::size_t step = kept.at(0);
  const double unit =
      type == kFloat32
          ? 0
          : std::ldexp(1.0,
                       -static_cast<int>(format_of(type).mantissa_bits) - 1);
  const double tiny = type == kFloat16 ? 0x1p-24 : 0;
  for (std::size_t i = 0; i < kept.at(1).size(); ++i) {
    const double exact = kept.at(1).at(i), terms = kept.at(2).at(i);
    const auto got = static_cast<double>(at(i * step));
    if (exact == 1e308) {
      ASSERT_EQ(got, HUGE_VAL) << name << " " << i * step;
    } else {
      ASSERT_NEAR(got, exact,
                  unit * (std::fabs(exact) + (rounded ? terms : 0)) +
                      4e-6 * terms + 1e-7 + tiny)
          << name << " " << i * step;
    }
  }
}
template <class At>
void expect_near_float(const Json& record, const char* name, At at) {
  expect_near(record, name, kFloat32, at);
}
auto elements_of(const Values& values) {
  return [&values](std::size_t i) {
    return widen(values.matrix.dtype, values.memory.data(), i);
  };
}
auto elements_of(const std::vector<float>& values) {
  return [&values](std::size_t i) { return values[i]; };
}

void check_norm(const Json& record, ScalarType type, ScalarType wide) {
  const std::size_t rows = number_of(record, "rows"),
                    columns = number_of(record, "columns");
  const bool with_mean = number_of(record, "mean") != 0;
  const Values x = input(type, rows, columns, 1);
  const Values g = input(type, rows, columns, 2);
  const Values weight = input(wide, 1, columns, 3);
  const Values bias = input(wide, 1, columns, 4);
  RowVector w{nullptr, kFloat32}, b = w;
  if (number_of(record, "weight") != 0) w = {weight.memory.data(), wide};
  if (number_of(record, "bias") != 0) b = {bias.memory.data(), wide};
  const NormOptions options{1e-5, number_of(record, "zero_centered") != 0};
  const Values y(rows, columns, type), dx(rows, columns, type);
  std::vector<float> mean(rows), rstd(rows), dweight(columns), dbias(columns);
  if (with_mean) {
    layer_norm(x.matrix, w, b, y.matrix, mean.data(), rstd.data(), options);
    layer_norm_backward(g.matrix, x.matrix, mean.data(), rstd.data(), w,
                        dx.matrix, dweight.data(), dbias.data(), options);
  } else {
    rms_norm(x.matrix, w, y.matrix, rstd.data(), options);
    rms_norm_backward(g.matrix, x.matrix, rstd.data(), w, dx.matrix,
                      dweight.data(), options);
  }
  expect_near(record, "y", type, elements_of(y));
  expect_near(record, "dx", type, elements_of(dx));
  expect_near_float(record, "mean", elements_of(mean));
  expect_near_float(record, "rstd", elements_of(rstd));
  expect_near_float(record, "dweight", elements_of(dweight));
  expect_near_float(record, "dbias", elements_of(dbias));
}

// An attention record's heads are matrices of which the rows of all heads stand
// one after another.
void check_attention(const Json& record, ScalarType type) {
  const std::size_t batch = number_of(record, "batch"),
                    heads = number_of(record, "heads"),
                    key_heads = number_of(record, "key_heads"),
                    keys = number_of(record, "keys"),
                    queries = number_of(record, "queries"),
                    columns = number_of(record, "columns"),
                    value_columns = number_of(record, "value_columns"),
                    kind = number_of(record, "mask");
  const auto of = [&](const Values& values, std::size_t count) {
    return Heads{
        values.matrix.data,    batch, count, values.matrix.rows / batch / count,
        values.matrix.columns, type};
  };
  const std::size_t query_rows = batch * heads * queries;
  const std::size_t key_rows = batch * key_heads * keys;
  const Values q = input(type, query_rows, columns, 1);
  const Values k = input(type, key_rows, columns, 2);
  const Values v = input(type, key_rows, value_columns, 3);
  const Values g = input(type, query_rows, value_columns, 4);
  const Values out(query_rows, value_columns, type);
  const Values dq = q, dk = k, dv = v;
  AttentionOptions options;
  options.causal = static_cast<AttentionCausal>(number_of(record, "causal"));
  enum { kNone, kFloat, kDtype, kBool, kKey };
  const std::size_t mask_batch = kind == kKey ? batch : 1;
  const std::size_t mask_heads = kind == kFloat ? heads : 1;
  const std::size_t mask_queries = kind == kKey ? 1 : queries;
  const std::size_t mask_rows = mask_batch * mask_heads * mask_queries;
  Values mask = input(kind == kDtype ? type : kFloat32, mask_rows, keys, 5);
  std::vector<std::uint8_t> seen(mask_rows * keys, 1);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const bool hidden = (13 * i * i + 5 * i) % 7 < 2 ||
                        (kind != kKey && i / keys % queries == 3);
    if (!hidden) continue;
    seen[i] = 0;
    store_value(mask.matrix.dtype, mask.memory.data(), i, -HUGE_VALF);
  }
  if (kind != kNone) {
    const bool is_bool = kind == kBool || kind == kKey;
    options.mask = {
        is_bool ? static_cast<const void*>(seen.data()) : mask.memory.data(),
        mask_batch,
        mask_heads,
        mask_queries,
        keys,
        is_bool,
        mask.matrix.dtype};
  }
  std::vector<float> lse(query_rows);
  attention(of(q, heads), of(k, key_heads), of(v, key_heads), of(out, heads),
            lse.data(), options);
  attention_backward(of(g, heads), of(q, heads), of(k, key_heads),
                     of(v, key_heads), of(out, heads), lse.data(),
                     of(dq, heads), of(dk, key_heads), of(dv, key_heads),
                     options);
  expect_near(record, "out", type, elements_of(out));
  expect_near_float(record, "lse", elements_of(lse));
  expect_near(record, "dq", type, elements_of(dq), true);
  expect_near(record, "dk", type, elements_of(dk), true);
  expect_near(record, "dv", type, elements_of(dv), true);
}

void check_permutation(const Json& record, ScalarType type) {
  const std::size_t tokens = number_of(record, "tokens"),
                    columns = number_of(record, "columns");
  const std::size_t rows = tokens * number_of(record, "choices");
  const Values x = input(type, tokens, columns, 1);
  const Values permuted = input(type, rows, columns, 2);
  const Values factors = input(kFloat32, rows, 1, 3, true);
  const float* probs = nullptr;
  if (number_of(record, "probs") != 0) {
    probs = reinterpret_cast<const float*>(factors.memory.data());
  }
  std::vector<std::int64_t> token_of(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    token_of[r] = static_cast<std::int64_t>((7 * r + 3) % rows % tokens);
    if (r == 7) token_of[r] = -1;
  }
  const Values copies(rows, columns, type), sums(tokens, columns, type);
  std::vector<float> dots(rows);
  moe_permute(x.matrix, token_of.data(), probs, copies.matrix);
  moe_unpermute(permuted.matrix, token_of.data(), probs, sums.matrix);
  moe_dot(x.matrix, token_of.data(), permuted.matrix, dots.data());
  expect_near(record, "copies", type, elements_of(copies));
  expect_near(record, "sums", type, elements_of(sums));
  expect_near_float(record, "dots", elements_of(dots));
}

void check_losses(const Json& record, ScalarType type) {
  const std::size_t tokens = number_of(record, "tokens"),
                    experts = number_of(record, "experts");
  const Values logits = input(type, tokens, experts, 1);
  std::vector<std::int64_t> counts(experts);
  for (std::size_t e = 0; e < experts; ++e) {
    counts[e] = static_cast<std::int64_t>(e * 7919 % 100);
  }
  const AuxLossOptions options{0.01, 2 * tokens, 2};
  std::vector<float> lse(tokens), low(tokens);
  const Values daux(tokens, experts, type), dz(tokens, experts, type);
  const double aux = moe_aux_loss(logits.matrix, counts.data(), options);
  const double z = moe_z_loss(logits.matrix, 0.5, lse.data(), low.data());
  moe_aux_loss_backward(1024, counts.data(), daux.matrix, options);
  moe_z_loss_backward(3, logits.matrix, 0.5, lse.data(), low.data(), dz.matrix);
  expect_near_float(record, "aux", [&](std::size_t) { return aux; });
  expect_near_float(record, "z", [&](std::size_t) { return z; });
  expect_near(record, "daux", type, elements_of(daux));
  expect_near(record, "dz", type, elements_of(dz));
}

TEST(RowsGolden, ExactResults) {
  std::set<std::string> seen;
  for (const Json& record : read_golden("rows/exact.jsonl")) {
    const std::string operation = record.at("operation");
    for (const ScalarType type : kRowTypes) {
      SCOPED_TRACE(operation + " " + record.at("numbers").dump() + " " +
                   format_of(type).name);
      if (operation == "norm") {
        check_norm(record, type, kFloat32);
        check_norm(record, type, type);
      }
      if (operation == "attention") check_attention(record, type);
      if (operation == "permutation") check_permutation(record, type);
      if (operation == "losses") check_losses(record, type);
      if (HasFatalFailure()) return;
    }
    seen.insert(operation);
  }
  EXPECT_EQ(seen.size(), 4u);
}

}  // namespace
}  // namespace swamp::test
