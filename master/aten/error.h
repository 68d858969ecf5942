#ifndef SWAMP_MASTER_ATEN_ERROR_H_
#define SWAMP_MASTER_ATEN_ERROR_H_

#include <c10/util/Exception.h>

#include "swamp/error.h"

namespace swamp::aten {

// translated() calls into libswamp; its errors come out as PyTorch's.
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

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_ERROR_H_
