// `swamp info`: the machine that the SWAMP_* variables and the defaults make.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <vector>

#include "master/cli/command.h"
#include "master/cli/json.h"
#include "runtime/variables.h"
#include "swamp/swamp.h"

namespace swamp::cli {
namespace {

const char* compiler_version() {
#ifdef __clang__
  return __VERSION__;  // begins with "Clang"
#else
  return "GCC " __VERSION__;
#endif
}

// products() says how swamp::product() multiplies on the default machine.
const char* products() {
  return is_product_fast() ? "fused multiply-add" : "emulated, slow";
}

// Setting is one that the environment may choose, and its choices.
struct Setting {
  const char* label;
  const char* name;
  const std::string& chosen;
  const std::vector<std::string>& available;
};

std::vector<Setting> settings_of(const MachineInfo& info) {
  const MachineConfig& chosen = info.chosen;
  return {{"machine", "machine", chosen.machine, info.machines},
          {"backend", "backend", chosen.backend, info.backends},
          {"transfer", "transfer", chosen.transfer, info.transfers},
          {"ISA", "isa", chosen.isa, info.isas},
          {"bind", "bind", chosen.bind, info.binds}};
}

// line() is a line of the text, which breaks between words.
std::string line(const char* label, const std::string& value) {
  return wrapped(fmt::format("{:<18}{}", label, value), kColumns, 18) + "\n";
}

std::string info_text(const MachineInfo& info,
                      const std::vector<std::string>& unknown) {
  const MachineConfig& chosen = info.chosen;
  std::string text;
  text += line("swamp", swamp_version());
  text += line("compiler", compiler_version());
  text += line("cpu", info.cpu);
  text += line("cores", std::to_string(info.cores));
  text += line("threads", std::to_string(info.threads));
  text += line("topology", info.topology);
  for (const Setting& setting : settings_of(info)) {
    text += line(setting.label, fmt::format("{:<12}of {}", setting.chosen,
                                            joined(setting.available)));
    if (setting.label != std::string("machine")) continue;
    text += line("core groups", std::to_string(chosen.core_groups));
    text += line("slaves per group", std::to_string(chosen.slaves_per_group));
    text += line("LDM bytes", std::to_string(chosen.ldm_bytes));
  }
  text += line("products", products());
  text += line("unknown variables", unknown.empty() ? "none" : joined(unknown));
  return text;
}

Json info_json(const MachineInfo& info,
               const std::vector<std::string>& unknown) {
  const MachineConfig& chosen = info.chosen;
  Json json;
  json["version"] = swamp_version();
  json["machine"] = chosen.machine;
  json["core_groups"] = chosen.core_groups;
  json["slaves_per_group"] = chosen.slaves_per_group;
  json["ldm_bytes"] = chosen.ldm_bytes;
  Json available;
  for (const Setting& setting : settings_of(info)) {
    json[setting.name] = setting.chosen;
    available[setting.name] = setting.available;
  }
  json["cpu"] = info.cpu;
  json["cores"] = info.cores;
  json["threads"] = info.threads;
  json["topology"] = info.topology;
  json["compiler"] = compiler_version();
  json["products"] = products();
  json["available"] = available;
  json["unknown_variables"] = unknown;
  return json;
}

}  // namespace

Run add_info(CLI::App& command) {
  const auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "print one JSON object");
  return [json](Machine& machine) {
    warn_of_unknown_variables();
    const MachineInfo info = machine.info();
    const std::vector<std::string> unknown = runtime::unknown_variables();
    print(*json ? json_line(info_json(info, unknown)) + "\n"
                : info_text(info, unknown));
    return 0;
  };
}

}  // namespace swamp::cli
