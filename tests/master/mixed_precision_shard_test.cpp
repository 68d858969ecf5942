// Ranks: all take or skip the same steps; sharded ones have the bits of one
// rank.
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <set>

#include "master/optim/mixed_precision.h"
#include "small_model.h"
#include "support/errors.h"
#include "support/thread_communicator.h"
#include "swamp/error.h"
#include "swamp/foreach.h"

namespace swamp::test {
namespace {

constexpr std::uint64_t kSteps = 5;

// The gradients of micro batch `rank` of a step.
std::uint64_t seed_of(std::uint64_t step, int rank) {
  return step * 100 + static_cast<std::uint64_t>(rank);
}

// Outcome is everything that a run has changed.
struct Outcome {
  explicit Outcome(ScalarType type) : model(type) {}
  SmallModel model;
  std::vector<StepResult> results;
  OptimizerState state;
};

// train_alone() accumulates as many micro batches as there are ranks.
Outcome train_alone(ScalarType type, int micro_batches,
                    GradientReduction reduction, int planted_rank) {
  Outcome run(type);
  MixedPrecisionOptions options = small_options(type);
  options.micro_batches = micro_batches;
  options.reduction = reduction;
  MixedPrecisionOptimizer optimizer({{run.model.parameters(), {}, {}}},
                                    options);
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    for (int rank = 0; rank < micro_batches; ++rank) {
      run.model.set_gradients(seed_of(step, rank));
      if (step == 3 && rank == planted_rank) run.model.plant(11, 12009);
      if (micro_batches != 1) optimizer.accumulate_gradients();
    }
    run.results.push_back(optimizer.step());
  }
  run.state = optimizer.state_dict();
  return run;
}

Outcome train_rank(Communicator& communicator, ScalarType type,
                   GradientReduction reduction, int planted_rank) {
  Outcome run(type);
  MixedPrecisionOptions options = sharded_options(type, communicator);
  options.reduction = reduction;
  MixedPrecisionOptimizer optimizer({{run.model.parameters(), {}, {}}},
                                    options);
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    run.model.set_gradients(seed_of(step, communicator.rank()));
    if (step == 3 && communicator.rank() == planted_rank) {
      run.model.plant(11, 12009);
    }
    run.results.push_back(optimizer.step());
  }
  run.state = optimizer.state_dict();
  return run;
}

void expect_same(const Outcome& sharded, const Outcome& alone) {
  EXPECT_TRUE(sharded.model.same_weights(alone.model));
  EXPECT_EQ(sharded.state.texts, alone.state.texts);
  EXPECT_EQ(sharded.state.tensors, alone.state.tensors);
  for (std::size_t i = 0; i < kSteps; ++i) {
    EXPECT_EQ(sharded.results[i].success, alone.results[i].success) << i;
    EXPECT_EQ(sharded.results[i].grad_norm, alone.results[i].grad_norm) << i;
    EXPECT_EQ(sharded.results[i].num_zeros, alone.results[i].num_zeros) << i;
    EXPECT_EQ(sharded.results[i].next_loss_scale,
              alone.results[i].next_loss_scale);
  }
}

TEST(MixedPrecisionShard, RanksGiveTheBitsOfOneThatAccumulates) {
  for (const ScalarType type : {kFloat16, kBFloat16}) {
    for (const int ranks : {1, 2, 4, 7}) {
      for (const auto reduction :
           {GradientReduction::mean, GradientReduction::sum}) {
        SCOPED_TRACE(std::to_string(type) + " ranks " + std::to_string(ranks));
        const int planted = type == kFloat16 ? ranks - 1 : -1;
        const Outcome alone = train_alone(type, ranks, reduction, planted);
        EXPECT_EQ(alone.results[2].success, planted < 0);
        std::mutex mutex;
        run_ranks(ranks, [&](Communicator& communicator) {
          const Outcome run =
              train_rank(communicator, type, reduction, planted);
          const std::lock_guard<std::mutex> lock(mutex);
          expect_same(run, alone);
        });
      }
    }
  }
}

// An overflow is reported once, by the rank that owns the shard, and names the
// rank whose gradient it was.
TEST(MixedPrecisionShard, OneRankReportsTheOverflow) {
  std::set<int> owners;
  for (const int planted : {0, 1, 2}) {
    std::mutex mutex;
    int reports = 0;
    run_ranks(3, [&](Communicator& communicator) {
      const Outcome run =
          train_rank(communicator, kFloat16, GradientReduction::mean, planted);
      const StepResult& skipped = run.results[2];
      const std::lock_guard<std::mutex> lock(mutex);
      EXPECT_FALSE(skipped.success);
      EXPECT_EQ(skipped.overflow_rank,
                skipped.overflow.element_count == 0 ? -1 : planted);
      if (skipped.overflow.element_count == 0) return;
      ++reports;
      owners.insert(communicator.rank());
      EXPECT_EQ(skipped.overflow_name, "p11");
      EXPECT_EQ(skipped.overflow.tensor, 11u);
      EXPECT_EQ(skipped.overflow.index, 12009u);
    });
    EXPECT_EQ(reports, 1);
  }
  EXPECT_EQ(owners.size(), 1u);
}

// Of p10 (16-bit) and p11 (float32), with and without accumulation.
TEST(MixedPrecisionShard, AnOverflowOfTheSumIsOfNoRank) {
  for (const std::size_t parameter : {std::size_t{10}, std::size_t{11}}) {
    for (const int micro_batches : {1, 2}) {
      for (const bool finite : {true, false}) {
        std::mutex mutex;
        int reports = 0;
        run_ranks(3, [&](Communicator& communicator) {
          MixedPrecisionOptions options =
              sharded_options(kBFloat16, communicator);
          options.loss_scale = 1;
          options.micro_batches = micro_batches;
          options.reduction = GradientReduction::sum;
          Trainer trainer(options);
          auto& [model, optimizer] = trainer;
          for (int i = 0; i < micro_batches; ++i) {
            model.set_gradients(7);
            if (i == 0 && communicator.rank() != 0) {
              model.plant(parameter, 3, finite);
            }
            if (micro_batches > 1) optimizer.accumulate_gradients();
          }
          const StepResult result = optimizer.step();
          const std::lock_guard<std::mutex> lock(mutex);
          EXPECT_FALSE(result.success);
          if (result.overflow.element_count == 0) return;
          ++reports;
          EXPECT_EQ(result.overflow.tensor, parameter);
          EXPECT_EQ(result.overflow.index, 3u);
          EXPECT_EQ(result.overflow_rank, finite ? -1 : 1);
        });
        EXPECT_EQ(reports, 1);
      }
    }
  }
}

// Model-parallel ranks: each has parameters of its own; one has none at all.
TEST(MixedPrecisionShard, RanksWithTheirOwnParameters) {
  std::mutex mutex;
  std::vector<double> norms;
  double squares = 0;
  run_ranks(3, [&](Communicator& communicator) {
    std::vector<std::size_t> counts(
        static_cast<std::size_t>(communicator.rank()), 9000);
    SmallModel model(kFloat16, counts);
    MixedPrecisionOptions options = small_options(kFloat16);
    options.communicator = &communicator;
    MixedPrecisionOptimizer optimizer({{model.parameters(), {}, {}}}, options);
    model.set_gradients(1);
    if (communicator.rank() == 2) model.plant(1, 3);
    EXPECT_FALSE(optimizer.step().success);
    EXPECT_EQ(optimizer.get_loss_scale(), 512);
    model.set_gradients(2);
    std::vector<Tensor> gradients;
    for (const ModelParameter& p : model.parameters()) {
      gradients.push_back(p.gradient);
    }
    const double mine = foreach_norm(gradients, 1.0f / 512);
    const StepResult result = optimizer.step();
    const std::lock_guard<std::mutex> lock(mutex);
    norms.push_back(result.grad_norm.value());
    squares += mine * mine;
  });
  ASSERT_EQ(norms.size(), 3u);
  EXPECT_EQ(norms[0], norms[1]);
  EXPECT_EQ(norms[0], norms[2]);
  EXPECT_NEAR(norms[0] * norms[0] / squares, 1, 1e-12);
}

// Rank 1 of two is made with other options or parameters, or in another state:
// both get the same error before the step changes anything.
TEST(MixedPrecisionShard, RanksThatDifferAreRefused) {
  using Groups = std::vector<ParameterGroup>;
  const auto of_scaler = [](MixedPrecisionOptions& o, std::int64_t interval) {
    o.scaler = "torch.amp.GradScaler";
    o.scaler_options = {{"growth_interval", interval}};
  };
  const auto adam = [](MixedPrecisionOptions& o) -> AdamOptions& {
    return std::get<AdamOptions>(o.optimizer);
  };
  struct Row {
    std::string error;  // ""; not refused
    std::function<void(MixedPrecisionOptions&, Groups&)> change;  // of rank 1
    std::function<void(MixedPrecisionOptimizer&)> before = nullptr;
    bool shard = true;
    std::function<void(MixedPrecisionOptions&)> both = nullptr;
  };
  const std::vector<Row> rows = {
      {"", [](auto&, auto&) {}},
      {"", [](auto& o, auto&) { o.fused = false; }},
      {"clip_grad: got 0.5 on rank 1, expected 1 as on rank 0",
       [](auto& o, auto&) { o.clip_grad = 0.5; }},
      {"clip_grad: got 0 on rank 1, expected 1 as on rank 0",
       [](auto& o, auto&) { o.clip_grad = 0; }, nullptr, false},
      {"log_num_zeros_in_grad: got true on rank 1, expected false as on rank 0",
       [](auto& o, auto&) { o.log_num_zeros_in_grad = true; }},
      {"micro_batches: got 2 on rank 1, expected 1 as on rank 0",
       [](auto& o, auto&) { o.micro_batches = 2; }},
      {"accumulate_gradients() calls: got 0 on rank 1, expected 1 as on rank 0",
       [](auto&, auto&) {}, nullptr, true,
       [](auto& o) { o.micro_batches = 2; }},
      {"reduction: got sum on rank 1, expected mean as on rank 0",
       [](auto& o, auto&) { o.reduction = GradientReduction::sum; }},
      {"shard: got false on rank 1, expected true as on rank 0",
       [](auto& o, auto&) { o.shard = false; }},
      {"scaler: got megatron.ConstantGradScaler on rank 1, expected "
       "megatron.DynamicGradScaler as on rank 0",
       [](auto& o, auto&) { o.loss_scale = 1024; }},
      {"scaler_options.hysteresis: got 2 on rank 1, expected 1 as on rank 0",
       [](auto& o, auto&) { o.hysteresis = 2; }, nullptr, false},
      {"scaler_options.growth_interval: got 3.0 on rank 1, expected 4.0 as on "
       "rank 0",
       [](auto& o, auto&) { o.loss_scale_window = 3; }, nullptr, true,
       [](auto& o) { o.loss_scale_window = 4; }},
      {"scaler_options.growth_interval: got 5 on rank 1, expected 4 as on "
       "rank 0",
       [&](auto& o, auto&) { of_scaler(o, 5); }, nullptr, true,
       [&](auto& o) { of_scaler(o, 4); }},
      {"groups[0].lr: got 0.02 on rank 1, expected 0.01 as on rank 0",
       [&](auto& o, auto&) { adam(o).lr = 0.02; }},
      {"", [&](auto& o, auto&) { adam(o).lr = 0.02; }, {}, false},
      {"groups[0].weight_decay: got 0 on rank 1, expected 0.01 as on rank 0",
       [](auto&, auto& groups) { groups[0].weight_decay = 0; }},
      {"groups[0].betas.1: got 0.99 on rank 1, expected 0.999 as on rank 0",
       [&](auto& o, auto&) { adam(o).beta2 = 0.99; }},
      {"groups[0].maximize: got true on rank 1, expected false as on rank 0",
       [&](auto& o, auto&) { adam(o).maximize = true; }},
      {"groups[0].dampening: got 0 on rank 1, expected none as on rank 0",
       [](auto& o, auto&) {
         SgdOptions sgd;
         sgd.lr = 0.01;
         sgd.weight_decay = 0.01;
         o.optimizer = sgd;
       }},
      {"groups[1].amsgrad: got false on rank 1, expected none as on rank 0",
       [](auto&, auto& groups) { groups.emplace_back(); }},
      {"parameters[0]: got 'q' of group 0, 5 elements of float16, gradient 5 "
       "elements of float16 on rank 1, expected 'p0' of group 0, 5 elements of "
       "float16, gradient 5 elements of float16 as on rank 0",
       [](auto&, auto& groups) { groups[0].parameters[0].name = "q"; }},
      // The same bytes in another order.
      {"parameters[0]: got 'p1' of group 0, ",
       [](auto&, auto& groups) {
         std::swap(groups[0].parameters[0], groups[0].parameters[1]);
       }},
      {"parameters[3]: got none on rank 1, expected 'p3' of group 0, ",
       [](auto&, auto& groups) { groups[0].parameters.pop_back(); }},
      {"", [](auto&, auto& groups) { groups[0].parameters.pop_back(); },
       [](auto&) {}, false},
      {"groups[0].lr: got 0.5 on rank 1, expected 0.01 as on rank 0",
       [](auto&, auto&) {}, [](auto& optimizer) { optimizer.set_lr(0, 0.5); }},
      {"call: got state_dict() on rank 1, expected step() as on rank 0",
       [](auto&, auto&) {}, [](auto& optimizer) { optimizer.state_dict(); }}};
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const Row& row = rows[r];
    SCOPED_TRACE(std::to_string(r) + " " + row.error);
    std::mutex mutex;
    std::set<std::string> errors;
    run_ranks(2, [&](Communicator& communicator) {
      SmallModel model(kFloat16, {5, 5, 7, 9000});
      const SmallModel before = model;
      MixedPrecisionOptions options = small_options(kFloat16);
      options.communicator = &communicator;
      options.shard = row.shard;
      if (row.both) row.both(options);
      Groups groups = {{model.parameters(), {}, {}}};
      const bool changed = communicator.rank() == 1;
      if (changed) row.change(options, groups);
      MixedPrecisionOptimizer optimizer(groups, options);
      model.set_gradients(1);
      std::string error;
      try {
        if (changed && row.before) row.before(optimizer);
        if (!changed && options.micro_batches == 2) {
          optimizer.accumulate_gradients();
        }
        optimizer.step();
      } catch (const Error& refused) {
        error = error_text(refused, SWAMP_INVALID_ARGUMENT);
      }
      const std::lock_guard<std::mutex> lock(mutex);
      errors.insert(error);
      EXPECT_EQ(model.same_weights(before), !row.error.empty());
    });
    ASSERT_EQ(errors.size(), 1u) << *errors.begin() << *errors.rbegin();
    if (row.error.empty()) {
      EXPECT_EQ(*errors.begin(), "");
    } else {
      EXPECT_EQ(errors.begin()->rfind(row.error, 0), 0u) << *errors.begin();
    }
  }
}

// A rank that begins again may load the state of the others; one that has
// another state is refused by the next step.
TEST(MixedPrecisionShard, StatesAreComparedAfterTheyAreLoaded) {
  const Outcome old = train_alone(kFloat16, 1, GradientReduction::mean, -1);
  for (const bool same : {true, false}) {
    OptimizerState other = old.state;
    if (!same) other.texts["optimizer.step"] = "4";
    EXPECT_EQ(error_of([&] {
                run_ranks(2, [&](Communicator& communicator) {
                  MixedPrecisionOptions options =
                      sharded_options(kFloat16, communicator);
                  Trainer trainer(options);
                  trainer.optimizer.step();
                  Trainer fresh(options);
                  const bool begins = communicator.rank() == 1;
                  Trainer& used = begins ? fresh : trainer;
                  used.optimizer.load_state_dict(begins ? other : old.state);
                  used.optimizer.step();
                });
              }),
              same ? "nothing was thrown"
                   : "step_count(): got 4 on rank 1, expected 5 as on rank 0");
  }
}

// If one rank leaves, the others get an error.
TEST(MixedPrecisionShard, ALostRankIsAnError) {
  EXPECT_THROW(run_ranks(3,
                         [&](Communicator& communicator) {
                           if (communicator.rank() == 1) return;
                           train_rank(communicator, kFloat16,
                                      GradientReduction::mean, -1);
                         }),
               Error);
}

// A checkpoint of four ranks is resumed with two, and with one.
TEST(MixedPrecisionShard, AStateMovesBetweenNumbersOfRanks) {
  const Outcome alone = train_alone(kFloat16, 1, GradientReduction::mean, -1);
  run_ranks(3, [&](Communicator& communicator) {
    Trainer trainer(sharded_options(kFloat16, communicator));
    auto& [model, optimizer] = trainer;
    optimizer.load_state_dict(alone.state);
    const OptimizerState state = optimizer.state_dict();
    EXPECT_EQ(state.tensors, alone.state.tensors);
    EXPECT_EQ(state.texts, alone.state.texts);
  });
}

// If one rank refuses a state, no rank loads it, and none hangs.
TEST(MixedPrecisionShard, AStateThatOneRankRefuses) {
  const Outcome alone = train_alone(kFloat16, 1, GradientReduction::mean, -1);
  std::mutex mutex;
  int refused = 0;
  run_ranks(3, [&](Communicator& communicator) {
    SmallModel model(kFloat16);
    const SmallModel before = model;
    MixedPrecisionOptions options = sharded_options(kFloat16, communicator);
    MixedPrecisionOptimizer optimizer({{model.parameters(), {}, {}}}, options);
    OptimizerState state = alone.state;
    if (communicator.rank() == 1) state.texts.erase("optimizer.step");
    try {
      optimizer.load_state_dict(state);
    } catch (const Error&) {
      const std::lock_guard<std::mutex> lock(mutex);
      ++refused;
    }
    EXPECT_TRUE(model.same_weights(before));
  });
  EXPECT_EQ(refused, 3);
}

TEST(CutSlices, CoversEverythingOnceInOrder) {
  const std::vector<std::vector<std::size_t>> lists = {
      {}, {0}, {5}, {0, 0, 3}, kListCounts, {100000}, {8192, 8193, 1, 50000}};
  for (const auto& counts : lists) {
    for (const int ranks : {1, 2, 3, 4, 16, 100}) {
      const auto shards = master::partition_slices(counts, ranks);
      ASSERT_EQ(shards.size(), static_cast<std::size_t>(ranks));
      std::size_t parameter = 0, element = 0;
      for (const auto& shard : shards) {
        for (const master::Slice& slice : shard) {
          ASSERT_EQ(slice.parameter, parameter);
          ASSERT_EQ(slice.begin, element);
          element += slice.count;
          ASSERT_LE(element, counts[parameter]);
          if (element != counts[parameter]) {
            EXPECT_EQ(element % 8192, 0u);
            EXPECT_GE(counts[parameter] - element, 8192u);
            continue;
          }
          ++parameter;
          element = 0;
        }
      }
      EXPECT_EQ(parameter, counts.size());
    }
  }
}

}  // namespace
}  // namespace swamp::test
