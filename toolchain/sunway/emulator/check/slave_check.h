// The checks of one slave. SlaveCheck is what the emulator and the instrumented
// program call; it passes what they do to the parts that check it.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_SLAVE_CHECK_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_SLAVE_CHECK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "toolchain/sunway/emulator/check/access_log.h"
#include "toolchain/sunway/emulator/check/addresses.h"
#include "toolchain/sunway/emulator/check/clocks.h"
#include "toolchain/sunway/emulator/check/fast_path.h"
#include "toolchain/sunway/emulator/check/inbox.h"
#include "toolchain/sunway/emulator/check/ldm_check.h"
#include "toolchain/sunway/emulator/check/progress.h"
#include "toolchain/sunway/emulator/check/transfer_check.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/schedule.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway::check {

class SlaveCheck {
 public:
  explicit SlaveCheck(Slave& slave);

  // begin_thread() is called by the slave's own thread before anything else.
  void begin_thread();

  // The master calls launched() and joined() while the slave does not run.
  void launched() {
    clock_.restart();
    inbox_.forget_messages();
  }
  void joined() { clock_.joined(); }
  void begin_launch();
  void end_launch();
  // regained() is called after the slave lost the turn and got it back.
  void regained();

  // Transfers. issue() and blocking() do not carry out a transfer that breaks a
  // rule; allows() only reports. With `now` the data of a get moves at once,
  // because its owner gets a reply.
  void issue(const Transfer& transfer, const void* pc, bool now = false);
  void blocking(const Transfer& transfer, const void* pc);
  bool allows(const Transfer& transfer, const void* pc);
  // `other` is the remote slave, or this one for a broadcast.
  bool allows_rma(const Slave& other, void* local, void* remote, long length,
                  volatile void* local_reply, volatile void* remote_reply,
                  const char* call, const void* pc);
  // broadcast() is called before a get for several slaves is carried out.
  void broadcast(const Transfer& transfer, const void* pc);
  // sends() checks the source of data that the slave sends to others.
  void sends(const void* local, long length, const char* call, const void* pc);
  // sent() is called after an asynchronous send with a reply word.
  void sent(const void* local, long length, const volatile void* reply,
            const char* call, const void* pc);
  // fetched() is called after a get from another slave's LDM.
  void fetched(const Transfer& transfer, const void* pc);
  // received() is called by the thread of `sender` after it wrote data into
  // this slave's LDM; `reply` is the reply word there, or nullptr.
  void received(std::byte* ldm, long length, Slave& sender,
                const volatile void* reply, const char* call, const void* pc);
  // reaches() returns whether the range is LDM of `other`, else it reports.
  bool reaches(const Slave& other, const std::byte* remote, long length,
               const char* call, const void* pc);
  // was_read() is called by the thread of `reader` after its get from this
  // slave's LDM.
  void was_read(const Transfer& get, const Slave& reader, std::uint32_t done,
                const void* pc);
  // replies() is called before this slave raises another slave's reply word.
  void replies(const volatile void* reply);
  // operand() checks an array that a call of the library reads or writes by
  // instructions. It returns whether the call may access it.
  bool operand(const void* address, std::size_t bytes, bool write,
               const char* call, const void* pc);
  void before_wait(volatile void* reply, int value, const char* call,
                   const void* pc);
  void after_wait(volatile void* reply, int value);
  void finish_all() { in_flight_.complete_all(); }

  // LDM memory. `stack` is the size of the caller's stack, `length` what the
  // caller of ldm_free() passed.
  void allocated(std::size_t offset, std::size_t bytes, std::size_t stack,
                 const void* pc);
  void freed(std::size_t offset, std::size_t piece_bytes, std::size_t length,
             const void* pc);
  void freed_all();

  // main_allocated() and main_freed() are called by malloc() and free() of the
  // slave: the new owner of a block is ordered after the old one, and undefined
  // contents are not compared.
  void main_allocated(const void* memory, std::size_t bytes);
  void main_freed(const void* memory, std::size_t bytes);

  // Barriers, locks, atomics. `number` is the generation of the barrier, or the
  // number of the message.
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

  // Every load and store of the slave's own instructions, except those that
  // the fast path handles.
  void read(const volatile void* address, std::size_t bytes, const void* pc,
            bool is_volatile);
  void write(const volatile void* address, std::size_t bytes, const void* pc,
             bool is_volatile);

  // entered() is for the beginning of one of the slave's functions.
  void entered(const void* frame, const void* pc) {
    stack_.entered(address_of(frame), pc);
  }

  // out_of_bounds() is for an index of an array with known bounds. The report
  // follows at the next access or call, whose address tells the kind of memory.
  void out_of_bounds(const void* pc, std::string text) {
    if (bounds_pc_ == nullptr) {
      bounds_pc_ = pc;
      bounds_text_ = std::move(text);
    }
    check_all();
  }

  // check_all() makes the next access call the checker, and probe() some
  // more; any thread may call them.
  void check_all() noexcept { fast_.limit = 0; }
  void probe() noexcept {
    progress_.probe();
    check_all();
  }

  // progress() is Progress::count(); any thread may call it.
  std::uint64_t progress() const noexcept { return progress_.count(); }
  // stack_bytes() is the largest size of the stack that was seen in this
  // launch.
  std::size_t stack_bytes() const noexcept { return stack_.bytes(); }

 private:
  void begin_call(const void* pc);
  // resume() is called at the beginning of an access or call. It waits for the
  // turn if the slave has lost it, and accepts what others have sent.
  void resume() {
    take_turn(slave_);
    if (inbox_.has_new()) accept_arrivals();
  }
  void accept_arrivals();
  void report_bounds(const char* category);
  // before_access() completes what came before a load or store.
  void before_access(const volatile void* address);
  // waits_for() is for a word that the slave waits for: it orders slaves, and
  // which of them stores it last may depend on their order.
  void waits_for(std::uintptr_t begin, std::uintptr_t end);
  // let_others_store() yields the turn between a read of a volatile word and
  // the next store to main memory, in an interleaved order.
  void let_others_store();
  // end_access() decides whether the next access may take the fast path.
  void end_access() noexcept;
  // check_buffers() checks the buffers of a transfer that may be carried out.
  void check_buffers(const Transfer& transfer, const void* pc);
  // check_written() reports data that is sent and was never written.
  void check_written(const std::byte* ldm, long length, const char* call,
                     const void* pc);
  // check_reply_written() reports a reply word that holds what was there
  // before.
  void check_reply_written(volatile void* reply, const char* call,
                           const void* pc);
  void heap_access(const volatile void* address, std::size_t bytes, bool write,
                   const void* pc);
  void write_main(std::uintptr_t begin, std::uintptr_t end, bool is_volatile,
                  const void* pc);
  // check_main() checks an access of what is not the slave's own LDM, and
  // returns whether it is legal.
  bool check_main(std::uintptr_t begin, std::size_t bytes, bool write,
                  const void* pc);

  Slave& slave_;
  FastPath fast_;
  SlaveClock clock_;
  std::uint32_t called_ = 0;  // its own clock at the last call
  Inbox inbox_;
  InFlight in_flight_;
  StackCheck stack_;
  Progress progress_;
  DirectLog direct_;
  KnownMain known_main_;
  std::uintptr_t last_flag_ = 0;  // the last volatile or atomic read
  bool read_flag_ = false;        // since the last store to main memory
  int interleaved_ = 0;           // how often in this launch
  std::array<std::uintptr_t, 4> flags_{};  // the last ones of waits_for()
  bool first_launch_ = true;
  const void* bounds_pc_ = nullptr;  // of an index that is out of bounds
  std::string bounds_text_;
};

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_SLAVE_CHECK_H_
