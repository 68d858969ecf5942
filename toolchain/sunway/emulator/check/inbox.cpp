#include "toolchain/sunway/emulator/check/inbox.h"

#include <algorithm>
#include <string>

#include "toolchain/sunway/emulator/check/ldm_check.h"
#include "toolchain/sunway/emulator/check/report.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway::check {

void Inbox::add(const Arrival& arrival) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    new_.push_back(arrival);
  }
  has_new_.store(true, std::memory_order_release);
}

std::vector<Arrival> Inbox::take_new() {
  std::vector<Arrival> all;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    has_new_.store(false, std::memory_order_relaxed);
    all.swap(new_);
  }
  for (const Arrival& arrival : all) {
    if (arrival.sender == &slave_) continue;
    arrivals_.erase(std::remove_if(arrivals_.begin(), arrivals_.end(),
                                   [&](const Arrival& old) {
                                     return old.is_read == arrival.is_read &&
                                            old.begin >= arrival.begin &&
                                            old.end <= arrival.end;
                                   }),
                    arrivals_.end());
    arrivals_.push_back(arrival);
  }
  return all;
}

namespace {

void for_watched(const Arrival& arrival,
                 void (*visit)(const std::byte*, std::size_t, unsigned)) {
  visit(reinterpret_cast<const std::byte*>(arrival.begin),
        arrival.end - arrival.begin, Shadow::kWatched);
  if (arrival.reply != nullptr) {
    visit(reinterpret_cast<const std::byte*>(address_of(arrival.reply)), 4,
          Shadow::kWatched);
  }
}

}  // namespace

void Inbox::watch() const noexcept {
  for (const Arrival& arrival : arrivals_) {
    for_watched(arrival, &Shadow::set);
  }
}

void Inbox::forget_synchronised() {
  const auto others = std::partition(
      arrivals_.begin(), arrivals_.end(), [&](const Arrival& arrival) {
        return clock_.of(arrival.sender->number()) < arrival.sent;
      });
  std::for_each(others, arrivals_.end(), [](const Arrival& arrival) {
    for_watched(arrival, &Shadow::clear);
  });
  arrivals_.erase(others, arrivals_.end());
  watch();
}

void Inbox::check_all(std::uintptr_t begin, std::uintptr_t end,
                      bool is_volatile, const void* pc) {
  // Some programs wait by reading the reply word or a flag.
  const auto is_flag = [&](const Arrival& arrival) {
    return is_volatile && !arrival.is_read && begin < arrival.end &&
           arrival.begin < end;
  };
  for (const Arrival& arrival : arrivals_) {
    if (overlaps(begin, end, arrival.reply, 4)) {
      const int count = std::max(read_reply(arrival.reply), 0);
      clock_.acquire_messages(arrival.reply, static_cast<std::uint64_t>(count));
    } else if (is_flag(arrival)) {
      clock_.acquire_messages(
          arrival.reply != nullptr ? arrival.reply : &slave_, arrival.number);
    }
  }
  arrivals_.erase(std::remove_if(arrivals_.begin(), arrivals_.end(), is_flag),
                  arrivals_.end());
  forget_synchronised();
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    const Arrival arrival = arrivals_[i];
    if (arrival.is_read || begin >= arrival.end || arrival.begin >= end) {
      continue;
    }
    arrivals_.erase(arrivals_.begin() + static_cast<std::ptrdiff_t>(i));
    report({"missing-wait", pc, &slave_,
            std::string("reads what slave ") +
                std::to_string(arrival.sender->id) + " sends by " +
                arrival.call +
                ", and has not waited for it: wait for the reply word here, or "
                "synchronise with the sender (ssync)",
            arrival.pc});
    return;
  }
}

void Inbox::check_reads(std::uintptr_t begin, std::uintptr_t end,
                        const void* pc) {
  forget_synchronised();
  for (std::size_t i = 0; i < arrivals_.size(); ++i) {
    const Arrival arrival = arrivals_[i];
    if (!arrival.is_read || begin >= arrival.end || arrival.begin >= end) {
      continue;
    }
    arrivals_.erase(arrivals_.begin() + static_cast<std::ptrdiff_t>(i));
    report({"overlap", pc, &slave_,
            "writes what slave " + std::to_string(arrival.sender->id) +
                " reads by " + arrival.call +
                ", with no synchronisation between them: it may get the old or "
                "the new data; synchronise (ssync)",
            arrival.pc});
    return;
  }
}

}  // namespace swamp::sunway::check
