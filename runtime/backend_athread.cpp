// Backend athread: slaves are the slave cores of a Sunway machine, or of the
// one that swcc emulates, and are started by the vendor's calls. The code that
// runs on them is runtime/athread/slave.cpp.
#include <athread.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "runtime/athread/protocol.h"
#include "runtime/backend.h"
#include "runtime/fork_cancel.h"
#include "swamp/error.h"

extern "C" {
void SLAVE_FUN(swamp_slave_greet)(void*);
void SLAVE_FUN(swamp_slave_run)(void*);
}

namespace swamp::runtime {
namespace {

using athread::Greeting;
using athread::kMaxSlaves;
using athread::LaunchCall;
using athread::SharedWords;

// Part of a slave's LDM that is left to its stack.
constexpr std::size_t kStackBytes = 16 * 1024;

// Chip describes the slaves of all core groups that the program was given.
struct Chip {
  int generation = 0;  // of forks
  int group_cores = 0;
  int slave_cores = 0;
  std::size_t ldm_bytes = 0;  // that each can have for a launch
};

// On the heap: slaves of other core groups may not be able to read the master's
// stack.
struct RollCall {
  athread::GreetingCall call;
  Greeting greetings[kMaxSlaves];
};

// find_chip() runs a function on all slaves. In a child after fork() there are
// none.
Chip find_chip() {
  Chip chip;
  chip.generation = fork_generation();
  chip.ldm_bytes = ~std::size_t{0};
  if (chip.generation != 0) return chip;
  athread_init_cgs();
  const auto roll = std::make_unique<RollCall>();
  roll->call.greetings = roll->greetings;
  const int status =
      athread_spawn_cgs(SLAVE_FUN(swamp_slave_greet), &roll->call);
  if (status != 0) {
    throw Error(SWAMP_INTERNAL,
                "backend athread: athread_spawn_cgs(): got status " +
                    std::to_string(status) +
                    ", expected 0, which it returns if no slave is running");
  }
  athread_join_cgs();
  int groups = 0;
  for (int i = 0; i < kMaxSlaves; ++i) {
    const Greeting& greeting = roll->greetings[i];
    if (greeting.present == 0) continue;
    groups = i / athread::kSlavesPerGroup + 1;
    chip.group_cores =
        std::max(chip.group_cores, i % athread::kSlavesPerGroup + 1);
    chip.ldm_bytes = std::min<std::size_t>(chip.ldm_bytes, greeting.ldm_bytes);
  }
  chip.slave_cores = groups * chip.group_cores;
  // Also subtract what aligns a launch's memory to a line.
  const std::size_t kept = kStackBytes + kLdmAlignment;
  chip.ldm_bytes = chip.ldm_bytes > kept ? chip.ldm_bytes - kept : 0;
  return chip;
}

// All machines share the slaves, this call to them and the memory of its shared
// words; fork_mutexes().slaves guards them.
LaunchCall shared_call;
std::vector<std::uint32_t> shared_words;

// has_shared_words() returns whether slaves may write part of a word of operand
// s: its segment, its units or their lines do not consist of whole words.
bool has_shared_words(const Segment& segment, int s) noexcept {
  const Operand& operand = segment.operation->operands[s];
  return (operand.access == Access::out || operand.access == Access::inout) &&
         (reinterpret_cast<std::uintptr_t>(segment.data()[s]) |
          operand.line_bytes | operand.line_step | operand.unit_step) %
                 4 !=
             0;
}

// make_shared_words() returns memory for the shared words of a launch, if it
// may have any. Returns nothing if slaves may write parts of words between
// units or lines that lie apart: SharedWords has no copies of these words.
std::optional<SharedWords> make_shared_words(const Launch& launch) {
  const SegmentTable& table = launch.table;
  SharedWords words;
  if (table.count == 0) return words;
  words.operand_count = table[0].operation->operand_count;
  bool any = false;
  for (std::size_t i = 0; i < table.count; ++i) {
    for (int s = 0; s < words.operand_count; ++s) {
      if (!has_shared_words(table[i], s)) continue;
      const Operand& operand = table[i].operation->operands[s];
      if (operand.unit_step != operand.unit_bytes) return std::nullopt;
      any = true;
    }
  }
  if (!any) return words;
  const std::size_t count = words.count(table.count, launch.slaves);
  try {
    if (shared_words.size() < count) shared_words.resize(count);
  } catch (const std::bad_alloc&) {
    throw Error(SWAMP_OUT_OF_MEMORY, "cannot allocate " +
                                         std::to_string(count * 4) +
                                         " bytes for words that slaves share");
  }
  words.base = shared_words.data();
  return words;
}

// copy_shared_words() completes what a slave stored, after the join.
void copy_shared_words(const Launch& launch, int slave,
                       const SharedWords& words) noexcept {
  const SlaveRange& range = launch.ranges[slave];
  for (std::size_t i = range.begin_segment;
       i < range.end_segment + (range.end_unit != 0); ++i) {
    const Segment& segment = launch.table[i];
    const std::size_t first = i == range.begin_segment ? range.begin_unit : 0;
    const std::size_t end =
        i == range.end_segment ? range.end_unit : segment.count;
    if (first >= end) continue;
    for (int s = 0; s < words.operand_count; ++s) {
      if (!has_shared_words(segment, s)) continue;
      const std::size_t unit_step = segment.operation->operands[s].unit_step;
      const OperandPart part{i, s, segment.data()[s] + first * unit_step,
                             segment.data()[s] + end * unit_step};
      // At most 3 bytes at each end are in a shared word.
      const std::ptrdiff_t size = part.end - part.begin;
      for (std::ptrdiff_t k = 0; k < std::min<std::ptrdiff_t>(3, size); ++k) {
        for (std::byte* const byte : {part.begin + k, part.end - 1 - k}) {
          *byte = *words.copy(byte, part, slave);
        }
      }
    }
  }
}

class AthreadBackend final : public Backend {
 public:
  explicit AthreadBackend(const Chip& chip)
      : Backend(chip.ldm_bytes), chip_(chip) {}

  void run(const Launch& launch) override {
    if (launch.slaves == 1) {
      run_slaves(launch, 0, 1, 0);
      return;
    }
    for (int i = 0; i < launch.slaves; ++i) {
      launch.results[i].first_segment = athread::kNotRun;
    }
    spawn_and_join(launch);
    // The master runs the parts of slaves that had no LDM left, because the
    // program's own code holds it, or that do not exist, as after fork(), and
    // all parts if the slaves cannot write them.
    for (int i = 0; i < launch.slaves; ++i) {
      if (launch.results[i].first_segment == athread::kNotRun) {
        run_slaves(launch, i, i + 1, 0);
      }
    }
  }

 private:
  void spawn_and_join(const Launch& launch) const {
    if (chip_.slave_cores == 0 || fork_generation() != chip_.generation) return;
    const std::lock_guard<std::mutex> lock(fork_mutexes().slaves);
    const std::optional<SharedWords> words = make_shared_words(launch);
    if (!words) return;
    shared_call =
        LaunchCall{launch, *words, chip_.group_cores, chip_.slave_cores};
    if (athread_spawn_cgs(SLAVE_FUN(swamp_slave_run), &shared_call) != 0) {
      return;
    }
    athread_join_cgs();
    if (shared_call.shared_words.base == nullptr) return;
    for (int i = 0; i < launch.slaves; ++i) {
      if (launch.results[i].first_segment == athread::kNotRun) continue;
      copy_shared_words(launch, i, shared_call.shared_words);
    }
  }

  Chip chip_;
};

}  // namespace

std::unique_ptr<Backend> make_athread_backend(const BackendOptions&) {
  const std::lock_guard<std::mutex> lock(fork_mutexes().slaves);
  static const Chip chip = find_chip();
  return std::make_unique<AthreadBackend>(chip);
}

}  // namespace swamp::runtime
