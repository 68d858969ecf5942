// Before main: in check mode the program goes on as its second self, which swcc
// compiled with every load and store of the slaves in sight and put inside. At
// the end: exit code 86 where there was something to report.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime/variables.h"
#include "toolchain/sunway/emulator/check/host_check.h"
#include "toolchain/sunway/emulator/check/replay.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/ldm_peak.h"
#include "toolchain/sunway/emulator/output.h"
#include "toolchain/sunway/emulator/predict.h"
#include "toolchain/sunway/emulator/settings.h"

// In the programs that swcc links. An image of size 0 is the second self.
extern "C" {
extern const unsigned char swamp_check_image[] __attribute__((weak));
extern const unsigned char swamp_check_image_end[] __attribute__((weak));
}

namespace swamp::sunway {
namespace {

void become_checked(char** argv, char** environment) {
  if (swamp_check_image == nullptr) return;
  const auto bytes =
      static_cast<std::size_t>(swamp_check_image_end - swamp_check_image);
  if (bytes == 0) return;
  const int file = memfd_create(argv[0], MFD_CLOEXEC);
  std::size_t written = 0;
  while (file >= 0 && written < bytes) {
    const ssize_t count =
        write(file, swamp_check_image + written, bytes - written);
    if (count <= 0) break;
    written += static_cast<std::size_t>(count);
  }
  if (written == bytes) fexecve(file, argv, environment);
  fail(1, "cannot start the program in transfer mode check");
}

void at_end(int status, void*) {
  if (check::is_replay()) _exit(0);
  check::exiting();
  if (settings().predict) say_prediction();
  say_ldm_peaks();
  if (!settings().check) return;
  check::say_totals();
  if (status == 0 && check::reported()) {
    std::fflush(nullptr);
    _exit(kReportedExit);
  }
}

// The first of the library's constructors: it may not come back.
__attribute__((constructor(101))) void start(int, char** argv,
                                             char** environment) {
  if (is_check_asked()) become_checked(argv, environment);
}

__attribute__((constructor)) void start_settings() {
  (void)settings();
  const std::string warning = runtime::unknown_variables_warning();
  if (!warning.empty()) say(warning);
  on_exit(&at_end, nullptr);
}

}  // namespace
}  // namespace swamp::sunway
