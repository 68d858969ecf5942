#ifndef SWAMP_MASTER_CLI_HISTORY_H_
#define SWAMP_MASTER_CLI_HISTORY_H_

#include <cstdint>
#include <vector>

#include "master/cli/step_record.h"

namespace swamp::cli {

// History is the numbers of all steps of a run: summary, picture and checkpoint
// are made of it. A row is loss, scale, gradient norm, skipped, underflow,
// activation underflow; the integers in it are below 2^53.
class History {
 public:
  static constexpr std::size_t kColumns = 6;

  History() = default;
  // Of values(), whose number is a multiple of kColumns.
  explicit History(std::vector<double> values) : values_(std::move(values)) {}

  void add(const StepRecord& record) {
    values_.insert(
        values_.end(),
        {record.loss, record.scale, record.grad_norm,
         record.skipped ? 1.0 : 0.0, static_cast<double>(record.underflow),
         static_cast<double>(record.activation_underflow)});
  }

  std::size_t steps() const noexcept { return values_.size() / kColumns; }
  double loss(std::size_t i) const { return values_[i * kColumns]; }
  double scale(std::size_t i) const { return values_[i * kColumns + 1]; }
  bool skipped(std::size_t i) const { return values_[i * kColumns + 3] != 0; }
  std::uint64_t underflow(std::size_t i) const { return integer(i, 4); }
  std::uint64_t activation_underflow(std::size_t i) const {
    return integer(i, 5);
  }
  const std::vector<double>& values() const noexcept { return values_; }

 private:
  std::uint64_t integer(std::size_t i, std::size_t column) const {
    return static_cast<std::uint64_t>(values_[i * kColumns + column]);
  }

  std::vector<double> values_;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_HISTORY_H_
