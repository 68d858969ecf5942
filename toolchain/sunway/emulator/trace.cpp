// SWAMP_TRACE=FILE: what slaves did, on the time scale of the machine. An
// observer records computing, transfers, waits and barriers of every slave
// while the program runs in copy mode. After the join a simulation gives them
// times. The file is for Perfetto and chrome://tracing, a summary goes to
// stderr.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "toolchain/sunway/emulator/debug_info.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/observer.h"
#include "toolchain/sunway/emulator/schedule.h"
#include "toolchain/sunway/emulator/trace_recorder.h"
#include "toolchain/sunway/emulator/trace_simulation.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway {
namespace {

constexpr std::size_t kMasterProcess = 0;  // core group i is process i + 1

// Kernel is the sum of the launches of a function.
struct Kernel {
  std::uint64_t launches = 0, bytes = 0;
  double ns = 0;        // of the launches
  double group_ns = 0;  // times core groups
  double slave_ns = 0;  // times slaves
  double most = 0;      // of the busiest slave of each launch, times slaves
  Times all;            // of all slaves
};

// Tracer observes the machine. Under the machine's mutex.
class Tracer final : public Observer {
 public:
  explicit Tracer(const std::string& name) : file_(name) {}
  bool good() const { return file_.good(); }

  std::unique_ptr<SlaveObserver> make(Slave& slave) override {
    return make_recorder(slave);
  }
  void refused(const void*, const char*) override {}

  void launched(unsigned mask, const void*, const void*) override {
    if (running_.empty()) clear_raised();
    const double now = master_time();
    for (std::size_t i = 0; i < machine().groups.size(); ++i) {
      if ((mask >> i & 1u) != 0) running_.emplace(i, now);
    }
  }
  void joining(unsigned, const void*, const void*) override {
    before_join_ = master_time();
  }
  void joined(unsigned) override {
    if (machine().live == 0) finish();
  }
  void releases(Word object, std::uint64_t, unsigned mask) override {
    if (mask != 0) master_unlocks(object);
  }
  void acquires(Word, std::uint64_t, unsigned) override {}
  void atomic(Word, std::size_t) override {}
  void polls() noexcept override {}
  void not_cached(const volatile void*) override {}
  void allocated(const void*, std::size_t, const void*) override {}
  void halting(const void*) override {}
  void exiting() override {
    if (has_machine() && machine().live == 0) finish();
    summarize();
    file_.close();
  }

 private:
  // master_time() is the time of the program without that of its joins, which
  // are as long as the simulation says.
  double master_time() const {
    return offset_ + static_cast<double>(nanoseconds() - anchor_);
  }

  // finish() simulates what has run since the machine was idle.
  void finish() {
    if (running_.empty()) return;
    std::vector<std::pair<const Slave*, double>> slaves;
    for (const auto& [group, start] : running_) {
      for (const auto& slave : machine().groups[group].slaves) {
        if (!recorded(*slave).empty()) slaves.emplace_back(slave.get(), start);
      }
    }
    double end = before_join_;
    std::map<SlaveFunction, std::vector<SlaveTimes>> kernels;
    for (const SlaveTimes& one : simulate(slaves, file_)) {
      end = std::max(end, one.end);
      kernels[one.slave->function].push_back(one);
      recorded(*one.slave).clear();
    }
    for (const auto& [function, parts] : kernels) add(function, parts);
    file_.flush();
    running_.clear();
    offset_ = end;
    anchor_ = nanoseconds();
  }

  // add() adds a launch of a function to its sum, and to the master's line.
  void add(SlaveFunction function, const std::vector<SlaveTimes>& parts) {
    Kernel& kernel = kernels_[function];
    const std::string name =
        name_of_function(reinterpret_cast<const void*>(function));
    std::map<int, double> starts;
    double most = 0;
    double last = 0;
    for (const SlaveTimes& part : parts) {
      starts[part.slave->group] =
          running_.at(static_cast<std::size_t>(part.slave->group));
      const Times& t = part.times;
      kernel.all.compute += t.compute;
      kernel.all.dma += t.dma;
      kernel.all.rma += t.rma;
      kernel.all.sync += t.sync;
      kernel.bytes += part.bytes;
      most = std::max(most, t.busy());
      last = std::max(last, part.end);
    }
    double first = std::numeric_limits<double>::max();
    for (const auto& [group, start] : starts) first = std::min(first, start);
    ++kernel.launches;
    const auto slaves = static_cast<double>(parts.size());
    kernel.ns += last - first;
    kernel.group_ns += (last - first) * static_cast<double>(starts.size());
    kernel.slave_ns += (last - first) * slaves;
    kernel.most += most * slaves;
    file_.name(kMasterProcess, 0, "master");
    file_.name(kMasterProcess, 1, "launches");
    file_.event(kMasterProcess, 1, "launch", name, first, last,
                "\"slaves\":" + std::to_string(parts.size()));
  }

  void summarize() const {
    // Peak of a core group, from the time of a line.
    constexpr double kPeak =
        predict::kLineBytes / predict::kReadLine * predict::kHertz * 1e-9;
    for (const auto& [function, kernel] : kernels_) {
      const std::string name =
          name_of_function(reinterpret_cast<const void*>(function));
      const Times& t = kernel.all;
      const double whole = std::max(kernel.slave_ns, 1.0);
      const double idle = whole - t.busy() - t.sync;
      char line[512];
      std::snprintf(
          line, sizeof line,
          "swamp: trace: %s: launches %llu, %.3f us; of the slaves' time "
          "computing %.1f %%, waiting for DMA %.1f %%, RMA %.1f %%, barriers "
          "and locks %.1f %%, idle %.1f %%; DMA %llu bytes, %.2f GB/s of %.1f "
          "of each core group; busiest slave %.2f times the mean",
          name.c_str(), static_cast<unsigned long long>(kernel.launches),
          kernel.ns * 1e-3, 100 * t.compute / whole, 100 * t.dma / whole,
          100 * t.rma / whole, 100 * t.sync / whole,
          100 * std::max(idle, 0.0) / whole,
          static_cast<unsigned long long>(kernel.bytes),
          static_cast<double>(kernel.bytes) / std::max(kernel.group_ns, 1.0),
          kPeak, kernel.most / std::max(t.busy(), 1.0));
      print_line(line);
    }
  }

  TraceFile file_;
  std::map<std::size_t, double> running_;  // core group, its start
  std::map<SlaveFunction, Kernel> kernels_;
  unsigned long anchor_ = nanoseconds();
  double offset_ = 0, before_join_ = 0;
};

}  // namespace

void start_trace() {
  const std::string& file = settings().trace_file;
  auto* const tracer = new Tracer(file);
  if (!tracer->good()) {
    fail(2, "SWAMP_TRACE: got \"" + file +
                "\", expected a file that can be written");
  }
  observer = tracer;
}

}  // namespace swamp::sunway
