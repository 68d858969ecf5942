#ifndef SWAMP_RUNTIME_TOPOLOGY_H_
#define SWAMP_RUNTIME_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace swamp::runtime {

// Topology is the cores that this process may run on, for the machine `host`.
struct Topology {
  std::string source;           // "hwloc 2.9.0", "plain", or with kinds:
                                // "hwloc 2.9.0, kinds of cores: 8, 6"
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

// read_topology() obeys taskset and, with hwloc, HWLOC_SYNTHETIC and
// HWLOC_XMLFILE. Throws Error for a HWLOC_SYNTHETIC that hwloc does not
// understand.
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

// core_of() returns the core of thread `worker` of a team: an index of
// core_pus, which the threads divide evenly, in order, so that they have
// different cores while there are any, and a core group's slaves run on the
// cores of one NUMA node if the machine has a core group for each.
std::size_t core_of(const Topology& topology, int worker, int team) noexcept;

// bind_this_thread() binds the calling thread to its core_of(). Does nothing if
// the system does not allow it.
void bind_this_thread(const Topology& topology, int worker, int team) noexcept;

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_TOPOLOGY_H_
