// Backend athread: what runs on the slave cores, and what on the master.
#include <athread.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/runtime/test_kernels.h"

extern "C" {
void SLAVE_FUN(test_take_ldm)(void*);
void SLAVE_FUN(test_give_ldm)(void*);
}

namespace swamp::test {
namespace {

// sides() returns the result of kSide for `count` elements on a machine of so
// many slaves.
std::vector<std::uint32_t> sides(std::uint32_t slaves, std::size_t count) {
  Machine machine(machine_config("athread", "view", slaves));
  const Operation operation(kSide, nullptr);
  std::vector<std::uint32_t> data(count, 7);
  TestList list(operation);
  list.add(count, {data.data()});
  run(machine, list);
  return data;
}

std::ptrdiff_t count_of(const std::vector<std::uint32_t>& all,
                        std::uint32_t value) {
  return std::count(all.begin(), all.end(), value);
}

// Also more slaves than slave cores, which then run several each.
TEST(AthreadTest, SlavesRunTheJob) {
  for (const std::uint32_t slaves : {2u, 64u, 384u, 1000u}) {
    EXPECT_EQ(count_of(sides(slaves, 50000), 1), 50000) << slaves;
  }
}

TEST(AthreadTest, AJobOfOneSlaveIsTheMasters) {
  EXPECT_EQ(count_of(sides(1, 50000), 0), 50000);
}

// A child must not inherit a locked mutex of the slaves from a thread that does
// not exist there.
TEST(AthreadTest, AForkWaitsForTheSlaves) {
  sides(64, 1000);
  std::atomic<bool> done{false};
  std::thread caller([&] {
    while (!done) sides(64, 50000);
  });
  int good = 0;
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(300);  // a hang is a failure
      const Machine own(machine_config("athread", "view", 64));
      _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (good != round + 1) break;
  }
  done = true;
  caller.join();
  EXPECT_EQ(good, 20);
}

// swamp does not use LDM that the program's own code has allocated.
TEST(AthreadTest, TheMasterRunsThePartsOfSlavesWithoutLdm) {
  sides(2, 1000);  // swamp has measured the LDM
  athread_spawn_cgs(SLAVE_FUN(test_take_ldm), nullptr);
  athread_join_cgs();
  const std::vector<std::uint32_t> without = sides(4, 40000);
  athread_spawn_cgs(SLAVE_FUN(test_give_ldm), nullptr);
  athread_join_cgs();
  EXPECT_EQ(count_of(without, 0), 10000);
  EXPECT_EQ(count_of(without, 1), 30000);
  EXPECT_EQ(std::count(without.begin() + 10000, without.begin() + 20000, 0u),
            10000);  // slave 1
  EXPECT_EQ(count_of(sides(4, 40000), 1), 40000);
}

}  // namespace
}  // namespace swamp::test
