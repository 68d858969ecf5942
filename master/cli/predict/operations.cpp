// The operators, a row for each: `swamp predict` and the tests of the library
// call them. An operator's options and errors have tests of their own.
#include <iterator>

#include "master/cli/predict/predict.h"
#include "swamp/amp.h"
#include "swamp/float_formats.h"
#include "swamp/foreach.h"
#include "swamp/scan.h"

namespace swamp::cli {
namespace {

void unscale_by(Call& call, float inv_scale) {
  auto* const found_inf = call.result<float>();
  amp_foreach_non_finite_check_and_unscale_(call.array(), *found_inf, inv_scale,
                                            nullptr, call.machine);
}

// default_cast() is bfloat16 for float32, and float32 for all other dtypes.
ScalarType default_cast(const Tensors& in) {
  const bool wide = !in.empty() && in.front().dtype == kFloat32;
  return wide ? kBFloat16 : kFloat32;
}

SoftmaxOptions softmax_options(const Call& call) {
  SoftmaxOptions options;
  options.scale = 0.125f;
  if (call.sizes.causal) {
    options.causal_rows = call.size(kSizeColumns);
  }
  return options;
}

// targets() are ignored: the master would read the logits of others.
const std::int64_t* targets(Call& call) {
  return call.made<std::int64_t>(call.size(kSizeRows), [](std::size_t) {
    return CrossEntropyOptions().ignore_index;
  });
}

AttentionOptions attention_options(const Call& call) {
  AttentionOptions options;
  if (call.sizes.causal) {
    options.causal = AttentionCausal::bottom_right;
  }
  return options;
}

// token_of() is the permutation of a router whose choices are equally
// distributed: choice c of token t is expert (t * choices + c) * kStep modulo
// the number of experts.
const std::int64_t* token_of(Call& call) {
  constexpr std::size_t kStep = 0x9e3779b1;
  const std::size_t experts = call.size(kSizeExperts);
  const std::size_t choices = call.size(kSizeChoices);
  const std::size_t count = call.choices();
  const auto expert = [&](std::size_t i) { return i * kStep % experts; };
  std::vector<std::size_t> at(experts + 1);
  for (std::size_t i = 0; i < count; ++i) ++at[expert(i) + 1];
  for (std::size_t e = 1; e <= experts; ++e) at[e] += at[e - 1];
  std::vector<std::size_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[at[expert(i)]++] = i / choices;
  return call.made<std::int64_t>(count,
                                 [&](std::size_t i) { return tokens[i]; });
}

constexpr OperationRow kOperations[] = {
    {"unscale", 0, [](Call& c) { unscale_by(c, 0.5f); }},
    {"check", 0, [](Call& c) { unscale_by(c, 1); }},
    {"norm", 0,
     [](Call& c) {
       auto* const norm = c.result<double>();
       *norm = foreach_norm(c.array(), 0.5f, nullptr, nullptr, c.machine);
     }},
    {"scan", 0,
     [](Call& c) {
       const Tensors in = c.array();
       scan_non_finite(in, c.result<TensorStatistics>(in.size()), c.machine);
     }},
    {"cast", 0,
     [](Call& c) {
       const Tensors in = c.array();
       foreach_cast_(c.array(c.to.value_or(default_cast(in))), in, 1,
                     c.machine);
     },
     true},
    {"accumulate", 0,
     [](Call& c) {
       foreach_accumulate_(c.float32(), c.array(), 1, c.machine);
     }},
    {"lerp", 0,
     [](Call& c) { foreach_lerp_(c.float32(), c.array(), 0.001, c.machine); }},
    {"zero", 0, [](Call& c) { foreach_zero_(c.array(), c.machine); }},
    {"sgd", 0,
     [](Call& c) {
       SgdStep step;
       step.momentum = 0.9;
       foreach_sgd_(c.float32(), c.array(), c.float32(), c.model(), step, {},
                    c.machine);
     },
     true},
    {"adam", 0,
     [](Call& c) {
       foreach_adam_(c.float32(), c.array(), c.float32(), c.float32(),
                     c.model(), {}, {}, c.machine);
     },
     true},
    {"count_zeros", 0,
     [](Call& c) {
       auto* const count = c.result<std::uint64_t>();
       *count = foreach_count_zeros(c.array(), c.machine);
     }},
    {"softmax", kOfMatrix,
     [](Call& c) {
       const Matrix x = c.matrix();
       scaled_softmax(x, c.over(x), softmax_options(c), c.machine);
     },
     false, true},
    {"softmax_backward", kOfMatrix,
     [](Call& c) {
       const Matrix gradient = c.matrix();
       scaled_softmax_backward(gradient, c.matrix(), c.over(gradient),
                               softmax_options(c), c.machine);
     },
     false, true},
    {"cross_entropy", kOfMatrix,
     [](Call& c) {
       cross_entropy(c.matrix(), targets(c), c.of_rows(), c.of_rows(),
                     c.of_rows(), {}, c.machine);
     }},
    {"cross_entropy_backward", kOfMatrix,
     [](Call& c) {
       const Matrix logits = c.matrix();
       cross_entropy_backward(logits, targets(c), c.of_rows(), c.of_rows(),
                              c.of_rows(), c.over(logits), {}, c.machine);
     }},
    {"layer_norm", kOfMatrix,
     [](Call& c) {
       const Matrix x = c.matrix();
       layer_norm(x, c.vector(), c.vector(), c.over(x), c.of_rows(),
                  c.of_rows(), {}, c.machine);
     }},
    {"layer_norm_backward", kOfMatrix,
     [](Call& c) {
       const Matrix gradient = c.matrix();
       layer_norm_backward(gradient, c.matrix(), c.of_rows(), c.of_rows(),
                           c.vector(), c.over(gradient), c.of_columns(),
                           c.of_columns(), {}, c.machine);
     }},
    {"rms_norm", kOfMatrix,
     [](Call& c) {
       const Matrix x = c.matrix();
       rms_norm(x, c.vector(), c.over(x), c.of_rows(), {}, c.machine);
     }},
    {"rms_norm_backward", kOfMatrix,
     [](Call& c) {
       const Matrix gradient = c.matrix();
       rms_norm_backward(gradient, c.matrix(), c.of_rows(), c.vector(),
                         c.over(gradient), c.of_columns(), {}, c.machine);
     }},
    {"residual_add", kOfMatrix,
     [](Call& c) {
       const Matrix x = c.matrix();
       residual_add_(c.matrix(x.rows, x.columns, kFloat32), x,
                     {nullptr, kFloat32}, c.machine);
     }},
    {"gated_activation", kOfMatrix,
     [](Call& c) {
       const Matrix gate = c.matrix(), up = c.matrix();
       gated_activation(gate, up, c.matrix(), {}, c.machine);
     }},
    {"gated_activation_backward", kOfMatrix,
     [](Call& c) {
       const Matrix gradient = c.matrix(), gate = c.matrix(), up = c.matrix();
       gated_activation_backward(gradient, gate, up, c.matrix(), c.matrix(), {},
                                 c.machine);
     }},
    {"attention", kOfHeads,
     [](Call& c) {
       auto* const lse = static_cast<float*>(
           c.next(c.query_count() * sizeof(float), kFloat32));
       attention(c.queries(), c.keys(), c.keys(), c.queries(), lse,
                 attention_options(c), c.machine);
     },
     false, true},
    {"attention_backward", kOfHeads,
     [](Call& c) {
       attention_backward(c.queries(), c.queries(), c.keys(), c.keys(),
                          c.queries(), c.numbers(c.query_count()), c.queries(),
                          c.keys(), c.keys(), attention_options(c), c.machine);
     },
     false, true},
    {"moe_histogram", kOfChoices,
     [](Call& c) {
       moe_histogram(c.experts(), c.result<std::int64_t>(c.size(kSizeExperts)),
                     c.machine);
     }},
    {"moe_positions", kOfChoices,
     [](Call& c) {
       moe_positions(c.experts(), -1, c.integers(c.choices()), c.machine);
     }},
    {"moe_permute", kOfTokens,
     [](Call& c) {
       moe_permute(c.tokens(), token_of(c), nullptr, c.matrix(c.choices()),
                   c.machine);
     }},
    {"moe_unpermute", kOfTokens,
     [](Call& c) {
       moe_unpermute(c.matrix(c.choices()), token_of(c), c.numbers(c.choices()),
                     c.tokens(), c.machine);
     }},
};

}  // namespace

Matrix Call::over(const Matrix& x) {
  return matrix(x.rows, x.columns, x.dtype);
}

ExpertChoices Call::experts() {
  return {integers(choices()), ExpertChoices::kInt32, choices(),
          size(kSizeExperts)};
}

Matrix Call::matrix(std::size_t rows, std::size_t columns, ScalarType type) {
  return {next(rows * columns * kFloatFormats[type].bytes, type), rows, columns,
          type};
}

Heads Call::heads(SizeOption rows) {
  const std::size_t batch = size(kSizeBatch), head_count = size(kSizeHeads);
  return {matrix(batch * head_count * size(rows)).data,
          batch,
          head_count,
          size(rows),
          size(kSizeColumns),
          dtype};
}

const std::vector<OperationRow>& operation_rows() {
  static const std::vector<OperationRow> rows(std::begin(kOperations),
                                              std::end(kOperations));
  return rows;
}

}  // namespace swamp::cli
