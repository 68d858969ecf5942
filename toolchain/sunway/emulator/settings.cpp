#include "toolchain/sunway/emulator/settings.h"

#include <cstdlib>
#include <cstring>

#include "toolchain/sunway/emulator/process.h"

namespace swamp::sunway {
namespace {

const char* value_of(const char* variable) noexcept {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

[[noreturn]] void refuse(const char* variable, const char* value,
                         const std::string& expected) {
  fail(2, std::string(variable) + ": \"" + value + "\" " + expected);
}

std::uint64_t number(const char* variable, std::uint64_t fallback,
                     std::uint64_t lowest, std::uint64_t highest) {
  const char* text = value_of(variable);
  if (text == nullptr) return fallback;
  const std::size_t length = std::strlen(text);
  const bool digits = length <= 18 && std::strspn(text, "0123456789") == length;
  const std::uint64_t value = digits ? std::strtoull(text, nullptr, 10) : 0;
  if (!digits || value < lowest || value > highest) {
    refuse(variable, text,
           "is out of range; expected a whole number from " +
               std::to_string(lowest) + " to " + std::to_string(highest));
  }
  return value;
}

bool flag(const char* variable) { return number(variable, 0, 0, 1) == 1; }

Settings read() {
  Settings all;
  if (const char* machine = value_of("SWAMP_MACHINE")) {
    all.machine = machine;
    if (all.machine == "sw26010") {
      all.core_groups = 4;
      all.ldm_bytes = 64 * 1024;
    } else if (all.machine != "sw26010pro") {
      refuse("SWAMP_MACHINE", machine,
             "is no Sunway machine; programs of swcc run on: sw26010pro, "
             "sw26010");
    }
  }
  if (const char* transfer = value_of("SWAMP_TRANSFER")) {
    all.check = std::strcmp(transfer, "check") == 0;
    if (!all.check && std::strcmp(transfer, "copy") != 0 &&
        std::strcmp(transfer, "view") != 0) {
      refuse("SWAMP_TRANSFER", transfer,
             "is unknown; expected one of: view, copy, check");
    }
  }
  if (const char* backend = value_of("SWAMP_BACKEND")) {
    if (std::strcmp(backend, "threads") != 0 &&
        std::strcmp(backend, "athread") != 0) {
      refuse("SWAMP_BACKEND", backend,
             "is not for programs of swcc; they have: threads, athread");
    }
  }
  all.core_groups = static_cast<int>(number(
      "SWAMP_CORE_GROUPS", static_cast<std::uint64_t>(all.core_groups), 1, 6));
  all.slaves_per_group = static_cast<int>(
      number("SWAMP_SLAVES_PER_GROUP",
             static_cast<std::uint64_t>(all.slaves_per_group), 1, 64));
  all.ldm_bytes = number("SWAMP_LDM_BYTES", all.ldm_bytes, 1024, 1u << 20);
  all.predict = flag("SWAMP_PREDICT");
  all.halt = flag("SWAMP_CHECK_HALT");
  all.main_access = flag("SWAMP_CHECK_MAIN_ACCESS");
  all.seed = number("SWAMP_CHECK_SEED", 0, 0, 999999999);
  if (value_of("SWAMP_CHECK_SCHEDULES") != nullptr) {
    all.schedules =
        static_cast<int>(number("SWAMP_CHECK_SCHEDULES", 0, 0, 1000));
  }
  all.timeout_seconds =
      static_cast<int>(number("SWAMP_CHECK_TIMEOUT", 8, 1, 3600));
  if (const char* file = value_of("SWAMP_CHECK_REPORT")) all.report_file = file;
  return all;
}

}  // namespace

const Settings& settings() {
  static const Settings* const all = new Settings(read());  // until the end
  return *all;
}

bool is_check_asked() noexcept {
  const char* transfer = value_of("SWAMP_TRANSFER");
  return transfer != nullptr && std::strcmp(transfer, "check") == 0;
}

}  // namespace swamp::sunway
