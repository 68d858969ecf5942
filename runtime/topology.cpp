#include "runtime/topology.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <locale>

#ifdef SWAMP_HAS_OPENMP
#include <omp.h>
#endif

namespace swamp::runtime {
namespace {

// read_pair() reads the CPU quota and period of a cgroup. Version 2 stores
// both in one file, version 1 in two. Returns false if the file is missing, or
// if the quota is "max" or -1, which mean that there is no limit.
bool read_pair(const std::string& first, const std::string& second,
               double& quota, double& period) {
  const auto open = [](const std::string& name) {
    std::ifstream file(name);
    file.imbue(std::locale::classic());  // the program's may group digits
    return file;
  };
  std::ifstream file = open(first);
  if (!(file >> quota)) return false;
  if (!second.empty()) file = open(second);
  return (file >> period) && quota > 0 && period > 0;
}

// lowest_limit() reads the limits of a cgroup and of all its parents.
double lowest_limit(const std::string& base, std::string path,
                    const char* quota_file, const char* period_file) {
  double lowest = INFINITY;
  for (;;) {
    const std::string folder = base + path + "/";
    double quota = 0;
    double period = 0;
    if (read_pair(folder + quota_file,
                  *period_file == '\0' ? "" : folder + period_file, quota,
                  period)) {
      lowest = std::min(lowest, quota / period);
    }
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return lowest;
    path.resize(slash);
  }
}

}  // namespace

std::vector<int> allowed_pus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  (void)sched_getaffinity(0, sizeof allowed, &allowed);
  // The caller may have bound this thread and not the process.
  cpu_set_t main_thread;
  CPU_ZERO(&main_thread);
  (void)sched_getaffinity(getpid(), sizeof main_thread, &main_thread);
  CPU_OR(&allowed, &allowed, &main_thread);
#ifdef SWAMP_HAS_OPENMP
  // With OMP_PROC_BIND the calling thread is bound to one place of many.
  if (omp_get_proc_bind() != omp_proc_bind_false) {
    for (int place = 0; place < omp_get_num_places(); ++place) {
      const int count = omp_get_place_num_procs(place);
      std::vector<int> ids(static_cast<std::size_t>(count));
      omp_get_place_proc_ids(place, ids.data());
      for (const int id : ids) {
        if (id >= 0 && id < CPU_SETSIZE) {
          CPU_SET(static_cast<unsigned>(id), &allowed);
        }
      }
    }
  }
#endif
  std::vector<int> pus;
  for (int pu = 0; pu < CPU_SETSIZE; ++pu) {
    if (CPU_ISSET(static_cast<unsigned>(pu), &allowed)) pus.push_back(pu);
  }
  return pus;
}

std::size_t core_of(const Topology& topology, int worker, int team) noexcept {
  return static_cast<std::size_t>(worker) * topology.core_pus.size() /
         static_cast<std::size_t>(team);
}

void bind_this_thread(const Topology& topology, int worker, int team) noexcept {
  if (!topology.is_this_system || topology.core_pus.empty()) return;
  const int pu = topology.core_pus[core_of(topology, worker, team)];
  if (pu < 0 || pu >= CPU_SETSIZE) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(pu), &set);
  (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

std::uint32_t cgroup_cpu_limit(const std::string& membership,
                               const std::string& mount) {
  std::ifstream file(membership);
  double lowest = INFINITY;
  // A line is "hierarchy:controllers:path"; version 2's has no controllers.
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers =
        "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers == ",,") {
      lowest = std::min(lowest, lowest_limit(mount, path, "cpu.max", ""));
    } else if (controllers.find(",cpu,") != std::string::npos) {
      lowest = std::min(lowest,
                        lowest_limit(mount + "/cpu", path, "cpu.cfs_quota_us",
                                     "cpu.cfs_period_us"));
    }
  }
  if (!(lowest < 65536)) return 0;
  return static_cast<std::uint32_t>(std::max(1.0, std::ceil(lowest)));
}

#ifndef SWAMP_HAS_HWLOC
// Without hwloc: one core group of all PUs that this process may use.
Topology read_topology() {
  Topology topology;
  topology.source = "plain";
  topology.core_pus = allowed_pus();
  topology.cpu_limit = cgroup_cpu_limit();
  if (topology.core_pus.empty()) topology.core_pus.push_back(0);
  return topology;
}
#endif

}  // namespace swamp::runtime
