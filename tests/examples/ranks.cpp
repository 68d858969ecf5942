#include <cmath>
#include <cstdio>
#include <vector>

#include "swamp/mpi.h"
#include "swamp/swamp.h"

int main() {
  try {
    swamp::MpiCommunicator ranks;  // initialises MPI, and finalises it
    const bool last = ranks.rank() == ranks.size() - 1;
    std::vector<float> grad = {1024.0f, last ? HUGE_VALF : 2048.0f};
    float found_inf = 0.0f;
    swamp::amp_foreach_non_finite_check_and_unscale_(
        {{grad.data(), grad.size(), swamp::kFloat32}}, found_inf,
        1.0f / 1024.0f);

    found_inf = ranks.max(found_inf);  // all skip, or none
    const double squares = ranks.sum(1.0 * grad[0] * grad[0]);
    std::printf("rank %d of %d: found_inf %g, sum of squares %g\n",
                ranks.rank(), ranks.size(), found_inf, squares);
  } catch (const swamp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;  // mpirun then ends the other ranks
  }
}
