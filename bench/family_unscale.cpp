// unscale/ and check/: the operator on one large tensor, beside the roof.
#include <string>

#include "bench/memory.h"
#include "bench/operator.h"
#include "bench/suite.h"
#include "bench/threads.h"

namespace swamp::bench {
namespace {

// Of the roof's bytes per second, in memory.
constexpr double kMemoryAim = 0.95;
constexpr double kMemoryAim16 = 0.85;

void add_unscale_case(Suite& suite, const Dtype& dtype, const Size& size,
                      int threads) {
  const std::string name = std::string("unscale/") + dtype.name +
                           "/bytes:" + std::to_string(size.bytes) +
                           threads_name(threads);
  suite.add(name, threads, {2.0 * static_cast<double>(size.bytes), 0},
            [=](benchmark::State& state) {
              run_operator(state, c_machine(threads),
                           make_list(dtype, {size.bytes / dtype.bytes}),
                           kFlipSign);
            });
  const bool aimed = dtype.bytes <= 4 && size.name == "memory";
  const double aim = dtype.bytes == 2 ? kMemoryAim16 : kMemoryAim;
  suite.row(speed_row(
      std::string(dtype.name) + " " + size.name + ", " + threads_text(threads),
      name, "roof", scale_roof(suite, size.bytes, threads),
      aimed ? Aim{Aim::at_least, aim} : Aim{}));
}

void add_check_case(Suite& suite, const Dtype& dtype, const Size& size,
                    int threads) {
  const std::string name = std::string("check/") + dtype.name +
                           "/bytes:" + std::to_string(size.bytes) +
                           threads_name(threads);
  suite.add(name, threads, {static_cast<double>(size.bytes), 0},
            [=](benchmark::State& state) {
              run_operator(state, c_machine(threads),
                           make_list(dtype, {size.bytes / dtype.bytes}),
                           kOnlyCheck);
            });
  suite.row(speed_row("check " + std::string(dtype.name) + " " + size.name +
                          ", " + threads_text(threads),
                      name, "read", read_roof(suite, size.bytes, threads)));
}

}  // namespace

void add_unscale(Suite& suite) {
  for (const Size& size : sizes(suite.options())) {
    suite.section("Operator, " + size.name + " (" +
                  bytes_text(static_cast<double>(size.bytes)) +
                  "), of the best in-place or read-only loop");
    const bool memory = size.name == "memory";
    for (const Dtype& dtype : kDtypes) {
      const bool telling = dtype.dtype == SWAMP_FLOAT32 || memory;
      if (suite.quick() && !telling) continue;
      for (const int threads : thread_counts()) {
        add_unscale_case(suite, dtype, size, threads);
      }
    }
    for (const Dtype& dtype : kDtypes) {
      const bool telling = dtype.dtype == SWAMP_FLOAT32 && memory;
      if (suite.quick() && !telling) continue;
      for (const int threads : thread_counts()) {
        add_check_case(suite, dtype, size, threads);
      }
    }
  }
}

}  // namespace swamp::bench
