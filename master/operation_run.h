// What the functions of swamp/foreach.h share: a table of operations goes down
// the road over lists of tensors.
#ifndef SWAMP_MASTER_OPERATION_RUN_H_
#define SWAMP_MASTER_OPERATION_RUN_H_

#include "master/road.h"
#include "master/tensor_list.h"
#include "slave/kernel_args.h"
#include "slave/kernel_list.h"
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
inline runtime::SlaveResult run_operations(const OperandList* lists,
                                           const OperationTable& operations,
                                           Machine* machine) {
  Machine::Impl& impl = impl_of(machine);
  Road& road = Road::of_this_thread();
  return road.run(
      impl, make_segments(lists, operations, false, road.segment_memory()));
}

// run_norm() visits the sum of squares of every grain, in list order.
template <class Visit>
runtime::SlaveResult run_norm(TensorList tensors, float inv_scale, Visit visit,
                              Machine* machine) {
  const slave::NormArgs args{inv_scale};
  const OperationTable operations = operations_of<KernelFamily::norm, 1>(args);
  const OperandList list{"tensors", tensors};
  Machine::Impl& impl = impl_of(machine);
  Road& road = Road::of_this_thread();
  const runtime::SlaveResult result = road.run_by_grain(
      impl, make_segments(&list, operations, true, road.segment_memory()),
      sizeof(slave::NormPartial));
  road.for_each_grain<slave::NormPartial>(
      [&](const slave::NormPartial& partial) { visit(partial.total()); });
  return result;
}

}  // namespace swamp::master

#endif  // SWAMP_MASTER_OPERATION_RUN_H_
