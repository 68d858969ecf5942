#include "master/cli/train_arguments.h"

#include <limits>

#include "master/cli/command.h"

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

}  // namespace

TrainArguments::TrainArguments(CLI::App* train) : add_(train) {
  add_run();
  add_numbers();
  add_scale();
  add_optimizer();
}

void TrainArguments::real(const char* name, double& value, double low,
                          double high, const char* help) {
  given_[name] = add_.real(name, value, low, high, help);
}

void TrainArguments::file(const char* name, std::string& value,
                          const char* help) {
  given_[name] = add_.text(
      name, "FILE", "", help, [name, &value](const std::string& text) {
        if (text.empty()) {
          throw UsageError(
              fmt::format("{}: got '', expected the name of a file", name));
        }
        value = text;
      });
}

void TrainArguments::add_run() {
  add_.text("TEXT", "FILE", options_.text, "the text to learn",
            [&](const std::string& text) { options_.text = text; });
  add_.integer("--steps", options_.steps, 1, kMany, "steps to train");
  add_.integer("--batch", options_.batch, 1, 4096, "examples in a micro batch");
  add_.integer("--accumulate", options_.accumulate, 1, 4096,
               "micro batches of a rank in a step");
  add_.integer("--seed", options_.seed, 0,
               std::numeric_limits<std::uint64_t>::max(),
               "of the first weights and the order of the examples");
  file("--log", options_.log, "write one JSON object a step");
  add_.integer("--log-interval", options_.log_interval, 1, kMany,
               "print every Nth step");
  file("--checkpoint", options_.checkpoint,
       "save the run to this safetensors file");
  given_["--save-interval"] =
      add_.integer("--save-interval", options_.save_interval, 1, kMany,
                   "every Nth step, and at the end");
  given_["--resume"] = add_.flag("--resume", options_.resume,
                                 "go on from --checkpoint, if it is there");
  given_["--overwrite"] = add_.flag("--overwrite", options_.overwrite,
                                    "replace --checkpoint, if it is there");
  file("--plot", options_.plot,
       "draw loss and scale as a .png or .svg (needs gnuplot)");
}

void TrainArguments::add_numbers() {
  given_["--dtype"] =
      add_.text("--dtype", "TYPE", "float16",
                "float16, bfloat16 or float32: of the model and its gradients",
                [&](const std::string& text) { dtype_ = text; });
  add_.flag("--fp16", fp16_, "the same as --dtype float16");
  add_.flag("--bf16", bf16_, "the same as --dtype bfloat16");
}

void TrainArguments::add_scale() {
  MixedPrecisionOptions& o = options_.optimizer;
  real("--loss-scale", o.loss_scale, 0, kMaxScale,
       "constant loss scale; 0: a dynamic one in float16, else none");
  real("--initial-loss-scale", o.initial_loss_scale, kMinScale, kMaxScale,
       "first dynamic loss scale");
  real("--min-loss-scale", o.min_loss_scale, kMinScale, kMaxScale,
       "smallest dynamic loss scale");
  real("--loss-scale-window", o.loss_scale_window, kSmallest, kLargest,
       "clean steps after which a dynamic scale doubles");
  given_["--hysteresis"] =
      add_.integer("--hysteresis", o.hysteresis, 1, kMany,
                   "the overflow since the last growth that halves it");
  given_["--scaler"] =
      add_.text("--scaler", "NAME", "",
                "any rule of swamp's, as torch.amp.GradScaler, instead",
                [&](const std::string& text) { o.scaler = text; });
  given_["--scaler-option"] =
      add_.text("--scaler-option", "KEY=VALUE", "",
                "an argument of its constructor; may be repeated",
                [](const std::string&) {})
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void TrainArguments::add_optimizer() {
  given_["--optimizer"] =
      add_.text("--optimizer", "NAME", optimizer_,
                "adamw (Megatron's adam), adam (with L2 penalty) or sgd",
                [&](const std::string& text) { optimizer_ = text; });
  real("--lr", adam_.lr, kSmallest, kLargest, "learning rate");
  real("--weight-decay", adam_.weight_decay, 0, kLargest, "weight decay");
  real("--adam-beta1", adam_.beta1, 0, kBelowOne, "of the first moment");
  real("--adam-beta2", adam_.beta2, 0, kBelowOne, "of the second moment");
  real("--adam-eps", adam_.eps, 0, kLargest, "added to the root");
  real("--sgd-momentum", sgd_momentum_, 0, kLargest, "momentum of sgd");
  real("--clip-grad", options_.optimizer.clip_grad, 0, kLargest,
       "largest norm of all gradients; 0: no clipping");
}

}  // namespace swamp::cli
