#include <fmt/core.h>

#include <algorithm>
#include <deque>

#include "master/cli/command.h"
#include "master/cli/predict/predict.h"
#include "master/cli/text.h"
#include "swamp/amp.h"
#include "swamp/attention.h"
#include "swamp/float_formats.h"
#include "swamp/foreach.h"
#include "swamp/moe.h"
#include "swamp/rows.h"
#include "swamp/scan.h"

namespace swamp::cli {
namespace {

using Tensors = std::vector<Tensor>;

// Call is one run of an operation.
class Call {
 public:
  Call(const Arguments& given, Machine& counting)
      : arguments(given), machine(&counting), to(given.to) {}

  // address() is where the next array begins: above all memory of this process,
  // with a large distance between arrays.
  std::uint64_t address() {
    constexpr std::uint64_t kDistance = std::uint64_t{1} << 56;
    return ++arrays_ * kDistance + arguments.placement.offset;
  }
  // array() lays out the next array, of the list's own dtypes or all of one.
  Tensors array(std::optional<ScalarType> dtype = {}) {
    const Placement& placement = arguments.placement;
    std::uint64_t at = address();
    Tensors tensors;
    for (const Shape& shape : arguments.list) {
      const ScalarType type = dtype.value_or(shape.dtype);
      at += (placement.offset - at) % placement.align;
      tensors.push_back({reinterpret_cast<void*>(at), shape.count, type});
      at += shape.count * kFloatFormats[type].bytes;
    }
    return tensors;
  }
  std::size_t size(SizeOption option) const {
    return arguments.sizes.of[option].value_or(1);
  }
  // next() is the address of the next array, for other arrays than tensors.
  template <class T = void>
  T* next() {
    return reinterpret_cast<T*>(address());
  }
  Matrix matrix(std::size_t rows) {
    return {next(), rows, size(kSizeColumns), arguments.dtype};
  }
  Matrix matrix() { return matrix(size(kSizeRows)); }
  Heads heads(SizeOption rows) {
    return {next(),     size(kSizeBatch),   size(kSizeHeads),
            size(rows), size(kSizeColumns), arguments.dtype};
  }
  // memory() is an array of zeros that exists and begins with a line.
  template <class T>
  T* memory(std::size_t count) {
    constexpr std::size_t kLine = 128;
    memory_.emplace_back(count * sizeof(T) + kLine);
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.back().data());
    return reinterpret_cast<T*>(memory_.back().data() + -at % kLine);
  }

  const Arguments& arguments;
  Machine* const machine;
  const std::optional<ScalarType> to;

 private:
  std::uint64_t arrays_ = 0;
  std::deque<std::vector<std::byte>> memory_;
};

void unscale_by(Call& call, float inv_scale) {
  float found_inf = 0;
  amp_foreach_non_finite_check_and_unscale_(call.array(), found_inf, inv_scale,
                                            nullptr, call.machine);
}
void unscale(Call& call) { unscale_by(call, 0.5f); }
void check(Call& call) { unscale_by(call, 1); }

void norm(Call& call) {
  foreach_norm(call.array(), 0.5f, nullptr, nullptr, call.machine);
}

void count_zeros(Call& call) {
  foreach_count_zeros(call.array(), call.machine);
}

void scan(Call& call) {
  const Tensors tensors = call.array();
  std::vector<TensorStatistics> out(tensors.size());
  scan_non_finite(tensors, out.data(), call.machine);
}

// default_cast() is bfloat16 for float32, and float32 for all other dtypes.
ScalarType default_cast(const Tensors& in) {
  const bool wide = !in.empty() && in.front().dtype == kFloat32;
  return wide ? kBFloat16 : kFloat32;
}

void cast(Call& call) {
  const Tensors in = call.array();
  const Tensors out = call.array(call.to.value_or(default_cast(in)));
  foreach_cast_(out, in, 1, call.machine);
}

void accumulate(Call& call) {
  const Tensors in = call.array();
  foreach_accumulate_(call.array(kFloat32), in, 1, call.machine);
}

void lerp(Call& call) {
  const Tensors in = call.array();
  foreach_lerp_(call.array(kFloat32), in, 0.001, call.machine);
}

void zero(Call& call) { foreach_zero_(call.array(), call.machine); }

void sgd(Call& call) {
  const Tensors gradients = call.array();
  const Tensors params = call.array(kFloat32);
  const Tensors momenta = call.array(kFloat32);
  const Tensors model = call.to ? call.array(call.to) : Tensors();
  SgdStep step;
  step.momentum = 0.9;
  foreach_sgd_(params, gradients, momenta, model, step, {}, call.machine);
}

void adam(Call& call) {
  const Tensors gradients = call.array();
  const Tensors params = call.array(kFloat32);
  const Tensors exp_avgs = call.array(kFloat32);
  const Tensors exp_avg_sqs = call.array(kFloat32);
  const Tensors model = call.to ? call.array(call.to) : Tensors();
  foreach_adam_(params, gradients, exp_avgs, exp_avg_sqs, model, {}, {},
                call.machine);
}

SoftmaxOptions softmax_options(const Call& call) {
  SoftmaxOptions options;
  options.scale = 0.125f;
  if (call.arguments.sizes.causal)
    options.causal_rows = call.size(kSizeColumns);
  return options;
}

void softmax(Call& call) {
  scaled_softmax(call.matrix(), call.matrix(), softmax_options(call),
                 call.machine);
}
void softmax_backward(Call& call) {
  const Matrix gradient = call.matrix();
  scaled_softmax_backward(gradient, call.matrix(), gradient,
                          softmax_options(call), call.machine);
}

// targets() are ignored: the master would read the logits of others.
const std::int64_t* targets(Call& call) {
  const std::size_t rows = call.size(kSizeRows);
  auto* memory = call.memory<std::int64_t>(rows);
  std::fill(memory, memory + rows, CrossEntropyOptions().ignore_index);
  return memory;
}

void cross_entropy(Call& call) {
  const std::size_t rows = call.size(kSizeRows);
  swamp::cross_entropy(call.matrix(), targets(call), call.memory<float>(rows),
                       call.memory<float>(rows), {}, call.machine);
}
void cross_entropy_backward(Call& call) {
  const std::size_t rows = call.size(kSizeRows);
  const Matrix logits = call.matrix();
  swamp::cross_entropy_backward(logits, targets(call), call.memory<float>(rows),
                                call.memory<float>(rows), logits, {},
                                call.machine);
}

// vector() is a weight or bias of a normalisation or residual connection.
RowVector vector(Call& call) { return {call.next(), call.arguments.dtype}; }

void layer_norm(Call& call) {
  const Matrix x = call.matrix();
  const RowVector weight = vector(call);
  swamp::layer_norm(x, weight, vector(call), call.matrix(), call.next<float>(),
                    call.next<float>(), {}, call.machine);
}
void layer_norm_backward(Call& call) {
  const std::size_t columns = call.size(kSizeColumns);
  const Matrix gradient = call.matrix();
  swamp::layer_norm_backward(gradient, call.matrix(), call.next<float>(),
                             call.next<float>(), vector(call), call.matrix(),
                             call.memory<float>(columns),
                             call.memory<float>(columns), {}, call.machine);
}
void rms_norm(Call& call) {
  const Matrix x = call.matrix();
  swamp::rms_norm(x, vector(call), call.matrix(), call.next<float>(), {},
                  call.machine);
}
void rms_norm_backward(Call& call) {
  const Matrix gradient = call.matrix();
  swamp::rms_norm_backward(
      gradient, call.matrix(), call.next<float>(), vector(call), call.matrix(),
      call.memory<float>(call.size(kSizeColumns)), {}, call.machine);
}
void residual_add(Call& call) {
  Matrix residual = call.matrix();
  residual.dtype = kFloat32;
  residual_add_(residual, call.matrix(), {nullptr, kFloat32}, call.machine);
}

AttentionOptions attention_options(const Call& call) {
  AttentionOptions options;
  if (call.arguments.sizes.causal) {
    options.causal = AttentionCausal::bottom_right;
  }
  return options;
}

void attention(Call& call) {
  const Heads q = call.heads(kSizeQueries);
  const Heads k = call.heads(kSizeKeys);
  const Heads v = call.heads(kSizeKeys);
  swamp::attention(q, k, v, call.heads(kSizeQueries), call.next<float>(),
                   attention_options(call), call.machine);
}
void attention_backward(Call& call) {
  const Heads gradient = call.heads(kSizeQueries);
  const Heads q = call.heads(kSizeQueries);
  const Heads k = call.heads(kSizeKeys);
  const Heads v = call.heads(kSizeKeys);
  const Heads out = call.heads(kSizeQueries);
  const auto* lse = call.next<float>();
  const Heads dq = call.heads(kSizeQueries);
  const Heads dk = call.heads(kSizeKeys);
  swamp::attention_backward(gradient, q, k, v, out, lse, dq, dk,
                            call.heads(kSizeKeys), attention_options(call),
                            call.machine);
}

ExpertChoices expert_choices(Call& call) {
  return {call.next(), ExpertChoices::kInt32,
          call.size(kSizeTokens) * call.size(kSizeChoices),
          call.size(kSizeExperts)};
}

void moe_histogram(Call& call) {
  swamp::moe_histogram(expert_choices(call),
                       call.memory<std::int64_t>(call.size(kSizeExperts)),
                       call.machine);
}
void moe_positions(Call& call) {
  swamp::moe_positions(expert_choices(call), -1, call.next<std::int32_t>(),
                       call.machine);
}

// token_of() is the permutation of a router whose choices are equally
// distributed: choice c of token t is expert (t * choices + c) * kStep modulo
// the number of experts.
const std::int64_t* token_of(Call& call) {
  constexpr std::size_t kStep = 0x9e3779b1;
  const std::size_t experts = call.size(kSizeExperts);
  const std::size_t choices = call.size(kSizeChoices);
  const std::size_t count = call.size(kSizeTokens) * choices;
  const auto expert = [&](std::size_t i) { return i * kStep % experts; };
  std::vector<std::size_t> at(experts + 1);
  for (std::size_t i = 0; i < count; ++i) ++at[expert(i) + 1];
  for (std::size_t e = 1; e <= experts; ++e) at[e] += at[e - 1];
  auto* tokens = call.memory<std::int64_t>(count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens[at[expert(i)]++] = static_cast<std::int64_t>(i / choices);
  }
  return tokens;
}

void moe_permute(Call& call) {
  const std::size_t rows = call.size(kSizeTokens) * call.size(kSizeChoices);
  const Matrix tokens = call.matrix(call.size(kSizeTokens));
  swamp::moe_permute(tokens, token_of(call), nullptr, call.matrix(rows),
                     call.machine);
}
void moe_unpermute(Call& call) {
  const std::size_t rows = call.size(kSizeTokens) * call.size(kSizeChoices);
  const Matrix permuted = call.matrix(rows);
  swamp::moe_unpermute(permuted, token_of(call), call.memory<float>(rows),
                       call.matrix(call.size(kSizeTokens)), call.machine);
}

constexpr std::uint32_t bits_of(std::initializer_list<SizeOption> sizes) {
  std::uint32_t bits = 0;
  for (const SizeOption size : sizes) bits |= 1u << size;
  return bits;
}
constexpr std::uint32_t kOfMatrix = bits_of({kSizeRows, kSizeColumns});
constexpr std::uint32_t kOfHeads =
    bits_of({kSizeBatch, kSizeHeads, kSizeQueries, kSizeKeys, kSizeColumns});
constexpr std::uint32_t kOfChoices =
    bits_of({kSizeTokens, kSizeExperts, kSizeChoices});
constexpr std::uint32_t kOfTokens = kOfChoices | bits_of({kSizeColumns});

// The functions of the API, which have no list to generate this from: each
// calls with other arrays.
struct OperationRow {
  const char* name;
  void (*run)(Call& call);
  bool takes_to = false;
  std::uint32_t sizes = 0;  // required; none: takes a list
  bool takes_causal = false;
};
constexpr OperationRow kOperations[] = {
    {"unscale", unscale},
    {"check", check},
    {"norm", norm},
    {"scan", scan},
    {"cast", cast, true},
    {"accumulate", accumulate},
    {"lerp", lerp},
    {"zero", zero},
    {"sgd", sgd, true},
    {"adam", adam, true},
    {"count_zeros", count_zeros},
    {"softmax", softmax, false, kOfMatrix, true},
    {"softmax_backward", softmax_backward, false, kOfMatrix, true},
    {"cross_entropy", cross_entropy, false, kOfMatrix},
    {"cross_entropy_backward", cross_entropy_backward, false, kOfMatrix},
    {"layer_norm", layer_norm, false, kOfMatrix},
    {"layer_norm_backward", layer_norm_backward, false, kOfMatrix},
    {"rms_norm", rms_norm, false, kOfMatrix},
    {"rms_norm_backward", rms_norm_backward, false, kOfMatrix},
    {"residual_add", residual_add, false, kOfMatrix},
    {"attention", attention, false, kOfHeads, true},
    {"attention_backward", attention_backward, false, kOfHeads, true},
    {"moe_histogram", moe_histogram, false, kOfChoices},
    {"moe_positions", moe_positions, false, kOfChoices},
    {"moe_permute", moe_permute, false, kOfTokens},
    {"moe_unpermute", moe_unpermute, false, kOfTokens},
};

const OperationRow& row_of(const std::string& name) {
  for (const OperationRow& row : kOperations) {
    if (name == row.name) return row;
  }
  throw UsageError(fmt::format("--operation: got '{}', expected one of {}",
                               name, joined(operation_names())));
}

// require_sizes() throws UsageError unless the sizes are those of the row.
void require_sizes(const OperationRow& row, const Sizes& sizes) {
  std::string expected;
  for (int i = 0; i < kSizeCount; ++i) {
    if ((row.sizes >> i & 1u) == 0) continue;
    expected +=
        fmt::format("{}{}", expected.empty() ? "" : ", ", kSizeOptions[i]);
  }
  if (expected.empty()) expected = "a list";
  for (int i = 0; i < kSizeCount; ++i) {
    const bool takes = (row.sizes >> i & 1u) != 0;
    if (takes == sizes.of[i].has_value()) continue;
    throw UsageError(
        takes ? fmt::format("{}: not given, expected {} with operation {}",
                            kSizeOptions[i], expected, row.name)
              : fmt::format("{}: got '{}' with operation {}, expected {}",
                            kSizeOptions[i], *sizes.of[i], row.name, expected));
  }
  if (sizes.causal && !row.takes_causal) {
    throw UsageError(fmt::format(
        "--causal: given with operation {}, expected it with softmax and "
        "attention only",
        row.name));
  }
  const auto limit = [&](std::uint64_t most, const char* what,
                         std::initializer_list<SizeOption> options) {
    std::uint64_t count = 1;
    for (const SizeOption option : options) {
      const std::uint64_t size = sizes.of[option].value_or(1);
      if (size > most / count) {
        throw UsageError(fmt::format("{}: got '{}', expected at most {} {}",
                                     kSizeOptions[option], size, most, what));
      }
      count *= size;
    }
  };
  const bool heads = sizes.of[kSizeHeads].has_value();
  limit(kMostRows, "rows of all heads", {kSizeBatch, kSizeHeads, kSizeQueries});
  limit(kMostRows, "rows of all heads", {kSizeBatch, kSizeHeads, kSizeKeys});
  limit(kMostScores, "scores",
        {kSizeBatch, kSizeHeads, kSizeQueries, kSizeKeys});
  limit(kMostRows, "rows of tokens", {kSizeTokens, kSizeChoices});
  limit(heads ? kMostHeadElements : kMostElements, "elements",
        {kSizeRows, kSizeTokens, kSizeChoices, kSizeBatch, kSizeHeads,
         kSizeQueries, kSizeColumns});
  limit(heads ? kMostHeadElements : kMostElements, "elements",
        {kSizeBatch, kSizeHeads, kSizeKeys, kSizeColumns});
}

}  // namespace

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (const OperationRow& row : kOperations) names.emplace_back(row.name);
  return names;
}

bool is_list_operation(const std::string& name) {
  return row_of(name).sizes == 0;
}

void run_operation(const std::string& name, const Arguments& arguments,
                   Machine& machine) {
  const OperationRow& row = row_of(name);
  if (arguments.to && !row.takes_to) {
    throw UsageError(fmt::format(
        "--to: got '{}' with operation {}, expected it with cast, sgd or "
        "adam only",
        dtype_name(*arguments.to), name));
  }
  require_sizes(row, arguments.sizes);
  Call call(arguments, machine);
  row.run(call);
}

}  // namespace swamp::cli
