// A product is divided into parts whose float32 copies fit into the scratch
// memory: matrices of a batch, else blocks of one matrix, and steps of k only
// if a block with all of k does not fit. The partial sums stay in float32 and
// are rounded once. The second half chooses and measures the way of a class of
// products.
#include "master/aten/product.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>

namespace swamp::aten {
namespace {

// blas() sets out = beta * out + alpha * a b, all float32.
void blas(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b,
          const at::Scalar& beta, const at::Scalar& alpha) {
  at::Tensor result = out;
  if (out.size(0) == 1) {
    result = out[0];
    at::cpu::addmm_(result, a[0], b[0], beta, alpha);
  } else {
    at::cpu::baddbmm_(result, a, b, beta, alpha);
  }
}

// PyTorch has an operator for inductor that computes x w^T + bias by oneDNN. On
// AMD's CPUs it takes half the time of PyTorch's float32 BLAS. has_one_dnn()
// returns whether this PyTorch has it and the user did not turn oneDNN off.
using Linear = at::Tensor(const at::Tensor& x, const at::Tensor& w,
                          const std::optional<at::Tensor>& bias,
                          c10::string_view attribute,
                          c10::List<std::optional<at::Scalar>> scalars,
                          std::optional<c10::string_view> algorithm);
const std::optional<c10::TypedOperatorHandle<Linear>>& linear() {
  using Handle = std::optional<c10::TypedOperatorHandle<Linear>>;
  static const Handle handle = []() -> Handle {
    try {
      const auto found = c10::Dispatcher::singleton().findSchema(
          {"mkldnn::_linear_pointwise", ""});
      if (!found || !found->hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
        return std::nullopt;
      }
      return found->typed<Linear>();
    } catch (const c10::Error&) {  // another signature
      return std::nullopt;
    }
  }();
  return handle;
}

bool has_one_dnn() {
  return at::globalContext().userEnabledMkldnn() && linear().has_value();
}

at::Tensor one_dnn(const at::Tensor& a, const at::Tensor& b,
                   const std::optional<at::Tensor>& bias) {
  return linear()
      ->call(a[0], b[0].t(), bias, "none",
             c10::List<std::optional<at::Scalar>>(), std::nullopt)
      .unsqueeze(0);
}

// multiply_part() computes a product in steps of `k_count` of the k elements
// that are summed, so that the float32 copies of a step fit into the scratch
// memory. The partial sums stay in float32 and are rounded once.
void multiply_part(const Product& product, std::int64_t k_count, Way way,
                   Scratch& scratch) {
  const std::int64_t start = scratch.mark();
  const bool rounded = product.out.scalar_type() != at::kFloat;
  const bool simple = k_count >= product.k() && product.alpha.equal(1);
  // Whether self is one row that is added to all rows: the bias of a linear
  // layer.
  const bool has_bias = product.self.defined() && product.beta.equal(1) &&
                        product.self.stride(1) == 0;
  if (way == Way::kOneDnn && rounded && simple &&
      (has_bias || !product.self.defined())) {
    std::optional<at::Tensor> bias;
    if (has_bias) bias = scratch.widened(product.self[0][0].contiguous());
    convert(product.out, one_dnn(scratch.widened(product.a),
                                 scratch.widened(product.b), bias));
    scratch.release(start);
    return;
  }
  const at::Tensor out = rounded ? scratch.like(product.out) : product.out;
  if (product.self.defined()) out.copy_(product.self);
  at::Scalar beta = product.beta;
  const std::int64_t operands = scratch.mark();
  for (std::int64_t k = 0; k < product.k(); k += k_count) {
    const std::int64_t count = std::min(k_count, product.k() - k);
    const at::Tensor a = scratch.widened(product.a.narrow(2, k, count));
    const at::Tensor b = scratch.widened(product.b.narrow(1, k, count));
    if (way == Way::kOneDnn) {
      const at::Tensor partial = one_dnn(a, b, std::nullopt);
      if (beta.equal(0)) {
        out.zero_();
      } else if (!beta.equal(1)) {
        out.mul_(beta);
      }
      out.add_(partial, product.alpha);
    } else {
      blas(out, a, b, beta, product.alpha);
    }
    beta = 1;
    scratch.release(operands);
  }
  if (rounded) convert(product.out, out);
  scratch.release(start);
}

// for_each_part() divides `total` into nearly equal parts of at most `most`,
// and calls visit(begin, count) for each.
template <class Visit>
void for_each_part(std::int64_t total, std::int64_t most, Visit visit) {
  const std::int64_t parts = (total + most - 1) / most;
  const std::int64_t count = (total + parts - 1) / parts;
  for (std::int64_t begin = 0; begin < total; begin += count) {
    visit(begin, std::min(count, total - begin));
  }
}

}  // namespace

// Computes parts that fit into the scratch memory: as many matrices of the
// batch as fit, or else blocks of one matrix. It splits k only if a block with
// all of k does not fit.
void multiply(const Product& product, Way way) {
  // 64 floats less, because every copy is aligned.
  constexpr std::int64_t kFloats = kScratchFloats - 64;
  constexpr std::int64_t kMostSide = 2048;
  const at::AutoDispatchBelowADInplaceOrView guard;
  Scratch scratch;
  if (way == Way::kOneDnn && !has_one_dnn()) way = Way::kFloat32;
  const std::int64_t m = product.m(), n = product.n(), k = product.k();
  const std::int64_t floats = m * k + k * n + m * n;
  if (floats <= kFloats) {
    const std::int64_t matrices = way == Way::kOneDnn ? 1 : kFloats / floats;
    for_each_part(product.batch(), matrices, [&](auto begin, auto count) {
      multiply_part(product.narrowed(0, begin, count), k, way, scratch);
    });
    return;
  }
  const std::int64_t rows = std::min(m, kMostSide);
  const std::int64_t columns = std::min(n, kMostSide);
  const std::int64_t k_most = (kFloats - rows * columns) / (rows + columns);
  const std::int64_t k_parts = (k + k_most - 1) / k_most;
  for (std::int64_t i = 0; i < product.batch(); ++i) {
    const Product matrix = product.narrowed(0, i, 1);
    for_each_part(m, rows, [&](auto row, auto row_count) {
      const Product band = matrix.narrowed(1, row, row_count);
      for_each_part(n, columns, [&](auto column, auto column_count) {
        multiply_part(band.narrowed(2, column, column_count),
                      (k + k_parts - 1) / k_parts, way, scratch);
      });
    });
  }
}

namespace {

// Layout is what of an operand's strides changes the speed of a kernel.
enum class Order { kRows, kColumns, kOther };  // what is adjacent in memory
constexpr int kLayouts = 6;
struct Layout {
  Order order;
  bool shared;  // the matrices of the batch are one

  int index() const { return 2 * static_cast<int>(order) + (shared ? 1 : 0); }
};

Layout layout_of(const at::Tensor& tensor) {
  const auto d = tensor.dim() - 2;
  const auto adjacent = [&](std::int64_t inner, std::int64_t outer) {
    return (tensor.stride(inner) == 1 || tensor.size(inner) == 1) &&
           (tensor.stride(outer) >= tensor.size(inner) ||
            tensor.size(outer) == 1);
  };
  return {adjacent(d + 1, d)   ? Order::kRows
          : adjacent(d, d + 1) ? Order::kColumns
                               : Order::kOther,
          d == 1 && tensor.size(0) > 1 && tensor.stride(0) == 0};
}

// example() is an operand of a measurement.
at::Tensor example(bool batched, std::int64_t rows, std::int64_t columns,
                   Layout layout, at::ScalarType type) {
  const std::int64_t batch = batched ? 2 : 1;
  const auto ones = [&](std::int64_t m, std::int64_t n) {
    return at::full({layout.shared ? 1 : batch, m, n}, 1.0,
                    at::TensorOptions().dtype(type))
        .expand({batch, m, n});
  };
  if (layout.order == Order::kRows) return ones(rows, columns);
  if (layout.order == Order::kColumns) {
    return ones(columns, rows).transpose(1, 2);
  }
  return ones(rows, 2 * columns).slice(2, 0, std::nullopt, 2);
}

}  // namespace

Way way_of(const at::Tensor& a, const at::Tensor& b, bool wide) {
  constexpr int kLevels = kSizeLevels * kSizeLevels * kSizeLevels;
  static std::array<Choice, 2 * 2 * 2 * kLayouts * kLayouts * kLevels>
      choices{};
  const auto d = a.dim();
  const at::ScalarType type = a.scalar_type();
  const bool batched = d == 3 && a.size(0) > 1;
  const Layout a_layout = layout_of(a), b_layout = layout_of(b);
  const int m = size_level(a.size(d - 2)), k = size_level(a.size(d - 1)),
            n = size_level(b.size(d - 1));
  int index = 0;
  for (const bool one : {wide, type == at::kHalf, batched}) {
    index = 2 * index + (one ? 1 : 0);
  }
  for (const Layout& layout : {a_layout, b_layout}) {
    index = kLayouts * index + layout.index();
  }
  for (const int level : {m, n, k}) index = index * kSizeLevels + level;
  const auto prepare = [&](bool small) {
    const std::int64_t rows = size_of_level(m, small),
                       columns = size_of_level(n, small),
                       sums = size_of_level(k, small);
    const at::Tensor x = example(batched, rows, sums, a_layout, type);
    const at::Tensor y = example(batched, sums, columns, b_layout, type);
    const at::Tensor out = at::empty({x.size(0), rows, columns}, x.options());
    const Product product{out, {}, x, y, 0, 1};
    Race race;
    if (!wide) {
      race[0] = [=, target = batched ? out : out[0]]() mutable {
        if (batched) {
          at::cpu::bmm_out(target, x, y);
        } else {
          at::cpu::mm_out(target, x[0], y[0]);
        }
      };
    }
    race[1] = [=] { multiply(product, Way::kFloat32); };
    if (has_one_dnn()) race[2] = [=] { multiply(product, Way::kOneDnn); };
    return race;
  };
  const Way way = choose(choices[static_cast<std::size_t>(index)], prepare);
  return wide && way == Way::kNative ? Way::kFloat32 : way;
}

}  // namespace swamp::aten
