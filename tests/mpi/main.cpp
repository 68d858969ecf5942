#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <memory>
#include <string>

#include "mpi/world.h"

namespace swamp::test {
namespace {

std::unique_ptr<MpiCommunicator> the_world;

// The last communicator has finalised the MPI that the first initialised; a
// later one is refused.
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

MpiCommunicator& world() { return *the_world; }

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
