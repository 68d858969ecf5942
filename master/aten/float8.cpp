// Formats of at most 8 bits: whole tensors with one scale.
#include "master/aten/float8.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "master/aten/checks.h"
#include "master/aten/registration.h"
#include "master/aten/tensor.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;
using TwoTensors = std::tuple<Tensor, Tensor>;

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
         values_of<std::uint8_t>(bytes)});
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

}  // namespace

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

swamp::Tensor array_of(const Tensor& tensor, ScalarType type) {
  return {const_cast<void*>(const_data(tensor)),
          static_cast<std::size_t>(tensor.numel()), type};
}
swamp::Tensor array_of(const Tensor& tensor) {
  return array_of(tensor, *scalar_type(tensor.scalar_type()));
}

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

Tensor random_bytes(const OptionalTensor& random, const Tensor& x) {
  if (!is_defined(random)) return {};
  TORCH_CHECK(random->scalar_type() == at::kByte &&
                  random->sym_sizes() == x.sym_sizes(),
              "random: got the shape ", random->sym_sizes(), " of ",
              c10::toString(random->scalar_type()), ", expected ",
              x.sym_sizes(), " of Byte, as x");
  return row_major(*random);
}

float amax_of(const OptionalTensor& tensor) {
  return is_defined(tensor) ? tensor->item<float>()
                            : std::numeric_limits<float>::quiet_NaN();
}

float amax_or_nan(float amax, bool has_nan) {
  return has_nan ? std::numeric_limits<float>::quiet_NaN() : amax;
}

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
}

}  // namespace swamp::aten
