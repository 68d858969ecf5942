// The calls of the master core:
// toolchain/sunway/include/swamp_sunway/host_api.h.
#include <cerrno>
#include <climits>
#include <cstdint>

#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/schedule.h"

namespace sunway = swamp::sunway;

namespace {

constexpr int kAll = -1;

// wait_for_slaves() is the master's side of a barrier with the slaves of its
// own core group: with all, or with slave `id`.
void wait_for_slaves(int id, const char* call, const void* pc) {
  sunway::Machine& all = sunway::machine();
  sunway::Lock lock(all.mutex);
  const int own = sunway::own_group(false);
  sunway::Group& group = all.groups[static_cast<std::size_t>(own)];
  const bool runs =
      id == kAll ? group.state == sunway::Group::State::running
                 : id >= 0 && id < static_cast<int>(group.slaves.size()) &&
                       all.slave(own, id).live();
  if (!runs) {
    if (sunway::observer != nullptr) {
      sunway::observer->refused(
          pc, id == kAll ? "waits for slaves that do not run"
                         : "waits for a slave that does not run");
    }
    return;
  }
  sunway::Barrier* barrier =
      id == kAll ? &group.master : &all.slave(own, id).with_master;
  if (sunway::observer != nullptr) {
    sunway::observer->releases(barrier, barrier->generation % 2, 0);
  }
  const std::uint64_t mine = barrier->arrive();
  sunway::master_waits({sunway::Wait::Kind::master, pc, call,
                        [&] { return barrier->passed(mine); }},
                       lock);
  if (sunway::observer != nullptr) {
    sunway::observer->acquires(barrier, mine % 2, 1u << own);
  }
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

int swamp_athread_init() {
  sunway::machine().initialised = true;
  return 0;
}

int swamp_athread_halt() {
  if (sunway::observer != nullptr) {
    sunway::observer->halting(SWAMP_SUNWAY_CALLER());
  }
  return 0;
}
int athread_enter64() { return 0; }
int athread_end(int) { return 0; }

int __real_athread_spawn(void* function, void* argument, int) {
  return sunway::launch(sunway::own_group_mask(true), function, argument,
                        SWAMP_SUNWAY_CALLER());
}
int __real_athread_spawn_cgs(void* function, void* argument, int) {
  return sunway::launch(sunway::all_groups_mask(), function, argument,
                        SWAMP_SUNWAY_CALLER());
}
int __real_athread_spawn_cgmask(unsigned mask, void* function, void* argument,
                                int) {
  return sunway::launch(mask, function, argument, SWAMP_SUNWAY_CALLER());
}
int __real_athread_spawn64_cgmask(unsigned mask, void* function,
                                  void* argument) {
  return sunway::launch(mask, function, argument, SWAMP_SUNWAY_CALLER());
}
int __real_athread_create(int id, void* function, void* argument) {
  return sunway::launch_one(id, function, argument, SWAMP_SUNWAY_CALLER());
}

int athread_join() {
  return sunway::join(sunway::own_group_mask(false), SWAMP_SUNWAY_CALLER());
}
int athread_join_cgs() {
  return sunway::join(sunway::all_groups_mask(), SWAMP_SUNWAY_CALLER());
}
int athread_join_cgmask(unsigned mask) {
  return sunway::join(mask, SWAMP_SUNWAY_CALLER());
}
int athread_wait(int id) { return sunway::join_one(id, SWAMP_SUNWAY_CALLER()); }

int athread_idle() {
  if (sunway::observer != nullptr) sunway::observer->polls();
  sunway::Machine& all = sunway::machine();
  const sunway::Lock lock(all.mutex);
  return all.slaves_per_group() -
         all.groups[static_cast<std::size_t>(sunway::own_group(false))]
             .remaining;
}
int athread_set_num_threads(int count) {
  sunway::Machine& all = sunway::machine();
  const sunway::Lock lock(all.mutex);
  if (count < 1 || count > all.slaves_per_group()) return EINVAL;
  all.num_threads = count;
  return 0;
}
int athread_get_num_threads() {
  sunway::Machine& all = sunway::machine();
  const sunway::Lock lock(all.mutex);
  return all.num_threads;
}
int athread_get_max_threads() { return sunway::machine().slaves_per_group(); }
int athread_node_tsize() {
  sunway::Machine& all = sunway::machine();
  const sunway::Lock lock(all.mutex);
  int slaves = 0;
  for (const sunway::Group& group : all.groups) {
    if (group.state == sunway::Group::State::running) slaves += group.launched;
  }
  return slaves;
}
long swamp_mpi_rank() {
  return std::strtol(sunway::settings().rank.c_str(), nullptr, 10);
}
long swamp_mpi_size() {
  const long ranks = std::strtol(sunway::settings().ranks.c_str(), nullptr, 10);
  return ranks > 0 ? ranks : 1;
}
int current_array_id() {
  const sunway::Lock lock(sunway::machine().mutex);
  return sunway::own_group(false);
}

void CRTS_sync_node() {}
void CRTS_sync_master_array() {
  wait_for_slaves(kAll, "CRTS_sync_master_array", SWAMP_SUNWAY_CALLER());
}

void CRTS_sync_master_spe(int id) {
  wait_for_slaves(id < 0 ? INT_MAX : id, "CRTS_sync_master_spe",
                  SWAMP_SUNWAY_CALLER());
}

// Other names of calls. Those that end with _ are for masters in Fortran.
#define SWAMP_SAME(name, call) \
  decltype(call) name __attribute__((alias(#call)));
SWAMP_SAME(swamp_athread_init_cgs, swamp_athread_init)
SWAMP_SAME(CRTS_init, swamp_athread_init)
SWAMP_SAME(CRTS_init_all, swamp_athread_init)
SWAMP_SAME(athread_init_, swamp_athread_init)
SWAMP_SAME(athread_init_cgs_, swamp_athread_init)
SWAMP_SAME(crts_init_, swamp_athread_init)
SWAMP_SAME(athread_halt_, swamp_athread_halt)
SWAMP_SAME(athread_enter64_arg, athread_enter64)
SWAMP_SAME(athread_enter64_, athread_enter64)
SWAMP_SAME(athread_leave, athread_enter64)
SWAMP_SAME(athread_leave64, athread_enter64)
SWAMP_SAME(athread_leave64_arg, athread_enter64)
SWAMP_SAME(athread_leave64_, athread_enter64)
SWAMP_SAME(athread_join64, athread_join)
SWAMP_SAME(athread_join64_arg, athread_join)
SWAMP_SAME(athread_join_, athread_join)
SWAMP_SAME(athread_join64_cgmask, athread_join_cgmask)
SWAMP_SAME(athread_join_cgs_, athread_join_cgs)
SWAMP_SAME(athread_get_num_threads_, athread_get_num_threads)
SWAMP_SAME(athread_get_max_threads_, athread_get_max_threads)
SWAMP_SAME(athread_idle_, athread_idle)
SWAMP_SAME(current_array_id_, current_array_id)

// In Fortran arguments are addresses.
int athread_spawn_(void* function, void* argument) {
  return sunway::launch(sunway::own_group_mask(true), function, argument,
                        SWAMP_SUNWAY_CALLER());
}
int athread_spawn_cgs_(void* function, void* argument) {
  return sunway::launch(sunway::all_groups_mask(), function, argument,
                        SWAMP_SUNWAY_CALLER());
}
int athread_create_(const int* id, void* function, void* argument) {
  return sunway::launch_one(*id, function, argument, SWAMP_SUNWAY_CALLER());
}
int athread_wait_(const int* id) {
  return sunway::join_one(*id, SWAMP_SUNWAY_CALLER());
}
int athread_set_num_threads_(const int* count) {
  return athread_set_num_threads(*count);
}

#pragma GCC visibility pop

}  // extern "C"
