#include "bench/report.h"

#include <fmt/format.h>

#include <iostream>

#include "bench/git_describe.h"
#include "bench/threads.h"
#include "bench/timed.h"
#include "swamp/c_api.h"
#include "swamp/machine.h"

namespace swamp::bench {
namespace {

constexpr const char* kLegend =
    "\nok: the aim is reached; below, above: it is missed, which the exit code "
    "does not tell.\nThreshold: time with a forced spawn over time of the "
    "master alone; below 1 the spawn wins.\n";

std::string caches_text() {
  std::string text;
  for (const auto& cache : benchmark::CPUInfo::Get().caches) {
    if (cache.type == "Instruction") continue;
    text += fmt::format("{}L{} {}", text.empty() ? "" : ", ", cache.level,
                        bytes_text(cache.size));
    if (cache.num_sharing > 1)
      text += fmt::format(" for {}", cache.num_sharing);
  }
  return text.empty() ? "unknown" : text;
}

std::string compiler_text() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

void append_line(std::string& out, const Line& line) {
  const std::string ratio =
      line.ratio ? fmt::format("{:.2f}", *line.ratio) : "";
  std::string text = fmt::format("  {:<34} {:>16}  {:<34} {:>7}  {}", line.what,
                                 line.measured, line.against, ratio, line.aim);
  text.erase(text.find_last_not_of(' ') + 1);
  out += text + "\n";
}

}  // namespace

Facts machine_facts() {
  const MachineInfo info = Machine::default_machine().info();
  return {{"swamp", std::string(swamp_version()) + " (" SWAMP_GIT_DESCRIBE ")"},
          {"cpu", info.cpu},
          {"cache", caches_text()},
          {"cores", std::to_string(info.cores)},
          {"threads", std::to_string(max_threads())},
          {"isa", info.chosen.isa},
          {"machine",
           fmt::format("{}, {} x {} slaves, LDM {}", info.chosen.machine,
                       info.chosen.core_groups, info.chosen.slaves_per_group,
                       bytes_text(static_cast<double>(info.chosen.ldm_bytes)))},
          {"backend", info.chosen.backend},
          {"transfer", info.chosen.transfer},
          {"bind", info.chosen.bind},
          {"topology", info.topology},
          {"compiler", compiler_text()}};
}

bool Reporter::ReportContext(const Context& context) {
  for (const auto& [key, value] : facts_) {
    GetOutputStream() << fmt::format("{:<9} {}\n", key, value);
  }
  GetOutputStream() << '\n' << std::flush;
  SetErrorStream(&std::cerr);  // a case matched: nothing is held back now
  GetErrorStream() << "swamp_bench: measuring; the repetitions of all cases "
                      "are shuffled, so results come late\n"
                   << std::flush;
  // As the base does it, without Google Benchmark's own header: its context is
  // said above, and that the library was built for debugging changes nothing
  // that is measured here.
  name_field_width_ = context.name_field_width;
  printed_header_ = false;
  prev_counters_.clear();
  return true;
}

void Reporter::ReportRuns(const std::vector<Run>& runs) {
  const Run* fastest = nullptr;
  for (const Run& run : runs) {
    if (run.run_type != Run::RT_Iteration) continue;
    if (run.error_occurred) {
      if (run.error_message == kOutOfTime) {
        ++left_out_;
        suite_.results().leave_out(run.run_name.function_name);
        continue;
      }
      GetErrorStream() << "swamp_bench: " << run.benchmark_name() << ": "
                       << run.error_message << '\n';
      continue;
    }
    suite_.results().add(run.run_name.function_name,
                         run.GetAdjustedRealTime() /
                             benchmark::GetTimeUnitMultiplier(run.time_unit));
    if (fastest == nullptr ||
        run.GetAdjustedRealTime() < fastest->GetAdjustedRealTime()) {
      fastest = &run;
    }
  }
  if (fastest != nullptr && !suite_.options().table_only) {
    ConsoleReporter::ReportRuns({*fastest});
    GetOutputStream() << std::flush;
  }
}

std::string table_text(const Suite& suite, const Results& results) {
  std::string text = fmt::format("{:<36} {:>16}  {:<34} {:>7}  {}\n", "",
                                 "measured", "against", "ratio", "aim");
  const std::size_t empty = text.size();
  for (const Section& section : suite.sections()) {
    std::string lines;
    for (const Row& row : section.rows) {
      if (const std::optional<Line> line = row(results)) {
        append_line(lines, *line);
      }
    }
    if (lines.empty()) continue;
    text += (text.size() == empty ? "" : "\n") + section.title + "\n" + lines;
  }
  return text.size() == empty ? "" : text + kLegend;
}

}  // namespace swamp::bench
