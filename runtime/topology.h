#ifndef SWAMP_RUNTIME_TOPOLOGY_H_
#define SWAMP_RUNTIME_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace swamp::runtime {

// Topology is the cores that this process may run on, as the machine `host`
// sees them. read_topology() is in topology_hwloc.cpp or topology_plain.cpp.
struct Topology {
  std::string source;           // "hwloc 2.9.0" or "plain"
  std::uint32_t groups = 1;     // NUMA nodes that have cores
  std::vector<int> core_pus;    // OS index of each core's first PU, by group
  bool is_this_system = true;   // false: synthetic, nothing can be bound
  std::uint32_t cpu_limit = 0;  // of the cgroup, in CPUs; 0: none

  std::uint32_t cores() const {
    return static_cast<std::uint32_t>(core_pus.size());
  }
  // Slaves per group of the machine `host`: one a core, but not more than the
  // cgroup gives time for; rounded up where the nodes differ.
  std::uint32_t slaves_per_group() const {
    const std::uint32_t all =
        cpu_limit != 0 && cpu_limit < cores() ? cpu_limit : cores();
    return (all + groups - 1) / groups;
  }
};

// read_topology() honours taskset and HWLOC_SYNTHETIC. Throws Error for a
// HWLOC_SYNTHETIC that hwloc does not understand.
Topology read_topology();

// allowed_pus() lists the OS indices of the PUs that the calling thread, the
// main thread or the threads of the OpenMP pool may run on.
std::vector<int> allowed_pus();

// bind_this_thread() binds the calling thread to core `index` modulo the number
// of cores. Does nothing where the system will not have it.
void bind_this_thread(const Topology& topology, std::uint32_t index) noexcept;

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_TOPOLOGY_H_
