// One step: micro batches of all ranks are drawn, the rank's own are computed,
// the optimizer of swamp reduces and steps, and the ranks exchange the
// numbers that are shown.
#include "master/cli/train/trainer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

namespace swamp::cli {
namespace {

// Megatron's dynamic scale stops at its minimum, so a run whose weights are not
// finite would skip steps without end.
constexpr std::uint64_t kDiverged = 100;

// RankRecord is what a rank sends to the others after a step; its losses
// follow.
struct RankRecord {
  std::uint64_t underflow;
  std::uint64_t activation_underflow;
  std::uint64_t overflow_tensor;
  std::uint64_t overflow_index;
  std::uint64_t overflow_elements;
  int overflow_rank;
  int signal;
};

}  // namespace

Trainer::Trainer(const TrainOptions& options, const std::string& text,
                 Machine& machine, Ranks& ranks)
    : batch_(options.batch),
      accumulate_(options.accumulate),
      text_(text),
      ranks_(ranks),
      random_(options.seed),
      model_(options.model, random_, machine),
      tensors_(model_.tensors()),
      timers_(options.barrier_with_l1_time ? &ranks.communicator() : nullptr),
      optimizer_({{tensors_, {}, {}}}, optimizer_options(options, machine)) {}

MixedPrecisionOptions Trainer::optimizer_options(const TrainOptions& options,
                                                 Machine& machine) {
  MixedPrecisionOptions chosen = options.optimizer;
  chosen.micro_batches = static_cast<std::int64_t>(options.accumulate);
  chosen.machine = &machine;
  chosen.observer = &timers_;
  chosen.communicator = &ranks_.communicator();
  chosen.shard = ranks_.count() > 1;
  return chosen;
}

StepRecord Trainer::step(int signal) {
  check_scale();
  StepRecord record;
  record.signal = signal;
  record.step = ++steps_;
  std::vector<double> losses;
  backward(record, losses);
  model_.update_scales(ranks_.communicator());
  StepResult result;
  try {
    result = optimizer_.step();
  } catch (const ScalerError& error) {  // found_inf was of all ranks
    throw CommonFailure(fmt::format("step {}: {}", steps_, error.what()));
  }
  if (result.success) model_.widen_weights();
  record.skipped = !result.success;
  record.scale = result.loss_scale;
  record.next_scale = result.next_loss_scale;
  record.grad_norm = result.grad_norm.value_or(0.0);
  record.warning = result.warning;
  join(result, losses, record);
  nonfinite_losses_ = std::isfinite(record.loss) ? 0 : nonfinite_losses_ + 1;
  return record;
}

void Trainer::check_scale() const {
  if (nonfinite_losses_ >= kDiverged) {
    throw CommonFailure(
        fmt::format("training has diverged: the loss has not been finite for "
                    "{} steps",
                    nonfinite_losses_));
  }
  const LossScaler* scaler = optimizer_.loss_scaler();
  if (scaler == nullptr) return;
  const float inverse = scaler->inv_scale();
  if (!std::isfinite(inverse)) {
    throw CommonFailure(fmt::format(
        "training has diverged: gradients overflow even at loss scale {}",
        scale_text(scale())));
  }
  if (inverse == 0.0f) {
    throw CommonFailure(fmt::format(
        "the loss scale has grown to {}, which has no inverse in float32",
        scale_text(scale())));
  }
}

void Trainer::backward(StepRecord& record, std::vector<double>& losses) {
  const auto loss_scale = static_cast<float>(scale());
  for (std::size_t r = 0; r < ranks_.count(); ++r) {
    for (std::size_t a = 0; a < accumulate_; ++a) {
      sample_batch(text_, batch_, random_, examples_);
      if (r != ranks_.rank()) continue;
      losses.push_back(model_.loss_and_gradients(examples_, loss_scale));
      record.underflow += model_.underflow();
      record.activation_underflow += model_.activation_underflow();
      if (accumulate_ > 1) optimizer_.accumulate_gradients();
    }
  }
}

void Trainer::join(const StepResult& result, const std::vector<double>& losses,
                   StepRecord& record) {
  const OverflowReport& overflow = result.overflow;
  const RankRecord mine = {record.underflow,       record.activation_underflow,
                           overflow.tensor,        overflow.index,
                           overflow.element_count, result.overflow_rank,
                           record.signal};
  const std::size_t loss_bytes = losses.size() * sizeof(double);
  const std::size_t bytes = sizeof mine + loss_bytes;
  std::string sent(bytes, '\0');
  std::memcpy(sent.data(), &mine, sizeof mine);
  std::memcpy(sent.data() + sizeof mine, losses.data(), loss_bytes);
  std::string all(ranks_.count() * bytes, '\0');
  ranks_.communicator().all_gather(sent.data(), bytes, all.data());

  record.underflow = record.activation_underflow = 0;
  double sum = 0;
  for (std::size_t at = 0; at < all.size(); at += bytes) {
    RankRecord rank;
    std::memcpy(&rank, &all[at], sizeof rank);
    record.underflow += rank.underflow;
    record.activation_underflow += rank.activation_underflow;
    // The shards are in the order of the ranks.
    if (record.overflow_elements == 0 && rank.overflow_elements != 0) {
      record.overflow_tensor = tensors_[rank.overflow_tensor].name;
      record.overflow_index = rank.overflow_index;
      record.overflow_owner = static_cast<int>(at / bytes);
      record.overflow_rank = rank.overflow_rank;
    }
    record.overflow_elements += rank.overflow_elements;
    record.signal = std::max(record.signal, rank.signal);
    for (std::size_t a = 0; a < losses.size(); ++a) {
      double loss;
      std::memcpy(&loss, &all[at + sizeof rank + a * sizeof loss], sizeof loss);
      sum += loss;
    }
  }
  record.loss = sum / static_cast<double>(ranks_.count() * losses.size());
}

std::string Trainer::scaler_name() const {
  const LossScaler* scaler = optimizer_.loss_scaler();
  return scaler == nullptr ? "none" : scaler->name();
}

double Trainer::optimizer_seconds() const {
  double sum = 0;
  for (const auto& [timer, seconds] : timers_.seconds()) sum += seconds;
  return sum;
}

double Trainer::unscale_seconds() const {
  const auto found = timers_.seconds().find("optimizer-unscale-and-check-inf");
  return found == timers_.seconds().end() ? 0.0 : found->second;
}

std::string Trainer::timers_text(std::uint64_t steps) {
  std::vector<float> times;  // of each timer, and the negative
  for (const auto& [timer, seconds] : timers_.seconds()) {
    double& before = printed_seconds_[timer];
    times.push_back(static_cast<float>(1e3 * (seconds - before) /
                                       static_cast<double>(steps)));
    times.push_back(-times.back());
    before = seconds;
  }
  ranks_.communicator().max(times.data(), times.size());
  std::string text = "(min, max) time across ranks (ms):\n";
  std::size_t i = 0;
  for (const auto& [timer, before] : printed_seconds_) {
    text += fmt::format("    {:.<48}: ({:.2f}, {:.2f})\n", timer, -times[i + 1],
                        times[i]);
    i += 2;
  }
  return text;
}

TrainerState Trainer::state() const {
  TrainerState state;
  state.steps = steps_;
  state.random = random_.state();
  state.nonfinite_losses = nonfinite_losses_;
  state.optimizer = optimizer_.state_dict();
  state.scales = model_.scales();
  if (tensors_[0].data.dtype != kFloat32) return state;
  for (const ModelParameter& parameter : tensors_) {
    const auto* data = static_cast<const float*>(parameter.data.data);
    state.weights[parameter.name].assign(data, data + parameter.data.count);
  }
  return state;
}

void Trainer::restore(const TrainerState& state) {
  if (tensors_[0].data.dtype == kFloat32) {
    for (const ModelParameter& parameter : tensors_) {
      const auto found = state.weights.find(parameter.name);
      if (found == state.weights.end() ||
          found->second.size() != parameter.data.count) {
        throw Failure(fmt::format("weights of {}: expected {} elements",
                                  parameter.name, parameter.data.count));
      }
    }
  }
  model_.load_scales(state.scales);
  optimizer_.load_state_dict(state.optimizer);
  for (const auto& [name, weights] : state.weights) {
    for (const ModelParameter& parameter : tensors_) {
      if (parameter.name != name) continue;
      std::memcpy(parameter.data.data, weights.data(),
                  weights.size() * sizeof(float));
    }
  }
  model_.widen_weights();
  steps_ = state.steps;
  random_ = Random(state.random);
  nonfinite_losses_ = state.nonfinite_losses;
}

std::uint64_t weights_digest(const Model& model, const TrainerState& state) {
  std::uint64_t digest = kDigestStart;
  for (const char* name : model.parameter_names()) {
    const auto own = state.weights.find(name);
    const std::vector<float>& weights =
        own != state.weights.end() ? own->second
                                   : state.optimizer.tensors.at(fmt::format(
                                         "fp32_from_fp16_params.{}", name));
    digest = add_to_digest(digest,
                           little_endian_bytes(weights.data(), weights.size()));
  }
  return digest;
}

}  // namespace swamp::cli
