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
#include "master/plan.h"
#include "runtime/dma.h"
#include "runtime/ldm_arenas.h"
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

// CopyJob is one float32 tensor to unscale, as the road makes it.
class CopyJob {
 public:
  CopyJob(Machine::Impl& machine, std::size_t bytes)
      : operation_(slave::kKernels[slave::kernel_id::unscale_float32], &args_),
        ranges_(static_cast<std::size_t>(machine.slaves())),
        results_(ranges_.size()) {
    segment_ = {{&operation_, bytes / 4}, shared_memory(bytes)};
    job_.table = {reinterpret_cast<const std::byte*>(&segment_),
                  sizeof segment_, 1, &operation_, 1};
    job_.ranges = ranges_.data();
    job_.results = results_.data();
    job_.slaves =
        master::cut(job_.table, 2 * bytes, machine.slaves(), ranges_.data());
  }
  CopyJob(const CopyJob&) = delete;
  CopyJob& operator=(const CopyJob&) = delete;

  const runtime::Job& job() const { return job_; }

 private:
  struct {
    Segment segment;
    std::byte* data;
  } segment_{};
  slave::UnscaleArgs args_{kFlipSign};
  Operation operation_;
  std::vector<runtime::SlaveRange> ranges_;
  std::vector<runtime::SlaveResult> results_;
  runtime::Job job_;
};

// CopyAlone is what run_job() does in mode copy, and no other mode.
struct CopyAlone {
  const Machine::Impl& machine;
  const runtime::Job& job;
  const runtime::LdmArenas& arenas;

  static void work(void* context, int begin, int end, int worker) noexcept {
    const auto& self = *static_cast<const CopyAlone*>(context);
    for (int slave = begin; slave < end; ++slave) {
      self.job.results[slave] = runtime::SlaveResult{};
      runtime::Ldm ldm = self.arenas.arena(worker, self.machine.ldm_bytes);
      runtime::EagerDma dma;
      runtime::TileLoop<runtime::EagerDma>(
          runtime::part_of(self.job, slave), self.machine.kernels->rows,
          self.machine.tuning.tile_bytes, ldm, dma)
          .run();
    }
  }
};

void run_copy(benchmark::State& state, std::size_t bytes, bool alone) {
  Machine::Impl& machine = machine_of("copy").impl();
  const CopyJob made(machine, bytes);
  const runtime::Job& job = made.job();
  static runtime::LdmArenas arenas;  // the same pages for both
  arenas.reserve(machine.backend->worker_count(), machine.ldm_bytes);
  CopyAlone copy{machine, job, arenas};
  timed(state, batch_of_bytes(bytes), [&] {
    if (alone) {
      machine.backend->run(job.slaves, &CopyAlone::work, &copy);
    } else {
      runtime::run_job(machine, job, arenas);
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
