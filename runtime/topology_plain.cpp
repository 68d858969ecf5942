// The topology without hwloc: one core group of all PUs this process may use.
#include "runtime/cgroup.h"
#include "runtime/topology.h"

namespace swamp::runtime {

Topology read_topology() {
  Topology topology;
  topology.source = "plain";
  topology.core_pus = allowed_pus();
  topology.cpu_limit = cgroup_cpu_limit();
  if (topology.core_pus.empty()) topology.core_pus.push_back(0);
  return topology;
}

}  // namespace swamp::runtime
