#include "tests/runtime/test_kernels.h"

#include "runtime/machine_impl.h"

namespace swamp {
namespace test {

void TestList::add(std::size_t count, std::initializer_list<void*> data) {
  counts_.push_back(count);
  words_.push_back(reinterpret_cast<std::uint64_t>(&operation_));
  words_.push_back(count);
  for (void* address : data) {
    words_.push_back(reinterpret_cast<std::uint64_t>(address));
  }
}

runtime::SegmentTable TestList::table() const {
  return {reinterpret_cast<const std::byte*>(words_.data()),
          segment_bytes(operation_.operand_count), counts_.size(), &operation_,
          1};
}

std::vector<runtime::SlaveRange> TestList::split(int slaves) const {
  std::size_t total = 0;
  for (std::size_t count : counts_) total += count;
  std::vector<runtime::SlaveRange> ranges;
  std::size_t segment = 0;
  std::size_t element = 0;
  for (int slave = 0; slave < slaves; ++slave) {
    const auto n = static_cast<std::size_t>(slaves);
    const auto s = static_cast<std::size_t>(slave);
    std::size_t share = total * (s + 1) / n - total * s / n;
    runtime::SlaveRange range{segment, element, 0, 0};
    while (segment < counts_.size() && share >= counts_[segment] - element) {
      share -= counts_[segment] - element;
      ++segment;
      element = 0;
    }
    element += share;
    range.end_segment = segment;
    range.end_unit = element;
    ranges.push_back(range);
  }
  return ranges;
}

MachineConfig machine_config(const std::string& backend,
                             const std::string& transfer, std::uint32_t slaves,
                             std::size_t ldm_bytes) {
  MachineConfig config;
  config.backend = backend;
  config.transfer = transfer;
  config.core_groups = slaves % 64 == 0 ? slaves / 64 : 1;
  config.slaves_per_group = slaves / config.core_groups;
  config.ldm_bytes = ldm_bytes;
  return config;
}

std::vector<runtime::SlaveResult> run(Machine& machine, const TestList& list,
                                      runtime::Partials partials) {
  const int slaves = machine.impl().slaves();
  const std::vector<runtime::SlaveRange> ranges = list.split(slaves);
  std::vector<runtime::SlaveResult> results(static_cast<std::size_t>(slaves));
  runtime::LdmArenas arenas;
  runtime::Launch launch;
  launch.table = list.table();
  launch.ranges = ranges.data();
  launch.slaves = slaves;
  launch.results = results.data();
  launch.partials = partials;
  runtime::run(machine.impl(), launch, arenas);
  return results;
}

std::vector<std::string> backends() { return runtime::backend_names(); }
std::vector<std::string> transfers() { return runtime::transfer_names(); }

}  // namespace test

double flops_of(KernelId, const void*) noexcept { return 16; }

}  // namespace swamp
