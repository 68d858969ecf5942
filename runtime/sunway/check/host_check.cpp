#include "runtime/sunway/check/host_check.h"

#include "runtime/sunway/check/args.h"
#include "runtime/sunway/check/footprint.h"
#include "runtime/sunway/check/replay.h"
#include "runtime/sunway/check/report.h"
#include "runtime/sunway/check/watchdog.h"
#include "runtime/sunway/settings.h"
#include "runtime/sunway/world.h"

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

void launched(const void* argument, const void* pc) {
  if (!world().check) return;
  start_watchdog();
  remember_args(argument, pc);
}

void joining(const void* pc, const void* frame) {
  if (world().check) check_args_alive(frame, pc);
}

void joined() {
  if (!world().check || world().live != 0) return;
  search_touches();
  end_replays();
  forget_objects();
  forget_args();
}

void master_met() {
  if (world().check) forget_args();
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
