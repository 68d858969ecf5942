// PyTorch's comparisons of 16-bit tensors with a number, which take longer than
// of float32: their results are looked up.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/eq_cpu_dispatch.h>
#include <ATen/ops/ge_cpu_dispatch.h>
#include <ATen/ops/gt_cpu_dispatch.h>
#include <ATen/ops/le_cpu_dispatch.h>
#include <ATen/ops/lt_cpu_dispatch.h>
#include <ATen/ops/ne_cpu_dispatch.h>

#include <cmath>

#include "master/aten/number_table.h"
#include "master/aten/overrides.h"

namespace swamp::aten {
namespace {

using at::Tensor;

template <Tensor (*kStock)(const Tensor&, const at::Scalar&)>
Tensor compared(const Tensor& x, const at::Scalar& number) {
  static NumberTable table;
  const at::ScalarType type = x.scalar_type();
  constexpr double kMostWhole = 9007199254740992;  // 2^53: doubles are exact
  if (is_half(type) && is_switched(type) && !number.isComplex() &&
      (number.isFloatingPoint() ||
       std::abs(number.toDouble()) < kMostWhole)) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto y =
        table.look_up(x, at::kBool, {number.toDouble()},
                      [&](const Tensor& all) { return kStock(all, number); });
    if (y) return *y;
  }
  return kStock(x, number);
}

}  // namespace

void register_comparisons(torch::Library& library) {
  library.impl("eq.Scalar", &compared<&at::cpu::eq>);
  library.impl("ge.Scalar", &compared<&at::cpu::ge>);
  library.impl("gt.Scalar", &compared<&at::cpu::gt>);
  library.impl("le.Scalar", &compared<&at::cpu::le>);
  library.impl("lt.Scalar", &compared<&at::cpu::lt>);
  library.impl("ne.Scalar", &compared<&at::cpu::ne>);
}

}  // namespace swamp::aten
