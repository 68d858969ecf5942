// PyTorch's scaled_dot_product_attention and its backward, replaced by swamp's:
// of float16 and bfloat16 tensors with either switch on, half precision (if the
// CPU has tiles, only what beats them) or attention; of float32 tensors with
// attention on. PyTorch's own kernel computes everything else, also what
// libswamp refuses because of its sizes.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_cpu_dispatch.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>

#include "master/aten/layout.h"
#include "master/aten/overrides.h"
#include "master/aten/row_tensors.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using Forward = std::tuple<Tensor, Tensor>;           // out, logsumexp
using Backward = std::tuple<Tensor, Tensor, Tensor>;  // of query, key, value

// Attention is the arguments that both directions have: query, key and value
// are [batch, heads, rows, channels].
struct Attention {
  Tensor query, key, value;
  bool causal;
  std::optional<Tensor> mask;
  std::optional<double> scale;
};

std::atomic<bool> active{false};

enum class Direction { forward, backward };

// beats_tiles() returns whether swamp is faster even if the CPU has tiles: of
// one query in float16, and in backward, which PyTorch divides into products
// too small for tiles, up to some multiply-adds of the scores of a head.
bool beats_tiles(const Attention& x, Direction direction) {
  if (x.query.dim() != 4 || x.key.dim() != 4) return false;
  if (direction == Direction::forward) {
    return x.query.scalar_type() == at::kHalf && x.query.size(2) == 1;
  }
  const std::int64_t queries = x.query.size(2), keys = x.key.size(2),
                     channels = x.query.size(3);
  const auto most = static_cast<double>(channels > 64 ? 1 << 21
                                        : x.causal    ? 1 << 24
                                                      : 1 << 22);
  return queries > 1 && keys <= 16 * queries && channels <= 128 &&
         static_cast<double>(queries) * static_cast<double>(keys) *
                 static_cast<double>(channels) <=
             most;
}

// is_ours() returns whether swamp computes an attention, if libswamp takes its
// sizes. PyTorch's own kernel gets all others; it refuses some of them.
bool is_ours(const Attention& x, double dropout_p, Direction direction) {
  const at::ScalarType type = x.query.scalar_type();
  const bool is_faster = !prefers_tiles(type) || beats_tiles(x, direction);
  const bool on = (is_switched(type) && is_faster) ||
                  (is_attention() && (is_half(type) || type == at::kFloat));
  if (!on || dropout_p != 0) return false;
  for (const Tensor* tensor : {&x.query, &x.key, &x.value}) {
    if (!is_plain(*tensor, type) || tensor->dim() != 4 ||
        tensor->numel() == 0 || tensor->size(0) != x.query.size(0) ||
        tensor->size(3) != x.query.size(3)) {
      return false;
    }
  }
  if (x.value.size(1) != x.key.size(1) || x.value.size(2) != x.key.size(2) ||
      x.query.size(1) % x.key.size(1) != 0) {
    return false;
  }
  if (!x.mask.has_value()) return true;
  const Tensor& mask = *x.mask;
  const auto fits = [&](std::int64_t from_last, std::int64_t size) {
    const std::int64_t found = mask.size(mask.dim() - from_last);
    return found == size || found == 1;
  };
  return (is_plain(mask, type) || is_plain(mask, at::kFloat)) &&
         (mask.dim() == 2 || mask.dim() == 4) && fits(1, x.key.size(2)) &&
         fits(2, x.query.size(2)) &&
         (mask.dim() == 2 ||
          (fits(3, x.query.size(1)) && fits(4, x.query.size(0))));
}

// report_stock() is called before PyTorch's own kernel. unreproducible.cpp
// reports float64.
void report_stock(const Attention& x) {
  static std::atomic<std::int64_t> warned{0};
  if (!is_reproducible() || x.query.scalar_type() == at::kDouble) return;
  report_unreproducible("aten::_scaled_dot_product_flash_attention_for_cpu",
                        kOnCpuAndThreads, warned);
}

Forward stock_forward(const Attention& x, double dropout_p) {
  report_stock(x);
  return at::cpu::_scaled_dot_product_flash_attention_for_cpu(
      x.query, x.key, x.value, dropout_p, x.causal, x.mask, x.scale);
}

Backward stock_backward(const Attention& x, const Tensor& grad_out,
                        const Tensor& out, const Tensor& logsumexp,
                        double dropout_p) {
  report_stock(x);
  return at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad_out, x.query, x.key, x.value, out, logsumexp, dropout_p, x.causal,
      x.mask, x.scale);
}

AttentionCausal causal_of(const Attention& x) {
  return x.causal ? AttentionCausal::top_left : AttentionCausal::none;
}

// empty_sums() is a logsumexp with the order in memory of PyTorch's.
Tensor empty_sums(const Tensor& query) {
  return at::empty({query.size(0), query.size(2), query.size(1)},
                   query.options().dtype(at::kFloat))
      .transpose(1, 2);
}

// empty_gradient() has the order in memory of PyTorch's gradients, for operands
// of any order.
Tensor empty_gradient(const Tensor& t) {
  return at::empty({t.size(0), t.size(2), t.size(1), t.size(3)}, t.options())
      .transpose(1, 2);
}

// supported() returns what compute() does; nothing if libswamp refuses the
// sizes, because they need more LDM than the machine has.
template <class Compute>
auto supported(Compute compute) -> std::optional<decltype(compute())> {
  try {
    return compute();
  } catch (const c10::NotImplementedError&) {
    return std::nullopt;
  }
}

// torch.compile relies on the order in memory of PyTorch's results.
Forward swamp_forward(const Attention& x) {
  const auto [out, sums] =
      attention_of(x.query, x.key, x.value, x.mask, causal_of(x), x.scale);
  const Tensor logsumexp = empty_sums(x.query);
  logsumexp.copy_(sums);
  return {with_strides_of(at::empty_like(x.query), out), logsumexp};
}

// out and logsumexp may be PyTorch's. Its logsumexp of a row without keys is
// -inf, swamp's is +inf; PyTorch's backward takes both.
Backward swamp_backward(const Attention& x, const Tensor& grad_out,
                        const Tensor& out, const Tensor& logsumexp) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Tensor sums = logsumexp.masked_fill(logsumexp.eq(-kInf), kInf);
  const auto found = attention_gradients(grad_out, x.query, x.key, x.value, out,
                                         sums, x.mask, causal_of(x), x.scale);
  const auto ordered = [](const Tensor& gradient) {
    const Tensor result = empty_gradient(gradient);
    result.copy_(gradient);
    return result;
  };
  return {ordered(std::get<0>(found)), ordered(std::get<1>(found)),
          ordered(std::get<2>(found))};
}

// mask_of() returns nothing if the tensor is undefined, which is how autograd
// passes an absent mask.
std::optional<Tensor> mask_of(const std::optional<Tensor>& mask) {
  return mask.has_value() && mask->defined() ? mask : std::nullopt;
}

Forward forward(const Tensor& query, const Tensor& key, const Tensor& value,
                double dropout_p, bool is_causal,
                const std::optional<Tensor>& attn_mask,
                std::optional<double> scale) {
  const Attention x{query, key, value, is_causal, mask_of(attn_mask), scale};
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (is_ours(x, dropout_p, Direction::forward)) {
    const auto found = supported([&] { return swamp_forward(x); });
    if (found.has_value()) return *found;
  }
  return stock_forward(x, dropout_p);
}

Backward backward(const Tensor& grad_out, const Tensor& query,
                  const Tensor& key, const Tensor& value, const Tensor& out,
                  const Tensor& logsumexp, double dropout_p, bool is_causal,
                  const std::optional<Tensor>& attn_mask,
                  std::optional<double> scale) {
  const Attention x{query, key, value, is_causal, mask_of(attn_mask), scale};
  const at::AutoDispatchBelowADInplaceOrView guard;
  const auto like_query = [&](const Tensor& tensor) {
    return is_plain(tensor, query.scalar_type()) &&
           tensor.sizes() == query.sizes();
  };
  if (is_ours(x, dropout_p, Direction::backward) && like_query(grad_out) &&
      like_query(out) && is_plain(logsumexp, at::kFloat) &&
      logsumexp.sizes() == query.sizes().slice(0, 3)) {
    const auto found =
        supported([&] { return swamp_backward(x, grad_out, out, logsumexp); });
    if (found.has_value()) return *found;
  }
  return stock_backward(x, grad_out, out, logsumexp, dropout_p);
}

}  // namespace

bool set_attention(bool value) { return active.exchange(value); }

bool is_attention() { return active.load(std::memory_order_relaxed); }

void register_attention(torch::Library& library) {
  library.impl("_scaled_dot_product_flash_attention_for_cpu", &forward);
  library.impl("_scaled_dot_product_flash_attention_for_cpu_backward",
               &backward);
}

}  // namespace swamp::aten
