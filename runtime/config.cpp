// MachineConfig and the SWAMP_* variables of a machine: rows, defaults, errors.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "runtime/machine_impl.h"
#include "swamp/error.h"

namespace swamp::runtime {
namespace {

// A machine is a row. Sizes of 0 are read from the topology.
struct MachineRow {
  const char* name;
  std::uint32_t core_groups;
  std::uint32_t slaves_per_group;
  std::size_t ldm_bytes;
  Tuning tuning = {};  // if not that of tuning.h
};

// The smallest tile with which unscale is less than 1 % slower if no transfers
// overlap, on any number of core groups:
//   swamp predict --list gpt2-small --core-groups 1,2,3,4,5,6
//     --tile 4096,8192,16384,32768
constexpr Tuning sunway_tuning() {
  Tuning tuning;
  tuning.tile_bytes = 16 * 1024;
  tuning.spawn = {512 * 1024};  // a spawn by hardware
  return tuning;
}

constexpr MachineRow kMachines[] = {
    {"host", 0, 0, 256 * 1024},
    {"sw26010", 4, 64, 64 * 1024, sunway_tuning()},
    {"sw26010pro", 6, 64, 256 * 1024, sunway_tuning()},
};
constexpr const char* kTransfers[] = {"view", "copy", "check"};
constexpr const char* kBinds[] = {"none", "core"};

constexpr std::uint32_t kMaxCount = 4096;
constexpr std::uint32_t kMaxSlaves = 65536;
constexpr std::size_t kMaxEcho = 100;
constexpr std::size_t kMinLdm = 1024;
constexpr std::size_t kMaxLdm = std::size_t{1} << 30;

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += text.empty() ? name : ", " + name;
  }
  return text;
}

// Setting is a value and its source, for error texts.
struct Setting {
  std::string source;
  std::string value;
  bool given() const { return !value.empty(); }
};

// setting() prefers the config's field; an empty variable counts as unset.
Setting setting(const char* field, const std::string& value,
                const char* variable) {
  if (!value.empty()) return {std::string("config.") + field, value};
  const char* env = std::getenv(variable);
  return {variable, env == nullptr ? "" : env};
}

constexpr char kDigits[] = "0123456789";

[[noreturn]] void refuse(const Setting& setting, const std::string& expected,
                         swamp_status status = SWAMP_INVALID_ARGUMENT) {
  // Shorten a long value: errors have a maximum length, and what was expected
  // comes last.
  std::string value = setting.value.substr(0, kMaxEcho);
  if (value != setting.value) value += "...";
  // Text is in quotes, so that spaces are seen; a number is not.
  if (value.find_first_not_of(kDigits) != std::string::npos) {
    value = "\"" + value + "\"";
  }
  throw Error(status,
              setting.source + ": got " + value + ", expected " + expected);
}

// choose() returns the index of the setting's value in `names`; 0 if it is not
// given. `known` are names that are valid in another build or on another CPU.
std::size_t choose(const Setting& setting,
                   const std::vector<std::string>& names,
                   std::initializer_list<const char*> known = {}) {
  if (!setting.given()) return 0;
  const auto found = std::find(names.begin(), names.end(), setting.value);
  if (found != names.end()) {
    return static_cast<std::size_t>(found - names.begin());
  }
  const bool is_known =
      std::any_of(known.begin(), known.end(),
                  [&](const char* name) { return setting.value == name; });
  if (is_known) {
    refuse(setting, "one that this build on this CPU has: " + join(names),
           SWAMP_UNSUPPORTED);
  }
  refuse(setting, "one of: " + join(names));
}

std::size_t choose_size(const Setting& setting, std::size_t fallback,
                        std::size_t lowest, std::size_t highest) {
  if (!setting.given()) return fallback;
  const std::string& text = setting.value;
  const bool digits =
      text.size() <= 18 && text.find_first_not_of(kDigits) == std::string::npos;
  const std::size_t number = digits ? std::stoull(text) : 0;
  if (!digits || number < lowest || number > highest) {
    refuse(setting, "a whole number from " + std::to_string(lowest) + " to " +
                        std::to_string(highest));
  }
  return number;
}

std::string number(std::size_t value) {
  return value == 0 ? "" : std::to_string(value);
}

void configure_sizes(const MachineConfig& config, Machine::Impl& impl) {
  Setting machine = setting("machine", config.machine, "SWAMP_MACHINE");
  if (!machine.given() && impl.backend_row->machine != nullptr) {
    machine.value = impl.backend_row->machine;
  }
  const MachineRow& row = kMachines[choose(machine, machine_names())];
  impl.name = row.name;
  impl.tuning = row.tuning;
  const bool host = row.core_groups == 0;
  impl.core_groups = static_cast<std::uint32_t>(choose_size(
      setting("core_groups", number(config.core_groups), "SWAMP_CORE_GROUPS"),
      host ? impl.topology.groups : row.core_groups, 1, kMaxCount));
  const Setting slaves =
      setting("slaves_per_group", number(config.slaves_per_group),
              "SWAMP_SLAVES_PER_GROUP");
  impl.slaves_per_group = static_cast<std::uint32_t>(choose_size(
      slaves, host ? impl.topology.slaves_per_group() : row.slaves_per_group, 1,
      kMaxCount));
  if (std::uint64_t{impl.core_groups} * impl.slaves_per_group > kMaxSlaves) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                "core_groups * slaves_per_group: got " +
                    std::to_string(impl.core_groups) + " * " +
                    std::to_string(impl.slaves_per_group) +
                    ", expected at most " + std::to_string(kMaxSlaves));
  }
  impl.ldm_bytes = choose_size(
      setting("ldm_bytes", number(config.ldm_bytes), "SWAMP_LDM_BYTES"),
      row.ldm_bytes, kMinLdm, kMaxLdm);
}

}  // namespace

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const MachineRow& row : kMachines) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  const BackendRows rows = backend_rows();
  for (std::size_t i = 0; i < rows.count; ++i) {
    names.emplace_back(rows.rows[i].name);
  }
  return names;
}

std::vector<std::string> transfer_names() {
  return {std::begin(kTransfers), std::end(kTransfers)};
}

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  const KernelTables tables = kernel_tables();
  for (std::size_t i = 0; i < tables.count; ++i) {
    if (tables.tables[i].runnable()) names.emplace_back(tables.tables[i].isa);
  }
  return names;
}

std::vector<std::string> bind_names() {
  return {std::begin(kBinds), std::end(kBinds)};
}

void configure(const MachineConfig& config, Machine::Impl& impl) {
  impl.topology = read_topology();
  impl.backend_row = backend_rows().rows +
                     choose(setting("backend", config.backend, "SWAMP_BACKEND"),
                            backend_names(), {"openmp", "athread"});
  configure_sizes(config, impl);
  impl.transfer = static_cast<Transfer>(
      choose(setting("transfer", config.transfer, "SWAMP_TRANSFER"),
             transfer_names()));
  if (impl.backend_row->machine != nullptr && impl.transfer == Transfer::view) {
    impl.transfer = Transfer::copy;
  }
  impl.bind =
      choose(setting("bind", config.bind, "SWAMP_BIND"), bind_names()) != 0;

  const std::vector<std::string> isas = isa_names();
  const std::string& isa =
      isas[choose(setting("isa", config.isa, "SWAMP_ISA"), isas,
                  {"scalar", "ssse3", "sse4", "avx2", "avx512", "neon"})];
  const KernelTables tables = kernel_tables();
  for (std::size_t i = 0; i < tables.count; ++i) {
    if (isa == tables.tables[i].isa) impl.kernels = &tables.tables[i];
  }
}

}  // namespace swamp::runtime
