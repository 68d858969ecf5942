// MpiCommunicator, run by every rank. It keeps the contract of every
// communicator, also with pieces of many messages.
#include "swamp/mpi.h"

#include <gtest/gtest.h>
#include <mpi.h>

#include <atomic>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/communicator_contract.h"
#include "swamp/communicator.h"
#include "swamp/mixed_precision.h"

namespace swamp::test {
namespace {

std::unique_ptr<MpiCommunicator> the_world;

// All ranks, as made by main().
MpiCommunicator& world() { return *the_world; }

int world_handle() { return MPI_Comm_c2f(MPI_COMM_WORLD); }

TEST(MpiContract, World) { check_communicator(world()); }

TEST(MpiContract, ManyMessages) {
  MpiOptions options;
  options.message_bytes = 64;
  MpiCommunicator small =
      MpiCommunicator::from_fortran(world_handle(), options);
  check_exchanges(small);
  options.message_bytes = 999;
  MpiCommunicator odd = MpiCommunicator::from_fortran(world_handle(), options);
  check_communicator(odd);
}

// The smallest limit of the ranks is used.
TEST(MpiContract, DifferentMessages) {
  MpiOptions options;
  options.message_bytes = 1000 + 1000 * rank_of(world());
  MpiCommunicator ranks =
      MpiCommunicator::from_fortran(world_handle(), options);
  check_exchanges(ranks);
}

TEST(MpiContract, LargePiece) {
  MpiOptions options;
  options.message_bytes = (std::size_t{1} << 20) - 3;
  MpiCommunicator ranks =
      MpiCommunicator::from_fortran(world_handle(), options);
  const std::size_t last = ranks_of(ranks) - 1;
  check_exchange(ranks, [=](std::size_t from, std::size_t to) {
    return from == 0 && to == last ? (std::size_t{64} << 20) + 5 : 3;
  });
}

TEST(MpiContract, LargePieceInOneMessage) {
  const std::size_t last = ranks_of(world()) - 1;
  check_exchange(world(), [=](std::size_t from, std::size_t to) {
    return from == last && to == 0 ? std::size_t{16} << 20 : 41;
  });
}

TEST(MpiContract, CommunicatorsSideBySide) {
  MpiCommunicator other = MpiCommunicator::from_fortran(world_handle());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(world().sum(std::uint64_t{1}), ranks_of(world()));
    EXPECT_EQ(other.sum(std::uint64_t{2}), 2 * ranks_of(world()));
  }
}

TEST(MpiContract, ManyRounds) {
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(world().max(i % 7 == world().rank() ? 1.0f : 0.0f),
              i % 7 < world().size() ? 1.0f : 0.0f);
  }
}

TEST(MpiContract, AnotherThread) {
  std::thread([] { check_sum(world()); }).join();
}

// Ranks as a grid: rows have a part of the model each, columns a part of the
// batch. An overflow in one gradient of one rank skips the step of all, and the
// norm is that of the whole model.
TEST(MpiGrid, TwoCommunicators) {
  if (world().size() != 4) GTEST_SKIP() << "needs four ranks";
  const int row = world().rank() / 2;
  const int column = world().rank() % 2;
  MPI_Comm data = MPI_COMM_NULL;
  MPI_Comm model = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, row, column, &data);
  MPI_Comm_split(MPI_COMM_WORLD, column, row, &model);
  {
    MpiCommunicator data_ranks =
        MpiCommunicator::from_fortran(MPI_Comm_c2f(data));
    MpiCommunicator model_ranks =
        MpiCommunicator::from_fortran(MPI_Comm_c2f(model));
    constexpr std::size_t kCount = 20000;
    std::vector<float> weights(kCount, 1), gradients(kCount);
    MixedPrecisionOptions options;
    options.communicator = &data_ranks;
    options.model_communicator = &model_ranks;
    options.shard = true;
    options.loss_scale = 4;
    options.clip_grad = 1;
    options.reduction = GradientReduction::sum;
    MixedPrecisionOptimizer optimizer(
        {{{{"w" + std::to_string(row),
            {weights.data(), kCount, kFloat32},
            {gradients.data(), kCount, kFloat32}}},
          {},
          {}}},
        options);
    for (int planted = -1; planted < 4; ++planted) {
      // The sum of a row is 4 * (row + 1) everywhere.
      for (float& value : gradients) {
        value = static_cast<float>((row + 1) * (column == 0 ? 1 : 3));
      }
      if (world().rank() == planted) {
        gradients[kCount - 1] = std::numeric_limits<float>::infinity();
      }
      const StepResult result = optimizer.step();
      EXPECT_EQ(result.success, planted < 0);
      if (planted < 0) {
        EXPECT_EQ(result.grad_norm, std::sqrt(5.0 * kCount));
      }
      EXPECT_EQ(result.overflow_rank >= 0,
                planted >= 0 && planted / 2 == row && column == 1);
    }
    EXPECT_EQ(optimizer.step_count(), 1);
    EXPECT_LT(weights[0], 1);
    EXPECT_EQ(weights[0], weights[kCount - 1]);
    if (world().rank() == 3) optimizer.set_lr(0, 0.5);
    try {
      optimizer.step();
      ADD_FAILURE() << "ranks that differ";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.find(row == 1 ? "lr" : "ranks: got") != std::string::npos,
                true)
          << text;
    }
    optimizer.set_lr(0, 1e-3);
    gradients[kCount - 1] = 1;
    EXPECT_TRUE(optimizer.step().success);
  }
  MPI_Comm_free(&data);
  MPI_Comm_free(&model);
}

// ---- How an MpiCommunicator is made, and the errors.

TEST(MpiJoin, RankAndSizeAreThoseOfMpi) {
  int rank = -1;
  int size = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  EXPECT_EQ(world().rank(), rank);
  EXPECT_EQ(world().size(), size);
  EXPECT_EQ(launched_ranks(), size);
}

TEST(MpiJoin, PartOfTheWorld) {
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world().rank() % 2, -world().rank(), &half);
  {
    MpiCommunicator ranks = MpiCommunicator::from_fortran(MPI_Comm_c2f(half));
    const int size = (world().size() + 1 - world().rank() % 2) / 2;
    EXPECT_EQ(ranks.size(), size);
    EXPECT_EQ(ranks.rank(), size - 1 - world().rank() / 2);
    EXPECT_EQ(ranks.sum(std::uint64_t{1}), static_cast<std::uint64_t>(size));
  }
  // The caller still owns its communicator.
  EXPECT_EQ(MPI_Comm_free(&half), MPI_SUCCESS);
}

TEST(MpiJoin, KeepsTheCallersErrorHandler) {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_ARE_FATAL);
  { const auto ranks = MpiCommunicator::from_fortran(MPI_Comm_c2f(copy)); }
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(copy, &handler);
  EXPECT_TRUE(handler == MPI_ERRORS_ARE_FATAL);
  MPI_Errhandler_free(&handler);
  MPI_Comm_free(&copy);
}

// Returns the text of the Error of a constructor that fails.
std::string refusal(int handle, const MpiOptions& options = {}) {
  try {
    MpiCommunicator::from_fortran(handle, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), SWAMP_INVALID_ARGUMENT);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(MpiJoin, RefusesInvalidCommunicators) {
  for (const int handle : {-1, 123456, MPI_Comm_c2f(MPI_COMM_NULL)}) {
    EXPECT_EQ(refusal(handle), "MpiCommunicator::from_fortran: handle: got " +
                                   std::to_string(handle) +
                                   ", which is not a communicator, expected "
                                   "the handle of an intracommunicator");
  }
}

TEST(MpiJoin, RefusesAnIntercommunicator) {
  if (world().size() < 2) GTEST_SKIP() << "needs two ranks";
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm both = MPI_COMM_NULL;
  const int side = world().rank() % 2;
  MPI_Comm_split(MPI_COMM_WORLD, side, 0, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - side, 7, &both);
  EXPECT_NE(
      refusal(MPI_Comm_c2f(both)).find(", an intercommunicator, expected"),
      std::string::npos);
  MPI_Comm_free(&both);
  MPI_Comm_free(&half);
}

TEST(MpiJoin, RefusesBadOptions) {
  const int handle = MPI_Comm_c2f(MPI_COMM_WORLD);
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{63}, std::size_t{INT_MAX} + 1}) {
    MpiOptions options;
    options.message_bytes = bytes;
    EXPECT_EQ(refusal(handle, options),
              "MpiCommunicator: options.message_bytes: got " +
                  std::to_string(bytes) + ", expected from 64 to 2147483647");
  }
}

TEST(MpiJoin, RefusesABadTimeout) {
  const char* before = std::getenv("SWAMP_MPI_TIMEOUT");
  const std::string kept = before == nullptr ? "" : before;
  MpiOptions options;
  options.timeout_seconds = 5;  // the variable is read nevertheless
  for (const char* value : {"-1", "2.5", "1e3", "ten", " 3", "1000000000"}) {
    setenv("SWAMP_MPI_TIMEOUT", value, 1);
    const char* quote = std::string(value) == "1000000000" ? "" : "\"";
    EXPECT_EQ(refusal(MPI_Comm_c2f(MPI_COMM_WORLD), options),
              std::string("SWAMP_MPI_TIMEOUT: got ") + quote + value + quote +
                  ", expected a whole number of seconds from "
                  "0 (no limit) to 999999999");
  }
  for (const char* value : {"", "0", "999999999"}) {
    setenv("SWAMP_MPI_TIMEOUT", value, 1);
    MpiCommunicator ranks =
        MpiCommunicator::from_fortran(MPI_Comm_c2f(MPI_COMM_WORLD));
    ranks.barrier();
  }
  setenv("SWAMP_MPI_TIMEOUT", kept.c_str(), 1);
}

// The last communicator has finalised the MPI that the first initialised; a
// later one is an error.
bool is_finalized() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) return false;
  try {
    const MpiCommunicator late;
  } catch (const Error& error) {
    return std::string(error.what()).find("MPI: got a finalised one") !=
           std::string::npos;
  }
  return false;
}

}  // namespace

}  // namespace swamp::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  swamp::test::the_world = std::make_unique<swamp::MpiCommunicator>();
  const int failed = RUN_ALL_TESTS();
  swamp::test::the_world.reset();
  if (failed == 0 && !swamp::test::is_finalized()) {
    std::fputs("MPI is not finalised with the last communicator\n", stderr);
    return 1;
  }
  return failed;
}
