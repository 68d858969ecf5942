// Scale managers: the golden scales through C++ and C, ranks, states, and the
// cases in which recipes differ.
#include "swamp/scale_manager.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "support/errors.h"
#include "support/json_fields.h"
#include "support/thread_communicator.h"
#include "swamp/c_api.h"

namespace swamp::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// CManager has the members of ScaleManager that the replay needs, through the C
// ABI.
class CManager {
 public:
  static CManager from_name(const std::string& name, std::size_t forward,
                            std::size_t backward, const std::string& options) {
    CManager manager;
    EXPECT_EQ(swamp_scale_manager_create(name.c_str(), forward, backward,
                                         options.c_str(), &manager.manager_),
              SWAMP_OK)
        << swamp_last_error();
    return manager;
  }
  CManager(CManager&& other) noexcept : manager_(other.manager_) {
    other.manager_ = nullptr;
  }
  ~CManager() { swamp_scale_manager_destroy(manager_); }

  void observe(std::size_t index, float amax) {
    ok(swamp_scale_manager_observe_one(manager_, index, amax));
  }
  // As a caller that reduces over ranks: the vector, then its maximum.
  void reduce(std::size_t index, float reduced) {
    std::vector<float> amax(2);
    ok(swamp_scale_manager_amax(manager_, amax.data(), amax.size()));
    EXPECT_LE(amax[index], reduced);
    amax[index] = reduced;
    ok(swamp_scale_manager_observe(manager_, amax.data(), amax.size()));
  }
  void update() { ok(swamp_scale_manager_update(manager_)); }
  float scale(std::size_t index) const {
    float scale = 0;
    ok(swamp_scale_manager_scale(manager_, index, &scale, nullptr));
    return scale;
  }
  float scale_inv(std::size_t index) const {
    float scale_inv = 0;
    ok(swamp_scale_manager_scale(manager_, index, nullptr, &scale_inv));
    return scale_inv;
  }
  BlockScale block_scale(std::size_t index, float amax) const {
    swamp_block_scale scale = {sizeof scale, 0, 0, 0};
    ok(swamp_scale_manager_block_scale(manager_, index, amax, &scale));
    return {scale.scale, scale.scale_inv, scale.code};
  }
  std::string state_dict() const {
    const char* json = "";
    ok(swamp_scale_manager_state_dict(manager_, &json));
    return json;
  }
  void load_state_dict(const std::string& json) {
    ok(swamp_scale_manager_load_state_dict(manager_, json.c_str()));
  }
  // C has the history in the state dict only.
  std::vector<float> history(std::size_t index) const {
    ScaleManager copy = ScaleManager::from_name("te.DelayedScaling", 1, 1,
                                                {{"amax_history_len", length}});
    copy.load_state_dict(state_dict());
    return copy.history(index);
  }
  std::int64_t length = 0;

 private:
  CManager() = default;
  static void ok(swamp_status status) {
    EXPECT_EQ(status, SWAMP_OK) << swamp_last_error();
  }
  swamp_scale_manager* manager_ = nullptr;
};

class CppManager : public ScaleManager {
 public:
  static CppManager from_name(const std::string& name, std::size_t forward,
                              std::size_t backward,
                              const std::string& options) {
    return CppManager(ScaleManager::from_name(
        name, forward, backward, scaler_options_from_json(options)));
  }
  void reduce(std::size_t index, float reduced) { observe(index, reduced); }
  std::int64_t length = 0;

 private:
  explicit CppManager(ScaleManager manager)
      : ScaleManager(std::move(manager)) {}
};

// same() compares bits; a nan is a nan.
void same(float actual, std::uint32_t expected, const char* what) {
  if (std::isnan(float_from_bits(expected))) {
    EXPECT_TRUE(std::isnan(actual)) << what;
  } else {
    EXPECT_EQ(float_to_bits(actual), expected) << what;
  }
}

std::string options_of(std::vector<std::pair<const char*, std::string>> list) {
  std::string json;
  for (const auto& [name, value] : list) {
    json += (json.empty() ? "{\"" : ",\"") + std::string(name) + "\":" + value;
  }
  return json.empty() ? "{}" : json + "}";
}

std::string quoted(const std::string& text) { return '"' + text + '"'; }

// A float32 as an option: strings of hexadecimal numbers are numbers.
std::string hex_number(float value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "\"%a\"", static_cast<double>(value));
  return buffer;
}

// Golden fields are read in the order of the files.
template <class Manager>
void replay_delayed() {
  for_each_golden("scales/te_delayed", [](JsonFields fields) {
    const std::string fused = fields.text("fused");
    const std::size_t index = fields.is("fmt", "e5m2") ? 1 : 0;
    const std::string length = fields.text("amax_history_len");
    const std::string algorithm = quoted(fields.text("amax_compute_algo"));
    Manager manager =
        Manager::from_name("te.DelayedScaling", 1, 1,
                           options_of({{"fused", fused},
                                       {"amax_history_len", length},
                                       {"amax_compute_algo", algorithm},
                                       {"margin", fields.text("margin")}}));
    manager.length = std::stoll(length);
    int steps = 0;
    for (; fields.has("amax_per_rank"); ++steps) {
      // The first of the list is that of this rank.
      manager.observe(index, fields.number("amax_per_rank"));
      manager.reduce(index, fields.number("reduced"));
      manager.update();
      same(manager.scale(index), fields.word("scale"), "scale");
      same(manager.scale_inv(index), fields.word("scale_inv"), "scale_inv");
      const std::vector<float> history = manager.history(index);
      const std::vector<std::uint32_t> expected = fields.words("history", 8);
      ASSERT_EQ(history.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        same(history[i], expected[i], "history");
      }
    }
    EXPECT_GE(steps, 5);
  });
}

// One line is one amax, of a recipe that scales in time.
template <class Manager>
void replay_current() {
  const auto scale_of = [](const std::string& name, const std::string& options,
                           std::size_t index, float amax) {
    Manager manager = Manager::from_name(name, 1, 1, options);
    manager.observe(index, amax);
    const float before = manager.scale(index);
    manager.update();
    same(before, float_to_bits(manager.scale(index)), "before the update");
    return manager;
  };
  const char* hybrid = R"({"fp8_format":"HYBRID"})";
  for_each_golden("scales/te_current", [&](JsonFields fields) {
    const std::size_t index = fields.is("fmt", "e5m2") ? 1 : 0;
    const std::string pow2 = fields.text("pow2");
    const std::string eps = hex_number(fields.number("eps"));
    const Manager manager = scale_of(
        "te.Float8CurrentScaling",
        options_of({{"use_power_2_scales", pow2}, {"amax_epsilon", eps}}),
        index, fields.number("amax"));
    same(manager.scale(index), fields.word("scale"), "scale");
    same(manager.scale_inv(index), fields.word("scale_inv"), "scale_inv");
  });
  for_each_golden("scales/te_block", [&](JsonFields fields) {
    const std::size_t index = fields.is("fmt", "e5m2") ? 1 : 0;
    const std::string input = quoted(fields.text("input"));
    const Manager manager = Manager::from_name(
        "te.Float8BlockScaling", 1, 1,
        options_of({{"fp8_format", "\"hybrid\""},
                    {"input_dtype", input},
                    {"power_2_scale", fields.text("pow2")}}));
    const BlockScale block = manager.block_scale(index, fields.number("amax"));
    same(block.scale, fields.word("scale"), "scale");
    same(block.scale_inv, fields.word("scale_inv"), "scale_inv");
  });
  for_each_golden("scales/te_mxfp8", [&](JsonFields fields) {
    const std::size_t index = fields.is("fmt", "e5m2") ? 1 : 0;
    const Manager manager =
        Manager::from_name("te.MXFP8BlockScaling", 1, 1, hybrid);
    const BlockScale block = manager.block_scale(index, fields.number("amax"));
    EXPECT_EQ(block.code, fields.word("e8m0"));
    same(block.scale, fields.word("factor"), "factor");
  });
  for_each_golden("scales/te_nvfp4", [&](JsonFields fields) {
    const Manager manager =
        scale_of("te.NVFP4BlockScaling", "{}", 1, fields.number("global_amax"));
    same(manager.scale(1), fields.word("s_enc"), "s_enc");
    while (fields.has("amax")) {
      const BlockScale block = manager.block_scale(1, fields.number("amax"));
      EXPECT_EQ(block.code, fields.word("e4m3"));
      same(block.scale, fields.word("factor"), "factor");
    }
  });
  for_each_golden("scales/torchao_float8", [&](JsonFields fields) {
    const std::size_t index = fields.is("fmt", "e5m2") ? 1 : 0;
    const Manager manager = scale_of("torchao.float8.tensorwise", "{}", index,
                                     fields.number("amax"));
    same(manager.scale(index), fields.word("scale"), "scale");
  });
  for_each_golden("scales/torchao_mx", [&](JsonFields fields) {
    const std::string fmt = fields.text("fmt");
    const std::string type = fmt == "e4m3"   ? "\"float8_e4m3fn\""
                             : fmt == "e5m2" ? "\"float8_e5m2\""
                             : fmt == "e2m1" ? "\"float4_e2m1fn_x2\""
                                             : "\"float6_" + fmt + '"';
    const std::string mode = quoted(fields.text("mode"));
    const Manager manager = Manager::from_name(
        "torchao.mx", 1, 0,
        options_of({{"elem_dtype", type}, {"scaling_mode", mode}}));
    const BlockScale block = manager.block_scale(0, fields.number("amax"));
    EXPECT_EQ(block.code, fields.word("e8m0"));
  });
  for_each_golden("scales/torchao_nvfp4", [&](JsonFields fields) {
    const Manager manager =
        scale_of("torchao.nvfp4", "{}", 0, fields.number("tensor_amax"));
    const Manager single = Manager::from_name(
        "torchao.nvfp4", 1, 0, R"({"use_per_tensor_scale":false})");
    same(manager.scale_inv(0), fields.word("per_tensor_scale"), "per tensor");
    while (fields.has("amax")) {
      const float amax = fields.number("amax");
      const BlockScale block = manager.block_scale(0, amax);
      EXPECT_EQ(block.code, fields.word("e4m3"));
      same(block.scale, fields.word("factor"), "factor");
      const BlockScale alone = single.block_scale(0, amax);
      EXPECT_EQ(alone.code, fields.word("single_e4m3"));
      same(alone.scale, fields.word("single_factor"), "single_factor");
    }
  });
  for_each_golden("scales/microxcaling", [&](JsonFields fields) {
    const std::string fmt = fields.text("fmt");
    const std::string type = fmt == "int8"                        ? fmt
                             : fmt == "e2m1"                      ? "fp4_" + fmt
                             : fmt.back() == '3' && fmt != "e4m3" ? "fp6_" + fmt
                             : fmt == "e3m2"                      ? "fp6_" + fmt
                                             : "fp8_" + fmt;
    const Manager manager = Manager::from_name(
        "microxcaling", 1, 0, options_of({{"elem_format", quoted(type)}}));
    const BlockScale block = manager.block_scale(0, fields.number("amax"));
    const std::string exponent = fields.text("shared_exp");
    EXPECT_EQ(block.code, exponent == "null" ? 255 : std::stoi(exponent) + 127);
  });
  for_each_golden("scales/modelopt", [&](JsonFields fields) {
    const float amax = fields.number("amax");
    same(scale_of("modelopt.fp8", "{}", 0, amax).scale(0),
         fields.word("fp8_scale"), "fp8_scale");
    const Manager mx = Manager::from_name("modelopt.mxfp8", 1, 0, "{}");
    EXPECT_EQ(mx.block_scale(0, amax).code, fields.word("mxfp8_e8m0"));
  });
  for_each_golden("scales/optimizer_state", [&](JsonFields fields) {
    const float amax = fields.number("absmax");
    const Manager narrow = scale_of("te.FusedAdam", "{}", 0, amax);
    const Manager half =
        scale_of("te.FusedAdam", R"({"exp_avg_dtype":"float16"})", 0, amax);
    same(narrow.scale_inv(0), fields.word("te_float8_scale"), "float8");
    same(narrow.scale(0), fields.word("te_float8_factor"), "float8 factor");
    same(half.scale_inv(0), fields.word("te_float16_scale"), "float16");
    same(half.scale(0), fields.word("te_float16_factor"), "float16 factor");
    const Manager torchao = Manager::from_name("torchao.AdamWFp8", 1, 0, "{}");
    same(torchao.block_scale(0, amax).scale_inv,
         fields.word("torchao_float8_scale"), "torchao");
  });
}

// One line is one amax, of a recipe with state.
template <class Manager>
void replay_stateful() {
  for_each_golden("scales/msamp", [](JsonFields fields) {
    const std::string fmt = fields.text("fmt");
    const std::string type = fmt == "float16" ? "kfloat16" : "kfloat8_" + fmt;
    Manager manager = Manager::from_name(
        "msamp", 1, 0,
        options_of({{"qtype", quoted(type)}, {"window_size", "1"}}));
    const float amax = fields.number("amax");
    manager.load_state_dict(
        R"({"input":{"scales":[)" + hex_number(fields.number("old")) +
        R"(],"amaxs":[[0]],"amax_counters":[0]},)"
        R"("ograd":{"scales":[],"amaxs":[],"amax_counters":[]}})");
    manager.observe(0, amax);
    const std::uint32_t expected = fields.word("scale");
    same(manager.scale(0), expected, "in time");
    manager.update();
    same(manager.scale(0), expected, "scale");
  });
  for_each_golden("scales/mindspeed", [](JsonFields fields) {
    const std::string fmt = fields.text("fmt");
    const std::size_t index = fmt == "e5m2" || fmt == "hif8_grads" ? 1 : 0;
    const std::string format = fmt.size() > 4 ? "\"hif8\"" : "\"hybrid\"";
    const std::string margin = fields.text("margin");
    Manager manager = Manager::from_name(
        "mindspeed.delayed", 1, 1,
        options_of({{"fp8_format", format}, {"fp8_margin", margin}}));
    manager.observe(index, fields.number("amax"));
    const std::uint32_t expected = fields.word("inverse_scale");
    same(manager.scale_inv(index), expected, "in time");
    manager.update();
    same(manager.scale_inv(index), expected, "inverse_scale");
  });
}

TEST(ScaleManagerGolden, Cpp) {
  replay_delayed<CppManager>();
  replay_current<CppManager>();
  replay_stateful<CppManager>();
}

TEST(ScaleManagerGolden, C) {
  replay_delayed<CManager>();
  replay_current<CManager>();
  replay_stateful<CManager>();
}

}  // namespace
}  // namespace swamp::test
