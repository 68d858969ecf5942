#include "toolchain/sunway/emulator/prediction.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/predict/cost_model.h"
#include "toolchain/sunway/emulator/debug_info.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway {
namespace {

// Kernel is what the slaves needed in all launches of one function.
struct Kernel {
  std::size_t heap = 0, stack = 0;  // the largest of any slave
  std::map<const Slave*, Counters> slaves;
};

std::mutex mutex;
std::map<SlaveFunction, Kernel>& kernels() {
  static auto* const all = new std::map<SlaveFunction, Kernel>;
  return *all;
}

// SWAMP_PREDICT=lines: what all slaves did in each line.
std::map<std::string, Counters>& lines() {
  static auto* const all = new std::map<std::string, Counters>;
  return *all;
}

void add_lines(Slave& slave) {
  for (const auto& [pc, counters] : slave.places) {
    const Location at = locate(pc);
    lines()[at.text()].add(counters);
    slave.counters.add(counters);
  }
  slave.places.clear();
}

bool prints_ldm() {
  return settings().predict || !settings().trace_file.empty();
}

unsigned long long number(std::uint64_t value) { return value; }

double in_us(double cycles) { return cycles / predict::kHertz * 1e6; }

// Sums is what the slaves of a core group did.
struct Sums {
  predict::GroupTraffic traffic;
  Counters all;

  void add(const Counters& slave) {
    traffic.add(slave);
    all.add(slave);
    traffic.most_flops =
        std::max(traffic.most_flops, static_cast<double>(slave.flops));
    const auto accesses = static_cast<double>(ldm_accesses(slave));
    most_accesses = std::max(most_accesses, accesses);
    most_waits = std::max(most_waits, slave.get_waits);
    scalar = std::max(scalar,
                      static_cast<double>(slave.flops) * predict::kScalarFlop +
                          accesses * predict::kScalarAccess);
  }
  // Direct accesses of main memory are counted in words of 8 bytes.
  static std::uint64_t ldm_accesses(const Counters& slave) {
    const std::uint64_t direct = slave.direct_loads + slave.direct_stores;
    return (slave.half_accesses - std::min(slave.half_accesses, 2 * direct)) /
           2;
  }
  // Of any slave: accesses of LDM, waits for gets, and the cycles of scalar
  // code.
  double most_accesses = 0;
  std::uint64_t most_waits = 0;
  double scalar = 0;
};

void print_group(std::size_t i, const Sums& sums, std::uint64_t spawns) {
  const Counters& c = sums.all;
  const std::uint64_t direct = c.direct_loads + c.direct_stores;
  if (c.get_requests + c.put_requests + c.rma_requests + direct == 0) return;
  const predict::Cycles cycles = predict::cycles_of(sums.traffic);
  // Loads and stores of main memory are counted in check mode only.
  std::string past_dma;
  if (machine().check) {
    past_dma = ", PC2_GLD " + std::to_string(c.direct_loads) + ", PC3_GST " +
               std::to_string(c.direct_stores);
  }
  char waits[160];
  std::snprintf(
      waits, sizeof waits,
      "; of a slave's %llu gets, %llu are waited for while no other is in "
      "flight: %.3f us",
      number(sums.traffic.most_gets), number(sums.most_waits),
      in_us(predict::dma_cycles(sums.traffic, sums.most_waits)));
  char line[768];
  std::snprintf(
      line, sizeof line,
      "swamp: predict: cg %zu: PC3_REQ_DMA_GET %llu (%llu bytes, %llu lines), "
      "PC2_REQ_DMA_PUT %llu (%llu bytes, %llu whole lines, %llu partial)%s, "
      "RMA %llu (%llu bytes), syncs %llu, spawns %llu; transfers on "
      "SW26010-Pro: %.3f us overlapped, %.3f us one after another%s",
      i, number(c.get_requests), number(c.get_bytes), number(c.lines_read),
      number(c.put_requests), number(c.put_bytes), number(c.lines_full),
      number(c.lines_partial), past_dma.c_str(), number(c.rma_requests),
      number(c.rma_bytes), number(c.syncs), number(spawns),
      in_us(cycles.overlapped), in_us(cycles.one_after_another),
      c.get_requests != 0 ? waits : "");
  print_line(line);
}

// print_bound() prints by what a function is bound on its slowest core group:
// transfers, LDM and arithmetic are assumed to overlap.
void print_bound(const std::string& name, const Kernel& kernel) {
  std::map<int, Sums> groups;
  for (const auto& [slave, counters] : kernel.slaves) {
    groups[slave->group].add(counters);
  }
  predict::Cycles most;
  Counters all;
  double scalar = 0;
  for (const auto& [group, sums] : groups) {
    predict::Cycles cycles = predict::cycles_of(sums.traffic);
    cycles.ldm = sums.most_accesses;
    scalar = std::max(scalar, sums.scalar);
    most.raise(cycles);
    all.add(sums.all);
  }
  if (!machine().check) most.ldm = most.arithmetic = 0;
  struct Bound {
    double cycles;
    const char* name;
  };
  const Bound bounds[] = {{most.overlapped, "DMA"},
                          {most.rma, "RMA"},
                          {most.ldm, "LDM"},
                          {most.arithmetic, "arithmetic"}};
  const Bound& bound = *std::max_element(
      std::begin(bounds), std::end(bounds),
      [](const Bound& a, const Bound& b) { return a.cycles < b.cycles; });
  if (bound.cycles == 0) return;
  char text[768];
  std::snprintf(text, sizeof text,
                "swamp: predict: %s: DMA %.3f us, RMA %.3f us", name.c_str(),
                in_us(most.overlapped), in_us(most.rma));
  std::string line = text;
  if (machine().check) {
    std::snprintf(
        text, sizeof text,
        ", LDM %.3f us (%llu accesses), arithmetic %.3f us (%llu flop): bound "
        "by %s, if all overlap; assumed: %.0f bytes of RMA, one access of LDM "
        "and %.0f flop (vectors of 8, fused) per cycle and slave; scalar code "
        "in which every instruction waits for the one before (7 cycles a fused "
        "multiply-add, 4 an access): %.3f us",
        in_us(most.ldm), number(Sums::ldm_accesses(all)),
        in_us(most.arithmetic), number(all.flops), bound.name,
        predict::kRmaBytesPerCycle, predict::kFlopsPerCycle, in_us(scalar));
    line += text;
  } else {
    line += "; LDM and arithmetic are counted with SWAMP_TRANSFER=check";
  }
  print_line(line);
}

// print_lines() prints the lines that take most of the slaves' time if nothing
// overlaps.
void print_lines(std::size_t slaves) {
  constexpr std::size_t kMost = 10;
  struct Line {
    double dma, rma, scalar;
    const std::string* place;
    const Counters* counters;
    double sum() const { return dma + rma + scalar; }
  };
  std::vector<Line> all;
  double sum = 0;
  for (const auto& [place, c] : lines()) {
    all.push_back({static_cast<double>(c.get_latency + c.put_latency +
                                       (c.direct_loads + c.direct_stores) *
                                           predict::kDirectCycles),
                   static_cast<double>(c.rma_latency),
                   static_cast<double>(c.flops) * predict::kScalarFlop +
                       static_cast<double>(Sums::ldm_accesses(c)) *
                           predict::kScalarAccess,
                   &place, &c});
    sum += all.back().sum();
  }
  std::stable_sort(all.begin(), all.end(), [](const Line& a, const Line& b) {
    return a.sum() > b.sum();
  });
  const auto mean = [&](double cycles) {
    return in_us(cycles) / static_cast<double>(slaves);
  };
  for (std::size_t i = 0; i < std::min(kMost, all.size()); ++i) {
    const Line& line = all[i];
    if (line.sum() == 0) break;
    char text[256];
    std::snprintf(text, sizeof text,
                  ": %.1f %% of a slave's %.3f us if nothing overlaps: DMA and "
                  "direct access %.3f us, RMA %.3f us, scalar code %.3f us "
                  "(%llu accesses of LDM and %llu flop of all slaves)",
                  100 * line.sum() / sum, mean(sum), mean(line.dma),
                  mean(line.rma), mean(line.scalar),
                  number(Sums::ldm_accesses(*line.counters)),
                  number(line.counters->flops));
    print_line("swamp: predict: " + *line.place + text);
  }
}

void print_ldm(const std::string& name, const Kernel& kernel) {
  const Machine& all = machine();
  const std::size_t sum = all.static_bytes + kernel.heap + kernel.stack;
  print_line("swamp: ldm: " + name + ": " + std::to_string(sum) + " of " +
             std::to_string(all.ldm_bytes) + " bytes: static " +
             std::to_string(all.static_bytes) + ", ldm_malloc " +
             std::to_string(kernel.heap) +
             (all.check
                  ? ", stack " + std::to_string(kernel.stack)
                  : ", stack not counted (only with SWAMP_TRANSFER=check)"));
}

void report_ldm(const std::string& name, const Kernel& kernel) {
  const Machine& all = machine();
  append_to_report_file(
      "{\"category\":\"ldm-peak\",\"note\":true,\"kernel\":\"" + name +
      "\",\"static\":" + std::to_string(all.static_bytes) +
      ",\"heap\":" + std::to_string(kernel.heap) +
      ",\"stack\":" + std::to_string(kernel.stack) +
      ",\"ldm\":" + std::to_string(all.ldm_bytes) + "}");
}

}  // namespace

void begin_part(Slave& slave) {
  slave.heap.restart_high_water();
  slave.counters = {};
  slave.rma_received = 0;
  slave.last_get = nullptr;
}

void end_part(Slave& slave) {
  if (!prints_ldm() && settings().report_file.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex);
  Kernel& kernel = kernels()[slave.function];
  kernel.heap = std::max(kernel.heap, slave.heap.high_water());
  if (slave.observer) {
    kernel.stack = std::max(kernel.stack, slave.observer->stack_bytes());
  }
  add_lines(slave);
  slave.counters.rma_latency += slave.rma_received;
  kernel.slaves[&slave].add(slave.counters);
}

void print_prediction() {
  if (!has_machine()) return;
  const bool predict = settings().predict;
  const std::lock_guard<std::mutex> lock(mutex);
  if (predict) {
    std::map<const Slave*, Counters> slaves;
    for (const auto& [function, kernel] : kernels()) {
      for (const auto& [slave, counters] : kernel.slaves) {
        slaves[slave].add(counters);
      }
    }
    std::map<int, Sums> groups;
    for (const auto& [slave, counters] : slaves) {
      groups[slave->group].add(counters);
    }
    for (const auto& [group, sums] : groups) {
      const auto i = static_cast<std::size_t>(group);
      print_group(i, sums, machine().groups[i].spawns);
    }
    print_lines(slaves.size());
  }
  for (const auto& [function, kernel] : kernels()) {
    const std::string name =
        name_of_function(reinterpret_cast<const void*>(function));
    if (predict) print_bound(name, kernel);
    if (prints_ldm()) print_ldm(name, kernel);
    if (!settings().report_file.empty()) report_ldm(name, kernel);
  }
}

}  // namespace swamp::sunway
