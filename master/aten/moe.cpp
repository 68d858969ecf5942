// Mixtures of experts: swamp/moe.h for tensors. Each kernel checks what
// libswamp cannot see, because it gets pointers: dtypes, and counts of
// elements. The gradient of a permutation is the other one, with the same
// probabilities, and that of the probabilities is a dot product for each row.
#include "swamp/moe.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include "master/aten/checks.h"
#include "master/aten/registration.h"
#include "master/aten/row_tensors.h"
#include "master/aten/tensor.h"

namespace swamp::aten {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// require() throws unless `tensor` has this dtype and number of dimensions.
void require(const Tensor& tensor, const char* name, at::ScalarType type,
             std::int64_t dimensions) {
  TORCH_CHECK(tensor.scalar_type() == type && tensor.dim() == dimensions &&
                  (tensor.is_cpu() || tensor.is_meta()) &&
                  tensor.layout() == at::kStrided,
              name, ": got the shape ", tensor.sym_sizes(), " of ",
              c10::toString(tensor.scalar_type()), " on ", tensor.device(),
              ", expected ", dimensions, " dimensions of ", c10::toString(type),
              " on cpu");
}

void require_size(const Tensor& tensor, const char* name,
                  const c10::SymInt& size, const char* of) {
  TORCH_CHECK(tensor.sym_numel() == size, name, ": got the shape ",
              tensor.sym_sizes(), ", expected one for each ", of, " of ", size);
}

void require_choices(const Tensor& choices, std::int64_t experts) {
  const at::ScalarType type = choices.scalar_type();
  const bool is_map = type == at::kBool || type == at::kByte;
  TORCH_CHECK(
      (is_map || type == at::kInt || type == at::kLong) &&
          (choices.is_cpu() || choices.is_meta()) &&
          choices.layout() == at::kStrided,
      "expert_index: got ", c10::toString(type), " on ", choices.device(),
      ", expected Int or Long expert numbers or a Bool or Byte map, on cpu");
  TORCH_CHECK(experts > 0, "experts: got ", experts, ", expected at least 1");
  TORCH_CHECK(!is_map || (choices.dim() == 2 && choices.sym_size(1) == experts),
              "expert_index: got the shape ", choices.sym_sizes(),
              ", expected [tokens, ", experts, "] for a map");
}

// choices_of() takes a row_major() tensor.
ExpertChoices choices_of(const Tensor& choices, std::int64_t experts) {
  const at::ScalarType type = choices.scalar_type();
  const auto count = static_cast<std::size_t>(choices.numel());
  const auto all = static_cast<std::size_t>(experts);
  const void* data = const_data(choices);
  if (type == at::kInt) return {data, ExpertChoices::kInt32, count, all};
  if (type == at::kLong) return {data, ExpertChoices::kInt64, count, all};
  return {data, ExpertChoices::kMap, count / all, all};
}

// The kernels below are for the keys CPU and Meta.
Tensor moe_histogram(const Tensor& expert_index, std::int64_t experts) {
  require_choices(expert_index, experts);
  Tensor counts = at::empty({experts}, expert_index.options().dtype(at::kLong));
  return computed(counts, [&] {
    const Tensor in = row_major(expert_index);
    swamp::moe_histogram(choices_of(in, experts),
                         data_of<std::int64_t>(counts));
  });
}

Tensor moe_positions(const Tensor& expert_index, std::int64_t experts,
                     std::int64_t capacity) {
  require_choices(expert_index, experts);
  Tensor positions =
      at::empty_like(expert_index, expert_index.options().dtype(at::kInt),
                     at::MemoryFormat::Contiguous);
  return computed(positions, [&] {
    const Tensor in = row_major(expert_index);
    swamp::moe_positions(choices_of(in, experts), capacity,
                         data_of<std::int32_t>(positions));
  });
}

Tensor moe_apply_capacity(const Tensor& probs, const Tensor& routing_map,
                          std::int64_t capacity, bool by_probs, bool pad) {
  require_rows(probs, "moe_apply_capacity");
  require(probs, "probs", probs.scalar_type(), 2);
  require(routing_map, "routing_map", at::kBool, 2);
  TORCH_CHECK(routing_map.sym_sizes() == probs.sym_sizes(),
              "routing_map: got the shape ", routing_map.sym_sizes(),
              ", expected ", probs.sym_sizes(), ", as probs");
  Tensor kept = at::empty_like(routing_map, at::MemoryFormat::Contiguous);
  return computed(kept, [&] {
    const Tensor values = row_major(probs), map = row_major(routing_map);
    const CapacityOptions options{
        capacity, by_probs ? DropPolicy::probs : DropPolicy::position, pad};
    swamp::moe_apply_capacity(matrix_of(values), values_of<std::uint8_t>(map),
                              options, data_of<std::uint8_t>(kept));
  });
}

Tensor moe_permutation(const Tensor& expert_index, const Tensor& positions,
                       std::int64_t experts, c10::SymInt rows,
                       std::int64_t rows_per_expert) {
  require_choices(expert_index, experts);
  require(positions, "positions", at::kInt, expert_index.dim());
  TORCH_CHECK(positions.sym_sizes() == expert_index.sym_sizes(),
              "positions: got the shape ", positions.sym_sizes(), ", expected ",
              expert_index.sym_sizes(), ", as expert_index");
  TORCH_CHECK(rows >= 0, "rows: got ", rows, ", expected at least 0");
  TORCH_CHECK(rows_per_expert >= 0, "rows_per_expert: got ", rows_per_expert,
              ", expected at least 0");
  Tensor entries =
      at::empty_symint({rows}, expert_index.options().dtype(at::kLong));
  return computed(entries, [&] {
    const Tensor in = row_major(expert_index), at = row_major(positions);
    swamp::moe_permutation(choices_of(in, experts), values_of<std::int32_t>(at),
                           static_cast<std::size_t>(rows_per_expert),
                           static_cast<std::size_t>(entries.numel()),
                           data_of<std::int64_t>(entries));
  });
}

// Permutation is the row_major() arguments of a permutation.
struct Permutation {
  Tensor x, token_of, probs;

  Permutation(const Tensor& matrix, const Tensor& tokens,
              const OptionalTensor& factors)
      : x(row_major(matrix)), token_of(row_major(tokens)) {
    if (is_defined(factors)) probs = row_major(*factors);
  }
  const std::int64_t* tokens() const {
    return values_of<std::int64_t>(token_of);
  }
  const float* factors() const { return values_of<float>(probs); }
};

void require_permutation(const Tensor& x, const char* name,
                         const Tensor& token_of, const OptionalTensor& probs) {
  require_rows(x, "moe_permute");
  require(x, name, x.scalar_type(), 2);
  require(token_of, "token_of", at::kLong, 1);
  if (!is_defined(probs)) return;
  require(*probs, "probs", at::kFloat, 1);
  require_size(*probs, "probs", token_of.sym_numel(), "row");
}

Tensor moe_permute(const Tensor& tokens, const Tensor& token_of,
                   const OptionalTensor& probs) {
  require_permutation(tokens, "tokens", token_of, probs);
  Tensor permuted = at::empty_symint({token_of.sym_size(0), tokens.sym_size(1)},
                                     tokens.options());
  return computed(permuted, [&] {
    const Permutation in(tokens, token_of, probs);
    swamp::moe_permute(matrix_of(in.x), in.tokens(), in.factors(),
                       matrix_of(permuted));
  });
}

Tensor moe_unpermute(const Tensor& permuted, const Tensor& token_of,
                     const OptionalTensor& probs, c10::SymInt tokens) {
  require_permutation(permuted, "permuted", token_of, probs);
  require_size(token_of, "token_of", permuted.sym_size(0), "row");
  TORCH_CHECK(tokens >= 0, "tokens: got ", tokens, ", expected at least 0");
  Tensor result =
      at::empty_symint({tokens, permuted.sym_size(1)}, permuted.options());
  return computed(result, [&] {
    const Permutation in(permuted, token_of, probs);
    swamp::moe_unpermute(matrix_of(in.x), in.tokens(), in.factors(),
                         matrix_of(result));
  });
}

Tensor moe_dot(const Tensor& tokens, const Tensor& token_of,
               const Tensor& permuted) {
  require_permutation(tokens, "tokens", token_of, {});
  require_permutation(permuted, "permuted", token_of, {});
  Tensor products = at::empty_symint({token_of.sym_size(0)},
                                     tokens.options().dtype(at::kFloat));
  return computed(products, [&] {
    const Permutation in(tokens, token_of, {});
    const Tensor rows = row_major(permuted);
    swamp::moe_dot(matrix_of(in.x), in.tokens(), matrix_of(rows),
                   data_of<float>(products));
  });
}

AuxLossOptions aux_options(double coefficient, std::int64_t tokens,
                           std::int64_t choices) {
  TORCH_CHECK(tokens >= 0, "tokens: got ", tokens, ", expected at least 0");
  TORCH_CHECK(choices > 0, "choices: got ", choices, ", expected at least 1");
  return {coefficient, static_cast<std::size_t>(tokens),
          static_cast<std::size_t>(choices)};
}

void require_aux(const Tensor& probs, const Tensor& counts) {
  require_rows(probs, "moe_aux_loss");
  require(probs, "probs", probs.scalar_type(), 2);
  require(counts, "counts", at::kLong, 1);
  require_size(counts, "counts", probs.sym_size(1), "expert");
}

Tensor moe_aux_loss(const Tensor& probs, const Tensor& counts,
                    std::int64_t tokens, std::int64_t choices,
                    double coefficient) {
  require_aux(probs, counts);
  const AuxLossOptions options = aux_options(coefficient, tokens, choices);
  Tensor loss = at::empty({}, probs.options().dtype(at::kFloat));
  return computed(loss, [&] {
    const Tensor x = row_major(probs), numbers = row_major(counts);
    *data_of<float>(loss) = static_cast<float>(swamp::moe_aux_loss(
        matrix_of(x), values_of<std::int64_t>(numbers), options));
  });
}

Tensor moe_aux_loss_backward(const Tensor& grad, const Tensor& probs,
                             const Tensor& counts, std::int64_t tokens,
                             std::int64_t choices, double coefficient) {
  require_aux(probs, counts);
  require_size(grad, "grad", 1, "loss");
  const AuxLossOptions options = aux_options(coefficient, tokens, choices);
  Tensor dprobs = at::empty_like(probs, at::MemoryFormat::Contiguous);
  return computed(dprobs, [&] {
    const Tensor numbers = row_major(counts);
    swamp::moe_aux_loss_backward(grad.item<double>(),
                                 values_of<std::int64_t>(numbers),
                                 matrix_of(dprobs), options);
  });
}

using Loss = std::tuple<Tensor, Tensor>;

Loss moe_z_loss(const Tensor& logits, double coefficient) {
  require_rows(logits, "moe_z_loss");
  require(logits, "logits", logits.scalar_type(), 2);
  const auto float32 = logits.options().dtype(at::kFloat);
  // lse and what its rounding lost.
  Tensor lse = at::empty_symint({2, logits.sym_size(0)}, float32);
  Tensor loss = at::empty({}, float32);
  computed(loss, [&] {
    auto* sums = data_of<float>(lse);
    *data_of<float>(loss) = static_cast<float>(
        swamp::moe_z_loss(matrix_of(row_major(logits)), coefficient, sums,
                          sums + logits.size(0)));
  });
  return {loss, lse};
}

Tensor moe_z_loss_backward(const Tensor& grad, const Tensor& logits,
                           const Tensor& lse, double coefficient) {
  require_rows(logits, "moe_z_loss");
  require(logits, "logits", logits.scalar_type(), 2);
  require(lse, "lse", at::kFloat, 2);
  require_size(lse, "lse", 2 * logits.sym_size(0), "half of a token");
  require_size(grad, "grad", 1, "loss");
  Tensor dx = at::empty_like(logits, at::MemoryFormat::Contiguous);
  return computed(dx, [&] {
    const Tensor x = row_major(logits), both = row_major(lse);
    const auto* sums = values_of<float>(both);
    swamp::moe_z_loss_backward(grad.item<double>(), matrix_of(x), coefficient,
                               sums, sums + logits.size(0), matrix_of(dx));
  });
}

// ---- Autograd

// save() saves what both permutations need; x only for the gradient of probs.
void save(AutogradContext* context, const Tensor& x, const Tensor& token_of,
          const OptionalTensor& probs) {
  const bool with_probs = is_defined(probs) && probs->requires_grad();
  context->save_for_backward(
      {with_probs ? x : Tensor(), token_of, defined_or_empty(probs)});
}

struct Permute : torch::autograd::Function<Permute> {
  static Tensor forward(AutogradContext* context, const Tensor& tokens,
                        const Tensor& token_of, const OptionalTensor& probs) {
    save(context, tokens, token_of, probs);
    context->saved_data["tokens"] = tokens.sym_size(0);
    const at::AutoDispatchBelowADInplaceOrView guard;
    return call<&moe_permute>(tokens, token_of, probs);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    return {call<&moe_unpermute>(grads[0], saved[1], optional_of(saved[2]),
                                 context->saved_data["tokens"].toSymInt()),
            Tensor(),
            saved[0].defined() ? call<&moe_dot>(saved[0], saved[1], grads[0])
                               : Tensor()};
  }
};

struct Unpermute : torch::autograd::Function<Unpermute> {
  static Tensor forward(AutogradContext* context, const Tensor& permuted,
                        const Tensor& token_of, const OptionalTensor& probs,
                        c10::SymInt tokens) {
    save(context, permuted, token_of, probs);
    const at::AutoDispatchBelowADInplaceOrView guard;
    return call<&moe_unpermute>(permuted, token_of, probs, std::move(tokens));
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    return {call<&moe_permute>(grads[0], saved[1], optional_of(saved[2])),
            Tensor(),
            saved[0].defined() ? call<&moe_dot>(grads[0], saved[1], saved[0])
                               : Tensor(),
            Tensor()};
  }
};

struct AuxLoss : torch::autograd::Function<AuxLoss> {
  static Tensor forward(AutogradContext* context, const Tensor& probs,
                        const Tensor& counts, std::int64_t tokens,
                        std::int64_t choices, double coefficient) {
    context->save_for_backward({probs, counts});
    context->saved_data["tokens"] = tokens;
    context->saved_data["choices"] = choices;
    context->saved_data["coefficient"] = coefficient;
    const at::AutoDispatchBelowADInplaceOrView guard;
    return call<&moe_aux_loss>(probs, counts, tokens, choices, coefficient);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    return {
        call<&moe_aux_loss_backward>(
            grads[0], saved[0], saved[1], context->saved_data["tokens"].toInt(),
            context->saved_data["choices"].toInt(),
            context->saved_data["coefficient"].toDouble()),
        Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

struct ZLoss : torch::autograd::Function<ZLoss> {
  static variable_list forward(AutogradContext* context, const Tensor& logits,
                               double coefficient) {
    Tensor loss, lse;
    {
      const at::AutoDispatchBelowADInplaceOrView guard;
      std::tie(loss, lse) = call<&moe_z_loss>(logits, coefficient);
    }
    context->save_for_backward({logits, lse});
    context->mark_non_differentiable({lse});
    context->saved_data["coefficient"] = coefficient;
    return {loss, lse};
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    return {call<&moe_z_loss_backward>(
                grads[0], saved[0], saved[1],
                context->saved_data["coefficient"].toDouble()),
            Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(swamp, m) {
  constexpr auto kNone = Derivative::kNone;
  define<&moe_histogram, kNone>(
      m, "moe_histogram(Tensor expert_index, int experts) -> Tensor");
  define<&moe_positions, kNone>(
      m,
      "moe_positions(Tensor expert_index, int experts, int capacity=-1) -> "
      "Tensor");
  define<&moe_apply_capacity, kNone>(
      m,
      "moe_apply_capacity(Tensor probs, Tensor routing_map, int capacity, "
      "bool by_probs=True, bool pad=False) -> Tensor");
  define<&moe_permutation, kNone>(
      m,
      "moe_permutation(Tensor expert_index, Tensor positions, int experts, "
      "SymInt rows, int rows_per_expert=0) -> Tensor");
  define<&moe_permute, Permute>(
      m,
      "moe_permute(Tensor tokens, Tensor token_of, Tensor? probs=None) -> "
      "Tensor");
  define<&moe_unpermute, Unpermute>(
      m,
      "moe_unpermute(Tensor permuted, Tensor token_of, Tensor? probs, "
      "SymInt tokens) -> Tensor");
  define<&moe_dot>(
      m, "_moe_dot(Tensor tokens, Tensor token_of, Tensor permuted) -> Tensor");
  define<&moe_aux_loss, AuxLoss>(
      m,
      "moe_aux_loss(Tensor probs, Tensor counts, int tokens, int choices, "
      "float coefficient) -> Tensor");
  define<&moe_aux_loss_backward>(
      m,
      "_moe_aux_loss_backward(Tensor grad, Tensor probs, Tensor counts, "
      "int tokens, int choices, float coefficient) -> Tensor");
  define<&moe_z_loss, ZLoss>(
      m, "moe_z_loss(Tensor logits, float coefficient) -> (Tensor, Tensor)");
  define<&moe_z_loss_backward>(
      m,
      "_moe_z_loss_backward(Tensor grad, Tensor logits, Tensor lse, "
      "float coefficient) -> Tensor");
}

}  // namespace swamp::aten
