// Options of matrix products, convolutions, and conversions to and from codes.
#include <utility>

#include "support/operators.h"
#include "swamp/convolution.h"
#include "swamp/float8.h"
#include "swamp/float_formats.h"
#include "swamp/product.h"
#include "swamp/rows.h"

namespace swamp::test {
namespace {

// Values along rows and columns, after the Hadamard transform, of square
// blocks, and by given factors.
void quantized_matrix(SeededCall& c, std::size_t variant) {
  const bool is_float4 = variant == 1 || variant == 2, square = variant == 2;
  BlockOptions options;
  if (is_float4) options.scaling = BlockScaling::te_nvfp4;
  options.square = square;
  options.hadamard = variant == 1;
  options.tensor_amax = 1000;
  if (is_float4) options.rounding = Rounding::stochastic;
  const Matrix x = c.matrix((c.size(cli::kSizeRows) % 100 / 16 + 1) * 16,
                            c.size(cli::kSizeColumns) % 500 + 1, c.dtype);
  const ScalarType type = variant % 2 == 0 ? kBFloat16 : kFloat32;
  const auto factors = [&](std::size_t count) {
    return static_cast<const float*>(c.next(count * 4, kFloat32));
  };
  if (variant == 3) {
    options.row_factors = factors(x.rows);
    options.column_factors = factors(x.columns);
  }
  const auto format = is_float4 ? kFloat4E2M1FNX2 : kFloat8E4M3FN;
  const Matrix rows = c.matrix(x.rows, x.columns, type),
               columns = c.matrix(x.rows, x.columns, type);
  quantized_values(x, format, &rows, square ? nullptr : &columns, options,
                   c.machine);
  c.next_call();
  const auto maxima = [&](std::size_t lines, std::size_t length) {
    const std::size_t count = lines * ((length + 127) / 128);
    return Tensor{c.next(count * 4, kFloat32), count, kFloat32};
  };
  const Tensor of_rows = maxima(x.rows, x.columns),
               of_columns = maxima(x.columns, x.rows);
  BlockOptions of_blocks;
  of_blocks.hadamard = options.hadamard;
  block_amax(x, &of_rows, &of_columns, of_blocks, c.machine);
  c.next_call();
}

// Codes along rows and columns, or only one of them, and back: by each rule, of
// square blocks, and of transformed columns.
constexpr std::size_t kRuleCount = 12;
void quantize_matrix(SeededCall& c, std::size_t variant) {
  using S = BlockScaling;
  const bool square = variant >= kRuleCount && variant < kRuleCount + 3;
  const bool hadamard = variant == kRuleCount + 3;
  const S more[] = {S::te_nvfp4, S::te_block, S::te_block_power_of_2,
                    S::te_nvfp4};
  const S scaling = variant < kRuleCount ? static_cast<S>(variant)
                                         : more[variant - kRuleCount];
  const BlockScales rule = block_scales(scaling);
  BlockOptions options;
  options.scaling = scaling;
  options.square = square;
  options.tensor_amax = 1000;
  const bool is_float4 = rule.dtype == kFloat8E4M3FN;
  if (is_float4) options.rounding = Rounding::stochastic;
  const Matrix x =
      c.matrix((c.size(cli::kSizeRows) % 100 / 16 + 1) * 16,
               (c.size(cli::kSizeColumns) % 500 / 2 + 1) * 2, c.dtype);
  const auto codes = [&](std::size_t rows, std::size_t columns) {
    const std::size_t block = rule.block == 0 ? columns : rule.block,
                      count = rows * columns / (is_float4 ? 2 : 1);
    const bool is_wide = rule.dtype == kFloat32;
    const std::size_t scales =
        (is_wide && square ? (rows + block - 1) / block : rows) *
        ((columns + block - 1) / block);
    return BlockCodes{
        {c.next(count, std::nullopt), count,
         is_float4 ? kFloat4E2M1FNX2 : kFloat8E4M3FN},
        {c.next(scales * (is_wide ? 4 : 1), std::nullopt), scales, rule.dtype}};
  };
  if (scaling == S::te_nvfp4 && square) {
    options.random = c.random(x.rows * x.columns);
  }
  for (const int outputs : {1, 2, 3}) {
    if (rule.block == 0 && outputs != 1) break;
    options.hadamard = hadamard && outputs != 1;
    const BlockCodes rows = codes(x.rows, x.columns),
                     columns = codes(x.columns, x.rows);
    if (outputs == 2) {  // any codes and scales
      dequantize_blocks(rows, c.matrix(x.rows, x.columns, c.dtype), options,
                        c.machine);
      c.next_call();
    }
    quantize_blocks(x, outputs % 2 != 0 ? &rows : nullptr,
                    outputs / 2 != 0 ? &columns : nullptr, options, c.machine);
    c.next_call();
    options.hadamard = false;
    if (outputs != 1) continue;
    dequantize_blocks(rows, c.matrix(x.rows, x.columns, c.dtype), options,
                      c.machine);
    c.next_call();
  }
}

void quantize_list(SeededCall& c, std::size_t variant) {
  const struct {
    ScalarType format;
    Rounding rounding;
  } casts[] = {{kFloat8E4M3FN, Rounding::nearest_even},
               {kFloat8E5M2FNUZ, Rounding::nearest_away},
               {kFloat6E2M3FN, Rounding::stochastic},
               {kFloat4E2M1FNX2, Rounding::stochastic},
               {kHiFloat8, Rounding::nearest_away},
               {kMxInt8, Rounding::nearest_even},
               {kFloat8E8M0FNU, Rounding::nearest_away}};
  const auto [format, rounding] = casts[variant];
  QuantizeOptions options;
  options.scale = 3;
  options.rounding = rounding;
  options.seed = 5;
  for (const Tensor& x : c.array()) {
    const std::size_t elements = format == kFloat4E2M1FNX2 ? 2 : 1;
    if (x.count % elements != 0) continue;
    const std::size_t count = x.count / elements;
    const Tensor codes{c.next(count, std::nullopt), count, format};
    if (variant == 2) options.random = c.random(x.count);
    // Any codes, and then those of the numbers.
    const std::size_t bytes = x.count * kFloatFormats[x.dtype].bytes;
    void* const values = c.next(bytes, x.dtype);
    dequantize(codes, {values, x.count, x.dtype}, 3, c.machine);
    c.next_call({values});
    auto* const counts = c.result<std::uint64_t>(3);
    auto* const largest = c.result<float>(2);
    largest[0] = amax(x, true, c.machine);
    c.next_call({largest});
    const QuantizeReport report = quantize(x, codes, options, c.machine);
    largest[1] = report.amax;
    counts[0] = report.saturated;
    counts[1] = report.flushed;
    counts[2] = report.nan_count;
    c.next_call({codes.data, counts, largest});
    dequantize(codes, x, 0.5f, c.machine);
    c.next_call({x.data});
  }
}

// out = 0.3 * a * b + bias; a is its transpose, or out has gaps, also with
// factors of blocks.
void product_rows(SeededCall& c, std::size_t variant) {
  const std::size_t rows = c.size(cli::kSizeRows),
                    columns = c.size(cli::kSizeColumns), terms = rows % 90 + 1;
  const Matrix a = c.matrix(rows, terms, c.dtype),
               b = c.matrix(terms, columns, c.dtype),
               out = c.matrix(rows, columns + 3, kFloat32),
               bias = c.matrix(1, columns, kFloat32);
  Matrices left = Matrices::dense(a.data, 1, rows, terms, c.dtype);
  const bool transposed = variant == 1;
  if (transposed) {
    left = Matrices::dense(a.data, 1, terms, rows, c.dtype).transposed();
  }
  Matrices result = Matrices::dense(out.data, 1, rows, columns, kFloat32),
           add = Matrices::dense(bias.data, 1, rows, columns, kFloat32);
  if (!transposed) result.row_step = columns + 3;
  add.row_step = add.batch_step = 0;
  ProductOptions options;
  options.alpha = 0.3f;
  options.self = &add;
  ProductScales scales;
  if (variant == 2) {
    scales.terms = rows % 2 * 16;
    const std::size_t blocks = scales.blocks(terms);
    scales.a = c.numbers(rows * blocks), scales.b = c.numbers(columns * blocks);
    options.scales = &scales;
  }
  product(result, left, Matrices::dense(b.data, 1, terms, columns, c.dtype),
          options, c.machine);
}

// A convolution and its gradients: one filter and two a group, as many filters
// as channels, a group of more lanes than one block has, and a single row. Of
// an odd number of positions.
void convolutions(SeededCall& c, std::size_t variant) {
  struct Shape {
    std::size_t channels, filters, groups, kernel, height;
    long step, dilation;
  };
  constexpr Shape kShapes[] = {
      {18, 18, 18, 3, 5, 1, 1}, {5, 10, 5, 3, 9, 2, 1},
      {16, 16, 4, 2, 6, 1, 2},  {6, 42, 2, 3, 5, 2, 1},
      {20, 20, 20, 3, 1, 1, 1}, {5, 5, 5, 2, 4, 1, 1},
      {9, 12, 3, 3, 7, 3, 1},   {8, 11, 1, 4, 9, 1, 2},
      {1, 1, 1, 5, 9, 1, 1},    {2, 16, 2, 3, 9, 3, 2}};
  const Shape& one = kShapes[variant];
  const std::size_t width = c.size(cli::kSizeColumns) % 5 + 5;
  const auto of_size = [&](std::size_t size) {
    const std::size_t kernel = size == 1 ? 1 : one.kernel;
    const long padding = size == 1 ? 0 : 1, in = static_cast<long>(size),
               last = in + 2 * padding - 1 -
                      one.dilation * (static_cast<long>(kernel) - 1);
    return ConvolutionDimension{size,
                                static_cast<std::size_t>(last / one.step) + 1,
                                kernel,
                                one.step,
                                one.dilation,
                                -padding,
                                1};
  };
  Convolution of;
  of.images = c.size(cli::kSizeRows) % 3 + 1;
  of.channels = one.channels, of.filters = one.filters, of.groups = one.groups;
  of.height = of_size(one.height), of.width = of_size(width);
  of.dtype = c.dtype;
  of.x_channels_last = variant % 2 != 0;
  of.out_channels_last = of.images % 2 != 0;
  const std::size_t terms =
      of.height.kernel * of.width.kernel * one.channels / one.groups;
  const Matrix x = c.matrix(of.images * one.channels, one.height * width,
                            c.dtype),
               y = c.matrix(of.images * one.filters,
                            of.height.out * of.width.out, c.dtype),
               weight = c.matrix(one.filters, terms, c.dtype),
               bias = c.matrix(1, one.filters, c.dtype);
  convolve(of, x.data, weight.data, variant == 0 ? nullptr : bias.data, y.data,
           c.machine);
  c.next_call();
  const Matrix dw = c.matrix(one.filters, terms, c.dtype);
  convolve_weight(of, x.data, y.data, dw.data, c.machine);
  c.next_call();
  const Matrix dx = c.matrix(x.rows, x.columns, c.dtype),
               exchanged = c.matrix(
                   one.channels, terms * one.filters / one.channels, c.dtype);
  for (ConvolutionDimension* axis : {&of.height, &of.width}) {
    *axis = {axis->out,          axis->in,      axis->kernel, 1,
             -axis->kernel_step, -axis->offset, axis->in_step};
  }
  std::swap(of.channels, of.filters);
  std::swap(of.x_channels_last, of.out_channels_last);
  convolve(of, y.data, exchanged.data, nullptr, dx.data, c.machine);
}

// Codes of positive numbers, with a scale for each block of 32.
void scaled_product(SeededCall& c, std::size_t) {
  const std::size_t terms = c.size(cli::kSizeColumns) * 2 % 301;
  const auto operand = [&](std::size_t rows) {
    ScaledMatrix x;
    x.codes = {c.made<std::uint8_t>(rows * terms,
                                    [](std::size_t i) { return i * 37 % 127; }),
               rows * terms, kFloat8E4M3FN};
    x.block = 32;
    const std::size_t scales = rows * ((terms + 31) / 32);
    x.scales = {c.numbers(scales), scales, kFloat32};
    x.rows = rows;
    x.columns = terms;
    return x;
  };
  const std::size_t rows = c.size(cli::kSizeRows) % 49 + 1,
                    columns = c.size(cli::kSizeColumns) % 59 + 1;
  product(c.matrix(rows, columns, kFloat32), operand(rows), operand(columns),
          c.machine);
}

void hadamard_rows(SeededCall& c, std::size_t) {
  const Matrix x = c.matrix(c.size(cli::kSizeRows) % 69 + 1,
                            (c.size(cli::kSizeColumns) % 99 + 1) * 16, c.dtype);
  hadamard_transform(x, c.over(x), c.machine);
}

}  // namespace

std::vector<OptionRow> product_options() {
  return {
      {"quantize_blocks", cli::kOfMatrix, kRuleCount + 4, quantize_matrix},
      {"quantized_values", cli::kOfMatrix, 4, quantized_matrix},
      {"quantize", 0, 7, quantize_list},
      {"product", cli::kOfMatrix, 3, product_rows},
      {"scaled_product", cli::kOfMatrix, 1, scaled_product},
      {"convolution", cli::kOfMatrix, 10, convolutions},
      {"hadamard_transform", cli::kOfMatrix, 1, hadamard_rows},
  };
}

}  // namespace swamp::test
