// GradScaler: its state, the protocol scale, unscale_, step, update, and the
// checkpoint; FunctionOptimizer.
#include "swamp/grad_scaler.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "master/scaler/scaler.h"
#include "swamp/error.h"
#include "swamp/optimizer.h"

namespace swamp {
namespace {

using Lock = std::lock_guard<std::mutex>;

// Throws what PyTorch's GradScaler raises.
[[noreturn]] void raise_protocol(const char* type, const std::string& message,
                                 const std::string& detail = "") {
  throw ScalerError("GradScaler", type, message, detail);
}

void require_number(const std::string& name, double value) {
  if (std::isnan(value))
    master::refuse("GradScaler: " + name, "nan", "a number");
}

}  // namespace

// Hidden, because otherwise Impl would be exported with its class.
struct [[gnu::visibility("hidden")]] GradScaler::Impl {
  enum class Stage { ready, unscaled, stepped };

  // PerOptimizer is the state of one optimizer since the last update().
  struct PerOptimizer {
    Stage stage = Stage::ready;
    std::optional<float> found_inf;  // after the reduction
    OverflowReport overflow;
    std::string gradient_name;
  };
  // Shared, so that a step() whose optimizer calls update() still has an entry
  // to write to, as in PyTorch.
  using Entry = std::shared_ptr<PerOptimizer>;

  Impl(LossScaler loss_scaler, bool is_enabled)
      : rule(std::move(loss_scaler)), enabled(is_enabled) {}

  scaler::Scaler& state() { return rule.impl().scaler; }
  const scaler::Preset& preset() { return rule.impl().preset; }

  // Throws as PyTorch if a float32 overflows.
  static void check_range(const scaler::Scaler& scaler, double scale);

  // The caller of these holds the lock.
  void init_scale();                           // PyTorch's lazy init
  void check_scaled(const std::string& call);  // throws before it
  void set_scale(double new_scale);
  Entry entry_of(const Optimizer& optimizer);
  std::optional<float> found_inf_of_all() const;  // their sum
  double& setting(const std::string& name);

  // These lock it.
  double get(const std::string& name);
  void set(const std::string& name, double value);

  // Guards all members except the last three, which const calls do not read.
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

void GradScaler::Impl::check_range(const scaler::Scaler& scaler, double scale) {
  constexpr double kMax = std::numeric_limits<float>::max();
  if (scaler.float_rule == scaler::FloatRule::exact || !std::isfinite(scale) ||
      std::fabs(scale) <= kMax) {
    return;
  }
  raise_protocol("RuntimeError",
                 "value cannot be converted to type float without overflow",
                 "scale: got " + scaler::python_text(scale));
}

void GradScaler::Impl::set_scale(double new_scale) {
  check_range(state(), new_scale);
  state().scale = new_scale;
  scaler::round_scale(state());
}

void GradScaler::Impl::init_scale() {
  if (scaled) return;
  set_scale(state().scale);
  scaled = true;
}

void GradScaler::Impl::check_scaled(const std::string& call) {
  if (scaled) return;
  raise_protocol("AssertionError",
                 "Attempted " + call +
                     " but _scale is None.  This may indicate your script did "
                     "not use scaler.scale(loss or outputs) earlier in the "
                     "iteration.");
}

GradScaler::Impl::Entry GradScaler::Impl::entry_of(const Optimizer& optimizer) {
  Entry& entry = entries[&optimizer];
  if (entry == nullptr) entry = std::make_shared<PerOptimizer>();
  return entry;
}

std::optional<float> GradScaler::Impl::found_inf_of_all() const {
  std::optional<float> sum;
  for (const auto& [optimizer, entry] : entries) {
    if (entry->found_inf) sum = sum.value_or(0.0f) + *entry->found_inf;
  }
  return sum;
}

double& GradScaler::Impl::setting(const std::string& name) {
  const scaler::Member member = scaler::setting(preset(), name);
  if (member != nullptr) return state().*member;
  master::refuse(
      "GradScaler: " + name, rule.name() + ", whose original cannot change it",
      "a scaler that can, for example torch.amp.GradScaler", SWAMP_UNSUPPORTED);
}

double GradScaler::Impl::get(const std::string& name) {
  if (!enabled) {
    raise_protocol("AttributeError",
                   "'GradScaler' object has no attribute '_" + name + "'");
  }
  const std::lock_guard<std::mutex> lock(mutex);
  return setting(name);
}

void GradScaler::Impl::set(const std::string& name, double value) {
  if (!enabled) return;
  require_number(name, value);
  const std::lock_guard<std::mutex> lock(mutex);
  setting(name) = value;
}

namespace {

bool holds_float16(TensorList tensors) {
  for (const Tensor& tensor : tensors) {
    if (tensor.dtype == kFloat16) return true;
  }
  return false;
}

}  // namespace

float GradScaler::scale(float loss) {
  if (!impl_->enabled) return loss;
  const Lock lock(impl_->mutex);
  impl_->init_scale();
  return loss * static_cast<float>(impl_->state().scale);
}

double GradScaler::scale(double loss) {
  if (!impl_->enabled) return loss;
  const Lock lock(impl_->mutex);
  impl_->init_scale();
  return loss * impl_->state().scale;
}

void GradScaler::scale_(TensorList outputs) {
  // An empty list does not initialise the scale, as in PyTorch.
  if (!impl_->enabled || outputs.count() == 0) return;
  float factor = 1.0f;
  {
    const Lock lock(impl_->mutex);
    impl_->init_scale();
    factor = static_cast<float>(impl_->state().scale);
  }
  float found_inf = 0.0f;  // ignored: the gradients show an overflow
  amp_foreach_non_finite_check_and_unscale_(outputs, found_inf, factor, nullptr,
                                            impl_->machine);
}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (!impl_->enabled) return;
  Impl::Entry entry;
  float inv_scale = 1.0f;
  {
    const Lock lock(impl_->mutex);
    impl_->check_scaled("unscale_");
    entry = impl_->entry_of(optimizer);
    if (entry->stage == Impl::Stage::unscaled) {
      raise_protocol("RuntimeError",
                     "unscale_() has already been called on this optimizer "
                     "since the last update().");
    }
    if (entry->stage == Impl::Stage::stepped) {
      raise_protocol("RuntimeError",
                     "unscale_() is being called after step().");
    }
    inv_scale = impl_->rule.inv_scale();
  }

  const TensorList gradients = optimizer.gradients();
  if (!impl_->allow_fp16 && holds_float16(gradients)) {
    raise_protocol("ValueError", "Attempting to unscale FP16 gradients.",
                   "set_allow_fp16(true) allows it");
  }
  float found_inf = 0.0f;
  OverflowReport overflow;
  amp_foreach_non_finite_check_and_unscale_(gradients, found_inf, inv_scale,
                                            &overflow, impl_->machine);
  {
    // Before the calls that may throw, because the gradients are unscaled now.
    const Lock lock(impl_->mutex);
    entry->stage = Impl::Stage::unscaled;
    entry->overflow = overflow;
  }
  std::string name;
  if (overflow.element_count != 0) {
    name = optimizer.gradient_name(static_cast<std::size_t>(overflow.tensor));
  }
  const bool recorded = gradients.count() != 0 || impl_->reduction;
  if (impl_->reduction) found_inf = impl_->reduction(found_inf);
  const Lock lock(impl_->mutex);
  entry->gradient_name = std::move(name);
  if (recorded) entry->found_inf = found_inf;
}

GradScalerStep GradScaler::step(Optimizer& optimizer) {
  if (!impl_->enabled) {
    optimizer.step();
    const Lock lock(impl_->mutex);
    return impl_->last_step = GradScalerStep();
  }
  Impl::Entry entry;
  {
    const Lock lock(impl_->mutex);
    impl_->check_scaled("step");
    entry = impl_->entry_of(optimizer);
    if (entry->stage == Impl::Stage::stepped) {
      raise_protocol("RuntimeError",
                     "step() has already been called since the last update().");
    }
  }
  if (entry->stage == Impl::Stage::ready) unscale_(optimizer);

  GradScalerStep report;
  {
    const Lock lock(impl_->mutex);
    if (!entry->found_inf) {
      raise_protocol("AssertionError",
                     "No inf checks were recorded for this optimizer.");
    }
    report.found_inf = *entry->found_inf != 0.0f;
    report.skipped = report.found_inf && impl_->state().skips != 0.0;
    report.scale_before = impl_->state().scale;
    report.scale_after = report.scale_before;
    report.overflow = entry->overflow;
    report.gradient_name = entry->gradient_name;
    scaler::Scaler next = impl_->state();
    try {
      report.scale_after =
          scaler::update(impl_->preset(), next,
                         impl_->found_inf_of_all().value_or(*entry->found_inf))
              .new_scale;
    } catch (const ScalerError&) {
      // update() will throw it.
    }
  }
  if (!report.skipped) optimizer.step();
  const Lock lock(impl_->mutex);
  entry->stage = Impl::Stage::stepped;
  return impl_->last_step = report;
}

ScalerStep GradScaler::update() {
  ScalerStep step;
  const Lock lock(impl_->mutex);
  step.old_scale = step.new_scale = 1.0;
  if (!impl_->enabled) return step;
  impl_->check_scaled("update");
  const std::optional<float> found_inf = impl_->found_inf_of_all();
  if (!found_inf) {
    raise_protocol("AssertionError",
                   "No inf checks were recorded prior to update.");
  }
  // Even if the rule throws, the iteration has ended.
  impl_->entries.clear();
  return impl_->rule.update(*found_inf);
}

ScalerStep GradScaler::update(double new_scale) {
  ScalerStep step;
  const Lock lock(impl_->mutex);
  step.old_scale = step.new_scale = 1.0;
  if (!impl_->enabled) return step;
  impl_->check_scaled("update");
  require_number("new_scale", new_scale);
  step.old_scale = impl_->state().scale;
  impl_->set_scale(new_scale);
  step.new_scale = impl_->state().scale;
  impl_->entries.clear();
  return step;
}

namespace {

LossScaler torch_rule(const GradScalerOptions& options) {
  // PyTorch checks nothing, and keeps nothing, when not enabled.
  if (!options.enabled) return LossScaler::from_name("torch.amp.GradScaler");
  return LossScaler::from_name("torch.amp.GradScaler",
                               {{"init_scale", options.init_scale},
                                {"growth_factor", options.growth_factor},
                                {"backoff_factor", options.backoff_factor},
                                {"growth_interval", options.growth_interval}});
}

// Converts to an integer; saturates.
std::int64_t to_count(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 0x1p63) return std::numeric_limits<std::int64_t>::max();
  if (value < -0x1p63) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(value);
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : GradScaler(torch_rule(options), options.enabled) {
  // The first scale() rounds it to float32.
  impl_->state().scale = impl_->state().initial_scale;
}

GradScaler::GradScaler(LossScaler rule, bool enabled)
    : impl_(std::make_unique<Impl>(std::move(rule), enabled)) {}
GradScaler::GradScaler(GradScaler&& other) noexcept = default;
GradScaler& GradScaler::operator=(GradScaler&& other) noexcept = default;
GradScaler::~GradScaler() = default;

double GradScaler::get_scale() const {
  if (!impl_->enabled) return 1.0;
  const Lock lock(impl_->mutex);
  return impl_->state().scale;
}

std::int64_t GradScaler::get_growth_tracker() const {
  if (!impl_->enabled) return 0;
  const Lock lock(impl_->mutex);
  for (const scaler::Tracker& tracker : impl_->preset().trackers) {
    if (tracker.member == &scaler::Scaler::good_steps) {
      return to_count(impl_->state().good_steps);
    }
  }
  master::refuse("GradScaler: growth_tracker", impl_->rule.name(),
                 "a scaler that counts clean updates", SWAMP_UNSUPPORTED);
}

bool GradScaler::is_enabled() const noexcept { return impl_->enabled; }

double GradScaler::get_growth_factor() const {
  return impl_->get("growth_factor");
}
double GradScaler::get_backoff_factor() const {
  return impl_->get("backoff_factor");
}
std::int64_t GradScaler::get_growth_interval() const {
  return to_count(impl_->get("growth_interval"));
}
void GradScaler::set_growth_factor(double new_factor) {
  impl_->set("growth_factor", new_factor);
}
void GradScaler::set_backoff_factor(double new_factor) {
  impl_->set("backoff_factor", new_factor);
}
void GradScaler::set_growth_interval(std::int64_t new_interval) {
  impl_->set("growth_interval", static_cast<double>(new_interval));
}

GradScalerStep GradScaler::last_step() const {
  const Lock lock(impl_->mutex);
  return impl_->last_step;
}

std::string GradScaler::state_dict() const {
  if (!impl_->enabled) return "{}";
  scaler::Scaler copy;
  {
    const Lock lock(impl_->mutex);
    copy = impl_->state();
  }
  return scaler::write_state(impl_->preset(), copy);
}

void GradScaler::load_state_dict(const std::string& json) {
  if (!impl_->enabled) return;
  // PyTorch rounds a loaded scale only at the first scale().
  scaler::Scaler loaded = impl_->state();
  scaler::read_state(impl_->preset(), json, loaded);
  const Lock lock(impl_->mutex);
  if (impl_->scaled) {
    Impl::check_range(loaded, loaded.scale);
    scaler::round_scale(loaded);
  }
  impl_->state() = loaded;
}

void GradScaler::set_allow_fp16(bool allow) { impl_->allow_fp16 = allow; }

void GradScaler::set_found_inf_reduction(
    std::function<float(float)> reduction) {
  impl_->reduction = std::move(reduction);
}

void GradScaler::set_machine(Machine* machine) { impl_->machine = machine; }

Optimizer::~Optimizer() = default;

std::string Optimizer::gradient_name(std::size_t) const { return ""; }

FunctionOptimizer::FunctionOptimizer(TensorList gradients,
                                     std::function<void()> step,
                                     std::vector<std::string> names)
    : gradients_(gradients.begin(), gradients.end()),
      step_(std::move(step)),
      names_(std::move(names)) {
  if (!step_) {
    master::refuse("FunctionOptimizer: step", "an empty function",
                   "one that can be called");
  }
  if (!names_.empty() && names_.size() != gradients_.size()) {
    master::refuse("FunctionOptimizer: names", std::to_string(names_.size()),
                   "none or " + std::to_string(gradients_.size()) +
                       ", one for each gradient");
  }
}

FunctionOptimizer::~FunctionOptimizer() = default;

TensorList FunctionOptimizer::gradients() { return gradients_; }

std::string FunctionOptimizer::gradient_name(std::size_t index) const {
  return index < names_.size() ? names_[index] : "";
}

void FunctionOptimizer::step() { step_(); }

}  // namespace swamp
