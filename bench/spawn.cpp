// spawn/: the cost of starting all slaves and waiting for them, without any
// work, compared with OpenMP's own parallel loop. threshold/: the traffic above
// which a spawn is faster.
#include <limits>

#include "bench/bench.h"
#include "runtime/float_environment.h"
#include "runtime/machine_impl.h"

namespace swamp::bench {
namespace {

MachineConfig host(const std::string& backend) {
  MachineConfig config;
  config.machine = "host";
  config.backend = backend;
  config.transfer = "view";
  return config;
}

// A backend alone: threads start, call an empty function, and are joined.
void run_backend(State& state, Machine::Impl& machine) {
  runtime::Launch launch;
  launch.slaves = machine.slaves();
  launch.float_environment = runtime::read_float_environment();
  launch.run_slave = [](const runtime::Launch&, int, int) noexcept {};
  timed(state, 0, [&] { machine.backend->run(launch); });
}

// A launch whose slaves have empty ranges: also clears the results, sets the
// floating-point environment and enters the tile loop.
void run_empty_launch(State& state, Machine::Impl& machine) {
  const auto slaves = static_cast<std::size_t>(machine.slaves());
  const std::vector<runtime::SlaveRange> ranges(slaves);
  std::vector<runtime::SlaveResult> results(slaves);
  runtime::LdmArenas arenas;
  runtime::Launch launch;
  launch.ranges = ranges.data();
  launch.slaves = machine.slaves();
  launch.results = results.data();
  timed(state, 0, [&] { runtime::run(machine, launch, arenas); });
}

// `name` is BACKEND/host or BACKEND/slaves:N.
void add_machine(const std::string& name, const MachineConfig& config,
                 const std::string& backend_against,
                 const std::string& job_against) {
  const auto impl = [=]() -> Machine::Impl& {
    return kept_machine("spawn/" + name, config).impl();
  };
  add({"spawn/backend/" + name, {}, {}, backend_against},
      [=](State& state, const Run&) { run_backend(state, impl()); });
  add({"spawn/job/" + name, {}, {}, job_against},
      [=](State& state, const Run&) { run_empty_launch(state, impl()); });
}

void add_many(const std::string& backend, std::uint32_t core_groups) {
  MachineConfig config = host(backend);
  config.machine = "sw26010pro";
  config.core_groups = core_groups;
  config.slaves_per_group = 64;
  add_machine(backend + "/slaves:" + std::to_string(64 * core_groups), config,
              "spawn/backend/" + backend + "/host",
              "spawn/job/" + backend + "/host");
}

Machine& spawning_machine(bool always) {
  return kept_machine(
      always ? "always" : "never", {}, [=](runtime::Tuning& tuning) {
        tuning.spawn = {always ? 0 : std::numeric_limits<double>::infinity()};
      });
}

// Never split between slaves: see master/partition.h.
constexpr std::size_t kBlockElements = 8192;

// The smallest list that an operator splits between two slaves. It measures all
// parts of a call: C++ API, list, partition, spawn, join, reduce.
void add_operator(const std::string& name, bool spawn) {
  add({name, {}, {}, "spawn/operator/alone"}, [=](State& state, const Run&) {
    constexpr std::size_t kHalf = kBlockElements / 2 + 32;
    run_unscale(state, spawning_machine(spawn),
                {make_list(kDtypes[2], {kHalf, kHalf})}, kOnlyCheck);
  });
}

// A list of as many elements that can be split into as many equal parts as any:
// tensors of more than half a block, so that no two share a grain.
Counts splittable_counts(std::size_t elements) {
  constexpr std::size_t kMore = kBlockElements / 2 + 16;
  const std::size_t pairs = elements / (2 * kMore);
  if (pairs == 0) return {};
  return Counts(2 * pairs, elements / (2 * pairs));
}

// As many lists as fit into the memory. After a few thousand, the first is no
// longer in the caches.
std::vector<List> cold_lists(const Dtype& dtype, const Counts& counts) {
  const std::size_t bytes = list_bytes(dtype, counts);
  const std::size_t lists = std::min<std::size_t>(4096, memory_bytes() / bytes);
  std::vector<List> all;
  for (std::size_t i = 0; i < lists; ++i) {
    all.push_back(make_list(dtype, counts, i * bytes));
  }
  return all;
}

// Data is warm if the previous call left it in the caches, and cold if it is
// only in memory; after backward() it is in between.
void add_threshold(const Dtype& dtype, bool warm, std::size_t traffic) {
  const Counts counts = splittable_counts(traffic / 2 / dtype.bytes);
  if (counts.empty()) return;  // one grain cannot be split
  const std::string name = std::string("threshold/") + dtype.name +
                           (warm ? "/warm" : "/cold") +
                           "/traffic:" + std::to_string(traffic);
  for (const bool spawn : {true, false}) {
    add({name + (spawn ? "/spawn" : "/alone"),
         {},
         {},
         spawn ? name + "/alone" : ""},
        [=](State& state, const Run&) {
          run_unscale(state, spawning_machine(spawn),
                      warm ? std::vector<List>{make_list(dtype, counts)}
                           : cold_lists(dtype, counts),
                      kFlipSign);
        });
  }
}

}  // namespace

void register_spawn() {
#if defined(SWAMP_HAS_OPENMP)
  add({"spawn/empty_omp"}, [](State& state, const Run&) {
    timed(state, 0, [] {
#pragma omp parallel for
      for (int i = 0; i < omp_get_max_threads(); ++i) {
        asm volatile("" : : "r"(i) : "memory");
      }
    });
  });
  add_machine("openmp/host", host("openmp"), "spawn/empty_omp",
              "spawn/empty_omp");
  add_many("openmp", 6);
#endif
  for (const std::string backend : {"serial", "threads"}) {
    add_machine(backend + "/host", host(backend), "spawn/backend/openmp/host",
                "spawn/job/openmp/host");
    for (const std::uint32_t core_groups : {1u, 6u}) {
      add_many(backend, core_groups);
    }
  }
  add_operator("spawn/operator/spawned", true);
  add_operator("spawn/operator/alone", false);
}

void register_threshold() {
  if (all_threads() == 1) return;  // a spawn would have no second thread
  constexpr std::size_t kTrafficKib[] = {8,   16,   32,   48,  64,  80,
                                         96,  128,  192,  256, 384, 512,
                                         768, 1024, 2048, 4096};
  for (const Dtype& dtype : {kDtypes[0], kDtypes[2]}) {
    for (const bool warm : {true, false}) {
      for (const std::size_t kib : kTrafficKib) {
        add_threshold(dtype, warm, kib * kKib);
      }
    }
  }
}

}  // namespace swamp::bench
