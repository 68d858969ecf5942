// Backend athread: slaves are the slave cores of a Sunway machine, or of the
// one that swcc emulates, and are started by the vendor's calls. The code that
// runs on them is runtime/athread/slave.cpp.
#include <athread.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/athread/protocol.h"
#include "runtime/backend.h"
#include "runtime/process.h"
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

// All machines share the slaves and this call to them; fork_mutexes().slaves
// guards both.
LaunchCall shared_call;

class AthreadBackend final : public Backend {
 public:
  explicit AthreadBackend(const Chip& chip)
      : Backend(chip.ldm_bytes), chip_(chip) {}

  void run(const Launch& launch) noexcept override {
    if (launch.slaves == 1) {
      run_slaves(launch, 0, 1, 0);
      return;
    }
    for (int i = 0; i < launch.slaves; ++i) {
      launch.results[i].first_segment = athread::kNotRun;
    }
    spawn_and_join(launch);
    // The master runs the parts of slaves that had no LDM left, because the
    // program's own code holds it, or that do not exist, as after fork().
    for (int i = 0; i < launch.slaves; ++i) {
      if (launch.results[i].first_segment == athread::kNotRun) {
        run_slaves(launch, i, i + 1, 0);
      }
    }
  }

 private:
  void spawn_and_join(const Launch& launch) const noexcept {
    if (chip_.slave_cores == 0 || fork_generation() != chip_.generation) return;
    const std::lock_guard<std::mutex> lock(fork_mutexes().slaves);
    shared_call = LaunchCall{launch, chip_.group_cores, chip_.slave_cores};
    if (athread_spawn_cgs(SLAVE_FUN(swamp_slave_run), &shared_call) == 0) {
      athread_join_cgs();
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
