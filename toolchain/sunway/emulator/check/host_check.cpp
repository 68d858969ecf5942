// The master's side of check mode: arguments that changed between spawn and
// join, launches without a join, and the Observer through which the core
// informs the checker. Its constructor switches check mode on.
#include "toolchain/sunway/emulator/check/host_check.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "toolchain/sunway/emulator/check/access_log.h"
#include "toolchain/sunway/emulator/check/addresses.h"
#include "toolchain/sunway/emulator/check/clocks.h"
#include "toolchain/sunway/emulator/check/locals.h"
#include "toolchain/sunway/emulator/check/malloc.h"
#include "toolchain/sunway/emulator/check/progress.h"
#include "toolchain/sunway/emulator/check/replay.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/report.h"
#include "toolchain/sunway/emulator/schedule.h"

namespace swamp::sunway::check {
namespace {

constexpr std::size_t kMostBytes = 1024;

struct Args {
  unsigned mask;  // core groups that may still read them
  const std::byte* address;
  const void* pc;
  bool on_heap;
  std::vector<std::byte> bytes;
  std::vector<bool> known;  // bytes that must still be the same
  struct Differences {
    const Slave* slave;  // the first that got one
    std::set<std::size_t> bytes;
  };
  std::map<const void*, Differences> found;  // by check_args(), at each place
};

std::mutex mutex;
std::atomic<bool> changed{false};
std::vector<Args>& all() {
  static auto* const made = new std::vector<Args>;
  return *made;
}
// All of them are in [lowest, highest).
std::atomic<std::uintptr_t> lowest{~std::uintptr_t{0}}, highest{0};

bool may_be_args(const volatile void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  return begin < highest.load(std::memory_order_relaxed) &&
         begin + bytes > lowest.load(std::memory_order_relaxed);
}

}  // namespace

bool are_args(std::uintptr_t begin, std::uintptr_t end) {
  const std::lock_guard<std::mutex> lock(mutex);
  return std::any_of(all().begin(), all().end(), [=](const Args& args) {
    const auto base = reinterpret_cast<std::uintptr_t>(args.address);
    return base <= begin && end <= base + args.bytes.size();
  });
}

void remember_args(unsigned mask, const void* argument, const void* pc) {
  const auto at = reinterpret_cast<std::uintptr_t>(argument);
  const std::size_t bytes =
      argument == nullptr ? 0 : readable_bytes(at, kMostBytes);
  if (bytes == 0) return;  // a number passed as a pointer
  const auto* memory = static_cast<const std::byte*>(argument);
  const bool on_heap = find_allocation(at).bytes != 0;
  const std::lock_guard<std::mutex> lock(mutex);
  lowest = std::min<std::uintptr_t>(lowest, at);
  highest = std::max<std::uintptr_t>(highest, at + bytes);
  all().push_back({mask,
                   memory,
                   pc,
                   on_heap,
                   std::vector<std::byte>(memory, memory + bytes),
                   std::vector<bool>(bytes, true),
                   {}});
}

namespace {

void report_changed_args(unsigned mask) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (Args& args : all()) {
    if ((args.mask & mask) == 0) continue;
    for (const auto& [pc, differences] : args.found) {
      const auto& bytes = differences.bytes;
      const auto first =
          std::find_if(bytes.begin(), bytes.end(),
                       [&](std::size_t i) { return args.known[i]; });
      if (first == bytes.end()) continue;
      report({"args-changed", pc, differences.slave,
              "reads the arguments of its spawn, but byte " +
                  std::to_string(*first) +
                  " of them has changed since then: they must stay valid and "
                  "unchanged until the join",
              args.pc});
    }
    args.found.clear();
  }
}

}  // namespace

void forget_args(unsigned mask) {
  report_changed_args(mask);
  const std::lock_guard<std::mutex> lock(mutex);
  for (Args& args : all()) args.mask &= ~mask;
  all().erase(std::remove_if(all().begin(), all().end(),
                             [](const Args& args) { return args.mask == 0; }),
              all().end());
  if (!all().empty()) return;
  changed = false;
  lowest = ~std::uintptr_t{0};
  highest = 0;
}

void args_written(const volatile void* address, std::size_t bytes) {
  if (!may_be_args(address, bytes)) return;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  for (Args& args : all()) {
    const auto base = reinterpret_cast<std::uintptr_t>(args.address);
    if (begin >= base + args.bytes.size() || begin + bytes <= base) continue;
    for (std::size_t i = 0; i < args.bytes.size(); ++i) {
      if (base + i >= begin && base + i < begin + bytes) args.known[i] = false;
    }
  }
}

void check_args(const Slave& slave, const volatile void* main,
                std::size_t bytes, const void* pc) {
  if (!may_be_args(main, bytes)) return;
  const OwnAllocations own;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto begin = reinterpret_cast<std::uintptr_t>(main);
  for (Args& args : all()) {
    const auto base = reinterpret_cast<std::uintptr_t>(args.address);
    if ((args.mask >> slave.group & 1u) == 0 || begin < base ||
        begin + bytes > base + args.bytes.size()) {
      continue;
    }
    for (std::size_t i = begin - base; i < begin - base + bytes; ++i) {
      if (!args.known[i] || args.address[i] == args.bytes[i]) continue;
      args.found.try_emplace(pc, Args::Differences{&slave, {}})
          .first->second.bytes.insert(i);
    }
  }
}

bool may_have_changed() noexcept {
  return changed.load(std::memory_order_relaxed);
}

void check_args_alive(unsigned mask, const void* frame, const void* pc) {
  constexpr std::uintptr_t kStack = 8 * 1024 * 1024;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto here = reinterpret_cast<std::uintptr_t>(frame);
  for (const Args& args : all()) {
    if ((args.mask & mask) == 0) continue;
    const auto at = reinterpret_cast<std::uintptr_t>(args.address);
    const bool gone = args.on_heap ? find_allocation(at).bytes == 0
                                   : at < here && here - at < kStack;
    if (!gone) {
      if (std::memcmp(args.address, args.bytes.data(), args.bytes.size()) !=
          0) {
        changed = true;
      }
      continue;
    }
    report({"args-changed", args.pc, nullptr,
            args.on_heap
                ? "the argument struct was freed before the join; slaves may "
                  "still have to read it"
                : "the argument struct is a variable of a function that "
                  "returned before the join; slaves may still have to read it",
            pc});
  }
}

namespace {

class HostCheck final : public Observer {
 public:
  std::unique_ptr<SlaveObserver> make(Slave& slave) override {
    return std::make_unique<SlaveCheck>(slave);
  }
  void refused(const void* pc, const char* why) override {
    report({"unjoined", pc, nullptr, why});
  }
  void launched(unsigned mask, const void* argument, const void* pc) override;
  void joining(unsigned mask, const void* pc, const void* frame) override;
  void joined(unsigned mask) override;
  void releases(const volatile void* object, std::uint64_t number,
                unsigned mask) override;
  void acquires(const volatile void* object, std::uint64_t number,
                unsigned mask) override;
  void atomic(const volatile void* word, std::size_t bytes) override {
    master_sets_flag(word, bytes);
  }
  void polls() noexcept override { master_polls(); }
  void not_cached(const volatile void* pointer) override {
    check::not_cached(pointer);
  }
  void allocated(const void* memory, std::size_t bytes,
                 const void* pc) override {
    add_allocation(memory, bytes, pc);
  }
  void halting(const void* pc) override;
  void exiting() override;
};

// The machine is made after this, by the program's first call.
__attribute__((constructor)) void observe() {
  static HostCheck checks;
  if (is_check_asked()) observer = &checks;
}

void report_unjoined(const char* text, const void* clash) {
  for (const Group& group : machine().groups) {
    if (group.state == Group::State::idle) continue;
    report({"unjoined", group.spawned_at, nullptr, text, clash});
    return;
  }
}

// report_packets() reports messages of putr and putc that nobody has read: the
// next launch would get them.
void report_packets(unsigned mask) {
  const Machine& all = machine();
  for (std::size_t i = 0; i < all.groups.size(); ++i) {
    if ((mask >> i & 1u) == 0) continue;
    for (const auto& slave : all.groups[i].slaves) {
      for (const auto* packets : {&slave->from_row, &slave->from_column}) {
        if (packets->empty()) continue;
        const Packet& packet = packets->front();
        report({"sync-divergence", packet.pc, packet.sender,
                "sends a packet to slave " + std::to_string(slave->id) +
                    ", which returned without reading it: the next launch "
                    "would read it"});
        return;
      }
    }
  }
}

}  // namespace

void HostCheck::launched(unsigned mask, const void* argument, const void* pc) {
  start_watchdog();
  remember_args(mask, argument, pc);
  remember_memory(pc);
}

void HostCheck::joining(unsigned mask, const void* pc, const void* frame) {
  check_args_alive(mask, frame, pc);
  if (mask != 0) remember_stack();
  find_master_accesses();
  start_replays(mask);
}

void HostCheck::joined(unsigned mask) {
  forget_stack();
  report_packets(mask);
  forget_args(mask);
  forget_master_accesses();
  if (machine().live == 0) {
    report_overlaps();
    end_replays();
    forget_objects();
    return;
  }
  for (std::size_t i = 0; i < machine().groups.size(); ++i) {
    if ((mask >> i & 1u) == 0) continue;
    for (const auto& slave : machine().groups[i].slaves) {
      check_of(*slave)->joined();
    }
  }
}

void HostCheck::releases(const volatile void* object, std::uint64_t number,
                         unsigned mask) {
  masters_release(object, number);
  forget_master_accesses();
  if (mask != 0) forget_args(mask);
}

void HostCheck::acquires(const volatile void* object, std::uint64_t number,
                         unsigned mask) {
  masters_acquire(object, number);
  if (mask != 0) forget_args(mask);
}

void HostCheck::halting(const void* pc) {
  if (!has_machine()) return;
  const Lock lock(machine().mutex);
  report_unjoined("the spawn was not joined before athread_halt", pc);
}

void HostCheck::exiting() {
  if (!has_machine()) return;
  print_replays();
  stop_slaves();
  report_changed_args(all_groups_mask());
  // A slave or another thread ends the process during the join.
  if (self() != nullptr || !machine().master_waits.empty()) return;
  report_unjoined(
      "the spawn was not joined before the program ended; its results may be "
      "missing",
      nullptr);
}

}  // namespace swamp::sunway::check
