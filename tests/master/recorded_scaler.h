// The calls of tests/golden/grad_scaler/record.py, on swamp's GradScaler.
#ifndef SWAMP_TESTS_MASTER_RECORDED_SCALER_H_
#define SWAMP_TESTS_MASTER_RECORDED_SCALER_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "golden.h"
#include "support/formats.h"
#include "swamp/grad_scaler.h"

namespace swamp::test {

// Boom is what an optimizer's step() throws when it is told to.
struct Boom {};

// Array is a tensor that owns its elements, seen as doubles.
class Array {
 public:
  Array(const Format& format, std::size_t count)
      : format_(&format), bits_(count) {}

  Tensor tensor() { return {bits_.data(), bits_.size(), format_->type}; }
  std::size_t count() const { return bits_.size(); }
  void set(std::size_t index, double value);
  double get(std::size_t index) const;

 private:
  const Format* format_;
  std::vector<std::uint64_t> bits_;  // wide enough for any format
};

class RecordedOptimizer : public Optimizer {
 public:
  explicit RecordedOptimizer(std::vector<Array> arrays);
  RecordedOptimizer(const RecordedOptimizer&) = delete;

  void fill(int kind);
  TensorList gradients() override { return list_; }
  void step() override;

  std::vector<Array> arrays;
  int steps = 0;
  bool throws = false;

 private:
  std::vector<Tensor> list_;
};

class Player {
 public:
  explicit Player(const ProtocolRecord& record);

  void call(const ProtocolRecord::Call& call);
  // digest() is of all losses, outputs and gradients.
  std::uint64_t digest() const;
  std::vector<int> steps() const;
  const GradScaler& scaler() const { return scaler_; }

 private:
  void scale_outputs(double number);
  void load(double scale);

  GradScalerOptions options_;
  GradScaler scaler_;
  std::deque<RecordedOptimizer> optimizers_;
  float loss_ = 0.0f;
  double wide_loss_ = 0.0;
  std::vector<Array> outputs_;
};

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MASTER_RECORDED_SCALER_H_
