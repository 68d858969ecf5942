#include <cstdlib>
#include <string>

#include "swamp/communicator.h"

namespace swamp {
namespace {

// count() is the variable's whole number from 1; 0 when it holds none. These
// variables are others', and no error of ours.
int count(const char* variable) {
  const char* value = std::getenv(variable);
  const std::string text = value == nullptr ? "" : value;
  const bool digits = !text.empty() && text.size() <= 9 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  return digits ? std::stoi(text) : 0;
}

}  // namespace

int launched_ranks() {
  for (const char* variable :
       {"OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const int ranks = count(variable)) return ranks;
  }
  // srun names only the rank. Without one of its plug-ins for MPI, a job's
  // number of tasks says nothing about this program: as in a batch script.
  for (const char* variable : {"PMI_RANK", "PMIX_RANK"}) {
    if (std::getenv(variable) == nullptr) continue;
    for (const char* tasks : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
      if (const int ranks = count(tasks)) return ranks;
    }
  }
  return 1;
}

}  // namespace swamp
