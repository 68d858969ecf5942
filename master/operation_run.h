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

// overflow_report() puts what was flagged into the words of the API.
inline OverflowReport overflow_report(const Result& result) noexcept {
  if (result.flagged_elements == 0) return {};
  return {result.first_segment, result.first_index, result.flagged_segments,
          result.flagged_elements};
}

// set_past_caches() is for arguments that can ask for it.
template <class Args>
void set_past_caches(Args& args, bool past) {
  args.past_caches = past ? 1 : 0;
}
inline void set_past_caches(slave::AccumulateArgs&, bool) {}
inline void set_past_caches(slave::CountZerosArgs&, bool) {}

// run_list() runs a list whose operations all have `args`.
template <class Args>
Result run_list(Machine::Impl& impl, Road& road, const SegmentList& list,
                Args& args) {
  args.prefetch_bytes = prefetch_bytes(impl, list);
  set_past_caches(args, stores_past_caches(impl, list));
  return road.run(impl, list);
}

// run_operations() runs a table, all operations of which have `args`, over its
// streams.
template <class Args>
Result run_operations(const StreamList* streams, const OperationTable& table,
                      Args& args, Machine* machine) {
  Machine::Impl& impl = impl_of(machine);
  Road& road = Road::of_this_thread();
  const SegmentList list =
      make_segments(streams, table, false, road.segment_memory());
  return run_list(impl, road, list, args);
}

// run_norm() visits the sum of squares of every grain, in list order.
template <class Visit>
Result run_norm(TensorList tensors, float inv_scale, Visit visit,
                Machine* machine) {
  slave::NormArgs args{inv_scale, 0};
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
  args.prefetch_bytes = prefetch_bytes(impl, list);
  const Result result =
      road.run_by_grain(impl, list, sizeof(slave::NormPartial));
  road.for_each_grain<slave::NormPartial>(
      [&](const slave::NormPartial& partial) { visit(partial.total()); });
  return result;
}

}  // namespace swamp::master

#endif  // SWAMP_MASTER_OPERATION_RUN_H_
