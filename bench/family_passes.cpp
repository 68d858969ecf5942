// norm/, cast/, accumulate/, step/: the passes of a mixed-precision optimizer
// over one large tensor, beside a plain loop over as many arrays.
#include <string>
#include <utility>
#include <vector>

#include "bench/memory.h"
#include "bench/operator.h"
#include "bench/passes.h"
#include "bench/stream_roof.h"
#include "bench/suite.h"
#include "bench/threads.h"
#include "bench/timed.h"
#include "swamp/foreach.h"

namespace swamp::bench {
namespace {

constexpr double kNormAim = 0.9;  // of reading, float32 in memory

// Arrays are the tensors of a pass: the one that is read, those that move, the
// one that is written.
struct Arrays {
  Tensor in;
  std::vector<Tensor> inout;
  Tensor out;
};

// Pass is one function of swamp/foreach.h.
struct Pass {
  std::string name;
  ScalarType in;
  std::size_t inout;
  const ScalarType* out;  // null: none
  void (*call)(const Arrays& arrays, Machine* machine);

  Streams streams() const {
    return {bytes_of(in), inout, out != nullptr ? bytes_of(*out) : 0};
  }
  static std::size_t bytes_of(ScalarType type) {
    return type == kFloat32 ? 4 : 2;
  }
};

// The steps leave every bit where it is, and so do not drift into subnormals:
// the gradient's share is too small, the learning rate 0.
void call_adam(const Arrays& a, Machine* machine) {
  AdamStep step;
  step.lr = 0;
  step.beta1 = step.beta2 = 1 - 1e-12;
  step.weight_decay = 0;
  step.step = 1;
  StepScaling scaling;
  scaling.clip_coefficient = 0.5f;
  foreach_adam_(a.inout[0], a.in, a.inout[1], a.inout[2],
                a.out.count != 0 ? TensorList(a.out) : TensorList(), step,
                scaling, machine);
}

void call_sgd(const Arrays& a, Machine* machine) {
  SgdStep step;
  step.lr = 0;
  step.momentum = a.inout.size() == 2 ? 1 : 0;
  step.dampening = step.momentum;
  foreach_sgd_(a.inout[0], a.in,
               a.inout.size() == 2 ? TensorList(a.inout[1]) : TensorList(),
               a.out.count != 0 ? TensorList(a.out) : TensorList(), step, {},
               machine);
}

void call_cast(const Arrays& a, Machine* machine) {
  foreach_cast_(a.out, a.in, 1, machine);
}
void call_accumulate(const Arrays& a, Machine* machine) {
  foreach_accumulate_(a.inout[0], a.in, 1, machine);
}

// Of float16 and bfloat16 only one in a quick run: bytes are what counts.
std::vector<Pass> passes(bool quick) {
  static constexpr ScalarType f16 = kFloat16, bf16 = kBFloat16, f32 = kFloat32;
  std::vector<Pass> all{
      {"cast/bfloat16_float32", bf16, 0, &f32, call_cast},
      {"cast/float32_bfloat16", f32, 0, &bf16, call_cast},
      {"accumulate/bfloat16", bf16, 1, nullptr, call_accumulate},
      {"step/adam/float32", f32, 3, nullptr, call_adam},
      {"step/adam/bfloat16_bfloat16", bf16, 3, &bf16, call_adam},
  };
  if (quick) return all;
  const std::vector<Pass> more{
      {"cast/float16_float32", f16, 0, &f32, call_cast},
      {"cast/float32_float16", f32, 0, &f16, call_cast},
      {"cast/float32_float32", f32, 0, &f32, call_cast},
      {"accumulate/float16", f16, 1, nullptr, call_accumulate},
      {"accumulate/float32", f32, 1, nullptr, call_accumulate},
      {"step/adam/float16_float16", f16, 3, &f16, call_adam},
      {"step/adam/float32_bfloat16", f32, 3, &bf16, call_adam},
      {"step/sgd/bfloat16_bfloat16", bf16, 1, &bf16, call_sgd},
      {"step/sgd_momentum/float32", f32, 2, nullptr, call_sgd},
      {"step/sgd_momentum/bfloat16_bfloat16", bf16, 2, &bf16, call_sgd},
  };
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Arrays place(const Pass& pass, std::byte* memory, const StreamArrays& at,
             std::size_t count) {
  Arrays arrays{};
  arrays.in = {memory + at.offsets[0], count, pass.in};
  for (std::size_t s = 0; s < pass.inout; ++s) {
    arrays.inout.push_back({memory + at.offsets[1 + s], count, kFloat32});
  }
  if (pass.out != nullptr) {
    arrays.out = {memory + at.offsets[1 + pass.inout], count, *pass.out};
  }
  return arrays;
}

void add_case(Suite& suite, const Pass& pass, const std::string& name,
              std::size_t bytes, int threads,
              const std::function<Machine*()>& machine) {
  const Streams streams = pass.streams();
  const std::size_t count = stream_count(bytes, streams.bytes());
  const StreamArrays at(streams, count);
  suite.add(name, threads, {static_cast<double>(count * streams.traffic()), 0},
            [=](benchmark::State& state) {
              const PristineMemory memory(at.bytes);
              const Arrays arrays = place(pass, memory.data(), at, count);
              Machine* const where = machine();
              timed(state, batch_of_bytes(bytes),
                    [&] { pass.call(arrays, where); });
            });
}

void add_pass(Suite& suite, const Pass& pass, const Size& size, int threads) {
  const std::string name = pass.name + "/bytes:" + std::to_string(size.bytes) +
                           threads_name(threads);
  add_case(suite, pass, name, size.bytes, threads,
           []() -> Machine* { return nullptr; });
  suite.row(speed_row(
      pass.name + " " + size.name + ", " + threads_text(threads), name, "loop",
      stream_roof(suite, pass.streams(), size.bytes, threads)));
}

void add_norm(Suite& suite, const Dtype& dtype, const Size& size, int threads) {
  const std::string name = std::string("norm/") + dtype.name +
                           "/bytes:" + std::to_string(size.bytes) +
                           threads_name(threads);
  suite.add(name, threads, {static_cast<double>(size.bytes), 0},
            [=](benchmark::State& state) {
              const List list = make_list(dtype, {size.bytes / dtype.bytes});
              double norm = 0;
              float found_inf = 0;
              timed(state, batch_of_bytes(size.bytes),
                    [&] { norm += foreach_norm(list, 0.5f, &found_inf); });
              benchmark::DoNotOptimize(norm);
              if (found_inf != 0) state.SkipWithError("memory is not finite");
            });
  const bool aimed = dtype.dtype == SWAMP_FLOAT32 && size.name == "memory";
  suite.row(speed_row(std::string("norm/") + dtype.name + " " + size.name +
                          ", " + threads_text(threads),
                      name, "read", read_roof(suite, size.bytes, threads),
                      aimed ? Aim{Aim::at_least, kNormAim} : Aim{}));
}

}  // namespace

void add_pass_case(Suite& suite, const std::string& pass,
                   const std::string& name, std::size_t bytes, int threads,
                   std::function<Machine*()> machine) {
  for (const Pass& one : passes(false)) {
    if (one.name == pass) add_case(suite, one, name, bytes, threads, machine);
  }
}

void add_passes(Suite& suite) {
  for (const Size& size : sizes(suite.options())) {
    if (suite.quick() && size.name != "memory") continue;
    suite.section("Passes of an optimizer, " + size.name + " (" +
                  bytes_text(static_cast<double>(size.bytes)) +
                  "), of the best plain loop");
    for (const int threads : thread_counts()) {
      if (suite.quick() && threads != thread_counts().back()) continue;
      for (const Dtype& dtype : kDtypes) {
        if (dtype.dtype == SWAMP_FLOAT64) continue;
        add_norm(suite, dtype, size, threads);
      }
      for (const Pass& pass : passes(suite.quick())) {
        add_pass(suite, pass, size, threads);
      }
    }
  }
}

}  // namespace swamp::bench
