#ifndef SWAMP_MASTER_CLI_ADAM_H_
#define SWAMP_MASTER_CLI_ADAM_H_

#include <vector>

#include "master/cli/model.h"

namespace swamp::cli {

// Adam (Kingma, Ba 2015) with bias correction, in plain float32.
class Adam {
 public:
  explicit Adam(double lr) noexcept : lr_(lr) {}

  // step() moves the master weights against their gradients.
  void step(std::vector<Parameter>& parameters);

 private:
  struct Moments {
    std::vector<float> first;
    std::vector<float> second;
  };

  double lr_;
  double beta1_power_ = 1;  // beta to the number of steps taken
  double beta2_power_ = 1;
  std::vector<Moments> moments_;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_ADAM_H_
