// The operators swamp::version and swamp::info.
#include <torch/version.h>

#include <string>
#include <vector>

#include "master/aten/checks.h"
#include "swamp/aten.h"
#include "swamp/c_api.h"
#include "swamp/machine.h"

namespace swamp::aten {
namespace {

std::string json(const std::string& value) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      text += "\\u00";
      text += kHex[byte >> 4];
      text += kHex[byte & 15];
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + '"';
}

std::string json(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) {
    text += (text.empty() ? "" : ",") + json(value);
  }
  return '[' + text + ']';
}

// Object is a JSON object, built one member at a time.
class Object {
 public:
  template <class Value>
  void set(const char* name, const Value& value) {
    set_text(name, json(value));
  }
  void set_number(const char* name, std::size_t value) {
    set_text(name, std::to_string(value));
  }
  // `text` must be JSON.
  void set_text(const char* name, const std::string& text) {
    members_ +=
        (members_.empty() ? "" : ",") + json(std::string(name)) + ':' + text;
  }
  std::string text() const { return '{' + members_ + '}'; }

 private:
  std::string members_;
};

}  // namespace

std::string version() { return swamp_version(); }

std::string info() {
  const MachineInfo info =
      translated([] { return Machine::default_machine().info(); });
  const MachineConfig& chosen = info.chosen;
  Object available;
  available.set("machine", info.machines);
  available.set("backend", info.backends);
  available.set("transfer", info.transfers);
  available.set("isa", info.isas);
  available.set("bind", info.binds);
  Object object;
  object.set("version", version());
  object.set("torch", std::string(TORCH_VERSION));
  object.set("machine", chosen.machine);
  object.set_number("core_groups", chosen.core_groups);
  object.set_number("slaves_per_group", chosen.slaves_per_group);
  object.set_number("ldm_bytes", chosen.ldm_bytes);
  object.set("backend", chosen.backend);
  object.set("transfer", chosen.transfer);
  object.set("isa", chosen.isa);
  object.set("bind", chosen.bind);
  object.set("cpu", info.cpu);
  object.set_number("cores", info.cores);
  object.set_number("threads", info.threads);
  object.set("topology", info.topology);
  object.set("compiler", std::string(SWAMP_COMPILER));
  object.set_text("available", available.text());
  return object.text();
}

}  // namespace swamp::aten
