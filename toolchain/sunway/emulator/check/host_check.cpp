#include "toolchain/sunway/emulator/check/host_check.h"

#include "toolchain/sunway/emulator/check/args.h"
#include "toolchain/sunway/emulator/check/clocks.h"
#include "toolchain/sunway/emulator/check/footprint.h"
#include "toolchain/sunway/emulator/check/replay.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/check/watchdog.h"
#include "toolchain/sunway/emulator/settings.h"
#include "toolchain/sunway/emulator/world.h"

namespace swamp::sunway::check {
namespace {

void report_unjoined(const char* text, const void* clash) {
  for (const Group& group : world().groups) {
    if (group.state == Group::State::idle) continue;
    report({"unjoined", group.spawned_at, nullptr, text, clash});
    return;
  }
}

}  // namespace

void bad_launch(const void* pc, const char* text) {
  if (world().check) report({"unjoined", pc, nullptr, text});
}

void launched(unsigned mask, const void* argument, const void* pc) {
  if (!world().check) return;
  start_watchdog();
  remember_args(mask, argument, pc);
}

void joining(unsigned mask, const void* pc, const void* frame) {
  if (world().check) check_args_alive(mask, frame, pc);
}

void joined(unsigned mask) {
  if (!world().check) return;
  forget_args(mask);
  if (world().live == 0) {
    search_touches();
    end_replays();
    forget_objects();
    return;
  }
  for (std::size_t i = 0; i < world().groups.size(); ++i) {
    if ((mask >> i & 1u) == 0) continue;
    for (const auto& slave : world().groups[i].slaves) slave->check->joined();
  }
}

void master_met(unsigned mask) {
  if (world().check) forget_args(mask);
}

void master_gives(const volatile void* object, std::uint64_t number) {
  if (world().check) masters_give(object, number);
}

void master_takes(const volatile void* object, std::uint64_t number) {
  if (world().check) masters_take(object, number);
}

void halting(const void* pc) {
  if (!has_world() || !world().check) return;
  report_unjoined("the spawn was not joined before athread_halt", pc);
}

void exiting() {
  if (!has_world() || !world().check) return;
  report_unjoined(
      "the spawn was not joined before the program ended; its results may not "
      "be there",
      nullptr);
}

}  // namespace swamp::sunway::check
