#ifndef SWAMP_MASTER_CLI_SUMMARY_H_
#define SWAMP_MASTER_CLI_SUMMARY_H_

#include <cstdint>
#include <deque>
#include <string>

#include "master/cli/history.h"

namespace swamp::cli {

// Summary is what the steps of a run add up to.
class Summary {
 public:
  explicit Summary(const History& history);

  // loss_lines() tells a run that failed from one that went well.
  std::string loss_lines() const;
  std::uint64_t skipped() const noexcept { return skipped_; }
  std::uint64_t underflow() const noexcept { return underflow_; }
  std::uint64_t activation_underflow() const noexcept {
    return activation_underflow_;
  }

 private:
  static constexpr std::size_t kFinalSteps = 20;

  void add_loss(std::uint64_t step, double loss, bool skipped);
  std::string final_loss_line() const;

  std::deque<double> last_losses_;
  // Steps: no loss since was finite (0: the last one was); the first taken
  // whose loss was not finite, and how many there were.
  std::uint64_t diverged_from_ = 0;
  std::uint64_t diverged_first_ = 0;
  std::uint64_t diverged_taken_ = 0;
  std::uint64_t skipped_ = 0;
  std::uint64_t underflow_ = 0;
  std::uint64_t activation_underflow_ = 0;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SUMMARY_H_
