// exact_fma() on every target against the C library's fmaf.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/float_environment_scope.h"
#include "support/random.h"
#include "swamp/float_formats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/slave/exact_fma_test.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/exact_fma-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::test::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// fma_arrays() needs a count that is a multiple of every vector length.
void fma_arrays(const float* a, const float* b, const float* c, float* out,
                std::size_t count) {
  const hn::ScalableTag<float> df;
  for (std::size_t i = 0; i < count; i += hn::Lanes(df)) {
    hn::StoreU(slave::HWY_NAMESPACE::exact_fma(df, hn::LoadU(df, a + i),
                                               hn::LoadU(df, b + i),
                                               hn::LoadU(df, c + i)),
               df, out + i);
  }
}

}  // namespace swamp::test::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace swamp::test {
namespace {

using FmaArrays = void (*)(const float*, const float*, const float*, float*,
                           std::size_t);

// FmaBatch gathers triples and compares every target's results with fmaf's.
class FmaBatch {
 public:
  explicit FmaBatch(unsigned control = 0) : control_(control) {}
  ~FmaBatch() { flush(); }
  FmaBatch(const FmaBatch&) = delete;
  FmaBatch& operator=(const FmaBatch&) = delete;

  void add(float a, float b, float c) {
    a_[used_] = a;
    b_[used_] = b;
    c_[used_] = c;
    if (++used_ == kCount) flush();
  }
  void add_bits(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    add(float_from_bits(a), float_from_bits(b), float_from_bits(c));
  }
  // All signs of a triple.
  void add_signs(float a, float b, float c) {
    for (const float sign_a : {1.0f, -1.0f}) {
      for (const float sign_c : {1.0f, -1.0f}) add(sign_a * a, b, sign_c * c);
    }
  }

 private:
  static constexpr std::size_t kCount = 4096;

  void flush() {
    if (testing::Test::HasFailure()) used_ = 0;
    if (used_ == 0) return;
    for (std::size_t i = used_; i < kCount; ++i) a_[i] = b_[i] = c_[i] = 1.0f;
    used_ = 0;
    {
      const ControlScope scope(control_);
      for (std::size_t i = 0; i < kCount; ++i) {
        expected_[i] = fmaf_(a_[i], b_[i], c_[i]);
      }
    }
#if HWY_ARCH_X86
    const std::int64_t supported = hwy::SupportedTargets();
#else
    const std::int64_t supported = HWY_TARGETS;
#endif
    for (std::int64_t targets = supported; targets != 0;
         targets &= targets - 1) {
      const std::int64_t target = targets & -targets;
      const FmaArrays run = function_of(target);
      if (run == nullptr) continue;
      {
        const ControlScope scope(control_);
        run(a_, b_, c_, actual_, kCount);
      }
      expect_same(hwy::TargetName(target));
    }
  }

  void expect_same(const char* target) const {
    for (std::size_t i = 0; i < kCount; ++i) {
      if (std::isnan(actual_[i]) && std::isnan(expected_[i])) continue;
      ASSERT_EQ(float_to_bits(actual_[i]), float_to_bits(expected_[i]))
          << target << std::hexfloat << " of " << a_[i] << " * " << b_[i]
          << " + " << c_[i] << " is " << actual_[i] << ", expected "
          << expected_[i];
    }
  }

  static FmaArrays function_of(std::int64_t target);

  unsigned control_;
  float (*volatile fmaf_)(float, float, float) = &std::fmaf;
  std::size_t used_ = 0;
  float a_[kCount], b_[kCount], c_[kCount], expected_[kCount], actual_[kCount];
};

FmaArrays FmaBatch::function_of(std::int64_t target) {
  switch (target) {
#if HWY_TARGETS & HWY_AVX3
    case HWY_AVX3:
      return &N_AVX3::fma_arrays;
#endif
#if HWY_TARGETS & HWY_AVX2
    case HWY_AVX2:
      return &N_AVX2::fma_arrays;
#endif
#if HWY_TARGETS & HWY_SSE4
    case HWY_SSE4:
      return &N_SSE4::fma_arrays;
#endif
#if HWY_TARGETS & HWY_NEON
    case HWY_NEON:
      return &N_NEON::fma_arrays;
#endif
#if HWY_TARGETS & HWY_EMU128
    case HWY_EMU128:
      return &N_EMU128::fma_arrays;
#endif
#if HWY_TARGETS & HWY_SCALAR
    case HWY_SCALAR:
      return &N_SCALAR::fma_arrays;
#endif
    default:
      return nullptr;
  }
}

std::uint32_t bits32(Random& random) {
  return static_cast<std::uint32_t>(random.next() >> 32);
}

TEST(ExactFma, EverySpecialTriple) {
  const std::vector<std::uint64_t> special = special_bits(kFloat32Format);
  FmaBatch batch;
  for (const std::uint64_t a : special) {
    for (const std::uint64_t b : special) {
      for (const std::uint64_t c : special) {
        batch.add_bits(static_cast<std::uint32_t>(a),
                       static_cast<std::uint32_t>(b),
                       static_cast<std::uint32_t>(c));
      }
    }
  }
}

TEST(ExactFma, RandomBits) {
  Random random(1);
  FmaBatch batch;
  for (int i = 0; i < 4000000; ++i) {
    batch.add_bits(bits32(random), bits32(random), bits32(random));
  }
}

// add_difficult() draws operands of few bits, so that many products are halfway
// between two floats, and addends from the size of the product to one so large
// that a double cannot hold the sum.
void add_difficult(FmaBatch& batch, Random& random, int exponent) {
  const auto short_float = [&](int at, int bits) {
    const std::uint64_t mantissa = (random.next() >> 32 & 0xffffff) | 0x800000;
    return std::ldexp(static_cast<float>((mantissa >> (24 - bits)) | 1),
                      at - bits);
  };
  const int bits_a = 1 + static_cast<int>(random.below(24));
  const bool halfway = random.below(2) == 0 && bits_a >= 2;
  const int bits_b =
      halfway ? 26 - bits_a : 1 + static_cast<int>(random.below(24));
  const int shifts[] = {0,   1,   23,  24,  25,  26,  30,  48, 60,
                        -23, -24, -25, -26, -30, -48, -60, -80};
  const int shift = shifts[random.below(sizeof shifts / sizeof *shifts)];
  const int spread = static_cast<int>(random.below(5)) - 2;
  const float a = short_float(exponent / 2, bits_a);
  const float b = short_float(exponent - exponent / 2, bits_b);
  const float c = short_float(exponent + shift + spread,
                              1 + static_cast<int>(random.below(24)));
  batch.add_signs(a, b, c);
}

TEST(ExactFma, HalfwayCasesAtEveryMagnitude) {
  Random random(2);
  FmaBatch batch;
  for (int round = 0; round < 3000; ++round) {
    for (int exponent = -180; exponent <= 130; ++exponent) {
      add_difficult(batch, random, exponent);
    }
  }
}

// The addend is the negative rounded product, or a neighbour of it: the result
// is the error of the product.
TEST(ExactFma, Cancellation) {
  Random random(3);
  FmaBatch batch;
  for (int i = 0; i < 1000000; ++i) {
    const float a = std::ldexp(static_cast<float>(bits32(random) >> 8),
                               static_cast<int>(random.below(130)) - 90);
    const float b = std::ldexp(static_cast<float>(bits32(random) >> 8),
                               static_cast<int>(random.below(130)) - 90);
    const auto near =
        static_cast<std::uint32_t>(float_to_bits(a * b) + random.below(5) - 2);
    batch.add(a, b, -float_from_bits(near));
  }
}

// A product exactly between two floats, and an addend that is far smaller but
// decides between them: here two roundings give wrong bits.
TEST(ExactFma, TinyAddendBreaksTheTie) {
  FmaBatch batch;
  for (int k = 1; k < 4096; ++k) {
    const float a = 1.0f + static_cast<float>(k) * 0x1p-12f;
    const float b = 1.0f + static_cast<float>(4097 - k) * 0x1p-12f;
    for (const int exponent : {-149, -140, -126, -100, -60, -40, -30, -26}) {
      batch.add_signs(a, b, std::ldexp(1.0f, exponent));
      // The same below the smallest normal number.
      batch.add_signs(std::ldexp(a, -70), std::ldexp(b, -60),
                      std::ldexp(1.0f, exponent));
    }
  }
  // The product is a little less or more than half an ulp of the addend.
  for (int k = 12; k < 24; ++k) {
    const float above = 1.0f + std::ldexp(1.0f, -k);
    const float below = 1.0f - std::ldexp(1.0f, -k);
    for (int j = 0; j < 64; ++j) {
      const float c = 0x1p24f + static_cast<float>(2 * j);
      batch.add_signs(above, below, c);
      batch.add_signs(above, 1.0f, c);
    }
  }
}

TEST(ExactFma, EveryFloatEnvironment) {
  for (const FloatEnvironment& environment : kFloatEnvironments) {
    SCOPED_TRACE(environment.name);
    Random random(4);
    FmaBatch batch(environment.control);
    for (int i = 0; i < 300000; ++i) {
      batch.add_bits(bits32(random), bits32(random), bits32(random));
    }
    for (int round = 0; round < 300; ++round) {
      for (int exponent = -180; exponent <= 130; ++exponent) {
        add_difficult(batch, random, exponent);
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
#endif  // HWY_ONCE
