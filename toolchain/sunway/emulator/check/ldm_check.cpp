// Every byte of a slave's slot has flags (Shadow). Allocation and the start of
// a function set them, writes clear them, and the instrumented accesses that
// find a flag come here to be examined.
#include "toolchain/sunway/emulator/check/ldm_check.h"

#include <asm/prctl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "toolchain/sunway/emulator/check/addresses.h"
#include "toolchain/sunway/emulator/check/locals.h"
#include "toolchain/sunway/emulator/debug_info.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/report.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway::check {
namespace {

constexpr std::uint32_t kBytes = 0x01010101;  // one of each byte of a word
constexpr std::uint32_t kAll = kBytes * Shadow::kUnwritten;
constexpr std::size_t kWord = sizeof(std::uint32_t);

// The loops over flags take a large part of the time of a transfer.
#define SWAMP_WIDE __attribute__((target_clones("avx2", "default")))

SWAMP_WIDE void change_many(std::uint8_t* flags, std::size_t bytes,
                            unsigned keep, unsigned add) {
  for (std::size_t i = 0; i < bytes; ++i) {
    flags[i] = static_cast<std::uint8_t>((flags[i] & keep) | add);
  }
}

SWAMP_WIDE unsigned all_of(const std::uint8_t* flags, std::size_t bytes) {
  std::uint8_t all = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    all = static_cast<std::uint8_t>(all | flags[i]);
  }
  return all;
}
#undef SWAMP_WIDE

// The flags of a reply word are soon read as a word, which would wait for
// stores of single bytes.
[[gnu::noinline]] void change(std::uint8_t* flags, std::size_t bytes,
                              unsigned keep, unsigned add) {
  if (bytes != kWord) return change_many(flags, bytes, keep, add);
  std::uint32_t word = 0;
  std::memcpy(&word, flags, kWord);
  word = (word & kBytes * (keep & 0xffu)) | kBytes * add;
  std::memcpy(flags, &word, kWord);
}

}  // namespace

std::string why_not_ldm(const Slave& slave, const std::byte* ldm,
                        std::size_t bytes) {
  if (!slave.in_ldm(ldm, 1)) {
    return "the LDM side of the transfer is not in LDM (it is in main "
           "memory: " +
           describe(address_of(ldm)) +
           "); the machine would cut the address to 18 bits and overwrite LDM";
  }
  if (ldm < slave.slot + machine().ldm_bytes) {
    const auto offset = static_cast<std::size_t>(ldm - slave.slot);
    if (slave.heap.holds(offset, bytes)) return "";
    return "the LDM side is outside the blocks of ldm_malloc, at byte " +
           std::to_string(offset) + " of their memory";
  }
  const auto in_statics = address_of(ldm) - address_of(slave.statics);
  if (ldm >= slave.statics && in_statics < machine().static_bytes) {
    const Symbol& variable = find_ldm_variable(in_statics);
    if (variable.name.empty() ||
        in_statics + bytes <= variable.begin + variable.bytes) {
      return "";
    }
    return "the LDM side extends " +
           std::to_string(in_statics + bytes - variable.begin -
                          variable.bytes) +
           " bytes beyond the end of " + variable.name + " (" +
           std::to_string(variable.bytes) + " bytes)";
  }
  if (ldm >= slave.stack && self() == &slave) {
    const Local local = find_own_local(address_of(ldm), bytes);
    const std::size_t end = local.begin + local.bytes;
    if (local.bytes != 0 && address_of(ldm) + bytes > end) {
      return "the LDM side extends " +
             std::to_string(address_of(ldm) + bytes - end) +
             " bytes beyond the end of the local variable " + local.name +
             " (" + std::to_string(local.bytes) + " bytes)";
    }
  }
  if (ldm >= slave.stack && ldm + bytes <= slave.stack_top) return "";
  return "the LDM side is outside the slave's variables";
}

std::string why_not_static(const Slave& slave, const std::byte* ldm,
                           std::size_t bytes) {
  const auto offset = address_of(ldm) - address_of(slave.statics);
  const Symbol& before = find_ldm_variable_before(offset);
  const std::size_t end = before.begin + before.bytes;
  if (before.name.empty() || offset + bytes <= end) return "";
  return std::to_string(offset + bytes - end) + " bytes beyond the end of " +
         before.name + " (" + std::to_string(before.bytes) + " bytes)";
}

void Shadow::poison(std::byte* begin, std::size_t bytes,
                    unsigned more) noexcept {
  for (std::size_t i = 0; i < bytes; i += kWord) {
    std::memcpy(begin + i, &kPoison, kWord);
  }
  std::memset(&of(begin), static_cast<int>(kUnwritten | more), bytes);
}

void Shadow::set(const std::byte* begin, std::size_t bytes,
                 unsigned flags) noexcept {
  change(&of(begin), bytes, 0xffu, flags);
}

void Shadow::clear(const std::byte* begin, std::size_t bytes,
                   unsigned flags) noexcept {
  change(&of(begin), bytes, ~flags, 0);
}

unsigned Shadow::any_of_many(const std::byte* begin,
                             std::size_t bytes) noexcept {
  return all_of(&of(begin), bytes);
}

std::size_t Shadow::words(const std::byte* begin, std::size_t bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  return (first + bytes + kWord - 1) / kWord - first / kWord;
}

bool Shadow::is_unwritten(const std::byte* word) noexcept {
  std::uint32_t value = 0;
  std::uint32_t flags = 0;
  std::memcpy(&value, word, kWord);
  std::memcpy(&flags, &of(word), kWord);
  return value == kPoison && (flags & kAll) == kAll;
}

Shadow::Unwritten Shadow::unwritten(const std::byte* begin,
                                    std::size_t bytes) noexcept {
  Unwritten found;
  if (!has(begin, bytes, kUnwritten)) return found;
  const std::byte* first = begin - address_of(begin) % kWord;
  std::size_t run = 0;
  for (std::size_t i = 0; i < words(begin, bytes); ++i) {
    run = is_unwritten(first + i * kWord) ? run + 1 : 0;
    found.words += run != 0 ? 1 : 0;
    found.longest = std::max(found.longest, run);
  }
  return found;
}

bool Shadow::has_unwritten_data(const std::byte* begin,
                                std::size_t bytes) noexcept {
  if (!has(begin, bytes, kUnwritten)) return false;
  const std::byte* const first = begin - address_of(begin) % kWord;
  const std::byte* const end = first + words(begin, bytes) * kWord;
  const std::byte* run = first;
  for (const std::byte* at = first; at <= end; at += kWord) {
    if (at != end && is_unwritten(at)) continue;
    const auto length = static_cast<std::size_t>(at - run);
    const std::uintptr_t alignment = address_of(at) & -address_of(at);
    if (length >= 2 * kWord && (run == first || length >= alignment)) {
      return true;
    }
    run = at + kWord;
  }
  return false;
}

void map_shadow(const Slave& slave) {
  // All slaves map one file, so that what they do not use takes no memory.
  static const int file = [&] {
    std::vector<std::uint8_t> flags(slot_bytes, Shadow::kOutside);
    std::fill(flags.begin() + (slave.stack - slave.slot), flags.end(),
              std::uint8_t{Shadow::kBelow});
    const int made = memfd_create("shadow", MFD_CLOEXEC);
    // An access may extend beyond the slot.
    if (made < 0 || ftruncate(made, kShadowDistance) != 0 ||
        write(made, flags.data(), flags.size()) !=
            static_cast<ssize_t>(flags.size())) {
      return -1;
    }
    return made;
  }();
  if (mmap(slave.slot + kShadowDistance, kShadowDistance,
           PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
           file, 0) == MAP_FAILED) {
    fail(1, "cannot allocate the memory of check mode");
  }
}

namespace {

// clear_library_variables() clears the marks of thread-local variables of
// libraries that a program may use. They may be between its own variables and
// the C library's data of the thread.
void clear_library_variables(const std::byte* after) {
  const auto* end = reinterpret_cast<const std::byte*>(pthread_self());
  auto clear = [&](const void* variable, std::size_t bytes) {
    const auto* at = static_cast<const std::byte*>(variable);
    if (at >= after && at < end) Shadow::clear(at, bytes, Shadow::kOutside);
  };
  clear(&errno, sizeof errno);
  for (const char* one : {&_PEN, &_ROW, &_COL, &_CGN}) clear(one, sizeof *one);
  for (const int* one :
       {&_MYID, &_cache_size, &_ldm_share_mode, &_ldm_share_size}) {
    clear(one, sizeof *one);
  }
  using Clear = decltype(clear);
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* visit) {
        const std::string name = info->dlpi_name;
        if (name.find("/libc.so") != std::string::npos ||
            name.find("/libswamp_sunway.so") != std::string::npos) {
          return 0;
        }
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_TLS) continue;
          (*static_cast<Clear*>(visit))(info->dlpi_tls_data,
                                        info->dlpi_phdr[i].p_memsz);
        }
        return 0;
      },
      &clear);
}

}  // namespace

void mark_gaps(const Slave& slave) {
  const Machine& all = machine();
  const std::byte* end = slave.slot + slot_bytes;
  if (find_ldm_variable_before(all.static_bytes).name.empty()) return;
  const std::byte* after = slave.statics + all.static_bytes;
  Shadow::set(after, static_cast<std::size_t>(end - after), Shadow::kOutside);
  clear_library_variables(after);
  static const auto& gaps = *[&] {
    auto* found = new std::vector<std::size_t>;  // never destroyed
    for (std::size_t at = 0; at < all.static_bytes; ++at) {
      if (!why_not_static(slave, slave.statics + at, 1).empty()) {
        found->push_back(at);
      }
    }
    return found;
  }();
  for (const std::size_t at : gaps) {
    Shadow::set(slave.statics + at, 1, Shadow::kOutside);
  }
}

void set_fast_path(const FastPath& fast) {
  if (syscall(SYS_arch_prctl, ARCH_SET_GS, &fast) != 0) {
    fail(1, "cannot set the segment register gs of a thread");
  }
}

namespace {

// The master's code, and threads that inherit gs from it, may call functions
// that were compiled for slaves.
__attribute__((constructor)) void set_master_path() {
  static const FastPath none;
  if (is_check_asked()) set_fast_path(none);
}

}  // namespace

void StackCheck::begin_launch(std::uintptr_t here) noexcept {
  lowest_ = here;
  lowest_access_ = here;
  deepest_ = deepest_heap_ = 0;
}

std::size_t StackCheck::bytes() const noexcept {
  return address_of(slave_.stack_top) -
         std::min(lowest_, address_of(slave_.stack_top));
}

void StackCheck::deepen(std::uintptr_t lowest, const void* pc) {
  const std::uintptr_t end = lowest_access_;
  if (end > lowest) {
    Shadow::clear(reinterpret_cast<std::byte*>(lowest), end - lowest,
                  Shadow::kBelow);
  }
  lowest_access_ = lowest;
  lowest_ = std::min(lowest_, lowest);
  // Normally the next call reports it, because its line is the better one to
  // name. An endless recursion makes no call, so it is reported here.
  const std::size_t depth = address_of(slave_.stack_top) - lowest;
  const std::size_t heap = slave_.heap.in_use();
  if (depth > 2 * machine().ldm_bytes - machine().ldm_bytes / 4) {
    check_depth(depth, heap, pc);
  } else if (depth + heap > deepest_ + deepest_heap_) {
    deepest_ = depth;
    deepest_heap_ = heap;
    deepest_pc_ = pc;
  }
}

void StackCheck::allocated(std::size_t depth) noexcept {
  const std::uintptr_t here = address_of(slave_.stack_top) - depth;
  if (lowest_access_ >= here) return;
  Shadow::set(reinterpret_cast<std::byte*>(lowest_access_),
              here - lowest_access_, Shadow::kBelow);
  lowest_access_ = here;
}

void StackCheck::leaves_slot(std::uintptr_t lowest, const void* pc) {
  check_depth(address_of(slave_.stack_top) - lowest, slave_.heap.in_use(), pc);
  print_totals();
  end_now(kReportedExit);
}

namespace {

// stack_pointer_at() returns the stack pointer of the calling function that
// continues at `pc`, or 0.
std::uintptr_t stack_pointer_at(const void* pc) {
  struct Frame {
    const void* pc;
    std::uintptr_t stack_pointer;
  } wanted{pc, 0};
  _Unwind_Backtrace(
      [](_Unwind_Context* frame, void* out) {
        auto& found = *static_cast<Frame*>(out);
        if (_Unwind_GetIP(frame) != address_of(found.pc)) {
          return _URC_NO_REASON;
        }
        found.stack_pointer = _Unwind_GetCFA(frame);
        return _URC_NORMAL_STOP;
      },
      &wanted);
  return wanted.stack_pointer;
}

std::size_t used_bytes(std::size_t depth, std::size_t heap) {
  return depth + heap + machine().static_bytes + machine().shared_bytes;
}

}  // namespace

[[gnu::noinline]] void StackCheck::check(const void* pc) {
  // The frames of the checker are on the same stack.
  const auto* here = static_cast<std::byte*>(__builtin_frame_address(0));
  const std::size_t heap = slave_.heap.in_use();
  const auto most = static_cast<std::size_t>(slave_.stack_top - here);
  if (reported_ || used_bytes(most, heap) <= machine().ldm_bytes) return;
  const std::uintptr_t lowest = stack_pointer_at(pc);
  if (lowest == 0) return;
  check_depth(address_of(slave_.stack_top) - lowest, heap, pc);
}

void StackCheck::check_depth(std::size_t depth, std::size_t heap,
                             const void* pc) {
  if (reported_ || used_bytes(depth, heap) <= machine().ldm_bytes) return;
  reported_ = true;
  report({"ldm-range", pc, &slave_,
          "LDM overflows: " +
              std::to_string(machine().static_bytes + machine().shared_bytes) +
              " bytes of static variables, " + std::to_string(heap) +
              " of ldm_malloc and " + std::to_string(depth) +
              " of stack are more than the " +
              std::to_string(machine().ldm_bytes) + " there are"});
}

}  // namespace swamp::sunway::check
