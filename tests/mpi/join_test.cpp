// How an MpiCommunicator is made, and what is refused.
#include <gtest/gtest.h>
#include <mpi.h>

#include <climits>
#include <cstdlib>
#include <string>

#include "mpi/world.h"
#include "swamp/communicator.h"

namespace swamp::test {
namespace {

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
  // The caller's is still the caller's.
  EXPECT_EQ(MPI_Comm_free(&half), MPI_SUCCESS);
}

TEST(MpiJoin, TheCallersErrorHandlerStays) {
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

// The text of the Error of a communicator that is not made.
std::string refusal(int handle, const MpiOptions& options = {}) {
  try {
    MpiCommunicator::from_fortran(handle, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), SWAMP_INVALID_ARGUMENT);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(MpiJoin, RefusesWhatIsNoCommunicator) {
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
  options.timeout_seconds = 5;  // the variable is read all the same
  for (const char* value : {"-1", "2.5", "1e3", "ten", " 3", "1000000000"}) {
    setenv("SWAMP_MPI_TIMEOUT", value, 1);
    EXPECT_EQ(refusal(MPI_Comm_c2f(MPI_COMM_WORLD), options),
              std::string("SWAMP_MPI_TIMEOUT: got \"") + value +
                  "\", expected a whole number of seconds from "
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

}  // namespace
}  // namespace swamp::test
