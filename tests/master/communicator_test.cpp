// Communicator alone and over threads: results, errors, and launched_ranks().
#include "swamp/communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "support/communicator_contract.h"
#include "support/errors.h"
#include "support/thread_communicator.h"

namespace swamp::test {
namespace {

TEST(Communicator, AloneKeepsTheContract) {
  EXPECT_EQ(Communicator::alone().rank(), 0);
  EXPECT_EQ(Communicator::alone().size(), 1);
  EXPECT_EQ(&Communicator::alone(), &Communicator::alone());
  check_communicator(Communicator::alone());
}

TEST(Communicator, AloneServesThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] { check_sum(Communicator::alone()); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Communicator, RanksKeepTheContract) {
  for (const int count : {2, 3, 4, 8}) run_ranks(count, check_communicator);
}

TEST(Communicator, BarrierWaitsForAll) {
  std::atomic<int> arrived{0};
  run_ranks(4, [&](Communicator& ranks) {
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      ranks.barrier();
      EXPECT_GE(arrived.load(), 4 * round);
      ranks.barrier();
    }
  });
}

TEST(Communicator, NamesTheBadArgument) {
  Communicator& alone = Communicator::alone();
  float value = 7.0f;
  const ConstBytes send = {&value, 4};
  const ConstBytes null_send = {nullptr, 1};
  const MutableBytes receive = {&value, 4};
  const MutableBytes null_receive = {nullptr, 4};
  const MutableBytes shorter = {&value, 3};
  EXPECT_EQ(error_of([&] { alone.exchange(nullptr, &receive); }),
            "Communicator::exchange: send: got null, expected an address");
  EXPECT_EQ(error_of([&] { alone.exchange(&send, nullptr); }),
            "Communicator::exchange: receive: got null, expected an address");
  EXPECT_EQ(error_of([&] { alone.exchange(&null_send, &receive); }),
            "Communicator::exchange: send[0].data: got null, expected the "
            "address of 1 byte");
  EXPECT_EQ(error_of([&] { alone.exchange(&send, &null_receive); }),
            "Communicator::exchange: receive[0].data: got null, expected the "
            "address of 4 bytes");
  EXPECT_EQ(error_of([&] { alone.exchange(&send, &shorter); }),
            "Communicator::exchange: send[0].bytes: got 4, expected 3, as "
            "receive[0].bytes");
  EXPECT_EQ(error_of([&] { alone.all_gather(nullptr, 4, &value); }),
            "Communicator::all_gather: mine: got null, expected the address of "
            "4 bytes");
  EXPECT_EQ(error_of([&] { alone.all_gather(&value, 4, nullptr); }),
            "Communicator::all_gather: all: got null, expected the address of "
            "4 bytes");
  EXPECT_EQ(error_of([&] { alone.all_gather_varied(&value, nullptr, &value); }),
            "Communicator::all_gather: bytes: got null, expected an address");
  EXPECT_EQ(value, 7.0f);
}

// ThreadCommunicator fails as MPI does.
TEST(ThreadCommunicator, RefusesDifferentLengths) {
  EXPECT_EQ(error_of([] {
              run_ranks(2, [](Communicator& ranks) {
                const std::size_t bytes = 4 + rank_of(ranks);
                std::vector<char> mine(bytes);
                std::vector<char> all(2 * bytes);
                ranks.all_gather(mine.data(), bytes, all.data());
              });
            }),
            "rank 1 sends 5 bytes to rank 0, which expects 4");
}

TEST(ThreadCommunicator, ARankThatEndsIsAnErrorForTheOthers) {
  EXPECT_EQ(error_of(
                [] {
                  run_ranks(3, [](Communicator& ranks) {
                    if (ranks.rank() != 1) ranks.barrier();
                  });
                },
                SWAMP_INTERNAL),
            "a rank has ended");
}

// ---- launched_ranks(): the variables that mpirun and srun set.

constexpr const char* kVariables[] = {"OMPI_COMM_WORLD_SIZE",
                                      "MV2_COMM_WORLD_SIZE",
                                      "PMI_SIZE",
                                      "PMI_RANK",
                                      "PMIX_RANK",
                                      "SLURM_NTASKS",
                                      "SLURM_STEP_NUM_TASKS"};

// LaunchedRanks restores the variables at its end.
class LaunchedRanks : public testing::Test {
 protected:
  LaunchedRanks() {
    for (const char* variable : kVariables) {
      const char* value = std::getenv(variable);
      if (value != nullptr) before_[variable] = value;
    }
  }
  ~LaunchedRanks() override { set(before_); }

  static int with(const std::map<std::string, std::string>& variables) {
    set(variables);
    return launched_ranks();
  }

 private:
  static void set(const std::map<std::string, std::string>& variables) {
    for (const char* variable : kVariables) unsetenv(variable);
    for (const auto& [name, value] : variables) {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }

  std::map<std::string, std::string> before_;
};

TEST_F(LaunchedRanks, OneWithoutVariables) { EXPECT_EQ(with({}), 1); }

TEST_F(LaunchedRanks, TheLaunchersOfMpi) {
  EXPECT_EQ(with({{"OMPI_COMM_WORLD_SIZE", "4"}}), 4);
  EXPECT_EQ(with({{"MV2_COMM_WORLD_SIZE", "16"}}), 16);
  EXPECT_EQ(with({{"PMI_SIZE", "3"}, {"PMI_RANK", "2"}}), 3);
  EXPECT_EQ(with({{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMI_SIZE", "3"}}), 1);
}

TEST_F(LaunchedRanks, SlurmOnlyWithOneOfItsPlugIns) {
  EXPECT_EQ(with({{"SLURM_NTASKS", "8"}}), 1);  // a batch script
  EXPECT_EQ(with({{"SLURM_NTASKS", "8"}, {"PMIX_RANK", "0"}}), 8);
  EXPECT_EQ(with({{"SLURM_NTASKS", "8"},
                  {"SLURM_STEP_NUM_TASKS", "2"},
                  {"PMI_RANK", "0"}}),
            2);
  EXPECT_EQ(with({{"PMIX_RANK", "0"}}), 1);
}

TEST_F(LaunchedRanks, NonNumbersAreIgnored) {
  for (const char* value : {"", "0", "-4", "4x", "four", "99999999999"}) {
    EXPECT_EQ(with({{"OMPI_COMM_WORLD_SIZE", value}}), 1) << value;
    EXPECT_EQ(with({{"OMPI_COMM_WORLD_SIZE", value}, {"PMI_SIZE", "2"}}), 2)
        << value;
  }
}

}  // namespace
}  // namespace swamp::test
