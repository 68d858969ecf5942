// What is in a GradScaler.
#ifndef SWAMP_MASTER_GRAD_SCALER_IMPL_H_
#define SWAMP_MASTER_GRAD_SCALER_IMPL_H_

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "master/scaler/scaler.h"
#include "swamp/grad_scaler.h"

namespace swamp {

// Impl would be exported with the class that it is the inside of.
struct [[gnu::visibility("hidden")]] GradScaler::Impl {
  enum class Stage { ready, unscaled, stepped };

  // PerOptimizer is what is known of one optimizer since the last update().
  struct PerOptimizer {
    Stage stage = Stage::ready;
    std::optional<float> found_inf;  // after the reduction
    OverflowReport overflow;
    std::string gradient_name;
  };
  // Shared, so that an update() from within the optimizer's step() leaves the
  // running step() an entry to write to, as PyTorch's.
  using Entry = std::shared_ptr<PerOptimizer>;

  Impl(LossScaler loss_scaler, bool is_enabled)
      : rule(std::move(loss_scaler)), enabled(is_enabled) {}

  scaler::Scaler& state() { return rule.impl().scaler; }
  const scaler::Preset& preset() { return rule.impl().preset; }

  // check_range() raises what PyTorch does when a float32 overflows.
  static void check_range(const scaler::Scaler& scaler, double scale);

  // The following want the lock.
  void init_scale();                           // PyTorch's lazy init
  void check_scaled(const std::string& call);  // and its missing
  void set_scale(double new_scale);
  Entry entry_of(const Optimizer& optimizer);
  std::optional<float> found_inf_of_all() const;  // their sum
  double& setting(const std::string& name);

  // These take it.
  double get(const std::string& name);
  void set(const std::string& name, double value);

  // Guards what const calls read: all but the last three, which only the
  // calls that change something look at.
  std::mutex mutex;
  LossScaler rule;
  const bool enabled;
  bool scaled = false;  // PyTorch's "_scale is not None"
  std::map<const Optimizer*, Entry> entries;
  GradScalerStep last_step;

  bool allow_fp16 = false;
  std::function<float(float)> reduction;
  Machine* machine = nullptr;
};

// raise_protocol() throws what PyTorch's GradScaler raises.
[[noreturn]] void raise_protocol(const char* type, const std::string& message,
                                 const std::string& detail = "");

}  // namespace swamp

#endif  // SWAMP_MASTER_GRAD_SCALER_IMPL_H_
