#include <fmt/core.h>

#include "master/cli/command.h"
#include "master/cli/predict/predict.h"
#include "master/cli/text.h"
#include "swamp/amp.h"
#include "swamp/float_formats.h"
#include "swamp/foreach.h"
#include "swamp/scan.h"

namespace swamp::cli {
namespace {

using Tensors = std::vector<Tensor>;

// Call is one run of an operation.
class Call {
 public:
  Call(const std::vector<Shape>& list, std::optional<ScalarType> wanted,
       const Placement& placement, Machine& counting)
      : machine(&counting), to(wanted), list_(list), placement_(placement) {}

  // array() lays out the next array, of the list's own dtypes or all of one.
  Tensors array(std::optional<ScalarType> dtype = {}) {
    // Above all memory of this process, with a large distance between arrays.
    constexpr std::uint64_t kDistance = std::uint64_t{1} << 56;
    std::uint64_t at = ++arrays_ * kDistance + placement_.offset;
    Tensors tensors;
    for (const Shape& shape : list_) {
      const ScalarType type = dtype.value_or(shape.dtype);
      at += (placement_.offset - at) % placement_.align;
      tensors.push_back({reinterpret_cast<void*>(at), shape.count, type});
      at += shape.count * kFloatFormats[type].bytes;
    }
    return tensors;
  }

  Machine* const machine;
  const std::optional<ScalarType> to;

 private:
  const std::vector<Shape>& list_;
  const Placement& placement_;
  std::uint64_t arrays_ = 0;
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

// The functions of the API, which have no list to generate this from: each
// calls with other arrays.
struct OperationRow {
  const char* name;
  void (*run)(Call& call);
  bool takes_to;
};
constexpr OperationRow kOperations[] = {
    {"unscale", unscale, false},
    {"check", check, false},
    {"norm", norm, false},
    {"scan", scan, false},
    {"cast", cast, true},
    {"accumulate", accumulate, false},
    {"lerp", lerp, false},
    {"zero", zero, false},
    {"sgd", sgd, true},
    {"adam", adam, true},
    {"count_zeros", count_zeros, false},
};

}  // namespace

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (const OperationRow& row : kOperations) names.emplace_back(row.name);
  return names;
}

void run_operation(const std::string& name, const std::vector<Shape>& list,
                   std::optional<ScalarType> to, const Placement& placement,
                   Machine& machine) {
  for (const OperationRow& row : kOperations) {
    if (name != row.name) continue;
    if (to && !row.takes_to) {
      throw UsageError(fmt::format(
          "--to: got '{}' with operation {}, expected it with cast, sgd or "
          "adam only",
          dtype_name(*to), name));
    }
    Call call(list, to, placement, machine);
    row.run(call);
    return;
  }
  throw UsageError(fmt::format("--operation: got '{}', expected one of {}",
                               name, joined(operation_names())));
}

}  // namespace swamp::cli
