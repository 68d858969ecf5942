#include "slave/attention_args.h"
#include "slave/convolution_args.h"
#include "slave/kernel_list.h"

namespace swamp {

double flops_of(KernelId kernel, const void* args) noexcept {
  // Of one row in every lane, with columns of q and k and columns of v: scores
  // and output forward; scores, their gradient, dq, dk and dv backward.
  const auto flops = [&](double products, double value_products) {
    const auto& sizes = *static_cast<const slave::AttentionArgs*>(args);
    return 2.0 * sizes.lanes *
           (products * sizes.columns + value_products * sizes.value_columns);
  };
  switch (slave::kKernels[kernel].family) {
    case KernelFamily::attention:
      return flops(1, 1);
    case KernelFamily::attention_scores:
      return flops(1, 0);
    case KernelFamily::attention_steps:
      return flops(0, static_cast<const slave::AttentionArgs*>(args)->rows);
    case KernelFamily::attention_backward:
      return flops(3, 2);
    case KernelFamily::product_rows: {
      const auto& sizes = *static_cast<const slave::ProductArgs*>(args);
      return 2.0 * static_cast<double>(sizes.terms) * sizes.rows *
             slave::kProductLanes;
    }
    case KernelFamily::product: {
      const auto& sizes = *static_cast<const slave::ProductArgs*>(args);
      return 2.0 * static_cast<double>(sizes.terms) *
             static_cast<double>(sizes.columns);
    }
    case KernelFamily::convolution:
    case KernelFamily::convolution_weight: {
      const auto& sizes = *static_cast<const slave::ConvolutionArgs*>(args);
      return 2.0 * static_cast<double>(sizes.out_pixels()) * sizes.terms *
             slave::kConvolutionLanes;
    }
    default:
      return 0;
  }
}

}  // namespace swamp
