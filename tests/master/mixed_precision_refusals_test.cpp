// What a MixedPrecisionOptimizer refuses, before it writes anything.
#include <gtest/gtest.h>

#include <string>

#include "machines.h"
#include "support/errors.h"
#include "swamp/mixed_precision.h"

namespace swamp::test {
namespace {

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
  } catch (const Error&) {  // out of memory, or that the arrays overlap
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
