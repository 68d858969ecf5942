#ifndef SWAMP_TESTS_CLI_TRAINING_H_
#define SWAMP_TESTS_CLI_TRAINING_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/run_program.h"

namespace swamp::test {

// Training is a successful run of `swamp train`: its log, and the numbers of
// its summary.
struct Training {
  std::vector<nlohmann::json> steps;
  std::string out;
  std::string weights;
  double final_loss = 0;  // nan if every step was skipped
  long long skipped = -1;
  long long underflow = -1;
  long long activation_underflow = -1;
};

// run_training() throws if the run fails or its output cannot be read.
Training run_training(const Words& arguments,
                      const Environment& environment = {});

// sample_text() is 20,000 bytes of English-like text, made from a fixed list of
// words: the tests do not depend on a file of the system.
std::string sample_text();

}  // namespace swamp::test

#endif  // SWAMP_TESTS_CLI_TRAINING_H_
