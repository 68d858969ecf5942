// critical_path/: how the operators of a training step of GPT-2 small, and
// those of ResNet-50 that are swamp's, scale to many slaves (--critical_path).
// Each case is an operator on a machine with that number of slaves, which one
// thread runs in turn (SlavesInTurn). This measures all but what slaves that
// run at the same time take from each other, such as the bandwidth of memory.
// The time of a case is predicted, with a barrier of 10 us a launch.
#include "bench/critical_path.h"

#include <memory>
#include <string>

#include "bench/bench.h"
#include "master/cli/predict/predict.h"
#include "runtime/machine_impl.h"
#include "swamp/amp.h"
#include "swamp/attention.h"
#include "swamp/foreach.h"
#include "swamp/moe.h"
#include "swamp/product.h"
#include "swamp/rows.h"

namespace swamp::bench {
namespace {

constexpr std::size_t kTokens = 8 * 1024, kWidth = 768, kHeads = 12;
constexpr std::size_t kColumns = kWidth / kHeads;
constexpr std::size_t kClasses = 50257;
constexpr double kBarriers[] = {5e-6, 10e-6, 20e-6};

using Call = std::function<void(Machine*)>;

// Inputs is memory of bfloat16 or float32 elements, all of them small numbers.
class Inputs {
 public:
  explicit Inputs(std::size_t bytes) : at_(scratch_memory(bytes)) {}
  std::byte* take(std::size_t bytes) {
    std::byte* const taken = at_;
    at_ += (bytes + 4095) / 4096 * 4096;
    return taken;
  }
  Matrix matrix(std::size_t rows, std::size_t columns,
                ScalarType dtype = kBFloat16) {
    return {take(rows * columns * kScalarTypeBytes[dtype]), rows, columns,
            dtype};
  }
  float* floats(std::size_t count) {
    return reinterpret_cast<float*>(take(count * sizeof(float)));
  }

 private:
  std::byte* at_;
};

// Each returns the call of an operator, with memory of its own.
Call norm(bool backward) {
  Inputs in(std::size_t{64} * kMib);
  const Matrix x = in.matrix(kTokens, kWidth), y = in.matrix(kTokens, kWidth),
               dx = in.matrix(kTokens, kWidth);
  float *mean = in.floats(kTokens), *rstd = in.floats(kTokens),
        *weight = in.floats(kWidth), *dweight = in.floats(kWidth),
        *dbias = in.floats(kWidth);
  const RowVector w{weight, kFloat32};
  if (!backward) {
    return [=](Machine* m) { layer_norm(x, w, w, y, mean, rstd, {}, m); };
  }
  return [=](Machine* m) {
    layer_norm_backward(y, x, mean, rstd, w, dx, dweight, dbias, {}, m);
  };
}

Call softmax(bool backward) {
  constexpr std::size_t kRows = 8 * kHeads * 1024;
  Inputs in(3 * kRows * 1024 * 2 + kMib);
  const Matrix x = in.matrix(kRows, 1024), y = in.matrix(kRows, 1024),
               dx = in.matrix(kRows, 1024);
  if (!backward) return [=](Machine* m) { scaled_softmax(x, y, {}, m); };
  return [=](Machine* m) { scaled_softmax_backward(x, y, dx, {}, m); };
}

Call loss(bool backward) {
  Inputs in(kTokens * kClasses * 2 + kMib);
  const Matrix x = in.matrix(kTokens, kClasses);
  float *losses = in.floats(kTokens), *lse = in.floats(kTokens);
  const auto targets = std::make_shared<std::vector<std::int64_t>>(kTokens, 17);
  if (!backward) {
    return [=](Machine* m) {
      cross_entropy(x, targets->data(), losses, lse, nullptr, {}, m);
    };
  }
  return [=](Machine* m) {
    cross_entropy_backward(x, targets->data(), lse, nullptr, losses, x, {}, m);
  };
}

Call attend(std::size_t batch, bool backward) {
  const std::size_t bytes = batch * kHeads * 1024 * kColumns * 2;
  Inputs in(8 * bytes + 4 * kMib);
  const auto heads = [&] {
    return Heads{in.take(bytes), batch, kHeads, 1024, kColumns, kBFloat16};
  };
  const Heads q = heads(), k = heads(), v = heads(), out = heads(),
              gradient = heads(), dq = heads(), dk = heads(), dv = heads();
  float* const lse = in.floats(batch * kHeads * 1024);
  AttentionOptions options;
  options.causal = AttentionCausal::top_left;
  if (!backward) {
    return [=](Machine* m) { attention(q, k, v, out, lse, options, m); };
  }
  attention(q, k, v, out, lse, options);
  return [=](Machine* m) {
    attention_backward(gradient, q, k, v, out, lse, dq, dk, dv, options, m);
  };
}

// One query of each head over a cache of 8192 keys.
Call attend_one() {
  constexpr std::size_t kKeys = 8192, kBytes = kHeads * kColumns * 2;
  Inputs in(2 * (kKeys + 1) * kBytes + kMib);
  const auto heads = [&](std::size_t rows) {
    return Heads{in.take(rows * kBytes), 1, kHeads, rows, kColumns, kBFloat16};
  };
  const Heads q = heads(1), k = heads(kKeys), v = heads(kKeys), out = heads(1);
  float* const lse = in.floats(kHeads);
  return [=](Machine* m) { attention(q, k, v, out, lse, {}, m); };
}

// A product of bfloat16 matrices; the weight of a layer is [out, in].
Call multiply(const ProductShape& shape, ScalarType dtype = kBFloat16) {
  const auto arrays = product_arrays(
      scratch_memory(shape.elements() * kScalarTypeBytes[dtype]), shape, dtype);
  return [=](Machine* machine) {
    product(arrays.out, arrays.a, arrays.b, {}, machine);
  };
}
Call layer_forward(std::size_t in, std::size_t out) {
  return multiply({1, kTokens, out, in, false, true});
}
Call layer_gradient_x(std::size_t in, std::size_t out) {
  return multiply({1, kTokens, in, out, false, false});
}
Call layer_gradient_w(std::size_t in, std::size_t out) {
  return multiply({1, out, in, kTokens, true, false});
}

// The convolutions of ResNet-50, 8 images, as products of unfolded inputs:
// which one of forward and the two gradients, see layer_forward().
enum class Direction { forward, gradient_x, gradient_w };
Call convolutions(Direction direction) {
  constexpr std::size_t kImages = 8;
  constexpr std::size_t kSmallWidth = 64;
  std::vector<ProductShape> shapes;
  const auto add = [&](std::size_t size, std::size_t in, std::size_t out) {
    const std::size_t positions = kImages * size * size;
    const ProductShape forward{1, positions, out, in, false, true},
        gradient_x{1, positions, in, out, false, false},
        gradient_w{1, out, in, positions, true, false};
    shapes.push_back(direction == Direction::forward      ? forward
                     : direction == Direction::gradient_x ? gradient_x
                                                          : gradient_w);
  };
  add(112, 7 * 7 * 3, kSmallWidth);
  std::size_t in = kSmallWidth, width = kSmallWidth, size = 56;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      // A stage but the first halves the size in its second convolution.
      const bool halves = block == 0 && width != kSmallWidth;
      add(halves ? 2 * size : size, in, width);
      add(size, 9 * width, width);
      add(size, width, 4 * width);
      if (block == 0) add(size, in, 4 * width);
      in = 4 * width;
    }
    width *= 2;
    size /= 2;
  }
  std::size_t most = 0;
  for (const ProductShape& shape : shapes) {
    most = std::max(most, shape.elements());
  }
  std::byte* const memory = scratch_memory(2 * most);
  std::vector<ProductArrays> layers;
  for (const ProductShape& shape : shapes) {
    layers.push_back(product_arrays(memory, shape, kBFloat16));
  }
  return [layers = std::move(layers)](Machine* machine) {
    for (const ProductArrays& arrays : layers) {
      product(arrays.out, arrays.a, arrays.b, {}, machine);
    }
  };
}

Counts counts_of(const char* model) {
  const std::vector<std::uint64_t> counts = cli::model_counts(model);
  return Counts(counts.begin(), counts.end());
}

// 10,000 small tensors: what the master does for each of them counts.
Counts small_tensors() { return Counts(10000, 16); }

Call unscale(const Counts& counts) {
  const auto list = std::make_shared<List>(make_list(kDtypes[0], counts));
  return [=](Machine* m) {
    float found_inf = 0;
    amp_foreach_non_finite_check_and_unscale_(*list, found_inf, kFlipSign,
                                              nullptr, m);
  };
}

Call norm_of(const Counts& counts) {
  const auto list = std::make_shared<List>(make_list(kDtypes[0], counts));
  return [=](Machine* m) { foreach_norm(*list, 1, nullptr, nullptr, m); };
}

Call adam(const Counts& counts) {
  const std::size_t bytes = list_bytes(kDtypes[0], counts);
  const auto lists = std::make_shared<std::vector<List>>();
  scratch_memory(4 * bytes);
  for (std::size_t i = 0; i < 4; ++i) {
    lists->push_back(make_list(kDtypes[0], counts, i * bytes));
  }
  return [=](Machine* m) {
    AdamStep step;
    step.lr = step.weight_decay = 0;
    step.step = 1;
    foreach_adam_((*lists)[0], (*lists)[1], (*lists)[2], (*lists)[3],
                  TensorList(), step, {}, m);
  };
}

// A layer of 64 experts; each token chooses two.
struct Experts {
  static constexpr std::size_t kExperts = 64, kChoices = 2;
  static constexpr std::size_t kRows = kChoices * kTokens;

  Inputs in{(kTokens + kRows) * kWidth * 2 + 8 * kMib};
  Matrix tokens = in.matrix(kTokens, kWidth), rows = in.matrix(kRows, kWidth),
         probs = in.matrix(kTokens, kExperts, kFloat32);
  float* factors = in.floats(kRows);
  float* lse = in.floats(kTokens);
  std::vector<std::int64_t> token_of, counts;

  Experts() : counts(kExperts, kRows / kExperts) {
    for (std::size_t e = 0; e < kExperts; ++e) {
      for (std::size_t t = e / 2; t < kTokens; t += kExperts / kChoices) {
        token_of.push_back(static_cast<std::int64_t>(t));
      }
    }
  }
};
Call moe(void (*call)(Experts&, Machine*)) {
  const auto experts = std::make_shared<Experts>();
  return [=](Machine* m) { call(*experts, m); };
}

struct PathCase {
  const char* name;
  int calls;  // in a training step: of ResNet-50 with 8 images if the name
              // begins with resnet/, else of GPT-2 small with 8 sequences
  Call (*make)();
};
const PathCase kPathCases[] = {
    {"adamw", 1, [] { return adam(counts_of("gpt2-small")); }},
    {"unscale", 1, [] { return unscale(counts_of("gpt2-small")); }},
    {"norm", 1, [] { return norm_of(counts_of("gpt2-small")); }},
    {"layer_norm/forward", 25, [] { return norm(false); }},
    {"layer_norm/backward", 25, [] { return norm(true); }},
    {"softmax/forward", 0, [] { return softmax(false); }},
    {"softmax/backward", 0, [] { return softmax(true); }},
    {"cross_entropy/forward", 1, [] { return loss(false); }},
    {"cross_entropy/backward", 1, [] { return loss(true); }},
    {"attention/forward", 12, [] { return attend(8, false); }},
    {"attention/backward", 12, [] { return attend(8, true); }},
    {"attention_1/forward", 0, [] { return attend(1, false); }},
    {"attention_1/backward", 0, [] { return attend(1, true); }},
    {"attention_query/forward", 0, attend_one},
    {"qkv/forward", 12, [] { return layer_forward(kWidth, 3 * kWidth); }},
    {"qkv/gradient_x", 12, [] { return layer_gradient_x(kWidth, 3 * kWidth); }},
    {"qkv/gradient_w", 12, [] { return layer_gradient_w(kWidth, 3 * kWidth); }},
    {"projection/forward", 12, [] { return layer_forward(kWidth, kWidth); }},
    {"projection/gradient_x", 12,
     [] { return layer_gradient_x(kWidth, kWidth); }},
    {"projection/gradient_w", 12,
     [] { return layer_gradient_w(kWidth, kWidth); }},
    // Of both layers: the other one has the sizes in the other order.
    {"mlp/forward", 12, [] { return layer_forward(kWidth, 4 * kWidth); }},
    {"mlp/gradient_x", 12, [] { return layer_gradient_x(kWidth, 4 * kWidth); }},
    {"mlp/gradient_w", 12, [] { return layer_gradient_w(kWidth, 4 * kWidth); }},
    {"mlp_2/forward", 12, [] { return layer_forward(4 * kWidth, kWidth); }},
    {"mlp_2/gradient_x", 12,
     [] { return layer_gradient_x(4 * kWidth, kWidth); }},
    {"mlp_2/gradient_w", 12,
     [] { return layer_gradient_w(4 * kWidth, kWidth); }},
    {"logits/forward", 1, [] { return layer_forward(kWidth, kClasses); }},
    {"logits/gradient_x", 1, [] { return layer_gradient_x(kWidth, kClasses); }},
    {"logits/gradient_w", 1, [] { return layer_gradient_w(kWidth, kClasses); }},
    {"resnet/adamw", 1, [] { return adam(counts_of("resnet50")); }},
    {"resnet/unscale", 1, [] { return unscale(counts_of("resnet50")); }},
    {"resnet/forward", 1, [] { return convolutions(Direction::forward); }},
    {"resnet/gradient_x", 1,
     [] { return convolutions(Direction::gradient_x); }},
    {"resnet/gradient_w", 1,
     [] { return convolutions(Direction::gradient_w); }},
    {"512x512x512", 0,
     [] {
       return multiply({1, 512, 512, 512, false, false}, kFloat32);
     }},
    {"small_tensors/adamw", 0, [] { return adam(small_tensors()); }},
    {"small_tensors/unscale", 0, [] { return unscale(small_tensors()); }},
    {"small_tensors/norm", 0, [] { return norm_of(small_tensors()); }},
    {"moe/permute", 0,
     [] {
       return moe([](Experts& e, Machine* m) {
         moe_permute(e.tokens, e.token_of.data(), nullptr, e.rows, m);
       });
     }},
    {"moe/unpermute", 0,
     [] {
       return moe([](Experts& e, Machine* m) {
         moe_unpermute(e.rows, e.token_of.data(), e.factors, e.tokens, m);
       });
     }},
    {"moe/dot", 0,
     [] {
       return moe([](Experts& e, Machine* m) {
         moe_dot(e.tokens, e.token_of.data(), e.rows, e.factors, m);
       });
     }},
    {"moe/aux_loss", 0,
     [] {
       return moe([](Experts& e, Machine* m) {
         moe_aux_loss(e.probs, e.counts.data(), {}, m);
       });
     }},
    {"moe/aux_loss_backward", 0,
     [] {
       return moe([](Experts& e, Machine* m) {
         moe_aux_loss_backward(1, e.counts.data(), e.probs, {}, m);
       });
     }},
    {"moe/z_loss", 0,
     [] {
       return moe([](Experts& e, Machine* m) {
         moe_z_loss(e.probs, 1, e.lse, nullptr, m);
       });
     }},
    {"moe/z_loss_backward", 0,
     [] {
       return moe([](Experts& e, Machine* m) {
         moe_z_loss_backward(1, e.probs, 1, e.lse, nullptr, e.probs, m);
       });
     }},
};

// config_of() describes a machine of `slaves` slaves.
MachineConfig config_of(int slaves) {
  MachineConfig config;
  config.machine = "host";
  config.transfer = "view";
  config.core_groups = 1;
  config.slaves_per_group = static_cast<std::uint32_t>(slaves);
  return config;
}

// measured() runs the slaves of a call in turn.
CriticalPath measured(const Call& call, int slaves) {
  MachineConfig config = config_of(slaves);
  config.backend = "serial";
  Machine machine(config);
  auto backend = std::make_unique<SlavesInTurn>(slaves);
  SlavesInTurn& turns = *backend;
  machine.impl().backend = std::move(backend);
  constexpr double kSeconds = 0.5;
  double spent = 0;
  for (int i = 0; i < 20 && (i < 2 || spent < kSeconds); ++i) {
    const Clock::time_point begin = Clock::now();
    turns.begin();
    call(&machine);
    turns.end();
    spent += seconds_since(begin);
  }
  return turns.path();
}

// real_seconds() returns the least time of a call with `slaves` threads.
double real_seconds(const Call& call, int slaves) {
  Machine machine(config_of(slaves));
  set_threads(slaves);
  double least = 1e30;
  for (int i = 0; i < 5; ++i) {
    const Clock::time_point begin = Clock::now();
    call(&machine);
    least = std::min(least, seconds_since(begin));
  }
  set_threads(all_threads());
  return least;
}

// PathCase's call and its path on one slave, which each number of slaves is
// compared with. Cases run in the order of their registration.
struct Measured {
  const PathCase* what = nullptr;
  Call call;
  CriticalPath one;
};

void run(State& state, const PathCase& what, int slaves) {
  static Measured last;
  if (last.what != &what) {
    const Call call = what.make();
    last = {&what, call, measured(call, 1)};
  }
  const CriticalPath path = measured(last.call, slaves);
  const double alone = last.one.seconds(0);
  for (auto _ : state) state.SetIterationTime(path.seconds(kBarriers[1]));
  state.counters["calls"] = what.calls;
  state.counters["alone_ms"] = alone * 1e3;
  state.counters["balance"] = path.balance();
  state.counters["master_percent"] = 100 * path.master / alone;
  state.counters["launches"] = static_cast<double>(path.launches);
  for (const double barrier : kBarriers) {
    const int us = static_cast<int>(barrier * 1e6 + 0.5);
    state.counters["efficiency_" + std::to_string(us) + "us"] =
        alone / (slaves * path.seconds(barrier));
  }
  if (slaves <= all_threads()) {
    state.counters["real_ms"] = real_seconds(last.call, slaves) * 1e3;
  }
}

}  // namespace

void register_critical_path() {
  for (const PathCase& what : kPathCases) {
    for (const int slaves : {2, 4, 8, 16, 32, 64, 192}) {
      benchmark::RegisterBenchmark(
          (std::string("critical_path/") + what.name +
           "/slaves:" + std::to_string(slaves))
              .c_str(),
          [&what, slaves](State& state) { run(state, what, slaves); })
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace swamp::bench
