// What each operation of `swamp predict` calls.
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
  Tensors float32() { return array(kFloat32); }
  // model() is the model weights that a step writes, if --to is given.
  Tensors model() { return to ? array(to) : Tensors(); }
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
  // vector() is a weight or bias of a norm.
  RowVector vector() { return {next(), arguments.dtype}; }
  Heads heads(SizeOption rows) {
    return {next(),     size(kSizeBatch),   size(kSizeHeads),
            size(rows), size(kSizeColumns), arguments.dtype};
  }
  Heads queries() { return heads(kSizeQueries); }
  Heads keys() { return heads(kSizeKeys); }
  Matrix tokens() { return matrix(size(kSizeTokens)); }
  // memory() is an array of zeros that exists and begins with a line.
  template <class T = float>
  T* memory(std::size_t count) {
    constexpr std::size_t kLine = 128;
    memory_.emplace_back(count * sizeof(T) + kLine);
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.back().data());
    return reinterpret_cast<T*>(memory_.back().data() + -at % kLine);
  }
  float* of_rows() { return memory(size(kSizeRows)); }
  float* of_columns() { return memory(size(kSizeColumns)); }
  std::size_t choices() const { return size(kSizeTokens) * size(kSizeChoices); }
  ExpertChoices experts() {
    return {next(), ExpertChoices::kInt32, choices(), size(kSizeExperts)};
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

// default_cast() is bfloat16 for float32, and float32 for all other dtypes.
ScalarType default_cast(const Tensors& in) {
  const bool wide = !in.empty() && in.front().dtype == kFloat32;
  return wide ? kBFloat16 : kFloat32;
}

SoftmaxOptions softmax_options(const Call& call) {
  SoftmaxOptions options;
  options.scale = 0.125f;
  if (call.arguments.sizes.causal) {
    options.causal_rows = call.size(kSizeColumns);
  }
  return options;
}

// lse() are small numbers: backward computes nothing again.
float* lse(Call& call) {
  return call.memory(call.size(kSizeBatch) * call.size(kSizeHeads) *
                     call.size(kSizeQueries));
}

// targets() are ignored: the master would read the logits of others.
const std::int64_t* targets(Call& call) {
  const std::size_t rows = call.size(kSizeRows);
  auto* memory = call.memory<std::int64_t>(rows);
  std::fill(memory, memory + rows, CrossEntropyOptions().ignore_index);
  return memory;
}

AttentionOptions attention_options(const Call& call) {
  AttentionOptions options;
  if (call.arguments.sizes.causal) {
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
  auto* tokens = call.memory<std::int64_t>(count);
  for (std::size_t i = 0; i < count; ++i) {
    tokens[at[expert(i)]++] = static_cast<std::int64_t>(i / choices);
  }
  return tokens;
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

// The functions of the API. Their arrays may get addresses in any order,
// because these differ by multiples of a line.
struct OperationRow {
  const char* name;
  std::uint32_t sizes;  // required; none: takes a list
  void (*run)(Call& call);
  bool takes_to = false;
  bool takes_causal = false;
};
constexpr OperationRow kOperations[] = {
    {"unscale", 0, [](Call& c) { unscale_by(c, 0.5f); }},
    {"check", 0, [](Call& c) { unscale_by(c, 1); }},
    {"norm", 0,
     [](Call& c) {
       foreach_norm(c.array(), 0.5f, nullptr, nullptr, c.machine);
     }},
    {"scan", 0,
     [](Call& c) {
       std::vector<TensorStatistics> out(c.arguments.list.size());
       scan_non_finite(c.array(), out.data(), c.machine);
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
     [](Call& c) { foreach_count_zeros(c.array(), c.machine); }},
    {"softmax", kOfMatrix,
     [](Call& c) {
       scaled_softmax(c.matrix(), c.matrix(), softmax_options(c), c.machine);
     },
     false, true},
    {"softmax_backward", kOfMatrix,
     [](Call& c) {
       const Matrix gradient = c.matrix();
       scaled_softmax_backward(gradient, c.matrix(), gradient,
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
                              c.of_rows(), logits, {}, c.machine);
     }},
    {"layer_norm", kOfMatrix,
     [](Call& c) {
       layer_norm(c.matrix(), c.vector(), c.vector(), c.matrix(), c.of_rows(),
                  c.of_rows(), {}, c.machine);
     }},
    {"layer_norm_backward", kOfMatrix,
     [](Call& c) {
       layer_norm_backward(c.matrix(), c.matrix(), c.of_rows(), c.of_rows(),
                           c.vector(), c.matrix(), c.of_columns(),
                           c.of_columns(), {}, c.machine);
     }},
    {"rms_norm", kOfMatrix,
     [](Call& c) {
       rms_norm(c.matrix(), c.vector(), c.matrix(), c.of_rows(), {}, c.machine);
     }},
    {"rms_norm_backward", kOfMatrix,
     [](Call& c) {
       rms_norm_backward(c.matrix(), c.matrix(), c.of_rows(), c.vector(),
                         c.matrix(), c.of_columns(), {}, c.machine);
     }},
    {"residual_add", kOfMatrix,
     [](Call& c) {
       Matrix residual = c.matrix();
       residual.dtype = kFloat32;
       residual_add_(residual, c.matrix(), {nullptr, kFloat32}, c.machine);
     }},
    {"attention", kOfHeads,
     [](Call& c) {
       attention(c.queries(), c.keys(), c.keys(), c.queries(), c.next<float>(),
                 attention_options(c), c.machine);
     },
     false, true},
    {"attention_backward", kOfHeads,
     [](Call& c) {
       attention_backward(c.queries(), c.queries(), c.keys(), c.keys(),
                          c.queries(), lse(c), c.queries(), c.keys(), c.keys(),
                          attention_options(c), c.machine);
     },
     false, true},
    {"moe_histogram", kOfChoices,
     [](Call& c) {
       moe_histogram(c.experts(), c.memory<std::int64_t>(c.size(kSizeExperts)),
                     c.machine);
     }},
    {"moe_positions", kOfChoices,
     [](Call& c) {
       moe_positions(c.experts(), -1, c.next<std::int32_t>(), c.machine);
     }},
    {"moe_permute", kOfTokens,
     [](Call& c) {
       moe_permute(c.tokens(), token_of(c), nullptr, c.matrix(c.choices()),
                   c.machine);
     }},
    {"moe_unpermute", kOfTokens,
     [](Call& c) {
       moe_unpermute(c.matrix(c.choices()), token_of(c), c.memory(c.choices()),
                     c.tokens(), c.machine);
     }},
};

const OperationRow& row_of(const std::string& name) {
  for (const OperationRow& row : kOperations) {
    if (name == row.name) return row;
  }
  throw UsageError(fmt::format("--operation: got '{}', expected one of {}",
                               name, joined(operation_names())));
}

// require_sizes() throws UsageError unless exactly the row's sizes are given.
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
