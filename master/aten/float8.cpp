// Formats of at most 8 bits: swamp/float8.h for tensors. Codes have PyTorch's
// dtypes, int8 for MXINT8, or uint8 if PyTorch has none, so that operators take
// the number of a format; it and the numbers of enumerations are those of the
// C++ API. What a training step computes itself (a scale, a seed) is a tensor
// of one element, so that torch.compile need not know its value.
#include "swamp/float8.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/overrides.h"
#include "master/aten/registration.h"
#include "master/aten/row_tensors.h"
#include "master/aten/tensor.h"
#include "swamp/float_formats.h"
#include "swamp/product.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using FiveTensors = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
using FourTensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;
using TwoTensors = std::tuple<Tensor, Tensor>;

// enumerator() keeps a number that libswamp refuses out of range.
template <class Enum>
Enum enumerator(std::int64_t number) {
  return static_cast<Enum>(number < 0 || number > 255 ? 255 : number);
}

const FloatFormat& format_of(std::int64_t number) {
  constexpr auto kCount = static_cast<std::int64_t>(std::size(kFloatFormats));
  TORCH_CHECK(number >= 0 && number < kCount, "format: got ", number,
              ", expected 0 to ", kCount - 1);
  return kFloatFormats[number];
}

at::ScalarType dtype_of(ScalarType format) {
  switch (format) {
    case kFloat8E4M3FN:
      return at::kFloat8_e4m3fn;
    case kFloat8E5M2:
      return at::kFloat8_e5m2;
    case kFloat8E4M3FNUZ:
      return at::kFloat8_e4m3fnuz;
    case kFloat8E5M2FNUZ:
      return at::kFloat8_e5m2fnuz;
    case kFloat8E8M0FNU:
      return at::kFloat8_e8m0fnu;
    case kFloat4E2M1FNX2:
      return at::ScalarType::Float4_e2m1fn_x2;
    case kMxInt8:
      return at::kChar;
    case kFloat32:
      return at::kFloat;
    default:
      return at::kByte;
  }
}

bool is_packed(const FloatFormat& format) { return format.width == 4; }

void require_matrix(const Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.dim() == 2, name, ": got the shape ", tensor.sym_sizes(),
              ", expected a matrix");
}

void require_scales(const Tensor& scales, ScalarType type) {
  TORCH_CHECK(scales.scalar_type() == dtype_of(type) &&
                  (scales.is_cpu() || scales.is_meta()) &&
                  scales.layout() == at::kStrided,
              "scales: got ", c10::toString(scales.scalar_type()), " on ",
              scales.device(), ", expected ", c10::toString(dtype_of(type)),
              " on cpu");
}

// array_of() takes a row_major() tensor.
swamp::Tensor array_of(const Tensor& tensor, ScalarType type) {
  return {const_cast<void*>(const_data(tensor)),
          static_cast<std::size_t>(tensor.numel()), type};
}
swamp::Tensor array_of(const Tensor& tensor) {
  return array_of(tensor, *scalar_type(tensor.scalar_type()));
}

// Returns the sizes of the codes of elements of these sizes.
std::vector<c10::SymInt> code_sizes(std::vector<c10::SymInt> sizes,
                                    const FloatFormat& format) {
  if (!is_packed(format)) return sizes;
  TORCH_CHECK(!sizes.empty() && sizes.back() % 2 == 0, "x: got the shape ",
              c10::SymIntArrayRef(sizes),
              ", expected an even last dimension, as float4_e2m1fn_x2 has two "
              "elements in a byte");
  sizes.back() = sizes.back() / 2;
  return sizes;
}

// value_sizes() is the inverse.
std::vector<c10::SymInt> value_sizes(const Tensor& codes,
                                     const FloatFormat& format) {
  std::vector<c10::SymInt> sizes = codes.sym_sizes().vec();
  if (is_packed(format) && !sizes.empty()) sizes.back() = sizes.back() * 2;
  return sizes;
}

void require_codes(const Tensor& codes, const FloatFormat& format) {
  TORCH_CHECK(
      codes.scalar_type() == dtype_of(format.type) &&
          (codes.is_cpu() || codes.is_meta()) && codes.layout() == at::kStrided,
      "codes: got ", c10::toString(codes.scalar_type()), " on ", codes.device(),
      ", expected ", c10::toString(dtype_of(format.type)), " on cpu for ",
      format.name);
}

// random_bytes() returns the random bytes, an undefined tensor for none.
Tensor random_bytes(const OptionalTensor& random, const Tensor& x) {
  if (!is_defined(random)) return {};
  TORCH_CHECK(random->scalar_type() == at::kByte &&
                  random->sym_sizes() == x.sym_sizes(),
              "random: got the shape ", random->sym_sizes(), " of ",
              c10::toString(random->scalar_type()), ", expected ",
              x.sym_sizes(), " of Byte, as x");
  return row_major(*random);
}
const std::uint8_t* data_of_bytes(const Tensor& bytes) {
  return bytes.defined() ? static_cast<const std::uint8_t*>(const_data(bytes))
                         : nullptr;
}

// scaled_by() returns a tensor and a scale that quantize() takes, for a scale
// that may be inf, nan or 0, or have several elements, which are broadcast to
// x.
std::pair<Tensor, double> scaled_by(const Tensor& x, const Tensor& scale) {
  if (scale.numel() == 1) {
    const double factor = scale.item<double>();
    if (factor > 0 && !std::isinf(factor)) return {x, factor};
  }
  return {x.to(at::kFloat) * scale, 1.0};
}

// amax_or_nan() returns nan if what has that largest magnitude also has a nan.
float amax_or_nan(float amax, bool has_nan) {
  return has_nan ? std::numeric_limits<float>::quiet_NaN() : amax;
}

// The kernels below are for the keys CPU and Meta.

// quantize() returns codes, amax, and how many elements were saturated, flushed
// and nan.
ThreeTensors quantize(const Tensor& x, std::int64_t format, double scale,
                      std::int64_t rounding, std::int64_t policy,
                      std::int64_t seed, const OptionalTensor& random) {
  require_rows(x, "quantize");
  const FloatFormat& to = format_of(format);
  const auto options = x.options();
  Tensor codes = at::empty_symint(code_sizes(x.sym_sizes().vec(), to),
                                  options.dtype(dtype_of(to.type)));
  Tensor amax = at::empty({}, options.dtype(at::kFloat));
  Tensor counts = at::empty({3}, options.dtype(at::kLong));
  const Tensor bytes = random_bytes(random, x);
  computed(codes, [&] {
    const Tensor in = row_major(x);
    const QuantizeReport report = swamp::quantize(
        array_of(in), array_of(codes, to.type),
        {static_cast<float>(scale), enumerator<Rounding>(rounding),
         enumerator<CastPolicy>(policy), static_cast<std::uint64_t>(seed),
         data_of_bytes(bytes)});
    *data_of<float>(amax) = report.amax;
    auto* const count = data_of<std::int64_t>(counts);
    count[0] = static_cast<std::int64_t>(report.saturated);
    count[1] = static_cast<std::int64_t>(report.flushed);
    count[2] = static_cast<std::int64_t>(report.nan_count);
  });
  return {codes, amax, counts};
}

// values_by() is quantize_by() with the values of the codes, as bfloat16. They
// are not divided by the scale.
ThreeTensors values_by(const Tensor& x, const Tensor& scale,
                       std::int64_t format, std::int64_t rounding,
                       std::int64_t policy) {
  require_rows(x, "quantized_values");
  const FloatFormat& to = format_of(format);
  const auto options = x.options();
  Tensor values = at::empty_like(x, options.dtype(at::kBFloat16),
                                 at::MemoryFormat::Contiguous);
  Tensor amax = at::empty({}, options.dtype(at::kFloat));
  Tensor seen = at::empty_like(amax);
  computed(values, [&] {
    const auto [scaled, factor] = scaled_by(x, scale);
    const Tensor in = row_major(scaled);
    const QuantizeReport report = swamp::quantized_values(
        array_of(in), to.type, array_of(values),
        {static_cast<float>(factor), enumerator<Rounding>(rounding),
         enumerator<CastPolicy>(policy)});
    *data_of<float>(amax) = report.amax;
    *data_of<float>(seen) = amax_or_nan(report.amax, report.nan_count != 0);
  });
  return {values, amax, seen};
}

// quantize_by() is quantize() with a scale that a recipe has computed, as
// scaled_by() takes it. It returns codes, amax, and amax or nan if x has a nan.
ThreeTensors quantize_by(const Tensor& x, const Tensor& scale,
                         std::int64_t format, std::int64_t rounding,
                         std::int64_t policy) {
  const auto [scaled, factor] =
      x.is_meta() ? std::pair{x, 1.0} : scaled_by(x, scale);
  auto [codes, amax, counts] =
      quantize(scaled, format, factor, rounding, policy, 0, {});
  Tensor seen = at::empty_like(amax);
  computed(seen, [&, amax = amax, counts = counts] {
    *data_of<float>(seen) = amax_or_nan(*data_of<float>(amax),
                                        data_of<std::int64_t>(counts)[2] != 0);
  });
  return {codes, amax, seen};
}

Tensor dequantize(const Tensor& codes, std::int64_t format,
                  at::ScalarType dtype, double scale) {
  const FloatFormat& from = format_of(format);
  require_codes(codes, from);
  Tensor x =
      at::empty_symint(value_sizes(codes, from), codes.options().dtype(dtype));
  require_rows(x, "dequantize");
  return computed(x, [&] {
    const Tensor in = row_major(codes);
    swamp::dequantize(array_of(in, from.type), array_of(x),
                      static_cast<float>(scale));
  });
}

Tensor amax(const Tensor& x, bool skip_nan) {
  require_rows(x, "amax");
  Tensor result = at::empty({}, x.options().dtype(at::kFloat));
  return computed(result, [&] {
    *data_of<float>(result) = swamp::amax(array_of(row_major(x)), skip_nan);
  });
}

// amax_and_seen() returns amax(x), and amax(x, false), which is nan if x has a
// nan. Only then does it read x twice.
TwoTensors amax_and_seen(const Tensor& x) {
  const Tensor seen = amax(x, false);
  Tensor largest = at::empty_like(seen);
  computed(largest, [&] {
    largest.copy_(std::isnan(*data_of<float>(seen)) ? amax(x, true) : seen);
  });
  return {largest, seen};
}

Tensor hadamard_transform(const Tensor& x) {
  require_rows(x, "hadamard_transform");
  Tensor out = at::empty_like(x, at::MemoryFormat::Contiguous);
  return computed(out, [&] {
    const Tensor in = row_major(x);
    swamp::hadamard_transform(matrix_of(in), matrix_of(out));
  });
}

// Blocks is how a matrix is divided, as BlockScaling describes it.
struct Blocks {
  BlockScaling scaling;
  ScalarType scales;
  c10::SymInt size;
  bool square;

  Blocks(std::int64_t number, std::int64_t block, bool is_square,
         const c10::SymInt& columns)
      : scaling(enumerator<BlockScaling>(number)),
        scales(scaling <= BlockScaling::microxcaling    ? kFloat8E8M0FNU
               : scaling <= BlockScaling::torchao_nvfp4 ? kFloat8E4M3FN
                                                        : kFloat32),
        size(block > 0                                      ? c10::SymInt(block)
             : scales == kFloat8E8M0FNU                     ? c10::SymInt(32)
             : scales == kFloat8E4M3FN                      ? c10::SymInt(16)
             : scaling <= BlockScaling::te_block_power_of_2 ? c10::SymInt(128)
                                                            : columns),
        square(is_square) {
    TORCH_CHECK(block >= 0, "block: got ", block,
                ", expected at least 0 (0: that of the scaling)");
  }

  // Returns whether the values times their scales are bfloat16's, unless their
  // exponents are too small. Scales of NVFP4 have few bits, as its values.
  bool has_powers_of_2() const {
    return scaling != BlockScaling::te_block &&
           scaling != BlockScaling::torchao_float8;
  }

  std::vector<c10::SymInt> scale_sizes(const c10::SymInt& rows,
                                       const c10::SymInt& columns) const {
    const auto count = [&](const c10::SymInt& elements) {
      return size == 0 ? c10::SymInt(0) : (elements + size - 1) / size;
    };
    return {square && scales == kFloat32 ? count(rows) : rows, count(columns)};
  }
};

// amax_of() returns nan, which NVFP4 refuses, without a tensor.
float amax_of(const OptionalTensor& tensor) {
  return is_defined(tensor) ? tensor->item<float>()
                            : std::numeric_limits<float>::quiet_NaN();
}

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
  options.random = data_of_bytes(random);
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

// quantized_values() returns the values along rows and along columns, of which
// an absent one has no elements, and: the largest magnitude, that of the
// columns, the largest magnitude or nan if x has a nan, and counts of saturated
// and flushed elements. The values are bfloat16, or float32 if that has not all
// of them: because of the scales, or, which Meta does not know, of exponents
// that are too small. Only the latter makes a second pass.
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
  const bool has_factors = of_rows.defined() || of_columns.defined();
  const bool is_scaled = divide || !has_factors;
  make(is_scaled && !blocks.has_powers_of_2() ? at::kFloat : at::kBFloat16);
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
    const auto data = [](const Tensor& one) {
      return one.defined() ? static_cast<const float*>(const_data(one))
                           : nullptr;
    };
    options.row_factors = data(r_factors);
    options.column_factors = data(c_factors);
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

// Factor is an operand of a product: codes, and their scales.
struct Factor {
  Tensor codes, scales;
  ScaledMatrix matrix;

  // scaling: -1 if the scales are one of each row, or one for all.
  Factor(const Tensor& of_codes, const Tensor& of_scales, std::int64_t format,
         std::int64_t scaling, bool square, const OptionalTensor& tensor_amax)
      : codes(row_major(of_codes)), scales(row_major(of_scales)) {
    const FloatFormat& from = format_of(format);
    const ScalarType type = from.type;
    const std::int64_t columns = codes.size(1) * (is_packed(from) ? 2 : 1);
    const Blocks blocks(scaling < 0 ? 0 : scaling, 0, square, columns);
    const ScalarType scale_type = scaling < 0 ? kFloat32 : blocks.scales;
    require_scales(scales, scale_type);
    matrix = {array_of(codes, type),
              array_of(scales, scale_type),
              static_cast<std::size_t>(codes.size(0)),
              static_cast<std::size_t>(columns),
              scaling < 0 ? 0
                          : static_cast<std::size_t>(
                                blocks.size.guard_int(__FILE__, __LINE__)),
              square,
              amax_of(tensor_amax)};
  }
};

// set_to_nan() sets a result to nan, and returns true, if one of `seen`, the
// amax of what it depends on, is not finite.
bool set_to_nan(const Tensor& out, at::TensorList seen) {
  for (const Tensor& one : seen) {
    if (std::isfinite(one.item<float>())) continue;
    out.fill_(std::numeric_limits<double>::quiet_NaN());
    return true;
  }
  return false;
}

// scaled_product() is a * b^T; without terms it is 0, whatever the scales. It
// is nan if `seen` says so.
Tensor scaled_product(const Tensor& a, const Tensor& a_scales,
                      std::int64_t a_format, std::int64_t a_scaling,
                      bool a_square, const OptionalTensor& a_amax,
                      const Tensor& b, const Tensor& b_scales,
                      std::int64_t b_format, std::int64_t b_scaling,
                      bool b_square, const OptionalTensor& b_amax,
                      at::ScalarType dtype, at::TensorList seen) {
  for (const auto& [codes, format] : {std::pair{a, a_format}, {b, b_format}}) {
    require_codes(codes, format_of(format));
    require_matrix(codes, "codes");
  }
  Tensor out = at::empty_symint({a.sym_size(0), b.sym_size(0)},
                                a.options().dtype(dtype));
  require_rows(out, "scaled_product");
  return computed(out, [&] {
    if (set_to_nan(out, seen)) return;
    if (a.size(1) == 0 && b.size(1) == 0) {
      out.zero_();
      return;
    }
    const Factor x(a, a_scales, a_format, a_scaling, a_square, a_amax);
    const Factor y(b, b_scales, b_format, b_scaling, b_square, b_amax);
    swamp::product(matrix_of(out), x.matrix, y.matrix);
  });
}

// value_product() is a * b^T of matrices of values, with the sums of product().
// A scale is one for all, or one for each row of a or b, or for each block of
// `block` elements of a row. A matrix of float32 values makes the product one
// of float32. NVFP4 has the amax of the tensors instead of scales. Otherwise as
// scaled_product().
Tensor value_product(const Tensor& a, const Tensor& b,
                     const OptionalTensor& a_scale,
                     const OptionalTensor& b_scale,
                     const OptionalTensor& a_amax, const OptionalTensor& b_amax,
                     at::ScalarType dtype, at::TensorList seen,
                     std::int64_t block) {
  require_matrix(a, "a");
  require_matrix(b, "b");
  Tensor out = at::empty_symint({a.sym_size(0), b.sym_size(0)},
                                a.options().dtype(dtype));
  require_rows(out, "value_product");
  return computed(out, [&] {
    if (set_to_nan(out, seen)) return;
    const bool wide =
        a.scalar_type() == at::kFloat || b.scalar_type() == at::kFloat;
    const auto type = wide ? at::kFloat : at::kBFloat16;
    const Tensor x = resolved(a.to(type)), y = resolved(b.to(type));
    ProductOptions options;
    ProductScales scales;
    scales.terms = static_cast<std::size_t>(block);
    const auto steps = static_cast<std::int64_t>(
        scales.blocks(static_cast<std::size_t>(x.size(1))));
    // Returns scales [rows, steps], which may repeat; undefined if one for all
    // is in alpha.
    const auto scales_of = [&](const OptionalTensor& scale, const Tensor& of) {
      if (!is_defined(scale)) return Tensor();
      if (scale->numel() == 1 && of.size(0) * steps != 1) {
        options.alpha *= scale->item<float>();
        return Tensor();
      }
      const Tensor all = scale->to(at::kFloat);
      return (of.size(0) == 0 ? all.new_empty({0, steps})
                              : all.view({of.size(0), -1}))
          .expand({-1, steps});
    };
    Tensor a_scales = scales_of(a_scale, x), b_scales = scales_of(b_scale, y);
    if (a_scales.defined() || b_scales.defined()) {
      const auto or_one = [&](const Tensor& one, const Tensor& of) {
        return one.defined() ? one
                             : at::ones({}, out.options().dtype(at::kFloat))
                                   .expand({of.size(0), steps});
      };
      a_scales = or_one(a_scales, x).contiguous();
      b_scales = or_one(b_scales, y).t().contiguous();
      scales.a = data_of<float>(a_scales);
      scales.b = data_of<float>(b_scales);
      options.scales = &scales;
    }
    if (is_defined(a_amax) && is_defined(b_amax)) {
      options.alpha =
          nvfp4_factor(a_amax->item<float>(), b_amax->item<float>());
    }
    Tensor sums = out;
    if (dtype != type && dtype != at::kFloat) {
      sums = at::empty(out.sizes(), out.options().dtype(at::kFloat));
    }
    swamp::product(matrices_of(sums), matrices_of(x),
                   matrices_of(y).transposed(), options);
    if (!sums.is_same(out)) out.copy_(sums);
  });
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(swamp, m) {
  constexpr auto kNone = Derivative::kNone;
  define<&quantize, kNone>(
      m,
      "quantize(Tensor x, int format, float scale=1.0, int rounding=0, "
      "int policy=0, int seed=0, Tensor? random=None) -> "
      "(Tensor, Tensor, Tensor)");
  define<&quantize_by, kNone>(
      m,
      "_quantize_by(Tensor x, Tensor scale, int format, int rounding=0, "
      "int policy=0) -> (Tensor, Tensor, Tensor)");
  define<&values_by, kNone>(
      m,
      "_values_by(Tensor x, Tensor scale, int format, int rounding=0, "
      "int policy=0) -> (Tensor, Tensor, Tensor)");
  define<&dequantize, kNone>(
      m,
      "dequantize(Tensor codes, int format, ScalarType dtype, "
      "float scale=1.0) -> Tensor");
  define<&amax, kNone>(m, "amax(Tensor x, bool skip_nan=True) -> Tensor");
  define<&amax_and_seen, kNone>(m,
                                "_amax_and_seen(Tensor x) -> (Tensor, Tensor)");
  define<&hadamard_transform, kNone>(m,
                                     "hadamard_transform(Tensor x) -> Tensor");
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
  define<&value_product, kNone>(
      m,
      "_value_product(Tensor a, Tensor b, Tensor? a_scale, Tensor? b_scale, "
      "Tensor? a_amax, Tensor? b_amax, ScalarType dtype, Tensor[] seen, "
      "int block=0) -> Tensor");
  define<&dequantize_blocks, kNone>(
      m,
      "dequantize_blocks(Tensor codes, Tensor scales, int format, "
      "int scaling, ScalarType dtype, int block=0, bool square=False, "
      "Tensor? tensor_amax=None) -> Tensor");
  define<&scaled_product, kNone>(
      m,
      "_scaled_product(Tensor a, Tensor a_scales, int a_format, "
      "int a_scaling, bool a_square, Tensor? a_amax, Tensor b, "
      "Tensor b_scales, int b_format, int b_scaling, bool b_square, "
      "Tensor? b_amax, ScalarType dtype, Tensor[] seen) -> Tensor");
}

}  // namespace swamp::aten
