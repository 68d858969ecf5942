// roof/operator and transfer/tile: the numbers of runtime/tuning.h beside their
// neighbours, to see that each is where it should be on this machine.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>

#include "bench/memory.h"
#include "bench/operator.h"
#include "bench/roof.h"
#include "bench/suite.h"
#include "runtime/machine_impl.h"

namespace swamp::bench {
namespace {

constexpr std::size_t kTileBytes[] = {2048, 4096, 8192, 16384, 32768, 65536};

// tuned_machine() is the environment's machine but for one number.
template <class Tune>
Machine& tuned_machine(const std::string& name, const char* transfer,
                       Tune tune) {
  static std::map<std::string, std::unique_ptr<Machine>> machines;
  std::unique_ptr<Machine>& machine = machines[name];
  if (!machine) {
    MachineConfig config;
    config.backend = "serial";
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
  suite.section("Tuning: tile in copy, float32, 1 thread");
  for (const Size& size : sizes(suite.options())) {
    if (suite.quick() && size.name != "memory") continue;
    for (const std::size_t tile : kTileBytes) add_tile(suite, size, tile);
  }
}

}  // namespace swamp::bench
