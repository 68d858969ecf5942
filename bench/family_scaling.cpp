// scaling/: how the cost of the operator grows with threads, bytes, tensors and
// logical slaves.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/memory.h"
#include "bench/operator.h"
#include "bench/suite.h"
#include "bench/threads.h"

namespace swamp::bench {
namespace {

constexpr std::size_t kTensorElements = 16;
constexpr std::size_t kSlaveBytes = std::size_t{1000} * 10048 * 4;

// cost_row() is the time of one of the case's items, and of the whole case.
Row cost_row(std::string what, std::string name, std::string item) {
  return [=](const Results& results) -> std::optional<Line> {
    const std::optional<Measured> measured = results.find(name);
    if (!measured) return std::nullopt;
    const double each = measured->seconds / measured->work.items * 1e9;
    return Line{what, fmt::format("{:.3g} ns {}", each, item),
                time_text(measured->seconds), std::nullopt,
                results.too_few(name) ? kTooFew : ""};
  };
}

void add_threads(Suite& suite) {
  const std::size_t bytes = suite.options().memory_bytes;
  const auto name = [&](int threads) {
    return fmt::format("scaling/memory/bytes:{}{}", bytes,
                       threads_name(threads));
  };
  const int all = thread_counts().back();
  for (int threads = 1; threads <= all; ++threads) {
    suite.add(name(threads), threads, {2.0 * static_cast<double>(bytes), 0},
              [=](benchmark::State& state) {
                run_operator(state, c_machine(threads),
                             make_list(kDtypes[0], {bytes / 4}), kFlipSign);
              });
    suite.row(speed_row(threads_text(threads) + ", memory", name(threads),
                        "1 thread", {name(1)}));
  }
}

void add_bytes(Suite& suite, std::size_t bytes, int threads) {
  const std::string name =
      fmt::format("scaling/bytes:{}{}", bytes, threads_name(threads));
  const std::size_t elements = bytes / 4;
  suite.add(name, threads,
            {2.0 * static_cast<double>(bytes), static_cast<double>(elements)},
            [=](benchmark::State& state) {
              run_operator(state, c_machine(threads),
                           make_list(kDtypes[0], {elements}), kFlipSign);
            });
  suite.row(
      cost_row(fmt::format("{}, {}", bytes_text(static_cast<double>(bytes)),
                           threads_text(threads)),
               name, "an element"));
}

void add_tensors(Suite& suite, std::size_t tensors, int threads) {
  const std::string name =
      fmt::format("scaling/tensors:{}{}", tensors, threads_name(threads));
  suite.add(name, threads,
            {static_cast<double>(tensors * kTensorElements * 8),
             static_cast<double>(tensors)},
            [=](benchmark::State& state) {
              const std::vector<std::size_t> counts(tensors, kTensorElements);
              run_operator(state, c_machine(threads),
                           make_list(kDtypes[0], counts), kFlipSign);
            });
  suite.row(cost_row(fmt::format("{} x 16, {}", tensors, threads_text(threads)),
                     name, "a tensor"));
}

// As many threads as ever; only the ranges and the results grow.
void add_slaves(Suite& suite, std::uint32_t slaves, int threads) {
  const auto name = [&](std::uint32_t count) {
    return fmt::format("scaling/slaves:{}{}", count, threads_name(threads));
  };
  suite.add(name(slaves), threads, {2.0 * static_cast<double>(kSlaveBytes), 0},
            [=](benchmark::State& state) {
              static std::map<std::uint32_t, std::unique_ptr<Machine>> machines;
              std::unique_ptr<Machine>& machine = machines[slaves];
              if (!machine) {
                MachineConfig config;
                config.core_groups = slaves > 64 ? slaves / 64 : 1;
                config.slaves_per_group = std::min(slaves, 64u);
                machine = std::make_unique<Machine>(config);
              }
              run_operator(
                  state, *machine,
                  make_list(kDtypes[0], std::vector<std::size_t>(1000, 10000)),
                  kFlipSign);
            });
  suite.row(time_row(fmt::format("{} slaves, 1000 x 10000", slaves),
                     name(slaves), "2 slaves", name(2)));
}

}  // namespace

void add_scaling(Suite& suite) {
  const int all = thread_counts().back();
  if (!suite.quick()) {
    suite.section("Scaling with threads, float32");
    add_threads(suite);
    suite.section("Scaling with bytes, float32: one tensor");
    constexpr std::size_t kMost = 1024 * kMib;
    for (std::size_t bytes = 1024; bytes <= kMost; bytes *= 4) {
      if (bytes > suite.options().memory_bytes) break;
      for (const int threads : thread_counts()) {
        add_bytes(suite, bytes, threads);
      }
    }
    suite.section("Scaling with tensors, float32: 16 elements each");
    for (std::size_t tensors = 1; tensors <= 1000000; tensors *= 10) {
      if (tensors * 64 > suite.options().list_limit_bytes) break;
      for (const int threads : thread_counts()) {
        add_tensors(suite, tensors, threads);
      }
    }
  }
  suite.section("Scaling with logical slaves, float32 (time)");
  for (const std::uint32_t slaves : {2u, 8u, 64u, 384u}) {
    if (suite.quick() && slaves != 2 && slaves != 384) continue;
    if (kSlaveBytes > suite.options().list_limit_bytes) break;
    add_slaves(suite, slaves, all);
  }
}

}  // namespace swamp::bench
