// Reductions over the array: swamp_sunway/sync.h.
#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/sunway/api.h"
#include "runtime/sunway/meeting.h"
#include "runtime/sunway/world.h"

namespace sunway = swamp::sunway;

namespace {

enum Type { kInt, kUnsigned, kLong, kUnsignedLong, kFloat, kDouble };
enum Operation { kAdd, kAnd, kOr, kXor, kMin, kMax };

// What each slave of each core group has brought to the reduction.
const void* brought[6][64];

template <class T>
T bits(T a, T b, int operation) {
  if (operation == kAnd) return a & b;
  return operation == kOr ? a | b : a ^ b;
}
float bits(float a, float, int) { return a; }
double bits(double a, double, int) { return a; }

template <class T>
T combine(T a, T b, int operation) {
  switch (operation) {
    case kAdd:
      return a + b;
    case kMin:
      return std::min(a, b);
    case kMax:
      return std::max(a, b);
    default:
      return bits(a, b, operation);
  }
}

// reduce() combines in the order of the slaves, so all get the same bits.
template <class T>
void reduce(const sunway::Slave& slave, void* to, int count, int operation,
            const char* call, const void* pc, sunway::Slave& self) {
  std::vector<T> sum(static_cast<std::size_t>(count));
  bool first = true;
  sunway::for_range(
      slave, sunway::Range::array, ~0u, [&](const sunway::Slave& other) {
        const auto* from =
            static_cast<const T*>(brought[other.group][other.id]);
        for (std::size_t i = 0; i < sum.size(); ++i) {
          sum[i] = first ? from[i] : combine(sum[i], from[i], operation);
        }
        first = false;
      });
  sunway::meet(self, sunway::Range::array, call, pc);
  std::memcpy(to, sum.data(), sum.size() * sizeof(T));
}

}  // namespace

extern "C" {

#pragma GCC visibility push(default)

int CRTS_scoll_redurt(void* from, void* to, int count, int type, int operation,
                      void*, int) {
  constexpr const char* kCall = "CRTS_scoll_redurt";
  const void* pc = SWAMP_SUNWAY_CALLER();
  sunway::Slave& slave = sunway::require_self(kCall);
  if (count <= 0 || type < kInt || type > kDouble || operation < kAdd ||
      operation > kMax ||
      (type >= kFloat && operation >= kAnd && operation <= kXor)) {
    return 1;
  }
  brought[slave.group][slave.id] = from;
  sunway::meet(slave, sunway::Range::array, kCall, pc);
  switch (type) {
    case kInt:
      reduce<int>(slave, to, count, operation, kCall, pc, slave);
      break;
    case kUnsigned:
      reduce<unsigned>(slave, to, count, operation, kCall, pc, slave);
      break;
    case kLong:
      reduce<long>(slave, to, count, operation, kCall, pc, slave);
      break;
    case kUnsignedLong:
      reduce<unsigned long>(slave, to, count, operation, kCall, pc, slave);
      break;
    case kFloat:
      reduce<float>(slave, to, count, operation, kCall, pc, slave);
      break;
    default:
      reduce<double>(slave, to, count, operation, kCall, pc, slave);
      break;
  }
  return 0;
}

#pragma GCC visibility pop

}  // extern "C"
