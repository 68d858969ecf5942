// PyTorch's arithmetic of several operations, whose loops use fused
// multiply-add on some CPUs: with `reproducible` it is composed of operators
// that are one operation each, so its bits are the same on every CPU. Of 16
// bits it is computed in float32 and rounded once.
#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/_index_put_impl_native.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/abs_cpu_dispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/addcmul_cpu_dispatch.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/arange_cpu_dispatch.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/fmax.h>
#include <ATen/ops/index_add_cpu_dispatch.h>
#include <ATen/ops/lerp_cpu_dispatch.h>
#include <ATen/ops/linspace_cpu_dispatch.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/neg_cpu_dispatch.h>
#include <ATen/ops/polar_cpu_dispatch.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scatter_add_cpu_dispatch.h>
#include <ATen/ops/sgn_cpu_dispatch.h>
#include <ATen/ops/sqrt_cpu_dispatch.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sub_cpu_dispatch.h>
#include <ATen/ops/uniform_cpu_dispatch.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "master/aten/checks.h"
#include "master/aten/layout.h"
#include "master/aten/overrides.h"
#include "master/aten/row_tensors.h"
#include "master/aten/tensor.h"
#include "swamp/moe.h"

namespace swamp::aten {
namespace {

using at::Scalar;
using at::ScalarType;
using at::Tensor;
using Guard = at::AutoDispatchBelowADInplaceOrView;

bool is_complex(ScalarType type) {
  return type == at::kComplexFloat || type == at::kComplexDouble;
}

// wide() converts an operand to the dtype of the result, or to float32 for
// results of 16 bits. A result that is made of it and is not written to a
// tensor of the caller has to be rounded.
Tensor wide(const Tensor& x, ScalarType type) {
  return x.to(is_half(type) ? at::kFloat : type);
}

// Sums are a + alpha * b and a - alpha * b. PyTorch's own, of alpha * b and an
// alpha of 1, has its checks of shapes, of dtypes and of the result's memory.
struct Sum {
  // is_taken() returns whether the product is an operation of its own; `to` is
  // where the result is written.
  static bool is_taken(const Tensor& a, const Tensor& b, const Scalar& alpha,
                       const Tensor* to = nullptr) {
    if (alpha.equal(1) || !is_reproducible() || alpha.isBoolean()) return false;
    const ScalarType type = at::result_type(a, b);
    return a.scalar_type() != at::kBool && b.scalar_type() != at::kBool &&
           b.is_cpu() &&
           ((is_real(type) && !alpha.isComplex()) || is_complex(type)) &&
           (to == nullptr || c10::canCast(type, to->scalar_type()));
  }
  static Tensor product(const Tensor& a, const Tensor& b, const Scalar& alpha) {
    const Tensor found = at::mul(wide(b, at::result_type(a, b)), alpha);
    // PyTorch would round a tensor without dimensions to the dtype of the
    // other.
    return found.dim() == 0 && a.dim() != 0 ? found.unsqueeze(0) : found;
  }

  template <Tensor (*kStock)(const Tensor&, const Tensor&, const Scalar&)>
  static Tensor value(const Tensor& a, const Tensor& b, const Scalar& alpha) {
    if (!is_taken(a, b, alpha)) return kStock(a, b, alpha);
    const Guard guard;
    const ScalarType type = at::result_type(a, b);
    return as_result(kStock(a, product(a, b, alpha), 1).to(type), {a, b});
  }
  template <Tensor& (*kStock)(Tensor&, const Tensor&, const Scalar&)>
  static Tensor& in_place(Tensor& a, const Tensor& b, const Scalar& alpha) {
    if (!is_taken(a, b, alpha, &a)) return kStock(a, b, alpha);
    const Guard guard;
    return kStock(a, product(a, b, alpha), 1);
  }
  template <Tensor& (*kStock)(const Tensor&, const Tensor&, const Scalar&,
                              Tensor&)>
  static Tensor& out(const Tensor& a, const Tensor& b, const Scalar& alpha,
                     Tensor& out) {
    if (!is_taken(a, b, alpha, &out)) return kStock(a, b, alpha, out);
    const Guard guard;
    return kStock(a, product(a, b, alpha), 1, out);
  }
};

// Sums of alpha * source by indices; PyTorch's own of an alpha of 1 is the same
// everywhere. Of 16 bits it adds row after row, rounded each; swamp adds all
// rows of an index in float32.
struct IndexSum {
  // of_rows() computes a sum along the first dimension, or returns false if it
  // is PyTorch's: of few or short rows, or wrong arguments. It sets `to` to the
  // memory of the sum: a, or a new tensor.
  static bool of_rows(const Tensor& a, std::int64_t dim, const Tensor& index,
                      const Tensor& source, bool in_place, Tensor& to) {
    const ScalarType type = a.scalar_type();
    if (!is_half(type) || !is_switched(type) || !is_plain(a, type) ||
        !is_plain(source, type) || a.dim() < 2 || source.dim() != a.dim() ||
        (dim != 0 && dim != -a.dim()) || index.dim() != 1 ||
        !is_plain(index, at::kLong) || source.numel() < kLeastElements ||
        source.size(0) != index.size(0) || !a.is_contiguous() ||
        source.sizes().slice(1) != a.sizes().slice(1) || a.numel() == 0 ||
        a.numel() < kLeastColumns * a.size(0) ||
        index.size(0) < a.size(0) / 4 || share_memory(a, source) ||
        share_memory(a, index)) {
      return false;
    }
    const Guard guard;
    const Tensor rows = row_major(source), base = row_major(a),
                 places = index.contiguous();
    const auto* const place = places.const_data_ptr<std::int64_t>();
    const std::int64_t size = a.size(0);
    for (std::int64_t i = 0; i < index.size(0); ++i) {
      if (place[i] < 0 || place[i] >= size) return false;
    }
    to = in_place ? a : at::empty_like(a);
    mutable_data(to);
    translated([&] {
      swamp::moe_add(matrix_of(base, a.dim() - 1), place,
                     matrix_of(rows, a.dim() - 1), matrix_of(to, a.dim() - 1));
    });
    return true;
  }

  static bool is_taken(const Tensor& source, const Scalar& alpha) {
    return !alpha.equal(1) && is_reproducible() && source.is_cpu() &&
           source.is_floating_point() && !alpha.isComplex() &&
           !alpha.isBoolean();
  }
  // sum() calls PyTorch's own, stock(source, alpha).
  template <class Stock>
  static decltype(auto) sum(const Tensor& source, const Scalar& alpha,
                            const Stock& stock) {
    if (!is_taken(source, alpha)) return stock(source, alpha);
    const Guard guard;
    return stock(at::mul(source, alpha), 1);
  }
  static Tensor value(const Tensor& a, std::int64_t dim, const Tensor& index,
                      const Tensor& source, const Scalar& alpha) {
    return sum(source, alpha, [&](const Tensor& x, const Scalar& factor) {
      Tensor found;
      if (is_one(factor) && of_rows(a, dim, index, x, false, found)) {
        return found;
      }
      return at::cpu::index_add(a, dim, index, x, factor);
    });
  }
  static Tensor& in_place(Tensor& a, std::int64_t dim, const Tensor& index,
                          const Tensor& source, const Scalar& alpha) {
    return sum(source, alpha,
               [&](const Tensor& x, const Scalar& factor) -> Tensor& {
                 Tensor found;
                 if (is_one(factor) && of_rows(a, dim, index, x, true, found)) {
                   return a;
                 }
                 return at::cpu::index_add_(a, dim, index, x, factor);
               });
  }
  static Tensor& out(const Tensor& a, std::int64_t dim, const Tensor& index,
                     const Tensor& source, const Scalar& alpha, Tensor& out) {
    return sum(source, alpha,
               [&](const Tensor& x, const Scalar& factor) -> Tensor& {
                 Tensor found;
                 if (out.scalar_type() == a.scalar_type() && is_one(factor) &&
                     of_rows(a, dim, index, x, false, found)) {
                   return write_out(found, {a, index, x}, out);
                 }
                 return at::cpu::index_add_outf(a, dim, index, x, factor, out);
               });
  }
};

// scatter_add() with one index for a whole row is index_add().
struct ScatterSum {
  static bool of_rows(const Tensor& a, std::int64_t dim, const Tensor& index,
                      const Tensor& source, bool in_place, Tensor& to) {
    if (!is_half(a.scalar_type()) || !is_plain(index, at::kLong) ||
        index.dim() < 2 || index.sizes() != source.sizes()) {
      return false;
    }
    Tensor rows = index;
    for (std::int64_t i = index.dim() - 1; i > 0; --i) {
      if (index.size(i) == 0 || (index.size(i) != 1 && index.stride(i) != 0)) {
        return false;
      }
      rows = rows.select(i, 0);
    }
    return IndexSum::of_rows(a, dim, rows, source, in_place, to);
  }
  static Tensor value(const Tensor& a, std::int64_t dim, const Tensor& index,
                      const Tensor& source) {
    Tensor found;
    return of_rows(a, dim, index, source, false, found)
               ? found
               : at::cpu::scatter_add(a, dim, index, source);
  }
  static Tensor& in_place(Tensor& a, std::int64_t dim, const Tensor& index,
                          const Tensor& source) {
    Tensor found;
    return of_rows(a, dim, index, source, true, found)
               ? a
               : at::cpu::scatter_add_(a, dim, index, source);
  }
  static Tensor& out(const Tensor& a, std::int64_t dim, const Tensor& index,
                     const Tensor& source, Tensor& out) {
    Tensor found;
    return out.scalar_type() == a.scalar_type() &&
                   of_rows(a, dim, index, source, false, found)
               ? write_out(found, {a, index, source}, out)
               : at::cpu::scatter_add_outf(a, dim, index, source, out);
  }
};

// index_put() adds rows at indices of the first dimension, as the gradient of
// x[index] does, by index_add().
Tensor& index_put(Tensor& x, const c10::List<std::optional<Tensor>>& indices,
                  const Tensor& values, bool accumulate, bool is_checked) {
  Tensor found;
  if (accumulate && indices.size() == 1 && is_half(x.scalar_type())) {
    const std::optional<Tensor> index = indices.get(0);
    if (index.has_value() && index->defined() &&
        index->scalar_type() == at::kLong && index->dim() > 0 &&
        values.dim() == index->dim() + x.dim() - 1 &&
        values.sizes().slice(0, static_cast<std::size_t>(index->dim())) ==
            index->sizes() &&
        index->numel() != 0) {
      const Guard guard;
      const Tensor source =
          index->dim() == 1 ? values : values.flatten(0, index->dim() - 1);
      if (IndexSum::of_rows(x, 0, index->flatten(), source, true, found)) {
        return x;
      }
    }
  }
  return at::native::_index_put_impl_(x, indices, values, accumulate,
                                      is_checked);
}

// a + (value * b) * c, by PyTorch's sum. Tensors of several dtypes are
// converted first to the one that PyTorch promotes them to.
struct SumOfProduct {
  static ScalarType type_of(const Tensor& a, const Tensor& b, const Tensor& c) {
    at::native::ResultTypeState state;
    for (const Tensor* x : {&a, &b, &c}) {
      state = at::native::update_result_type_state(*x, state);
    }
    return at::native::result_type(state);
  }
  // is_taken() takes as `to` where the result is written, if anywhere.
  static bool is_taken(const Tensor& a, const Tensor& b, const Tensor& c,
                       const Scalar& value, const Tensor* to = nullptr) {
    if (!is_reproducible() || value.isComplex() ||
        !is_plain(b, b.scalar_type()) || !is_plain(c, c.scalar_type())) {
      return false;
    }
    const ScalarType type = type_of(a, b, c);
    return is_real(type) && at::are_expandable(a.sizes(), b.sizes()) &&
           at::are_expandable(a.sizes(), c.sizes()) &&
           at::are_expandable(b.sizes(), c.sizes()) &&
           (to == nullptr || c10::canCast(type, to->scalar_type()));
  }
  static Tensor product(const Tensor& a, const Tensor& b, const Tensor& c,
                        const Scalar& value) {
    const ScalarType type = type_of(a, b, c);
    Tensor found = wide(b.to(type), type);
    if (!value.equal(1)) found = at::mul(found, value);
    found = at::mul(found, wide(c.to(type), type));
    // As in Sum.
    return found.dim() == 0 && a.dim() != 0 ? found.unsqueeze(0) : found;
  }

  static Tensor value(const Tensor& a, const Tensor& b, const Tensor& c,
                      const Scalar& value) {
    if (!is_taken(a, b, c, value)) return pointwise_addcmul(a, b, c, value);
    const Guard guard;
    return as_result(at::add(a, product(a, b, c, value)).to(type_of(a, b, c)),
                     {a, b, c});
  }
  static Tensor& in_place(Tensor& a, const Tensor& b, const Tensor& c,
                          const Scalar& value) {
    if (!is_taken(a, b, c, value, &a)) {
      return pointwise_addcmul_(a, b, c, value);
    }
    const Guard guard;
    return a.add_(product(a, b, c, value));
  }
  static Tensor& out(const Tensor& a, const Tensor& b, const Tensor& c,
                     const Scalar& value, Tensor& out) {
    if (!is_taken(a, b, c, value, &out)) {
      return at::cpu::addcmul_outf(a, b, c, value, out);
    }
    const Guard guard;
    return at::add_out(out, a, product(a, b, c, value));
  }
};

// a + weight * (b - a), from the nearer end as PyTorch.
struct Lerp {
  static bool is_taken(const Tensor& a, const Tensor& b) {
    const ScalarType type = a.scalar_type();
    return is_reproducible() && is_real(type) && is_plain(b, type) &&
           at::are_expandable(a.sizes(), b.sizes());
  }
  static bool is_taken(const Tensor& a, const Tensor& b, const Scalar& weight) {
    return !weight.isComplex() && is_taken(a, b);
  }
  static bool is_taken(const Tensor& a, const Tensor& b, const Tensor& weight) {
    return is_taken(a, b) && is_plain(weight, a.scalar_type()) &&
           at::are_expandable(a.sizes(), weight.sizes()) &&
           at::are_expandable(b.sizes(), weight.sizes());
  }

  static Tensor computed(const Tensor& a, const Tensor& b,
                         const Scalar& weight) {
    const ScalarType type = a.scalar_type();
    const Tensor from = wide(a, type), to = wide(b, type),
                 step = at::sub(to, from);
    // As a number of the dtype that PyTorch computes in.
    const double w = type == at::kDouble
                         ? weight.toDouble()
                         : static_cast<double>(weight.to<float>());
    if (std::fabs(w) < 0.5) return at::add(from, at::mul(step, w));
    const double rest = type == at::kDouble
                            ? 1 - w
                            : static_cast<double>(1 - weight.to<float>());
    return at::sub(to, at::mul(step, rest));
  }
  static Tensor computed(const Tensor& a, const Tensor& b,
                         const Tensor& weight) {
    const ScalarType type = a.scalar_type();
    const Tensor from = wide(a, type), to = wide(b, type),
                 step = at::sub(to, from), w = wide(weight, type);
    return at::where(w.abs().lt(0.5), at::add(from, at::mul(step, w)),
                     at::sub(to, at::mul(step, w.neg().add(1))));
  }

  template <class Weight>
  static Tensor result_of(const Tensor& a, const Tensor& b,
                          const Weight& weight) {
    const Tensor found = computed(a, b, weight).to(a.scalar_type());
    if constexpr (std::is_same_v<Weight, Tensor>) {
      return as_result(found, {a, b, weight});
    } else {
      return as_result(found, {a, b});
    }
  }

  template <class Weight>
  static Tensor value(const Tensor& a, const Tensor& b, const Weight& weight) {
    if (auto y = pointwise_lerp(a, b, weight)) return *y;
    if (!is_taken(a, b, weight)) return at::cpu::lerp(a, b, weight);
    const Guard guard;
    return result_of(a, b, weight);
  }
  template <class Weight>
  static Tensor& in_place(Tensor& a, const Tensor& b, const Weight& weight) {
    if (pointwise_lerp_(a, b, weight)) return a;
    if (!is_taken(a, b, weight)) return at::cpu::lerp_(a, b, weight);
    const Guard guard;
    const Tensor found = computed(a, b, weight);
    if (found.sizes() != a.sizes()) return at::cpu::lerp_(a, b, weight);
    at::assert_no_internal_overlap(a);
    return a.copy_(found);
  }
  template <class Weight>
  static Tensor& out(const Tensor& a, const Tensor& b, const Weight& weight,
                     Tensor& out) {
    if (!is_taken(a, b, weight) || out.scalar_type() != a.scalar_type()) {
      return at::cpu::lerp_outf(a, b, weight, out);
    }
    const Guard guard;
    return write_out(result_of(a, b, weight), {a, b}, out);
  }
};

// Products, signs and absolute values of complex numbers, and complex numbers
// of polar coordinates.
struct Complex {
  static bool is_taken(const Tensor& a, const Tensor& b) {
    return (a.is_complex() || b.is_complex()) && is_reproducible() &&
           a.is_cpu() && b.is_cpu() && is_complex(at::result_type(a, b));
  }
  static Tensor product(const Tensor& a, const Tensor& b) {
    const Guard guard;
    const ScalarType type = at::result_type(a, b);
    const Tensor x = at::view_as_real(a.to(type)),
                 y = at::view_as_real(b.to(type));
    const Tensor x_re = x.select(-1, 0), x_im = x.select(-1, 1),
                 y_re = y.select(-1, 0), y_im = y.select(-1, 1);
    return at::complex(at::sub(at::mul(x_re, y_re), at::mul(x_im, y_im)),
                       at::add(at::mul(x_re, y_im), at::mul(x_im, y_re)));
  }

  static Tensor value(const Tensor& a, const Tensor& b) {
    return is_taken(a, b) ? as_result(product(a, b), {a, b})
                          : pointwise_mul(a, b);
  }
  static Tensor& in_place(Tensor& a, const Tensor& b) {
    if (!a.is_complex() || !is_taken(a, b)) return pointwise_mul_(a, b);
    const Guard guard;
    const Tensor found = product(a, b);
    if (found.sizes() != a.sizes()) return at::cpu::mul_(a, b);
    at::assert_no_internal_overlap(a);
    return a.copy_(found);
  }
  static Tensor& out(const Tensor& a, const Tensor& b, Tensor& out) {
    if (!out.is_complex() || !is_taken(a, b)) {
      return at::cpu::mul_outf(a, b, out);
    }
    const Guard guard;
    return write_out(as_result(product(a, b), {a, b}), {a, b}, out);
  }
  // Returns absolute values, by the larger part so that no square overflows.
  static Tensor magnitude(const Tensor& x) {
    const Tensor parts = at::view_as_real(x).to(at::kDouble).abs(),
                 a = parts.select(-1, 0), b = parts.select(-1, 1),
                 most = at::fmax(a, b), ratio = at::minimum(a, b).div(most);
    const Tensor found = most.mul(ratio.mul(ratio).add(1).sqrt());
    // Their sum is nan if the other part than a 0 is.
    return at::where(most.eq(0), a.add(b), at::where(most.isinf(), most, found))
        .to(c10::toRealValueType(x.scalar_type()));
  }
  static Tensor sign(const Tensor& x) {
    const Tensor parts = at::view_as_real(x), size = magnitude(x),
                 is_zero = size.eq(0);
    const auto part = [&](std::int64_t i) {
      return parts.select(-1, i).div(size).masked_fill_(is_zero, 0);
    };
    return at::complex(part(0), part(1));
  }
  // PyTorch's own gives zeros either sign.
  static Tensor negative(const Tensor& x) {
    const Tensor parts = at::view_as_real(x);
    return at::complex(parts.select(-1, 0).neg(), parts.select(-1, 1).neg());
  }
  static bool is_taken(const Tensor& x) {
    return is_complex(x.scalar_type()) && is_reproducible() &&
           is_plain(x, x.scalar_type());
  }
  static Tensor& abs(const Tensor& x, Tensor& out) {
    if (!is_taken(x) || !can_hold(out, c10::toRealValueType(x.scalar_type()))) {
      return at::cpu::abs_outf(x, out);
    }
    const Guard guard;
    return write_out(magnitude(x), {x}, out);
  }
  template <Tensor (*kOurs)(const Tensor&), Tensor (*kStock)(const Tensor&)>
  static Tensor unary(const Tensor& x) {
    if (!is_taken(x)) return kStock(x);
    const Guard guard;
    return as_result(kOurs(x), {x});
  }
  template <Tensor (*kOurs)(const Tensor&), Tensor& (*kStock)(Tensor&)>
  static Tensor& unary_(Tensor& x) {
    if (!is_taken(x)) return kStock(x);
    const Guard guard;
    at::assert_no_internal_overlap(x);
    return x.copy_(kOurs(x));
  }
  template <Tensor (*kOurs)(const Tensor&),
            Tensor& (*kStock)(const Tensor&, Tensor&)>
  static Tensor& unary_out(const Tensor& x, Tensor& out) {
    if (!is_taken(x) || !can_hold(out, x.scalar_type())) return kStock(x, out);
    const Guard guard;
    return write_out(as_result(kOurs(x), {x}), {x}, out);
  }
  static Tensor& polar(const Tensor& abs, const Tensor& angle, Tensor& out) {
    const ScalarType type = abs.scalar_type();
    if (!is_reproducible() || (type != at::kFloat && type != at::kDouble) ||
        angle.scalar_type() != type ||
        out.scalar_type() != at::toComplexType(type)) {
      return at::cpu::polar_outf(abs, angle, out);
    }
    const Guard guard;
    return at::complex_out(out, at::mul(abs, angle.cos()),
                           at::mul(abs, angle.sin()));
  }
};

// PyTorch's square root is MKL's, which is not rounded correctly: it depends on
// the approximation of the CPU's rsqrtps. Of 16 bits it is the instruction.
struct Root {
  static bool is_taken(const Tensor& x) {
    return is_reproducible() &&
           (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble);
  }
  static Tensor computed(const Tensor& x) {
    const Guard guard;
    const Tensor y = empty_result(x.scalar_type(), {x});
    const Tensor from = has_order_of(x, y) ? x : at::empty_like(y).copy_(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "sqrt", [&] {
      const auto* const in = from.const_data_ptr<scalar_t>();
      auto* const out = y.data_ptr<scalar_t>();
      at::parallel_for(0, x.numel(), at::internal::GRAIN_SIZE,
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t i = begin; i < end; ++i) {
                           out[i] = std::sqrt(in[i]);
                         }
                       });
    });
    return y;
  }

  static Tensor value(const Tensor& input) {
    const Tensor x = as_float(input);
    return is_taken(x) ? computed(x) : at::cpu::sqrt(x);
  }
  static Tensor& in_place(Tensor& x) {
    if (!is_taken(x)) return at::cpu::sqrt_(x);
    const Guard guard;
    at::assert_no_internal_overlap(x);
    return x.copy_(computed(x));
  }
  static Tensor& out(const Tensor& input, Tensor& out) {
    const Tensor x = as_float(input);
    if (!is_taken(x) || !can_hold(out, x.scalar_type())) {
      return at::cpu::sqrt_outf(x, out);
    }
    const Guard guard;
    return write_out(computed(x), {x}, out);
  }
};

// From the nearer end, in float64.
Tensor& linspace(const Scalar& start, const Scalar& end, std::int64_t steps,
                 Tensor& out) {
  const bool has_parts = is_complex(out.scalar_type());
  if (!is_reproducible() || steps < 2 ||
      !(has_parts || (is_real(out.scalar_type()) && !start.isComplex() &&
                      !end.isComplex()))) {
    return at::cpu::linspace_outf(start, end, steps, out);
  }
  const Guard guard;
  const Tensor i = at::arange(steps, out.options().dtype(at::kDouble));
  const auto values = [&](double from, double to) {
    const double step = (to - from) / static_cast<double>(steps - 1);
    return at::where(i.lt(steps / 2), at::mul(i, step).add(from),
                     i.sub(steps - 1).mul(step).add(to));
  };
  if (!has_parts) {
    return write_out(values(start.toDouble(), end.toDouble()), {}, out);
  }
  const auto from = start.toComplexDouble(), to = end.toComplexDouble();
  return write_out(at::complex(values(from.real(), to.real()),
                               values(from.imag(), to.imag())),
                   {}, out);
}

// In float64. PyTorch's own has its checks, and the bits of whole numbers.
Tensor& arange(const Scalar& start, const Scalar& end, const Scalar& step,
               Tensor& out) {
  at::cpu::arange_outf(start, end, step, out);
  if (!is_reproducible() || !is_real(out.scalar_type()) ||
      (start.isIntegral(true) && step.isIntegral(true))) {
    return out;
  }
  const Guard guard;
  const Tensor i = at::arange(out.numel(), out.options().dtype(at::kDouble));
  return out.copy_(
      i.mul(step.toDouble()).add(start.toDouble()).view(out.sizes()));
}

// The numbers from 0 to 1 are exact; PyTorch multiplies and adds at once.
Tensor& uniform_(Tensor& x, double from, double to,
                 std::optional<at::Generator> generator) {
  const ScalarType type = x.scalar_type();
  if (!is_reproducible() || (from == 0 && to == 1) || !(from <= to) ||
      !std::isfinite(to - from) ||
      (type != at::kFloat && type != at::kDouble)) {
    return at::cpu::uniform_(x, from, to, std::move(generator));
  }
  const Guard guard;
  const double range = type == at::kDouble
                           ? to - from
                           : static_cast<double>(static_cast<float>(to) -
                                                 static_cast<float>(from));
  return at::cpu::uniform_(x, 0, 1, std::move(generator))
      .mul_(range)
      .add_(from);
}

}  // namespace

void register_arithmetic(torch::Library& library) {
  library.impl("add.Tensor", &Sum::value<&pointwise_add>);
  library.impl("add_.Tensor", &Sum::in_place<&pointwise_add_>);
  library.impl("add.out", &Sum::out<&at::cpu::add_outf>);
  library.impl("sub.Tensor", &Sum::value<&pointwise_sub>);
  library.impl("sub_.Tensor", &Sum::in_place<&pointwise_sub_>);
  library.impl("sub.out", &Sum::out<&at::cpu::sub_outf>);
  library.impl("index_add", &IndexSum::value);
  library.impl("index_add_", &IndexSum::in_place);
  library.impl("index_add.out", &IndexSum::out);
  library.impl("scatter_add", &ScatterSum::value);
  library.impl("scatter_add_", &ScatterSum::in_place);
  library.impl("scatter_add.out", &ScatterSum::out);
  library.impl("_index_put_impl_", &index_put);
  library.impl("addcmul", &SumOfProduct::value);
  library.impl("addcmul_", &SumOfProduct::in_place);
  library.impl("addcmul.out", &SumOfProduct::out);
  library.impl("lerp.Scalar", &Lerp::value<Scalar>);
  library.impl("lerp_.Scalar", &Lerp::in_place<Scalar>);
  library.impl("lerp.Scalar_out", &Lerp::out<Scalar>);
  library.impl("lerp.Tensor", &Lerp::value<Tensor>);
  library.impl("lerp_.Tensor", &Lerp::in_place<Tensor>);
  library.impl("lerp.Tensor_out", &Lerp::out<Tensor>);
  library.impl("mul.Tensor", &Complex::value);
  library.impl("mul_.Tensor", &Complex::in_place);
  library.impl("mul.out", &Complex::out);
  library.impl("polar.out", &Complex::polar);
  library.impl("abs.out", &Complex::abs);
  library.impl("sgn", &Complex::unary<&Complex::sign, &at::cpu::sgn>);
  library.impl("sgn_", &Complex::unary_<&Complex::sign, &at::cpu::sgn_>);
  library.impl("sgn.out",
               &Complex::unary_out<&Complex::sign, &at::cpu::sgn_outf>);
  library.impl("neg", &Complex::unary<&Complex::negative, &at::cpu::neg>);
  library.impl("neg_", &Complex::unary_<&Complex::negative, &at::cpu::neg_>);
  library.impl("neg.out",
               &Complex::unary_out<&Complex::negative, &at::cpu::neg_outf>);
  library.impl("sqrt", &Root::value);
  library.impl("sqrt_", &Root::in_place);
  library.impl("sqrt.out", &Root::out);
  library.impl("linspace.out", &linspace);
  library.impl("arange.start_out", &arange);
  library.impl("uniform_", &uniform_);
}

}  // namespace swamp::aten
