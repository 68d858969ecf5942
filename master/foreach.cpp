#include "swamp/foreach.h"

#include <cmath>

#include "master/operation_run.h"

namespace swamp {

using master::OperandList;

void foreach_cast_(TensorList out, TensorList in, float divisor,
                   Machine* machine) {
  const slave::CastArgs args{divisor};
  const OperandList lists[] = {{"in", in}, {"out", out}};
  master::run_operations(
      lists, master::operations_of<KernelFamily::cast, 2>(args), machine);
}

void foreach_accumulate_(TensorList sum, TensorList in, float divisor,
                         Machine* machine) {
  const slave::AccumulateArgs args{divisor};
  const OperandList lists[] = {{"in", in}, {"sum", sum}};
  master::run_operations(
      lists, master::operations_of<KernelFamily::accumulate, 2>(args), machine);
}

double foreach_norm(TensorList tensors, float inv_scale, float* found_inf,
                    OverflowReport* report, Machine* machine) {
  double sum = 0;
  const runtime::SlaveResult result = master::run_norm(
      tensors, inv_scale, [&](double grain) { sum += grain; }, machine);
  if (found_inf != nullptr && result.flagged_elements != 0) *found_inf = 1.0f;
  if (report != nullptr) *report = master::overflow_report(result);
  return std::sqrt(sum);
}

std::uint64_t foreach_count_zeros(TensorList tensors, Machine* machine) {
  const slave::CountZerosArgs args{};
  const OperandList list{"tensors", tensors};
  return master::run_operations(
             &list, master::operations_of<KernelFamily::count_zeros, 1>(args),
             machine)
      .flagged_elements;
}

float clip_coefficient(double max_norm, double norm) noexcept {
  if (!(max_norm > 0)) return 1;
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient < 1 ? static_cast<float>(coefficient) : 1;
}

}  // namespace swamp
