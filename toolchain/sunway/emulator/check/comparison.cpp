// Compares main memory after two runs of a launch, word by word, where either
// run has written. Pointers into memory that slaves allocated may differ. Of
// words that differ, the writers are named.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "toolchain/sunway/emulator/check/addresses.h"
#include "toolchain/sunway/emulator/check/replay.h"
#include "toolchain/sunway/emulator/debug_info.h"
#include "toolchain/sunway/emulator/report.h"

namespace swamp::sunway::check {
namespace {

constexpr std::uintptr_t kWord = 4;
constexpr std::size_t kMost = std::size_t{1} << 16;
constexpr std::size_t kPiece = std::size_t{1} << 16;

struct AddressRange {
  std::uintptr_t begin, end;
};
using Bytes = std::vector<std::byte>;

// merged() returns the ranges that the lists cover, disjoint and sorted.
std::vector<AddressRange> merged(const std::vector<Written>& a,
                                 const std::vector<Written>& b, bool known) {
  std::vector<AddressRange> all;
  for (const auto* list : {&a, &b}) {
    for (const Written& w : *list) {
      if ((w.pc != nullptr) == known) all.push_back({w.begin, w.end});
    }
  }
  std::sort(all.begin(), all.end(),
            [](const AddressRange& x, const AddressRange& y) {
              return x.begin < y.begin;
            });
  std::vector<AddressRange> apart;
  for (const AddressRange& range : all) {
    if (!apart.empty() && range.begin <= apart.back().end) {
      apart.back().end = std::max(apart.back().end, range.end);
    } else {
      apart.push_back(range);
    }
  }
  return apart;
}

bool covers(const std::vector<AddressRange>& ranges, std::uintptr_t address) {
  auto next =
      std::upper_bound(ranges.begin(), ranges.end(), address,
                       [](std::uintptr_t at, const AddressRange& range) {
                         return at < range.begin;
                       });
  return next != ranges.begin() && address < (--next)->end;
}

// is_pointer() returns whether the word at `i` in both is a pointer into, or to
// the end of, memory that slaves allocated: its address depends on the order of
// their calls, and its contents are unknown.
bool is_pointer(const std::vector<AddressRange>& unknown, const Bytes& here,
                const Bytes& there, std::size_t i) {
  std::uintptr_t a = 0;
  std::uintptr_t b = 0;
  if (i + sizeof a > here.size()) return false;
  std::memcpy(&a, &here[i], sizeof a);
  std::memcpy(&b, &there[i], sizeof b);
  const auto is_there = [&](std::uintptr_t at) {
    return covers(unknown, at) || covers(unknown, at - 1);
  };
  return is_there(a) && is_there(b);
}

// compare() adds the words from `begin` on that differ in bytes that are known.
void compare(std::uintptr_t begin, const std::vector<AddressRange>& unknown,
             const Bytes& here, const Bytes& there,
             std::vector<Difference>& found) {
  if (here == there) return;
  for (std::size_t i = 0; i < here.size(); ++i) {
    const std::uintptr_t at = begin + i;
    if (here[i] == there[i] || covers(unknown, at)) continue;
    const std::size_t in_pointer = at % sizeof(void*);
    if (in_pointer <= i && is_pointer(unknown, here, there, i - in_pointer)) {
      continue;
    }
    const std::uintptr_t word = at / kWord * kWord;
    if (found.empty() || found.back().address != word) {
      if (found.size() == kMost) return;
      found.push_back({});
      found.back().address = word;
      found.back().first = at;
    }
    const auto shift = static_cast<unsigned>(8 * (at - word));
    found.back().here |= static_cast<std::uint32_t>(here[i]) << shift;
    found.back().there |= static_cast<std::uint32_t>(there[i]) << shift;
  }
}

// name_writers() sets the writers of the words, and whether one slave is the
// only writer.
void name_writers(const std::vector<Written>& list,
                  const Written* Difference::*writer,
                  std::vector<Difference>& found) {
  for (const Written& w : list) {
    if (w.pc == nullptr) continue;
    auto next = std::lower_bound(
        found.begin(), found.end(), w.begin / kWord * kWord,
        [](const Difference& d, std::uintptr_t at) { return d.address < at; });
    for (; next != found.end() && next->address < w.end; ++next) {
      const Written* first =
          next->writer != nullptr ? next->writer : next->other;
      if (first != nullptr && first->slave != w.slave) next->own = false;
      (*next).*writer = &w;
    }
  }
}

void leave_out_shares(const Outcome& there, std::vector<Difference>& found) {
  const std::vector<Usage> mine = usages();
  std::uint64_t sum_here = 0;
  std::uint64_t sum_there = 0;
  for (Difference& d : found) {
    const Written* writer = d.writer != nullptr ? d.writer : d.other;
    if (writer == nullptr) continue;
    const std::size_t slave = writer->slave->number();
    d.own =
        d.own && slave < mine.size() && slave < there.usages.size() &&
        mine[slave].atomic_operations != there.usages[slave].atomic_operations;
    if (!d.own) continue;
    sum_here += d.here;
    sum_there += d.there;
  }
  if (sum_here != sum_there) return;
  found.erase(std::remove_if(found.begin(), found.end(),
                             [](const Difference& d) { return d.own; }),
              found.end());
}

}  // namespace

std::vector<Difference> find_differences(const std::vector<Written>& here,
                                         const Outcome& there, int channel) {
  std::vector<Difference> found;
  const std::vector<AddressRange> unknown = merged(here, there.written, false);
  constexpr std::uintptr_t kPage = 4096;
  Bytes own;
  Bytes other;
  for (const AddressRange& range : merged(here, there.written, true)) {
    if (ldm_owner(range.begin) != nullptr) continue;
    std::uintptr_t at = range.begin;
    while (at < range.end && found.size() < kMost) {
      const std::size_t piece = std::min(kPiece - at % kPiece, range.end - at);
      own.resize(piece);
      other.resize(piece);
      const long there_is = read_bytes(channel, at, piece, other.data());
      if (there_is < 0) return {};
      const long here_is = read_own_bytes(at, piece, own.data());
      const auto both = static_cast<std::size_t>(std::min(there_is, here_is));
      own.resize(both);
      other.resize(both);
      compare(at, unknown, own, other, found);
      // Memory that is unmapped in one of them was freed.
      at = both != 0 ? at + both : (at / kPage + 1) * kPage;
    }
  }
  name_writers(here, &Difference::writer, found);
  name_writers(there.written, &Difference::other, found);
  leave_out_shares(there, found);
  return found;
}

namespace {

std::string hex(std::uint32_t word) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08" PRIx32, word);
  return text;
}

bool is_other_time(const Order& order) {
  const Order& own = machine().order;
  return order.seed == own.seed && order.eager != own.eager;
}

const char* time_of(const Order& order) {
  return order.eager ? "transfers happen when they are issued"
                     : "transfers happen when they are waited for";
}

const void* spawned_at() {
  for (const Group& group : machine().groups) {
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
  // Another variable may be at the beginning of the word.
  const std::uintptr_t named =
      std::max(first.address, find_variable(first.first).begin);
  finding.text = "leaves " + describe(named) + " as " + hex(first.here) +
                 ", but as " + hex(first.there);
  if (is_other_time(order)) {
    finding.text += std::string(" when ") + time_of(order) +
                    ": a buffer, or the data of a put, is used before the "
                    "wait";
  } else {
    finding.text +=
        " in another order of the slaves (seed " + std::to_string(order.seed) +
        "): the result depends on which slave is first or last, or on what "
        "comes between a read and a store; add up in a fixed order, give each "
        "slave its own part, or take a lock (or faal) for both";
  }
  if (found.size() > 1) {
    finding.text +=
        "; " + std::to_string(found.size() - 1) + " more words differ";
  }
  report(finding);
}

void report_crash(int signal, const Order& order) {
  report({"schedule", spawned_at(), nullptr,
          "the launch ends with " + std::string(strsignal(signal)) +
              order_of_slaves(order)});
}

}  // namespace swamp::sunway::check
