// The loads and stores of a slave's own instructions.
#include <algorithm>
#include <string>
#include <utility>

#include "toolchain/sunway/emulator/check/addresses.h"
#include "toolchain/sunway/emulator/check/host_check.h"
#include "toolchain/sunway/emulator/check/slave_check.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/report.h"

namespace swamp::sunway::check {

void SlaveCheck::report_bounds(const char* category) {
  report({category, std::exchange(bounds_pc_, nullptr), &slave_, bounds_text_});
}

void SlaveCheck::before_access(const volatile void* address) {
  if (bounds_pc_ != nullptr) {
    report_bounds(slave_.in_ldm(address, 1) ? "ldm-range" : "main-range");
  }
  direct_.log_write();
}

void SlaveCheck::read(const volatile void* address, std::size_t bytes,
                      const void* pc, bool is_volatile) {
  const std::uintptr_t begin = address_of(address);
  const std::uintptr_t end = begin + bytes;
  if (lines_) charge(pc);
  before_access(address);
  take_turn(slave_);
  const bool waits = progress_.read(begin, pc, is_volatile) && is_volatile;
  resume();  // others may have run in the meantime
  if (is_volatile) last_flag_ = begin;
  if (!slave_.in_ldm(address, 1)) {
    if (const std::byte* at = remote_place(begin)) return read_remote(at);
    if (is_volatile) {
      read_flag_ = true;
      if (waits) waits_for(begin, end);
      clock_.acquire(address);
      acquired_from_master(begin, end);
      args_written(address, bytes);
    } else {
      direct_.read(begin, end, pc);
      if (may_have_changed()) check_args(slave_, address, bytes, pc);
    }
    if (!in_flight_.empty()) in_flight_.accesses_main(begin, end, false, pc);
    if (check_main(begin, bytes, false, pc) && !is_volatile) {
      check_set(begin, bytes, pc);
      if (cache_ != nullptr) cache_->read(begin, end, pc);
    }
    end_access();
    return;
  }
  stack_.access(begin, pc);
  if (inbox_.check(begin, end, is_volatile, pc)) in_flight_.watch();
  in_flight_.reads_ldm(begin, end, pc);
  heap_access(address, bytes, false, pc);
  end_access();
}

namespace {

// Range is the memory of all iterations of a loop.
struct Range {
  std::uintptr_t begin, end;
};

Range range_of(const SlaveCheck::LoopAccess& access, unsigned long iterations) {
  const std::uintptr_t last = access.first + access.step * (iterations - 1);
  return {std::min(access.first, last),
          std::max(access.first, last) + (access.kind & 0xff)};
}

}  // namespace

bool SlaveCheck::loop_needs_no_check(const LoopAccess* all, std::size_t count,
                                     unsigned long iterations) {
  // In a longer loop the slave would not notice for a long time that it has
  // lost the turn.
  constexpr unsigned long kMostIterations = 1ul << 22;
  constexpr unsigned long kMostStep = 1ul << 32;
  if (fast_.limit == 0 || iterations == 0 || iterations > kMostIterations ||
      settings().predict) {  // which needs the counts of the other copy
    return false;
  }
  if (progress_.yields()) resume();
  for (std::size_t i = 0; i < count; ++i) {
    const LoopAccess& access = all[i];
    const unsigned long bytes = access.kind & 0xff;
    const unsigned long step = std::min(access.step, -access.step);
    if (step > kMostStep) return false;
    const Range range = range_of(access, iterations);
    const auto* begin = reinterpret_cast<const std::byte*>(range.begin);
    if (bytes == 0) {
      if (range.end > access.kind >> 16) return false;
    } else if (!slave_.in_ldm(begin, range.end - range.begin)) {
      if ((access.kind & kOnlyLdm) != 0 || step > bytes ||
          !may_read_main(range.begin, range.end - range.begin)) {
        return false;
      }
    } else if (step <= 4 * bytes) {  // one test of all is the fastest
      if (Shadow::has(begin, range.end - range.begin, ~0u)) return false;
    } else {
      for (unsigned long n = 0; n < iterations; ++n, begin += step) {
        if (Shadow::has(begin, bytes, ~0u)) return false;
      }
    }
  }
  return true;
}

bool SlaveCheck::may_read_main(std::uintptr_t begin, std::size_t bytes) const {
  return !reports_main_ && !may_have_changed() && in_flight_.empty() &&
         known_ranges_.has_anywhere(begin, bytes, false);
}

void SlaveCheck::check_set(std::uintptr_t begin, std::size_t bytes,
                           const void* pc) {
  // The compiler copies structs, whose unused parts may be unset.
  constexpr std::size_t kMost = 16;
  const auto* at = reinterpret_cast<const void*>(begin);
  if (bytes > kMost || !is_unset(at, bytes)) return;
  const bool is_copy = slave_.in_ldm(at, bytes);
  const Unset unset = is_copy ? Shadow::has(static_cast<const std::byte*>(at),
                                            bytes, Shadow::kUnsetPart)
                                    ? Unset::part
                                    : Unset::all
                              : unset_of(begin);
  if (unset == Unset::no_block) return;
  Finding found{"uninitialised", pc, &slave_,
                "reads main memory of malloc that nobody wrote: on the machine "
                "it holds what was there before"};
  if (unset == Unset::all) {
    report(found);
  } else {  // a program may compute with it and not use the result
    found.text += "; other parts of the block were written";
    note(found);
  }
}

void SlaveCheck::loop_reads(const LoopAccess& read, unsigned long iterations,
                            const void* pc) {
  const Range range = range_of(read, iterations);
  const auto* begin = reinterpret_cast<const void*>(range.begin);
  if (slave_.in_ldm(begin, 1)) return;
  direct_.log_write();
  progress_.read_many(range.begin, iterations);
  check_set(read.first, read.kind & 0xff, pc);
  if (cache_ != nullptr) cache_->read(range.begin, range.end, pc);
  direct_.read(range.begin, range.end, pc);
}

void SlaveCheck::waits_for(std::uintptr_t begin, std::uintptr_t end) {
  // Usually a wait reads one or two words, many times.
  if (!keeps_written() ||
      std::find(flags_.begin(), flags_.end(), begin) != flags_.end()) {
    return;
  }
  std::rotate(flags_.begin(), flags_.end() - 1, flags_.end());
  flags_[0] = begin;
  add_written({begin, end, nullptr, &slave_});
}

void SlaveCheck::let_others_store() {
  // Enough for a race, and too few for programs that store volatile data to
  // become slow or for a lock of their own to be passed around without end.
  constexpr int kMost = 256;
  if (!std::exchange(read_flag_, false) || !machine().order.interleaved ||
      interleaved_ == kMost) {
    return;
  }
  ++interleaved_;
  (void)yield_turn(slave_);
}

void SlaveCheck::write(const volatile void* address, std::size_t bytes,
                       const void* pc, bool is_volatile) {
  const std::uintptr_t begin = address_of(address);
  const std::uintptr_t end = begin + bytes;
  if (lines_) charge(pc);
  before_access(address);
  if (!slave_.in_ldm(address, bytes)) let_others_store();
  resume();
  progress_.wrote(begin);
  if (!slave_.in_ldm(address, 1)) {
    if (std::byte* at = remote_place(begin)) {
      return write_remote(at, bytes, pc);
    }
    write_main(begin, end, is_volatile, pc);
    return;
  }
  // Bytes without flags have nothing to check.
  if (!Shadow::has(reinterpret_cast<const std::byte*>(begin), bytes, ~0u)) {
    end_access();
    return;
  }
  stack_.access(begin, pc);
  if (!is_volatile) inbox_.check_write(begin, end, pc);
  in_flight_.writes_ldm(begin, end, pc);
  heap_access(address, bytes, true, pc);
  end_access();
}

void SlaveCheck::read_remote(const std::byte* place) {
  // What the owner did before is known to a slave that polls its LDM.
  const Slave& owner = *ldm_owner(address_of(place));
  if (owner.state != SlaveState::without_turn) {
    check_of(owner)->clock_.release(&owner);
    clock_.acquire(&owner);
  }
  end_access();
}

void SlaveCheck::write_remote(std::byte* place, std::size_t bytes,
                              const void* pc) {
  constexpr const char* kCall = "a store";
  const Slave& owner = *ldm_owner(address_of(place));
  const auto length = static_cast<long>(bytes);
  if (reaches(owner, place, length, kCall, pc)) {
    check_of(owner)->received(place, length, slave_, nullptr, kCall, pc);
  }
  end_access();
}

void SlaveCheck::write_main(std::uintptr_t begin, std::uintptr_t end,
                            bool is_volatile, const void* pc) {
  const auto* address = reinterpret_cast<const void*>(begin);
  if (!check_main(begin, end - begin, true, pc)) return;
  if (is_volatile) clock_.release(address);
  changes_main(begin, end, &slave_, pc);
  in_flight_.accesses_main(begin, end, true, pc);
  args_written(address, end - begin);
  direct_.write(begin, end, pc);
  if (is_volatile) {  // a flag: it orders slaves and is not compared
    add_written({begin, end, pc, &slave_});
    direct_.drop_write();
  } else if (cache_ != nullptr) {
    cache_->write(begin, end, pc);
  }
  end_access();
}

bool SlaveCheck::operand(const void* address, std::size_t bytes, bool write_it,
                         const char* call, const void* pc) {
  begin_call(pc);
  const auto* at = static_cast<const std::byte*>(address);
  bool legal = true;
  if (slave_.in_ldm(at, 1)) {
    const std::string why = why_not_ldm(slave_, at, bytes);
    if (!why.empty()) {
      report({"ldm-range", pc, &slave_, std::string(call) + ": " + why});
      return false;
    }
  } else if (remote_place(address_of(at)) == nullptr) {
    legal = known_ranges_.why_not(address_of(at), bytes, write_it).empty();
  }
  if (write_it) {
    write(at, bytes, pc, false);
  } else {
    read(at, bytes, pc, false);
  }
  return legal;
}

bool SlaveCheck::look_up_main(std::uintptr_t begin, std::size_t bytes,
                              bool write, const void* pc) {
  const OwnAllocations own;
  const char* verb = write ? "writes " : "reads ";
  const std::string why = known_ranges_.why_not(begin, bytes, write);
  if (!why.empty()) {
    const std::string remote = why_not_remote(begin);
    if (!remote.empty()) {
      report({"ldm-range", pc, &slave_, remote});
      print_totals();
      end_now(kReportedExit);  // the access would crash
    }
    const Slave* owner = ldm_owner(begin);
    report({owner != nullptr ? "ldm-range" : "main-range", pc, &slave_,
            verb + std::to_string(bytes) + " bytes at " + describe(begin) +
                (owner != nullptr
                     ? ": on the machine such an address means the slave's own "
                       "LDM; use RMA"
                     : ", which " + why)});
    return false;
  }
  if (!reports_main_) return true;
  report({"main-access", pc, &slave_,
          verb + ("main memory at " + describe(begin)) +
              " directly: this takes hundreds of cycles and is not coherent "
              "with other slaves' caches; use DMA"});
  return true;
}

void SlaveCheck::heap_access(const volatile void* address, std::size_t bytes,
                             bool write, const void* pc) {
  auto* at = static_cast<std::byte*>(const_cast<void*>(address));
  const auto offset = static_cast<std::size_t>(at - slave_.slot);
  bytes = std::min(bytes, slot_bytes - offset);
  const bool in_heap = offset < machine().ldm_bytes;
  if (in_heap && !slave_.heap.holds(offset, bytes)) {
    report({"ldm-range", pc, &slave_,
            std::string(write ? "writes" : "reads") +
                " outside the blocks of ldm_malloc, at byte " +
                std::to_string(offset) + " of their memory"});
    return;
  }
  if (at >= slave_.statics && Shadow::has(at, bytes, Shadow::kOutside)) {
    const std::string why = why_not_static(slave_, at, bytes);
    if (!why.empty()) {
      report({"ldm-range", pc, &slave_, (write ? "writes " : "reads ") + why});
    }
    // Data of this library and of the C library follow the variables. Without
    // them neither the slave nor the handler of its crash can run.
    if (write && at + bytes > slave_.statics + machine().static_bytes) {
      print_totals();
      end_now(kReportedExit);
    }
  }
  if (write) {
    Shadow::written(at, bytes);
    return;
  }
  if (Shadow::has(at, bytes, Shadow::kUnset)) {
    check_set(address_of(at), bytes, pc);
    Shadow::clear(at, bytes, Shadow::kUnset | Shadow::kUnsetPart);
  }
  // A struct may contain padding, so some unwritten words are legal.
  if (Shadow::unwritten(at, bytes).words != Shadow::words(at, bytes)) return;
  // The compiler may read a single local variable although its value is not
  // used, and copy one.
  constexpr std::size_t kNear = 12;
  constexpr std::size_t kLeast = 4;
  if (!in_heap &&
      (bytes > 16 ||
       Shadow::unwritten(at - kNear, bytes + 2 * kNear).longest < kLeast)) {
    return;
  }
  report({"uninitialised", pc, &slave_,
          std::string("reads ") +
              (in_heap ? "memory of ldm_malloc" : "a local array") +
              " to which nothing was written: on the machine it holds what "
              "was there before"});
  Shadow::written(at, bytes);
}

}  // namespace swamp::sunway::check
