// softmax/, cross_entropy/, layer_norm/, rms_norm/, residual_add/, activation/,
// moe/ and quantize_blocks/: the row operators, compared with a plain loop that
// moves the same bytes.
#include "bench/bench.h"
#include "swamp/activation.h"
#include "swamp/float8.h"
#include "swamp/float_formats.h"
#include "swamp/moe.h"
#include "swamp/rows.h"

namespace swamp::bench {
namespace {

constexpr float kSmall = 1.0f / 1024;

// Rows is the data of a case; matrices that it does not use are null.
struct Rows {
  Matrix x, y, out;
  Matrix residual;  // float32
  std::vector<std::int64_t> targets;
  std::vector<std::int64_t> token_of;  // a permutation of the rows
  std::vector<float> mean, rstd, lse, lse_low, gradients;
  std::vector<float> weight, bias, dweight, dbias;

  RowVector weights() const { return {weight.data(), kFloat32}; }
};

// The scale undoes the factor y = kSmall: a gradient that is overwritten by its
// own gradient, again and again, then stays a normal number.
void softmax_backward(Rows& r, std::size_t causal_rows) {
  SoftmaxOptions options;
  options.scale = 1 / kSmall;
  options.causal_rows = causal_rows;
  scaled_softmax_backward(r.out, r.x, r.out, options);
}
void softmax_forward(Rows& r, std::size_t causal_rows) {
  SoftmaxOptions options;
  options.scale = 0.125f;
  options.causal_rows = causal_rows;
  scaled_softmax(r.x, r.out, options);
}

// blocks() writes the codes to out and the scales to y.
void blocks(Rows& r, BlockScaling scaling, bool both) {
  r.x.rows = r.x.rows / 32 * 32;
  const bool mx = scaling == BlockScaling::te_mxfp8;
  BlockOptions options;
  options.scaling = scaling;
  options.tensor_amax = 1;
  const std::size_t all = r.x.rows * r.x.columns;
  const std::size_t codes = mx ? all : all / 2, scales = all / (mx ? 32 : 16);
  const auto part = [&](std::size_t i) {
    return BlockCodes{{static_cast<std::uint8_t*>(r.out.data) + i * codes,
                       codes, mx ? kFloat8E4M3FN : kFloat4E2M1FNX2},
                      {static_cast<std::uint8_t*>(r.y.data) + i * scales,
                       scales, mx ? kFloat8E8M0FNU : kFloat8E4M3FN}};
  };
  const BlockCodes rows = part(0), columns = part(1);
  quantize_blocks(r.x, &rows, both ? &columns : nullptr, options);
}

// A row operator, and the plain loop that moves the same bytes, for 16-bit
// matrices and for float32.
struct RowCase {
  const char* name;
  std::size_t columns;
  int matrices;  // 1: x; 2: x and out; 3: also y
  bool residual;
  const char* roofline_16;
  const char* roofline_32;
  int passes;  // over a matrix: reads and writes together
  void (*call)(Rows& rows);
};

constexpr char kRead[] = "roofline/read";
constexpr char kScale[] = "roofline/scale";
constexpr char kMap16[] = "roofline/in:2/inout:0/out:2";
constexpr char kMap32[] = "roofline/in:4/inout:0/out:4";
// Two matrices of 2 bytes are read as one of 4.
constexpr char kBackward16[] = "roofline/in:4/inout:0/out:2";
constexpr char kBackward32[] = "roofline/in:4/inout:1/out:0";
constexpr char kAdd16[] = "roofline/in:2/inout:1/out:0";

constexpr std::size_t kColumns = 1024;
constexpr std::size_t kClasses = 50304;

constexpr RowCase kRowCases[] = {
    {"softmax/plain", kColumns, 2, false, kMap16, kMap32, 2,
     [](Rows& r) { softmax_forward(r, 0); }},
    {"softmax/causal", kColumns, 2, false, kMap16, kMap32, 2,
     [](Rows& r) { softmax_forward(r, kColumns); }},
    {"softmax/plain_backward", kColumns, 2, false, kBackward16, kBackward32, 3,
     [](Rows& r) { softmax_backward(r, 0); }},
    {"softmax/causal_backward", kColumns, 2, false, kBackward16, kBackward32, 3,
     [](Rows& r) { softmax_backward(r, kColumns); }},
    {"cross_entropy/forward", kClasses, 1, false, kRead, kRead, 1,
     [](Rows& r) {
       cross_entropy(r.x, r.targets.data(), r.mean.data(), r.lse.data(),
                     r.lse_low.data());
     }},
    {"cross_entropy/backward", kClasses, 1, false, kScale, kScale, 2,
     [](Rows& r) {
       cross_entropy_backward(r.x, r.targets.data(), r.lse.data(),
                              r.lse_low.data(), r.gradients.data(), r.x);
     }},
    {"layer_norm/forward", kColumns, 2, false, kMap16, kMap32, 2,
     [](Rows& r) {
       layer_norm(r.x, r.weights(), {r.bias.data(), kFloat32}, r.out,
                  r.mean.data(), r.rstd.data());
     }},
    {"layer_norm/backward", kColumns, 3, false, kBackward16, kBackward32, 3,
     [](Rows& r) {
       layer_norm_backward(r.y, r.x, r.mean.data(), r.rstd.data(), r.weights(),
                           r.out, r.dweight.data(), r.dbias.data());
     }},
    {"rms_norm/forward", kColumns, 2, false, kMap16, kMap32, 2,
     [](Rows& r) { rms_norm(r.x, r.weights(), r.out, r.rstd.data()); }},
    {"rms_norm/backward", kColumns, 3, false, kBackward16, kBackward32, 3,
     [](Rows& r) {
       rms_norm_backward(r.y, r.x, r.rstd.data(), r.weights(), r.out,
                         r.dweight.data());
     }},
    {"residual_add", kColumns, 1, true, kAdd16, kBackward32, 1,
     [](Rows& r) {
       residual_add_(r.residual, r.x, {r.bias.data(), kFloat32});
     }},
    {"activation/silu", kColumns, 2, false, kMap16, kMap32, 2,
     [](Rows& r) { activation(r.x, r.out, {Activation::silu}); }},
    {"activation/silu_backward", kColumns, 3, false, kBackward16, kBackward32,
     3,
     [](Rows& r) { activation_backward(r.y, r.x, r.out, {Activation::silu}); }},
    {"activation/gelu", kColumns, 2, false, kMap16, kMap32, 2,
     [](Rows& r) { activation(r.x, r.out, {Activation::gelu}); }},
    {"activation/gelu_tanh", kColumns, 2, false, kMap16, kMap32, 2,
     [](Rows& r) { activation(r.x, r.out, {Activation::gelu_tanh}); }},
    {"activation/swiglu", kColumns, 3, false, kBackward16, kBackward32, 3,
     [](Rows& r) { gated_activation(r.x, r.y, r.out, {Activation::silu}); }},
    {"moe/permute", kColumns, 2, false, kMap16, kMap32, 2,
     [](Rows& r) { moe_permute(r.x, r.token_of.data(), nullptr, r.out); }},
    {"moe/unpermute", kColumns, 2, false, kMap16, kMap32, 2,
     [](Rows& r) {
       moe_unpermute(r.x, r.token_of.data(), r.rstd.data(), r.out);
     }},
    {"quantize_blocks/mxfp8", kColumns, 3, false, kMap16, kMap32, 2,
     [](Rows& r) { blocks(r, BlockScaling::te_mxfp8, false); }},
    {"quantize_blocks/mxfp8_both", kColumns, 3, false, kMap16, kMap32, 2,
     [](Rows& r) { blocks(r, BlockScaling::te_mxfp8, true); }},
    {"quantize_blocks/nvfp4", kColumns, 3, false, kMap16, kMap32, 2,
     [](Rows& r) { blocks(r, BlockScaling::te_nvfp4, false); }},
    {"quantize_blocks/nvfp4_both", kColumns, 3, false, kMap16, kMap32, 2,
     [](Rows& r) { blocks(r, BlockScaling::te_nvfp4, true); }},
};

// fill() sets the elements to the two values in turn.
void fill(const Matrix& matrix, float even, float odd) {
  const std::size_t count = matrix.rows * matrix.columns;
  for (std::size_t i = 0; i < count; ++i) {
    const float value = i % 2 == 0 ? even : odd;
    if (matrix.dtype == kFloat32) {
      static_cast<float*>(matrix.data)[i] = value;
    } else {
      static_cast<std::uint16_t*>(matrix.data)[i] =
          matrix.dtype == kFloat16 ? float16_from_float(value)
                                   : bfloat16_from_float(value);
    }
  }
}

// run() measures a case on arrays of `bytes` together.
void run(State& state, const RowCase& what, const Dtype& dtype,
         std::size_t bytes) {
  const std::size_t row_bytes = what.columns * dtype.bytes;
  const std::size_t residual_bytes = what.residual ? what.columns * 4 : 0;
  const auto matrices = static_cast<std::size_t>(what.matrices);
  const std::size_t count = bytes / (matrices * row_bytes + residual_bytes);
  std::byte* at = scratch_memory(bytes);
  const auto matrix = [&](bool exists, ScalarType type, std::size_t of_row) {
    const Matrix made{exists ? at : nullptr, count, what.columns, type};
    if (exists) at += count * of_row;
    return made;
  };
  Rows rows;
  rows.x = matrix(true, dtype.dtype, row_bytes);
  rows.out = matrix(matrices > 1, dtype.dtype, row_bytes);
  rows.y = matrix(matrices > 2, dtype.dtype, row_bytes);
  rows.residual = matrix(what.residual, kFloat32, residual_bytes);
  fill(rows.x, kSmall, kSmall);
  if (matrices > 1) fill(rows.out, 1, -1);
  if (matrices > 2) fill(rows.y, 1, -1);
  rows.targets.assign(count, 7);
  // 7919 is a prime number that does not divide the number of rows.
  for (std::size_t i = 0; i < count; ++i) {
    rows.token_of.push_back(static_cast<std::int64_t>(i * 7919 % count));
  }
  rows.mean.assign(count, 0);
  rows.rstd.assign(count, 1);
  rows.lse.assign(count, 11);
  rows.lse_low.assign(count, 0);
  rows.gradients.assign(count, 1000);
  rows.weight.assign(what.columns, 1);
  rows.bias = rows.dweight = rows.dbias = rows.weight;
  const std::size_t traffic =
      count *
      (static_cast<std::size_t>(what.passes) * row_bytes + 2 * residual_bytes);
  timed(state, static_cast<double>(traffic), [&] { what.call(rows); });
}

}  // namespace

void register_rows() {
  for (const RowCase& what : kRowCases) {
    for (const Dtype& dtype : kDtypes) {
      if (dtype.dtype == kFloat64) continue;
      add({std::string(what.name) + "/" + dtype.name,
           {8 * kMib, static_cast<std::int64_t>(memory_bytes())},
           thread_counts(),
           dtype.bytes == 2 ? what.roofline_16 : what.roofline_32},
          [&what, &dtype](State& state, const Run& r) {
            run(state, what, dtype, r.bytes);
          });
    }
  }
}

}  // namespace swamp::bench
