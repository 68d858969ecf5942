#include "swamp/scan.h"

#include <string>

#include "master/launch.h"
#include "master/text.h"

namespace swamp {
namespace {

// magnitude() and higher() use keys: a caller's flush-to-zero would change
// arithmetic on doubles.
double magnitude(double value) noexcept {
  const std::int64_t key = slave::order_key(value);
  return slave::from_order_key(key < 0 ? ~key : key);
}

double higher(double a, double b) noexcept {
  return slave::order_key(a) > slave::order_key(b) ? a : b;
}

TensorStatistics statistics(const slave::ScanPartial& partial) noexcept {
  TensorStatistics out;
  out.inf_count = partial.inf_count;
  out.nan_count = partial.nan_count;
  out.count = partial.finite_count + out.non_finite_count();
  if (out.non_finite_count() != 0) {
    out.first_non_finite = partial.first_nonfinite;
  }
  if (partial.finite_count == 0) return out;
  out.min = slave::from_order_key(partial.min_key);
  out.max = slave::from_order_key(partial.max_key);
  out.absmax = higher(magnitude(out.min), magnitude(out.max));
  return out;
}

// append() is TensorStatistics::add() with `first` counted from the start of
// the tensor.
void append(TensorStatistics& all, const TensorStatistics& next,
            std::uint64_t first) noexcept {
  if (all.non_finite_count() == 0 && next.non_finite_count() != 0) {
    all.first_non_finite = first;
  }
  if (next.finite_count() != 0) {
    const bool none = all.finite_count() == 0;
    all.max = none ? next.max : higher(all.max, next.max);
    all.absmax = none ? next.absmax : higher(all.absmax, next.absmax);
    if (none || slave::order_key(next.min) < slave::order_key(all.min)) {
      all.min = next.min;
    }
  }
  all.count += next.count;
  all.inf_count += next.inf_count;
  all.nan_count += next.nan_count;
}

}  // namespace

void TensorStatistics::add(const TensorStatistics& next) noexcept {
  append(*this, next, count + next.first_non_finite);
}

void scan_non_finite(TensorList tensors, TensorStatistics* out,
                     Machine* machine) {
  if (out == nullptr && tensors.count() != 0) {
    master::refuse("out", "null",
                   "the address of " + std::to_string(tensors.count()) +
                       " TensorStatistics");
  }
  Machine::Impl& impl = master::impl_of(machine);
  const slave::ScanArgs args{};
  const master::OperationTable operations =
      master::operations_of<KernelFamily::scan>(args);
  const master::OperandList tensor_list{"tensors", tensors, "tensor_count"};
  master::Workspace& workspace = master::Workspace::of_this_thread();
  const master::SegmentList list = master::make_segments(
      impl, &tensor_list, operations, false, workspace.segments());
  workspace.run(impl, list, sizeof(slave::ScanPartial));
  for (std::size_t i = 0; i < tensors.count(); ++i) out[i] = {};
  workspace.for_each_partial<slave::ScanPartial>(
      list, [&](std::size_t segment, const slave::ScanPartial& partial) {
        // The kernels already count indices from the tensor's start.
        append(out[segment], statistics(partial), partial.first_nonfinite);
      });
  workspace.trim();
}

}  // namespace swamp
