// spawn/: what it costs to start all slaves and to wait for them, with nothing
// to do. Beside it the least that OpenMP itself can do.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/memory.h"
#include "bench/operator.h"
#include "bench/suite.h"
#include "bench/threads.h"
#include "bench/timed.h"
#include "runtime/float_environment.h"
#include "runtime/machine_impl.h"

namespace swamp::bench {
namespace {

struct SpawnMachine {
  std::string name;  // "openmp/host"
  MachineConfig config;
};

SpawnMachine host(const std::string& backend) {
  MachineConfig config;
  config.machine = "host";
  config.backend = backend;
  config.transfer = "view";
  return {backend + "/host", config};
}

SpawnMachine many(const std::string& backend, std::uint32_t core_groups) {
  MachineConfig config = host(backend).config;
  config.machine = "sw26010pro";
  config.core_groups = core_groups;
  config.slaves_per_group = 64;
  return {backend + "/slaves:" + std::to_string(64 * core_groups), config};
}

Machine::Impl& impl_of(const SpawnMachine& spawn) {
  static std::map<std::string, std::unique_ptr<Machine>> machines;
  std::unique_ptr<Machine>& machine = machines[spawn.name];
  if (!machine) machine = std::make_unique<Machine>(spawn.config);
  return machine->impl();
}

// The backend alone: threads start, call an empty function for each slave, and
// are joined.
void run_backend(benchmark::State& state, Machine::Impl& impl) {
  runtime::Launch launch;
  launch.slaves = impl.slaves();
  launch.float_environment = runtime::read_float_environment();
  launch.run_slave = [](const runtime::Launch&, int, int) noexcept {};
  timed(state, kSpawnBatch, [&] { impl.backend->run(launch); });
}

// A whole launch whose slaves have empty ranges: also results to clear, the
// floating-point environment and the tile loop.
void run_empty_launch(benchmark::State& state, Machine::Impl& impl) {
  const auto slaves = static_cast<std::size_t>(impl.slaves());
  const std::vector<runtime::SlaveRange> ranges(slaves);
  std::vector<runtime::SlaveResult> results(slaves);
  runtime::LdmArenas arenas;
  runtime::Launch launch;
  launch.ranges = ranges.data();
  launch.slaves = impl.slaves();
  launch.results = results.data();
  timed(state, kSpawnBatch, [&] { runtime::run(impl, launch, arenas); });
}

void add_machine(Suite& suite, const SpawnMachine& spawn, int threads) {
  suite.add(
      "spawn/backend/" + spawn.name, threads, {},
      [=](benchmark::State& state) { run_backend(state, impl_of(spawn)); });
  suite.add("spawn/job/" + spawn.name, threads, {},
            [=](benchmark::State& state) {
              run_empty_launch(state, impl_of(spawn));
            });
}

// The smallest lists that an operator splits between two slaves, and so the
// whole way of a call: C++ API, list, partition, spawn, join, reduce.
void add_operator(Suite& suite, const std::string& name, std::size_t threshold,
                  int threads) {
  suite.add("spawn/operator/" + name, threads, {},
            [=](benchmark::State& state) {
              static std::map<std::string, std::unique_ptr<Machine>> machines;
              std::unique_ptr<Machine>& machine = machines[name];
              if (!machine) {
                machine = std::make_unique<Machine>(host("").config);
                machine->impl().tuning.spawn_traffic_bytes = threshold;
              }
              constexpr std::size_t kHalf =
                  4128;  // more than half a grain, whole lines
              run_operator(state, *machine,
                           make_list(kDtypes[2], {kHalf, kHalf}), kOnlyCheck);
            });
}

#if defined(SWAMP_HAS_OPENMP)
constexpr double kHostAim = 1.3;  // of an empty parallel for
constexpr double kManyAim = 3;    // of the host machine's spawn

void add_openmp(Suite& suite, int threads) {
  suite.add("spawn/empty_omp", threads, {}, [](benchmark::State& state) {
    timed(state, kSpawnBatch, [] {
#pragma omp parallel for
      for (int i = 0; i < omp_get_max_threads(); ++i) {
        asm volatile("" : : "r"(i) : "memory");
      }
    });
  });
  const SpawnMachine one = host("openmp");
  const SpawnMachine all = many("openmp", 6);
  add_machine(suite, one, threads);
  add_machine(suite, all, threads);
  // With one thread nothing is spawned: the numbers stand, the aims do not.
  const auto aim = [threads](double most) {
    return threads > 1 ? Aim{Aim::at_most, most} : Aim{};
  };
  for (const std::string level : {"backend", "job"}) {
    const std::string name = "spawn/" + level + "/";
    suite.row(time_row("openmp, host machine, " + level, name + one.name,
                       "empty parallel for", "spawn/empty_omp", aim(kHostAim)));
    suite.row(time_row("openmp, 384 slaves, " + level, name + all.name, "host",
                       name + one.name, aim(kManyAim)));
  }
}
#endif

}  // namespace

void add_spawn(Suite& suite) {
  const int threads = thread_counts().back();
  suite.section("Spawn and join, nothing to do");
  std::string base;
#if defined(SWAMP_HAS_OPENMP)
  add_openmp(suite, threads);
  base = "spawn/job/openmp/host";
#endif
  std::vector<SpawnMachine> others{host("serial"), many("threads", 1)};
  if (!suite.quick()) {
    others.push_back(many("serial", 6));
    others.push_back(host("threads"));
    others.push_back(many("threads", 6));
  }
  for (const SpawnMachine& other : others) {
    add_machine(suite, other, threads);
    suite.row(time_row(other.name + ", job", "spawn/job/" + other.name,
                       "openmp host", base));
  }
  add_operator(suite, "spawned", 0, threads);
  add_operator(suite, "alone", ~std::size_t{0}, threads);
  suite.row(time_row("smallest list that can be split",
                     "spawn/operator/spawned", "not split",
                     "spawn/operator/alone"));
}

}  // namespace swamp::bench
