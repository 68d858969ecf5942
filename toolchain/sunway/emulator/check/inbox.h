// What other slaves send into one slave's LDM, and what they read there.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_INBOX_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_INBOX_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "toolchain/sunway/emulator/check/clocks.h"
#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway::check {

// Arrival is data that another slave sent here. Reading it is legal after
// this slave knows that it has arrived: by the reply word, or by a
// synchronisation with a slave that knows. If there is no reply word, or the
// sender does not go on before, a synchronisation with the sender is enough.
struct Arrival {
  std::uintptr_t begin, end;
  const Slave* sender;
  std::uint32_t sent;          // the sender's clock
  const volatile void* reply;  // the reply word here, or nullptr
  std::uint64_t number;        // of the reply
  const char* call;
  const void* pc;
  bool waits = true;     // the sender does not go on before the data is here
  bool is_read = false;  // the other slave has read the range instead: writing
                         // it is legal after a synchronisation
};

// Message is what another slave last sent to a place here by a call with a
// reply. Messages of one slave to another arrive in the order in which they
// were sent, so they may use one buffer, but a read between two of them needs
// an answer: the second message must be sent after the read.
struct Message {
  std::uintptr_t begin, end;
  const Slave* sender;
  std::uint32_t sent;  // the sender's clock
  const void* pc;
  std::uint32_t read = 0;  // this slave's clock at the first read, or 0
  // The oldest of the messages that were overwritten here before a read.
  std::uint32_t older_sent = 0;
  const void* older_pc = nullptr;
};

// Inbox holds the arrivals that its slave has not yet synchronised with. Only
// add() may be called by other threads: a slave without the turn runs
// concurrently.
class Inbox {
 public:
  Inbox(const Slave& slave, SlaveClock& clock) : slave_(slave), clock_(clock) {}

  void add(const Arrival& arrival);
  // add_message() is called by the thread of the sender, which has the turn.
  // `answered` is the latest time of this slave's clock that it has acquired.
  void add_message(Message message, std::uint32_t answered, const char* call);
  // forget_messages() forgets those of one sender, or all.
  void forget_messages(const Slave* sender = nullptr);
  bool has_new() const noexcept {
    return has_new_.load(std::memory_order_acquire);
  }
  // take_new() returns what was added since the last call. From then on check()
  // includes it.
  std::vector<Arrival> take_new();
  void clear() noexcept { arrivals_.clear(); }
  // watch() marks in the shadow what the arrivals wrote.
  void watch() const noexcept;
  // forget_synchronised() removes the arrivals that this slave has
  // synchronised with, and their marks.
  void forget_synchronised() {
    if (!arrivals_.empty() || !messages_.empty()) forget_old();
  }

  // check() is for a read of LDM. It reports data for which the slave has not
  // waited. It returns whether it has removed marks in the shadow.
  bool check(std::uintptr_t begin, std::uintptr_t end, bool is_volatile,
             const void* pc) {
    if (!arrivals_.empty()) check_all(begin, end, is_volatile, pc);
    return !messages_.empty() && !is_volatile && read_messages(begin, end);
  }
  // check_write() is for a write of LDM. It reports what another slave reads.
  void check_write(std::uintptr_t begin, std::uintptr_t end, const void* pc) {
    if (!arrivals_.empty()) check_reads(begin, end, pc);
  }

 private:
  void forget_old();
  // is_known() returns whether this slave knows that the data has arrived that
  // was sent at this time.
  bool is_known(const Arrival& arrival, std::uint32_t sent) const noexcept {
    const std::size_t sender = arrival.sender->number();
    return (arrival.waits ? clock_.of(sender) : clock_.arrived_of(sender)) >=
           sent;
  }
  void check_all(std::uintptr_t begin, std::uintptr_t end, bool is_volatile,
                 const void* pc);
  bool read_messages(std::uintptr_t begin, std::uintptr_t end);
  void check_reads(std::uintptr_t begin, std::uintptr_t end, const void* pc);

  const Slave& slave_;
  SlaveClock& clock_;
  std::mutex mutex_;
  std::vector<Arrival> new_;
  std::atomic<bool> has_new_{false};
  std::vector<Arrival> arrivals_;
  std::vector<Message> messages_;
};

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_INBOX_H_
