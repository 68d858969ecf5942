// The topology by hwloc: a group per NUMA node that has cores.
#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <set>
#include <string>

#include "runtime/topology.h"
#include "swamp/error.h"

namespace swamp::runtime {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const {
    hwloc_topology_destroy(topology);
  }
};
using Handle = std::unique_ptr<hwloc_topology, Destroy>;

// restrict_to_allowed() removes the PUs that taskset and the like forbid; hwloc
// itself obeys the cpuset of the cgroup only.
void restrict_to_allowed(hwloc_topology_t topology) {
  const std::vector<int> pus = allowed_pus();
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  if (set == nullptr) throw std::bad_alloc();
  for (const int pu : pus) hwloc_bitmap_set(set, static_cast<unsigned>(pu));
  (void)hwloc_topology_restrict(topology, set, 0);
  hwloc_bitmap_free(set);
}

Handle load() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    throw Error(SWAMP_OUT_OF_MEMORY, "hwloc_topology_init failed");
  }
  Handle topology(raw);
  // hwloc itself would silently fall back to the real machine.
  const char* synthetic = std::getenv("HWLOC_SYNTHETIC");
  if (synthetic != nullptr && *synthetic != '\0') {
    if (hwloc_topology_set_synthetic(raw, synthetic) != 0) {
      throw Error(SWAMP_INVALID_ARGUMENT, "HWLOC_SYNTHETIC: got \"" +
                                              std::string(synthetic) +
                                              "\", expected a topology like "
                                              "\"Package:2 Core:4 PU:1\"");
    }
  }
  if (hwloc_topology_load(raw) != 0) {
    throw Error(SWAMP_INTERNAL, "hwloc_topology_load failed");
  }
  if (hwloc_topology_is_thissystem(raw) != 0) restrict_to_allowed(raw);
  return topology;
}

// add_cores() appends the first PU of every core of `node`. On CPUs whose cores
// hwloc cannot see, every PU counts as a core.
void add_cores(hwloc_topology_t topology, hwloc_const_cpuset_t node,
               std::set<int>& seen, Topology& out) {
  const bool has_cores = hwloc_get_nbobjs_inside_cpuset_by_type(
                             topology, node, HWLOC_OBJ_CORE) > 0;
  const hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  hwloc_obj_t core = nullptr;
  while ((core = hwloc_get_next_obj_inside_cpuset_by_type(topology, node, type,
                                                          core)) != nullptr) {
    const int pu = hwloc_bitmap_first(core->cpuset);
    if (pu >= 0 && seen.insert(pu).second) out.core_pus.push_back(pu);
  }
}

// kinds_of() returns ", kinds of cores: 8, 6", the slowest first, if the cores
// of the CPU differ, as performance and efficiency cores do; otherwise "".
std::string kinds_of(hwloc_topology_t topology, const Topology& out) {
  std::string text;
  const int kinds = hwloc_cpukinds_get_nr(topology, 0);
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> set(
      hwloc_bitmap_alloc(), &hwloc_bitmap_free);
  if (set == nullptr) throw std::bad_alloc();
  for (int kind = 0; kind < kinds; ++kind) {
    hwloc_cpukinds_get_info(topology, static_cast<unsigned>(kind), set.get(),
                            nullptr, nullptr, nullptr, 0);
    const auto cores =
        std::count_if(out.core_pus.begin(), out.core_pus.end(), [&](int pu) {
          return hwloc_bitmap_isset(set.get(), static_cast<unsigned>(pu)) != 0;
        });
    text += (kind == 0 ? ", kinds of cores: " : ", ") + std::to_string(cores);
  }
  return kinds > 1 ? text : "";
}

}  // namespace

Topology read_topology() {
  const Handle handle = load();
  hwloc_topology_t topology = handle.get();
  Topology out;
  out.source = "hwloc " HWLOC_VERSION;
  out.is_this_system = hwloc_topology_is_thissystem(topology) != 0;
  if (out.is_this_system) out.cpu_limit = cgroup_cpu_limit();
  out.groups = 0;
  std::set<int> seen;
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE,
                                            node)) != nullptr) {
    // Memory-only nodes, and a second memory of the same cores, add no group.
    const std::size_t before = out.core_pus.size();
    add_cores(topology, node->cpuset, seen, out);
    if (out.core_pus.size() > before) ++out.groups;
  }
  if (out.core_pus.empty()) {
    add_cores(topology, hwloc_topology_get_topology_cpuset(topology), seen,
              out);
    out.groups = 1;
  }
  if (out.core_pus.empty()) out.core_pus.push_back(0);
  out.source += kinds_of(topology, out);
  return out;
}

}  // namespace swamp::runtime
