// transfer/: the three transfer modes.
#include <string>

#include "bench/memory.h"
#include "bench/operator.h"
#include "bench/suite.h"
#include "bench/threads.h"

namespace swamp::bench {
namespace {

constexpr double kCopyAim = 0.7;  // of view, in memory

std::string transfer_name(const std::string& transfer, std::size_t bytes,
                          int threads) {
  return "transfer/" + transfer + "/bytes:" + std::to_string(bytes) +
         threads_name(threads);
}

void add_transfer_case(Suite& suite, const std::string& transfer,
                       std::size_t bytes, int threads) {
  const Dtype& dtype = kDtypes[0];
  suite.add(transfer_name(transfer, bytes, threads), threads,
            {2.0 * static_cast<double>(bytes), 0},
            [=](benchmark::State& state) {
              run_operator(state, c_machine(threads, transfer),
                           make_list(dtype, {bytes / dtype.bytes}), kFlipSign);
            });
}

}  // namespace

void add_transfer(Suite& suite) {
  suite.section("Transfer modes, float32, of view");
  for (const Size& size : sizes(suite.options())) {
    const bool memory = size.name == "memory";
    if (!memory && size.name != "L2") continue;
    for (const int threads : thread_counts()) {
      const std::string view = transfer_name("view", size.bytes, threads);
      add_transfer_case(suite, "view", size.bytes, threads);
      for (const std::string transfer : {"copy", "check"}) {
        // The checking machine is for finding bugs: L2 says what it costs.
        if (transfer == "check" && memory && suite.quick()) continue;
        add_transfer_case(suite, transfer, size.bytes, threads);
        suite.row(speed_row(
            transfer + " " + size.name + ", " + threads_text(threads),
            transfer_name(transfer, size.bytes, threads), "view", {view},
            memory && transfer == "copy" ? Aim{Aim::at_least, kCopyAim}
                                         : Aim{}));
      }
    }
  }
}

}  // namespace swamp::bench
