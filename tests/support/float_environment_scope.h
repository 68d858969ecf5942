// Flush-to-zero and rounding modes, for tests that compute under them.
#ifndef SWAMP_TESTS_SUPPORT_FLOAT_ENVIRONMENT_SCOPE_H_
#define SWAMP_TESTS_SUPPORT_FLOAT_ENVIRONMENT_SCOPE_H_

#include <cfenv>
#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace swamp::test {

// The bits of the CPU's control register that are added to the default, or the
// rounding mode of <cfenv> on a CPU without flush-to-zero.
#if defined(__SSE__)
inline constexpr unsigned kFlush = 0x8040;  // FTZ and DAZ
inline constexpr unsigned kDown = 0x2000, kUp = 0x4000, kToZero = 0x6000;
#elif defined(__aarch64__)
inline constexpr unsigned kFlush = 1u << 24;  // FZ: of results and inputs
inline constexpr unsigned kDown = 2u << 22, kUp = 1u << 22, kToZero = 3u << 22;
#else
inline constexpr unsigned kFlush = 0;
inline constexpr unsigned kDown = FE_DOWNWARD, kUp = FE_UPWARD,
                          kToZero = FE_TOWARDZERO;
#endif

struct FloatEnvironment {
  const char* name;
  unsigned control;
};

inline constexpr FloatEnvironment kFloatEnvironments[] = {
    {"default", 0},
    {"flush", kFlush},
#if defined(__SSE__)
    {"ftz", 0x8000},
    {"daz", 0x0040},
#endif
    {"down", kDown},
    {"up", kUp},
    {"to zero", kToZero},
    {"flush, down", kFlush | kDown},
    {"flush, up", kFlush | kUp}};

// ControlScope computes under another floating-point environment, with all
// exception flags clear, and restores the old one. Use only calls of functions
// in other files inside it, because the compiler may move arithmetic out of it.
class ControlScope {
 public:
  explicit ControlScope(unsigned control) {
#if defined(__SSE__)
    old_ = _mm_getcsr();
    _mm_setcsr(0x1f80u | control);
#else
    std::fegetenv(&old_);
    std::fesetenv(FE_DFL_ENV);
#if defined(__aarch64__)
    const std::uint64_t fpcr = control;
    asm volatile("msr fpcr, %0" : : "r"(fpcr));
#else
    std::fesetround(static_cast<int>(control));
#endif
#endif
  }
  ~ControlScope() {
#if defined(__SSE__)
    _mm_setcsr(old_);
#else
    std::fesetenv(&old_);
#endif
  }
  ControlScope(const ControlScope&) = delete;
  ControlScope& operator=(const ControlScope&) = delete;

 private:
#if defined(__SSE__)
  unsigned old_;
#else
  std::fenv_t old_;
#endif
};

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SUPPORT_FLOAT_ENVIRONMENT_SCOPE_H_
