#include "master/aten/checks.h"

#include <ATen/MemoryOverlap.h>

#include <string>

namespace swamp::aten {

void require_list(at::TensorList tensors, const char* name, bool written) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK(tensors[i].is_cpu(), name, "[", i, "] must be a CPU tensor.");
    TORCH_CHECK(tensors[i].layout() == at::kStrided, name, "[", i,
                "] must be a strided tensor.");
    if (written) at::assert_no_internal_overlap(tensors[i]);
  }
}

void require_like(at::TensorList tensors, const char* name, at::TensorList like,
                  const char* like_name) {
  TORCH_CHECK(tensors.size() == like.size(), name, " has ", tensors.size(),
              " tensors; expected ", like.size(), ", as ", like_name);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK(tensors[i].sizes() == like[i].sizes(), name, "[", i,
                "] has the shape ", tensors[i].sizes(), "; expected ",
                like[i].sizes(), ", as ", like_name);
  }
}

void require_types(at::TensorList tensors, const char* name,
                   std::initializer_list<at::ScalarType> types) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::string expected;
    bool good = false;
    for (const at::ScalarType type : types) {
      good |= tensors[i].scalar_type() == type;
      expected += expected.empty() ? "" : " or ";
      expected += c10::toString(type);
    }
    TORCH_CHECK(good, name, "[", i, "] has the dtype ",
                c10::toString(tensors[i].scalar_type()), "; expected ",
                expected);
  }
}

}  // namespace swamp::aten
