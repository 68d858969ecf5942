// `swamp info`: the machine that SWAMP_* and the defaults make here.
#include <fmt/format.h>

#include <vector>

#include "master/cli/command.h"
#include "master/cli/console.h"
#include "master/cli/json.h"
#include "runtime/variables.h"

namespace swamp::cli {
namespace {

void line(std::string& text, const char* name, const std::string& value) {
  text += fmt::format("{:<18}{}\n", name, value);
}

// choice() shows what was chosen and what could have been.
void choice(std::string& text, const char* name, const std::string& chosen,
            const std::vector<std::string>& available) {
  line(text, name,
       fmt::format("{:<12}of {}", chosen, fmt::join(available, ", ")));
}

std::string info_text(const MachineInfo& info,
                      const std::vector<std::string>& unknown) {
  const MachineConfig& chosen = info.chosen;
  std::string text;
  line(text, "swamp", swamp_version());
  line(text, "compiler", compiler_version());
  line(text, "cpu", info.cpu);
  line(text, "cores", fmt::to_string(info.cores));
  line(text, "threads", fmt::to_string(info.threads));
  line(text, "topology", info.topology);
  choice(text, "machine", chosen.machine, info.machines);
  line(text, "core groups", fmt::to_string(chosen.core_groups));
  line(text, "slaves per group", fmt::to_string(chosen.slaves_per_group));
  line(text, "LDM bytes", fmt::to_string(chosen.ldm_bytes));
  choice(text, "backend", chosen.backend, info.backends);
  choice(text, "transfer", chosen.transfer, info.transfers);
  choice(text, "ISA", chosen.isa, info.isas);
  choice(text, "bind", chosen.bind, info.binds);
  line(text, "unknown variables",
       unknown.empty() ? "none" : fmt::format("{}", fmt::join(unknown, ", ")));
  return text;
}

}  // namespace

const char* compiler_version() {
#ifdef __clang__
  return __VERSION__;  // says "Clang" itself
#else
  return "GCC " __VERSION__;
#endif
}

void run_info(const InfoOptions& options, Machine& machine) {
  const MachineInfo info = machine.info();
  const std::vector<std::string> unknown = runtime::unknown_variables();
  print(options.json ? info_json(info, unknown) + "\n"
                     : info_text(info, unknown));
}

}  // namespace swamp::cli
