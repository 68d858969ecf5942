#ifndef SWAMP_RUNTIME_CGROUP_H_
#define SWAMP_RUNTIME_CGROUP_H_

#include <cstdint>
#include <string>

namespace swamp::runtime {

// cgroup_cpu_limit() is how many CPUs' worth of time the process's cgroups
// (versions 1 and 2, and their parents) leave it, rounded up; 0: no limit. A
// container that is given 2 CPUs still sees, and may run on, all of the host's.
// `membership` is /proc/self/cgroup, `mount` is /sys/fs/cgroup.
std::uint32_t cgroup_cpu_limit(
    const std::string& membership = "/proc/self/cgroup",
    const std::string& mount = "/sys/fs/cgroup");

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_CGROUP_H_
