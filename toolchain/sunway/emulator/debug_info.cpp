// libbacktrace reads the program's debug information and symbol table at the
// first report. Variables are sorted by address, so that one is found by a
// binary search.
#include "toolchain/sunway/emulator/debug_info.h"

#include <backtrace.h>
#include <cxxabi.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sstream>
#include <vector>

namespace swamp::sunway {
namespace {

constexpr char kSlavePrefix[] = "slave_";  // added by swcc

// The symbol to which the macro that reads the slaves' counter refers.
constexpr char kClock[] = "swamp_slave_cycles";

// Variables is the program's symbol table: variables and slave functions.
struct Variables {
  std::vector<Symbol> statics;  // by begin, as loaded
  std::vector<Symbol> ldm;      // by begin, in the TLS block
  std::vector<Symbol> slave_functions;
  const Symbol none{};
  bool unseen_clock = false;
};

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
  const std::string image = program_image();
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
const Symbol& find_before(const std::vector<Symbol>& symbols,
                          std::uintptr_t at) {
  auto next = std::upper_bound(
      symbols.begin(), symbols.end(), at,
      [](std::uintptr_t a, const Symbol& symbol) { return a < symbol.begin; });
  return next == symbols.begin() ? variables().none : *--next;
}

const Symbol& find_in(const std::vector<Symbol>& symbols, std::uintptr_t at) {
  const Symbol& symbol = find_before(symbols, at);
  return at < symbol.begin + symbol.bytes ? symbol : variables().none;
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

std::string program_image() {
  std::ostringstream image;
  image << std::ifstream("/proc/self/exe", std::ios::binary).rdbuf();
  return image.str();
}

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

const Symbol& find_variable(std::uintptr_t address) {
  return find_in(variables().statics, address);
}

const Symbol& find_ldm_variable(std::uintptr_t offset) {
  return find_in(variables().ldm, offset);
}

const Symbol& find_ldm_variable_before(std::uintptr_t offset) {
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
  const Symbol& symbol = find_in(variables().slave_functions,
                                 reinterpret_cast<std::uintptr_t>(function));
  if (!symbol.name.empty()) return symbol.name;
  const Location at = locate(static_cast<const char*>(function) + 1);
  return at.text();
}

bool reads_clock_unseen() { return variables().unseen_clock; }

}  // namespace swamp::sunway
