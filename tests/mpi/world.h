#ifndef SWAMP_TESTS_MPI_WORLD_H_
#define SWAMP_TESTS_MPI_WORLD_H_

#include "swamp/mpi.h"

namespace swamp::test {

// All ranks, as main() has made them. Every rank runs every test.
MpiCommunicator& world();

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MPI_WORLD_H_
