// What a user without swamp would write: a plain OpenMP loop, or Eigen, for
// each pass and tensor; and the roofline, the memory traffic of the step alone.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "master/cli/predict/predict.h"

namespace {

enum Type { kFloat16 = 0, kBFloat16 = 1, kFloat32 = 2 };

// The beginning of swamp_tensor.
struct Tensor {
  void* data;
  std::size_t count;
  int dtype;
};

// Lists of a step; `copies` are float32 gradients, `model` may be null.
struct Lists {
  std::size_t count;
  const Tensor *masters, *gradients, *exp_avgs, *exp_avg_sqs, *model, *copies;
};

struct Numbers {
  float inv_scale, max_norm, lr, beta1, beta2, eps, weight_decay;
  std::int64_t step;
};

float* floats(const Tensor& tensor) { return static_cast<float*>(tensor.data); }

float widen(const std::uint16_t* from, Type type) {
  if (type == kFloat16) {
    _Float16 half;
    std::memcpy(&half, from, sizeof half);
    return static_cast<float>(half);
  }
  const std::uint32_t bits = std::uint32_t{*from} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint16_t narrow(float value, Type type) {
  if (type == kFloat16) {
    const _Float16 half = static_cast<_Float16>(value);
    std::uint16_t bits;
    std::memcpy(&bits, &half, sizeof bits);
    return bits;
  }
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The five passes, each as a loop over one tensor.
template <Type kType>
bool unscale(const Tensor& from, float* to, float inv_scale) {
  const auto count = static_cast<std::ptrdiff_t>(from.count);
  int bad = 0;
#pragma omp parallel for simd reduction(| : bad)
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const float value =
        kType == kFloat32
            ? floats(from)[i]
            : widen(static_cast<const std::uint16_t*>(from.data) + i, kType);
    bad |= !(std::fabs(value) <= 3.4028235e38f);
    to[i] = value * inv_scale;
  }
  return bad != 0;
}

double squares(const float* values, std::ptrdiff_t count) {
  double sum = 0;
#pragma omp parallel for simd reduction(+ : sum)
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    sum += static_cast<double>(values[i]) * values[i];
  }
  return sum;
}

void scale(float* values, std::ptrdiff_t count, float by) {
#pragma omp parallel for simd
  for (std::ptrdiff_t i = 0; i < count; ++i) values[i] *= by;
}

void adamw(float* p, const float* g, float* m, float* v, std::ptrdiff_t count,
           const Numbers& n) {
  const float step_size =
      n.lr / (1 - std::pow(n.beta1, static_cast<float>(n.step)));
  const float correction =
      std::sqrt(1 - std::pow(n.beta2, static_cast<float>(n.step)));
#pragma omp parallel for simd
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    p[i] *= 1 - n.lr * n.weight_decay;
    m[i] = n.beta1 * m[i] + (1 - n.beta1) * g[i];
    v[i] = n.beta2 * v[i] + (1 - n.beta2) * g[i] * g[i];
    p[i] -= step_size * m[i] / (std::sqrt(v[i]) / correction + n.eps);
  }
}

template <Type kType>
void round_to(const float* from, void* to, std::ptrdiff_t count) {
  auto* out = static_cast<std::uint16_t*>(to);
#pragma omp parallel for simd
  for (std::ptrdiff_t i = 0; i < count; ++i) out[i] = narrow(from[i], kType);
}

using Array = Eigen::Map<Eigen::ArrayXf>;
template <class Half>
using HalfArray = Eigen::Map<Eigen::Array<Half, Eigen::Dynamic, 1>>;

Array array(float* data, std::ptrdiff_t count) { return {data, count}; }

template <class Half>
HalfArray<Half> halves(const Tensor& tensor) {
  return {static_cast<Half*>(tensor.data),
          static_cast<std::ptrdiff_t>(tensor.count)};
}

}  // namespace

extern "C" {

// Writes the elements of the model's parameters, at most `most`, and returns
// how many there are.
std::size_t model_counts(const char* name, std::uint64_t* counts,
                         std::size_t most) {
  const std::vector<std::uint64_t> all = swamp::cli::model_counts(name);
  const std::size_t count = std::min(most, all.size());
  std::copy_n(all.begin(), count, counts);
  return count;
}

// Returns 1 if it found inf or nan.
int naive_step(const Lists* lists, const Numbers* numbers) {
  const Lists& l = *lists;
  const Numbers& n = *numbers;
  bool bad = false;
  for (std::size_t t = 0; t < l.count; ++t) {
    const Tensor& g = l.gradients[t];
    float* to = floats(l.copies[t]);
    bad |= g.dtype == kFloat32    ? unscale<kFloat32>(g, to, n.inv_scale)
           : g.dtype == kBFloat16 ? unscale<kBFloat16>(g, to, n.inv_scale)
                                  : unscale<kFloat16>(g, to, n.inv_scale);
  }
  if (bad) return 1;
  const auto count = [&](std::size_t t) {
    return static_cast<std::ptrdiff_t>(l.masters[t].count);
  };
  if (n.max_norm > 0) {
    double sum = 0;
    for (std::size_t t = 0; t < l.count; ++t) {
      sum += squares(floats(l.copies[t]), count(t));
    }
    const double by = n.max_norm / (std::sqrt(sum) + 1e-6);
    for (std::size_t t = 0; by < 1 && t < l.count; ++t) {
      scale(floats(l.copies[t]), count(t), static_cast<float>(by));
    }
  }
  for (std::size_t t = 0; t < l.count; ++t) {
    float* p = floats(l.masters[t]);
    adamw(p, floats(l.copies[t]), floats(l.exp_avgs[t]),
          floats(l.exp_avg_sqs[t]), count(t), n);
    if (l.model == nullptr) continue;
    if (l.model[t].dtype == kBFloat16) {
      round_to<kBFloat16>(p, l.model[t].data, count(t));
    } else {
      round_to<kFloat16>(p, l.model[t].data, count(t));
    }
  }
  return 0;
}

// The same in array expressions; Eigen runs them on one thread.
int eigen_step(const Lists* lists, const Numbers* numbers) {
  const Lists& l = *lists;
  const Numbers& n = *numbers;
  const auto count = [&](std::size_t t) {
    return static_cast<std::ptrdiff_t>(l.masters[t].count);
  };
  bool finite = true;
  for (std::size_t t = 0; t < l.count; ++t) {
    const Tensor& g = l.gradients[t];
    Array to = array(floats(l.copies[t]), count(t));
    if (g.dtype == kFloat32) {
      to = array(floats(g), count(t)) * n.inv_scale;
    } else if (g.dtype == kBFloat16) {
      to = halves<Eigen::bfloat16>(g).cast<float>() * n.inv_scale;
    } else {
      to = halves<Eigen::half>(g).cast<float>() * n.inv_scale;
    }
    finite = finite && to.isFinite().all();
  }
  if (!finite) return 1;
  if (n.max_norm > 0) {
    double sum = 0;
    for (std::size_t t = 0; t < l.count; ++t) {
      sum += array(floats(l.copies[t]), count(t)).cast<double>().square().sum();
    }
    const auto by = static_cast<float>(n.max_norm / (std::sqrt(sum) + 1e-6));
    for (std::size_t t = 0; by < 1 && t < l.count; ++t) {
      array(floats(l.copies[t]), count(t)) *= by;
    }
  }
  const float step_size =
      n.lr / (1 - std::pow(n.beta1, static_cast<float>(n.step)));
  const float correction =
      std::sqrt(1 - std::pow(n.beta2, static_cast<float>(n.step)));
  for (std::size_t t = 0; t < l.count; ++t) {
    Array p = array(floats(l.masters[t]), count(t));
    const Array g = array(floats(l.copies[t]), count(t));
    Array m = array(floats(l.exp_avgs[t]), count(t));
    Array v = array(floats(l.exp_avg_sqs[t]), count(t));
    m = n.beta1 * m + (1 - n.beta1) * g;
    v = n.beta2 * v + (1 - n.beta2) * g.square();
    p = p * (1 - n.lr * n.weight_decay) -
        step_size * m / (v.sqrt() / correction + n.eps);
    if (l.model == nullptr) continue;
    if (l.model[t].dtype == kBFloat16) {
      halves<Eigen::bfloat16>(l.model[t]) = p.cast<Eigen::bfloat16>();
    } else {
      halves<Eigen::half>(l.model[t]) = p.cast<Eigen::half>();
    }
  }
  return 0;
}

// The memory traffic of a step in two passes, on the same arrays, whose values
// do not change: the first reads the gradients; the second reads them again,
// reads and writes three arrays, and writes the model's weights. Returns a
// combination of the values read.
std::uint32_t roofline_step(const Lists* lists, float one) {
  const Lists& l = *lists;
  std::uint32_t all = 0;
  const auto words = [](const Tensor& t) {
    return static_cast<std::ptrdiff_t>(t.count * (t.dtype == kFloat32 ? 4 : 2) /
                                       4);
  };
#pragma omp parallel reduction(| : all)
  {
    for (std::size_t t = 0; t < l.count; ++t) {
      const auto* g = static_cast<const std::uint32_t*>(l.gradients[t].data);
      const std::ptrdiff_t count = words(l.gradients[t]);
#pragma omp for simd nowait
      for (std::ptrdiff_t i = 0; i < count; ++i) all |= g[i];
    }
    for (std::size_t t = 0; t < l.count; ++t) {
      const auto* g = static_cast<const std::uint32_t*>(l.gradients[t].data);
      float* p = floats(l.masters[t]);
      float* m = floats(l.exp_avgs[t]);
      float* v = floats(l.exp_avg_sqs[t]);
      const std::ptrdiff_t count = words(l.gradients[t]);
      const std::ptrdiff_t per_word = l.gradients[t].dtype == kFloat32 ? 1 : 2;
      auto* out = l.model == nullptr
                      ? nullptr
                      : static_cast<std::uint32_t*>(l.model[t].data);
#pragma omp for nowait
      for (std::ptrdiff_t block = 0; block < (count + 511) / 512; ++block) {
        const std::ptrdiff_t begin = block * 512;
        const std::ptrdiff_t end = begin + 512 < count ? begin + 512 : count;
        for (std::ptrdiff_t i = begin; i < end; ++i) all |= g[i];
        for (std::ptrdiff_t i = begin * per_word; i < end * per_word; ++i) {
          p[i] *= one;
          m[i] *= one;
          v[i] *= one;
        }
        if (out == nullptr) continue;
        for (std::ptrdiff_t i = begin; i < end; ++i) out[i] = 0x3f803f80u;
      }
    }
  }
  return all;
}

// naive_multiply_adds() computes so many floating-point operations as fused
// multiply-adds of registers.
void naive_multiply_adds(double flops) {
  using Floats = float __attribute__((vector_size(64)));
  constexpr int kChains = 12;
  constexpr double kStep = 2.0 * kChains * (sizeof(Floats) / sizeof(float));
#pragma omp parallel
  {
    Floats sum[kChains] = {};
    Floats a = {}, b = {};
    a += 0.5f;
    b += 1.0f;
    // The compiler must not know that the chains are equal.
    for (Floats& one : sum) asm volatile("" : "+v"(one));
    const auto steps = static_cast<std::size_t>(flops / kStep);
#pragma omp for schedule(static)
    for (std::size_t i = 0; i < steps; ++i) {
      asm("" : "+v"(a));
      for (Floats& one : sum) one = one * a + b;
    }
    for (Floats& one : sum) asm volatile("" : "+v"(one));
  }
}

}  // extern "C"
