// PyTorch's operators mm, addmm, bmm, baddbmm, addbmm, addmv (so mv) and dot,
// and swamp::wgrad_gemm_accum. All forms are one Operator: run() either
// computes it by swamp::product(), or leaves it to PyTorch's kernel, which also
// refuses what is wrong. linear and bilinear, which PyTorch composes of other
// operators, are composed so that a bias is added before the result is rounded;
// lstm of float16 is computed in float32.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/addbmm_cpu_dispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/addmv_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bilinear.h>
#include <ATen/ops/bilinear_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/dot_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/lstm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include "master/aten/checks.h"
#include "master/aten/layout.h"
#include "master/aten/overrides.h"
#include "master/aten/registration.h"
#include "master/aten/row_tensors.h"
#include "master/aten/tensor.h"
#include "swamp/aten.h"
#include "swamp/moe.h"
#include "swamp/product.h"

namespace swamp::aten {
namespace {

bool is_number(const at::Scalar& scalar) {
  return (scalar.isFloatingPoint() || scalar.isIntegral(true)) &&
         !(std::abs(scalar.toDouble()) > std::numeric_limits<float>::max());
}

// Operator is the arguments of one of PyTorch's operators.
struct Operator {
  std::int64_t dimensions;  // of b: 1, or 2, or 3 with a batch
  const at::Tensor& a;
  const at::Tensor& b;
  const at::Tensor* self;  // null for mm and bmm
  at::Tensor* out;         // null for a new tensor
  at::Scalar beta = 0;
  at::Scalar alpha = 1;
  bool sums_batch = false;  // addbmm: the result is a matrix
  bool is_row = false;      // a is one row
};

std::atomic<bool> half_precision{false};
std::atomic<bool> reproducible{false};

// is_taken() returns whether swamp computes a product: under half_precision
// alone only if it is at least as fast as PyTorch's. Where a CPU multiplies
// tiles these are products of vectors, and, without a batch, small ones and
// those of few rows: up to two if the terms of the other factor are neighbours,
// up to four if its columns are. It is read as it lies, which takes the time.
// With a CPU's bfloat16 instruction they are those of up to eight rows or
// columns, and small ones.
bool is_taken(const Matrices& a, const Matrices& b, bool is_vector,
              at::ScalarType type) {
  if (is_vector || !prefers_onednn(type)) return true;
  const bool is_alone = a.batch == 1;
  const auto has_rows = [&](std::size_t by_terms, std::size_t by_columns) {
    return (a.rows <= by_terms && b.row_step == 1) ||
           (a.rows <= by_columns && b.column_step == 1);
  };
  const auto is_small = [](std::size_t most, auto... sizes) {
    return (static_cast<double>(sizes) * ...) <= static_cast<double>(most);
  };
  if (prefers_tiles(type)) {
    // oneDNN takes 15 us to begin, but PyTorch has loops for tiny products.
    // Fewer columns than a panel has take as long, and few results have few
    // chains of sums.
    constexpr std::size_t kLanes = 32, kMost = std::size_t{1} << 19,
                          kTiny = 4096, kFewResults = 255;
    return is_alone && ((b.columns >= 2 * kLanes && has_rows(2, 4)) ||
                        (is_small(kMost, a.rows, a.columns,
                                  std::max(b.columns, kLanes)) &&
                         !is_small(kTiny, a.rows, a.columns, b.columns) &&
                         !is_small(kFewResults, a.rows, b.columns)));
  }
  constexpr std::size_t kFew = 8, kSmall = std::size_t{1} << 16;
  return (b.columns <= kFew && a.column_step == 1) ||
         (is_alone && (has_rows(kFew, kFew) ||
                       (is_small(kSmall, a.rows, a.columns) &&
                        is_small(kSmall, b.rows, b.columns) &&
                        is_small(kSmall, a.rows, b.columns))));
}

bool run_vector(const Operator& op, at::Tensor& result);

// run() computes an operator and returns true. It writes nothing and returns
// false if PyTorch's own kernel must compute the operator, because that kernel
// is faster, or because the arguments are wrong, unusual or empty.
bool run(const Operator& op, at::Tensor& result) {
  const at::ScalarType type = op.a.scalar_type();
  const auto d = op.dimensions;
  if (!is_switched(type) || !has_product()) return false;
  if (d == 1) return run_vector(op, result);
  if (op.sums_batch) {
    if (prefers_tiles(type) || !is_plain(op.a, type) ||
        !is_plain(op.b, type) || op.a.dim() != d || op.b.dim() != d ||
        op.a.size(0) != op.b.size(0) || op.a.size(2) != op.b.size(1)) {
      return false;
    }
    const at::AutoDispatchBelowADInplaceOrView guard;
    const at::Tensor a = op.a.transpose(0, 1).flatten(1),
                     b = op.b.flatten(0, 1);
    return run({2, a, b, op.self, op.out, op.beta, op.alpha}, result);
  }
  if (!is_plain(op.a, type) || !is_plain(op.b, type) || op.a.dim() != d ||
      op.b.dim() != d || op.a.size(d - 1) != op.b.size(d - 2) ||
      (d == 3 && op.a.size(0) != op.b.size(0)) || op.a.numel() == 0 ||
      op.b.numel() == 0 || !is_number(op.beta) || !is_number(op.alpha)) {
    return false;
  }
  std::vector<std::int64_t> sizes = op.a.sizes().vec();
  sizes[static_cast<std::size_t>(d) - 1] = op.b.size(d - 1);
  if (op.self != nullptr && (!is_plain(*op.self, type) ||
                             !at::is_expandable_to(op.self->sizes(), sizes))) {
    return false;
  }
  const bool in_place = op.out != nullptr && op.self == op.out;
  bool resized = false;
  if (op.out != nullptr) {
    if (!is_plain(*op.out, type)) return false;
    resized = op.out->sizes() != sizes;
    if (resized && (in_place || op.out->numel() != 0 ||
                    op.out->is_alias_of(op.a) || op.out->is_alias_of(op.b) ||
                    (op.self != nullptr && op.out->is_alias_of(*op.self)))) {
      return false;
    }
    if (!resized) {
      if (op.out->numel() == 0 || !Layout(*op.out).disjoint ||
          share_memory(*op.out, op.a) || share_memory(*op.out, op.b) ||
          (op.self != nullptr && !in_place && !op.self->is_same(*op.out) &&
           op.self->numel() != 0 && share_memory(*op.out, *op.self))) {
        return false;
      }
    }
  }

  const at::AutoDispatchBelowADInplaceOrView guard;
  Matrices a, b, self, out;
  if (!to_matrices(op.a, a) || !to_matrices(op.b, b) ||
      !is_taken(a, b, op.is_row, type)) {
    return false;
  }
  ProductOptions options{op.alpha.toFloat(), op.beta.toFloat(), nullptr};
  if (op.self != nullptr && options.beta != 0) {
    if (!to_matrices(op.self->expand(sizes), self)) return false;
    options.self = &self;
  }
  if (op.out != nullptr && !resized && !to_matrices(*op.out, out)) return false;
  if (op.out == nullptr) {
    result = at::empty(sizes, op.a.options());
  } else {
    if (resized) at::native::resize_output(*op.out, sizes);
    result = *op.out;
  }
  mutable_data(result);
  to_matrices(result, out);
  if (in_place) self.data = out.data;
  translated([&] { product(out, a, b, options); });
  return true;
}

// run_vector() is run() with the vector b as the row a, which is faster than as
// a column.
bool run_vector(const Operator& op, at::Tensor& result) {
  const at::Tensor *self = op.self, *out = op.out;
  if (op.a.dim() != 2 || op.b.dim() != 1 || self->dim() > 1 ||
      (out != nullptr && (out->dim() != 1 || out->size(0) != op.a.size(0)))) {
    return false;
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  const auto row = [](const at::Tensor& vector) {
    return vector.dim() == 0 ? vector : vector.unsqueeze(0);
  };
  const at::Tensor added = row(*self);
  at::Tensor sums = out != nullptr ? row(*out) : at::Tensor();
  if (!run({2, row(op.b), op.a.t(),
            out != nullptr && out->is_same(*self) ? &sums : &added,
            out != nullptr ? &sums : nullptr, op.beta, op.alpha, false, true},
           result)) {
    return false;
  }
  result = result.select(0, 0);
  return true;
}

// The kernels of PyTorch's operators. stock() is PyTorch's own.
template <class Stock>
at::Tensor make(const Operator& op, Stock stock) {
  at::Tensor result;
  return run(op, result) ? result : stock();
}

template <class Stock>
at::Tensor& write(const Operator& op, Stock stock) {
  at::Tensor result;
  return run(op, result) ? *op.out : stock();
}

at::Tensor mm(const at::Tensor& a, const at::Tensor& b) {
  return make({2, a, b, nullptr, nullptr}, [&] { return at::cpu::mm(a, b); });
}

at::Tensor& mm_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  return write({2, a, b, nullptr, &out},
               [&]() -> at::Tensor& { return at::cpu::mm_out(out, a, b); });
}

at::Tensor bmm(const at::Tensor& a, const at::Tensor& b) {
  return make({3, a, b, nullptr, nullptr}, [&] { return at::cpu::bmm(a, b); });
}

at::Tensor& bmm_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  return write({3, a, b, nullptr, &out},
               [&]() -> at::Tensor& { return at::cpu::bmm_out(out, a, b); });
}

// The operators with a sum have the same three forms.
template <std::int64_t kDimensions, auto kStock, auto kStockInPlace,
          auto kStockOut, bool kSumsBatch = false>
struct Sum {
  using Tensor = at::Tensor;
  using Scalar = at::Scalar;

  static Tensor make(const Tensor& self, const Tensor& a, const Tensor& b,
                     const Scalar& beta, const Scalar& alpha) {
    return aten::make(
        {kDimensions, a, b, &self, nullptr, beta, alpha, kSumsBatch},
        [&] { return kStock(self, a, b, beta, alpha); });
  }
  static Tensor& in_place(Tensor& self, const Tensor& a, const Tensor& b,
                          const Scalar& beta, const Scalar& alpha) {
    return write(
        {kDimensions, a, b, &self, &self, beta, alpha, kSumsBatch},
        [&]() -> Tensor& { return kStockInPlace(self, a, b, beta, alpha); });
  }
  static Tensor& out(const Tensor& self, const Tensor& a, const Tensor& b,
                     const Scalar& beta, const Scalar& alpha, Tensor& result) {
    return write({kDimensions, a, b, &self, &result, beta, alpha, kSumsBatch},
                 [&]() -> Tensor& {
                   return kStockOut(result, self, a, b, beta, alpha);
                 });
  }
};
using Addmm = Sum<2, &at::cpu::addmm, &at::cpu::addmm_, &at::cpu::addmm_out>;
using Addmv = Sum<1, &at::cpu::addmv, &at::cpu::addmv_, &at::cpu::addmv_out>;
using Baddbmm =
    Sum<3, &at::cpu::baddbmm, &at::cpu::baddbmm_, &at::cpu::baddbmm_out>;
using Addbmm =
    Sum<3, &at::cpu::addbmm, &at::cpu::addbmm_, &at::cpu::addbmm_out, true>;

// sum_of_products() adds the products of two arrays: in float32 those of a row
// of kRow elements, then the rows in double.
double sum_of_products(const at::Tensor& a, const at::Tensor& b) {
  constexpr std::size_t kRow = 4096;
  const auto count = static_cast<std::size_t>(a.numel());
  const ScalarType type = *scalar_type(a.scalar_type());
  std::vector<std::int64_t> row(count / kRow + 1);
  std::iota(row.begin(), row.end(), 0);
  std::vector<float> sums(row.size());
  const auto add = [&](std::size_t first, std::size_t rows, std::size_t columns,
                       float* to) {
    const auto matrix = [&](const at::Tensor& x) {
      const auto* data = static_cast<const std::byte*>(const_data(x));
      return Matrix{const_cast<std::byte*>(data + first * sizeof(at::Half)),
                    rows, columns, type};
    };
    swamp::moe_dot(matrix(a), row.data(), matrix(b), to);
  };
  translated([&] {
    const std::size_t rows = count / kRow;
    if (rows != 0) add(0, rows, kRow, sums.data());
    if (count % kRow != 0) add(rows * kRow, 1, count % kRow, &sums[rows]);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// With `reproducible`, the product of vectors is one chain of sums, which is
// slow. PyTorch's of bfloat16 adds number by number; its float16 one is slow
// where oneDNN has tiles for it.
at::Tensor dot(const at::Tensor& x, const at::Tensor& y) {
  at::Tensor result;
  if (is_lazy(x) || is_lazy(y)) return at::cpu::dot(x, y);
  const at::ScalarType type = x.scalar_type();
  if (!is_reproducible() && is_half(type) && is_switched(type) &&
      (type == at::kBFloat16 || prefers_tiles(type)) && is_plain(x, type) &&
      is_plain(y, type) && x.dim() == 1 && x.sizes() == y.sizes()) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return at::scalar_tensor(sum_of_products(row_major(x), row_major(y)),
                             x.options());
  }
  if (is_reproducible() && x.dim() == 1 && y.dim() == 1) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    if (run({2, x.unsqueeze(0), y.unsqueeze(1), nullptr, nullptr}, result)) {
      return result.squeeze();
    }
  }
  return at::cpu::dot(x, y);
}

// linear() is one addmm for an input of any layout and number of dimensions.
// PyTorch composes it of matmul and add unless the input is a matrix or
// contiguous.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
  const auto stock = [&] {
    return at::compositeimplicitautograd::linear(input, weight, bias);
  };
  const at::ScalarType type = input.scalar_type();
  if (!bias.has_value() || !is_product_taken(type) || !is_plain(input, type) ||
      !is_plain(weight, type) || !is_plain(*bias, type) || weight.dim() != 2 ||
      input.dim() == 0 || input.dim() == 2 || is_seen({input, weight, bias}) ||
      !TORCH_GUARD_OR_FALSE(input.sym_size(-1).sym_eq(weight.sym_size(1)))) {
    return stock();
  }
  c10::SymDimVector sizes(input.sym_sizes().begin(), input.sym_sizes().end());
  sizes.back() = weight.sym_size(0);
  if (!at::is_expandable_to(bias->sym_sizes(), sizes)) return stock();
  const auto rows = [](const at::Tensor& x) {
    return x.dim() == 1 ? x.unsqueeze(0) : x.flatten(0, -2);
  };
  const at::Tensor added =
      bias->dim() <= 1 ? *bias : rows(bias->expand_symint(sizes));
  // Not a view: autograd refuses some writes to these.
  return at::_unsafe_view_symint(at::addmm(added, rows(input), weight.t()),
                                 sizes);
}

// bilinear() of 16 bits computes in float32. PyTorch's rounds the product of
// the first input and the weight, and the sum at each of its columns.
at::Tensor bilinear(const at::Tensor& input1, const at::Tensor& input2,
                    const at::Tensor& weight,
                    const std::optional<at::Tensor>& bias) {
  const at::ScalarType type = input1.scalar_type();
  const bool has_bias = bias.has_value() && bias->defined();
  if (!is_half(type) || !is_switched(type) || !has_product() ||
      !is_plain(input1, type) || !is_plain(input2, type) ||
      !is_plain(weight, type) ||
      (has_bias && !is_plain(*bias, type)) ||
      is_seen({input1, input2, weight, bias})) {
    return at::compositeimplicitautograd::bilinear(input1, input2, weight,
                                                   bias);
  }
  // Contiguous, because the bits of PyTorch's products depend on the layout.
  const auto widened = [](const at::Tensor& x) {
    return x.to(at::kFloat).contiguous();
  };
  return at::bilinear(widened(input1), widened(input2), widened(weight),
                      has_bias ? widened(*bias) : at::Tensor())
      .to(type);
}

// is_layer() returns whether states and parameters have the sizes of an LSTM
// without projections: PyTorch's fused layer does not check them.
bool is_layer(const at::Tensor& x, at::TensorList hx, at::TensorList params,
              bool has_biases, std::int64_t layers, bool bidirectional,
              bool batch_first) {
  const std::size_t of_one = has_biases ? 4 : 2;
  if (x.dim() != 3 || x.numel() == 0 || hx.size() != 2 || hx[0].dim() != 3 ||
      hx[0].numel() == 0) {
    return false;
  }
  const std::int64_t directions = bidirectional ? 2 : 1, hidden = hx[0].size(2);
  const std::int64_t sizes[] = {layers * directions,
                                x.size(batch_first ? 0 : 1), hidden};
  if (hx[0].sizes() != at::IntArrayRef(sizes) ||
      hx[1].sizes() != at::IntArrayRef(sizes) || sizes[0] < 1 ||
      params.size() != static_cast<std::size_t>(sizes[0]) * of_one) {
    return false;
  }
  for (std::size_t i = 0; i < params.size(); ++i) {
    const std::size_t kind = i % of_one;
    const bool is_first = i < of_one * static_cast<std::size_t>(directions);
    const std::int64_t rows = 4 * hidden,
                       columns = kind == 1  ? hidden
                                 : is_first ? x.size(2)
                                            : hidden * directions;
    if (kind < 2 ? params[i].sizes() != at::IntArrayRef({rows, columns})
                 : params[i].sizes() != at::IntArrayRef({rows})) {
      return false;
    }
  }
  return true;
}

// lstm() of float16 is PyTorch's fused layer in float32: with a gradient it has
// none of float16, and calls products and other operators for each step. A CPU
// with tiles has one without, and computes the products of large layers faster.
// Few rows are not worth converting the weights.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(
    const at::Tensor& x, at::TensorList hx, at::TensorList params,
    bool has_biases, std::int64_t layers, double dropout, bool train,
    bool bidirectional, bool batch_first) {
  constexpr std::int64_t kLargeForTiles = 1 << 23;  // multiply-adds of a step
  constexpr std::int64_t kFewRows = 16;
  const at::ScalarType type = at::kHalf;
  const auto are_plain = [&](at::TensorList all) {
    return std::all_of(all.begin(), all.end(), [&](const at::Tensor& one) {
      return is_plain(one, type) && !is_seen({one});
    });
  };
  const auto beats_tiles = [&] {
    const bool needs_grad =
        at::GradMode::is_enabled() &&
        (x.requires_grad() ||
         std::any_of(params.begin(), params.end(),
                     [](const auto& one) { return one.requires_grad(); }));
    const std::int64_t hidden = hx[0].size(2), in = x.size(2);
    return needs_grad && in <= 2 * hidden &&
           hx[0].size(1) * 4 * hidden * (hidden + in) <= kLargeForTiles;
  };
  const bool widens =
      is_half_precision() && !is_reproducible() && are_plain({x}) &&
      are_plain(hx) && are_plain(params) &&
      is_layer(x, hx, params, has_biases, layers, bidirectional, batch_first) &&
      x.size(0) * x.size(1) >= kFewRows &&
      (!prefers_tiles(type) || beats_tiles());
  const auto run = [&](const at::Tensor& input, at::TensorList states,
                       at::TensorList weights) {
    return at::compositeimplicitautograd::lstm(
        input, states, weights, has_biases, layers, dropout, train,
        bidirectional, batch_first);
  };
  if (!widens) return run(x, hx, params);
  const auto widened = [](at::TensorList all) {
    std::vector<at::Tensor> wide;
    for (const at::Tensor& one : all) wide.push_back(one.to(at::kFloat));
    return wide;
  };
  const auto [y, h, c] = run(x.to(at::kFloat), widened(hx), widened(params));
  return {y.to(type), h.to(type), c.to(type)};
}

}  // namespace

bool has_product() {
  if (is_reproducible()) return true;
  static const bool is_fast = translated([] { return is_product_fast(); });
  return is_fast;
}

bool is_product_taken(at::ScalarType type) {
  return is_switched(type) && has_product() && !prefers_tiles(type);
}

bool to_matrices(const at::Tensor& tensor, Matrices& matrices) {
  constexpr auto kMaxStep = static_cast<std::int64_t>(Matrices::kMaxStep);
  const auto d = tensor.dim();
  const auto size = [&](std::int64_t i) {
    return static_cast<std::size_t>(tensor.size(i));
  };
  const auto step = [&](std::int64_t i) {
    return static_cast<std::size_t>(tensor.size(i) == 1 ? 0 : tensor.stride(i));
  };
  matrices = {const_cast<void*>(const_data(tensor)),
              d == 3 ? size(0) : 1,
              size(d - 2),
              size(d - 1),
              d == 3 ? step(0) : 0,
              step(d - 2),
              tensor.size(d - 1) == 1 ? 1 : step(d - 1),
              *scalar_type(tensor.scalar_type())};
  return is_aligned(matrices.data, element_bytes(matrices.dtype)) &&
         tensor.stride(d - 1) <= kMaxStep && tensor.stride(d - 2) <= kMaxStep;
}

void wgrad_gemm_accum(const at::Tensor& input, const at::Tensor& grad_output,
                      at::Tensor main_grad) {
  if (is_lazy(main_grad)) {
    const at::Tensor copy = resolved(main_grad);
    wgrad_gemm_accum(input, grad_output, copy);
    main_grad.copy_(copy);
    return;
  }
  constexpr const char* kName = "wgrad_gemm_accum";
  const at::ScalarType type = input.scalar_type();
  TORCH_CHECK(is_half(type) || type == at::kFloat, kName,
              ": input: got the dtype ", c10::toString(type),
              ", expected Half, BFloat16 or Float");
  TORCH_CHECK(grad_output.scalar_type() == type, kName,
              ": grad_output: got the dtype ",
              c10::toString(grad_output.scalar_type()), ", expected ",
              c10::toString(type), ", as input");
  TORCH_CHECK(
      main_grad.scalar_type() == at::kFloat || main_grad.scalar_type() == type,
      kName, ": main_grad: got the dtype ",
      c10::toString(main_grad.scalar_type()), ", expected Float or that of ",
      "input");
  const auto rows = [&](const at::Tensor& tensor, const char* name) {
    TORCH_CHECK(is_plain(tensor, tensor.scalar_type()) && tensor.dim() >= 2,
                kName, ": ", name, ": got ", tensor.dim(),
                " dimensions, expected a strided CPU tensor with at least 2");
    return resolved(tensor).flatten(0, -2);
  };
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor x = rows(input, "input");
  const at::Tensor dy = rows(grad_output, "grad_output");
  TORCH_CHECK(x.size(0) == dy.size(0), kName, ": grad_output: got ", dy.size(0),
              " rows, expected ", x.size(0), ", as input");
  TORCH_CHECK(is_plain(main_grad, main_grad.scalar_type()) &&
                  main_grad.sizes() == at::IntArrayRef({dy.size(1), x.size(1)}),
              kName, ": main_grad: got the shape ", main_grad.sizes(),
              ", expected [", dy.size(1), ", ", x.size(1), "]");
  at::assert_no_internal_overlap(main_grad);
  if (x.numel() == 0 || dy.numel() == 0) return;
  TORCH_CHECK(!share_memory(main_grad, x) && !share_memory(main_grad, dy),
              kName,
              ": main_grad: got memory that input or grad_output shares, "
              "expected its own");
  mutable_data(main_grad);
  Matrices out, a, b;
  if (has_product() && to_matrices(main_grad, out) && to_matrices(dy.t(), a) &&
      to_matrices(x, b)) {
    const ProductOptions options{1, 1, &out};
    translated([&] { product(out, a, b, options); });
    return;
  }
  const at::ScalarType sum = main_grad.scalar_type();
  at::cpu::addmm_(main_grad, dy.t().to(sum), x.to(sum));
}

namespace {

// product_part() is one part of a product whose terms several calls have, in
// their order; see PartialSums. It returns the result if the part ends it.
at::Tensor product_part(const at::Tensor& x, const at::Tensor& y,
                        at::Tensor sums, bool begins, bool ends,
                        const std::optional<at::Tensor>& bias) {
  constexpr const char* kName = "_product_part";
  const at::ScalarType type = x.scalar_type();
  if (x.is_meta()) {
    return ends ? x.new_empty_symint({x.sym_size(0), y.sym_size(1)})
                : x.new_empty({0});
  }
  TORCH_CHECK((is_half(type) || type == at::kFloat) && is_plain(x, type) &&
                  is_plain(y, type) && x.dim() == 2 && y.dim() == 2 &&
                  x.size(1) == y.size(0),
              kName, ": x, y: got the shapes ", x.sizes(), " and ", y.sizes(),
              ", expected [m, k] and [k, n] of float16, bfloat16 or float32 on "
              "the CPU");
  const auto count = static_cast<std::int64_t>(
      product_sums_count(static_cast<std::size_t>(x.size(0)),
                         static_cast<std::size_t>(y.size(1))));
  TORCH_CHECK(is_plain(sums, at::kFloat) && sums.numel() == count, kName,
              ": sums: got the shape ", sums.sizes(), ", expected ", count,
              " float32");
  TORCH_CHECK(
      !bias.has_value() || (is_plain(*bias, type) &&
                            bias->sizes() == at::IntArrayRef({y.size(1)})),
      kName, ": bias: expected ", y.size(1), " values of x's dtype");
  const at::AutoDispatchBelowADInplaceOrView guard;
  const at::Tensor rows = resolved(x).contiguous(), columns = resolved(y);
  const at::Tensor out = at::empty({x.size(0), y.size(1)}, x.options());
  Matrices to, a, b, added;
  TORCH_CHECK(
      to_matrices(out, to) && to_matrices(rows, a) && to_matrices(columns, b),
      kName, ": y: got strides that swamp's product does not take");
  ProductOptions options;
  at::Tensor vector;
  if (ends && bias.has_value()) {
    vector = resolved(*bias).contiguous().expand(out.sizes());
    TORCH_CHECK(to_matrices(vector, added), kName,
                ": bias: got a misaligned address");
    options.self = &added;
  }
  in_place(sums, [&](const at::Tensor& target) {
    const PartialSums partial{data_of<float>(target), begins, ends};
    options.sums = &partial;
    translated([&] { product(to, a, b, options); });
  });
  return ends ? out : out.new_empty({0});
}

}  // namespace

bool set_half_precision(bool value) { return half_precision.exchange(value); }

bool set_reproducible(bool value) { return reproducible.exchange(value); }

bool is_reproducible() { return reproducible.load(std::memory_order_relaxed); }

bool is_half_precision() {
  return half_precision.load(std::memory_order_relaxed);
}

void register_products(torch::Library& library) {
  library.impl("mm", &mm);
  library.impl("mm.out", &mm_out);
  library.impl("bmm", &bmm);
  library.impl("bmm.out", &bmm_out);
  library.impl("addmm", &Addmm::make);
  library.impl("addmm_", &Addmm::in_place);
  library.impl("addmm.out", &Addmm::out);
  library.impl("baddbmm", &Baddbmm::make);
  library.impl("baddbmm_", &Baddbmm::in_place);
  library.impl("baddbmm.out", &Baddbmm::out);
  library.impl("addbmm", &Addbmm::make);
  library.impl("addbmm_", &Addbmm::in_place);
  library.impl("addbmm.out", &Addbmm::out);
  library.impl("dot", &dot);
  library.impl("addmv", &Addmv::make);
  library.impl("addmv_", &Addmv::in_place);
  library.impl("addmv.out", &Addmv::out);
  register_composite_products(library);
}

void register_composite_products(torch::Library& library) {
  library.impl("linear", &linear);
  library.impl("bilinear", &bilinear);
  library.impl("lstm.input", &lstm);
}

TORCH_LIBRARY_FRAGMENT(swamp, m) {
  define<&product_part, Derivative::kNone>(
      m,
      "_product_part(Tensor x, Tensor y, Tensor(a!) sums, bool begins, "
      "bool ends, Tensor? bias=None) -> Tensor");
}

}  // namespace swamp::aten
