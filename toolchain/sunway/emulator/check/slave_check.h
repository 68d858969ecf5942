// The checks of one slave. SlaveCheck is what the core (see observer.h) and the
// instrumented program call; it passes what they do to the parts that check it.
#ifndef SWAMP_SUNWAY_EMULATOR_CHECK_SLAVE_CHECK_H_
#define SWAMP_SUNWAY_EMULATOR_CHECK_SLAVE_CHECK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "toolchain/sunway/emulator/check/access_log.h"
#include "toolchain/sunway/emulator/check/addresses.h"
#include "toolchain/sunway/emulator/check/cache.h"
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

class SlaveCheck final : public SlaveObserver {
 public:
  explicit SlaveCheck(Slave& slave);

  void thread_begins() override;
  void launched() override {
    clock_.restart();
    inbox_.forget_messages();
  }
  void function_begins() override;
  void function_ends() override;
  std::size_t stack_bytes() const noexcept override { return stack_.bytes(); }

  void turn_lost() noexcept override { check_all(); }
  void turn_regained() override;

  void issue(const Transfer& transfer, const void* pc, bool now) override;
  void blocking(const Transfer& transfer, const void* pc) override;
  bool allows(const Transfer& transfer, const void* pc) override;
  void broadcast(const Transfer& transfer, const void* pc) override;
  void dma_barrier() override { in_flight_.complete_all(); }

  bool allows_rma(const Rma& rma, const Slave& other, bool sends) override;
  void sent(const Rma& rma) override;
  void rma_barrier() override;
  void fetched(const Transfer& transfer, const void* pc) override;
  void replies(const volatile void* reply) override;
  bool reaches(const Slave& other, const std::byte* ldm, long length,
               const char* call, const void* pc) override;
  void received(std::byte* ldm, long length, Slave& sender,
                const volatile void* reply, const char* call,
                const void* pc) override;

  void wait_begins(volatile void* reply, int value, const char* call,
                   const void* pc) override;
  void wait_ends(volatile void* reply, int value) override;
  bool operand(const void* address, std::size_t bytes, bool write,
               const char* call, const void* pc) override;

  void allocated(std::size_t offset, std::size_t bytes, std::size_t stack,
                 const void* pc) override;
  void freed(std::size_t offset, std::size_t piece_bytes, std::size_t length,
             const void* pc) override;
  void freed_all() override;

  void releases(Sync kind, const volatile void* object,
                std::uint64_t number) override;
  void acquires(Sync kind, const volatile void* object,
                std::uint64_t number) override;
  void evicts(const volatile void* begin, const volatile void* end) override;
  void gives_way() override;
  void tried(const volatile void* word, const void* pc) override;
  void atomic(const volatile void* word, std::size_t bytes, bool writes,
              const void* pc) override;

  // What follows is called by the checker and the instrumented program.

  // joined() is called by the master while the slave does not run.
  void joined() { clock_.joined(); }
  // was_read() is called by the thread of `reader` after its get from this
  // slave's LDM.
  void was_read(const Transfer& get, const Slave& reader, std::uint32_t done,
                const void* pc);
  // main_allocated() and main_freed() are called by malloc() and free() of the
  // slave: the new owner of a block is ordered after the old one, and undefined
  // contents are not compared.
  void main_allocated(const void* memory, std::size_t bytes);
  void main_freed(const void* memory, std::size_t bytes);

  // needs_no_check() is the test that swcc puts before accesses of up to 16
  // bytes, for any number of bytes.
  bool needs_no_check(const volatile void* address,
                      std::size_t bytes) const noexcept {
    const auto* begin =
        static_cast<const std::byte*>(const_cast<const void*>(address));
    return fast_.limit != 0 && slave_.in_ldm(address, bytes) &&
           !Shadow::has(begin, bytes, ~0u);
  }

  // Every load and store of the slave's own instructions, except those that
  // the fast path handles.
  void read(const volatile void* address, std::size_t bytes, const void* pc,
            bool is_volatile);
  void write(const volatile void* address, std::size_t bytes, const void* pc,
             bool is_volatile);

  // An inner loop whose addresses are known before it: see fast_path.h.
  struct LoopAccess {
    std::uintptr_t first;
    unsigned long step;  // modulo 2^64
    unsigned long kind;
  };
  // loop_needs_no_check() returns whether the accesses and indices of all
  // iterations are legal and need no check, except that reads of main memory
  // are logged by loop_reads().
  bool loop_needs_no_check(const LoopAccess* all, std::size_t count,
                           unsigned long iterations);
  void loop_reads(const LoopAccess& read, unsigned long iterations,
                  const void* pc);

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
  // take_counts() adds what the slave's code has counted to its counters.
  void take_counts() noexcept {
    slave_.counters.half_accesses += fast_.counts & 0xffffffff;
    slave_.counters.flops += fast_.counts >> 32;
    fast_.counts = 0;
  }
  // charge() counts for the line at `pc` what was done since the last charge.
  void charge(const void* pc) {
    take_counts();
    slave_.places[pc].add(slave_.counters);
    slave_.counters = {};
  }
  // end_access() decides whether the next access may take the fast path.
  void end_access() noexcept {
    take_counts();
    if (lines_ || progress_.polls()) return check_all();
    if (fast_.limit != 0) return;
    fast_.limit = slot_bytes - 15;  // 16 bytes end within the slot
    // Another thread may have called check_all() in the meantime.
    if (inbox_.has_new() || slave_.state == SlaveState::without_turn) {
      check_all();
    }
  }
  // check_buffers() checks the buffers of a transfer that may be carried out.
  void check_buffers(const Transfer& transfer, const void* pc);
  // allows_sides() returns whether both sides of an RMA are legal.
  bool allows_sides(const Rma& rma, const Slave& other);
  // check_source() checks the source of data that the slave sends to others.
  void check_source(const Rma& rma);
  // check_written() reports data that is sent and was never written.
  void check_written(const std::byte* ldm, long length, const char* call,
                     const void* pc);
  // check_reply_written() reports a reply word that holds what was there
  // before.
  void check_reply_written(volatile void* reply, const char* call,
                           const void* pc);
  // may_read_main() returns whether a read of main memory is known to break no
  // rule. It can still conflict with accesses of others.
  bool may_read_main(std::uintptr_t begin, std::size_t bytes) const;
  // check_set() reports a read of main memory that nobody wrote, or of LDM that
  // was filled with such.
  void check_set(std::uintptr_t begin, std::size_t bytes, const void* pc);
  void heap_access(const volatile void* address, std::size_t bytes, bool write,
                   const void* pc);
  // read_remote() and write_remote() are for loads and stores of a remote
  // place.
  void read_remote(const std::byte* place);
  void write_remote(std::byte* place, std::size_t bytes, const void* pc);
  void write_main(std::uintptr_t begin, std::uintptr_t end, bool is_volatile,
                  const void* pc);
  // check_main() checks an access of what is not the slave's own LDM, and
  // returns whether it is legal.
  bool check_main(std::uintptr_t begin, std::size_t bytes, bool write,
                  const void* pc) {
    return (known_ranges_.has(begin, bytes, write) && !reports_main_) ||
           look_up_main(begin, bytes, write, pc);
  }
  bool look_up_main(std::uintptr_t begin, std::size_t bytes, bool write,
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
  const std::unique_ptr<DataCache> cache_;  // nullptr: not checked
  KnownRanges known_ranges_;
  bool send_waits_ = false;  // see Arrival::waits, of the last send
  const std::byte* last_transfer_ = nullptr;  // its side of main memory
  const bool reports_main_;                   // SWAMP_CHECK_MAIN_ACCESS=1
  const bool lines_;                          // SWAMP_PREDICT=lines
  std::uintptr_t last_flag_ = 0;  // the last volatile or atomic read
  bool read_flag_ = false;        // since the last store to main memory
  int interleaved_ = 0;           // how often in this launch
  std::array<std::uintptr_t, 4> flags_{};  // the last ones of waits_for()
  bool first_launch_ = true;
  const void* bounds_pc_ = nullptr;  // of an index that is out of bounds
  std::string bounds_text_;
};

// check_of() returns the checks of a slave, and own_check() those of the
// calling slave; nullptr in transfer mode copy, and for a master.
inline SlaveCheck* check_of(const Slave& slave) noexcept {
  return static_cast<SlaveCheck*>(slave.observer.get());
}
inline SlaveCheck* own_check() noexcept {
  const Slave* slave = self();
  return slave != nullptr ? check_of(*slave) : nullptr;
}

}  // namespace swamp::sunway::check

#endif  // SWAMP_SUNWAY_EMULATOR_CHECK_SLAVE_CHECK_H_
