// The C ABI: machine, AMP operators, reports of the checker.
#include "swamp/c_api.h"

#include <string>

#include "master/c_guard.h"
#include "runtime/check.h"
#include "swamp/amp.h"
#include "swamp/machine.h"

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

size_t swamp_check_report_count(void) { return swamp::runtime::report_count(); }

void swamp_check_set_callback(swamp_check_callback callback, void* user) {
  swamp::runtime::set_report_callback(callback, user);
}

const char* swamp_last_error(void) { return swamp::last_error(); }

const char* swamp_version(void) { return SWAMP_VERSION; }
