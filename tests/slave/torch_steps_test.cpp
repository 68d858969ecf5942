// The optimizers' kernels on every ISA, compared with recorded results of
// torch's own optimizers.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "run_kernel.h"
#include "slave/kernel_args.h"
#include "swamp/float_formats.h"

namespace swamp::test {
namespace {

constexpr std::size_t kCount = 32;

enum class Step { adam, adam_amsgrad, sgd, sgd_momentum };

// TorchStep is one step from the shared weight, gradient and moments.
struct TorchStep {
  const char* text;
  Step step;
  bool fresh;  // the moments begin as 0
  bool maximize;
  std::uint32_t args[8];         // in the order of AdamArgs or SgdArgs
  std::uint32_t out[4][kCount];  // weight and moments
};

#include "golden/torch_steps/steps.inc"

slave::AdamArgs adam_args(const std::uint32_t* bits, float sign) {
  float a[8];
  std::memcpy(a, bits, sizeof a);
  return {1.0f, sign, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]};
}

slave::SgdArgs sgd_args(const std::uint32_t* bits, float sign) {
  float a[6];
  std::memcpy(a, bits, sizeof a);
  return {1.0f,
          sign,
          a[0],
          a[1],
          a[2],
          a[3],
          a[4] != 0 ? 1u : 0u,
          a[5] != 0 ? 1u : 0u};
}

KernelId kernel_of_step(Step step) {
  const KernelFamily family = step == Step::adam ? KernelFamily::adam
                              : step == Step::adam_amsgrad
                                  ? KernelFamily::adam_amsgrad
                              : step == Step::sgd ? KernelFamily::sgd
                                                  : KernelFamily::sgd_momentum;
  return slave::kernel_of(family, {kFloat32});
}

// replay() takes one step by a table and compares all that is written.
void replay(const TorchStep& torch, const KernelTable& table) {
  std::uint32_t gradient[kCount], state[4][kCount] = {};
  std::memcpy(gradient, kGradient, sizeof gradient);
  std::memcpy(state[0], kWeight, sizeof kWeight);
  if (!torch.fresh) {
    std::memcpy(state[1], kFirst, sizeof kFirst);
    std::memcpy(state[2], kSecond, sizeof kSecond);
    std::memcpy(state[3], kLargest, sizeof kLargest);
  }
  const float sign = torch.maximize ? -1.0f : 1.0f;
  const slave::AdamArgs adam = adam_args(torch.args, sign);
  const slave::SgdArgs sgd = sgd_args(torch.args, sign);
  const KernelId kernel = kernel_of_step(torch.step);
  const int written = slave::kKernels[kernel].operand_count - 1;
  const bool is_adam =
      torch.step == Step::adam || torch.step == Step::adam_amsgrad;
  run_kernel(table, kernel, is_adam ? static_cast<const void*>(&adam) : &sgd,
             {gradient, state[0], state[1], state[2], state[3]}, kCount);
  for (int s = 0; s < written; ++s) {
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(state[s][i], torch.out[s][i])
          << std::hexfloat << "operand " << s + 1 << " element " << i << ": "
          << float_from_bits(state[s][i]) << ", torch has "
          << float_from_bits(torch.out[s][i]);
    }
  }
}

TEST(TorchSteps, SameBitsOnEveryIsa) {
  for (const TorchStep& torch : kTorchSteps) {
    SCOPED_TRACE(torch.text);
    for (const KernelTable& table : kernel_tables_here()) {
      SCOPED_TRACE(table.isa);
      replay(torch, table);
    }
  }
}

}  // namespace
}  // namespace swamp::test
