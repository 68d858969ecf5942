// The floating-point environment of a thread: rounding mode, flush-to-zero,
// denormals-are-zero. A spawn sets the caller's on every slave, except on a
// real Sunway, whose slaves have no <cfenv>.
#ifndef SWAMP_RUNTIME_FLOAT_ENVIRONMENT_H_
#define SWAMP_RUNTIME_FLOAT_ENVIRONMENT_H_

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#elif !defined(__aarch64__) && !defined(__sw_64__)
#include <cfenv>
#endif

namespace swamp::runtime {

#if defined(__SSE__)
// The control bits. The others are sticky exception flags, which stay each
// thread's own.
inline constexpr unsigned kMxcsrControl = 0xffc0;
#endif

inline std::uint64_t read_float_environment() noexcept {
#if defined(__SSE__)
  return _mm_getcsr() & kMxcsrControl;
#elif defined(__aarch64__)
  std::uint64_t fpcr;
  asm volatile("mrs %0, fpcr" : "=r"(fpcr));
  return fpcr;
#elif defined(__sw_64__)
  return 0;
#else
  // No flush-to-zero here: the rounding mode is all there is.
  return static_cast<std::uint64_t>(std::fegetround());
#endif
}

// rounds_to_nearest() is about the mode of read_float_environment(), which
// fegetround() need not return: on x86-64 glibc asks the x87 unit.
inline bool rounds_to_nearest() noexcept {
#if defined(__SSE__)
  return (_mm_getcsr() & 0x6000u) == 0;
#elif defined(__aarch64__)
  return (read_float_environment() & 0xc00000u) == 0;
#elif defined(__sw_64__)
  return true;
#else
  return std::fegetround() == FE_TONEAREST;
#endif
}

inline void write_float_environment(std::uint64_t value) noexcept {
#if defined(__SSE__)
  _mm_setcsr((_mm_getcsr() & ~kMxcsrControl) | static_cast<unsigned>(value));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(value));
#elif defined(__sw_64__)
  (void)value;
#else
  std::fesetround(static_cast<int>(value));
#endif
}

// FloatEnvironmentScope gives this thread another thread's environment and
// restores its own at the end. If they are equal, it only reads a register.
class FloatEnvironmentScope {
 public:
  explicit FloatEnvironmentScope(std::uint64_t value) noexcept
      : own_(read_float_environment()), differs_(own_ != value) {
    if (differs_) write_float_environment(value);
  }
  ~FloatEnvironmentScope() {
    if (differs_) write_float_environment(own_);
  }
  FloatEnvironmentScope(const FloatEnvironmentScope&) = delete;
  FloatEnvironmentScope& operator=(const FloatEnvironmentScope&) = delete;

 private:
  std::uint64_t own_;
  bool differs_;
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_FLOAT_ENVIRONMENT_H_
