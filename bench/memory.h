// The memory that all cases share.
#ifndef SWAMP_BENCH_MEMORY_H_
#define SWAMP_BENCH_MEMORY_H_

#include <cstddef>

namespace swamp::bench {

// limit_shared_memory() says, before the first use, how much there may be.
void limit_shared_memory(std::size_t bytes);

// shared_memory() returns the one block that every case works on: the roof and
// the operator see the same pages. Its first `bytes` are filled and paged in;
// the address never changes. Throws std::bad_alloc beyond the limit.
//
// Every 4 bytes are 1.0f when they are filled. Cases multiply by -1 (a multiply
// that nothing skips, whose result never drifts), in any dtype and order: that
// flips bits 15 and 31 at most, and whatever is left is a normal number, or
// zero, in all four dtypes. So no case slows another down by inf or subnormals.
std::byte* shared_memory(std::size_t bytes);

// PristineMemory is the first `bytes` of the shared memory for a case that
// leaves other values than those: it is filled again before and after.
class PristineMemory {
 public:
  explicit PristineMemory(std::size_t bytes);
  ~PristineMemory();
  PristineMemory(const PristineMemory&) = delete;
  PristineMemory& operator=(const PristineMemory&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

inline constexpr float kFlipSign = -1.0f;  // inv_scale of the unscale cases
inline constexpr float kOnlyCheck = 1.0f;  // inv_scale of the check cases

}  // namespace swamp::bench

#endif  // SWAMP_BENCH_MEMORY_H_
