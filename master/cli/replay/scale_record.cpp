// Records of scale managers: a table says, for each recipe of a file, which
// manager has it, how the fields become options, and which fields are results.
// A record is one step, or has a list of them; several ranks are as many
// managers.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <vector>

#include "master/cli/command.h"
#include "master/cli/json.h"
#include "master/cli/replay/float8_record.h"
#include "master/cli/text.h"
#include "swamp/float_formats.h"
#include "swamp/loss_scaler.h"
#include "swamp/scale_manager.h"

namespace swamp::cli {
namespace {

// Source is a recipe of a file. Its lists are words FIELD:NAME, or FIELD if
// both are the same: fields that are results, or options of the manager.
struct Source {
  const char* recipe;
  const char* manager;
  const char* amax;  // its field; of a block if it begins with "block "
  const char* results;
  const char* options = "";  // a field that ends with * is a float32
  // Values of the field "fmt" as those of an option; a gradient's end with '.
  const char* formats = "";
  const char* fmt_option = "";  // "": the format is no option
  const char* of_blocks = "";   // results of the records in "blocks"
  const char* fixed = "{}";     // other options, JSON
  const char* state = nullptr;  // a state dict; OLD is the field "old"
};

const std::vector<Source>& sources() {
  const char* hybrid = "e4m3:HYBRID e5m2':HYBRID";
  const char* format = "fp8_format";
  const char* nvfp4 = "e4m3:code factor:scale";
  static const std::vector<Source> table = {
      {"te.DelayedScaling", "te.DelayedScaling", "amax_per_rank",
       "reduced scale scale_inv history",
       "fused amax_history_len amax_compute_algo margin", hybrid, format},
      {"te.Float8CurrentScaling", "te.Float8CurrentScaling", "amax",
       "scale scale_inv", "pow2:use_power_2_scales eps*:amax_epsilon", hybrid,
       format},
      {"te.Float8BlockScaling", "te.Float8BlockScaling", "block amax",
       "scale scale_inv", "input:input_dtype pow2:power_2_scale", hybrid,
       format},
      {"te.MXFP8BlockScaling", "te.MXFP8BlockScaling", "block amax",
       "e8m0:code factor:scale", "", hybrid, format},
      {"te.NVFP4BlockScaling", "te.NVFP4BlockScaling", "global_amax",
       "s_enc:scale", "", "", "", nvfp4},
      {"torchao.float8", "torchao.float8.tensorwise", "amax", "scale", "",
       "e4m3 e5m2'"},
      {"torchao.mx", "torchao.mx", "block amax", "e8m0:code",
       "mode:scaling_mode",
       "e4m3:float8_e4m3fn e5m2:float8_e5m2 e2m3:float6_e2m3 "
       "e3m2:float6_e3m2 e2m1:float4_e2m1fn_x2",
       "elem_dtype"},
      {"torchao.nvfp4", "torchao.nvfp4", "tensor_amax",
       "per_tensor_scale:scale_inv", "", "", "", nvfp4},
      {"torchao.nvfp4", "torchao.nvfp4", "tensor_amax", "", "", "", "",
       "single_e4m3:code single_factor:scale",
       R"({"use_per_tensor_scale":false})"},
      {"microxcaling", "microxcaling", "block amax", "shared_exp:exponent", "",
       "e4m3:fp8_e4m3 e5m2:fp8_e5m2 e2m3:fp6_e2m3 e3m2:fp6_e3m2 "
       "e2m1:fp4_e2m1 int8:int8",
       "elem_format"},
      {"msamp.ScalingMeta", "msamp", "amax", "scale", "",
       "e4m3:kfloat8_e4m3 e5m2:kfloat8_e5m2 float16:kfloat16", "qtype", "",
       R"({"window_size":1})",
       R"({"input":{"scales":[OLD],"amaxs":[[0]],"amax_counters":[0]},)"
       R"("ograd":{"scales":[1],"amaxs":[[0]],"amax_counters":[0]}})"},
      {"mindspeed.delayed", "mindspeed.delayed", "amax",
       "inverse_scale:scale_inv", "margin:fp8_margin",
       "e4m3:hybrid e5m2':hybrid hif8_inputs_weights:hif8 hif8_grads':hif8",
       format},
      {"modelopt", "modelopt.fp8", "amax", "fp8_scale:scale"},
      {"modelopt", "modelopt.mxfp8", "block amax", "mxfp8_e8m0:code"},
      {"optimizer_state", "te.FusedAdam", "absmax",
       "te_float8_scale:scale_inv te_float8_factor:scale"},
      {"optimizer_state", "te.FusedAdam", "absmax",
       "te_float16_scale:scale_inv te_float16_factor:scale", "", "", "", "",
       R"({"exp_avg_dtype":"float16"})"},
      {"optimizer_state", "torchao.AdamWFp8", "absmax",
       "torchao_float8_scale:scale_inv"}};
  return table;
}

// Pair is a word of a list. is_marked() returns whether the field ends with a
// mark, and removes it.
struct Pair {
  std::string field, name;

  bool is_marked(char mark) {
    const bool found = field.back() == mark;
    if (found) field.pop_back();
    return found;
  }
};
std::vector<Pair> pairs_of(const char* list) {
  std::vector<Pair> pairs;
  std::istringstream words(list);
  for (std::string word; words >> word;) {
    const std::size_t colon = std::min(word.find(':'), word.size());
    const bool has_name = colon != word.size();
    pairs.push_back(
        {word.substr(0, colon), has_name ? word.substr(colon + 1) : word});
  }
  return pairs;
}

std::string hex(float value) {
  return fmt::format("{:08x}", float_to_bits(value));
}

bool is_float(const Json& json) {
  if (!json.is_string()) return false;
  const auto& text = json.get_ref<const std::string&>();
  return text.size() == 8 &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

ScalerValue read_option(Pair option, const Json& record) {
  const bool is_number = option.is_marked('*');
  const char* const field = option.field.c_str();
  const Json& value = json_member(record, field);
  if (is_number) return static_cast<double>(read_float(field, value));
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  refuse_json(field, value, "a text, a boolean or an integer");
}

// Player is the managers of the ranks of one record.
class Player {
 public:
  Player(const Source& source, const Json& record) : source_(source) {
    constexpr char kOfBlock[] = "block ";
    is_block_ = std::strncmp(source.amax, kOfBlock, std::strlen(kOfBlock)) == 0;
    amax_ = source.amax + (is_block_ ? std::strlen(kOfBlock) : 0);
    options_ = scaler_options_from_json(source.fixed);
    for (const Pair& option : pairs_of(source.options)) {
      options_[option.name] = read_option(option, record);
    }
    if (*source.formats != '\0') read_format(record);
    if (source.state == nullptr) return;
    const float old = read_float("old", json_member(record, "old"));
    state_ = source.state;
    const std::string number = fmt::format("\"{:a}\"", old);
    state_.replace(state_.find("OLD"), 3, number);
  }

  // step() sets the results in a record.
  void step(Json& record) {
    const std::vector<float> amax = amax_of(record);
    while (ranks_.size() < amax.size()) {
      ranks_.push_back(
          ScaleManager::from_name(source_.manager, 1, 1, options_));
      if (!state_.empty()) ranks_.back().load_state_dict(state_);
    }
    float reduced = -1;
    for (std::size_t r = 0; r < amax.size(); ++r) {
      ranks_[r].observe(tensor_, amax[r]);
      reduced = std::max(reduced, ranks_[r].amax()[tensor_]);
    }
    const ScaleManager& own = ranks_.front();
    BlockScale scale;
    if (is_block_) {
      scale = own.block_scale(tensor_, amax.front());
    } else {
      for (ScaleManager& rank : ranks_) {
        rank.observe(tensor_, reduced);
        rank.update();
      }
      scale = {own.scale(tensor_), own.scale_inv(tensor_)};
    }
    for (const Pair& result : pairs_of(source_.results)) {
      set(record, result.field, value_of(result.name, scale, reduced));
    }
    if (*source_.of_blocks == '\0') return;
    Json& blocks = record["blocks"];
    if (!blocks.is_array()) refuse_json("blocks", blocks, "a list");
    for (Json& block : blocks) {
      const float of_block = read_float("amax", json_member(block, "amax"));
      for (const Pair& result : pairs_of(source_.of_blocks)) {
        set(block, result.field,
            value_of(result.name, own.block_scale(tensor_, of_block), 0));
      }
    }
  }

 private:
  void read_format(const Json& record) {
    const Json& name = json_member(record, "fmt");
    for (Pair format : pairs_of(source_.formats)) {
      const bool is_gradient = format.is_marked('\'');
      if (name != format.field) continue;
      tensor_ = is_gradient ? 1 : 0;
      if (*source_.fmt_option != '\0') {
        options_[source_.fmt_option] = format.name;
      }
      return;
    }
    refuse_json("fmt", name, fmt::format("a format of {}", source_.recipe));
  }

  std::vector<float> amax_of(const Json& record) const {
    const Json& json = json_member(record, amax_);
    if (!json.is_array()) return {read_float(amax_, json)};
    std::vector<float> amax;
    for (const Json& rank : json) {
      amax.push_back(read_float(amax_, rank));
    }
    if (amax.empty()) refuse_json(amax_, json, "at least one rank");
    if (!ranks_.empty() && amax.size() != ranks_.size()) {
      refuse_json(amax_, json, "as many ranks as in the first step");
    }
    return amax;
  }

  Json value_of(const std::string& result, const BlockScale& scale,
                float reduced) const {
    if (result == "scale") return hex(scale.scale);
    if (result == "scale_inv") return hex(scale.scale_inv);
    if (result == "code") return fmt::format("{:02x}", scale.code);
    if (result == "reduced") return hex(reduced);
    if (result == "exponent") {
      return scale.code == 0xff ? Json() : Json(scale.code - 127);
    }
    std::string history;
    for (const float amax : ranks_.front().history(tensor_)) {
      history += hex(amax);
    }
    return history;
  }

  // set() keeps a nan of the record if ours is nan, too.
  static void set(Json& record, const std::string& field, Json value) {
    Json& there = record[field];
    const auto is_nan = [](const Json& json) {
      return is_float(json) && std::isnan(read_float("", json));
    };
    if (!is_nan(value) || !is_nan(there)) there = std::move(value);
  }

  const Source& source_;
  const char* amax_;
  bool is_block_;
  ScalerOptions options_;
  std::string state_;
  std::size_t tensor_ = 0;
  std::vector<ScaleManager> ranks_;
};

// check_results() throws Failure if a record lacks a result.
void check_results(const char* results, const Json& record) {
  for (const Pair& result : pairs_of(results)) {
    json_member(record, result.field);
  }
}

void check_record(const Source& source, const Json& record) {
  check_results(source.results, record);
  if (*source.of_blocks == '\0') return;
  for (const Json& block : json_member(record, "blocks")) {
    check_results(source.of_blocks, block);
  }
}

// record_difference() returns the first place where two records differ, "" if
// there is none. They have the same keys.
std::string record_difference(const std::string& where, const Json& ours,
                              const Json& theirs) {
  if (ours == theirs) return "";
  if (ours.is_structured() && ours.type() == theirs.type()) {
    for (const auto& [key, value] : ours.items()) {
      const std::string inside =
          where + (ours.is_array() ? "[" + key + "]"
                                   : (where.empty() ? "" : ".") + key);
      const Json& other =
          ours.is_array() ? theirs[std::stoul(key)] : theirs[key];
      const std::string found = record_difference(inside, value, other);
      if (!found.empty()) return found;
    }
  }
  return fmt::format("{} is {}, the file has {}", where, json_line(ours),
                     json_line(theirs));
}

}  // namespace

float read_float(const char* name, const Json& json) {
  if (!is_float(json)) refuse_json(name, json, "8 hexadecimal digits");
  return float_from_bits(static_cast<std::uint32_t>(
      std::stoul(json.get_ref<const std::string&>(), nullptr, 16)));
}

std::optional<RecordReplay> replay_scales(const std::string& line, bool check) {
  // Most lines are of loss scalers, and long.
  if (line.find("\"recipe\"") == std::string::npos) return std::nullopt;
  constexpr int kMaxDepth = 16;
  const Json theirs = parse_json(line, kMaxDepth);
  if (!theirs.is_object() || !theirs.contains("recipe")) return std::nullopt;
  Json ours = theirs;
  const Json recipe = theirs["recipe"];
  std::vector<std::string> names;
  bool known = false;
  for (const Source& source : sources()) {
    if (names.empty() || names.back() != source.recipe) {
      names.emplace_back(source.recipe);
    }
    if (recipe != source.recipe) continue;
    known = true;
    try {
      Player player(source, theirs);
      Json one = Json::array({ours});
      const bool has_steps = ours.contains("steps");
      Json& steps = has_steps ? ours["steps"] : one;
      if (!steps.is_array()) refuse_json("steps", steps, "a list");
      for (Json& step : steps) {
        if (!step.is_object()) refuse_json("steps", step, "objects");
        if (check) check_record(source, step);
        player.step(step);
      }
      if (!has_steps) ours = std::move(one[0]);
    } catch (const Error& error) {
      throw Failure(error.what());
    }
  }
  if (!known) {
    refuse_json("recipe", recipe, "one of " + joined(names));
  }
  return RecordReplay{recipe, json_line(ours),
                      check ? record_difference("", ours, theirs) : ""};
}

}  // namespace swamp::cli
