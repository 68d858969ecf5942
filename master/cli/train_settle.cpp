// What the options of `swamp train` mean together: Megatron's rules, said in
// words.
#include "master/cli/command.h"
#include "master/cli/plot.h"
#include "master/cli/train_arguments.h"
#include "swamp/error.h"

namespace swamp::cli {
namespace {

constexpr const char* kDynamic[] = {"--initial-loss-scale", "--min-loss-scale",
                                    "--loss-scale-window", "--hysteresis"};

ScalarType parse_dtype(const std::string& text) {
  for (const ScalarType dtype : {kFloat16, kBFloat16, kFloat32}) {
    if (text == dtype_name(dtype)) return dtype;
  }
  throw UsageError(fmt::format(
      "--dtype: got '{}', expected float16, bfloat16 or float32", text));
}

}  // namespace

TrainOptions TrainArguments::settle() {
  settle_dtype();
  settle_scale();
  settle_scaler();
  settle_optimizer();
  settle_files();
  note_decisive();
  return options_;
}

void TrainArguments::refuse(const char* option, const std::string& found,
                            const std::string& expected) const {
  if (!is_given(option)) return;
  throw UsageError(
      fmt::format("{}: got {}, expected {}", option, found, expected));
}

void TrainArguments::settle_dtype() {
  if (is_given("--dtype")) options_.dtype = parse_dtype(dtype_);
  if (fp16_ && bf16_) {
    throw UsageError("--fp16: got --bf16, too, expected one of them");
  }
  for (const auto& [flag, set, dtype] :
       {std::tuple("--fp16", fp16_, kFloat16),
        std::tuple("--bf16", bf16_, kBFloat16)}) {
    if (!set) continue;
    if (is_given("--dtype") && options_.dtype != dtype) {
      throw UsageError(fmt::format("--dtype: got {} and {}, expected {}",
                                   dtype_name(options_.dtype), flag,
                                   dtype_name(dtype)));
    }
    options_.dtype = dtype;
  }
  options_.optimizer.fp16 = options_.dtype == kFloat16;
  options_.optimizer.bf16 = options_.dtype == kBFloat16;
}

void TrainArguments::settle_scale() {
  const MixedPrecisionOptions& o = options_.optimizer;
  constexpr double kSmallestScale = 0x1p-126;
  if (o.loss_scale != 0 && o.loss_scale < kSmallestScale) {
    throw UsageError(
        fmt::format("--loss-scale: got '{}', expected a number, {} or more, or "
                    "0 for none",
                    o.loss_scale, kSmallestScale));
  }
  for (const char* option : kDynamic) {
    if (o.loss_scale != 0) {
      refuse(option, fmt::format("--loss-scale {}, too", o.loss_scale),
             "one of them: that scale is constant");
    }
    if (!o.fp16) {
      refuse(option, fmt::format("--dtype {}", dtype_name(options_.dtype)),
             "float16, the only one that scales dynamically");
    }
  }
  if (o.min_loss_scale > o.initial_loss_scale) {
    throw UsageError(
        fmt::format("--min-loss-scale: got {}, expected at most {}, the "
                    "--initial-loss-scale",
                    o.min_loss_scale, o.initial_loss_scale));
  }
}

void TrainArguments::settle_scaler() {
  MixedPrecisionOptions& o = options_.optimizer;
  if (!is_given("--scaler")) {
    refuse("--scaler-option", "no --scaler", "one");
    return;
  }
  const std::string found = fmt::format("--scaler {}, too", o.scaler);
  refuse("--loss-scale", found, "its own options, as --scaler-option");
  for (const char* option : kDynamic) {
    refuse(option, found, "its own options, as --scaler-option");
  }
  for (const std::string& text : given_.at("--scaler-option")->results()) {
    std::string key;
    const ScalerValue value = parse_scaler_option(text, key);
    if (!o.scaler_options.emplace(key, value).second) {
      throw UsageError(fmt::format(
          "--scaler-option: got {} twice, expected every key once", key));
    }
  }
  try {
    LossScaler::from_name(o.scaler, o.scaler_options);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--scaler: {}", error.what()));
  }
}

void TrainArguments::settle_optimizer() {
  const bool sgd = optimizer_ == "sgd";
  if (!sgd && optimizer_ != "adam" && optimizer_ != "adamw") {
    throw UsageError(fmt::format(
        "--optimizer: got '{}', expected adamw, adam or sgd", optimizer_));
  }
  const std::string found = fmt::format("--optimizer {}", optimizer_);
  if (!sgd) {
    refuse("--sgd-momentum", found, "sgd");
    adam_.decoupled = optimizer_ == "adamw";
    options_.optimizer.optimizer = adam_;
    return;
  }
  for (const char* option : {"--adam-beta1", "--adam-beta2", "--adam-eps"}) {
    refuse(option, found, "adamw or adam");
  }
  SgdOptions chosen;
  chosen.lr = adam_.lr;
  chosen.weight_decay = adam_.weight_decay;
  chosen.momentum = sgd_momentum_;
  options_.optimizer.optimizer = chosen;
}

void TrainArguments::settle_files() const {
  if (options_.checkpoint.empty()) {
    for (const char* option : {"--save-interval", "--resume", "--overwrite"}) {
      refuse(option, "no --checkpoint", "one");
    }
  }
  if (options_.resume) refuse("--overwrite", "--resume, too", "one of them");
  if (!options_.plot.empty()) plot_terminal(options_.plot);
}

void TrainArguments::note_decisive() {
  const MixedPrecisionOptions& o = options_.optimizer;
  auto& decisive = options_.decisive;
  const auto note = [&](const char* name, double value) {
    decisive[name] = fmt::to_string(value);
  };
  decisive["--dtype"] = dtype_name(options_.dtype);
  decisive["--batch"] = fmt::to_string(options_.batch);
  decisive["--seed"] = fmt::to_string(options_.seed);
  note("--clip-grad", o.clip_grad);
  decisive["--scaler"] = o.scaler.empty() ? "none" : o.scaler;
  if (!o.scaler.empty()) {
    for (const std::string& text : given_.at("--scaler-option")->results()) {
      std::string key;
      parse_scaler_option(text, key);
      decisive["--scaler-option " + key] = text.substr(key.size() + 1);
    }
  } else if (o.loss_scale != 0 || !o.fp16) {
    note("--loss-scale", o.loss_scale);
  } else {
    note("--initial-loss-scale", o.initial_loss_scale);
    note("--min-loss-scale", o.min_loss_scale);
    note("--loss-scale-window", o.loss_scale_window);
    note("--hysteresis", static_cast<double>(o.hysteresis));
  }
  decisive["--optimizer"] = optimizer_;
  note("--lr", adam_.lr);
  note("--weight-decay", adam_.weight_decay);
  if (optimizer_ == "sgd") return note("--sgd-momentum", sgd_momentum_);
  note("--adam-beta1", adam_.beta1);
  note("--adam-beta2", adam_.beta2);
  note("--adam-eps", adam_.eps);
}

}  // namespace swamp::cli
