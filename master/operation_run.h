// What the functions of swamp/foreach.h share: a table of operations goes down
// the road over lists of tensors.
#ifndef SWAMP_MASTER_OPERATION_RUN_H_
#define SWAMP_MASTER_OPERATION_RUN_H_

#include "master/road.h"
#include "master/tensor_list.h"
#include "slave/cast.h"
#include "slave/count_zeros.h"
#include "slave/kernel_id.h"
#include "slave/norm.h"
#include "swamp/amp.h"
#include "swamp/machine.h"

namespace swamp::master {

inline Machine::Impl& impl_of(Machine* machine) {
  return (machine != nullptr ? *machine : Machine::default_machine()).impl();
}

// overflow_report() converts a result to the public OverflowReport.
inline OverflowReport overflow_report(
    const runtime::SlaveResult& result) noexcept {
  if (result.flagged_elements == 0) return {};
  return {result.first_segment, result.first_index, result.flagged_segments,
          result.flagged_elements};
}

// run_operations() runs a table of operations over lists of tensors.
inline runtime::SlaveResult run_operations(const StreamList* streams,
                                           const OperationTable& table,
                                           Machine* machine) {
  Machine::Impl& impl = impl_of(machine);
  Road& road = Road::of_this_thread();
  const SegmentList list =
      make_segments(streams, table, false, road.segment_memory());
  return road.run(impl, list);
}

// run_norm() visits the sum of squares of every grain, in list order.
template <class Visit>
runtime::SlaveResult run_norm(TensorList tensors, float inv_scale, Visit visit,
                              Machine* machine) {
  const slave::NormArgs args{inv_scale};
  OperationTable table;
  for (int type = 0; type < kComputeTypeCount; ++type) {
    table.add(slave::kernel_id::norm_float16 + static_cast<std::size_t>(type),
              args, {{static_cast<ScalarType>(type), Access::in}});
  }
  const StreamList streams[] = {{"tensors", tensors}};
  Machine::Impl& impl = impl_of(machine);
  Road& road = Road::of_this_thread();
  const SegmentList list =
      make_segments(streams, table, true, road.segment_memory());
  const runtime::SlaveResult result =
      road.run_by_grain(impl, list, sizeof(slave::NormPartial));
  road.for_each_grain<slave::NormPartial>(
      [&](const slave::NormPartial& partial) { visit(partial.total()); });
  return result;
}

}  // namespace swamp::master

#endif  // SWAMP_MASTER_OPERATION_RUN_H_
