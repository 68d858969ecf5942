// Flush-to-zero and rounding modes, for tests that compute under them.
#ifndef SWAMP_TESTS_SUPPORT_FLOAT_ENVIRONMENT_SCOPE_H_
#define SWAMP_TESTS_SUPPORT_FLOAT_ENVIRONMENT_SCOPE_H_

#if defined(__SSE__)
#include <xmmintrin.h>
#define SWAMP_TEST_HAS_MXCSR 1

namespace swamp::test {

struct FloatEnvironment {
  const char* name;
  unsigned mxcsr;  // what is added to the default
};

inline constexpr unsigned kFlush = 0x8040;  // FTZ and DAZ
inline constexpr FloatEnvironment kFloatEnvironments[] = {
    {"default", 0},
    {"flush", kFlush},
    {"ftz", 0x8000},
    {"daz", 0x0040},
    {"down", 0x2000},
    {"up", 0x4000},
    {"to zero", 0x6000},
    {"flush, down", kFlush | 0x2000},
    {"flush, up", kFlush | 0x4000}};

// MxcsrScope computes under another MXCSR and restores the old one. Use
// only calls of functions in other files inside it, because the compiler may
// move arithmetic out of it.
class MxcsrScope {
 public:
  explicit MxcsrScope(unsigned added) : old_(_mm_getcsr()) {
    _mm_setcsr(0x1f80u | added);
  }
  ~MxcsrScope() { _mm_setcsr(old_); }
  MxcsrScope(const MxcsrScope&) = delete;
  MxcsrScope& operator=(const MxcsrScope&) = delete;

 private:
  unsigned old_;
};

}  // namespace swamp::test
#endif

#endif  // SWAMP_TESTS_SUPPORT_FLOAT_ENVIRONMENT_SCOPE_H_
