#include "golden.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "swamp/float_formats.h"

namespace swamp::test {
namespace {

using Json = nlohmann::json;

std::vector<Json> read_lines(const std::string& name) {
  const std::string path = std::string(SWAMP_GOLDEN_DIR) + "/" + name;
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(Json::parse(line));
  }
  return lines;
}

double number(const Json& text) {
  return std::strtod(text.get<std::string>().c_str(), nullptr);
}

std::vector<std::uint64_t> bit_patterns(const Json& text) {
  std::istringstream words(text.get<std::string>());
  std::vector<std::uint64_t> bits;
  for (std::string word; words >> word;) {
    bits.push_back(std::stoull(word, nullptr, 16));
  }
  return bits;
}

ScalarType type_of(const std::string& dtype) {
  return dtype == "f16" ? kFloat16 : dtype == "bf16" ? kBFloat16 : kFloat32;
}

// words() reads the bits of elements, which are not separated.
std::vector<std::uint32_t> words(const Json& from, ScalarType type) {
  const std::string text = from;
  const std::size_t digits = type == kFloat32 ? 8 : 4;
  std::vector<std::uint32_t> all;
  for (std::size_t i = 0; i < text.size(); i += digits) {
    all.push_back(static_cast<std::uint32_t>(
        std::stoul(text.substr(i, digits), nullptr, 16)));
  }
  return all;
}

std::vector<float> floats(const Json& from) {
  std::vector<float> all;
  for (const std::uint32_t bits : words(from, kFloat32)) {
    all.push_back(float_from_bits(bits));
  }
  return all;
}

// values() reads [scale, tracker...].
std::vector<double> values(const Json& init) {
  std::vector<double> out;
  for (const Json& entry : init) {
    out.push_back(entry.is_string() ? number(entry) : entry.get<double>());
  }
  return out;
}

// An entry is a step, [start, count] or [start, count, stride].
void mark(const Json& entry, std::vector<bool>& overflow) {
  if (entry.is_number()) {
    overflow.at(entry.get<std::size_t>()) = true;
    return;
  }
  const auto start = entry.at(0).get<std::size_t>();
  const auto count = entry.at(1).get<std::size_t>();
  const auto stride =
      entry.size() > 2 ? entry.at(2).get<std::size_t>() : std::size_t{1};
  for (std::size_t i = 0; i < count; ++i) {
    overflow.at(start + i * stride) = true;
  }
}

}  // namespace

std::vector<UnscaleRecord> read_unscale_records() {
  std::vector<UnscaleRecord> records;
  for (const Json& line : read_lines("unscale.extra.jsonl")) {
    UnscaleRecord record;
    record.type = type_of(line.at("dtype"));
    record.inv_scale = static_cast<float>(number(line.at("inv_f32")));
    record.found_inf = line.at("torch").at(0).get<int>() != 0;
    record.input = bit_patterns(line.at("grad"));
    record.output = bit_patterns(line.at("torch").at(1));
    records.push_back(record);
  }
  return records;
}

std::vector<StepTrace> read_step_traces() {
  std::vector<StepTrace> traces;
  for (const auto& entry :
       std::filesystem::directory_iterator(SWAMP_GOLDEN_DIR)) {
    if (entry.path().extension() != ".jsonl") continue;
    for (const Json& line : read_lines(entry.path().filename().string())) {
      if (line.contains("kind")) continue;
      StepTrace trace;
      trace.id = line.at("id");
      trace.scaler = line.at("scaler");
      trace.params = line.at("params").dump();
      trace.overflow.resize(line.at("n").get<std::size_t>());
      for (const Json& step : line.at("overflow")) mark(step, trace.overflow);
      trace.found_inf_value = line.value("found_inf_value", 1.0f);
      traces.push_back(trace);
    }
  }
  return traces;
}

std::vector<ValidationRecord> read_validation_records() {
  std::vector<ValidationRecord> records;
  for (const Json& line : read_lines("validation.extra.jsonl")) {
    records.push_back({line.at("scaler"), line.at("params").dump(),
                       line.at("ok"), values(line.value("init", Json::array())),
                       line.value("type", ""), line.value("message", "")});
  }
  return records;
}

std::vector<WindowListRecord> read_window_lists() {
  std::vector<WindowListRecord> records;
  for (const Json& line : read_lines("window_lists.extra.jsonl")) {
    records.push_back({line.at("max_scale_window"), line.at("min_scale_window"),
                       line.at("list").get<std::vector<double>>()});
  }
  return records;
}

std::vector<MegatronStepRecord> read_megatron_steps() {
  std::vector<MegatronStepRecord> records;
  for (const Json& line : read_lines("megatron_step.extra.jsonl")) {
    MegatronStepRecord record;
    record.id = line.at("id");
    record.type = line.at("dtype") == "float16" ? kFloat16 : kBFloat16;
    record.clip_grad = line.at("clip_grad");
    record.log_num_zeros_in_grad = line.at("log_num_zeros_in_grad");
    record.lr = line.at("lr");
    if (!line.at("scaler").is_null()) record.scaler = line.at("scaler");
    record.model_params = line.at("model_params").get<std::vector<float>>();
    record.fp32_params = line.at("fp32_params").get<std::vector<float>>();
    record.state_dict_keys =
        line.at("state_dict_keys").get<std::vector<std::string>>();
    for (const Json& from : line.at("steps")) {
      MegatronStepRecord::Step step;
      step.loss_scale_used = number(from.at("loss_scale_used"));
      step.model_gradient = bit_patterns(from.at("model_grad_bits"));
      step.main_gradient = bit_patterns(from.at("main_grad_f32_bits"));
      step.events = from.at("events").get<std::vector<std::string>>();
      const Json& returned = from.at("ret");
      step.success = returned.at(0);
      step.grad_norm = step.success ? number(returned.at(1)) : 0;
      step.num_zeros =
          step.success ? returned.at(2).get<std::uint64_t>() : std::uint64_t{0};
      step.loss_scale_after = number(from.at("loss_scale_after"));
      step.main_param = bit_patterns(from.at("main_param_bits"));
      step.model_param = bit_patterns(from.at("model_param_bits"));
      step.fp32_param = bit_patterns(from.at("fp32_param_bits"));
      record.steps.push_back(step);
    }
    records.push_back(record);
  }
  return records;
}

std::vector<ProtocolRecord> read_protocol_records() {
  std::vector<ProtocolRecord> records;
  Json errors;
  for (const Json& line : read_lines("grad_scaler/protocol.jsonl")) {
    if (line.contains("errors")) {
      errors = line.at("errors");
      continue;
    }
    const Json& options = line.at("options");
    ProtocolRecord record = {options.at(0),
                             options.at(1),
                             options.at(2),
                             options.at(3),
                             options.at(4),
                             {},
                             {}};
    for (const Json& op : line.at("ops")) {
      record.calls.push_back(
          {op.at(0), op.size() > 1 ? op.at(1).get<double>() : 0.0});
    }
    for (const Json& row : line.at("rows")) {
      const auto error = row.at(0).get<int>();
      const auto said = error < 0 ? std::vector<std::string>{"", ""}
                                  : errors.at(static_cast<std::size_t>(error))
                                        .get<std::vector<std::string>>();
      record.rows.push_back({said.at(0), said.at(1), row.at(1), row.at(2),
                             row.at(3),
                             static_cast<std::uint32_t>(std::stoul(
                                 row.at(4).get<std::string>(), nullptr, 16))});
    }
    records.push_back(record);
  }
  return records;
}

namespace {

// matrix() reads one whose element (i, j) is word (389 i + j) mod their number.
std::vector<std::uint32_t> matrix(const std::vector<std::uint32_t>& base,
                                  std::size_t rows, std::size_t columns) {
  std::vector<std::uint32_t> all;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      all.push_back(base[(389 * i + j) % base.size()]);
    }
  }
  return all;
}

std::vector<std::uint8_t> softmax_mask(const std::string& kind,
                                       std::size_t rows, std::size_t columns) {
  std::vector<std::uint8_t> mask;
  if (kind == "none" || kind == "causal") return mask;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      const bool some = (7 * i + 13 * j) % 5 == 0;
      mask.push_back(some || (kind == "row" && i == 1) ? 1 : 0);
    }
  }
  return mask;
}

std::vector<SoftmaxRecord::Row> softmax_rows(const Json& line,
                                             ScalarType type) {
  std::vector<SoftmaxRecord::Row> kept;
  for (std::size_t r = 0; r < line.at("kept").size(); ++r) {
    const Json& text = line.at("words").at(r);
    SoftmaxRecord::Row row{line.at("kept").at(r), text == "nan", {}};
    if (!row.is_nan) {
      for (const std::uint32_t word : words(text, type)) {
        row.words.push_back({word});
      }
    }
    kept.push_back(row);
  }
  for (const Json& other : line.at("other")) {
    kept.at(other.at(0))
        .words.at(other.at(1))
        .push_back(words(other.at(2), type).at(0));
  }
  return kept;
}

}  // namespace

std::vector<SoftmaxRecord> read_softmax_records() {
  const std::vector<Json> lines = read_lines("rows/softmax.jsonl");
  std::vector<SoftmaxRecord> records;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const Json& line = lines[i];
    const std::string mask = line.at("mask");
    SoftmaxRecord record{};
    record.type = type_of(line.at("dtype"));
    record.rows = line.at("rows");
    record.columns = line.at("columns");
    record.text = "line " + std::to_string(i + 1) + ", " +
                  line.at("dtype").get<std::string>() + ", " +
                  std::to_string(record.columns) + " columns, mask " + mask;
    const auto scores = [&](const char* kind) {
      const Json& all = lines[0].at("scores").at(line.at("dtype"));
      return matrix(words(all.at(line.at(kind)), record.type), record.rows,
                    record.columns);
    };
    record.scores = scores("scores");
    record.mask = softmax_mask(mask, record.rows, record.columns);
    record.causal = mask == "causal";
    record.scale = floats(line.at("scale")).at(0);
    record.apex = line.at("apex");
    if (line.contains("grads")) {
      record.grads = scores("grads");
      record.gradient = words(line.at("gradient"), record.type);
    } else {
      record.step = line.at("step");
      record.kept = softmax_rows(line, record.type);
    }
    records.push_back(record);
  }
  return records;
}

std::vector<CrossEntropyRecord> read_cross_entropy_records() {
  const std::vector<Json> lines = read_lines("rows/cross_entropy.jsonl");
  std::vector<CrossEntropyRecord> records;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const Json& line = lines[i];
    CrossEntropyRecord record{};
    if (line.contains("zeros")) {
      record.type = kFloat16;
      record.rows = 1;
      record.classes = line.at("zeros");
      record.logits.resize(record.classes);
      record.targets = {0};
      record.grads = {line.at("grad").get<float>()};
      record.losses = {words(line.at("loss"), kFloat32)};
      // Those of the target and of another logit.
      const auto two = words(line.at("gradient").at(0), kFloat16);
      record.gradient.assign(1, {});
      record.gradient[0].resize(record.classes, two.at(1));
      record.gradient[0][0] = two.at(0);
    } else {
      const Json& shared = lines[0];
      record.ranks = line.at("ranks");
      record.type = type_of(line.at("dtype"));
      record.rows = shared.at("rows");
      record.classes = shared.at("classes");
      record.logits =
          words(shared.at("logits").at(line.at("dtype")), record.type);
      record.targets = shared.at("targets").get<std::vector<std::int64_t>>();
      record.grads = floats(shared.at("grads"));
      record.smoothing = line.at("smoothing");
      for (const Json& losses : line.at("losses")) {
        record.losses.push_back(words(losses, kFloat32));
      }
      for (const Json& gradient : line.at("gradient")) {
        record.gradient.push_back(words(gradient, record.type));
      }
    }
    records.push_back(record);
  }
  return records;
}

std::vector<MoeRecord> read_moe_records() {
  const std::vector<Json> lines = read_lines("rows/moe.jsonl");
  std::vector<MoeRecord> records;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const Json& line = lines[i];
    MoeRecord record{};
    record.tokens = line.at("tokens");
    record.experts = line.at("experts");
    record.map.resize(record.tokens * record.experts);
    record.probs.resize(record.map.size());
    line.at("counts").get_to(record.counts);
    line.at("indices").get_to(record.token_of);
    const std::size_t topk = line.at("topk");
    const std::vector<float> probs = floats(line.at("probs"));
    std::vector<std::size_t> chosen;  // entries of the map
    for (const std::size_t expert : line.at("routes").at(0).at(1)) {
      const std::size_t at = chosen.size() / topk * record.experts + expert;
      record.map.at(at) = 1;
      record.probs.at(at) = probs.at(chosen.size());
      chosen.push_back(at);
    }
    for (const Json& one : line.at("drops")) {
      MoeRecord::Drop drop{one.at("capacity"), {}, {}, {}};
      one.at("position").get_to(drop.by_position);
      one.at("padded").get_to(drop.padded);
      const std::string kept = one.at("probs");
      drop.by_probs.resize(record.map.size());
      for (std::size_t c = 0; c < chosen.size(); ++c) {
        drop.by_probs[chosen[c]] = kept.at(c) == '1' ? 1 : 0;
      }
      record.drops.push_back(drop);
    }
    records.push_back(record);
  }
  return records;
}

std::vector<ExactRecord> read_exact_records() {
  std::vector<ExactRecord> records;
  for (const Json& line : read_lines("rows/exact.jsonl")) {
    ExactRecord record;
    record.operation = line.at("operation");
    record.numbers = line.at("numbers");
    record.text = record.operation + " " + line.at("numbers").dump();
    for (const auto& [name, result] : line.at("results").items()) {
      record.results[name] = {result.at(0), result.at(1), result.at(2)};
    }
    records.push_back(record);
  }
  return records;
}

}  // namespace swamp::test
