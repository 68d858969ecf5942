// norm/, cast/, accumulate/ and step/: the passes of a mixed-precision
// optimizer over one large tensor, compared with a plain loop over as many
// arrays.
#include <stdexcept>

#include "bench/bench.h"
#include "slave/kernel_list.h"
#include "swamp/foreach.h"

namespace swamp::bench {
namespace {

// The tensors of a pass: the one that is read, those that are updated, the one
// that is written.
struct Arrays {
  Tensor in;
  std::vector<Tensor> inout;
  Tensor out;
};

// Pass is a function of swamp/foreach.h, and the kernel that it launches.
struct Pass {
  const char* name;
  KernelId kernel;
  void (*call)(const Arrays& arrays, Machine* machine);

  const KernelInfo& info() const { return slave::kKernels[kernel]; }
  Operands operands() const {
    Operands all{};
    for (int i = 0; i < info().operand_count; ++i) {
      const TypedOperand& operand = info().operands[i];
      if (operand.access == Access::in) all.in = operand.bytes;
      if (operand.access == Access::inout) ++all.inout;
      if (operand.access == Access::out) all.out = operand.bytes;
    }
    return all;
  }
};

TensorList list_or_empty(const Tensor& tensor) {
  return tensor.count != 0 ? TensorList(tensor) : TensorList();
}

void call_norm(const Arrays& a, Machine* machine) {
  float found_inf = 0;
  benchmark::DoNotOptimize(
      foreach_norm(a.in, 0.5f, &found_inf, nullptr, machine));
}
void call_cast(const Arrays& a, Machine* machine) {
  foreach_cast_(a.out, a.in, 1, machine);
}
void call_accumulate(const Arrays& a, Machine* machine) {
  foreach_accumulate_(a.inout[0], a.in, 1, machine);
}
void call_zero(const Arrays& a, Machine* machine) {
  foreach_zero_(a.out, machine);
}
void call_lerp(const Arrays& a, Machine* machine) {
  foreach_lerp_(a.inout[0], a.in, 0.001, machine);
}

// The steps change no bit, so that no value becomes subnormal: the gradient's
// weight is too small, and the learning rate is 0.
void call_adam(const Arrays& a, Machine* machine) {
  AdamStep step;
  step.lr = 0;
  step.beta1 = step.beta2 = 1 - 1e-12;
  step.weight_decay = 0;
  step.step = 1;
  step.amsgrad = a.inout.size() == 4;
  if (step.amsgrad) step.max_exp_avg_sqs = a.inout[3];
  StepScaling scaling;
  scaling.clip_coefficient = 0.5f;
  foreach_adam_(a.inout[0], a.in, a.inout[1], a.inout[2], list_or_empty(a.out),
                step, scaling, machine);
}
void call_sgd(const Arrays& a, Machine* machine) {
  const bool momentum = a.inout.size() == 2;
  SgdStep step;
  step.lr = 0;
  step.momentum = step.dampening = momentum ? 1 : 0;
  foreach_sgd_(a.inout[0], a.in,
               momentum ? TensorList(a.inout[1]) : TensorList(),
               list_or_empty(a.out), step, {}, machine);
}

using F = KernelFamily;
constexpr Pass kPasses[] = {
    {"norm/float32", slave::kernel_of(F::norm, {kFloat32}), call_norm},
    {"norm/float16", slave::kernel_of(F::norm, {kFloat16}), call_norm},
    {"norm/bfloat16", slave::kernel_of(F::norm, {kBFloat16}), call_norm},
    {"cast/bfloat16_float32", slave::kernel_of(F::cast, {kBFloat16, kFloat32}),
     call_cast},
    {"cast/float16_float32", slave::kernel_of(F::cast, {kFloat16, kFloat32}),
     call_cast},
    {"cast/float32_bfloat16", slave::kernel_of(F::cast, {kFloat32, kBFloat16}),
     call_cast},
    {"cast/float32_float16", slave::kernel_of(F::cast, {kFloat32, kFloat16}),
     call_cast},
    {"cast/float32_float32", slave::kernel_of(F::cast, {kFloat32, kFloat32}),
     call_cast},
    {"accumulate/bfloat16", slave::kernel_of(F::accumulate, {kBFloat16}),
     call_accumulate},
    {"accumulate/float16", slave::kernel_of(F::accumulate, {kFloat16}),
     call_accumulate},
    {"accumulate/float32", slave::kernel_of(F::accumulate, {kFloat32}),
     call_accumulate},
    {"lerp/bfloat16_float32", slave::kernel_of(F::lerp, {kBFloat16, kFloat32}),
     call_lerp},
    {"lerp/float32", slave::kernel_of(F::lerp, {kFloat32, kFloat32}),
     call_lerp},
    {"zero/float32", slave::kernel_of(F::zero, {kFloat32}), call_zero},
    // step/OPTIMIZER/GRADIENT_MODEL
    {"step/adam/float32", slave::kernel_of(F::adam, {kFloat32}), call_adam},
    {"step/adam/bfloat16_bfloat16",
     slave::kernel_of(F::adam, {kBFloat16, kBFloat16}), call_adam},
    {"step/adam/float16_float16",
     slave::kernel_of(F::adam, {kFloat16, kFloat16}), call_adam},
    {"step/adam/float32_bfloat16",
     slave::kernel_of(F::adam, {kFloat32, kBFloat16}), call_adam},
    {"step/adam_amsgrad/float32", slave::kernel_of(F::adam_amsgrad, {kFloat32}),
     call_adam},
    {"step/sgd/bfloat16_bfloat16",
     slave::kernel_of(F::sgd, {kBFloat16, kBFloat16}), call_sgd},
    {"step/sgd_momentum/float32", slave::kernel_of(F::sgd_momentum, {kFloat32}),
     call_sgd},
    {"step/sgd_momentum/bfloat16_bfloat16",
     slave::kernel_of(F::sgd_momentum, {kBFloat16, kBFloat16}), call_sgd},
};

void run(State& state, const Pass& pass, std::size_t bytes, Machine* machine) {
  const Operands operands = pass.operands();
  const OperandArrays place(operands, bytes);
  std::byte* const memory = operands.reads_only() ? shared_memory(place.bytes)
                                                  : scratch_memory(place.bytes);
  Arrays arrays{};
  for (int i = 0; i < pass.info().operand_count; ++i) {
    const TypedOperand& operand = pass.info().operands[i];
    const Tensor tensor{memory + place.offsets[static_cast<std::size_t>(i)],
                        place.count, static_cast<ScalarType>(operand.type)};
    switch (operand.access) {
      case Access::in:
      case Access::constant:
        arrays.in = tensor;
        break;
      case Access::inout:
        arrays.inout.push_back(tensor);
        break;
      case Access::out:
        arrays.out = tensor;
        break;
    }
  }
  timed(state, static_cast<double>(place.count * operands.traffic()),
        [&] { pass.call(arrays, machine); });
}

}  // namespace

void run_pass(State& state, const std::string& name, std::size_t bytes,
              Machine* machine) {
  for (const Pass& pass : kPasses) {
    if (pass.name == name) return run(state, pass, bytes, machine);
  }
  throw std::logic_error("no pass " + name);
}

void register_passes() {
  for (const Pass& pass : kPasses) {
    const Operands operands = pass.operands();
    add({pass.name, sizes(), thread_counts(),
         operands.reads_only() ? "roofline/read"
                               : "roofline/" + operands.name()},
        [&pass](State& state, const Run& r) {
          run(state, pass, r.bytes, nullptr);
        });
  }
}

}  // namespace swamp::bench
