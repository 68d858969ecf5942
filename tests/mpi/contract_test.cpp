// MpiCommunicator keeps the contract of every communicator, also with pieces of
// many messages.
#include <gtest/gtest.h>
#include <mpi.h>

#include <atomic>
#include <thread>

#include "mpi/world.h"
#include "support/communicator_contract.h"

namespace swamp::test {
namespace {

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

// The smaller limit of two ranks counts.
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

}  // namespace
}  // namespace swamp::test
