// Main memory is what the allocations (malloc.h), the mappings of
// /proc/self/maps and the stacks of threads make up; everything else is
// reported, with the nearest allocation. The mappings are read again only if a
// check fails.
#include "toolchain/sunway/emulator/check/addresses.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#include "toolchain/sunway/emulator/check/locals.h"
#include "toolchain/sunway/emulator/check/malloc.h"
#include "toolchain/sunway/emulator/debug_info.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/report.h"

namespace swamp::sunway::check {
namespace {

std::string describe(const Allocation& allocation) {
  const Location at = locate(allocation.pc);
  return "the " + std::to_string(allocation.bytes) + " bytes allocated" +
         (at.line == 0 ? "" : " at " + at.text());
}

}  // namespace

std::string describe(std::uintptr_t address) {
  const Symbol& symbol = find_variable(address);
  if (!symbol.name.empty()) {
    return symbol.name + " + " + std::to_string(address - symbol.begin);
  }
  if (const Slave* slave = has_machine() ? ldm_owner(address) : nullptr) {
    const auto statics = reinterpret_cast<std::uintptr_t>(slave->statics);
    const Symbol& variable = find_ldm_variable(address - statics);
    return (variable.name.empty()
                ? "byte " +
                      std::to_string(address - reinterpret_cast<std::uintptr_t>(
                                                   slave->slot))
                : variable.name + " + " +
                      std::to_string(address - statics - variable.begin)) +
           " of the LDM of " + name_of(slave);
  }
  const Allocation allocation = find_allocation(address);
  if (allocation.bytes != 0) {
    return describe(allocation) + " + " +
           std::to_string(address - allocation.begin);
  }
  char text[32];
  std::snprintf(text, sizeof text, "%#lx", address);
  return text;
}

namespace {

// Mapping is a line of /proc/self/maps.
struct Mapping {
  std::uintptr_t begin, end;
  bool read, write, shared, is_heap, is_ldm;
};

std::vector<Mapping> read_mappings() {
  const OwnAllocations own;
  std::vector<Mapping> all;
  std::FILE* file = std::fopen("/proc/self/maps", "r");
  if (file == nullptr) return all;
  char line[512];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    char access[8];
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &begin, &end,
                    access) == 3) {
      all.push_back({begin, end, access[0] == 'r', access[1] == 'w',
                     access[3] == 's', std::strstr(line, "[heap]") != nullptr,
                     std::strstr(line, kLdmFile) != nullptr});
    }
  }
  std::fclose(file);
  return all;
}

// mapped_bytes() returns how many bytes from an address on are mapped, in
// adjacent mappings with the same access.
std::size_t mapped_bytes(const std::vector<Mapping>& all,
                         std::uintptr_t address, bool write) {
  std::uintptr_t end = address;
  auto next = std::partition_point(
      all.begin(), all.end(),
      [=](const Mapping& mapping) { return mapping.end <= address; });
  for (; next != all.end() && next->begin <= end && next->read &&
         (next->write || !write) && !next->is_heap;
       ++next) {
    end = next->end;
  }
  return end - address;
}

// A cache: the mappings seldom change, so they are read again only if a check
// fails.
std::mutex known_mutex;

std::size_t mapped_bytes(std::uintptr_t address, std::size_t want, bool write) {
  static auto& known_mappings = *new std::vector<Mapping>;  // never destroyed
  const std::lock_guard<std::mutex> lock(known_mutex);
  std::size_t have = mapped_bytes(known_mappings, address, write);
  if (have < want) {
    known_mappings = read_mappings();
    have = mapped_bytes(known_mappings, address, write);
  }
  return have;
}

}  // namespace

bool shares_memory() {
  const std::vector<Mapping> all = read_mappings();
  return std::any_of(all.begin(), all.end(), [](const Mapping& mapping) {
    return mapping.shared && mapping.write && !mapping.is_ldm;
  });
}

namespace {

// near_block() describes an address in no allocation by its distance from the
// next one; empty if none is near. In a mapping only the rest of the pages of a
// block that malloc() has mapped counts: other memory may be between.
std::string near_block(std::uintptr_t address, bool in_mapping) {
  constexpr std::uintptr_t kNear = 64;
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::uintptr_t kHeader = 16;
  const auto is_mapped = [](const Allocation& block) {
    constexpr std::size_t kIsMapped = 2;  // in the header of glibc
    return block.bytes >= 16 * kPage && block.begin % kHeader == 0 &&
           (reinterpret_cast<const std::size_t*>(block.begin)[-1] &
            kIsMapped) != 0;
  };
  const Neighbours blocks = find_neighbours(address);
  if (blocks.before.bytes != 0) {
    const std::uintptr_t end = blocks.before.begin + blocks.before.bytes;
    const std::uintptr_t reach = !in_mapping ? end + kNear
                                 : is_mapped(blocks.before)
                                     ? (end + kPage - 1) / kPage * kPage
                                     : end;
    if (address < reach) {
      return std::to_string(address - end) + " bytes beyond the end of " +
             describe(blocks.before);
    }
  }
  if (blocks.after.bytes != 0) {
    const std::uintptr_t begin = blocks.after.begin;
    const std::uintptr_t reach = !in_mapping               ? kNear
                                 : is_mapped(blocks.after) ? kHeader
                                                           : 0;
    if (begin - address <= reach) {
      return std::to_string(begin - address) + " bytes before " +
             describe(blocks.after);
    }
  }
  return "";
}

}  // namespace

std::string why_not_main(std::uintptr_t address, std::size_t bytes,
                         bool write) {
  const Allocation allocation = find_allocation(address);
  if (allocation.bytes != 0) {
    if (address + bytes <= allocation.begin + allocation.bytes) return "";
    return "runs " +
           std::to_string(address + bytes - allocation.begin -
                          allocation.bytes) +
           " bytes beyond the end of " + describe(address);
  }
  const Symbol& variable = find_variable(address);
  if (!variable.name.empty()) {
    const std::size_t end = variable.begin + variable.bytes;
    if (address + bytes > end) {
      return "runs " + std::to_string(address + bytes - end) +
             " bytes beyond the end of " + variable.name + " (" +
             std::to_string(variable.bytes) + " bytes)";
    }
  }
  if (ldm_owner(address) != nullptr ||
      ldm_owner(address - kRemoteBit) != nullptr) {
    return "is in LDM, not in main memory";
  }
  const Local local = find_masters_local(address, bytes);
  const std::size_t end = local.begin + local.bytes;
  if (local.bytes != 0 && address + bytes > end) {
    return "runs " + std::to_string(address + bytes - end) +
           " bytes beyond the end of the master's local variable " +
           local.name + " (" + std::to_string(local.bytes) + " bytes)";
  }
  const bool is_mapped = mapped_bytes(address, bytes, write) >= bytes;
  if (is_mapped && !variable.name.empty()) return "";
  const std::string near = near_block(address, is_mapped);
  if (is_mapped && near.empty()) return "";
  return "is not memory of the program: " +
         (near.empty() ? "not allocated, freed, or not " +
                             std::string(write ? "writable" : "readable")
                       : near);
}

void KnownRanges::add_ldm(const Slave& slave, const std::byte* address,
                          std::size_t bytes, const void* pc) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (address < slave.statics) {
    if (address >= slave.stack) {
      uses_[hash_of(pc, begin)] = {pc, begin, begin + bytes};
    }
    return;
  }
  const auto statics = reinterpret_cast<std::uintptr_t>(slave.statics);
  const Symbol& variable = find_ldm_variable(begin - statics);
  const std::uintptr_t first = statics + variable.begin;
  if (variable.bytes != 0) ldm_ = {first, first + variable.bytes};
}

std::string KnownRanges::look_up(std::uintptr_t address, std::size_t bytes,
                                 bool write) {
  const std::uint64_t now = check::releases();
  std::string why = why_not_main(address, bytes, write);
  if (!why.empty()) return why;
  Range& range = ranges_[address / 4096 % ranges_.size()];
  const Allocation allocation = find_allocation(address);
  const Symbol& variable = find_variable(address);
  if (allocation.bytes != 0) {
    range = {allocation.begin, allocation.begin + allocation.bytes, true, now};
  } else if (!variable.name.empty()) {
    range = {variable.begin, variable.begin + variable.bytes, write, now};
  } else {
    const Local local = find_masters_local(address, bytes);
    range = {address, address + bytes, write, now};
    if (local.bytes != 0) {
      range = {local.begin, local.begin + local.bytes, true, now};
    }
  }
  return why;
}

std::size_t readable_bytes(std::uintptr_t address, std::size_t most) {
  const Allocation allocation = find_allocation(address);
  if (allocation.bytes != 0) {
    return std::min(most, allocation.begin + allocation.bytes - address);
  }
  const Symbol& variable = find_variable(address);
  if (!variable.name.empty()) {
    return std::min(most, variable.begin + variable.bytes - address);
  }
  return std::min(most, mapped_bytes(address, most, false));
}

}  // namespace swamp::sunway::check
