// What the checking emulation keeps of one slave: its transfers in flight,
// which of its LDM is allocated and written, and its clock. Transfers are
// carried out when they are waited for; until then a get's destination is
// poison.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_SLAVE_CHECK_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_SLAVE_CHECK_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "toolchain/sunway/emulator/check/clocks.h"
#include "toolchain/sunway/emulator/check/location.h"
#include "toolchain/sunway/emulator/check/registry.h"
#include "toolchain/sunway/emulator/check/shadow.h"
#include "toolchain/sunway/emulator/schedule.h"
#include "toolchain/sunway/emulator/transfer.h"
#include "toolchain/sunway/emulator/world.h"

namespace swamp::sunway::check {

class SlaveCheck {
 public:
  SlaveCheck(Slave& slave, std::size_t slot_bytes);

  // launched() and joined() are the master's, while the slave does not run.
  void launched() { clock_.restart(); }
  void joined() { clock_.joined(); }
  void begin_launch();
  void end_launch();

  // Transfers of DMA. issue() and at_once() carry out nothing that breaks a
  // rule; allows() only reports.
  // With `now` the data of a get moves at once, because its owner is told so.
  void issue(const Transfer& transfer, const void* pc, bool now = false);
  void at_once(const Transfer& transfer, const void* pc);
  // broadcast() is a get for several slaves, before it is carried out. sends()
  // is about the source of what the slave sends to others.
  void broadcast(const Transfer& transfer, const void* pc);
  void sends(const void* local, long length, const char* call, const void* pc);
  bool allows(const Transfer& transfer, const void* pc);
  bool allows_rma(void* local, void* remote, long length,
                  volatile void* local_reply, volatile void* remote_reply,
                  const char* call, const void* pc);
  // fetched() is a get from another's LDM that has been carried out.
  void fetched(const Transfer& transfer, const void* pc);
  void before_wait(volatile void* reply, int value, const char* call,
                   const void* pc);
  void after_wait(volatile void* reply, int value);
  void finish_all();
  // received() is data that `sender`, whose thread calls it, wrote into this
  // slave's LDM, and the reply word there, or nullptr.
  void received(std::byte* ldm, long length, Slave& sender,
                const volatile void* reply, const char* call, const void* pc);

  // replies() is before this slave raises another's reply word.
  void replies(const volatile void* reply);

  // LDM memory.
  void allocated(std::size_t offset, std::size_t bytes, const void* pc);
  void freed(std::size_t offset, std::size_t held, std::size_t said,
             const void* pc);
  void freed_all();

  // regained() is after the slave had lost the turn and got it again.
  void regained();
  // main_allocated() and main_freed() are malloc's for the slave: who gets what
  // another freed comes after it, and what it holds is not compared.
  void main_allocated(const void* memory, std::size_t bytes);
  void main_freed(const void* memory, std::size_t bytes);

  // Meetings, locks, atomics.
  // `number` is which meeting or message of the object.
  void arrive(const volatile void* object, std::uint64_t number) {
    settle();
    clock_.give(object, number);
  }
  void leave(const volatile void* object, std::uint64_t number) {
    clock_.take(object, number);
  }
  void leave_message(const volatile void* object, std::uint64_t number) {
    clock_.take_messages(object, number);
  }
  void acquire(const volatile void* word);
  void release(const volatile void* word);
  // tried() is a lock that was not free.
  void tried(const volatile void* word, const void* pc);
  void atomic(const volatile void* word, std::size_t bytes, bool writes,
              const void* pc);

  // Every load and store of the slave's own instructions.
  void read(const volatile void* address, std::size_t bytes, const void* pc,
            bool is_volatile);
  void write(const volatile void* address, std::size_t bytes, const void* pc,
             bool is_volatile);

  // entered() is the beginning of one of the slave's functions.
  void entered(const void* frame) {
    const auto at = reinterpret_cast<std::uintptr_t>(frame);
    if (at < lowest_) lowest_ = at;
  }

  // progress() moves whenever the slave does more than look at a few words
  // again and again.
  std::uint64_t progress() const noexcept {
    return progress_.load(std::memory_order_relaxed);
  }
  // stack_bytes() is how deep the launch's stack has been seen to be.
  std::size_t stack_bytes() const noexcept;
  std::size_t in_flight() const noexcept { return pending_.size(); }

 private:
  struct Pending {
    Transfer transfer;
    const void* pc;
    std::shared_ptr<const Clock> before;
    std::uint64_t source_hash;        // of its LDM, when it was issued
    bool moved = false;               // carried out when it was issued
    bool logged = false;              // entered then, too
    const void* passed_by = nullptr;  // a wait that an old count satisfied
    bool reported = false;
    int looks = 0;  // at its reply word
  };

  void step() noexcept {
    progress_.store(progress_.load(std::memory_order_relaxed) + 1,
                    std::memory_order_relaxed);
  }
  void enter(const void* pc);
  std::string where_ldm(const volatile void* address) const;
  std::string why_not_ldm(const std::byte* ldm, std::size_t bytes) const;
  bool check_reply(volatile void* reply, const char* call, const void* pc);
  void check_stack(const void* pc);
  void check_depth(std::size_t depth, const void* pc);
  // deepen() is an access to the stack below all others of this launch.
  void deepen(std::uintptr_t lowest, const void* pc);
  void check_clashes(const Transfer& transfer, const void* pc);
  void check_written(const Transfer& transfer, const void* pc);
  void complete(std::size_t index);
  void log(const Transfer& transfer, const void* pc,
           const std::shared_ptr<const Clock>& before);
  // log_unknown() enters what a put sends without that it was ever written.
  void log_unknown(const Transfer& transfer) const;
  void report_unwaited(Pending& pending, const void* pc,
                       const std::string& what);
  void look_at_replies(std::uintptr_t begin, std::uintptr_t end,
                       const void* pc);
  // check_arrivals() is a look at LDM that others may have sent to.
  void check_arrivals(std::uintptr_t begin, std::uintptr_t end,
                      bool is_volatile, const void* pc);
  void heap_access(const volatile void* address, std::size_t bytes, bool write,
                   const void* pc);
  void direct(std::uintptr_t begin, std::uintptr_t end, bool write,
              const void* pc);
  // direct_in_flight() is about the slave's own transfers.
  void direct_in_flight(std::uintptr_t begin, std::uintptr_t end, bool write,
                        const void* pc);
  // direct_read() is a look at main memory that others may write; neighbours
  // make one, and what was seen since the last meeting is not entered again.
  void direct_read(std::uintptr_t begin, std::uintptr_t end, const void* pc);
  void enter_reads();
  // settle() enters the last direct write, whose value is there by now.
  void settle();
  // look() is a read. Another look at the same few words moves no progress, and
  // lets others run now and then.
  void look(std::uintptr_t word, const void* pc, bool is_volatile);
  void again();
  void count_access();
  // attend() is at the beginning of an access or call: a slave that has lost
  // the turn waits for it, and what others have sent becomes known.
  void attend() {
    take_turn(slave_);
    if (has_mail_.load(std::memory_order_acquire)) open_mail();
  }
  void open_mail();
  static void end_wait_without_reply(volatile void* reply, int value);

  // Arrival is what another slave sent here: known to be there once this slave
  // has heard from the sender.
  struct Arrival {
    std::uintptr_t begin, end;
    Slave* sender;
    std::uint32_t sent;  // the sender's clock
    const volatile void* reply;
    std::uint64_t number;  // of the reply
    const char* call;
    const void* pc;
  };

  // Words is the set of the words read since the last store or call, from the
  // first volatile one on: to compute with others is no waiting.
  class Words {
   public:
    // again() returns whether a word was there already, and enters it.
    bool again(std::uintptr_t word, bool is_volatile) noexcept;
    void clear() noexcept {
      if (count_ == 0) return;
      places_.fill(0);
      count_ = 0;
    }

   private:
    static constexpr std::size_t kMost = 96;
    std::array<std::uintptr_t, 128> places_{};
    std::size_t count_ = 0;
  };

  Slave& slave_;
  // What others have sent since attend(): they must not touch the rest, as a
  // slave that was silent for long runs beside them.
  std::mutex mail_mutex_;
  std::vector<Arrival> mail_;
  std::atomic<bool> has_mail_{false};
  std::vector<Arrival> arrivals_;
  SlaveClock clock_;
  std::uint32_t called_ = 0;  // its own time, at the last call
  Shadow shadow_;
  std::vector<Pending> pending_;  // in the order of issue
  std::atomic<std::uint64_t> progress_{0};
  std::uintptr_t last_read_ = 0;
  std::uintptr_t last_flag_ = 0;  // the last volatile read
  Words looked_at_;
  int looks_ = 0;     // at those places, without another
  int accesses_ = 0;  // since the last call
  int rest_ms_ = 1;
  bool stack_reported_ = false;
  struct Direct {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    const void* pc = nullptr;
  };
  Direct written_;
  struct Reads {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    const void* pc = nullptr;
    std::shared_ptr<const Clock> before;
    std::uint32_t done = 0;
  };
  Reads reads_;
  int entered_ = 0;
  struct Seen {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::uint32_t done = 0;
    std::uint64_t launch = 0;
  };
  std::array<Seen, 1024> seen_{};
  std::uint64_t launch_ = 0;
  std::size_t deep_ = 0;  // how deep the deepest access was, and where
  const void* deep_pc_ = nullptr;
  std::uintptr_t accessed_ = ~std::uintptr_t{0};
  std::uintptr_t lowest_ = ~std::uintptr_t{0};  // of the stack, this launch
};

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_SLAVE_CHECK_H_
