#include "master/mpi/check.h"

#include <string>

#include "swamp/error.h"

namespace swamp::mpi {

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  std::string reason = "error " + std::to_string(code);
  if (MPI_Error_string(code, text, &length) == MPI_SUCCESS && length > 0) {
    reason.assign(text, static_cast<std::size_t>(length));
  }
  throw Error(SWAMP_INTERNAL, std::string(call) + ": " + reason);
}

}  // namespace swamp::mpi
