// scaled_dot_product_attention of float16 and bfloat16 tensors in PyTorch's
// float32 flash attention, and its backward; or, of these and of float32
// tensors, in swamp's.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_cpu_dispatch.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <limits>
#include <optional>
#include <tuple>

#include "master/aten/half_precision.h"
#include "master/aten/rows.h"

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

  // So many heads of the query share a head of the key.
  std::int64_t heads_per_key() const { return query.size(1) / key.size(1); }
};

std::atomic<bool>& active() noexcept {
  static std::atomic<bool> value{false};
  return value;
}

// is_usual() returns whether an attention may be computed by swamp or in
// float32. PyTorch's own kernel gets all others; it refuses some of them.
bool is_usual(const Attention& x, double dropout_p) {
  const at::ScalarType type = x.query.scalar_type();
  if (dropout_p != 0) return false;
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

// Part is some heads of some elements of the batch: heads [key, key + keys) of
// the key, with the heads of the query that share them, of the elements
// [batch, batch + batches).
struct Part {
  std::int64_t batch, batches, key, keys;

  Tensor of(const Tensor& tensor, std::int64_t heads_per_key) const {
    const auto cut = [](const Tensor& t, std::int64_t d, std::int64_t begin,
                        std::int64_t count) {
      return t.size(d) == 1 ? t : t.narrow(d, begin, count);
    };
    if (tensor.dim() == 2) return tensor;  // a mask
    return cut(cut(tensor, 0, batch, batches), 1, key * heads_per_key,
               keys * heads_per_key);
  }
};

// for_each_part() calls visit(part) for parts whose float32 copies, `floats`
// for each head of the key, fit into the scratch memory. Every part has at
// least a head for each thread, because PyTorch's backward gives a thread whole
// heads.
template <class Visit>
void for_each_part(const Attention& x, std::int64_t floats, Visit visit) {
  const std::int64_t batches = x.query.size(0), keys = x.key.size(1);
  const std::int64_t for_threads =
      (at::get_num_threads() + x.heads_per_key() - 1) / x.heads_per_key();
  const std::int64_t most = std::max(kScratchFloats / floats, for_threads);
  Part part{0, std::clamp<std::int64_t>(most / keys, 1, batches), 0,
            std::min(most, keys)};
  for (; part.batch < batches; part.batch += part.batches) {
    part.batches = std::min(part.batches, batches - part.batch);
    Part inner = part;
    for (; inner.key < keys; inner.key += inner.keys) {
      inner.keys = std::min(inner.keys, keys - inner.key);
      visit(inner);
    }
  }
}

// widened() returns the float32 copy of a part of an attention.
Attention widened(const Attention& x, const Part& part, Scratch& scratch) {
  const std::int64_t heads = x.heads_per_key();
  Attention wide{scratch.widened(part.of(x.query, heads)),
                 scratch.widened(part.of(x.key, 1)),
                 scratch.widened(part.of(x.value, 1)),
                 x.causal,
                 x.mask,
                 x.scale};
  if (!x.mask.has_value()) return wide;
  wide.mask = part.of(*x.mask, heads);
  if (is_half(wide.mask->scalar_type())) {
    wide.mask = scratch.widened(*wide.mask);
  }
  return wide;
}

std::int64_t mask_floats(const Attention& x) {
  return x.mask.has_value() && is_half(x.mask->scalar_type())
             ? x.mask->size(-1) * x.mask->size(-2)
             : 0;
}

Forward stock_forward(const Attention& x, double dropout_p = 0) {
  return at::cpu::_scaled_dot_product_flash_attention_for_cpu(
      x.query, x.key, x.value, dropout_p, x.causal, x.mask, x.scale);
}

Backward stock_backward(const Attention& x, const Tensor& grad_out,
                        const Tensor& out, const Tensor& logsumexp,
                        double dropout_p = 0) {
  return at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad_out, x.query, x.key, x.value, out, logsumexp, dropout_p, x.causal,
      x.mask, x.scale);
}

bool is_swamp(const Attention& x) {
  const at::ScalarType type = x.query.scalar_type();
  return is_attention() && (is_half(type) || type == at::kFloat) &&
         x.query.size(3) <= 256;
}

bool is_float32(const Attention& x) {
  return is_half_precision() && is_half(x.query.scalar_type());
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
  if (x.query.is_contiguous()) return {out, logsumexp};
  const Tensor ordered = at::empty_like(x.query);
  ordered.copy_(out);
  return {ordered, logsumexp};
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

Forward forward_in_float32(const Attention& x) {
  const std::int64_t heads = x.heads_per_key(), rows = x.query.size(2),
                     channels = x.query.size(3);
  Scratch scratch;
  const Tensor out = at::empty_like(x.query);
  const Tensor logsumexp = empty_sums(x.query);
  const std::int64_t floats =
      2 * (heads * rows + x.key.size(2)) * channels + heads * mask_floats(x);
  for_each_part(x, floats, [&](const Part& part) {
    const std::int64_t mark = scratch.mark();
    const Forward wide = stock_forward(widened(x, part, scratch));
    convert(part.of(out, heads), std::get<0>(wide));
    part.of(logsumexp, heads).copy_(std::get<1>(wide));
    scratch.release(mark);
  });
  return {out, logsumexp};
}

Backward backward_in_float32(const Attention& x, const Tensor& grad_out,
                             const Tensor& out, const Tensor& logsumexp) {
  const std::int64_t heads = x.heads_per_key(), rows = x.query.size(2),
                     channels = x.query.size(3);
  Scratch scratch;
  const std::array<Tensor, 3> grads{
      empty_gradient(x.query), empty_gradient(x.key), empty_gradient(x.value)};
  const std::int64_t floats =
      4 * (heads * rows + x.key.size(2)) * channels + heads * mask_floats(x);
  for_each_part(x, floats, [&](const Part& part) {
    const std::int64_t mark = scratch.mark();
    const Attention wide = widened(x, part, scratch);
    const Backward found = stock_backward(
        wide, scratch.widened(part.of(grad_out, heads)),
        scratch.widened(part.of(out, heads)), part.of(logsumexp, heads));
    convert(part.of(grads[0], heads), std::get<0>(found));
    convert(part.of(grads[1], 1), std::get<1>(found));
    convert(part.of(grads[2], 1), std::get<2>(found));
    scratch.release(mark);
  });
  return {grads[0], grads[1], grads[2]};
}

// faster_in_float32() returns the measured choice for the class of an
// attention: its direction, its dtype and the size levels of rows, keys and
// channels.
bool faster_in_float32(const Attention& x, bool backward) {
  constexpr int kLevels = kSizeLevels * kSizeLevels * kSizeLevels;
  static std::array<Choice, 2 * 2 * kLevels> choices{};
  const at::ScalarType type = x.query.scalar_type();
  const int rows = size_level(x.query.size(2)),
            keys = size_level(x.key.size(2)),
            channels = size_level(x.query.size(3));
  int index = (backward ? 2 : 0) + (type == at::kHalf ? 1 : 0);
  for (const int level : {rows, keys, channels}) {
    index = index * kSizeLevels + level;
  }
  const auto prepare = [&](bool small) {
    const auto example = [&](int level) {
      constexpr std::int64_t kHeads = 4;
      return at::full({1, kHeads, size_of_level(level, small),
                       size_of_level(channels, true)},
                      0.5, at::TensorOptions().dtype(type));
    };
    const Attention one{example(rows), example(keys), example(keys),
                        x.causal,      std::nullopt,  std::nullopt};
    if (!backward) {
      return Race{
          [=] { stock_forward(one); }, [=] { forward_in_float32(one); }, {}};
    }
    const Forward found = stock_forward(one);
    const auto& [out, logsumexp] = found;
    // Copies, because a lambda of C++17 cannot capture structured bindings.
    const Tensor o = out, l = logsumexp;
    return Race{[=] { stock_backward(one, o, o, l); },
                [=] { backward_in_float32(one, o, o, l); },
                {}};
  };
  return choose(choices[static_cast<std::size_t>(index)], prepare) !=
         Way::kNative;
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
  if (is_usual(x, dropout_p)) {
    if (is_swamp(x)) {
      const auto found = supported([&] { return swamp_forward(x); });
      if (found.has_value()) return *found;
    }
    if (is_float32(x) && faster_in_float32(x, false)) {
      return forward_in_float32(x);
    }
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
  if (is_usual(x, dropout_p) && like_query(grad_out) && like_query(out) &&
      is_plain(logsumexp, at::kFloat) &&
      logsumexp.sizes() == query.sizes().slice(0, 3)) {
    if (is_swamp(x)) {
      const auto found = supported(
          [&] { return swamp_backward(x, grad_out, out, logsumexp); });
      if (found.has_value()) return *found;
    }
    if (is_float32(x) && faster_in_float32(x, true)) {
      return backward_in_float32(x, grad_out, out, logsumexp);
    }
  }
  return stock_backward(x, grad_out, out, logsumexp, dropout_p);
}

}  // namespace

bool set_attention(bool value) { return active().exchange(value); }

bool is_attention() { return active().load(std::memory_order_relaxed); }

void register_attention(torch::Library& library) {
  library.impl("_scaled_dot_product_flash_attention_for_cpu", &forward);
  library.impl("_scaled_dot_product_flash_attention_for_cpu_backward",
               &backward);
}

}  // namespace swamp::aten
