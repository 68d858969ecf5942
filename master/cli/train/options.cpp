// The options of `swamp train`.
#include "master/cli/train/options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "master/cli/text.h"
#include "master/cli/train/log.h"
#include "swamp/error.h"

namespace swamp::cli {
namespace {

// Large enough for every run, small enough that no sum of them overflows.
constexpr std::uint64_t kMany = 1000000000;
// A scale and its inverse must both be normal float32 numbers.
constexpr double kMinScale = 0x1p-126;
constexpr double kMaxScale = 0x1p+126;
constexpr double kSmallest = 1e-30;
constexpr double kLargest = 1e30;
constexpr double kBelowOne = 1.0 - 0x1p-53;

constexpr const char* kDelayed[] = {"--fp8-margin", "--fp8-amax-history-len",
                                    "--fp8-amax-compute-algo"};
constexpr const char* kDynamic[] = {"--initial-loss-scale", "--min-loss-scale",
                                    "--loss-scale-window", "--hysteresis"};

void add_file(CLI::App& command, const char* name, std::string& value,
              const char* help) {
  add_text(
      command, name, "FILE", "", help, [name, &value](const std::string& text) {
        if (text.empty()) {
          throw UsageError(
              fmt::format("{}: got '', expected the name of a file", name));
        }
        value = text;
      });
}

// add_word() adds an option whose value is one of some words.
void add_word(CLI::App& command, const char* name, std::string& value,
              const std::vector<std::string>& words, const char* help) {
  add_text(
      command, name, "NAME", value, help, [=, &value](const std::string& text) {
        if (std::find(words.begin(), words.end(), text) == words.end()) {
          throw UsageError(
              fmt::format("{}: got {}, expected {}{}", name, in_quotes(text),
                          words.size() > 1 ? "one of " : "", joined(words)));
        }
        value = text;
      });
}

// refuse() throws if `option` is given: it does not go with what was found.
void refuse(const CLI::App& command, const char* option,
            const std::string& found, const std::string& expected) {
  if (command.count(option) == 0) return;
  throw UsageError(
      fmt::format("{}: got {}, expected {}", option, found, expected));
}

constexpr char kWord[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";

// read_value() reads exactly one JSON value.
bool read_value(const std::string& json, ScalerValue& value) {
  try {
    ScalerOptions read =
        scaler_options_from_json(fmt::format("{{\"value\":{}}}", json));
    if (read.size() != 1) return false;
    value = read.at("value");
    return true;
  } catch (const Error&) {
    return false;
  }
}

// parse_scaler_option() returns the value of KEY=VALUE; throws UsageError.
ScalerValue parse_scaler_option(const std::string& text, std::string& key) {
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos && equals != 0) {
    key = text.substr(0, equals);
    const std::string given = text.substr(equals + 1);
    ScalerValue value;
    if (read_value(given, value)) return value;
    // Words, inf and nan are strings in JSON.
    const bool word =
        !given.empty() && given.find_first_not_of(kWord) == std::string::npos;
    if (word && read_value(fmt::format("\"{}\"", given), value)) return value;
  }
  throw UsageError(fmt::format(
      "--scaler-option: got '{}', expected KEY=VALUE with a number, true, "
      "false, null, a word or a list of integers as [20,40]",
      text));
}

}  // namespace

std::map<std::string, std::string> choices(
    std::map<std::string, std::string> decisive) {
  for (const char* option :
       {"--use-flash-attn", "--fp8-format", "--fp4-format"}) {
    decisive.emplace(option, "none");
  }
  const auto scaler = decisive.find("--scaler");
  if (scaler != decisive.end() && scaler->second == "none") {
    decisive.emplace("--loss-scale", "none");
  }
  return decisive;
}

void TrainArguments::add_to(CLI::App& command) {
  add_run(command);
  add_numbers(command);
  add_float8(command);
  add_scale(command);
  add_optimizer(command);
}

void TrainArguments::add_run(CLI::App& command) {
  add_text(command, "TEXT", "FILE", options_.text, "the text to learn",
           [this](const std::string& text) { options_.text = text; });
  add_integer(command, "--steps", options_.steps, 1, kMany, "steps to train");
  add_integer(command, "--batch", options_.batch, 1, 4096,
              "examples in a micro batch");
  add_integer(command, "--accumulate", options_.accumulate, 1, 4096,
              "micro batches of a rank in a step");
  add_integer(command, "--seed", options_.seed, 0,
              std::numeric_limits<std::uint64_t>::max(),
              "seed of the first weights and of the order of examples");
  add_file(command, "--log", options_.log, "write one JSON object per step");
  add_integer(command, "--log-interval", options_.log_interval, 1, kMany,
              "print every Nth step");
  add_file(command, "--checkpoint", options_.checkpoint,
           "save the run to this safetensors file");
  add_integer(command, "--save-interval", options_.save_interval, 1, kMany,
              "save every Nth step, and at the end");
  command.add_flag("--resume", options_.resume,
                   "continue from --checkpoint, if it exists");
  command.add_flag("--overwrite", options_.overwrite,
                   "replace --checkpoint, if it exists");
  add_file(command, "--plot", options_.plot,
           "draw loss and scale as a .png or .svg (needs gnuplot)");
}

void TrainArguments::add_numbers(CLI::App& command) {
  add_text(command, "--dtype", "TYPE", "float16",
           "of the model and its gradients: float16, bfloat16 or float32",
           [this](const std::string& text) { dtype_ = text; });
  command.add_flag("--fp16", fp16_, "the same as --dtype float16");
  command.add_flag("--bf16", bf16_, "the same as --dtype bfloat16");
  ModelOptions& model = options_.model;
  command.add_flag(
      "--attention-softmax-in-fp32", model.attention_softmax_in_fp32,
      "compute the softmax of float32 scores, not of scores rounded "
      "to 16 bits");
  command.add_flag(
      "--apply-query-key-layer-scaling", model.query_key_layer_scaling,
      "divide the 16-bit scores of layer N by N, and multiply by N in "
      "the float32 softmax: large scores do not overflow; implies "
      "--attention-softmax-in-fp32");
  command.add_flag(
      "--fp16-lm-cross-entropy", model.fp16_lm_cross_entropy,
      "compute the loss of 16-bit logits without a float32 copy of "
      "them; the arithmetic is float32 either way (only --fp16)");
  command.add_flag(
      "--fp32-residual-connection", model.fp32_residual_connection,
      "keep the residual stream and its gradient in float32, not in "
      "16 bits (only --fp16 or --bf16)");
  command.add_flag("--use-flash-attn", model.use_flash_attn,
                   "compute attention by swamp's flash attention: no matrix of "
                   "scores, float32 inside");
}

void TrainArguments::add_float8(CLI::App& command) {
  Float8Options& o = options_.model.float8;
  add_word(command, "--fp8-format", fp8_format_, {"e4m3", "hybrid"},
           "the linear layers multiply codes of 8 bits: e4m3, or hybrid, with "
           "gradients in e5m2");
  add_word(
      command, "--fp8-recipe", fp8_recipe_,
      {"delayed", "tensorwise", "mxfp8", "blockwise"},
      "how they are scaled: by the amax of earlier steps (delayed), of the "
      "tensor (tensorwise), of 32 elements (mxfp8) or of 128 (blockwise)");
  add_integer(command, "--fp8-margin", o.margin, 0, 126,
              "delayed scales are divided by 2 to this power");
  add_integer(command, "--fp8-amax-history-len", o.amax_history_length, 1,
              1 << 20, "steps whose amax is kept for delayed scales");
  add_word(command, "--fp8-amax-compute-algo", o.amax_compute_algorithm,
           {"most_recent", "max"}, "which of them chooses a delayed scale");
  add_word(command, "--fp4-format", fp4_format_, {"e2m1"},
           "the linear layers multiply codes of 4 bits");
  add_word(command, "--fp4-recipe", fp4_recipe_, {"nvfp4"},
           "how they are scaled: by the amax of 16 elements");
}

void TrainArguments::add_scale(CLI::App& command) {
  MixedPrecisionOptions& o = options_.optimizer;
  add_real(command, "--loss-scale", o.loss_scale, 0, kMaxScale,
           "constant loss scale; 0: a dynamic one in float16, else none");
  add_real(command, "--initial-loss-scale", o.initial_loss_scale, kMinScale,
           kMaxScale, "first dynamic loss scale");
  add_real(command, "--min-loss-scale", o.min_loss_scale, kMinScale, kMaxScale,
           "smallest dynamic loss scale");
  add_real(command, "--loss-scale-window", o.loss_scale_window, kSmallest,
           kLargest, "clean steps after which a dynamic scale doubles");
  add_integer(command, "--hysteresis", o.hysteresis, 1, kMany,
              "the Nth overflow since the last growth halves the scale");
  add_text(
      command, "--scaler", "NAME", "",
      "use another loss scaler of swamp, as torch.amp.GradScaler",
      [this](const std::string& text) { options_.optimizer.scaler = text; });
  command
      .add_option("--scaler-option", scaler_options_,
                  "an argument of the scaler's constructor; may be repeated")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void TrainArguments::add_optimizer(CLI::App& command) {
  add_text(command, "--optimizer", "NAME", optimizer_,
           "adamw (Megatron's adam), adam (with L2 penalty) or sgd",
           [this](const std::string& text) { optimizer_ = text; });
  add_real(command, "--lr", adam_.lr, kSmallest, kLargest, "learning rate");
  add_real(command, "--weight-decay", adam_.weight_decay, 0, kLargest,
           "weight decay");
  add_real(command, "--adam-beta1", adam_.beta1, 0, kBelowOne,
           "decay of the first moment");
  add_real(command, "--adam-beta2", adam_.beta2, 0, kBelowOne,
           "decay of the second moment");
  add_real(command, "--adam-eps", adam_.eps, 0, kLargest,
           "added to the square root");
  add_real(command, "--sgd-momentum", sgd_.momentum, 0, kLargest,
           "momentum of sgd");
  add_real(command, "--clip-grad", options_.optimizer.clip_grad, 0, kLargest,
           "largest norm of all gradients; 0: no clipping");
  command.add_flag(
      "--use-distributed-optimizer", distributed_optimizer_,
      "no effect: ranks always have a shard of the weights' float32 "
      "copies and moments each");
  add_integer(
      command, "--timing-log-level", options_.timing_log_level, 0, 2,
      "1 or 2: at every --log-interval also print the time of each part "
      "of the optimizer's step, of the fastest and the slowest rank");
  command.add_flag("--barrier-with-L1-time", options_.barrier_with_l1_time,
                   "ranks wait for each other before each of these parts");
}

TrainOptions TrainArguments::settle(const CLI::App& command) {
  settle_dtype(command);
  settle_model(command);
  settle_float8(command);
  settle_scale(command);
  settle_scaler(command);
  settle_optimizer(command);
  settle_timers(command);
  settle_files(command);
  note_decisive();
  return options_;
}

void TrainArguments::settle_dtype(const CLI::App& command) {
  if (command.count("--dtype") != 0) {
    options_.model.dtype =
        parse_dtype("--dtype", dtype_, {kFloat16, kBFloat16, kFloat32});
  }
  if (fp16_ && bf16_) {
    throw UsageError("--fp16: got --bf16, too, expected one of them");
  }
  for (const auto& [flag, set, dtype] :
       {std::tuple("--fp16", fp16_, kFloat16),
        std::tuple("--bf16", bf16_, kBFloat16)}) {
    if (!set) continue;
    if (command.count("--dtype") != 0 && options_.model.dtype != dtype) {
      throw UsageError(fmt::format("--dtype: got {} and {}, expected {}",
                                   dtype_name(options_.model.dtype), flag,
                                   dtype_name(dtype)));
    }
    options_.model.dtype = dtype;
  }
  options_.optimizer.fp16 = options_.model.dtype == kFloat16;
  options_.optimizer.bf16 = options_.model.dtype == kBFloat16;
}

// settle_model() has the rules and texts of Megatron's arguments.
void TrainArguments::settle_model(const CLI::App& command) {
  ModelOptions& model = options_.model;
  const auto refuse_dtype = [&](const char* option, const char* text) {
    throw UsageError(fmt::format("{}: got --dtype {}: {}", option,
                                 dtype_name(model.dtype), text));
  };
  if (model.fp32_residual_connection && model.dtype == kFloat32) {
    refuse_dtype("--fp32-residual-connection",
                 "residual connection in fp32 only supported when using fp16 "
                 "or bf16.");
  }
  if (model.fp16_lm_cross_entropy && model.dtype != kFloat16) {
    refuse_dtype("--fp16-lm-cross-entropy",
                 "lm cross entropy in fp16 only support in fp16 mode.");
  }
  if (model.use_flash_attn) {
    for (const char* option :
         {"--attention-softmax-in-fp32", "--apply-query-key-layer-scaling"}) {
      refuse(command, option, "--use-flash-attn, too",
             "one of them: its scores are float32");
    }
  }
  if (model.query_key_layer_scaling) model.attention_softmax_in_fp32 = true;
}

void TrainArguments::settle_float8(const CLI::App& command) {
  const bool fp8 = !fp8_format_.empty();
  const bool fp4 = !fp4_format_.empty();
  if (!fp8) {
    refuse(command, "--fp8-recipe", "no --fp8-format", "one");
  } else {
    refuse(command, "--fp4-format", "--fp8-format, too", "one of them");
  }
  if (!fp4) refuse(command, "--fp4-recipe", "no --fp4-format", "one");
  for (const char* option : kDelayed) {
    if (!fp8) refuse(command, option, "no --fp8-format", "one");
    if (fp8_recipe_ == "delayed") continue;
    refuse(command, option, "--fp8-recipe " + fp8_recipe_, "delayed");
  }
  if (fp4 && options_.batch % 16 != 0) {
    throw UsageError(
        fmt::format("--batch: got {}, expected a multiple of 16, the width of "
                    "the Hadamard transform of --fp4-recipe {}",
                    options_.batch, fp4_recipe_));
  }
  Float8Options& o = options_.model.float8;
  o.format = fp8 ? fp8_format_ : fp4_format_;
  if (fp8) o.recipe = fp8_recipe_;
  if (fp4) o.recipe = fp4_recipe_;
}

void TrainArguments::settle_scale(const CLI::App& command) {
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
      refuse(command, option, fmt::format("--loss-scale {}, too", o.loss_scale),
             "one of them: that scale is constant");
    }
    if (!o.fp16) {
      refuse(command, option,
             fmt::format("--dtype {}", dtype_name(options_.model.dtype)),
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

void TrainArguments::settle_scaler(const CLI::App& command) {
  MixedPrecisionOptions& o = options_.optimizer;
  if (command.count("--scaler") == 0) {
    refuse(command, "--scaler-option", "no --scaler", "one");
    return;
  }
  const std::string found = fmt::format("--scaler {}, too", o.scaler);
  refuse(command, "--loss-scale", found, "its own options, as --scaler-option");
  for (const char* option : kDynamic) {
    refuse(command, option, found, "its own options, as --scaler-option");
  }
  for (const std::string& text : scaler_options_) {
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

void TrainArguments::settle_optimizer(const CLI::App& command) {
  const bool sgd = optimizer_ == "sgd";
  if (!sgd && optimizer_ != "adam" && optimizer_ != "adamw") {
    throw UsageError(fmt::format(
        "--optimizer: got '{}', expected adamw, adam or sgd", optimizer_));
  }
  const std::string found = fmt::format("--optimizer {}", optimizer_);
  if (!sgd) {
    refuse(command, "--sgd-momentum", found, "sgd");
    adam_.decoupled = optimizer_ == "adamw";
    options_.optimizer.optimizer = adam_;
    return;
  }
  for (const char* option : {"--adam-beta1", "--adam-beta2", "--adam-eps"}) {
    refuse(command, option, found, "adamw or adam");
  }
  sgd_.lr = adam_.lr;
  sgd_.weight_decay = adam_.weight_decay;
  options_.optimizer.optimizer = sgd_;
}

void TrainArguments::settle_timers(const CLI::App& command) const {
  if (options_.timing_log_level > 0) return;
  refuse(command, "--barrier-with-L1-time", "--timing-log-level 0",
         "1 or 2, which have these timers");
}

void TrainArguments::settle_files(const CLI::App& command) const {
  if (options_.checkpoint.empty()) {
    for (const char* option : {"--save-interval", "--resume", "--overwrite"}) {
      refuse(command, option, "no --checkpoint", "one");
    }
  }
  if (options_.resume)
    refuse(command, "--overwrite", "--resume, too", "one of them");
  if (!options_.plot.empty()) plot_terminal(options_.plot);
}

void TrainArguments::note_decisive() {
  const MixedPrecisionOptions& o = options_.optimizer;
  auto& decisive = options_.decisive;
  const auto note = [&](const char* name, double value) {
    decisive[name] = fmt::format("{}", value);
  };
  decisive["--dtype"] = dtype_name(options_.model.dtype);
  const ModelOptions& model = options_.model;
  for (const auto& [name, set] :
       {std::pair("--attention-softmax-in-fp32",
                  model.attention_softmax_in_fp32),
        std::pair("--apply-query-key-layer-scaling",
                  model.query_key_layer_scaling),
        std::pair("--fp16-lm-cross-entropy", model.fp16_lm_cross_entropy),
        std::pair("--fp32-residual-connection",
                  model.fp32_residual_connection)}) {
    decisive[name] = set ? "true" : "false";
  }
  // Checkpoints do not have the following if they are not used: see
  // choices().
  if (model.use_flash_attn) decisive["--use-flash-attn"] = "true";
  if (!fp8_format_.empty()) {
    decisive["--fp8-format"] = fp8_format_;
    decisive["--fp8-recipe"] = fp8_recipe_;
    if (fp8_recipe_ == "delayed") {
      const Float8Options& float8 = model.float8;
      note("--fp8-margin", static_cast<double>(float8.margin));
      note("--fp8-amax-history-len",
           static_cast<double>(float8.amax_history_length));
      decisive["--fp8-amax-compute-algo"] = float8.amax_compute_algorithm;
    }
  }
  if (!fp4_format_.empty()) {
    decisive["--fp4-format"] = fp4_format_;
    decisive["--fp4-recipe"] = fp4_recipe_;
  }
  decisive["--batch"] = std::to_string(options_.batch);
  decisive["--seed"] = std::to_string(options_.seed);
  note("--clip-grad", o.clip_grad);
  decisive["--scaler"] = o.scaler.empty() ? "none" : o.scaler;
  if (!o.scaler.empty()) {
    for (const std::string& text : scaler_options_) {
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
  if (optimizer_ == "sgd") return note("--sgd-momentum", sgd_.momentum);
  note("--adam-beta1", adam_.beta1);
  note("--adam-beta2", adam_.beta2);
  note("--adam-eps", adam_.eps);
}

}  // namespace swamp::cli
