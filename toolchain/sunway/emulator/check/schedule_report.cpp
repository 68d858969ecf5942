#include "toolchain/sunway/emulator/check/schedule_report.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "toolchain/sunway/emulator/check/location.h"
#include "toolchain/sunway/emulator/check/report.h"

namespace swamp::sunway::check {
namespace {

std::string hex(std::uint32_t word) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08" PRIx32, word);
  return text;
}

bool is_other_time(const Order& order) {
  const Order& own = world().order;
  return order.seed == own.seed && order.eager != own.eager;
}

const char* time_of(const Order& order) {
  return order.eager ? "transfers happen when they are issued"
                     : "transfers happen when they are waited for";
}

const void* spawned_at() {
  for (const Group& group : world().groups) {
    if (group.state != Group::State::idle) return group.spawned_at;
  }
  return nullptr;
}

}  // namespace

std::string order_of_slaves(const Order& order) {
  if (is_other_time(order))
    return std::string(" (when ") + time_of(order) + ")";
  return " (in another order of the slaves, seed " +
         std::to_string(order.seed) + ")";
}

void report_schedule(const std::vector<Difference>& found, const Order& order) {
  const Difference& first = found.front();
  const Written* writer = first.writer != nullptr ? first.writer : first.other;
  Finding finding{"schedule", nullptr, nullptr, "", nullptr};
  if (writer != nullptr) {
    finding.pc = writer->pc;
    finding.slave = writer->slave;
  }
  if (first.writer != nullptr && first.other != nullptr &&
      first.other->pc != first.writer->pc) {
    finding.clash = first.other->pc;
  }
  finding.text = "leaves " + describe(first.address) + " as " +
                 hex(first.here) + ", but as " + hex(first.there);
  if (is_other_time(order)) {
    finding.text += std::string(" when ") + time_of(order) +
                    ": something uses a buffer, or what was put, before the "
                    "wait";
  } else {
    finding.text +=
        " in another order of the slaves (seed " + std::to_string(order.seed) +
        "): whoever comes first or last decides; add up in a fixed order, or "
        "give each slave its own part";
  }
  if (found.size() > 1) {
    finding.text +=
        "; " + std::to_string(found.size() - 1) + " more words differ";
  }
  report(finding);
}

void report_crash(int signal, const Order& order) {
  report({"schedule", spawned_at(), nullptr,
          "the launch ends by " + std::string(strsignal(signal)) +
              order_of_slaves(order)});
}

}  // namespace swamp::sunway::check
