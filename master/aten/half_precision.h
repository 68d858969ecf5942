// What the float16 and bfloat16 products share: float32 copies of operands in a
// bounded scratch memory, one rounding of the result, and the choice between
// PyTorch's own 16-bit kernel and float32.
#ifndef SWAMP_MASTER_ATEN_HALF_PRECISION_H_
#define SWAMP_MASTER_ATEN_HALF_PRECISION_H_

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>

#include "swamp/aten.h"

namespace swamp::aten {

inline bool is_half(at::ScalarType type) noexcept {
  return type == at::ScalarType::Half || type == at::ScalarType::BFloat16;
}

// is_plain() returns whether a tensor is strided, on the CPU and of that dtype.
bool is_plain(const at::Tensor& tensor, at::ScalarType type);

// convert() sets to = from, which have the same sizes and may have different
// dtypes: swamp's cast if both are dense in the same order, else PyTorch's
// copy.
void convert(const at::Tensor& to, const at::Tensor& from);

// Scratch is kScratchFloats floats of memory. The process keeps one between
// calls, because returning its pages to the system after every product is slow.
// Calls that run at the same time have one each.
inline constexpr std::int64_t kScratchFloats = std::int64_t{8} << 20;

class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // like() returns a dense float32 tensor of the same sizes and the same order
  // of elements, whose values are undefined. If it fits, it is in the scratch
  // memory, and must not be used after release() or the end of `this`.
  at::Tensor like(const at::Tensor& tensor);
  // widened() returns the same with the values of the tensor.
  at::Tensor widened(const at::Tensor& tensor);

  // mark() returns how much of the scratch memory is in use. release(mark)
  // frees the tensors that like() has returned since then.
  std::int64_t mark() const noexcept { return used_; }
  void release(std::int64_t mark) noexcept { used_ = mark; }

  // free_kept() frees the memory that the process keeps.
  static void free_kept();

 private:
  float* data_;
  std::int64_t used_ = 0;
};

// Way is how a 16-bit product is computed. The values are those of
// SWAMP_HALF_PRECISION, in its order.
enum class Way : signed char { kMeasure, kNative, kFloat32, kOneDnn };

// Choice is the way of one class of computations; kMeasure until it has been
// measured.
using Choice = std::atomic<Way>;

// Race is one computation done in each way, without kMeasure: by PyTorch's own
// 16-bit kernel, in float32 by PyTorch's BLAS, in float32 by oneDNN. An empty
// function is a way that does not exist.
using Race = std::array<std::function<void()>, 3>;

// choose() returns how the computations of a class are done. Unless
// SWAMP_HALF_PRECISION sets it, the first call of a class measures which way is
// the fastest, and the process keeps the result. If two threads measure at the
// same time, the first to finish decides. prepare(false) returns a race on
// operands of the class's sizes; prepare(true) one on operands so small that
// even a kernel without any optimisation takes only milliseconds.
Way choose(Choice& choice, const std::function<Race(bool small)>& prepare);

// size_level() is a class of sizes, 0 to kSizeLevels - 1, and size_of_level()
// the size that represents it.
inline constexpr int kSizeLevels = 4;
int size_level(std::int64_t count) noexcept;
std::int64_t size_of_level(int level, bool small) noexcept;

// Register the kernels of PyTorch's operators, for the key CPU. With half
// precision off they call PyTorch's own.
void register_products(torch::Library& library);
void register_attention(torch::Library& library);
void register_rows(torch::Library& library);

// The same for the key AutogradCPU, for operators that PyTorch composes of
// others, and for AutocastCPU.
void register_composite_rows(torch::Library& library);
void register_autocast_rows(torch::Library& library);

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_HALF_PRECISION_H_
