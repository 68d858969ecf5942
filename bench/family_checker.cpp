// checker/: what transfer mode check costs, and what it costs the others to
// have it in the same library.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/memory.h"
#include "bench/operator.h"
#include "bench/passes.h"
#include "bench/suite.h"
#include "bench/threads.h"
#include "bench/timed.h"
#include "master/partition.h"
#include "runtime/dma.h"
#include "runtime/machine_impl.h"
#include "runtime/tile_loop.h"
#include "slave/kernel_args.h"
#include "slave/kernel_list.h"
#include "swamp/foreach.h"

namespace swamp::bench {
namespace {

constexpr double kCheckAim = 4;    // times of copy, in memory
constexpr double kCopyAim = 1.02;  // times of a loop without the checker

Machine& machine_of(const std::string& transfer) {
  static std::map<std::string, std::unique_ptr<Machine>> machines;
  std::unique_ptr<Machine>& machine = machines[transfer];
  if (!machine) {
    MachineConfig config;
    config.transfer = transfer;
    machine = std::make_unique<Machine>(config);
  }
  return *machine;
}

void run_norm(benchmark::State& state, Machine& machine, const List& list,
              std::size_t bytes) {
  double norm = 0;
  float found_inf = 0;
  timed(state, batch_of_bytes(bytes), [&] {
    norm += foreach_norm(list, 0.5f, &found_inf, nullptr, &machine);
  });
  benchmark::DoNotOptimize(norm);
  if (found_inf != 0) state.SkipWithError("the shared memory is not finite");
}

std::string operation_name(const std::string& operation,
                           const std::string& transfer, std::size_t bytes,
                           int threads) {
  return "checker/" + operation + "/" + transfer +
         "/bytes:" + std::to_string(bytes) + threads_name(threads);
}

void add_row(Suite& suite, const std::string& operation, std::size_t bytes,
             int threads) {
  suite.row(time_row(operation + " memory, " + threads_text(threads),
                     operation_name(operation, "check", bytes, threads), "copy",
                     operation_name(operation, "copy", bytes, threads),
                     {Aim::at_most, kCheckAim}));
}

void add_operation(Suite& suite, const std::string& operation,
                   std::size_t bytes, int threads) {
  const Dtype& dtype = kDtypes[0];
  const double traffic = operation == "unscale" ? 2 : 1;
  for (const std::string transfer : {"copy", "check"}) {
    suite.add(operation_name(operation, transfer, bytes, threads), threads,
              {traffic * static_cast<double>(bytes), 0},
              [=](benchmark::State& state) {
                Machine& machine = machine_of(transfer);
                const List list = make_list(dtype, {bytes / dtype.bytes});
                if (operation == "norm") {
                  run_norm(state, machine, list, bytes);
                } else {
                  run_operator(state, machine, list,
                               operation == "check" ? kOnlyCheck : kFlipSign);
                }
              });
  }
  add_row(suite, operation, bytes, threads);
}

void add_pass(Suite& suite, const std::string& pass, std::size_t bytes,
              int threads) {
  for (const std::string transfer : {"copy", "check"}) {
    add_pass_case(suite, pass, operation_name(pass, transfer, bytes, threads),
                  bytes, threads, [=] { return &machine_of(transfer); });
  }
  add_row(suite, pass, bytes, threads);
}

// CopyLaunch unscales one float32 tensor, as the master does it.
class CopyLaunch {
 public:
  CopyLaunch(Machine::Impl& machine, std::size_t bytes)
      : operation_(slave::kKernels[slave::kernel_id::unscale_float32], &args_),
        ranges_(static_cast<std::size_t>(machine.slaves())),
        results_(ranges_.size()) {
    segment_ = {{&operation_, bytes / 4}, shared_memory(bytes)};
    launch_.table = {reinterpret_cast<const std::byte*>(&segment_),
                     sizeof segment_, 1, &operation_, 1};
    launch_.traffic_bytes = 2 * bytes;
    launch_.ranges = ranges_.data();
    launch_.results = results_.data();
    launch_.slaves =
        master::partition(master::SegmentCounts(launch_.table), 2 * bytes,
                          machine.slaves(), ranges_.data());
  }
  CopyLaunch(const CopyLaunch&) = delete;
  CopyLaunch& operator=(const CopyLaunch&) = delete;

  runtime::Launch& launch() { return launch_; }

 private:
  struct {
    Segment segment;
    std::byte* data;
  } segment_{};
  slave::UnscaleArgs args_{kFlipSign};
  Operation operation_;
  std::vector<runtime::SlaveRange> ranges_;
  std::vector<runtime::SlaveResult> results_;
  runtime::Launch launch_;
};

// copy_only() is a slave in transfer mode copy, in a function that is compiled
// without the other modes.
void copy_only(const runtime::Launch& launch, int slave, int worker) noexcept {
  launch.results[slave] = runtime::SlaveResult{};
  runtime::Ldm ldm = launch.arenas->arena(worker, launch.ldm_bytes);
  runtime::CopyDma dma;
  runtime::TileLoop<runtime::CopyDma>(launch, slave, launch.ranges[slave],
                                      launch.kernels, ldm, dma,
                                      launch.results[slave])
      .run();
}

void run_copy(benchmark::State& state, std::size_t bytes, bool alone) {
  Machine::Impl& machine = machine_of("copy").impl();
  CopyLaunch made(machine, bytes);
  runtime::Launch& launch = made.launch();
  static runtime::LdmArenas arenas;  // the same pages for both
  runtime::run(machine, launch, arenas);
  if (alone) launch.run_slave = &copy_only;
  timed(state, batch_of_bytes(bytes), [&] {
    if (alone) {
      machine.backend->run(launch);
    } else {
      runtime::run(machine, launch, arenas);
    }
  });
}

void add_copy(Suite& suite, const Size& size, int threads) {
  const auto name = [&](const char* which) {
    return std::string("checker/") + which +
           "/bytes:" + std::to_string(size.bytes) + threads_name(threads);
  };
  for (const bool alone : {false, true}) {
    suite.add(name(alone ? "copy_without" : "copy_with"), threads,
              {2.0 * static_cast<double>(size.bytes), 0},
              [=, bytes = size.bytes](benchmark::State& state) {
                run_copy(state, bytes, alone);
              });
  }
  suite.row(time_row("copy " + size.name + ", " + threads_text(threads),
                     name("copy_with"), "without a checker",
                     name("copy_without"), {Aim::at_most, kCopyAim}));
}

}  // namespace

void add_checker(Suite& suite) {
  suite.section("The checking machine, float32");
  for (const int threads : thread_counts()) {
    if (suite.quick() && threads != thread_counts().back()) continue;
    for (const std::string operation : {"unscale", "check", "norm"}) {
      add_operation(suite, operation, suite.options().memory_bytes, threads);
    }
    for (const std::string pass :
         {"cast/float32_bfloat16", "accumulate/bfloat16",
          "step/adam/bfloat16_bfloat16"}) {
      if (suite.quick()) continue;
      add_pass(suite, pass, suite.options().memory_bytes, threads);
    }
    for (const Size& size : sizes(suite.options())) {
      if (size.name == "L2" || size.name == "memory") {
        add_copy(suite, size, threads);
      }
    }
  }
}

}  // namespace swamp::bench
