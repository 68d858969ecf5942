// The checks of the operators' one-element arguments, and libswamp's errors as
// PyTorch's.
#ifndef SWAMP_MASTER_ATEN_CHECKS_H_
#define SWAMP_MASTER_ATEN_CHECKS_H_

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <initializer_list>

#include "master/aten/tensor.h"
#include "swamp/error.h"

namespace swamp::aten {

// ScalarDtype is what a one-element argument may hold, and how PyTorch's error
// texts name it.
struct ScalarDtype {
  const char* name;
  at::ScalarType type;
  at::ScalarType alternative;  // the same again if there is none
};
inline constexpr ScalarDtype kFloat{"a float", at::ScalarType::Float,
                                    at::ScalarType::Float};
inline constexpr ScalarDtype kInt{"an int", at::ScalarType::Int,
                                  at::ScalarType::Int};
inline constexpr ScalarDtype kFloatOrDouble{
    "a float or double", at::ScalarType::Float, at::ScalarType::Double};

struct ScalarArgument {
  const at::Tensor& tensor;
  const char* name;
  ScalarDtype dtype = kFloat;
};

// require_scalars() throws unless every argument is one element on the CPU, of
// its dtype, in memory. The words and the order of the checks are as in
// PyTorch's kernels: all devices, then all counts, then all dtypes.
inline void require_scalars(std::initializer_list<ScalarArgument> arguments) {
  for (const auto& [tensor, name, dtype] : arguments) {
    TORCH_CHECK(tensor.is_cpu(), name, " must be a CPU tensor.");
  }
  for (const auto& [tensor, name, dtype] : arguments) {
    TORCH_CHECK(tensor.numel() == 1, name, " must be a 1-element tensor.");
  }
  for (const auto& [tensor, name, dtype] : arguments) {
    const at::ScalarType type = tensor.scalar_type();
    TORCH_CHECK(type == dtype.type || type == dtype.alternative, name,
                " must be ", dtype.name, " tensor.");
    TORCH_CHECK(!is_lazy(tensor), name,
                " must not be a zero tensor or have a lazy minus sign.");
  }
}

// translated() runs `call` and throws PyTorch's error for an Error of libswamp.
template <class Call>
decltype(auto) translated(Call call) {
  try {
    return call();
  } catch (const Error& error) {
    TORCH_CHECK_NOT_IMPLEMENTED(error.status() != SWAMP_UNSUPPORTED,
                                "swamp: ", error.what());
    TORCH_CHECK(false, "swamp: ", error.what());
  }
}

// computed() fills results by compute(), unless they are on the device meta,
// which has shapes and no values. Returns the results.
template <class Compute>
at::Tensor computed(at::Tensor result, Compute compute) {
  if (!result.is_meta()) translated(compute);
  return result;
}

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_CHECKS_H_
