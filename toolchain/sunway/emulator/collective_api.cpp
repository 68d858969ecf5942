// Reductions over the array: swamp_sunway/sync.h.
#include <algorithm>
#include <cstring>
#include <vector>

#include "toolchain/sunway/emulator/api.h"
#include "toolchain/sunway/emulator/meeting.h"
#include "toolchain/sunway/emulator/world.h"

namespace sunway = swamp::sunway;

namespace {

enum Type { kInt, kUnsigned, kLong, kUnsignedLong, kFloat, kDouble };
enum Operation { kAdd = 1, kAnd, kOr, kXor, kEqv, kMin, kMax };

// A vector type is so many elements of a scalar one.
struct Elements {
  Type type;
  int count;
};
constexpr Elements kTypes[] = {
    {kInt, 1},   {kUnsigned, 1},     {kLong, 1},  {kUnsignedLong, 1},
    {kFloat, 1}, {kDouble, 1},       {kInt, 8},   {kUnsigned, 8},
    {kLong, 4},  {kUnsignedLong, 4}, {kFloat, 4}, {kDouble, 4},
    {kInt, 16},  {kUnsigned, 16},    {kLong, 8},  {kUnsignedLong, 8},
    {kFloat, 8}, {kDouble, 8},
};
constexpr int kTypeCount = sizeof kTypes / sizeof kTypes[0];

// What each slave of each core group has brought to the reduction.
const void* brought[6][64];

template <class T>
T bits(T a, T b, int operation) {
  if (operation == kAnd) return a & b;
  if (operation == kOr) return a | b;
  return operation == kXor ? a ^ b : static_cast<T>(~(a ^ b));
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

int CRTS_scoll_redurt(void* from, void* to, int units, int vector,
                      int operation, void*, int) {
  constexpr const char* kCall = "CRTS_scoll_redurt";
  const void* pc = SWAMP_SUNWAY_CALLER();
  sunway::Slave& slave = sunway::require_self(kCall);
  if (units <= 0 || vector < 0 || vector >= kTypeCount || operation < kAdd ||
      operation > kMax) {
    return 1;
  }
  const Type type = kTypes[vector].type;
  const int count = units * kTypes[vector].count;
  if (type >= kFloat && operation >= kAnd && operation <= kEqv) return 1;
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

int CRTS_scoll_alltoall(void* from, void* to, int length) {
  constexpr const char* kCall = "CRTS_scoll_alltoall";
  const void* pc = SWAMP_SUNWAY_CALLER();
  sunway::Slave& slave = sunway::require_self(kCall);
  if (length <= 0) return 1;
  const auto bytes = static_cast<std::size_t>(length);
  brought[slave.group][slave.id] = from;
  sunway::meet(slave, sunway::Range::array, kCall, pc);
  std::vector<std::byte> pieces(
      bytes * static_cast<std::size_t>(sunway::world().slaves_per_group()));
  sunway::for_range(
      slave, sunway::Range::array, ~0u, [&](const sunway::Slave& other) {
        std::memcpy(
            pieces.data() + bytes * static_cast<std::size_t>(other.id),
            static_cast<const std::byte*>(brought[other.group][other.id]) +
                bytes * static_cast<std::size_t>(slave.id),
            bytes);
      });
  sunway::meet(slave, sunway::Range::array, kCall, pc);
  std::memcpy(to, pieces.data(), pieces.size());
  return 0;
}

#pragma GCC visibility pop

}  // extern "C"
