// Reports of programs that cannot continue: which slaves wait, and where.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "toolchain/sunway/emulator/debug_info.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/report.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway {
namespace {

// Place is where some slaves wait.
struct Place {
  const Wait* wait;
  const Slave* first;
  std::size_t slaves = 0;
};

std::vector<Place> places() {
  std::map<std::pair<const void*, Wait::Kind>, Place> all;
  for (const Group& group : machine().groups) {
    for (const auto& slave : group.slaves) {
      if (!slave->live() || slave->wait == nullptr) continue;
      Place& place = all[{slave->wait->pc, slave->wait->kind}];
      if (place.slaves++ == 0) {
        place.wait = slave->wait;
        place.first = slave.get();
      }
    }
  }
  std::vector<Place> list;
  for (const auto& [key, place] : all) list.push_back(place);
  // The place with fewer slaves is more likely to have the bug.
  std::stable_sort(
      list.begin(), list.end(),
      [](const Place& a, const Place& b) { return a.slaves < b.slaves; });
  return list;
}

std::string others(const std::vector<Place>& all, const Place& but) {
  std::string text;
  for (const Place& place : all) {
    if (place.first == but.first) continue;
    const Location at = locate(place.wait->pc);
    text += (text.empty() ? "; also waiting: " : ", ") +
            std::to_string(place.slaves) + " in " + place.wait->what + " at " +
            at.text();
  }
  std::size_t gone = 0;
  for (const Group& group : machine().groups) {
    if (group.state == Group::State::idle) continue;
    for (const auto& slave : group.slaves) gone += slave->live() ? 0 : 1;
  }
  if (gone != 0) {
    text += "; " + std::to_string(gone) +
            " slaves were not launched or have returned";
  }
  return text;
}

}  // namespace

void end_with(const Finding& finding) {
  report(finding);
  print_totals();
  end_now(kReportedExit);
}

void report_hang(bool waits_for_master) {
  const std::vector<Place> all = places();
  for (const Place& place : all) {
    if (place.wait->kind != Wait::Kind::reply) continue;
    end_with(
        {"hang", place.wait->pc, place.first,
         std::string(place.wait->what) + " waits for " +
             std::to_string(place.wait->value) + ", but the reply word is " +
             std::to_string(read_reply(place.wait->reply)) +
             " and no transfer that would raise it is in flight: the count is "
             "too large or a transfer was not issued; the machine would "
             "hang here" +
             others(all, place)});
  }
  const Place& place = all.front();
  if (place.wait->kind == Wait::Kind::lock) {
    end_with({"hang", place.wait->pc, place.first,
              "waits for a lock that no thread that can continue will release" +
                  others(all, place)});
  }
  if (waits_for_master) {
    for (const Place& waiting : all) {
      if (waiting.wait->kind != Wait::Kind::master) continue;
      end_with({"hang", waiting.wait->pc, waiting.first,
                std::string(waiting.wait->what) + " waits for the master" +
                    (machine().master_waits.empty()
                         ? std::string()
                         : std::string(", which waits in ") +
                               machine().master_waits.back()->what) +
                    others(all, waiting)});
    }
  }
  if (place.wait->kind == Wait::Kind::packet) {
    const std::string what = place.wait->what;
    end_with({"hang", place.wait->pc, place.first,
              what +
                  (what.rfind("get", 0) == 0
                       ? " waits for a packet that no slave sends"
                       : " waits for room at a receiver that reads no more "
                         "packets") +
                  ": each packet needs one putr (putc) and one getr (getc)" +
                  others(all, place)});
  }
  end_with(
      {"sync-divergence", place.wait->pc, place.first,
       std::string(place.wait->what) +
           " waits for slaves that will not arrive: all slaves of a barrier "
           "must call it, and equally often" +
           others(all, place)});
}

void report_master_alone(const MasterWait& wait) {
  end_with(
      {"hang", wait.pc, nullptr,
       wait.kind == Wait::Kind::lock
           ? "waits for a lock that no thread that can continue will release: "
             "all "
             "slaves have returned"
           : std::string(wait.what) +
                 " waits for slaves, but all have returned"});
}

}  // namespace swamp::sunway
