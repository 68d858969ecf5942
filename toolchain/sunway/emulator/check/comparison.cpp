// Compares main memory after two runs of a launch, word by word, where either
// run has written. Pointers into memory that slaves allocated may differ. Of
// words that differ, the writers are named.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

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

// Element is 4 or 8 bytes that one slave wrote, in both runs.
struct Element {
  std::uintptr_t begin = 0;
  std::uint64_t here = 0, there = 0;
  std::vector<Difference*> words;  // of 4 bytes, that differ
};

// value() returns the number in the first bytes.
template <class T, class Bits>
T value(const Bits& bits) {
  T number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

template <class T>
bool is_plain(T number) {
  return number == 0 || std::isnormal(number);
}

// float_sums_agree() allows for another order of the additions.
template <class T>
bool float_sums_agree(const std::vector<Element>& all, double tolerance) {
  double here = 0;
  double there = 0;
  double size = 0;
  for (const Element& e : all) {
    const double a = static_cast<double>(value<T>(e.here));
    const double b = static_cast<double>(value<T>(e.there));
    // Probably whole numbers.
    if (!is_plain(value<T>(e.here)) || !is_plain(value<T>(e.there))) {
      return false;
    }
    here += a;
    there += b;
    size += std::fabs(a) + std::fabs(b);
  }
  return std::fabs(here - there) <= tolerance * size;
}

std::uint64_t read_own(std::uintptr_t address, std::size_t bytes) {
  std::byte read[8] = {};
  (void)read_own_bytes(address, bytes, read);
  return value<std::uint64_t>(read);
}

// sums_agree() returns whether the elements have the same sum in both runs, as
// whole numbers or as floating-point numbers.
bool sums_agree(const std::vector<Element>& all, std::size_t bytes) {
  constexpr double kDouble = 1e-8;
  constexpr double kFloat = 1e-3;
  std::uint64_t difference = 0;
  for (const Element& e : all) difference += e.there - e.here;
  if (bytes == 8) {
    return difference == 0 || float_sums_agree<double>(all, kDouble);
  }
  return static_cast<std::uint32_t>(difference) == 0 ||
         float_sums_agree<float>(all, kFloat);
}

// Elements with the same place in what one instruction or transfer wrote, for
// example a member of each slave's struct.
using Place = std::pair<const void*, std::uintptr_t>;
using Places = std::map<Place, std::vector<Element>>;

const Written& writer_of(const Difference& d) {
  return d.writer != nullptr ? *d.writer : *d.other;
}

// have_extreme() returns whether all elements of a place, also those that do
// not differ, have the same largest or smallest number in both runs.
template <class T>
bool have_extreme(const std::vector<Element>& all) {
  const auto extremes = [&](std::uint64_t Element::*run) {
    std::pair<T, T> both{value<T>(all[0].*run), value<T>(all[0].*run)};
    for (const Element& e : all) {
      both.first = std::min(both.first, value<T>(e.*run));
      both.second = std::max(both.second, value<T>(e.*run));
    }
    return both;
  };
  const std::pair<T, T> here = extremes(&Element::here);
  const std::pair<T, T> there = extremes(&Element::there);
  return (here.first == there.first && here.first != 0) ||
         (here.second == there.second && here.second != 0);
}

bool extremes_agree(const std::vector<Written>& written, const Place& place,
                    std::vector<Element> all, std::size_t bytes) {
  const std::size_t differ = all.size();
  for (const Written& w : written) {
    const std::uintptr_t begin = w.begin + place.second;
    if (w.pc != place.first || begin + bytes > w.end) continue;
    if (std::any_of(all.begin(),
                    all.begin() + static_cast<std::ptrdiff_t>(differ),
                    [&](const Element& e) { return e.begin == begin; })) {
      continue;
    }
    const std::uint64_t same = read_own(begin, bytes);
    all.push_back({begin, same, same, {}});
  }
  return bytes == 8 ? have_extreme<double>(all) || have_extreme<long>(all)
                    : have_extreme<float>(all) || have_extreme<int>(all);
}

// places_of() sorts the words of shares into elements of 4 or 8 bytes.
Places places_of(std::vector<Difference>& found, std::uintptr_t bytes) {
  Places all;
  const Difference* last = nullptr;
  for (Difference& d : found) {
    if (!d.own) continue;
    const Written& writer = writer_of(d);
    const std::uintptr_t begin = d.address / bytes * bytes;
    if (bytes == 8 && (begin < writer.begin || begin + 8 > writer.end)) {
      continue;
    }
    std::vector<Element>& there = all[{writer.pc, begin - writer.begin}];
    if (last == nullptr || last->address / bytes * bytes != begin ||
        writer_of(*last).begin != writer.begin) {
      // A half that does not differ is the same in both.
      const std::uint64_t old = read_own(begin, bytes);
      there.push_back({begin, old, old, {}});
    }
    const auto shift = static_cast<unsigned>(8 * (d.address - begin));
    Element& element = there.back();
    element.there ^= static_cast<std::uint64_t>(d.here ^ d.there) << shift;
    element.words.push_back(&d);
    last = &d;
  }
  return all;
}

// leave_out_shares() removes the partial sums and counts of slaves that share
// work by locks or atomics, if their sum, largest or smallest number over the
// slaves is the same.
void leave_out_shares(const std::vector<Written>& written, const Outcome& there,
                      std::vector<Difference>& found) {
  const std::vector<Usage> mine = usages();
  for (Difference& d : found) {
    if (d.writer == nullptr && d.other == nullptr) {
      d.own = false;
      continue;
    }
    const std::size_t slave = writer_of(d).slave->number();
    d.own = d.own && slave < mine.size() && slave < there.usages.size() &&
            (mine[slave].atomic_operations != 0 ||
             there.usages[slave].atomic_operations != 0);
  }
  for (const std::uintptr_t bytes : {8, 4}) {
    constexpr std::size_t kFew = 256;
    const Places places = places_of(found, bytes);
    for (const auto& [place, elements] : places) {
      if (!sums_agree(elements, bytes) &&
          (places.size() > kFew ||
           !extremes_agree(written, place, elements, bytes))) {
        continue;
      }
      for (const Element& element : elements) {
        for (Difference* word : element.words) word->is_share = true;
      }
    }
  }
  // Shares that are not at the same place: whole numbers of 4 bytes.
  std::uint32_t difference = 0;
  for (const Difference& d : found) {
    if (d.own) difference += d.there - d.here;
  }
  found.erase(std::remove_if(found.begin(), found.end(),
                             [=](const Difference& d) {
                               return d.own && (d.is_share || difference == 0);
                             }),
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
  leave_out_shares(here, there, found);
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

// share_work() returns whether slaves used locks or atomics.
bool share_work() {
  const std::vector<Usage> all = usages();
  return std::any_of(all.begin(), all.end(), [](const Usage& usage) {
    return usage.atomic_operations != 0;
  });
}

const void* spawned_at() {
  for (const Group& group : machine().groups) {
    if (group.state != Group::State::idle) return group.spawned_at;
  }
  return nullptr;
}

}  // namespace

std::string order_of_slaves(const Order& order) {
  std::string text = " (when ";
  if (is_other_time(order)) {
    text += time_of(order);
  } else {
    text += order.seed == 0   ? "the slave with the lowest number runs first"
            : order.seed == 1 ? "the slave with the highest number runs first"
                              : "slaves run in a pseudo-random order";
    text += " and gives way at atomics and locks";
  }
  return text + "; seed " + std::to_string(order.seed) +
         ": SWAMP_CHECK_SCHEDULES=1:" + std::to_string(order.seed) +
         " runs only that)";
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
                 ", but as " + hex(first.there) +
                 (is_other_time(order) ? " with transfers at another time"
                                       : " in another order of the slaves") +
                 order_of_slaves(order) + ": ";
  if (is_other_time(order)) {
    finding.text += "a buffer, or the data of a put, is used before the wait";
    if (share_work()) {
      finding.text += ", or the result depends on which slave is first";
    }
  } else {
    finding.text +=
        "the result depends on which slave is first or last, or on what "
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
