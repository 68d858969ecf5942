// The arguments and partial results of the kernels, and the contract of each
// family. Common to all:
// - Every operand has tile.count elements. The first element of a tile is
//   aligned to its type, not more. Operands must not overlap.
// - Arguments hold numbers of the formula only. They are not checked: any
//   float, nan included, gives what IEEE arithmetic gives.
// - If a family flags elements, it tests the incoming values, before it
//   computes.
#ifndef SWAMP_SLAVE_KERNEL_ARGS_H_
#define SWAMP_SLAVE_KERNEL_ARGS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace swamp::slave {

// unscale: x (inout) = x * inv_scale. 16-bit and 8-bit types multiply in
//   float32 and round again, float64 multiplies in float64. A product beyond
//   the largest float8_e4m3fn becomes that.
// check: x (in) is only read; inv_scale is not used.
// Both flag inf and nan.
struct UnscaleArgs {
  float inv_scale;
};

// norm: x (in) is only read. Adds the squares of the unscaled elements, in
//   double, to NormPartial of their grain. An unscaled element is
//   f32(widened x * inv_scale); of float64 it is the double product. Flags inf
//   and nan.
struct NormArgs {
  float inv_scale;
};

// NormPartial: lane i holds the sum of the squares of the elements whose index
// in their tensor is i mod 16, added in their order.
struct NormPartial {
  static constexpr int kLanes = 16;
  double lanes[kLanes];

  // total() adds the lanes as a fixed binary tree: lanes 8 apart, then 4, 2, 1.
  double total() const noexcept {
    double sum[kLanes];
    for (int i = 0; i < kLanes; ++i) sum[i] = lanes[i];
    for (int distance = kLanes / 2; distance != 0; distance /= 2) {
      for (int i = 0; i < distance; ++i) sum[i] += sum[i + distance];
    }
    return sum[0];
  }
};

// count_zeros: x (in) is only read. Flags +0 and -0, by their bits.
struct CountZerosArgs {};

// scan: x (in) is only read. Counts inf, nan and finite elements and finds the
//   extremes of the finite ones, in ScanPartial. Flags inf and nan.
struct ScanArgs {};

// order_key() maps doubles to integers of the same order, -0 below +0.
// Integers, because comparing doubles depends on the float environment.
inline std::int64_t order_key(double value) noexcept {
  std::int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits < 0 ? bits ^ 0x7fffffffffffffff : bits;
}

inline double from_order_key(std::int64_t key) noexcept {
  if (key < 0) key ^= 0x7fffffffffffffff;
  double value;
  std::memcpy(&value, &key, sizeof value);
  return value;
}

// ScanPartial is what a scan found in a segment so far; zero means nothing.
struct ScanPartial {
  std::uint64_t inf_count;
  std::uint64_t nan_count;
  std::uint64_t finite_count;
  std::uint64_t first_nonfinite;  // if inf_count + nan_count != 0
  std::int64_t min_key;           // if finite_count != 0
  std::int64_t max_key;           // if finite_count != 0

  // add() adds the result of later elements.
  void add(const ScanPartial& later) noexcept {
    if (inf_count + nan_count == 0) first_nonfinite = later.first_nonfinite;
    inf_count += later.inf_count;
    nan_count += later.nan_count;
    if (later.finite_count == 0) return;
    if (finite_count == 0 || later.min_key < min_key) min_key = later.min_key;
    if (finite_count == 0 || later.max_key > max_key) max_key = later.max_key;
    finite_count += later.finite_count;
  }
};

// cast: out = cast(in / divisor). The quotient is rounded to the type of `in`
//   before it is cast, because FSDP divides in place and then casts. A divisor
//   of 1 does not divide. Flags nothing.
struct CastArgs {
  float divisor;
};
struct CastOperand {
  enum : int { in, out, count };
};

// accumulate: sum (inout, float32) = (sum + widened in) / divisor. A divisor of
//   1 does not divide. Flags nothing.
struct AccumulateArgs {
  float divisor;
};
struct AccumulateOperand {
  enum : int { in, sum, count };
};

// zero: out = +0. Flags nothing.
// NoArgs are the arguments of every family that has none and flags nothing.
struct NoArgs {};

// lerp: out (inout) = fma(coefficient, widened in - widened out, from), where
//   `from` is out, or, if from_in, in. Flags nothing.
struct LerpArgs {
  float coefficient;
  std::uint32_t from_in;  // 0 or 1
};
struct LerpOperand {
  enum : int { in, out, count };
};

// Steps: gradient (in), weight (inout, float32), the moments (inout, float32)
// and, if the last type of the name says so, the model's weight (out), which is
// the new weight rounded. Every step begins with
//   g = f32(f32(widened gradient * inv_scale) * clip_coefficient)
// A step that maximizes has the coefficient's negative. They flag nothing.

// sgd, sgd_momentum (with one moment, b): torch.optim.SGD, its for-loop form on
// CPUs. add(x, alpha) there is one fused multiply-add:
//   g = fma(p, weight_decay, g)                            if weight_decay != 0
//   b = first_step ? g : fma(g, 1 - dampening, b * momentum)    with a momentum
//   g = nesterov ? fma(b, momentum, g) : b                      with a momentum
//   p = fma(g, -lr, p)
struct SgdArgs {
  float inv_scale;
  float clip_coefficient;
  float lr;
  float momentum;
  float one_minus_dampening;
  float weight_decay;
  std::uint32_t nesterov;    // 0 or 1
  std::uint32_t first_step;  // 0 or 1
};
// Here and below, an operand that a family lacks has the next one's number.
// `more` belongs to the weight: the model's weight or the compensation.
template <bool kMomentum>
struct SgdOperand {
  enum : int { gradient, weight, buffer, more = buffer + kMomentum, count };
};

// adam (moments m and v): torch's fused CPU Adam and AdamW, the vector body
// (FusedAdamKernel.cpp):
//   g = g + p * weight_decay                         Adam, if weight_decay != 0
//   p = p * decay                                    AdamW
//   m = lerp(m, g, 1 - beta1)
//   v = fma(one_minus_beta2 * g, g, v * beta2)
//   p = p + (-step_size * m) / (sqrt(v) / bias_correction2_sqrt + eps)
// adam_amsgrad (moments m, v and x): the same with AMSGrad. Its last line has x
// for v, after
//   x = max(x, v), nan if one of them is, with all bits set
struct AdamArgs {
  float inv_scale;
  float clip_coefficient;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float step_size;              // lr / (1 - beta1^step)
  float bias_correction2_sqrt;  // sqrt(1 - beta2^step)
  float eps;
  float weight_decay;  // of Adam; 0 for AdamW
  float decay;         // of AdamW, 1 - lr * weight_decay; 1 for Adam
};
template <bool kAmsgrad>
struct AdamOperand {
  enum : int { gradient, weight, m, v, max, more = max + kAmsgrad, count };
};

// RoundingKey chooses the random bits of one tensor in one step.
struct RoundingKey {
  std::uint32_t offset;  // added to the index
  std::uint32_t mix;
};

// mixed() is the finalizer of splitmix64, which adds the stride: seeds that
// differ by little become keys that differ everywhere.
inline constexpr std::uint64_t kMixStride = 0x9e3779b97f4a7c15U;
constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return x ^ x >> 31;
}

// RoundingBits is the random bits of an element: 16 for each value that is
// rounded, in the lower half.
struct RoundingBits {
  std::uint32_t weight, m, v;
};

// Returns the bits of element `index` of a tensor, modulo 2^32. Weight and m
// have one word of triple32 (hash-prospector), into which the key is mixed; v
// has the upper half of a multiple of it. Any two of the three are independent.
// The kernels compute the same with vectors.
inline constexpr std::uint32_t kMixFactors[] = {0xed5ad4bb, 0xac4c1b51,
                                                0x31848bab, 0x9e3779b1};
constexpr RoundingBits rounding_bits(const RoundingKey& key,
                                     std::size_t index) noexcept {
  std::uint32_t x = static_cast<std::uint32_t>(index) + key.offset;
  x = (x ^ x >> 17) * kMixFactors[0] ^ key.mix;
  x = (x ^ x >> 11) * kMixFactors[1];
  x = (x ^ x >> 15) * kMixFactors[2];
  x = x ^ x >> 14;
  return {x >> 16, x & 0xffff, x * kMixFactors[3] >> 16};
}

// adam_stochastic (gradient, weight, m, v, RoundingKey), without a master: the
//   same in float32. A weight or moment of another type is widened, and
//   rounded stochastically when it is stored: up with the probability of the
//   cut-off part, by RoundingBits. Results in the range of normal numbers use
//   all bits that are cut off, subnormal float16 the first 16. Exact results
//   are never changed; inf stays inf, nan stays nan. With six operands:
//   gradient, float32 master, m, v, the model's weight, key. The model's weight
//   is the master rounded to nearest.
// adam_kahan (gradient, weight, m, v, compensation, key): the weight of the
//   formula is p + c, the model's weight and its compensation, in float32:
//   p = r(p'), c = r(p' - p), to nearest. The moments are rounded as above.
// Their arguments are AdamArgs.
template <bool kMore>
struct AdamRoundedOperand {
  enum : int { gradient, weight, m, v, more, key = more + kMore, count };
};

// adam_8bit (gradient, float32 weight, m, v, absmax) and, with six operands,
//   the model's weight; adam_8bit_stochastic (gradient, weight, m, v, absmax,
//   key); adam_8bit_kahan (gradient, weight, m, v, absmax, compensation):
//   kernels by row. A row is a block of at most kBlockColumns elements, its
//   moments are 8-bit codes (slave/block_code.h) and absmax is two floats: the
//   largest absolute value of m and of v; nan if one is nan. The weight is
//   computed from the moments before they are rounded to codes.
inline constexpr std::size_t kBlockColumns = 256;
struct AdamBlockArgs {
  AdamArgs adam;
  std::uint32_t columns;
  std::uint32_t float8;  // 0: codes of the dynamic map; 1: float8_e4m3fn
};
// `more` is the model's weight, the key or the compensation.
struct AdamBlockOperand {
  enum : int { gradient, weight, m, v, absmax, more, count };
};

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_KERNEL_ARGS_H_
