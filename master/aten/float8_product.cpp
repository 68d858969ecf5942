// Products of matrices in formats of at most 8 bits: of codes, with exact sums
// within a block, or of their values, with the sums of product().
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <cmath>
#include <limits>
#include <utility>

#include "master/aten/checks.h"
#include "master/aten/float8.h"
#include "master/aten/overrides.h"
#include "master/aten/registration.h"
#include "master/aten/tensor.h"
#include "swamp/product.h"

namespace swamp::aten {
namespace {

using at::Tensor;

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
  define<&value_product, kNone>(
      m,
      "_value_product(Tensor a, Tensor b, Tensor? a_scale, Tensor? b_scale, "
      "Tensor? a_amax, Tensor? b_amax, ScalarType dtype, Tensor[] seen, "
      "int block=0) -> Tensor");
  define<&scaled_product, kNone>(
      m,
      "_scaled_product(Tensor a, Tensor a_scales, int a_format, "
      "int a_scaling, bool a_square, Tensor? a_amax, Tensor b, "
      "Tensor b_scales, int b_format, int b_scaling, bool b_square, "
      "Tensor? b_amax, ScalarType dtype, Tensor[] seen) -> Tensor");
}

}  // namespace swamp::aten
