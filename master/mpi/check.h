#ifndef SWAMP_MASTER_MPI_CHECK_H_
#define SWAMP_MASTER_MPI_CHECK_H_

#include <mpi.h>

namespace swamp::mpi {

// check() throws Error with MPI's text unless `code` is MPI_SUCCESS. `call` is
// the name of the function that returned it.
void check(int code, const char* call);

}  // namespace swamp::mpi

#endif  // SWAMP_MASTER_MPI_CHECK_H_
