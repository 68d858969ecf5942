// launched_ranks(): what mpirun and srun tell their processes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "swamp/communicator.h"

namespace swamp::test {
namespace {

constexpr const char* kVariables[] = {"OMPI_COMM_WORLD_SIZE",
                                      "MV2_COMM_WORLD_SIZE",
                                      "PMI_SIZE",
                                      "PMI_RANK",
                                      "PMIX_RANK",
                                      "SLURM_NTASKS",
                                      "SLURM_STEP_NUM_TASKS"};

// LaunchedRanks puts the variables back that were set before.
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

TEST_F(LaunchedRanks, OneWhereNothingIsSaid) { EXPECT_EQ(with({}), 1); }

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

TEST_F(LaunchedRanks, WhatIsNoNumberIsNotHeard) {
  for (const char* value : {"", "0", "-4", "4x", "four", "99999999999"}) {
    EXPECT_EQ(with({{"OMPI_COMM_WORLD_SIZE", value}}), 1) << value;
    EXPECT_EQ(with({{"OMPI_COMM_WORLD_SIZE", value}, {"PMI_SIZE", "2"}}), 2)
        << value;
  }
}

}  // namespace
}  // namespace swamp::test
