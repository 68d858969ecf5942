// PyTorch's operators that swamp does not replace and whose bits depend on the
// number of threads or on the CPU. With `reproducible`, a kernel in front of
// those of the backends (the key BackendSelect, which these operators do not
// use) runs the operator on one thread if that makes its bits the same
// everywhere. Otherwise it warns once, or throws.
//
// Fake, functional and batched tensors, and modes, have keys before
// BackendSelect, so only operators that compute are seen here.
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <omp.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "master/aten/overrides.h"
#include "swamp/aten.h"

namespace swamp::aten {
namespace {

constexpr unsigned kFloat = 1, kHalf = 2, kBfloat16 = 4;
constexpr unsigned k16Bits = kHalf | kBfloat16, kAll = kFloat | k16Bits;

enum class Depends {
  kThreads,  // one thread has the same bits on every CPU
  kCpu,
  kCpuAndThreads
};

struct Row {
  const char* name;  // the operator that writes its result in place has it, too
  unsigned types;
  Depends depends;
};

// tests/torch/package_unreproducible.py has a call of each. add() and sub() of
// an alpha other than 1 also depend on the CPU, but every call would be slower.
constexpr Row kRows[] = {
    {"_index_put_impl_", kFloat, Depends::kThreads},
    {"put_", kFloat, Depends::kThreads},
    {"prod", kAll, Depends::kThreads},
    {"erf", k16Bits, Depends::kCpu},
    {"asin", k16Bits, Depends::kCpu},
    {"acos", k16Bits, Depends::kCpu},
    {"sinh", kFloat, Depends::kCpuAndThreads},
    {"cosh", kFloat, Depends::kCpuAndThreads},
    {"atanh", kFloat, Depends::kCpuAndThreads},
    {"atan2", kFloat, Depends::kCpuAndThreads},
    {"lgamma", kFloat, Depends::kCpu},
    {"digamma", kFloat, Depends::kCpu},
    {"i0", kFloat, Depends::kCpu},
    {"special_i0e", kAll, Depends::kCpuAndThreads},
    {"special_i1", kFloat | kHalf, Depends::kCpu},
    {"special_ndtri", kFloat, Depends::kCpu},
    {"logaddexp", kFloat, Depends::kCpuAndThreads},
    {"logaddexp2", kFloat, Depends::kCpuAndThreads},
    {"softshrink", kAll, Depends::kCpuAndThreads},
    {"pow.Tensor_Tensor", kFloat, Depends::kCpuAndThreads},
    {"pow_.Tensor", kFloat, Depends::kCpuAndThreads},
    {"linalg_vector_norm", kFloat, Depends::kCpu},
    {"_weight_norm_interface", kAll, Depends::kCpu},
    {"linalg_cross", kFloat, Depends::kCpu},
    {"polygamma", kFloat, Depends::kCpu},
    {"linalg_qr", kFloat, Depends::kCpuAndThreads},
    {"_linalg_svd", kFloat, Depends::kCpuAndThreads},
    {"addcmul", kAll, Depends::kCpu},
    {"addr", kFloat, Depends::kCpuAndThreads},
    {"lerp.Scalar", kFloat | kHalf, Depends::kCpu},
    {"lerp.Tensor", kFloat, Depends::kCpu},
    {"upsample_linear1d", kFloat, Depends::kCpu},
    {"upsample_linear1d_backward", kAll, Depends::kCpu},
    {"upsample_bilinear2d", kAll, Depends::kCpu},
    {"upsample_bilinear2d_backward", kAll, Depends::kCpu},
    {"upsample_trilinear3d", kFloat | kHalf, Depends::kCpu},
    {"upsample_trilinear3d_backward", kAll, Depends::kCpu},
    {"upsample_bicubic2d", kAll, Depends::kCpu},
    {"_upsample_bilinear2d_aa", kFloat, Depends::kCpu},
    {"_upsample_bicubic2d_aa", kFloat, Depends::kCpu},
    {"grid_sampler_2d", kFloat, Depends::kCpu},
    {"grid_sampler_2d_backward", kFloat, Depends::kCpu},
    {"normal_", kAll, Depends::kCpu},
};

// What enable() chose; and how often, because each choice warns again.
std::atomic<std::int64_t> action{kWarn};
std::atomic<std::int64_t> choices{1};

// OneThread makes this thread run PyTorch's loops alone. PyTorch's own
// at::set_num_threads() would also reach threads that start meanwhile.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

class Kernel final : public c10::OperatorKernel {
 public:
  explicit Kernel(const Row& row) : row_(row) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    keys = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER,
                                      c10::DispatchKey::BackendSelect);
    if (is_reproducible() && has_type(op, *stack)) {
      if (row_.depends == Depends::kThreads) {
        const OneThread guard;
        op.redispatchBoxed(keys, stack);
        return;
      }
      report(op.schema());
    }
    op.redispatchBoxed(keys, stack);
  }

 private:
  bool has_type(const c10::OperatorHandle& op,
                const torch::jit::Stack& stack) const {
    const std::size_t count = op.schema().arguments().size();
    for (std::size_t i = stack.size() - count; i < stack.size(); ++i) {
      if (!stack[i].isTensor()) continue;
      const at::Tensor& x = stack[i].toTensor();
      if (!x.defined() || !x.is_cpu()) continue;
      const at::ScalarType type = x.scalar_type();
      const unsigned bit = type == at::kFloat      ? kFloat
                           : type == at::kHalf     ? kHalf
                           : type == at::kBFloat16 ? kBfloat16
                                                   : 0;
      if ((row_.types & bit) != 0) return true;
    }
    return false;
  }

  void report(const c10::FunctionSchema& schema) {
    const std::int64_t now = action.load(std::memory_order_relaxed);
    if (now == kIgnore) return;
    const char* on = row_.depends == Depends::kCpu
                         ? "the CPU"
                         : "the CPU and the number of threads";
    constexpr const char* kChoices =
        "help(swamp_torch.enable) lists such operators; enable()'s argument "
        "unreproducible is 'warn', 'raise' or 'ignore'.";
    TORCH_CHECK(now != kRaise, "swamp_torch: reproducible: got ", schema.name(),
                ", which is PyTorch's, and whose bits depend on ", on, ". ",
                kChoices);
    const std::int64_t choice = choices.load(std::memory_order_relaxed);
    if (warned_.exchange(choice) == choice) return;
    TORCH_WARN("swamp_torch: reproducible: ", schema.name(),
               " is PyTorch's, and its bits depend on ", on, ". ", kChoices);
  }

  const Row& row_;
  std::atomic<std::int64_t> warned_{0};
};

}  // namespace

std::int64_t set_unreproducible(std::int64_t value) {
  choices.fetch_add(1);
  return action.exchange(value);
}

TORCH_LIBRARY_IMPL(aten, BackendSelect, m) {
  const auto add = [&](const std::string& name, const Row& row) {
    m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(
                             std::make_unique<Kernel>(row)));
  };
  for (const Row& row : kRows) {
    std::string name = row.name;
    add(name, row);
    const std::size_t dot = std::min(name.find('.'), name.size());
    const std::string overload = dot == name.size() ? "" : name.substr(dot + 1);
    name.insert(dot, "_");
    if (c10::Dispatcher::singleton()
            .findSchema({"aten::" + name.substr(0, dot + 1), overload.c_str()})
            .has_value()) {
      add(name, row);
    }
  }
}

}  // namespace swamp::aten
