// The tests test_grad_scaling_* of PyTorch (test/test_torch.py): a small
// network trained with a scaler must end with the bits of one trained without,
// because all scales are powers of two.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <random>

#include "swamp/grad_scaler.h"
#include "swamp/optimizer.h"

namespace swamp::test {
namespace {

// ---- A small network, to be trained with a GradScaler.

inline constexpr std::size_t kWidth = 8;
inline constexpr int kBatches = 4;
using Vector = std::array<float, kWidth>;
using Matrix = std::array<Vector, kWidth>;

struct Batch {
  Vector input, target;
};

// Net is Linear(8, 8), Linear(8, 8), the mean squared error, and plain SGD.
class Net : public Optimizer {
 public:
  explicit Net(unsigned seed) {
    std::mt19937 random(seed);
    for (Matrix& layer : weights_) {
      for (Vector& row : layer) fill(row, random);
    }
  }

  static void fill(Vector& vector, std::mt19937& random) {
    for (float& x : vector) {
      x = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    }
  }

  void zero_grad() { grads = {}; }
  // backward() adds the gradients of seed * loss.
  void backward(const Batch& batch, float seed) {
    const Vector hidden = times(weights_[0], batch.input);
    const Vector output = times(weights_[1], hidden);
    Vector d_output{};
    Vector d_hidden{};
    for (std::size_t i = 0; i < kWidth; ++i) {
      d_output[i] = seed * (2.0f / kWidth) * (output[i] - batch.target[i]);
      for (std::size_t j = 0; j < kWidth; ++j) {
        grads[1][i][j] += d_output[i] * hidden[j];
        d_hidden[j] += weights_[1][i][j] * d_output[i];
      }
    }
    for (std::size_t i = 0; i < kWidth; ++i) {
      for (std::size_t j = 0; j < kWidth; ++j) {
        grads[0][i][j] += d_hidden[i] * batch.input[j];
      }
    }
  }
  // clip() is clip_grad_norm_().
  void clip(double max_norm) {
    double sum = 0.0;
    each_grad([&](float& g) { sum += std::pow(static_cast<double>(g), 2); });
    const double norm = std::sqrt(sum);
    if (!(norm > max_norm)) return;
    each_grad([&](float& g) {
      g = static_cast<float>(static_cast<double>(g) * (max_norm / norm));
    });
  }

  TensorList gradients() override {
    for (std::size_t i = 0; i < 2; ++i) {
      list_[i] = {&grads[i][0][0], kWidth * kWidth, kFloat32};
    }
    return list_;
  }
  void step() override {
    for (std::size_t l = 0; l < 2; ++l) {
      for (std::size_t i = 0; i < kWidth; ++i) {
        for (std::size_t j = 0; j < kWidth; ++j) {
          weights_[l][i][j] -= 0.0625f * grads[l][i][j];
        }
      }
    }
  }
  const std::array<Matrix, 2>& weights() const { return weights_; }

  std::array<Matrix, 2> grads{};

 private:
  static Vector times(const Matrix& matrix, const Vector& vector) {
    Vector out{};
    for (std::size_t i = 0; i < kWidth; ++i) {
      for (std::size_t j = 0; j < kWidth; ++j) {
        out[i] += matrix[i][j] * vector[j];
      }
    }
    return out;
  }
  template <class Function>
  void each_grad(Function function) {
    for (Matrix& layer : grads) {
      for (Vector& row : layer) {
        for (float& g : row) function(g);
      }
    }
  }

  std::array<Matrix, 2> weights_{};
  std::array<Tensor, 2> list_{};
};

inline std::array<Batch, kBatches> batches() {
  std::mt19937 random(1);
  std::array<Batch, kBatches> all{};
  for (Batch& batch : all) {
    Net::fill(batch.input, random);
    Net::fill(batch.target, random);
  }
  return all;
}

constexpr int kSkip = 2;  // the batch whose gradients overflow

// A Run trains a net; at kSkip, it injects an overflow or omits the step.
using Run = std::function<void(Net&, GradScaler&, bool scaled)>;

GradScaler make(bool enabled) {
  GradScalerOptions options;
  options.init_scale = 128.0;
  options.growth_interval = 1;
  options.enabled = enabled;
  return GradScaler(options);
}

void run_scaling_case(const Run& run, int unskipped, int skipped) {
  for (const bool enabled : {true, false}) {
    GradScaler scaler = make(enabled);
    GradScaler unused = make(false);
    Net scaled(7);
    Net control(7);
    const Net untrained(7);
    run(control, unused, enabled);  // omits the step that an overflow skips
    run(scaled, scaler, enabled);
    EXPECT_EQ(scaler.get_scale(), enabled ? 128.0 * std::pow(2.0, unskipped) *
                                                std::pow(0.5, skipped)
                                          : 1.0);
    EXPECT_EQ(scaled.weights(), control.weights());
    EXPECT_NE(scaled.weights(), untrained.weights());
  }
}

// finish() ends an iteration; `overflow` makes its gradients infinite.
void finish(Net& net, GradScaler& scaler, bool overflow) {
  if (overflow && !scaler.is_enabled()) return;  // the control
  if (overflow) {
    net.grads[1][2][2] = std::numeric_limits<float>::infinity();
  }
  EXPECT_EQ(scaler.step(net).skipped, overflow);
  scaler.update();
}

TEST(GradScalerTraining, AutocastAndClippingOfScaledGradients) {
  for (const bool clip : {false, true}) {
    SCOPED_TRACE(clip ? "clipping" : "no clipping");
    run_scaling_case(
        [clip](Net& net, GradScaler& scaler, bool inject) {
          int i = 0;
          for (const Batch& batch : batches()) {
            net.zero_grad();
            net.backward(batch, scaler.scale(1.0f));
            if (clip) net.clip(0.2 * scaler.get_scale());
            finish(net, scaler, inject && i++ == kSkip);
          }
        },
        3, 1);
  }
}

TEST(GradScalerTraining, ClippingAfterUnscale) {
  run_scaling_case(
      [](Net& net, GradScaler& scaler, bool inject) {
        int i = 0;
        for (const Batch& batch : batches()) {
          const bool overflow = inject && i++ == kSkip;
          net.zero_grad();
          net.backward(batch, scaler.scale(1.0f));
          if (overflow) {
            if (!scaler.is_enabled()) continue;
            net.grads[0][0][0] = std::numeric_limits<float>::quiet_NaN();
          }
          scaler.unscale_(net);
          net.clip(0.2);
          EXPECT_EQ(scaler.step(net).skipped, overflow);
          scaler.update();
        }
      },
      3, 1);
}

TEST(GradScalerTraining, Accumulation) {
  run_scaling_case(
      [](Net& net, GradScaler& scaler, bool) {
        int i = 0;
        for (const Batch& batch : batches()) {
          net.backward(batch, scaler.scale(0.5f));
          if (++i % 2 != 0) continue;
          finish(net, scaler, false);
          net.zero_grad();
        }
      },
      2, 0);
}

// test_grad_scaling_multiple: two nets, one scale; only one overflows.
TEST(GradScalerTraining, TwoOptimizers) {
  GradScaler scaler = make(true);
  Net nets[2] = {Net(7), Net(8)};
  Net controls[2] = {Net(7), Net(8)};
  int i = 0;
  for (const Batch& batch : batches()) {
    const float seed = scaler.scale(1.0f);
    for (int n = 0; n < 2; ++n) {
      nets[n].zero_grad();
      nets[n].backward(batch, seed);
      controls[n].zero_grad();
      controls[n].backward(batch, 1.0f);
    }
    const bool overflow = i++ == kSkip;
    if (overflow) {
      nets[1].grads[0][7][7] = std::numeric_limits<float>::infinity();
    }
    scaler.unscale_(nets[0]);
    EXPECT_FALSE(scaler.step(nets[0]).skipped);
    EXPECT_EQ(scaler.step(nets[1]).skipped, overflow);
    scaler.update();
    controls[0].step();
    if (!overflow) controls[1].step();
  }
  EXPECT_EQ(scaler.get_scale(), 128.0 * 8.0 * 0.5);
  EXPECT_EQ(nets[0].weights(), controls[0].weights());
  EXPECT_EQ(nets[1].weights(), controls[1].weights());
}

// test_params_invalidated_with_grads_invalidated_between_unscale_and_step
TEST(GradScalerTraining, SpoiledAfterUnscaleIsNotSeen) {
  GradScaler scaler = make(true);
  Net net(7);
  net.backward(batches()[0], scaler.scale(1.0f));
  scaler.unscale_(net);
  net.grads[0][0][0] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(scaler.step(net).skipped);
  EXPECT_TRUE(std::isinf(net.weights()[0][0][0]));
}

// test_grad_scale_will_not_overflow
TEST(GradScalerTraining, TheScaleStaysFinite) {
  GradScalerOptions options;
  options.init_scale = 1e38;
  options.growth_factor = 16.0;
  options.growth_interval = 1;
  GradScaler scaler(options);
  Net net(7);
  scaler.scale(1.0f);
  EXPECT_EQ(scaler.step(net).scale_after, static_cast<double>(1e38f));
  EXPECT_EQ(scaler.update().new_scale, static_cast<double>(1e38f));
}

// After 144 overflows in a row 1 / scale is inf, after 166 the scale is 0: a
// zero gradient then becomes nan unnoticed, as in PyTorch.
TEST(GradScalerTraining, AScaleOfZero) {
  GradScaler scaler;
  float gradient = 0.0f;
  int steps = 0;
  FunctionOptimizer optimizer(Tensor{&gradient, 1, kFloat32}, [&] { ++steps; });
  scaler.scale(1.0f);
  for (int i = 0; i < 166; ++i) {
    EXPECT_GT(scaler.get_scale(), 0.0) << i;
    gradient = std::numeric_limits<float>::infinity();
    scaler.step(optimizer);
    scaler.update();
  }
  EXPECT_EQ(scaler.get_scale(), 0.0);
  gradient = 0.0f;
  EXPECT_FALSE(scaler.step(optimizer).found_inf);
  EXPECT_TRUE(std::isnan(gradient));
  EXPECT_EQ(steps, 1);
}

}  // namespace
}  // namespace swamp::test
