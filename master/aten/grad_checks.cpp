#include "master/aten/grad_checks.h"

#include <ATen/Parallel.h>
#include <c10/util/intrusive_ptr.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "master/aten/checks.h"
#include "master/aten/tensor.h"
#include "master/aten/tensor_list.h"
#include "master/partition.h"
#include "swamp/amp.h"
#include "swamp/foreach.h"

namespace swamp::aten {
namespace {

// Kept is a check and what shows that the gradient is still the same. The weak
// pointer keeps the address from being used for another tensor.
struct Kept {
  c10::weak_intrusive_ptr<at::TensorImpl> grad;
  std::uint32_t version;
  const void* data;
  KnownCheck check;
};

std::uint32_t version_of(const at::Tensor& tensor) {
  return static_cast<std::uint32_t>(
      tensor.unsafeGetTensorImpl()->version_counter().current_version());
}

// Table is all kept checks. Any thread may call.
class Table {
 public:
  // of_process() is never destroyed: threads may outlive static objects.
  static Table& of_process() {
    static auto* const table = new Table;
    return *table;
  }

  void keep(const at::Tensor& grad, KnownCheck check) {
    at::TensorImpl* const key = grad.unsafeGetTensorImpl();
    Kept kept{c10::weak_intrusive_ptr<at::TensorImpl>(grad.getIntrusivePtr()),
              version_of(grad), const_data(grad), std::move(check)};
    const std::lock_guard<std::mutex> lock(mutex_);
    if (kept_.size() >= sweep_at_) sweep();
    kept_.insert_or_assign(key, std::move(kept));
  }

  std::vector<KnownCheck> find(at::TensorList tensors) {
    std::vector<KnownCheck> found;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (kept_.empty()) return found;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto place = kept_.find(tensors[i].unsafeGetTensorImpl());
      if (place == kept_.end()) continue;
      const Kept& kept = place->second;
      if (kept.version != version_of(tensors[i]) ||
          kept.data != const_data(tensors[i])) {
        continue;
      }
      found.resize(tensors.size());
      found[i] = kept.check;
    }
    return found;
  }

  void clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    kept_.clear();
  }

 private:
  // sweep() removes the checks of gradients that were released.
  void sweep() {
    for (auto at = kept_.begin(); at != kept_.end();) {
      at = at->second.grad.expired() ? kept_.erase(at) : std::next(at);
    }
    sweep_at_ = std::max<std::size_t>(64, 2 * kept_.size());
  }

  std::mutex mutex_;
  std::unordered_map<const at::TensorImpl*, Kept> kept_;
  std::size_t sweep_at_ = 64;
};

// Counts is the List of a partition.
struct Counts {
  at::TensorList tensors;
  std::size_t size() const noexcept { return tensors.size(); }
  std::size_t count(std::size_t i) const noexcept {
    return static_cast<std::size_t>(tensors[i].numel());
  }
  static master::GrainRule grain_rule() noexcept { return {}; }
};

}  // namespace

bool NormRule::is(const NormRule& other) const noexcept {
  return grain_blocks == other.grain_blocks &&
         std::memcmp(&inv_scale, &other.inv_scale, sizeof inv_scale) == 0;
}

NormRule norm_rule(at::TensorList tensors, float inv_scale) {
  return {inv_scale, master::blocks_per_grain(Counts{tensors})};
}

void check_grad(const at::Tensor& grad, const std::optional<NormRule>& rule) {
  if (!grad.is_cpu() || grad.layout() != at::kStrided ||
      !scalar_type(grad.scalar_type()) || grad.is_inference() ||
      static_cast<std::size_t>(grad.numel()) < master::kBlockElements) {
    return;
  }
  at::get_num_threads();  // as for the unscale
  const ThreadScratch<StepTensors> tensors;
  tensors->assign(grad, nullptr, false);
  auto check = std::make_shared<GradCheck>();
  check->rule = rule;
  float found_inf = 0;
  translated([&] {
    if (rule) {
      foreach_squares(tensors->tensors(), rule->inv_scale, rule->grain_blocks,
                      check->squares, &found_inf);
    } else {
      swamp::amp_foreach_non_finite_check_and_unscale_(tensors->tensors(),
                                                       found_inf, 1.0f);
    }
  });
  check->found_inf = found_inf != 0;
  Table::of_process().keep(grad, std::move(check));
}

std::vector<KnownCheck> known_checks(at::TensorList tensors) {
  return Table::of_process().find(tensors);
}

void forget_checks() { Table::of_process().clear(); }

}  // namespace swamp::aten
