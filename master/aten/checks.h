#ifndef SWAMP_MASTER_ATEN_CHECKS_H_
#define SWAMP_MASTER_ATEN_CHECKS_H_

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace swamp::aten {

// require_float() wants one float32 on the CPU, in PyTorch's words.
inline void require_float(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.is_cpu(), name, " must be a CPU tensor.");
  TORCH_CHECK(tensor.numel() == 1, name, " must be a 1-element tensor.");
  TORCH_CHECK(tensor.scalar_type() == at::ScalarType::Float, name,
              " must be a float tensor.");
}

// require_list() wants CPU tensors, strided, without elements that share memory
// where they are written.
void require_list(at::TensorList tensors, const char* name, bool written);

// require_like() wants as many tensors as `like` has, of the same shapes.
void require_like(at::TensorList tensors, const char* name, at::TensorList like,
                  const char* like_name);

// require_types() wants every tensor to be one of the dtypes.
void require_types(at::TensorList tensors, const char* name,
                   std::initializer_list<at::ScalarType> types);

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_CHECKS_H_
