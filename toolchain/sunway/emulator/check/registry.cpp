#include "toolchain/sunway/emulator/check/registry.h"

#include <pthread.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "toolchain/sunway/emulator/check/location.h"

extern "C" void* __libc_malloc(std::size_t bytes);
extern "C" void __libc_free(void* memory);

namespace swamp::sunway::check {
namespace {

// InnerAllocator allocates past the malloc that is being recorded.
template <class T>
struct InnerAllocator {
  using value_type = T;
  InnerAllocator() = default;
  template <class U>
  InnerAllocator(const InnerAllocator<U>&) noexcept {}
  T* allocate(std::size_t count) {
    return static_cast<T*>(__libc_malloc(count * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t) noexcept { __libc_free(memory); }
  bool operator==(const InnerAllocator&) const noexcept { return true; }
  bool operator!=(const InnerAllocator&) const noexcept { return false; }
};

using Blocks = std::map<std::uintptr_t, Block, std::less<std::uintptr_t>,
                        InnerAllocator<std::pair<const std::uintptr_t, Block>>>;

std::mutex mutex;
Blocks& blocks() {
  alignas(Blocks) static unsigned char memory[sizeof(Blocks)];
  static Blocks* const all = new (memory) Blocks;  // never destroyed
  return *all;
}

// fork() waits for the mutex: in the child no thread could unlock it, and
// allocation would block.
[[gnu::constructor]] void register_fork_handlers() {
  pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                 [] { mutex.unlock(); });
}

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

// mapped_bytes() is how much is mapped from an address on, in adjacent mappings
// with the same access.
std::size_t mapped_bytes(const std::vector<Mapping>& all,
                         std::uintptr_t address, bool write) {
  std::uintptr_t end = address;
  for (const Mapping& mapping : all) {
    if (mapping.begin <= end && end < mapping.end && mapping.read &&
        (mapping.write || !write) && !mapping.is_heap) {
      end = mapping.end;
    }
  }
  return end - address;
}

// A cache: the mappings seldom change, so they are read again only if a check
// fails.
std::vector<Mapping> known_mappings;
std::mutex known_mutex;

std::size_t mapped_bytes(std::uintptr_t address, std::size_t want, bool write) {
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

void add_block(const void* memory, std::size_t bytes, const void* pc) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::lock_guard<std::mutex> lock(mutex);
  blocks()[begin] = {begin, bytes, pc};
}

Block remove_block(const void* memory) noexcept {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = blocks().find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == blocks().end()) return {};
  const Block block = found->second;
  blocks().erase(found);
  return block;
}

Block find_block(std::uintptr_t address) {
  const std::lock_guard<std::mutex> lock(mutex);
  auto next = blocks().upper_bound(address);
  if (next == blocks().begin()) return {};
  --next;
  const Block& block = next->second;
  return address - block.begin < block.bytes ? block : Block{};
}

std::string why_not_main(std::uintptr_t address, std::size_t bytes,
                         bool write) {
  const Block block = find_block(address);
  if (block.bytes != 0) {
    if (address + bytes <= block.begin + block.bytes) return "";
    return "runs " +
           std::to_string(address + bytes - block.begin - block.bytes) +
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
  if (mapped_bytes(address, bytes, write) < bytes) {
    return "is not memory of the program: not allocated, freed, or not to "
           "be " +
           std::string(write ? "written" : "read");
  }
  return "";
}

std::size_t readable_bytes(std::uintptr_t address, std::size_t most) {
  const Block block = find_block(address);
  if (block.bytes != 0) {
    return std::min(most, block.begin + block.bytes - address);
  }
  const Symbol variable = find_variable(address);
  if (!variable.name.empty()) {
    return std::min(most, variable.begin + variable.bytes - address);
  }
  return std::min(most, mapped_bytes(address, most, false));
}

}  // namespace swamp::sunway::check
