// roof/operator and transfer/tile: the numbers of runtime/tuning.h beside their
// neighbours, to see that each is where it should be on this machine.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>

#include "bench/memory.h"
#include "bench/operator.h"
#include "bench/passes.h"
#include "bench/roof.h"
#include "bench/suite.h"
#include "bench/threads.h"
#include "bench/timed.h"
#include "runtime/machine_impl.h"
#include "swamp/foreach.h"

namespace swamp::bench {
namespace {

constexpr std::size_t kTileBytes[] = {2048, 4096, 8192, 16384, 32768, 65536};

// tuned_machine() is the environment's machine but for one number.
template <class Tune>
Machine& tuned_machine(const std::string& name, const char* transfer, Tune tune,
                       const char* backend = "serial") {
  static std::map<std::string, std::unique_ptr<Machine>> machines;
  std::unique_ptr<Machine>& machine = machines[name];
  if (!machine) {
    MachineConfig config;
    config.backend = backend;
    config.transfer = transfer;
    machine = std::make_unique<Machine>(config);
    tune(machine->impl().tuning);
  }
  return *machine;
}

void add_prefetch(Suite& suite, const Size& size, int prefetch) {
  const auto name = [&](int distance) {
    return fmt::format("roof/operator/prefetch:{}/bytes:{}/threads:1", distance,
                       size.bytes);
  };
  suite.add(name(prefetch), 1, {2.0 * static_cast<double>(size.bytes), 0},
            [=](benchmark::State& state) {
              Machine& machine =
                  tuned_machine(fmt::format("prefetch:{}", prefetch), "view",
                                [=](runtime::Tuning& tuning) {
                                  tuning.prefetch_bytes =
                                      static_cast<std::uint32_t>(prefetch);
                                });
              run_operator(state, machine,
                           make_list(kDtypes[0], {size.bytes / 4}), kFlipSign);
            });
  const auto tuned = static_cast<int>(runtime::Tuning{}.prefetch_bytes);
  suite.row(speed_row(fmt::format("{}, prefetch {} bytes", size.name, prefetch),
                      name(prefetch), "Tuning", {name(tuned)}));
}

// Several arrays, and one that is only read, like other distances.
constexpr int kNearBytes[] = {0, 256, 512, 1024, 2048, 4096};

void add_read_prefetch(Suite& suite, std::size_t bytes, int prefetch,
                       int threads) {
  const auto name = [&](int distance) {
    return fmt::format("norm/prefetch:{}/bytes:{}{}", distance, bytes,
                       threads_name(threads));
  };
  suite.add(name(prefetch), threads, {static_cast<double>(bytes), 0},
            [=](benchmark::State& state) {
              Machine& machine = tuned_machine(
                  fmt::format("read:{}", prefetch), "view",
                  [=](runtime::Tuning& tuning) {
                    tuning.read_prefetch_bytes =
                        static_cast<std::uint32_t>(prefetch);
                  },
                  "");
              const List list = make_list(kDtypes[0], {bytes / 4});
              timed(state, batch_of_bytes(bytes), [&] {
                benchmark::DoNotOptimize(
                    foreach_norm(list, 0.5f, nullptr, nullptr, &machine));
              });
            });
  suite.row(speed_row(
      fmt::format("norm, {}, prefetch {} bytes", threads_text(threads),
                  prefetch),
      name(prefetch), "Tuning",
      {name(static_cast<int>(runtime::Tuning{}.read_prefetch_bytes))}));
}

// add_streams() measures an accumulate (two arrays) or an Adam step (four or
// five) with another distance.
void add_streams_prefetch(Suite& suite, const std::string& pass,
                          std::size_t bytes, int prefetch, int threads) {
  const auto name = [&](int distance) {
    return fmt::format("{}/prefetch:{}/bytes:{}{}", pass, distance, bytes,
                       threads_name(threads));
  };
  add_pass_case(suite, pass, name(prefetch), bytes, threads, [=]() -> Machine* {
    return &tuned_machine(
        fmt::format("streams:{}", prefetch), "view",
        [=](runtime::Tuning& tuning) {
          tuning.operands_prefetch_bytes = static_cast<std::uint32_t>(prefetch);
        },
        "");
  });
  suite.row(speed_row(
      fmt::format("{}, {}, prefetch {} bytes", pass, threads_text(threads),
                  prefetch),
      name(prefetch), "Tuning",
      {name(static_cast<int>(runtime::Tuning{}.operands_prefetch_bytes))}));
}

// add_non_temporal() measures a pass with and without non-temporal stores.
void add_non_temporal(Suite& suite, const std::string& pass, std::size_t bytes,
                      int threads) {
  const auto name = [&](bool non_temporal) {
    return fmt::format("{}/{}/bytes:{}{}", pass,
                       non_temporal ? "non_temporal" : "cached", bytes,
                       threads_name(threads));
  };
  for (const bool non_temporal : {false, true}) {
    add_pass_case(suite, pass, name(non_temporal), bytes, threads,
                  [=]() -> Machine* {
                    return &tuned_machine(
                        non_temporal ? "non_temporal" : "cached", "view",
                        [=](runtime::Tuning& tuning) {
                          tuning.non_temporal_traffic_bytes =
                              non_temporal ? 0 : ~std::size_t{0};
                        },
                        "");
                  });
  }
  suite.row(time_row(
      fmt::format("{} {}, {}", pass, bytes_text(static_cast<double>(bytes)),
                  threads_text(threads)),
      name(true), "through the caches", name(false)));
}

void add_tile(Suite& suite, const Size& size, std::size_t tile) {
  const auto name = [&](std::size_t bytes) {
    return fmt::format("transfer/tile:{}/bytes:{}/threads:1", bytes,
                       size.bytes);
  };
  suite.add(name(tile), 1, {2.0 * static_cast<double>(size.bytes), 0},
            [=](benchmark::State& state) {
              Machine& machine = tuned_machine(
                  fmt::format("tile:{}", tile), "copy",
                  [=](runtime::Tuning& tuning) { tuning.tile_bytes = tile; });
              run_operator(state, machine,
                           make_list(kDtypes[0], {size.bytes / 4}), kFlipSign);
            });
  suite.row(speed_row(fmt::format("{}, tile {}", size.name,
                                  bytes_text(static_cast<double>(tile))),
                      name(tile), "Tuning",
                      {name(runtime::Tuning{}.tile_bytes)}));
}

}  // namespace

void add_tuning(Suite& suite) {
  suite.section("Tuning: prefetch distance in view, float32, 1 thread");
  for (const Size& size : sizes(suite.options())) {
    if (suite.quick() && size.name != "memory") continue;
    for (const int prefetch : kPrefetchBytes) {
      add_prefetch(suite, size, prefetch);
    }
  }
  const int all = thread_counts().back();
  const std::size_t memory = suite.options().memory_bytes;
  suite.section("Tuning: prefetch distance of norm and of several arrays");
  for (const int prefetch : kNearBytes) {
    if (suite.quick()) break;
    for (const int threads : thread_counts()) {
      add_read_prefetch(suite, memory, prefetch, threads);
      for (const char* pass :
           {"accumulate/bfloat16", "cast/bfloat16_float32", "step/adam/float32",
            "step/adam/bfloat16_bfloat16"}) {
        add_streams_prefetch(suite, pass, memory, prefetch, threads);
      }
    }
  }
  suite.section("Tuning: time of non-temporal stores, by bytes");
  for (std::size_t bytes = 2 * kMib; bytes <= memory; bytes *= 2) {
    if (suite.quick()) break;
    for (const char* pass : {"cast/bfloat16_float32", "cast/float32_bfloat16",
                             "step/adam/bfloat16_bfloat16"}) {
      add_non_temporal(suite, pass, bytes, all);
    }
  }
  suite.section("Tuning: tile in copy, float32, 1 thread");
  for (const Size& size : sizes(suite.options())) {
    if (suite.quick() && size.name != "memory") continue;
    for (const std::size_t tile : kTileBytes) add_tile(suite, size, tile);
  }
}

}  // namespace swamp::bench
