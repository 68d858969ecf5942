#include "toolchain/sunway/emulator/ldm_peak.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>

#include "toolchain/sunway/emulator/check/location.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/output.h"
#include "toolchain/sunway/emulator/settings.h"

namespace swamp::sunway {
namespace {

struct Peak {
  std::size_t heap = 0;
  std::size_t stack = 0;
};

std::mutex mutex;
std::map<SlaveFunction, Peak>& peaks() {
  static auto* const all = new std::map<SlaveFunction, Peak>;
  return *all;
}

bool is_asked() {
  return settings().predict || !settings().report_file.empty();
}

void append_json(const std::string& kernel, const Peak& peak) {
  std::FILE* file = std::fopen(settings().report_file.c_str(), "a");
  if (file == nullptr) return;
  const World& all = world();
  std::fprintf(file,
               "{\"category\":\"ldm-peak\",\"note\":true,\"kernel\":\"%s\","
               "\"static\":%zu,\"heap\":%zu,\"stack\":%zu,\"ldm\":%zu}\n",
               kernel.c_str(), all.static_bytes, peak.heap, peak.stack,
               all.ldm_bytes);
  std::fclose(file);
}

void say_peak(const std::string& kernel, const Peak& peak) {
  const World& all = world();
  const std::size_t sum = all.static_bytes + peak.heap + peak.stack;
  say("swamp: ldm: " + kernel + ": " + std::to_string(sum) + " of " +
      std::to_string(all.ldm_bytes) + " bytes: static " +
      std::to_string(all.static_bytes) + ", ldm_malloc " +
      std::to_string(peak.heap) +
      (all.check ? ", stack " + std::to_string(peak.stack)
                 : ", stack not counted (SWAMP_TRANSFER=check does)"));
}

}  // namespace

void begin_ldm_peak(Slave& slave) { slave.heap.restart_high_water(); }

void end_ldm_peak(const Slave& slave) {
  if (!is_asked()) return;
  const std::lock_guard<std::mutex> lock(mutex);
  Peak& peak = peaks()[slave.function];
  peak.heap = std::max(peak.heap, slave.heap.high_water());
  if (slave.check) {
    peak.stack = std::max(peak.stack, slave.check->stack_bytes());
  }
}

void say_ldm_peaks() {
  if (!is_asked()) return;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto& [function, peak] : peaks()) {
    const std::string kernel =
        check::name_of_function(reinterpret_cast<const void*>(function));
    if (settings().predict) say_peak(kernel, peak);
    if (!settings().report_file.empty()) append_json(kernel, peak);
  }
}

}  // namespace swamp::sunway
