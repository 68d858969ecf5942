#ifndef SWAMP_RUNTIME_TOPOLOGY_H_
#define SWAMP_RUNTIME_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace swamp::runtime {

// Topology is the cores that this process may run on, for the machine `host`.
struct Topology {
  std::string source;           // "hwloc 2.9.0" or "plain"
  std::uint32_t groups = 1;     // NUMA nodes that have cores
  std::vector<int> core_pus;    // OS index of each core's first PU, by group
  bool is_this_system = true;   // false: synthetic, nothing can be bound
  std::uint32_t cpu_limit = 0;  // of the cgroup, in CPUs; 0: none

  std::uint32_t cores() const {
    return static_cast<std::uint32_t>(core_pus.size());
  }
  // Slaves per group of the machine `host`: one per core, at most cpu_limit;
  // rounded up if the nodes differ.
  std::uint32_t slaves_per_group() const {
    const std::uint32_t all =
        cpu_limit != 0 && cpu_limit < cores() ? cpu_limit : cores();
    return (all + groups - 1) / groups;
  }
};

// read_topology() obeys taskset and, with hwloc, HWLOC_SYNTHETIC. Throws Error
// for a HWLOC_SYNTHETIC that hwloc does not understand.
Topology read_topology();

// allowed_pus() lists the OS indices of the PUs that the calling thread, the
// main thread or the threads of the OpenMP pool may run on.
std::vector<int> allowed_pus();

// cgroup_cpu_limit() returns how many CPUs' worth of time the process's cgroups
// (versions 1 and 2, and their parents) allow it, rounded up; 0: no limit. A
// container with a limit of 2 CPUs can still run on all CPUs of the host.
// `membership` is /proc/self/cgroup, `mount` is /sys/fs/cgroup.
std::uint32_t cgroup_cpu_limit(
    const std::string& membership = "/proc/self/cgroup",
    const std::string& mount = "/sys/fs/cgroup");

// bind_this_thread() binds the calling thread to core `index` modulo the number
// of cores. Does nothing if the system does not allow it.
void bind_this_thread(const Topology& topology, std::uint32_t index) noexcept;

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_TOPOLOGY_H_
