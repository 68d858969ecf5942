// state_dict() and load_state_dict(): the originals' keys, what swamp adds, and
// what is refused.
#include <gtest/gtest.h>

#include "support/comma_locale.h"
#include "support/errors.h"
#include "swamp/loss_scaler.h"

namespace swamp::test {
namespace {

std::string saved(const std::string& name, const ScalerOptions& options = {}) {
  return LossScaler::from_name(name, options).state_dict();
}

TEST(LossScalerState, HasTheKeysOfTheOriginal) {
  EXPECT_EQ(
      saved("megatron.ConstantGradScaler"),
      R"({"swamp":{"version":1,"scaler":"megatron.ConstantGradScaler"}})");
  EXPECT_EQ(
      saved("megatron.DynamicGradScaler"),
      R"({"scale":4294967296.0,"growth_tracker":0,"hysteresis_tracker":2,)"
      R"("swamp":{"version":1,"scaler":"megatron.DynamicGradScaler"}})");
  EXPECT_EQ(saved("torch.amp.GradScaler"),
            R"({"scale":65536.0,"growth_factor":2.0,"backoff_factor":0.5,)"
            R"("growth_interval":2000,"_growth_tracker":0,)"
            R"("swamp":{"version":1,"scaler":"torch.amp.GradScaler"}})");
  EXPECT_EQ(saved("apex.amp.LossScaler"),
            R"({"loss_scaler0":{"loss_scale":65536.0,"unskipped":0},)"
            R"("swamp":{"version":1,"scaler":"apex.amp.LossScaler"}})");
}

TEST(LossScalerState, HoldsWhatTheOriginalForgets) {
  EXPECT_EQ(saved("colossalai.DynamicGradScaler"),
            R"({"scale":65536.0,"growth_factor":2.0,"backoff_factor":0.5,)"
            R"("hysteresis":2,"swamp":{"version":1,)"
            R"("scaler":"colossalai.DynamicGradScaler","growth_step":0,)"
            R"("hysteresis_step":0}})");
  EXPECT_EQ(saved("metaseq.DynamicLossScaler"),
            R"({"loss_scale":32768.0,"swamp":{"version":1,)"
            R"("scaler":"metaseq.DynamicLossScaler","iter":0,)"
            R"("last_overflow_iter":-1,"last_rescale_iter":-1,)"
            R"("overflows_since_rescale":0,"scale_window":2000.0}})");
}

TEST(LossScalerState, InfinityIsAWord) {
  LossScaler scaler = LossScaler::from_name(
      "megatron.DynamicGradScaler",
      {{"initial_scale", 0x1p127}, {"growth_interval", 1.0}});
  scaler.update(0.0f);
  EXPECT_EQ(scaler.state_dict().rfind(R"({"scale":"inf",)", 0), 0u);
  LossScaler other = LossScaler::from_name("megatron.DynamicGradScaler");
  other.load_state_dict(scaler.state_dict());
  EXPECT_EQ(other.scale(), scaler.scale());
}

// NeMo looks for a misspelt key and so always sets 1; from our own checkpoint
// the tracker comes back.
TEST(LossScalerState, NemoForgetsItsHysteresis) {
  const ScalerOptions options = {{"hysteresis", std::int64_t{5}}};
  LossScaler scaler = LossScaler::from_name("nemo.GradScaler", options);
  scaler.update(1.0f);
  const std::string own = scaler.state_dict();
  LossScaler other = LossScaler::from_name("nemo.GradScaler", options);
  other.load_state_dict(own);
  EXPECT_EQ(other.trackers(), (std::vector<double>{0, 4}));
  other.load_state_dict(own.substr(0, own.find(R"(,"swamp")")) + "}");
  EXPECT_EQ(other.trackers(), (std::vector<double>{0, 1}));
}

// Options, states and messages are the same with any decimal point of the
// program; the second one has two bytes.
TEST(LossScalerState, TheProgramsLocaleDoesNotMatter) {
  const std::string expected =
      R"({"scale":1.5,"growth_tracker":0,"hysteresis_tracker":2,)"
      R"("swamp":{"version":1,"scaler":"megatron.DynamicGradScaler"}})";
  for (const char* point : {".", ",", "\u066b"}) {
    SCOPED_TRACE(point);
    const DecimalPointScope scope(point);
    if (!scope.is_set()) GTEST_SKIP() << "not glibc's locales";
    for (const char* number : {"1.5", R"("0x1.8p+0")"}) {
      LossScaler scaler = LossScaler::from_name(
          "megatron.DynamicGradScaler",
          scaler_options_from_json(std::string(R"({"min_scale":1.25,)") +
                                   R"("initial_scale":)" + number + "}"));
      EXPECT_EQ(scaler.scale(), 1.5);
      EXPECT_EQ(scaler.state_dict(), expected);
      LossScaler loaded = LossScaler::from_name("megatron.DynamicGradScaler");
      loaded.load_state_dict(
          std::string(R"({"growth_tracker":0,"hysteresis_tracker":2,)") +
          R"("scale":)" + number + "}");
      EXPECT_EQ(loaded.state_dict(), expected);
    }
    EXPECT_TRUE(has_words(error_of([] {
                            LossScaler::from_name("torch.amp.GradScaler",
                                                  {{"growth_factor", 0.0625}});
                          }),
                          {"0.0625"}));
  }
}

TEST(LossScalerState, RefusedStatesChangeNothing) {
  struct Case {
    const char* scaler;
    const char* json;
    const char* words;
  };
  const Case cases[] = {
      {"torch.amp.GradScaler", "{}", "The source state dict is empty"},
      {"torch.amp.GradScaler", "[]", "expected a JSON object"},
      {"torch.amp.GradScaler", "{", "not JSON"},
      {"torch.amp.GradScaler", R"({"scale":1})", "growth_factor: missing"},
      {"megatron.DynamicGradScaler",
       R"({"scale":"x","growth_tracker":1,"hysteresis_tracker":1})",
       "scale: expected a number"},
      {"megatron.DynamicGradScaler",
       R"({"scale":1,"growth_tracker":1.5,"hysteresis_tracker":1})",
       "growth_tracker: got 1.5, expected an integer"},
      {"megatron.DynamicGradScaler",
       R"({"scale":1,"growth_tracker":"inf","hysteresis_tracker":1})",
       "growth_tracker: got inf, expected an integer"},
      {"fairseq.DynamicLossScaler", R"({"loss_scale":1,"swamp":{"version":2}})",
       "version 1"},
      {"fairseq.DynamicLossScaler",
       R"({"loss_scale":1,"swamp":{"version":1,"scaler":"x"}})",
       "expected 'fairseq.DynamicLossScaler'"},
      {"fairseq.DynamicLossScaler",
       R"({"loss_scale":1,"swamp":{"version":1,)"
       R"("scaler":"fairseq.DynamicLossScaler"}})",
       "swamp.iter: missing"},
      {"mindformers.AdaptiveLossScaleUpdateCell",
       R"({"scale_sense":1,"current_iterator_step":1,)"
       R"("last_overflow_iterator_step":0,"scale_window":20,"list_index":8,)"
       R"("window_up_count":0,"window_down_count":0})",
       "list_index: got 8"},
      {"swamp.LossScaler",
       R"({"scale":1,"growth_tracker":0,"hysteresis_tracker":1,)"
       R"("overflows_in_a_row":0,"list_index":-1,"window_up_count":0,)"
       R"("window_down_count":0})",
       "list_index: got -1"},
  };
  for (const Case& bad : cases) {
    LossScaler scaler = LossScaler::from_name(bad.scaler);
    const std::string before = scaler.state_dict();
    EXPECT_TRUE(has_words(error_of([&] { scaler.load_state_dict(bad.json); }),
                          {bad.words}))
        << bad.scaler << " with " << bad.json;
    EXPECT_EQ(scaler.state_dict(), before);
  }
}

}  // namespace
}  // namespace swamp::test
