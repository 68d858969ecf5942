// Shared by the operators that replace those of PyTorch for 16-bit tensors.
#ifndef SWAMP_MASTER_ATEN_OVERRIDES_H_
#define SWAMP_MASTER_ATEN_OVERRIDES_H_

#include <ATen/core/Tensor.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarType.h>
#include <torch/library.h>

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "swamp/aten.h"
#include "swamp/channel_norm.h"
#include "swamp/product.h"

namespace swamp::aten {

inline bool is_half(at::ScalarType type) noexcept {
  return type == at::ScalarType::Half || type == at::ScalarType::BFloat16;
}

inline bool is_real(at::ScalarType type) noexcept {
  return is_half(type) || type == at::ScalarType::Float ||
         type == at::ScalarType::Double;
}

// is_switched() returns whether PyTorch's operators of a type run swamp's
// kernels.
inline bool is_switched(at::ScalarType type) {
  return is_half(type) ? is_half_precision() || is_reproducible()
                       : type == at::ScalarType::Float && is_reproducible();
}

// prefers_tiles() returns whether PyTorch's products and attention of a dtype
// are preferred, because the CPU multiplies tiles of it, AMX-BF16 or AMX-FP16,
// and oneDNN may use them: they are several times as fast as swamp's, but
// for one row or query. Never if `reproducible`; attention has its own switch.
bool prefers_tiles(at::ScalarType type);

// prefers_onednn() returns whether oneDNN's products and convolutions of a
// 16-bit dtype are preferred, because the CPU multiplies its numbers, by tiles
// or AVX512-BF16: swamp's take over only what each of them documents. Never if
// `reproducible`.
bool prefers_onednn(at::ScalarType type);

// is_product_taken() is is_switched() for products. They are slower than
// PyTorch's without fused multiply-add, and if prefers_tiles().
bool is_product_taken(at::ScalarType type);

// has_product() returns whether products that no switch turns off are swamp's.
bool has_product();

// is_seen() returns whether the operators that PyTorch makes this call of
// are visible to something that knows them but not swamp's: torch.func, a
// dispatch mode such as make_fx, a subclass such as DTensor, forward-mode AD or
// a trace of TorchScript.
bool is_seen(std::initializer_list<std::optional<at::Tensor>> tensors);

// to_matrices() converts a tensor of two or three dimensions. It returns false
// if swamp's product does not take its strides or its alignment.
bool to_matrices(const at::Tensor& tensor, Matrices& matrices);

// matrices_of() converts a tensor of swamp's own, whose strides it takes: a
// matrix in row-major order, a part of one, or its transpose.
inline Matrices matrices_of(const at::Tensor& matrix) {
  Matrices found;
  TORCH_INTERNAL_ASSERT(to_matrices(matrix, found));
  return found;
}

// is_plain() returns whether a tensor is strided, on the CPU and of that dtype.
inline bool is_plain(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.defined() && tensor.scalar_type() == type && tensor.is_cpu() &&
         tensor.layout() == at::kStrided;
}

// as_float() converts integers to the default dtype, if `reproducible`, as
// PyTorch's operators of floats do; it returns other tensors as they are.
inline at::Tensor as_float(const at::Tensor& tensor) {
  const bool converts = is_reproducible() &&
                        c10::isIntegralType(tensor.scalar_type(), true) &&
                        is_plain(tensor, tensor.scalar_type());
  return converts
             ? tensor.to(c10::typeMetaToScalarType(c10::get_default_dtype()))
             : tensor;
}

// mask_of() returns which dimensions are reduced, all if none is named, or
// nothing if PyTorch refuses them: one that does not exist, or is named twice.
std::optional<std::vector<bool>> mask_of(const at::Tensor& x,
                                         at::OptionalIntArrayRef dim);

// reduced_sizes() returns the sizes of a reduction of the dimensions of `mask`.
std::vector<std::int64_t> reduced_sizes(const at::Tensor& x,
                                        const std::vector<bool>& mask,
                                        bool keepdim);

// shape_of() returns the shape of a reduction of neighbouring dimensions of a
// contiguous tensor, or nothing if others lie between them.
std::optional<SumShape> shape_of(at::IntArrayRef sizes,
                                 const std::vector<bool>& mask);

// column_sums() returns the float32 sums of a contiguous 16-bit tensor along
// its middle dimension, each divided by `divisor` and rounded.
at::Tensor column_sums(const at::Tensor& x, const SumShape& shape,
                       float divisor, at::IntArrayRef sizes);

// column_extremes() returns the largest or smallest numbers of a contiguous
// 16-bit tensor along its middle dimension, nan if one is.
at::Tensor column_extremes(const at::Tensor& x, const SumShape& shape,
                           bool is_smallest, at::IntArrayRef sizes);

// rounded() returns numbers, each rounded to float32 and then to the 16-bit
// dtype of x, as the result of a reduction of the dimensions of `mask`. They
// are first divided by `divisor`, in float32.
at::Tensor rounded(const double* numbers, const at::Tensor& x,
                   const std::vector<bool>& mask, bool keeps,
                   float divisor = 1);

// can_hold() returns whether such an operator writes a result of a dtype to
// `out`, converted if need be.
inline bool can_hold(const at::Tensor& out, at::ScalarType type) {
  return c10::canCast(type, out.scalar_type()) &&
         is_plain(out, out.scalar_type());
}

// Unreproducible is what happens with `reproducible` when an operator is called
// whose bits depend on the CPU.
enum Unreproducible : std::int64_t { kIgnore, kWarn, kRaise };

// set_unreproducible() sets an Unreproducible, and returns the one before.
std::int64_t set_unreproducible(std::int64_t value);

// is_one() returns whether a factor changes nothing.
inline bool is_one(const at::Scalar& factor) {
  return !factor.isBoolean() && !factor.isComplex() && factor.equal(1);
}

// A launch, or a copy to float32, takes longer than PyTorch's kernels of
// smaller 16-bit tensors, and shorter rows are slower than its loops. A copy
// with more elements is new pages of memory in each call, which take longer
// than the operator.
inline constexpr std::int64_t kLeastElements = 4096, kLeastColumns = 64,
                              kMostElements = std::int64_t{1} << 22;

// Sums and products. The kernel of 16-bit elements computes those that it
// takes, PyTorch all others.
at::Tensor pointwise_add(const at::Tensor& a, const at::Tensor& b,
                         const at::Scalar& alpha);
at::Tensor& pointwise_add_(at::Tensor& a, const at::Tensor& b,
                           const at::Scalar& alpha);
at::Tensor pointwise_sub(const at::Tensor& a, const at::Tensor& b,
                         const at::Scalar& alpha);
at::Tensor& pointwise_sub_(at::Tensor& a, const at::Tensor& b,
                           const at::Scalar& alpha);
at::Tensor pointwise_mul(const at::Tensor& a, const at::Tensor& b);
at::Tensor& pointwise_mul_(at::Tensor& a, const at::Tensor& b);
at::Tensor pointwise_addcmul(const at::Tensor& a, const at::Tensor& b,
                             const at::Tensor& c, const at::Scalar& value);
at::Tensor& pointwise_addcmul_(at::Tensor& a, const at::Tensor& b,
                               const at::Tensor& c, const at::Scalar& value);

// pointwise_lerp() returns nothing, and pointwise_lerp_() false, if that kernel
// does not take the arguments.
std::optional<at::Tensor> pointwise_lerp(const at::Tensor& a,
                                         const at::Tensor& b,
                                         const at::Scalar& weight);
std::optional<at::Tensor> pointwise_lerp(const at::Tensor& a,
                                         const at::Tensor& b,
                                         const at::Tensor& weight);
bool pointwise_lerp_(const at::Tensor& a, const at::Tensor& b,
                     const at::Scalar& weight);
bool pointwise_lerp_(const at::Tensor& a, const at::Tensor& b,
                     const at::Tensor& weight);

// wide_softmax() returns the float32 softmax, or its log, of 16-bit rows for
// which is_wide_softmax() is true; wide_softmax_backward() the gradient in a
// 16-bit dtype, if is_wide_gradient(), at a result y along any dimension.
bool is_wide_softmax(const at::Tensor& x, std::int64_t dim);
at::Tensor wide_softmax(const at::Tensor& x, bool is_log);
inline bool is_wide_gradient(const at::Tensor& y, at::ScalarType type) {
  return is_half(type) && is_plain(y, at::kFloat);
}
at::Tensor wide_softmax_backward(const at::Tensor& grad, const at::Tensor& y,
                                 std::int64_t dim, at::ScalarType type,
                                 bool is_log);

// report_unreproducible() warns that an operator of PyTorch is about to be
// called, once after each set_unreproducible(); or it throws, or does nothing,
// as that chose. `on` is what its bits depend on; `warned` begins as 0 and
// belongs to the operator.
constexpr const char* kOnCpuAndThreads = "the CPU and the number of threads";
void report_unreproducible(const std::string& name, const char* on,
                           std::atomic<std::int64_t>& warned);

// Register the kernels of PyTorch's operators, for the key CPU. Unless
// is_switched() they call PyTorch's own.
void register_products(torch::Library& library);
void register_convolution(torch::Library& library);
void register_attention(torch::Library& library);
void register_rows(torch::Library& library);
void register_activations(torch::Library& library);
void register_arithmetic(torch::Library& library);
void register_pointwise(torch::Library& library);
void register_channels(torch::Library& library);
void register_row_loops(torch::Library& library);
void register_comparisons(torch::Library& library);

// The same for the key AutogradCPU, for operators that PyTorch composes of
// others, and for AutocastCPU.
void register_composite_products(torch::Library& library);
void register_composite_rows(torch::Library& library);
void register_wide_softmax(torch::Library& library);
void register_autocast_rows(torch::Library& library);

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_OVERRIDES_H_
