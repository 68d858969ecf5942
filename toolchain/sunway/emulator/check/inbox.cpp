// Data that other slaves send into an LDM is an Arrival until this slave knows
// that it has arrived, by its reply word or from a slave that knows; a read
// before that is reported.
#include "toolchain/sunway/emulator/check/inbox.h"

#include <algorithm>
#include <string>

#include "toolchain/sunway/emulator/check/ldm_check.h"
#include "toolchain/sunway/emulator/report.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway::check {

void Inbox::add(const Arrival& arrival) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    new_.push_back(arrival);
  }
  has_new_.store(true, std::memory_order_release);
}

namespace {

std::string overwrites(const char* call, const Slave& receiver) {
  return std::string(call) + " overwrites what it has sent to slave " +
         std::to_string(receiver.id) +
         ", which may not have read it yet: wait for an answer before the next "
         "message, or use two buffers";
}

void set_watched(const Message& message, bool watched) {
  (watched ? Shadow::set : Shadow::clear)(
      reinterpret_cast<const std::byte*>(message.begin),
      message.end - message.begin, Shadow::kWatched);
}

}  // namespace

void Inbox::add_message(Message message, std::uint32_t answered,
                        const char* call) {
  constexpr std::size_t kMost = 256;
  for (std::size_t i = messages_.size(); i-- > 0;) {
    const Message& old = messages_[i];
    if (old.sender != message.sender || old.end <= message.begin ||
        message.end <= old.begin) {
      continue;
    }
    if (old.read == 0) {
      message.older_sent = old.older_pc != nullptr ? old.older_sent : old.sent;
      message.older_pc = old.older_pc != nullptr ? old.older_pc : old.pc;
    } else if (answered < old.read) {
      report({"overlap", message.pc, message.sender, overwrites(call, slave_),
              old.pc});
    }
    messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (messages_.size() == kMost) messages_.erase(messages_.begin());
  messages_.push_back(message);
}

void Inbox::forget_messages(const Slave* sender) {
  messages_.erase(std::remove_if(messages_.begin(), messages_.end(),
                                 [=](const Message& message) {
                                   return sender == nullptr ||
                                          message.sender == sender;
                                 }),
                  messages_.end());
}

// read_messages() notes that the slave reads [begin, end).
bool Inbox::read_messages(std::uintptr_t begin, std::uintptr_t end) {
  bool any = false;
  for (Message& message : messages_) {
    if (message.read != 0 || message.end <= begin || end <= message.begin) {
      continue;
    }
    message.read = clock_.now();
    set_watched(message, false);
    any = true;
  }
  if (any) watch();
  return any;
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
  for (const Message& message : messages_) {
    if (message.read == 0) set_watched(message, true);
  }
}

void Inbox::forget_old() {
  const auto others = std::partition(
      arrivals_.begin(), arrivals_.end(),
      [&](const Arrival& arrival) { return !is_known(arrival, arrival.sent); });
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
    const auto newer = std::find_if(
        messages_.begin(), messages_.end(), [&](const Message& message) {
          return message.sender == arrival.sender &&
                 message.sent == arrival.sent &&
                 message.begin == arrival.begin && message.older_pc != nullptr;
        });
    if (newer != messages_.end() && is_known(arrival, newer->older_sent)) {
      report({"overlap", arrival.pc, arrival.sender,
              overwrites(arrival.call, slave_), newer->older_pc});
      return;
    }
    report({"missing-wait", pc, &slave_,
            std::string("reads what slave ") +
                std::to_string(arrival.sender->id) + " sends by " +
                arrival.call + ", and has not waited for it: " +
                (arrival.waits
                     ? "wait for the reply word here, or synchronise with the "
                       "sender (ssync)"
                     : "wait for the reply word here; a barrier does not tell "
                       "that the data has arrived"),
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
