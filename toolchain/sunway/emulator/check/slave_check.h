// The checks of one slave: its transfers in flight, which bytes of its LDM are
// allocated and written, and its clock. Transfers are carried out when they are
// waited for; until then a get's destination is poison.
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
#include "toolchain/sunway/emulator/check/direct_log.h"
#include "toolchain/sunway/emulator/check/location.h"
#include "toolchain/sunway/emulator/check/progress.h"
#include "toolchain/sunway/emulator/check/registry.h"
#include "toolchain/sunway/emulator/check/shadow.h"
#include "toolchain/sunway/emulator/check/stack_check.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/schedule.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway::check {

class SlaveCheck {
 public:
  SlaveCheck(Slave& slave, std::size_t slot_bytes);

  // The master calls launched() and joined() while the slave does not run.
  void launched() { clock_.restart(); }
  void joined() { clock_.joined(); }
  void begin_launch();
  void end_launch();

  // Transfers of DMA. issue() and blocking() do not carry out a transfer that
  // breaks a rule; allows() only reports. With `now` the data of a get moves at
  // once, because its owner gets a reply.
  void issue(const Transfer& transfer, const void* pc, bool now = false);
  void blocking(const Transfer& transfer, const void* pc);
  // broadcast() is a get for several slaves, before it is carried out. sends()
  // checks the source of data that the slave sends to others.
  void broadcast(const Transfer& transfer, const void* pc);
  void sends(const void* local, long length, const char* call, const void* pc);
  bool allows(const Transfer& transfer, const void* pc);
  bool allows_rma(void* local, void* remote, long length,
                  volatile void* local_reply, volatile void* remote_reply,
                  const char* call, const void* pc);
  // fetched() is called after a get from another slave's LDM.
  void fetched(const Transfer& transfer, const void* pc);
  void before_wait(volatile void* reply, int value, const char* call,
                   const void* pc);
  void after_wait(volatile void* reply, int value);
  void finish_all();
  // received() is called by the thread of `sender` after it wrote data into
  // this slave's LDM; `reply` is the reply word there, or nullptr.
  void received(std::byte* ldm, long length, Slave& sender,
                const volatile void* reply, const char* call, const void* pc);

  // replies() is called before this slave raises another slave's reply word.
  void replies(const volatile void* reply);

  // LDM memory.
  void allocated(std::size_t offset, std::size_t bytes, const void* pc);
  void freed(std::size_t offset, std::size_t piece_bytes, std::size_t said,
             const void* pc);
  void freed_all();

  // regained() is called after the slave lost the turn and got it back.
  void regained();
  // main_allocated() and main_freed() are called by malloc() and free() of the
  // slave: the new owner of a block is ordered after the old one, and undefined
  // contents are not compared.
  void main_allocated(const void* memory, std::size_t bytes);
  void main_freed(const void* memory, std::size_t bytes);

  // Barriers, locks, atomics.
  // `number` is the generation of the barrier, or the number of the message.
  void arrive(const volatile void* object, std::uint64_t number) {
    direct_.log_write();
    clock_.release(object, number);
  }
  void leave(const volatile void* object, std::uint64_t number) {
    clock_.acquire(object, number);
  }
  void leave_message(const volatile void* object, std::uint64_t number) {
    clock_.acquire_messages(object, number);
  }
  void acquire(const volatile void* word);
  void release(const volatile void* word);
  // tried() is called after an attempt to take a lock that was not free.
  void tried(const volatile void* word, const void* pc);
  void atomic(const volatile void* word, std::size_t bytes, bool writes,
              const void* pc);

  // Every load and store of the slave's own instructions.
  void read(const volatile void* address, std::size_t bytes, const void* pc,
            bool is_volatile);
  void write(const volatile void* address, std::size_t bytes, const void* pc,
             bool is_volatile);

  // entered() is for the beginning of one of the slave's functions.
  void entered(const void* frame) noexcept {
    stack_.entered(reinterpret_cast<std::uintptr_t>(frame));
  }

  // progress() is Progress::count(); any thread may call it.
  std::uint64_t progress() const noexcept { return progress_.count(); }
  // stack_bytes() is the largest size of the stack that was seen in this
  // launch.
  std::size_t stack_bytes() const noexcept { return stack_.bytes(); }
  std::size_t in_flight() const noexcept { return pending_.size(); }

 private:
  struct Pending {
    Transfer transfer;
    const void* pc;
    std::shared_ptr<const Clock> before;
    std::uint64_t source_hash;        // of its LDM buffer when it was issued
    bool moved = false;               // carried out when it was issued
    bool logged = false;              // logged when it was issued
    const void* passed_by = nullptr;  // the wait that an old count satisfied
    bool reported = false;
    int reply_reads = 0;  // by the slave's own instructions
  };

  void begin_call(const void* pc);
  std::string where_ldm(const volatile void* address) const;
  std::string why_not_ldm(const std::byte* ldm, std::size_t bytes) const;
  bool check_reply(volatile void* reply, const char* call, const void* pc);
  void check_clashes(const Transfer& transfer, const void* pc);
  void check_written(const Transfer& transfer, const void* pc);
  void complete(std::size_t index);
  void log(const Transfer& transfer, const void* pc,
           const std::shared_ptr<const Clock>& before);
  // log_unknown() logs the bytes that a put sends although they were never
  // written.
  void log_unknown(const Transfer& transfer) const;
  void report_unwaited(Pending& pending, const void* pc,
                       const std::string& what);
  void check_reply_reads(std::uintptr_t begin, std::uintptr_t end,
                         const void* pc);
  // check_arrivals() checks a read of LDM that other slaves may have sent to.
  void check_arrivals(std::uintptr_t begin, std::uintptr_t end,
                      bool is_volatile, const void* pc);
  void heap_access(const volatile void* address, std::size_t bytes, bool write,
                   const void* pc);
  void check_direct(std::uintptr_t begin, std::uintptr_t end, bool write,
                    const void* pc);
  // direct_in_flight() checks an access to main memory against the slave's own
  // transfers in flight.
  void direct_in_flight(std::uintptr_t begin, std::uintptr_t end, bool write,
                        const void* pc);
  // resume() is called at the beginning of an access or call. It waits for the
  // turn if the slave has lost it, and accepts what others have sent.
  void resume() {
    take_turn(slave_);
    if (has_incoming_.load(std::memory_order_acquire)) accept_incoming();
  }
  void accept_incoming();
  static void end_wait_without_reply(volatile void* reply, int value);

  // Arrival is data that another slave sent here. Reading it is legal after
  // this slave has synchronised with the sender.
  struct Arrival {
    std::uintptr_t begin, end;
    Slave* sender;
    std::uint32_t sent;  // the sender's clock
    const volatile void* reply;
    std::uint64_t number;  // of the reply
    const char* call;
    const void* pc;
  };

  Slave& slave_;
  // What others have sent since resume(). They must not access the other
  // members, because a slave without the turn runs concurrently.
  std::mutex incoming_mutex_;
  std::vector<Arrival> incoming_;
  std::atomic<bool> has_incoming_{false};
  std::vector<Arrival> arrivals_;
  SlaveClock clock_;
  std::uint32_t called_ = 0;  // its own clock at the last call
  Shadow shadow_;
  std::vector<Pending> pending_;  // in the order of issue
  Progress progress_;
  StackCheck stack_;
  DirectLog direct_;
  std::uintptr_t last_flag_ = 0;  // the last volatile or atomic read
  bool first_launch_ = true;
};

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_SLAVE_CHECK_H_
