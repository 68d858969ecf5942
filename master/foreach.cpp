#include "swamp/foreach.h"

#include <cmath>

#include "master/operation_run.h"
#include "slave/cast.h"
#include "slave/count_zeros.h"
#include "slave/kernel_id.h"

namespace swamp {

namespace kernel_id = slave::kernel_id;
using master::OperationTable;
using master::StreamList;

void foreach_cast_(TensorList out, TensorList in, float divisor,
                   Machine* machine) {
  const slave::CastArgs args{divisor};
  OperationTable table;
  const auto add = [&](std::size_t kernel, ScalarType from, ScalarType to) {
    table.add(kernel, args, {{from, Access::in}, {to, Access::out}});
  };
  add(kernel_id::cast_float16_float32, kFloat16, kFloat32);
  add(kernel_id::cast_bfloat16_float32, kBFloat16, kFloat32);
  add(kernel_id::cast_float32_float32, kFloat32, kFloat32);
  add(kernel_id::cast_float32_float16, kFloat32, kFloat16);
  add(kernel_id::cast_float32_bfloat16, kFloat32, kBFloat16);
  const StreamList streams[] = {{"in", in}, {"out", out}};
  master::run_operations(streams, table, machine);
}

void foreach_accumulate_(TensorList sum, TensorList in, float divisor,
                         Machine* machine) {
  const slave::AccumulateArgs args{divisor};
  OperationTable table;
  const auto add = [&](std::size_t kernel, ScalarType from) {
    table.add(kernel, args, {{from, Access::in}, {kFloat32, Access::inout}});
  };
  add(kernel_id::accumulate_float16, kFloat16);
  add(kernel_id::accumulate_bfloat16, kBFloat16);
  add(kernel_id::accumulate_float32, kFloat32);
  const StreamList streams[] = {{"in", in}, {"sum", sum}};
  master::run_operations(streams, table, machine);
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
  OperationTable table;
  table.add(kernel_id::count_zeros_float16, args, {{kFloat16, Access::in}});
  table.add(kernel_id::count_zeros_bfloat16, args, {{kBFloat16, Access::in}});
  table.add(kernel_id::count_zeros_float32, args, {{kFloat32, Access::in}});
  const StreamList streams[] = {{"tensors", tensors}};
  return master::run_operations(streams, table, machine).flagged_elements;
}

float clip_coefficient(double max_norm, double norm) noexcept {
  if (!(max_norm > 0)) return 1;
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient < 1 ? static_cast<float>(coefficient) : 1;
}

}  // namespace swamp
