// A small network, to be trained with a GradScaler.
#ifndef SWAMP_TESTS_MASTER_SMALL_NET_H_
#define SWAMP_TESTS_MASTER_SMALL_NET_H_

#include <array>
#include <cmath>
#include <cstddef>
#include <random>

#include "swamp/optimizer.h"

namespace swamp::test {

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

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MASTER_SMALL_NET_H_
