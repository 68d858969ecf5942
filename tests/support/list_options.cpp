// Options of the operators of lists of tensors: factors, and optimizer steps.
#include <cmath>
#include <iterator>

#include "support/operators.h"
#include "swamp/amp.h"
#include "swamp/foreach.h"

namespace swamp::test {
namespace {

using cli::Tensors;

// Factors of all kinds: ordinary ones, powers of two, and special ones.
const float kFactors[] = {0.5f,      1,         0.7f, 65536,  0x1p-16f,
                          0,         -0.0f,     -1,   1e-40f, 3.4e38f,
                          0x1p-126f, HUGE_VALF, NAN};
void scaled_lists(SeededCall& c, std::size_t variant) {
  amp_foreach_non_finite_check_and_unscale_(
      c.array(), *c.result<float>(), kFactors[variant],
      c.result<OverflowReport>(), c.machine);
}

void norm_of_lists(SeededCall& c, std::size_t variant) {
  auto* const norm = c.result<double>();
  *norm = foreach_norm(c.array(), kFactors[variant], c.result<float>(),
                       c.result<OverflowReport>(), c.machine);
}

void divided_lists(SeededCall& c, std::size_t variant) {
  const float divisor = variant == 0 ? 3 : kFactors[variant - 1];
  const Tensors in = c.array(), sum = c.float32();
  foreach_cast_(c.float32(), in, divisor, c.machine);
  c.next_call();
  foreach_accumulate_(sum, in, divisor, c.machine);
  c.next_call();
  const float weight = std::fabs(divisor) > 1e30f ? 0.3f : divisor;
  foreach_lerp_(sum, in, weight, c.machine);
  c.next_call();
  foreach_lerp_(c.array(), in, weight / 7, c.machine);
}

// The first step has no buffer to read.
void sgd_options(SeededCall& c, std::size_t variant) {
  SgdStep step;
  step.lr = 0.1;
  step.momentum = variant < 2 ? 0 : 0.9;
  step.dampening = variant == 3 ? 0.3 : 0;
  step.weight_decay = variant % 2 == 0 ? 0.01 : 0;
  step.nesterov = variant > 3;
  step.maximize = variant % 3 == 1;
  step.first = variant == 2 || variant == 5;
  const Tensors gradients = c.array(), params = c.float32(),
                buffers = variant < 2 ? Tensors() : c.float32(),
                model = c.dtype == kFloat32 ? Tensors() : c.array();
  foreach_sgd_(params, gradients, buffers, model, step, {0.3f, 0.7f},
               c.machine);
}

// Steps of amsgrad, and of Adam with less memory.
struct AdamKind {
  bool amsgrad, is_stochastic, has_sums, has_blocks, is_float8;
  ScalarType moments = kBFloat16;
};
constexpr AdamKind kAdamKinds[] = {
    {false, false, false, false, false, kFloat32},
    {true, false, false, false, false, kFloat32},
    {false, true, false, false, false},
    {false, true, false, false, false, kFloat32},
    {false, false, true, false, false},
    {false, false, true, false, false, kFloat32},
    {false, false, false, true, false},
    {false, true, false, true, false},
    {false, false, true, true, false},
    {false, false, false, true, true},
    {false, true, false, true, true},
    {false, false, true, true, true}};
constexpr std::size_t kFloat8Kinds = 9;  // the first of them
void adam_options(SeededCall& c, std::size_t variant) {
  AdamKind kind = kAdamKinds[variant];
  const bool is_narrow = c.dtype != kFloat32,
             rounds = kind.is_stochastic || kind.has_sums;
  if (!is_narrow && rounds) {  // of float32 only moments can be rounded
    kind.has_sums = false;
    kind.is_stochastic = !kind.has_blocks;
    kind.moments = kBFloat16;
  }
  const Tensors gradients = c.array(),
                params = is_narrow && rounds ? c.array() : c.float32();
  std::vector<std::uint64_t> ids;
  std::vector<BlockMoments> blocks;
  Tensors first, second, largest, sums, model;
  for (const Tensor& one : params) {
    ids.push_back(100 + ids.size());
    if (!kind.has_blocks) continue;
    const auto codes = [&] {
      return static_cast<std::uint8_t*>(c.next(one.count, std::nullopt));
    };
    std::uint8_t *const m = codes(), *const v = codes();
    const std::size_t count = (one.count + kMomentBlock - 1) / kMomentBlock;
    float* const absmax = c.numbers(2 * count);
    for (std::size_t i = 5; i < 2 * count; i += 7) absmax[i] = 0;
    c.is_made(absmax);
    blocks.push_back({m, v, absmax});
  }
  if (!kind.has_blocks) {
    first = c.array(kind.moments), second = c.array(kind.moments);
  }
  if (kind.amsgrad) largest = c.float32();
  if (kind.has_sums) sums = c.array();
  if (is_narrow && !rounds) model = c.array();
  AdamStep step;
  step.step = variant % 3 == 0 ? 100000 : 3;  // no correction, and one
  step.beta1 = variant % 4 == 1 ? 0.3 : 0.9;
  step.weight_decay = 0.1;
  step.decoupled = variant % 2 != 0;
  step.amsgrad = step.maximize = kind.amsgrad;
  step.max_exp_avg_sqs = largest;
  step.stochastic = kind.is_stochastic;
  step.compensations = sums;
  if (kind.has_blocks) step.block_moments = blocks.data();
  step.float8_moments = kind.is_float8;
  step.seed = 42;
  step.ids = ids.data();
  foreach_adam_(params, gradients, first, second, model, step, {0.3f, 0.7f},
                c.machine);
}

}  // namespace

std::vector<OptionRow> list_options() {
  const auto adam_float8 = [](SeededCall& c, std::size_t variant) {
    adam_options(c, kFloat8Kinds + variant);
  };
  return {
      {"scaled", 0, std::size(kFactors), scaled_lists, 0},
      {"norm_scaled", 0, std::size(kFactors), norm_of_lists, 0},
      {"divided", 0, std::size(kFactors) + 1, divided_lists, 2},
      {"sgd_options", 0, 6, sgd_options},
      {"adam_options", 0, kFloat8Kinds, adam_options},
      {"adam_float8", 0, std::size(kAdamKinds) - kFloat8Kinds, adam_float8}};
}

}  // namespace swamp::test
