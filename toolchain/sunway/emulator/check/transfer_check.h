// The rules for a slave's transfers, and its transfers in flight. A transfer is
// carried out when it is waited for; until then a get's destination is poison.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_TRANSFER_CHECK_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_TRANSFER_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "toolchain/sunway/emulator/check/addresses.h"
#include "toolchain/sunway/emulator/check/clocks.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway::check {

// check_reply() reports a reply word that is not an aligned word of LDM.
// Returns whether it is one.
bool check_reply(const Slave& slave, const volatile void* reply,
                 const char* call, const void* pc);

// check_rules() reports a transfer that the machine would refuse or that would
// access memory it must not. Returns whether the transfer may be carried out.
// `slave` is whose LDM it accesses; `caller` issues it, if another one.
bool check_rules(const Slave& slave, KnownRanges& known_ranges,
                 const Transfer& transfer, const void* pc,
                 const Slave* caller = nullptr);

// move_data() carries out a transfer of `slave`.
void move_data(const Transfer& transfer, const Slave& slave, const void* pc);

// mark_unset() flags what a get has brought from main memory that nobody wrote.
void mark_unset(const Transfer& transfer);

// InFlight is the transfers of one slave between their issue and their wait, in
// the order of issue.
class InFlight {
 public:
  InFlight(Slave& slave, SlaveClock& clock) : slave_(slave), clock_(clock) {}

  bool empty() const noexcept { return pending_.empty(); }

  // add() begins a transfer. With `now` its data moves at once.
  void add(const Transfer& transfer, const void* pc, bool now);
  // complete_until() completes transfers of the reply word, oldest first, until
  // the word has the value.
  void complete_until(const volatile void* reply, int value, const void* pc);
  void complete_all();
  // complete_rma() completes the gets from other LDMs and the sends.
  void complete_rma();
  // sent() begins the time in which the source of an asynchronous send to other
  // slaves must not change: until the wait for `reply`, or until the slave
  // learns by another way that its data arrived, which was sent at `time` of
  // its clock.
  void sent(std::uintptr_t begin, std::uintptr_t end,
            const volatile void* reply, std::uint32_t time, const char* call,
            const void* pc);
  // watch() marks the LDM of the transfers in the shadow.
  void watch() const noexcept;
  // end_launch() reports what was not waited for and completes it.
  void end_launch();

  // These report a conflict with a transfer in flight, if the slave starts
  // another transfer,
  void new_transfer(const Transfer& transfer, const void* pc);
  // sends data of its LDM to other slaves by `call`,
  void sends(std::uintptr_t begin, std::uintptr_t end, const char* call,
             const void* pc);
  // loads or stores LDM or main memory,
  void reads_ldm(std::uintptr_t begin, std::uintptr_t end, const void* pc);
  void writes_ldm(std::uintptr_t begin, std::uintptr_t end, const void* pc);
  void accesses_main(std::uintptr_t begin, std::uintptr_t end, bool write,
                     const void* pc);
  // frees memory by ldm_free(),
  void frees(std::uintptr_t begin, std::uintptr_t end, const void* pc);
  // or receives data that `sender` wrote into its LDM.
  void receives(std::uintptr_t begin, std::uintptr_t end, const Slave& sender,
                const void* pc);

 private:
  struct Pending {
    Pending(const Transfer& t, const void* caller,
            std::shared_ptr<const Clock> clock)
        : transfer(t), pc(caller), before(std::move(clock)) {}

    Transfer transfer;
    const void* pc;
    std::shared_ptr<const Clock> before;
    std::vector<std::byte> copy;      // of its LDM buffer when it was issued;
                                      // empty for a get that has not moved
    bool moved = false;               // carried out when it was issued
    bool logged = false;              // logged when it was issued
    const void* passed_by = nullptr;  // the wait that an old count satisfied
    bool reported = false;
    int reply_reads = 0;  // by the slave's own instructions
  };

  struct Sent {
    std::uintptr_t begin, end;
    const volatile void* reply;
    int number;          // of the reply
    std::uint32_t time;  // of the slave's clock when it was sent
    const char* call;
    const void* pc;
    const void* reset = nullptr;  // what wrote the reply word too early
  };

  void complete(std::size_t index);
  bool has_arrived(const Sent& sent) const noexcept {
    return clock_.arrived_of(slave_.number()) >= sent.time;
  }
  // forget_sent() ends the sends whose reply the word has with this value, and
  // those whose data arrived.
  void forget_sent(const volatile void* reply, int value);
  // reset_sent() is for a write of [begin, end): the reply of a send may come
  // later, and end another wait.
  void reset_sent(std::uintptr_t begin, std::uintptr_t end, const void* pc);
  // changes_sent() reports if `action` changes the source of such a send.
  void changes_sent(std::uintptr_t begin, std::uintptr_t end,
                    const char* category, const std::string& action,
                    const void* pc);
  static bool has_changed(const Pending& pending);
  // report_once() reports unless this transfer was reported before.
  void report_once(Pending& pending, const char* category, const void* pc,
                   const Slave* slave, const std::string& text);
  void report_unwaited(Pending& pending, const void* pc,
                       const std::string& text);
  void reads_reply(std::uintptr_t begin, std::uintptr_t end, const void* pc);

  Slave& slave_;
  SlaveClock& clock_;
  std::vector<Pending> pending_;
  std::vector<Sent> sent_;
  // Of the transfer that was completed last. Usually the next one begins at the
  // same clock, and a new copy of the pointer would take longer.
  std::shared_ptr<const Clock> last_before_;
  std::vector<std::vector<std::byte>> spare_;  // for Pending::copy
};

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_TRANSFER_CHECK_H_
