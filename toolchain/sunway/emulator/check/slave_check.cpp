// What the core and the instrumented program tell of one slave is passed on to
// the parts that have the rules: LDM, transfers in flight, inbox, clock,
// progress and the log of accesses.
#include "toolchain/sunway/emulator/check/slave_check.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "toolchain/sunway/emulator/check/host_check.h"
#include "toolchain/sunway/emulator/check/locals.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/report.h"

namespace swamp::sunway::check {
namespace {

constexpr std::size_t kLockBytes = 8;

// next_reply() is the value of the word after the next reply.
std::uint64_t next_reply(const volatile void* reply) {
  return static_cast<std::uint64_t>(read_reply(reply)) + 1;
}

}  // namespace

SlaveCheck::SlaveCheck(Slave& slave)
    : slave_(slave),
      clock_(slave.number(),
             static_cast<std::size_t>(settings().core_groups) *
                 static_cast<std::size_t>(settings().slaves_per_group)),
      inbox_(slave, clock_),
      in_flight_(slave, clock_),
      stack_(slave, fast_),
      progress_(slave),
      direct_(slave, clock_),
      cache_(DataCache::make(slave)),
      reports_main_(settings().main_access),
      lines_(settings().lines) {}

void SlaveCheck::begin_call(const void* pc) {
  slave_.last_pc = pc;
  if (lines_) charge(pc);
  if (bounds_pc_ != nullptr) report_bounds("ldm-range");
  progress_.begin_call();
  direct_.log_write();
  progress_.advance();
  resume();
  called_ = clock_.now();
}

void SlaveCheck::thread_begins() {
  if (fast_.slot == 0) {  // a child of fork() has it
    map_shadow(slave_);
    mark_gaps(slave_);
  }
  const auto* here = static_cast<std::byte*>(__builtin_frame_address(0));
  Shadow::clear(here, static_cast<std::size_t>(slave_.slot + slot_bytes - here),
                Shadow::kBelow);
  fast_.slot = address_of(slave_.slot);
  set_fast_path(fast_);
  _cache_size = cache_ != nullptr ? DataCache::kBytes / 1024 : 0;
}

void SlaveCheck::function_begins() {
  fast_.counts = 0;
  progress_.advance();
  resume();
  // The memory below belongs to no frame yet, except those of functions called
  // here.
  constexpr std::size_t kMargin = 1024;
  // For the C library's functions, whose accesses are not observed.
  constexpr std::size_t kBelow = 8192;
  auto* here = static_cast<std::byte*>(__builtin_frame_address(0));
  const auto room = static_cast<std::size_t>(here - slave_.stack);
  const std::size_t bytes =
      std::min(room - std::min(room, kMargin), machine().ldm_bytes) / 4 * 4;
  std::byte* begin = here - kMargin - bytes;
  begin -= address_of(begin) % 4;
  Shadow::set(begin + bytes, static_cast<std::size_t>(here - begin) - bytes,
              Shadow::kBelow);
  // Memory far below what the last launch used is still poisoned.
  std::byte* first = begin;
  if (!first_launch_ && stack_.lowest() > address_of(begin) + kBelow) {
    first += (stack_.lowest() - kBelow - address_of(begin)) / 4 * 4;
  }
  const auto done = std::min(static_cast<std::size_t>(first - begin), bytes);
  Shadow::poison(begin + done, bytes - done, Shadow::kBelow);
  first_launch_ = false;
  read_flag_ = false;
  interleaved_ = 0;
  flags_.fill(0);
  stack_.begin_launch(address_of(here));
  direct_.begin_launch();
  inbox_.clear();
}

void SlaveCheck::function_ends() {
  take_counts();
  resume();
  if (bounds_pc_ != nullptr) report_bounds("ldm-range");
  direct_.log_write();
  direct_.log_reads();
  stack_.end_launch();
  if (cache_ != nullptr) cache_->clear();
  progress_.advance();
  in_flight_.end_launch();
}

void SlaveCheck::turn_regained() {
  // The flag may have been set between this check and the slave's own read of
  // it.
  if (last_flag_ == 0) return;
  const auto* flag = reinterpret_cast<const void*>(last_flag_);
  if (slave_.in_ldm(flag, 1)) {
    accept_arrivals();
    inbox_.check(last_flag_, last_flag_ + 1, true, nullptr);
  } else {
    clock_.acquire(flag);
  }
}

void SlaveCheck::accept_arrivals() {
  for (const Arrival& arrival : inbox_.take_new()) {
    if (arrival.is_read) continue;
    in_flight_.receives(arrival.begin, arrival.end, *arrival.sender,
                        arrival.pc);
    auto* data = reinterpret_cast<std::byte*>(arrival.begin);
    Shadow::written(data, arrival.end - arrival.begin);
  }
  inbox_.watch();
}

// Transfers.

bool SlaveCheck::allows(const Transfer& t, const void* pc) {
  begin_call(pc);
  // A loop that waits transfers the same word again and again.
  if (std::exchange(last_transfer_, t.main) != t.main) progress_.works();
  stack_.check(pc);
  if (slave_.in_ldm(t.ldm, 1) && t.ldm >= slave_.stack) {
    stack_.entered(address_of(t.ldm), pc);
  }
  return check_rules(slave_, known_ranges_, t, pc);
}

bool SlaveCheck::allows_sides(const Rma& rma, const Slave& other) {
  Transfer t{Transfer::Kind::remote_get,
             static_cast<std::byte*>(rma.local),
             static_cast<std::byte*>(rma.remote),
             rma.length,
             0,
             0,
             rma.local_reply,
             rma.call};
  if (!allows(t, rma.pc)) return false;
  t.ldm = static_cast<std::byte*>(rma.remote);
  t.reply = rma.remote_reply;
  const bool is_own = slave_.in_ldm(t.ldm, 1);
  if (&other == &slave_ ||
      (!is_own && ldm_owner(address_of(t.ldm)) == nullptr)) {
    return allows(t, rma.pc);
  }
  // Where the other slave's local variables are is not known. An address in
  // this slave's stack is that of a variable of its own.
  const bool is_local =
      is_own && t.ldm >= slave_.stack && t.ldm < slave_.statics;
  if (is_local && !allows(t, rma.pc)) return false;
  t.ldm = as_seen_by(other, rma.remote);
  t.reply = as_seen_by(other, rma.remote_reply);
  return check_rules(other, known_ranges_, t, rma.pc, &slave_);
}

bool SlaveCheck::allows_rma(const Rma& rma, const Slave& other, bool sends) {
  slave_.asynchronous = true;
  send_waits_ = rma.local_reply == nullptr;
  if (!allows_sides(rma, other)) return false;
  if (sends) check_source(rma);
  return true;
}

bool SlaveCheck::reaches(const Slave& other, const std::byte* remote,
                         long length, const char* call, const void* pc) {
  const std::string why =
      why_not_ldm(other, remote, static_cast<std::size_t>(length));
  if (why.empty()) return true;
  report({"ldm-range", pc, &slave_,
          std::string(call) + ": in slave " + std::to_string(other.id) + " " +
              why});
  return false;
}

void SlaveCheck::was_read(const Transfer& get, const Slave& reader,
                          std::uint32_t done, const void* pc) {
  inbox_.forget_messages(&reader);
  constexpr long kWord = 8;  // a flag that the reader polls
  if (get.length <= kWord) return;
  const std::uintptr_t begin = address_of(get.main);
  inbox_.add({begin, begin + bytes_of(get), &reader, done, nullptr, 0, get.call,
              pc, true, true});
  check_all();
}

void SlaveCheck::check_buffers(const Transfer& t, const void* pc) {
  const std::uintptr_t begin = address_of(t.ldm);
  if (t.writes_main()) {
    if (inbox_.check(begin, begin + bytes_of(t), false, pc)) {
      in_flight_.watch();
    }
  } else {
    inbox_.check_write(begin, begin + bytes_of(t), pc);
  }
  in_flight_.new_transfer(t, pc);
  if (t.kind == Transfer::Kind::get) {
    check_args(slave_, t.main, bytes_of(t), pc);
  }
  if (!t.writes_main()) return;
  log_unknown(t, slave_);
  check_written(t.ldm, t.length, t.call, pc);
}

void SlaveCheck::check_written(const std::byte* ldm, long length,
                               const char* call, const void* pc) {
  const auto bytes = static_cast<std::size_t>(length);
  if (Shadow::unwritten(ldm, bytes).longest < 2) return;
  // A struct may have padding.
  if (ldm >= slave_.slot + machine().ldm_bytes &&
      !Shadow::has_unwritten_data(ldm, bytes) &&
      !find_own_local(address_of(ldm), bytes).is_plain) {
    return;
  }
  report({"uninitialised", pc, &slave_,
          std::string(call) + " sends " +
              std::to_string(4 * Shadow::unwritten(ldm, bytes).words) + " of " +
              std::to_string(length) +
              " bytes of LDM to which nothing was written: on the machine they "
              "hold what the last program left"});
}

void SlaveCheck::check_reply_written(volatile void* reply, const char* call,
                                     const void* pc) {
  auto* word = static_cast<std::byte*>(const_cast<void*>(reply));
  if (word == nullptr || !Shadow::has(word, 4, Shadow::kUnwritten) ||
      Shadow::unwritten(word, 4).words != 1) {
    return;
  }
  report({"uninitialised", pc, &slave_,
          std::string(call) +
              "'s reply word was never written: reset it to 0 before the "
              "transfer, or the wait may return early or never"});
  std::memset(word, 0, 4);  // otherwise the wait would hang
  Shadow::written(word, 4);
}

void SlaveCheck::issue(const Transfer& t, const void* pc, bool now) {
  if (t.reply == nullptr) {
    begin_call(pc);
    (void)check_reply(slave_, nullptr, t.call, pc);
    return;
  }
  if (!allows(t, pc)) {
    if (slave_.in_ldm(t.reply, 4)) add_reply(t.reply);
    return;  // count it as done, or wait() would hang as well
  }
  slave_.asynchronous = true;
  check_buffers(t, pc);
  check_reply_written(t.reply, t.call, pc);
  in_flight_.add(t, pc, now);
}

void SlaveCheck::blocking(const Transfer& t, const void* pc) {
  if (!allows(t, pc)) return;
  check_buffers(t, pc);
  move_data(t, slave_, pc);
  if (!t.writes_main()) {
    Shadow::written(t.ldm, bytes_of(t));
    mark_unset(t);
  }
  log_transfer(t, slave_, pc, clock_.snapshot(), clock_.now());
}

void SlaveCheck::broadcast(const Transfer& t, const void* pc) {
  slave_.asynchronous = true;
  send_waits_ = true;  // many programs wait at the sender only
  check_buffers(t, pc);
  log_transfer(t, slave_, pc, clock_.snapshot(), clock_.now());
}

void SlaveCheck::check_source(const Rma& rma) {
  const std::uintptr_t begin = address_of(rma.local);
  const std::uintptr_t end = begin + static_cast<std::uintptr_t>(rma.length);
  if (inbox_.check(begin, end, false, rma.pc)) in_flight_.watch();
  in_flight_.sends(begin, end, rma.call, rma.pc);
  check_written(static_cast<const std::byte*>(rma.local), rma.length, rma.call,
                rma.pc);
}

void SlaveCheck::sent(const Rma& rma) {
  if (rma.local_reply == nullptr) return;
  const std::uintptr_t begin = address_of(rma.local);
  in_flight_.sent(begin, begin + static_cast<std::uintptr_t>(rma.length),
                  rma.local_reply, called_, rma.call, rma.pc);
}

void SlaveCheck::rma_barrier() {
  in_flight_.complete_rma();
  clock_.arrived();
}

void SlaveCheck::fetched(const Transfer& t, const void* pc) {
  received(t.ldm, t.length, slave_, nullptr, t.call, pc);
  log_transfer(t, slave_, pc, clock_.snapshot(), clock_.now());
}

void SlaveCheck::received(std::byte* ldm, long length, Slave& sender,
                          const volatile void* reply, const char* call,
                          const void* pc) {
  const std::uintptr_t begin = address_of(ldm);
  const std::uintptr_t end = begin + static_cast<std::uintptr_t>(length);
  SlaveCheck& from = *check_of(sender);
  SlaveClock& clock = from.clock_;
  inbox_.add({begin, end, &sender, clock.now(), reply,
              reply == nullptr ? 0 : next_reply(reply), call, pc,
              reply == nullptr || from.send_waits_});
  check_all();
  if (&sender == &slave_) {
    accept_arrivals();
    return;
  }
  constexpr long kWord = 8;  // a flag or a counter, of which the last counts
  if (reply != nullptr && length > kWord) {
    inbox_.add_message({begin, end, &sender, clock.now(), pc},
                       clock.of(slave_.number()), call);
  }
  // All sends of one call count as sent at one time.
  log_ldm_access(slave_, {begin, end, &sender, pc, true, false, 0,
                          clock.snapshot(), from.called_});
  if (reply != nullptr) {
    clock.send(reply, next_reply(reply));
  } else {
    clock.send(&slave_);
  }
}

void SlaveCheck::replies(const volatile void* reply) {
  clock_.release(reply, next_reply(reply));
}

void SlaveCheck::wait_begins(volatile void* reply, int value, const char* call,
                             const void* pc) {
  begin_call(pc);
  stack_.check(pc);
  if (check_reply(slave_, reply, call, pc)) {
    check_reply_written(reply, call, pc);
    in_flight_.complete_until(reply, value, pc);
    inbox_.watch();
    return;
  }
  in_flight_.complete_all();
  // No transfer raised this word; set it, so that the slave continues.
  if (reply != nullptr && read_reply(reply) < value) {
    __atomic_store_n(static_cast<volatile int*>(reply), value,
                     __ATOMIC_RELEASE);
  }
}

void SlaveCheck::wait_ends(volatile void* reply, int value) {
  clock_.acquire_messages(reply,
                          static_cast<std::uint64_t>(std::max(value, 0)));
  clock_.acquire(&slave_);
  inbox_.forget_synchronised();
  in_flight_.watch();
}

// ldm_malloc() and malloc().

void SlaveCheck::allocated(std::size_t offset, std::size_t bytes,
                           std::size_t stack, const void* pc) {
  begin_call(pc);
  if (offset != LdmHeap::kNone) {
    Shadow::poison(slave_.slot + offset, (bytes + 3) / 4 * 4);
    Shadow::set(slave_.slot + offset + bytes, (4 - bytes % 4) % 4,
                Shadow::kOutside);
    stack_.allocated(stack);
    return;
  }
  report({"ldm-range", pc, &slave_,
          "ldm_malloc(" + std::to_string(bytes) + ") returns NULL: LDM has " +
              std::to_string(machine().ldm_bytes) +
              " bytes, of which static variables take " +
              std::to_string(machine().static_bytes) +
              ", blocks of ldm_malloc " + std::to_string(slave_.heap.in_use()) +
              " and the stack " + std::to_string(stack)});
}

void SlaveCheck::freed(std::size_t offset, std::size_t piece_bytes,
                       std::size_t length, const void* pc) {
  begin_call(pc);
  if (piece_bytes == LdmHeap::kNone) {
    report({"ldm-range", pc, &slave_,
            "ldm_free of a pointer that ldm_malloc did not return, or that "
            "was freed already"});
    return;
  }
  if (piece_bytes != length) {
    report({"bad-length", pc, &slave_,
            "ldm_free of " + std::to_string(length) +
                " bytes, but the block has " + std::to_string(piece_bytes)});
  }
  const std::uintptr_t begin = address_of(slave_.slot + offset);
  in_flight_.frees(begin, begin + piece_bytes, pc);
  Shadow::set(slave_.slot + offset, piece_bytes, Shadow::kOutside);
}

void SlaveCheck::freed_all() {
  progress_.advance();
  Shadow::set(slave_.slot, machine().ldm_bytes, Shadow::kOutside);
}

void SlaveCheck::main_allocated(const void* memory, std::size_t bytes) {
  direct_.log_write();
  const std::uintptr_t begin = address_of(memory);
  changes_main(begin, begin + bytes, &slave_, nullptr);
  if (cache_ != nullptr) cache_->evict(begin, begin + bytes);
  clock_.reuse(begin, begin + bytes);
  forget_master_accesses(begin, begin + bytes);
  add_written({begin, begin + bytes, nullptr, &slave_});
}

void SlaveCheck::main_freed(const void* memory, std::size_t bytes) {
  direct_.log_write();
  const std::uintptr_t begin = address_of(memory);
  clock_.retire(begin, begin + bytes);
  add_written({begin, begin + bytes, nullptr, &slave_});
}

// Barriers, messages, locks and atomics.

void SlaveCheck::releases(Sync kind, const volatile void* object,
                          std::uint64_t number) {
  direct_.log_write();
  if (kind == Sync::lock) {
    progress_.advance();
    args_written(object, kLockBytes);
  }
  clock_.release(object, number);
}

void SlaveCheck::acquires(Sync kind, const volatile void* object,
                          std::uint64_t number) {
  if (kind == Sync::message) return clock_.acquire_messages(object, number);
  if (kind == Sync::lock) {
    direct_.log_write();
    progress_.advance();
    progress_.forget_reads();
    ++slave_.atomic_operations;
    args_written(object, kLockBytes);
  }
  clock_.acquire(object, number);
}

void SlaveCheck::evicts(const volatile void* begin, const volatile void* end) {
  if (cache_ == nullptr) return;
  if (begin == nullptr) return cache_->clear();
  cache_->evict(address_of(begin), address_of(end) + 1);
}

void SlaveCheck::gives_way() {
  // Enough for a race, and too few to make programs slow.
  constexpr int kMost = 256;
  if (!machine().order.interleaved || slave_.gave_way == kMost) return;
  direct_.log_write();
  resume();
  ++slave_.gave_way;
  (void)yield_turn(slave_, true);
}

void SlaveCheck::tried(const volatile void* word, const void* pc) {
  resume();
  (void)progress_.read(address_of(word), pc, true);
}

void SlaveCheck::atomic(const volatile void* word, std::size_t bytes,
                        bool writes, const void* pc) {
  const std::uintptr_t begin = address_of(word);
  direct_.log_write();
  if (writes) {
    ++slave_.atomic_operations;
    add_written({begin, begin + bytes, pc, &slave_});
  }
  resume();
  if (writes) changes_main(begin, begin + bytes, &slave_, pc, true);
  if (writes && begin != progress_.last_read()) progress_.forget_reads();
  (void)progress_.read(begin, pc, true);
  last_flag_ = begin;
  args_written(word, bytes);
  clock_.acquire(word);
  acquired_from_master(begin, begin + bytes);
  clock_.release(word);
}

}  // namespace swamp::sunway::check
