#include "master/cli/trainer.h"

#include <chrono>

namespace swamp::cli {

Trainer::Trainer(const TrainOptions& options, const std::string& text,
                 Machine& machine)
    : batch_count_(options.batch),
      text_(text),
      machine_(machine),
      random_(options.seed),
      model_(options.dtype, random_),
      adam_(options.lr),
      scale_(options) {
  // float32 whatever the dtype: the main gradients, widened from the rounded
  // ones, are what Megatron's Float16OptimizerWithFloat16Params unscales.
  for (Parameter& parameter : model_.parameters()) {
    gradients_.push_back({parameter.gradient.values.data(),
                          parameter.gradient.values.size(), kFloat32});
  }
}

StepRecord Trainer::step() {
  StepRecord record;
  record.step = ++steps_;
  record.scale = scale_.scale();
  sample_batch(text_, batch_count_, random_, batch_);
  record.loss = model_.loss_and_gradients(batch_, record.scale);
  record.underflow = model_.underflow();
  record.activation_underflow = model_.activation_underflow();
  unscale(record);
  if (record.found_inf == 0.0f) {
    adam_.step(model_.parameters());
    model_.round_weights();
  }
  record.skipped = record.found_inf != 0.0f;
  scale_.update(record.found_inf);
  record.next_scale = scale_.scale();
  return record;
}

void Trainer::unscale(StepRecord& record) {
  const float inv_scale = scale_.inverse();
  OverflowReport report;
  const auto start = std::chrono::steady_clock::now();
  amp_foreach_non_finite_check_and_unscale_(gradients_, record.found_inf,
                                            inv_scale, &report, &machine_);
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  unscale_seconds_ += taken.count();
  if (report.element_count == 0) return;
  record.overflow_tensor = model_.parameters()[report.tensor].name;
  record.overflow_index = report.index;
  record.overflow_elements = report.element_count;
}

std::uint64_t Trainer::weights_digest() {
  std::uint64_t digest = 0xcbf29ce484222325u;
  for (const Parameter& parameter : model_.parameters()) {
    for (const float weight : parameter.master) {
      const std::uint32_t bits = float_to_bits(weight);
      for (int shift = 0; shift < 32; shift += 8) {
        digest = (digest ^ ((bits >> shift) & 0xffu)) * 0x100000001b3u;
      }
    }
  }
  return digest;
}

}  // namespace swamp::cli
