#ifndef SWAMP_MASTER_MPI_OPTIONS_H_
#define SWAMP_MASTER_MPI_OPTIONS_H_

#include "swamp/mpi.h"

namespace swamp::mpi {

// checked() gives the options with the environment's timeout filled in; throws
// Error for a bad one.
MpiOptions checked(const MpiOptions& options);

}  // namespace swamp::mpi

#endif  // SWAMP_MASTER_MPI_OPTIONS_H_
