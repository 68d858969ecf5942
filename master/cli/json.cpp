// nlohmann-json is slow to compile: it is included here and nowhere else.
#include "master/cli/json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "swamp/c_api.h"

namespace swamp::cli {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

// line() cannot fail: bytes that are not UTF-8 (of a CPU's name) are replaced.
std::string line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string info_json(const MachineInfo& info) {
  const MachineConfig& chosen = info.chosen;
  Json json;
  json["version"] = swamp_version();
  json["machine"] = chosen.machine;
  json["core_groups"] = chosen.core_groups;
  json["slaves_per_group"] = chosen.slaves_per_group;
  json["ldm_bytes"] = chosen.ldm_bytes;
  json["backend"] = chosen.backend;
  json["transfer"] = chosen.transfer;
  json["isa"] = chosen.isa;
  json["bind"] = chosen.bind;
  json["cpu"] = info.cpu;
  json["cores"] = info.cores;
  json["threads"] = info.threads;
  json["topology"] = info.topology;
  json["compiler"] = compiler_version();
  Json& available = json["available"];
  available["machine"] = info.machines;
  available["backend"] = info.backends;
  available["transfer"] = info.transfers;
  available["isa"] = info.isas;
  available["bind"] = info.binds;
  return line(json);
}

std::string step_json(const StepRecord& record) {
  Json json;
  json["step"] = record.step;
  json["loss"] = number(record.loss);
  json["scale"] = number(double{record.scale});
  json["found_inf"] = number(double{record.found_inf});
  json["skipped"] = record.skipped;
  json["underflow"] = record.underflow;
  json["activation_underflow"] = record.activation_underflow;
  if (record.overflow_elements > 0) {
    json["overflow_tensor"] = record.overflow_tensor;
    json["overflow_index"] = record.overflow_index;
    json["overflow_elements"] = record.overflow_elements;
  }
  return line(json);
}

}  // namespace swamp::cli
