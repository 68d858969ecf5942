#ifndef SWAMP_SUNWAY_EMULATOR_SETTINGS_H_
#define SWAMP_SUNWAY_EMULATOR_SETTINGS_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace swamp::sunway {

// Settings holds the SWAMP_* variables.
struct Settings {
  int core_groups = 6;
  int slaves_per_group = 64;
  std::size_t ldm_bytes = 256 * 1024;
  std::string machine = "sw26010pro";
  bool check = false;        // SWAMP_TRANSFER=check
  bool predict = false;      // SWAMP_PREDICT=1
  bool halt = false;         // SWAMP_CHECK_HALT=1: end at the first report
  bool main_access = false;  // SWAMP_CHECK_MAIN_ACCESS=1
  std::uint64_t seed = 0;    // SWAMP_CHECK_SEED: the order of the slaves
  int schedules = -1;        // SWAMP_CHECK_SCHEDULES; -1: chosen per launch
  int timeout_seconds =
      8;  // SWAMP_CHECK_TIMEOUT: seconds without progress that count as a hang
  std::string report_file;  // SWAMP_CHECK_REPORT
};

// settings() reads the environment at the first call. A bad value ends the
// program with exit code 2 and one line on stderr that lists the good values.
const Settings& settings();

// is_check_asked() reads SWAMP_TRANSFER alone; it allocates nothing.
bool is_check_asked() noexcept;

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_SETTINGS_H_
