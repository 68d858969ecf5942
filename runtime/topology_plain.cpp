// The topology without hwloc: one core group of all PUs this process may use.
#include <sched.h>

#include <thread>

#include "runtime/topology.h"

namespace swamp::runtime {

Topology read_topology() {
  Topology topology;
  topology.source = "plain";
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    for (int pu = 0; pu < CPU_SETSIZE; ++pu) {
      if (CPU_ISSET(static_cast<unsigned>(pu), &allowed)) {
        topology.core_pus.push_back(pu);
      }
    }
  }
  if (topology.core_pus.empty()) topology.core_pus.push_back(0);
  return topology;
}

}  // namespace swamp::runtime
