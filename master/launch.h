// Launches an operation: partition, spawn, join, reduce.
#ifndef SWAMP_MASTER_LAUNCH_H_
#define SWAMP_MASTER_LAUNCH_H_

#include <cstddef>

#include "master/buffer.h"
#include "master/tensor_list.h"
#include "runtime/machine_impl.h"
#include "swamp/amp.h"
#include "swamp/machine.h"

namespace swamp::master {

// Workspace is the memory of a calling thread for its launches. It is kept, so
// that a second launch allocates nothing; trim() frees it after a list of more
// than about 64 Ki tensors.
class Workspace {
 public:
  static Workspace& of_this_thread();

  Buffer<std::byte>& segments() { return segments_; }
  // prepared_segments() is for a list that is launched after another one.
  Buffer<std::byte>& prepared_segments() { return prepared_segments_; }
  // prepared_values() is for what those segments point to.
  Buffer<std::byte>& prepared_values() { return prepared_values_; }

  // row_values() is memory for a value of each row.
  template <class Value>
  Value* row_values(std::size_t rows) {
    return reinterpret_cast<Value*>(row_values_.reserve(rows * sizeof(Value)));
  }

  // trim() frees the memory of a large list, whose results have been read.
  void trim() noexcept {
    segments_.trim();
    partials_.trim();
  }
  void trim_prepared() noexcept {
    prepared_segments_.trim();
    prepared_values_.trim();
  }

  // run() launches a list and returns the reduced results of the slaves. With
  // `partial_bytes`, every slave also writes a partial result of that size for
  // every segment in which it has elements. Throws Error before anything is
  // written.
  runtime::SlaveResult run(Machine::Impl& machine, const SegmentList& list,
                           std::size_t partial_bytes = 0);

  // for_each_partial() visits the partial results of the last run(), in a
  // segment in the order of its elements. Empty segments have none.
  template <class Partial, class Visit>
  void for_each_partial(const SegmentList& list, Visit visit) {
    for (int i = 0; i < slaves_; ++i) {
      const runtime::SlaveRange& range =
          ranges_.data()[static_cast<std::size_t>(i)];
      for (std::size_t s = range.begin_segment;
           s < range.end_segment + (range.end_unit != 0 ? 1 : 0); ++s) {
        if (list.table[s].count == 0) continue;
        visit(s, *reinterpret_cast<const Partial*>(last_partials_.slot(s, i)));
      }
    }
  }

  // run_by_grain() is run() with a partial result for every grain of the list,
  // whose segments must hold the number of their first grain.
  runtime::SlaveResult run_by_grain(Machine::Impl& machine,
                                    const SegmentList& list,
                                    std::size_t partial_bytes);

  // partials() returns the partial results of the last run_by_grain(), in list
  // order; partial_count() is their number.
  template <class Partial>
  Partial* partials() const noexcept {
    return reinterpret_cast<Partial*>(last_partials_.base);
  }
  std::size_t partial_count() const noexcept { return last_partials_.slots; }

 private:
  void make_ranges(const Machine::Impl& machine, const SegmentList& list);
  runtime::SlaveResult launch(Machine::Impl& machine, const SegmentList& list);

  Buffer<std::byte> segments_;
  Buffer<std::byte> prepared_segments_;
  Buffer<std::byte> prepared_values_;
  Buffer<runtime::SlaveRange> ranges_;
  Buffer<runtime::SlaveResult> results_;
  Buffer<runtime::Claim> claims_;
  Buffer<std::byte> partials_;
  Buffer<std::byte> row_values_;
  runtime::LdmArenas arenas_;
  runtime::Partials last_partials_;
  int slaves_ = 0;   // that have a range
  int workers_ = 0;  // that claim slaves; 0: none
};

// reduce() combines the results of slaves whose ranges are consecutive. A
// tensor that is split between slaves counts once.
runtime::SlaveResult reduce(const runtime::SlaveResult* results,
                            int count) noexcept;

// impl_of() returns the machine to run on; null means the default machine.
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

// run_operations() launches `operations` over the lists of their operands.
runtime::SlaveResult run_operations(const OperandList* lists,
                                    const OperationTable& operations,
                                    Machine* machine);

// run_norm() launches a norm and visits the sum of squares of every grain, in
// list order.
template <class Visit>
runtime::SlaveResult run_norm(TensorList tensors, float inv_scale, Visit visit,
                              Machine* machine) {
  const slave::NormArgs args{inv_scale};
  const OperationTable operations = operations_of<KernelFamily::norm>(args);
  const OperandList list{"tensors", tensors};
  Workspace& workspace = Workspace::of_this_thread();
  Machine::Impl& impl = impl_of(machine);
  const runtime::SlaveResult result = workspace.run_by_grain(
      impl, make_segments(impl, &list, operations, true, workspace.segments()),
      sizeof(slave::NormPartial));
  const std::size_t grains = workspace.partial_count();
  const auto* const partials = workspace.partials<slave::NormPartial>();
  auto* const totals = workspace.row_values<double>(grains);
  runtime::run_parts(impl, grains, 2 * sizeof *partials,
                     [&](std::size_t begin, std::size_t end) {
                       for (std::size_t i = begin; i < end; ++i) {
                         totals[i] = partials[i].total();
                       }
                     });
  for (std::size_t i = 0; i < grains; ++i) visit(totals[i]);
  workspace.trim();
  return result;
}

}  // namespace swamp::master

#endif  // SWAMP_MASTER_LAUNCH_H_
