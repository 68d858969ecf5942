#include "toolchain/sunway/emulator/check/addresses.h"

#include <backtrace.h>
#include <cxxabi.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <vector>

#include "toolchain/sunway/emulator/check/malloc.h"

namespace swamp::sunway::check {
namespace {

constexpr char kSlavePrefix[] = "slave_";  // added by swcc

// The symbol to which the macro that reads the slaves' counter refers.
constexpr char kClock[] = "swamp_slave_cycles";

// Variables is the program's symbol table: variables and slave functions.
struct Variables {
  std::vector<Symbol> statics;  // by begin, as loaded
  std::vector<Symbol> ldm;      // by begin, in the TLS block
  std::vector<Symbol> slave_functions;
  bool unseen_clock = false;
};

std::uintptr_t program_base() {
  std::uintptr_t base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<std::uintptr_t*>(out) = info->dlpi_addr;
        return 1;
      },
      &base);
  return base;
}

std::string plain(const char* name) {
  std::string text = name;
  if (text.rfind("_Z", 0) == 0) {  // otherwise "b" would become "bool"
    int status = 0;
    char* readable = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    if (readable != nullptr) text = readable;
    std::free(readable);
  }
  // gcc numbers the statics of functions: "reply.3".
  const std::size_t dot = text.rfind('.');
  if (dot != std::string::npos && dot > 0 &&
      text.find_first_not_of("0123456789", dot + 1) == std::string::npos) {
    text.erase(dot);
  }
  return text;
}

Variables read_variables() {
  Variables all;
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string image((std::istreambuf_iterator<char>(file)), {});
  if (image.size() < sizeof(Elf64_Ehdr)) return all;
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(image.data());
  const auto* sections =
      reinterpret_cast<const Elf64_Shdr*>(image.data() + header->e_shoff);
  const std::uintptr_t base = program_base();
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(
        image.data() + sections[i].sh_offset);
    const char* names = image.data() + sections[sections[i].sh_link].sh_offset;
    for (std::size_t s = 0; s < sections[i].sh_size / sizeof(Elf64_Sym); ++s) {
      const Elf64_Sym& symbol = symbols[s];
      const auto type = ELF64_ST_TYPE(symbol.st_info);
      if (symbol.st_shndx == SHN_UNDEF &&
          std::strcmp(names + symbol.st_name, kClock) == 0) {
        all.unseen_clock = true;
      }
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_size == 0) continue;
      if (type == STT_OBJECT) {
        all.statics.push_back({plain(names + symbol.st_name),
                               base + symbol.st_value, symbol.st_size});
      } else if (type == STT_TLS) {
        all.ldm.push_back(
            {plain(names + symbol.st_name), symbol.st_value, symbol.st_size});
      } else if (type == STT_FUNC &&
                 std::strncmp(names + symbol.st_name, kSlavePrefix,
                              sizeof kSlavePrefix - 1) == 0) {
        all.slave_functions.push_back(
            {plain(names + symbol.st_name + sizeof kSlavePrefix - 1),
             base + symbol.st_value, symbol.st_size});
      }
    }
  }
  const auto by_begin = [](const Symbol& a, const Symbol& b) {
    return a.begin < b.begin;
  };
  std::sort(all.statics.begin(), all.statics.end(), by_begin);
  std::sort(all.ldm.begin(), all.ldm.end(), by_begin);
  std::sort(all.slave_functions.begin(), all.slave_functions.end(), by_begin);
  return all;
}

const Variables& variables() {
  static const Variables* const all = new Variables(read_variables());
  return *all;
}

// find_before() returns the last symbol that begins at or before an address.
Symbol find_before(const std::vector<Symbol>& symbols, std::uintptr_t at) {
  auto next = std::upper_bound(
      symbols.begin(), symbols.end(), at,
      [](std::uintptr_t a, const Symbol& symbol) { return a < symbol.begin; });
  return next == symbols.begin() ? Symbol{} : *--next;
}

Symbol find_in(const std::vector<Symbol>& symbols, std::uintptr_t at) {
  Symbol symbol = find_before(symbols, at);
  return at < symbol.begin + symbol.bytes ? symbol : Symbol{};
}

std::string from_here(const char* file) {
  char here[PATH_MAX];
  if (getcwd(here, sizeof here) == nullptr) return file;
  const std::size_t length = std::strlen(here);
  const bool below =
      std::strncmp(file, here, length) == 0 && file[length] == '/';
  std::string name = below ? file + length + 1 : file;
  while (name.rfind("./", 0) == 0) name.erase(0, 2);
  return name;
}

}  // namespace

Location locate(const void* pc) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  static backtrace_state* const state = backtrace_create_state(
      nullptr, 0, [](void*, const char*, int) {}, nullptr);
  Location at{"?", 0};
  if (state == nullptr || pc == nullptr) return at;
  backtrace_pcinfo(
      state, reinterpret_cast<std::uintptr_t>(pc) - 1,
      [](void* out, std::uintptr_t, const char* file, int line, const char*) {
        if (file == nullptr) return 0;
        // The innermost of inlined frames comes first. The user's code is
        // preferred to the C++ library's.
        auto& found = *static_cast<Location*>(out);
        const bool system = std::strncmp(file, "/usr/", 5) == 0;
        if (!system || found.line == 0) found = {from_here(file), line};
        return system ? 0 : 1;
      },
      [](void*, const char*, int) {}, &at);
  return at;
}

Symbol find_variable(std::uintptr_t address) {
  return find_in(variables().statics, address);
}

Symbol find_ldm_variable(std::uintptr_t offset) {
  return find_in(variables().ldm, offset);
}

Symbol find_ldm_variable_before(std::uintptr_t offset) {
  return find_before(variables().ldm, offset);
}

std::string largest_ldm_variables() {
  std::vector<Symbol> all = variables().ldm;
  std::stable_sort(
      all.begin(), all.end(),
      [](const Symbol& a, const Symbol& b) { return a.bytes > b.bytes; });
  all.resize(std::min<std::size_t>(all.size(), 3));
  std::string text;
  for (const Symbol& symbol : all) {
    text += (text.empty() ? "" : ", ") + symbol.name + " (" +
            std::to_string(symbol.bytes) + " bytes)";
  }
  return text;
}

std::string name_of_function(const void* function) {
  const Symbol symbol = find_in(variables().slave_functions,
                                reinterpret_cast<std::uintptr_t>(function));
  if (!symbol.name.empty()) return symbol.name;
  const Location at = locate(static_cast<const char*>(function) + 1);
  return at.file + ":" + std::to_string(at.line);
}

bool reads_clock_unseen() { return variables().unseen_clock; }

namespace {

std::string describe(const Allocation& allocation) {
  const Location at = locate(allocation.pc);
  return "the " + std::to_string(allocation.bytes) + " bytes allocated" +
         (at.line == 0 ? "" : " at " + at.file + ":" + std::to_string(at.line));
}

}  // namespace

std::string describe(std::uintptr_t address) {
  const Symbol symbol = find_variable(address);
  if (!symbol.name.empty()) {
    return symbol.name + " + " + std::to_string(address - symbol.begin);
  }
  if (const Slave* slave = has_machine() ? ldm_owner(address) : nullptr) {
    const auto statics = reinterpret_cast<std::uintptr_t>(slave->statics);
    const Symbol variable = find_ldm_variable(address - statics);
    return (variable.name.empty()
                ? "byte " +
                      std::to_string(address - reinterpret_cast<std::uintptr_t>(
                                                   slave->slot))
                : variable.name + " + " +
                      std::to_string(address - statics - variable.begin)) +
           " of the LDM of cg " + std::to_string(slave->group) + " slave " +
           std::to_string(slave->id);
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

}  // namespace swamp::sunway::check

namespace swamp::sunway::check {
namespace {

// Mapping is a line of /proc/self/maps.
struct Mapping {
  std::uintptr_t begin, end;
  bool read, write, shared, is_heap;
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
                     access[3] == 's', std::strstr(line, "[heap]") != nullptr});
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

const Slave* ldm_owner(std::uintptr_t address) {
  const Machine& all = machine();
  for (const Group& group : all.groups) {
    const auto begin = reinterpret_cast<std::uintptr_t>(group.memory.load());
    const std::size_t number = (address - begin) / all.slot_bytes;
    if (begin != 0 && number < group.slaves.size()) {
      return group.slaves[number].get();
    }
  }
  return nullptr;
}

bool shares_memory() {
  const std::vector<Mapping> all = read_mappings();
  return std::any_of(all.begin(), all.end(), [](const Mapping& mapping) {
    return mapping.shared && mapping.write;
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
  const Symbol variable = find_variable(address);
  if (!variable.name.empty()) {
    const std::size_t end = variable.begin + variable.bytes;
    if (address + bytes > end) {
      return "runs " + std::to_string(address + bytes - end) +
             " bytes beyond the end of " + variable.name + " (" +
             std::to_string(variable.bytes) + " bytes)";
    }
  }
  if (ldm_owner(address) != nullptr) return "is in LDM, not in main memory";
  const bool is_mapped = mapped_bytes(address, bytes, write) >= bytes;
  if (is_mapped && !variable.name.empty()) return "";
  const std::string near = near_block(address, is_mapped);
  if (is_mapped && near.empty()) return "";
  return "is not memory of the program: " +
         (near.empty() ? "not allocated, freed, or not " +
                             std::string(write ? "writable" : "readable")
                       : near);
}

std::string KnownMain::look_up(std::uintptr_t address, std::size_t bytes,
                               bool write) {
  const std::uint64_t now = check::releases();
  std::string why = why_not_main(address, bytes, write);
  if (!why.empty()) return why;
  Range& range = ranges_[address / 4096 % ranges_.size()];
  const Allocation allocation = find_allocation(address);
  const Symbol variable = find_variable(address);
  if (allocation.bytes != 0) {
    range = {allocation.begin, allocation.begin + allocation.bytes, true, now};
  } else if (!variable.name.empty()) {
    range = {variable.begin, variable.begin + variable.bytes, write, now};
  } else {
    range = {address, address + bytes, write, now};
  }
  return why;
}

std::size_t readable_bytes(std::uintptr_t address, std::size_t most) {
  const Allocation allocation = find_allocation(address);
  if (allocation.bytes != 0) {
    return std::min(most, allocation.begin + allocation.bytes - address);
  }
  const Symbol variable = find_variable(address);
  if (!variable.name.empty()) {
    return std::min(most, variable.begin + variable.bytes - address);
  }
  return std::min(most, mapped_bytes(address, most, false));
}

}  // namespace swamp::sunway::check
