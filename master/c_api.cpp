// The C ABI: errors, machine, AMP operators, loss scalers, scale managers,
// reports of the checker. The optimizer is in c_api_step.cpp.
#include "swamp/c_api.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "master/c_guard.h"
#include "master/text.h"
#include "runtime/memory_check.h"
#include "swamp/amp.h"
#include "swamp/loss_scaler.h"
#include "swamp/machine.h"
#include "swamp/scale_manager.h"

struct swamp_scaler {
  swamp::LossScaler scaler;
  std::string state_dict;  // the text that swamp_scaler_state_dict() returned
};

struct swamp_scale_manager {
  swamp::ScaleManager manager;
  std::string state_dict;  // the text of swamp_scale_manager_state_dict()
};

namespace swamp {
namespace {

// Fixed memory, because reporting SWAMP_OUT_OF_MEMORY must not allocate.
thread_local char last_error_text[2048] = "";

}  // namespace

swamp_status fail(swamp_status status, const char* text) noexcept {
  std::snprintf(last_error_text, sizeof last_error_text, "%s", text);
  return status;
}

const char* last_error() noexcept { return last_error_text; }

void require(const void* pointer, const char* name) {
  if (pointer != nullptr) return;
  master::refuse(name, "null", "an address");
}

void require_struct_size(const char* name, std::uint32_t given,
                         std::size_t known, std::size_t older) {
  if (given == known || (older != 0 && given == older)) return;
  master::refuse(std::string(name) + ".struct_size", std::to_string(given),
                 std::to_string(known));
}

}  // namespace swamp

using swamp::guarded;
using swamp::require;
using swamp::require_struct_size;

namespace {

std::string text(const char* value) { return value == nullptr ? "" : value; }

swamp::MachineConfig machine_config(const swamp_config* config) {
  if (config == nullptr) return {};
  require_struct_size("config", config->struct_size, sizeof *config);
  swamp::MachineConfig out;
  out.machine = text(config->machine);
  out.backend = text(config->backend);
  out.transfer = text(config->transfer);
  out.core_groups = config->core_groups;
  out.slaves_per_group = config->slaves_per_group;
  out.ldm_bytes = config->ldm_bytes;
  out.isa = text(config->isa);
  out.bind = text(config->bind);
  return out;
}

}  // namespace

swamp_status swamp_machine_create(const swamp_config* config,
                                  swamp_machine** out) {
  return guarded([&] {
    require(out, "out");
    *out = new swamp_machine{swamp::Machine(machine_config(config))};
  });
}

void swamp_machine_destroy(swamp_machine* machine) { delete machine; }

swamp_status swamp_amp_foreach_non_finite_check_and_unscale_report(
    swamp_machine* machine, const swamp_tensor* tensors, size_t tensor_count,
    float* found_inf, const float* inv_scale, swamp_unscale_report* report) {
  return guarded([&] {
    require(found_inf, "found_inf");
    require(inv_scale, "inv_scale");
    if (report != nullptr) {
      require_struct_size("report", report->struct_size, sizeof *report);
    }
    swamp::OverflowReport overflow;
    swamp::amp_foreach_non_finite_check_and_unscale_(
        {tensors, tensor_count}, *found_inf, *inv_scale,
        report != nullptr ? &overflow : nullptr, swamp::machine_of(machine));
    if (report != nullptr) {
      report->tensor = overflow.tensor;
      report->index = overflow.index;
      report->tensor_count = overflow.tensor_count;
      report->element_count = overflow.element_count;
    }
  });
}

swamp_status swamp_amp_foreach_non_finite_check_and_unscale(
    swamp_machine* machine, const swamp_tensor* tensors, size_t tensor_count,
    float* found_inf, const float* inv_scale) {
  return swamp_amp_foreach_non_finite_check_and_unscale_report(
      machine, tensors, tensor_count, found_inf, inv_scale, nullptr);
}

swamp_status swamp_amp_update_scale(float* scale, int32_t* growth_tracker,
                                    const float* found_inf,
                                    double growth_factor, double backoff_factor,
                                    int64_t growth_interval) {
  return guarded([&] {
    require(scale, "scale");
    require(growth_tracker, "growth_tracker");
    require(found_inf, "found_inf");
    swamp::amp_update_scale_(*scale, *growth_tracker, *found_inf, growth_factor,
                             backoff_factor, growth_interval);
  });
}

swamp_status swamp_scaler_create(const char* name, const char* options,
                                 swamp_scaler** out) {
  return guarded([&] {
    require(name, "name");
    require(out, "out");
    swamp::ScalerOptions by_name;
    if (options != nullptr) by_name = swamp::scaler_options_from_json(options);
    *out = new swamp_scaler{swamp::LossScaler::from_name(name, by_name), ""};
  });
}

void swamp_scaler_destroy(swamp_scaler* scaler) { delete scaler; }

swamp_status swamp_scaler_scale(const swamp_scaler* scaler, double* scale) {
  return guarded([&] {
    require(scaler, "scaler");
    require(scale, "scale");
    *scale = scaler->scaler.scale();
  });
}

swamp_status swamp_scaler_inv_scale(const swamp_scaler* scaler,
                                    float* inv_scale) {
  return guarded([&] {
    require(scaler, "scaler");
    require(inv_scale, "inv_scale");
    *inv_scale = scaler->scaler.inv_scale();
  });
}

swamp_status swamp_scaler_update(swamp_scaler* scaler, float found_inf,
                                 swamp_scaler_step* step) {
  return guarded([&] {
    require(scaler, "scaler");
    if (step != nullptr) {
      require_struct_size("step", step->struct_size, sizeof *step);
    }
    const swamp::ScalerStep done = scaler->scaler.update(found_inf);
    if (step == nullptr) return;
    step->found_inf = done.found_inf ? 1 : 0;
    step->skipped = done.skipped ? 1 : 0;
    step->warned = done.warning.empty() ? 0 : 1;
    step->old_scale = done.old_scale;
    step->new_scale = done.new_scale;
  });
}

swamp_status swamp_scaler_state_dict(swamp_scaler* scaler, const char** json) {
  return guarded([&] {
    require(scaler, "scaler");
    require(json, "json");
    scaler->state_dict = scaler->scaler.state_dict();
    *json = scaler->state_dict.c_str();
  });
}

swamp_status swamp_scaler_load_state_dict(swamp_scaler* scaler,
                                          const char* json) {
  return guarded([&] {
    require(scaler, "scaler");
    require(json, "json");
    scaler->scaler.load_state_dict(json);
  });
}

swamp_status swamp_scale_manager_create(const char* name, size_t forward,
                                        size_t backward, const char* options,
                                        swamp_scale_manager** out) {
  return guarded([&] {
    require(name, "name");
    require(out, "out");
    swamp::ScalerOptions by_name;
    if (options != nullptr) by_name = swamp::scaler_options_from_json(options);
    *out = new swamp_scale_manager{
        swamp::ScaleManager::from_name(name, forward, backward, by_name), ""};
  });
}

void swamp_scale_manager_destroy(swamp_scale_manager* manager) {
  delete manager;
}

swamp_status swamp_scale_manager_observe_all(swamp_scale_manager* manager,
                                             const float* amax, size_t count) {
  return guarded([&] {
    require(manager, "manager");
    manager->manager.observe_all(amax, count);
  });
}

swamp_status swamp_scale_manager_observe(swamp_scale_manager* manager,
                                         size_t index, float amax) {
  return guarded([&] {
    require(manager, "manager");
    manager->manager.observe(index, amax);
  });
}

swamp_status swamp_scale_manager_amax(const swamp_scale_manager* manager,
                                      float* amax, size_t count) {
  return guarded([&] {
    require(manager, "manager");
    const std::vector<float> all = manager->manager.amax();
    if (count != all.size()) {
      swamp::master::refuse(
          "count", std::to_string(count),
          std::to_string(all.size()) + ", that of the tensors");
    }
    if (count != 0) require(amax, "amax");
    std::copy(all.begin(), all.end(), amax);
  });
}

swamp_status swamp_scale_manager_update(swamp_scale_manager* manager) {
  return guarded([&] {
    require(manager, "manager");
    manager->manager.update();
  });
}

swamp_status swamp_scale_manager_scale(const swamp_scale_manager* manager,
                                       size_t index, float* scale,
                                       float* scale_inv) {
  return guarded([&] {
    require(manager, "manager");
    const float factor = manager->manager.scale(index);
    if (scale != nullptr) *scale = factor;
    if (scale_inv != nullptr) *scale_inv = manager->manager.scale_inv(index);
  });
}

swamp_status swamp_scale_manager_block_scale(const swamp_scale_manager* manager,
                                             size_t index, float amax,
                                             swamp_block_scale* scale) {
  return guarded([&] {
    require(manager, "manager");
    require(scale, "scale");
    require_struct_size("scale", scale->struct_size, sizeof *scale);
    const swamp::BlockScale block = manager->manager.block_scale(index, amax);
    scale->code = block.code;
    scale->scale = block.scale;
    scale->scale_inv = block.scale_inv;
  });
}

swamp_status swamp_scale_manager_state_dict(swamp_scale_manager* manager,
                                            const char** json) {
  return guarded([&] {
    require(manager, "manager");
    require(json, "json");
    manager->state_dict = manager->manager.state_dict();
    *json = manager->state_dict.c_str();
  });
}

swamp_status swamp_scale_manager_load_state_dict(swamp_scale_manager* manager,
                                                 const char* json) {
  return guarded([&] {
    require(manager, "manager");
    require(json, "json");
    manager->manager.load_state_dict(json);
  });
}

size_t swamp_check_report_count(void) { return swamp::runtime::report_count(); }

void swamp_check_set_callback(swamp_check_callback callback, void* user) {
  swamp::runtime::set_report_callback(callback, user);
}

const char* swamp_last_error(void) { return swamp::last_error(); }

#define SWAMP_TEXT(a, b, c) #a "." #b "." #c
#define SWAMP_TEXT_OF(a, b, c) SWAMP_TEXT(a, b, c)

const char* swamp_version(void) {
  constexpr const char* kVersion = SWAMP_TEXT_OF(
      SWAMP_VERSION_MAJOR, SWAMP_VERSION_MINOR, SWAMP_VERSION_PATCH);
  static_assert(std::string_view(kVersion) == SWAMP_PROJECT_VERSION,
                "c_api.h and CMakeLists.txt have different versions");
  return kVersion;
}
