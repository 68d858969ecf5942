// The state dict: a resumed run has the bits of one that was not interrupted; a
// bad state changes nothing. Also the options and parameters that are errors.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "machines.h"
#include "small_model.h"
#include "support/comma_locale.h"
#include "support/errors.h"
#include "swamp/mixed_precision.h"

namespace swamp::test {
namespace {

std::vector<MixedPrecisionOptions> all_options() {
  MixedPrecisionOptions adam = small_options(kFloat16);
  MixedPrecisionOptions sgd = adam;
  sgd.optimizer = SgdOptions{0.1, 0, 0, 0.01, false};
  MixedPrecisionOptions momentum = adam;
  momentum.optimizer = SgdOptions{0.1, 0.9, 0, 0.01, true};
  MixedPrecisionOptions adaptive = adam;
  adaptive.scaler = "mindformers.AdaptiveLossScaleUpdateCell";
  adaptive.scaler_options = {{"loss_scale_value", 1024.0},
                             {"scale_factor", std::int64_t{2}},
                             {"scale_window", std::int64_t{20}}};
  MixedPrecisionOptions amsgrad = adam;
  amsgrad.optimizer = AdamOptions{0.01, 0.8, 0.99, 1e-6, 0.1, true, true, true};
  return {adam, sgd, momentum, adaptive, amsgrad};
}

TEST(MixedPrecisionState, ResumesWithTheSameBits) {
  for (const MixedPrecisionOptions& options : all_options()) {
    Trainer first(options);
    first.steps(1, 5);
    first.optimizer.set_lr(0, 0.02);
    Trainer resumed(options);
    const OptimizerState state = first.optimizer.state_dict();
    EXPECT_TRUE(resumed.optimizer.load_state_dict(state).empty());
    EXPECT_EQ(resumed.optimizer.lr(0), 0.02);
    EXPECT_EQ(resumed.optimizer.get_loss_scale(),
              first.optimizer.get_loss_scale());
    // The float32 weights are in the model's own checkpoint.
    for (std::size_t p = 0; p < kListCounts.size(); ++p) {
      const Tensor to = resumed.model.parameters()[p].data;
      const Tensor from = first.model.parameters()[p].data;
      if (!SmallModel::is_16_bit(p) && to.count != 0) {
        std::memcpy(to.data, from.data, to.count * sizeof(float));
      }
    }
    EXPECT_TRUE(resumed.model.same_weights(first.model));
    resumed.steps(6, 9);
    first.steps(6, 9);
    EXPECT_TRUE(resumed.model.same_weights(first.model));
    EXPECT_EQ(resumed.optimizer.state_dict().tensors,
              first.optimizer.state_dict().tensors);
    EXPECT_EQ(resumed.optimizer.state_dict().texts,
              first.optimizer.state_dict().texts);
  }
}

TEST(MixedPrecisionState, HasMegatronsKeys) {
  Trainer trainer(small_options(kFloat16));
  trainer.steps(1, 1);
  const OptimizerState state = trainer.optimizer.state_dict();
  EXPECT_EQ(state.texts.at("optimizer.step"), "1");
  EXPECT_EQ(state.texts.at("optimizer.param_groups.0.lr"), "0.01");
  EXPECT_EQ(state.texts.at("optimizer.param_groups.0.betas.1"), "0.999");
  EXPECT_EQ(state.texts.count("grad_scaler"), 1u);
  EXPECT_EQ(state.tensors.at("optimizer.state.p3.exp_avg").size(), 64u);
  EXPECT_EQ(state.tensors.at("optimizer.state.p3.exp_avg_sq").size(), 64u);
  EXPECT_EQ(state.tensors.at("fp32_from_fp16_params.p3").size(), 64u);
  EXPECT_EQ(state.tensors.count("fp32_from_fp16_params.p2"), 0u);  // float32
}

TEST(MixedPrecisionState, TheProgramsLocaleDoesNotMatter) {
  Trainer trainer(small_options(kFloat16));
  trainer.steps(1, 1);
  const OptimizerState expected = trainer.optimizer.state_dict();
  const DecimalPointScope scope(",");
  if (!scope.is_set()) GTEST_SKIP() << "not glibc's locales";
  EXPECT_EQ(trainer.optimizer.state_dict().texts, expected.texts);
  trainer.optimizer.set_lr(0, 0.25);
  trainer.optimizer.load_state_dict(expected);
  EXPECT_EQ(trainer.optimizer.state_dict().texts, expected.texts);
}

// The names of old checkpoints, with Megatron's words.
TEST(MixedPrecisionState, OldCheckpoints) {
  Trainer trainer(small_options(kFloat16));
  trainer.steps(1, 2);
  const OptimizerState state = trainer.optimizer.state_dict();
  OptimizerState old;
  const auto rename = [](std::string key) {
    if (key.rfind("optimizer.", 0) == 0) {
      key.replace(0, 9, "optimizer_state_dict");
    } else if (key.rfind("fp32_from_fp16_params.", 0) == 0) {
      key.replace(0, 21, "fp32_from_fp16");
    }
    return key;
  };
  for (const auto& [key, text] : state.texts) {
    if (key != "grad_scaler") old.texts[rename(key)] = text;
  }
  for (const auto& [key, values] : state.tensors) {
    old.tensors[rename(key)] = values;
  }
  Trainer loaded(small_options(kFloat16));
  const std::vector<std::string> expected = {
      "***WARNING*** loading optimizer from an old checkpoint ...",
      "***WARNING*** found an old checkpoint, will not load grad scaler ..."};
  EXPECT_EQ(loaded.optimizer.load_state_dict(old), expected);
  EXPECT_EQ(loaded.optimizer.state_dict().tensors, state.tensors);
  EXPECT_EQ(loaded.optimizer.get_loss_scale(), 1024);
}

// States of optimizers that were made with other options. nesterov is part of
// the state, as in torch; Megatron's constant scaler loads nothing.
TEST(MixedPrecisionState, OfOtherOptions) {
  using Options = MixedPrecisionOptions;
  const auto sgd = [](Options& o, double momentum, bool nesterov) {
    o.optimizer = SgdOptions{0.1, momentum, 0, 0, nesterov};
  };
  const auto amsgrad = [](Options& o) {
    std::get<AdamOptions>(o.optimizer).amsgrad = true;
  };
  const auto plain = [](Options&) {};
  const struct {
    std::function<void(Options&)> saved, loaded;
    std::string warning, error;
    ScalarType type = kFloat16;
  } rows[] = {
      {[](Options& o) { o.loss_scale = 4; }, plain,
       "***WARNING*** fould the grad scaler in the checkpoint but it is None "
       "in the class. Skipping loading grad scaler ...",
       "", kBFloat16},
      {plain, [](Options& o) { o.loss_scale = 8; }, "", ""},
      {[&](Options& o) { sgd(o, 0.9, true); },
       [](Options& o) { o.optimizer = SgdOptions{}; }, "",
       "momentum: got 0.9, expected 0"},
      {amsgrad, plain, "", "amsgrad: got 1, expected 0"},
      {plain, amsgrad, "", "amsgrad: got 0, expected 1"},
      {[&](Options& o) { sgd(o, 0.9, true); },
       [&](Options& o) { sgd(o, 0.9, false); }, "", ""}};
  for (const auto& row : rows) {
    Options options = small_options(row.type), others = options;
    row.saved(options);
    row.loaded(others);
    Trainer saved(options), loaded(others);
    saved.steps(1, 3);
    const OptimizerState state = saved.optimizer.state_dict();
    std::vector<std::string> warnings;
    const std::string error =
        error_of([&] { warnings = loaded.optimizer.load_state_dict(state); });
    const auto scale = loaded.optimizer.get_loss_scale();
    if (!row.error.empty()) {
      EXPECT_EQ(error, "state dict: optimizer.param_groups.0." + row.error +
                           ", as the optimizer was made");
      continue;
    }
    EXPECT_EQ(error, "nothing was thrown");
    EXPECT_EQ(warnings.size(), row.warning.empty() ? 0u : 1u);
    if (!warnings.empty()) {
      EXPECT_EQ(warnings[0], row.warning);
    } else if (others.loss_scale != 0) {
      EXPECT_EQ(scale, others.loss_scale);
    } else {
      EXPECT_EQ(loaded.optimizer.state_dict().texts, state.texts);
    }
  }
}

TEST(MixedPrecisionState, MismatchedStatesChangeNothing) {
  Trainer trainer(small_options(kFloat16));
  trainer.steps(1, 4);
  const OptimizerState good = trainer.optimizer.state_dict();
  Trainer other(small_options(kFloat16));
  other.steps(5, 6);
  const SmallModel before = other.model;
  const OptimizerState own = other.optimizer.state_dict();
  const auto expect_refused = [&](const std::string& text,
                                  const OptimizerState& bad) {
    EXPECT_TRUE(has_words(
        error_of([&] { other.optimizer.load_state_dict(bad); }), {text}));
    EXPECT_TRUE(other.model.same_weights(before));
    EXPECT_EQ(other.optimizer.state_dict().tensors, own.tensors);
    EXPECT_EQ(other.optimizer.state_dict().texts, own.texts);
  };
  const std::string step = "optimizer.step", group = "optimizer.param_groups.";
  const struct {
    std::string key, value;  // ""; none
    std::string error;
  } texts[] = {
      {step, "", "optimizer.step: got nothing, expected"},
      {step, "1.5", "optimizer.step: got 1.5, expected a whole number"},
      {step, "1e300", "got 1e300, expected a whole number from 0 to 2^53 - 2"},
      {step, "9007199254740991", "got 9007199254740991, expected a whole"},
      {step, "-1", "optimizer.step: got -1, expected a whole number from 0"},
      {step, "nan", "optimizer.step: got 'nan', expected a number"},
      {group + "0.lr", "fast", "0.lr: got 'fast', expected a number"},
      {group + "0.lr", "-1", "lr: got -1, expected"},
      {"grad_scaler", "{\"growth_tracker\": 1}", "grad_scaler: "},
      {group + "1.lr", "1", "groups.1: got an entry, expected 1 groups"},
      {group + "0.decoupled_weight_decay", "2",
       "decoupled_weight_decay: got 2, expected 0 or 1"}};
  for (const auto& row : texts) {
    OptimizerState bad = good;
    bad.texts[row.key] = row.value;
    if (row.value.empty()) bad.texts.erase(row.key);
    expect_refused(row.error, bad);
  }
  OptimizerState bad = good;
  bad.tensors.erase("optimizer.state.p17.exp_avg_sq");
  expect_refused("optimizer.state.p17.exp_avg_sq: got nothing, expected 65",
                 bad);
  bad = good;
  bad.tensors["fp32_from_fp16_params.p3"].pop_back();
  expect_refused("fp32_from_fp16_params.p3: got 63 elements, expected 64", bad);
  bad = good;
  bad.tensors["optimizer.state.other.exp_avg"] = {};
  expect_refused("got 37 tensors, expected 36", bad);
}

// ---- Errors of MixedPrecisionOptimizer, before it writes anything.

template <class Change>
void expect_refused(const std::string& text, Change change) {
  float weight = 1, gradient = 1;
  MixedPrecisionOptions options;
  std::vector<ParameterGroup> groups = {
      {{{"w", {&weight, 1, kFloat32}, {&gradient, 1, kFloat32}}}, {}, {}}};
  change(options, groups);
  EXPECT_EQ(error_of([&] { MixedPrecisionOptimizer made(groups, options); }),
            text);
}

using Options = MixedPrecisionOptions;
using Groups = std::vector<ParameterGroup>;

TEST(MixedPrecisionRefuses, Options) {
  expect_refused("fp16: got true with bf16, expected one of them",
                 [](Options& o, Groups&) { o.fp16 = o.bf16 = true; });
  expect_refused("clip_grad: got -1, expected a number, at least 0",
                 [](Options& o, Groups&) { o.clip_grad = -1; });
  expect_refused("micro_batches: got 0, expected at least 1",
                 [](Options& o, Groups&) { o.micro_batches = 0; });
  expect_refused(
      "shard: got true without a communicator, expected a communicator",
      [](Options& o, Groups&) { o.shard = true; });
  expect_refused(
      "model_communicator: got one without shard, expected the option shard",
      [](Options& o, Groups&) {
        o.model_communicator = &Communicator::alone();
      });
  expect_refused(
      "saturated_is_overflow: got true without fp16, expected the option fp16",
      [](Options& o, Groups&) { o.saturated_is_overflow = true; });
  expect_refused("beta1: got 1, expected a number in [0, 1)",
                 [](Options& o, Groups&) {
                   std::get<AdamOptions>(o.optimizer).beta1 = 1;
                 });
  expect_refused("momentum: got 0, expected a momentum above 0 with nesterov",
                 [](Options& o, Groups&) {
                   SgdOptions sgd;
                   sgd.nesterov = true;
                   o.optimizer = sgd;
                 });
  expect_refused("groups[0].lr: got -2, expected a finite number, at least 0",
                 [](Options&, Groups& g) { g[0].lr = -2; });
}

TEST(MixedPrecisionRefuses, TiedArraysAndLittleLdm) {
  expect_refused(
      "groups: got the data of 'w' and the data of 'v', which overlap, "
      "expected arrays that share no memory",
      [](Options&, Groups& g) {
        static float gradient;
        ModelParameter tied = g[0].parameters[0];
        tied.name = "v";
        tied.gradient.data = &gradient;
        g[0].parameters.push_back(tied);
      });
  expect_refused(
      "loss_scale: got 8 with the scaler torch.amp.GradScaler, expected "
      "one of them",
      [](Options& o, Groups&) {
        o.loss_scale = 8;
        o.scaler = "torch.amp.GradScaler";
      });
  MachineConfig config;
  config.transfer = "copy";
  config.ldm_bytes = 2048;
  const auto machine = make_machine(config);
  expect_refused(
      "machine: got 2048 bytes of LDM, expected at least 4096 for the "
      "arrays of a step (SWAMP_LDM_BYTES)",
      [&](Options& o, Groups&) { o.machine = machine.get(); });
  config.ldm_bytes = 4096;
  const auto larger = make_machine(config);
  expect_refused(
      "machine: got 4096 bytes of LDM, expected at least 8192 for the "
      "arrays of a step (SWAMP_LDM_BYTES)",
      [&](Options& o, Groups&) {
        o.machine = larger.get();
        AdamOptions adam;
        adam.amsgrad = true;
        o.optimizer = adam;
      });
}

TEST(MixedPrecisionRefuses, MoreThanThereIsMemoryFor) {
  float weight = 1, gradient = 1;
  MixedPrecisionOptions options;
  options.bf16 = true;
  const std::size_t count = std::size_t{1} << 61;
  try {
    const MixedPrecisionOptimizer optimizer(
        {{{{"w", {&weight, count, kBFloat16}, {&gradient, count, kBFloat16}}},
          {},
          {}}},
        options);
    ADD_FAILURE() << "no error";
  } catch (const Error&) {  // "out of memory", or "the arrays overlap"
  }
}

TEST(MixedPrecisionRefuses, Parameters) {
  expect_refused(
      "groups[0].parameters[0].data.dtype: got float16 without fp16, expected "
      "the "
      "option fp16",
      [](Options&, Groups& g) { g[0].parameters[0].data.dtype = kFloat16; });
  expect_refused(
      "groups[0].parameters[0].gradient.count: got 0, expected 1, as "
      "the data",
      [](Options&, Groups& g) { g[0].parameters[0].gradient.count = 0; });
  expect_refused(
      "groups[0].parameters[1].name: got 'w' again, expected a name "
      "that no other parameter has",
      [](Options&, Groups& g) {
        g[0].parameters.push_back(g[0].parameters[0]);
      });
  expect_refused(
      "groups[0].parameters[0].data.data: got null, expected the address of 1 "
      "elements",
      [](Options&, Groups& g) { g[0].parameters[0].data.data = nullptr; });
}

}  // namespace
}  // namespace swamp::test
