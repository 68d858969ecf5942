#include "runtime/topology.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#ifdef SWAMP_HAS_OPENMP
#include <omp.h>
#endif

namespace swamp::runtime {

std::vector<int> allowed_pus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  (void)sched_getaffinity(0, sizeof allowed, &allowed);
  // A caller may have pinned the thread that comes here first, not the process.
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
