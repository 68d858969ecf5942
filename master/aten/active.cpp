// Whose kernels PyTorch's operators are: swamp's, or stock's again.
#include "master/aten/active.h"

#include <c10/util/Exception.h>

#include <atomic>

#if __has_include(<ATen/ops/_amp_update_scale_cpu_dispatch.h>)
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale_cpu_dispatch.h>
#include <ATen/ops/_amp_update_scale_cpu_dispatch.h>
#define SWAMP_STOCK_HAS_KERNELS 1
#else  // 1.13
#define SWAMP_STOCK_HAS_KERNELS 0
#endif

#include "swamp/aten.h"

namespace swamp::aten {
namespace {

// A flag, and not a change of the dispatcher's table: that would free a kernel
// which another thread may be about to call.
std::atomic<bool>& active() noexcept {
  static std::atomic<bool> value{true};
  return value;
}

#if !SWAMP_STOCK_HAS_KERNELS
[[noreturn]] void no_stock_kernel(const char* operation) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, operation,
                              ": swamp is not active, and this PyTorch has no "
                              "kernel of its own for the CPU");
}
#endif

}  // namespace

bool set_active(bool value) { return active().exchange(value); }

bool is_active() { return active().load(std::memory_order_relaxed); }

void unscale_kernel(at::TensorList tensors, at::Tensor& found_inf,
                    const at::Tensor& inv_scale) {
  if (is_active()) {
    amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, inv_scale);
    return;
  }
#if SWAMP_STOCK_HAS_KERNELS
  at::cpu::_amp_foreach_non_finite_check_and_unscale_(tensors, found_inf,
                                                      inv_scale);
#else
  no_stock_kernel("_amp_foreach_non_finite_check_and_unscale_");
#endif
}

at::Tensor& update_scale_kernel(at::Tensor& current_scale,
                                at::Tensor& growth_tracker,
                                const at::Tensor& found_inf,
                                double growth_factor, double backoff_factor,
                                std::int64_t growth_interval) {
  if (is_active()) {
    return amp_update_scale_(current_scale, growth_tracker, found_inf,
                             growth_factor, backoff_factor, growth_interval);
  }
#if SWAMP_STOCK_HAS_KERNELS
  return at::cpu::_amp_update_scale_(current_scale, growth_tracker, found_inf,
                                     growth_factor, backoff_factor,
                                     growth_interval);
#else
  no_stock_kernel("_amp_update_scale_");
#endif
}

}  // namespace swamp::aten
