#include "runtime/topology.h"

#include <pthread.h>
#include <sched.h>

namespace swamp::runtime {

void bind_this_thread(const Topology& topology, std::uint32_t index) noexcept {
  if (!topology.is_this_system || topology.core_pus.empty()) return;
  const int pu = topology.core_pus[index % topology.core_pus.size()];
  if (pu < 0 || pu >= CPU_SETSIZE) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(pu), &set);
  (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace swamp::runtime
