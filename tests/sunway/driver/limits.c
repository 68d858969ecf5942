#include <slave.h>
/* The bit of addresses in another slave's LDM as another number, also where
 * other sources or other names see it. */
enum { kOne = 1, kMost = 1L << 45, kNext };
long shown = 1L << 45;
static long changed, listed;
static void change(int two) {
  if (two)
    changed = 2;
  else
    changed = 1L << 45;
  two = 0, listed = 1L << 45;
}
static long get_listed(void) { return listed; }
static unsigned long shifted(int k) { return 1UL << k; }
#ifdef __cplusplus
struct Config {
  static constexpr long kMost = 1L << 45;
};
namespace config {
constexpr long kLimit = 1L << 45;
}
struct Options {
  long limit = 1L << 45;
};
struct __attribute__((packed)) Packed {
  struct __attribute__((packed)) {
    const long limit = 1L << 45;
  } part;
};
template <int kBit>
struct Bit {
  static constexpr unsigned long kValue = 1UL << kBit;
};
static long argument(long limit = 1L << 45, int = 0) { return limit; }
static long get_late() { return 1L << 44 << 1; }
extern "C"
#else
static long late;
static long get_late(void) { return late; }
static long late = 1L << 45;
#endif
    void
    work(int* numbers) {
  enum { kSteps = 45 };
  if (_PEN != 5) return;
  change(numbers[0]);
  long sum =
      kNext + shown + changed + get_listed() + get_late() + shifted(kSteps);
  for (long step = 1L << 45; step > 1L << 44; step >>= 1) sum += step;
#ifdef __cplusplus
  sum += Config::kMost + config::kLimit + Options().limit +
         Packed().part.limit + Bit<45>::kValue + argument() - argument(1, 2);
#endif
  numbers[32 * 5 + 1] = sum / kMost * 10 + sum % kMost;
}
