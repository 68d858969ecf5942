// Formats of at most 8 bits: matrices whose blocks have a scale each.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "master/aten/checks.h"
#include "master/aten/float8.h"
#include "master/aten/registration.h"
#include "master/aten/tensor.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using FiveTensors = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
using FourTensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// block_options() returns what codes and values of blocks have in common.
BlockOptions block_options(const Blocks& blocks, std::int64_t block,
                           const OptionalTensor& tensor_amax,
                           std::int64_t rounding, std::int64_t policy,
                           bool hadamard, const OptionalTensor& seed,
                           const Tensor& random) {
  BlockOptions options;
  options.scaling = blocks.scaling;
  options.block = static_cast<std::size_t>(block);
  options.square = blocks.square;
  options.tensor_amax = amax_of(tensor_amax);
  options.rounding = enumerator<Rounding>(rounding);
  options.policy = enumerator<CastPolicy>(policy);
  options.hadamard = hadamard;
  if (is_defined(seed)) {
    options.seed = static_cast<std::uint64_t>(seed->item<std::int64_t>());
  }
  options.random = values_of<std::uint8_t>(random);
  return options;
}

// quantize_blocks() returns codes and scales along rows, and along columns; an
// absent one has no elements.
FourTensors quantize_blocks(const Tensor& x, std::int64_t format,
                            std::int64_t scaling, bool rows, bool columns,
                            std::int64_t block, bool square,
                            const OptionalTensor& tensor_amax,
                            std::int64_t rounding, std::int64_t policy,
                            bool hadamard, const OptionalTensor& seed,
                            const OptionalTensor& random) {
  require_rows(x, "quantize_blocks");
  require_matrix(x, "x");
  const FloatFormat& to = format_of(format);
  const c10::SymInt height = x.sym_size(0), width = x.sym_size(1);
  const Blocks blocks(scaling, block, square, width);
  struct Output {
    Tensor codes, scales;
    BlockCodes arrays;
  };
  const auto output = [&](bool wanted, const c10::SymInt& r,
                          const c10::SymInt& c) {
    const auto make = [&](std::vector<c10::SymInt> sizes, ScalarType type) {
      if (!wanted) sizes = {0};
      return at::empty_symint(sizes, x.options().dtype(dtype_of(type)));
    };
    return Output{
        make(wanted ? code_sizes({r, c}, to) : std::vector<c10::SymInt>{},
             to.type),
        make(blocks.scale_sizes(r, c), blocks.scales),
        {}};
  };
  Output along_rows = output(rows, height, width);
  Output along_columns = output(columns, width, height);
  const Tensor bytes = random_bytes(random, x);
  computed(along_rows.codes, [&] {
    for (Output* one : {&along_rows, &along_columns}) {
      one->arrays = {array_of(one->codes, to.type),
                     array_of(one->scales, blocks.scales)};
    }
    const BlockOptions options = block_options(
        blocks, block, tensor_amax, rounding, policy, hadamard, seed, bytes);
    const Tensor in = row_major(x);
    swamp::quantize_blocks(matrix_of(in), rows ? &along_rows.arrays : nullptr,
                           columns ? &along_columns.arrays : nullptr, options);
  });
  return {along_rows.codes, along_rows.scales, along_columns.codes,
          along_columns.scales};
}

// quantized_values() returns the values along rows and along columns (no
// elements if they are not wanted), the largest magnitude, that of the columns,
// the largest magnitude or nan if x has a nan, and counts of saturated and
// flushed elements. The values are bfloat16, or float32 if bfloat16 lacks some
// of them because of the scales, or because exponents are too small. Only the
// latter makes a second pass, and Meta does not know it.
FiveTensors quantized_values(
    const Tensor& x, std::int64_t format, std::int64_t scaling, bool rows,
    bool columns, std::int64_t block, bool square,
    const OptionalTensor& tensor_amax, std::int64_t rounding,
    std::int64_t policy, bool hadamard, const OptionalTensor& seed,
    const OptionalTensor& random, const OptionalTensor& column_amax,
    const OptionalTensor& row_factors, const OptionalTensor& column_factors,
    bool divide) {
  require_rows(x, "quantized_values");
  require_matrix(x, "x");
  const FloatFormat& to = format_of(format);
  const Blocks blocks(scaling, block, square, x.sym_size(1));
  const auto factors_of = [&](const OptionalTensor& factors, int dimension,
                              const char* name) {
    if (!is_defined(factors)) return Tensor();
    TORCH_CHECK(factors->scalar_type() == at::kFloat &&
                    factors->sym_numel() == x.sym_size(dimension),
                name, ": got the shape ", factors->sym_sizes(), " of ",
                c10::toString(factors->scalar_type()),
                ", expected Float, one for each of ", x.sym_size(dimension));
    return *factors;
  };
  const Tensor of_rows = factors_of(row_factors, 0, "row_factors");
  const Tensor of_columns = factors_of(column_factors, 1, "column_factors");
  const Tensor bytes = random_bytes(random, x);
  Tensor along_rows, along_columns;
  const auto make = [&](at::ScalarType dtype) {
    const auto output = [&](bool wanted) {
      auto sizes = x.sym_sizes().vec();
      if (!wanted) sizes = {0};
      return at::empty_symint(sizes, x.options().dtype(dtype));
    };
    along_rows = output(rows);
    along_columns = output(columns && !square);
  };
  // Other scales are powers of two, or, of NVFP4, have few bits.
  const bool has_wide_scales = blocks.scaling == BlockScaling::te_block ||
                               blocks.scaling == BlockScaling::torchao_float8;
  const bool is_scaled = divide || !(of_rows.defined() || of_columns.defined());
  make(has_wide_scales && is_scaled ? at::kFloat : at::kBFloat16);
  Tensor amax = at::empty({2}, x.options().dtype(at::kFloat));
  Tensor seen = at::empty({}, amax.options());
  Tensor counts = at::empty({2}, x.options().dtype(at::kLong));
  computed(amax, [&] {
    BlockOptions options = block_options(blocks, block, tensor_amax, rounding,
                                         policy, hadamard, seed, bytes);
    options.column_amax = amax_of(column_amax);
    const auto factors = [](const Tensor& one) {
      return one.defined() ? row_major(one) : one;
    };
    const Tensor r_factors = factors(of_rows), c_factors = factors(of_columns);
    options.row_factors = values_of<float>(r_factors);
    options.column_factors = values_of<float>(c_factors);
    options.divide = divide;
    const Tensor in = row_major(x);
    ValueReport report;
    for (;;) {
      const Matrix r = rows ? matrix_of(along_rows) : Matrix{},
                   c = columns && !square ? matrix_of(along_columns) : Matrix{};
      report =
          swamp::quantized_values(matrix_of(in), to.type, rows ? &r : nullptr,
                                  columns && !square ? &c : nullptr, options);
      if (report.exact ||
          (rows ? along_rows : along_columns).scalar_type() == at::kFloat) {
        break;
      }
      make(at::kFloat);
    }
    data_of<float>(amax)[0] = report.amax;
    data_of<float>(amax)[1] = report.column_amax;
    *data_of<float>(seen) =
        amax_or_nan(std::max(report.amax, report.column_amax), report.has_nan);
    data_of<std::int64_t>(counts)[0] =
        static_cast<std::int64_t>(report.saturated);
    data_of<std::int64_t>(counts)[1] =
        static_cast<std::int64_t>(report.flushed);
  });
  return {along_rows, along_columns, amax, seen, counts};
}

// block_amax() returns the largest magnitude of each row and of each column, of
// columns after the Hadamard transform if `hadamard`; the largest of all rows
// and of all columns; and the largest or nan if x has a nan.
FourTensors block_amax(const Tensor& x, bool rows, bool columns,
                       bool hadamard) {
  require_rows(x, "block_amax");
  require_matrix(x, "x");
  const auto output = [&](bool wanted, int dimension) {
    std::vector<c10::SymInt> sizes{0, 1};
    if (wanted) sizes[0] = x.sym_size(dimension);
    return at::empty_symint(sizes, x.options().dtype(at::kFloat));
  };
  Tensor of_rows = output(rows, 0), of_columns = output(columns, 1);
  Tensor amax = at::empty({2}, of_rows.options());
  Tensor seen = at::empty({}, of_rows.options());
  computed(amax, [&] {
    constexpr int kBlock = 128;
    const auto blocks_of = [&](const Tensor& lines, int across) {
      return at::empty({lines.size(0), (x.size(across) + kBlock - 1) / kBlock},
                       lines.options());
    };
    Tensor row_blocks = blocks_of(of_rows, 1),
           column_blocks = blocks_of(of_columns, 0);
    const swamp::Tensor r = array_of(row_blocks), c = array_of(column_blocks);
    BlockOptions options;
    options.block = kBlock;
    options.hadamard = hadamard;
    const Tensor in = row_major(x);
    const ValueReport report = swamp::block_amax(
        matrix_of(in), rows ? &r : nullptr, columns ? &c : nullptr, options);
    for (const auto& [lines, blocks] :
         {std::pair{&of_rows, &row_blocks}, {&of_columns, &column_blocks}}) {
      if (blocks->size(1) == 0) {
        lines->zero_();
      } else {
        lines->copy_(blocks->amax(1, true));
      }
    }
    data_of<float>(amax)[0] = report.amax;
    data_of<float>(amax)[1] = report.column_amax;
    *data_of<float>(seen) =
        amax_or_nan(std::max(report.amax, report.column_amax), report.has_nan);
  });
  return {of_rows, of_columns, amax, seen};
}

Tensor dequantize_blocks(const Tensor& codes, const Tensor& scales,
                         std::int64_t format, std::int64_t scaling,
                         at::ScalarType dtype, std::int64_t block, bool square,
                         const OptionalTensor& tensor_amax) {
  const FloatFormat& from = format_of(format);
  require_codes(codes, from);
  require_matrix(codes, "codes");
  const auto sizes = value_sizes(codes, from);
  const Blocks blocks(scaling, block, square, sizes[1]);
  require_scales(scales, blocks.scales);
  Tensor x = at::empty_symint(sizes, codes.options().dtype(dtype));
  require_rows(x, "dequantize_blocks");
  return computed(x, [&] {
    const Tensor in = row_major(codes), factors = row_major(scales);
    BlockOptions options;
    options.scaling = blocks.scaling;
    options.block = static_cast<std::size_t>(block);
    options.square = square;
    options.tensor_amax = amax_of(tensor_amax);
    swamp::dequantize_blocks(
        {array_of(in, from.type), array_of(factors, blocks.scales)},
        matrix_of(x), options);
  });
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(swamp, m) {
  constexpr auto kNone = Derivative::kNone;
  define<&quantize_blocks, kNone>(
      m,
      "quantize_blocks(Tensor x, int format, int scaling, bool rows=True, "
      "bool columns=False, int block=0, bool square=False, "
      "Tensor? tensor_amax=None, int rounding=0, int policy=0, "
      "bool hadamard=False, Tensor? seed=None, Tensor? random=None) -> "
      "(Tensor, Tensor, Tensor, Tensor)");
  define<&quantized_values, kNone>(
      m,
      "quantized_values(Tensor x, int format, int scaling, *, bool rows=True, "
      "bool columns=False, int block=0, bool square=False, "
      "Tensor? tensor_amax=None, int rounding=0, int policy=0, "
      "bool hadamard=False, Tensor? seed=None, Tensor? random=None, "
      "Tensor? column_amax=None, Tensor? row_factors=None, "
      "Tensor? column_factors=None, bool divide=False) -> "
      "(Tensor, Tensor, Tensor, Tensor, Tensor)");
  define<&block_amax, kNone>(
      m,
      "_block_amax(Tensor x, bool rows, bool columns, bool hadamard) -> "
      "(Tensor, Tensor, Tensor, Tensor)");
  define<&dequantize_blocks, kNone>(
      m,
      "dequantize_blocks(Tensor codes, Tensor scales, int format, "
      "int scaling, ScalarType dtype, int block=0, bool square=False, "
      "Tensor? tensor_amax=None) -> Tensor");
}

}  // namespace swamp::aten
