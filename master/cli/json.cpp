// nlohmann-json is slow to compile: it is included here and in
// replay/trace.cpp.
#include "master/cli/json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "master/cli/command.h"
#include "master/cli/json_events.h"
#include "swamp/c_api.h"

namespace swamp::cli {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

// line() cannot fail: bytes that are not UTF-8 (of a CPU's name) are replaced.
std::string line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Sax passes the parser's events on, and none that lies too deep. The parser
// itself is a loop: depth costs no stack.
class Sax final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Sax(JsonEvents& events, std::size_t max_depth)
      : events_(events), max_depth_(max_depth) {}

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_integer(number_integer_t) override {
    return other("a negative number");
  }
  bool number_float(number_float_t, const string_t&) override {
    return other("a fraction");
  }
  bool number_unsigned(number_unsigned_t value) override {
    events_.integer(value);
    return true;
  }
  bool string(string_t& value) override {
    events_.string(value);
    return true;
  }
  bool binary(binary_t&) override { return false; }  // not in JSON
  bool start_object(std::size_t) override {
    enter();
    events_.begin_object();
    return true;
  }
  bool key(string_t& name) override {
    events_.key(name);
    return true;
  }
  bool end_object() override {
    --depth_;
    events_.end_object();
    return true;
  }
  bool start_array(std::size_t) override {
    enter();
    events_.begin_array();
    return true;
  }
  bool end_array() override {
    --depth_;
    events_.end_array();
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    throw Failure(fmt::format("JSON: an error at byte {}", position));
  }

 private:
  bool other(const char* kind) {
    events_.other(kind);
    return true;
  }
  void enter() {
    if (++depth_ <= max_depth_) return;
    throw Failure(fmt::format("JSON: nested deeper than {}", max_depth_));
  }

  JsonEvents& events_;
  std::size_t max_depth_;
  std::size_t depth_ = 0;
};

constexpr int kScanSchema = 1;

void add_extremes(const TensorStatistics& found, Json& json) {
  const bool finite = found.finite_count() != 0;
  json["min"] = finite ? number(found.min) : Json();
  json["max"] = finite ? number(found.max) : Json();
  json["absmax"] = finite ? number(found.absmax) : Json();
}

Json statistics_json(const FileTensor& tensor, const TensorStatistics& found) {
  Json json;
  json["count"] = tensor.count;
  const bool scanned = tensor.element.kind == Element::Kind::scanned;
  json["scanned"] = scanned;
  if (!scanned) {
    json["reason"] = why_not_scanned(tensor.element.kind);
    return json;
  }
  json["inf"] = found.inf_count;
  json["nan"] = found.nan_count;
  json["first"] = nullptr;
  if (found.non_finite_count() != 0) json["first"] = found.first_non_finite;
  add_extremes(found, json);
  return json;
}

Json traffic_json(const PredictedTraffic& traffic) {
  Json json;
  json["PC3_REQ_DMA_GET"] = traffic.get_requests;
  json["get_bytes"] = traffic.get_bytes;
  json["get_lines"] = traffic.get_lines;
  json["PC2_REQ_DMA_PUT"] = traffic.put_requests;
  json["put_bytes"] = traffic.put_bytes;
  json["put_whole_lines"] = traffic.put_whole_lines;
  json["put_partial_lines"] = traffic.put_partial_lines;
  json["PC2_GLD"] = traffic.direct_loads;
  json["PC3_GST"] = traffic.direct_stores;
  return json;
}

Json group_json(const PredictedGroup& group) {
  Json json;
  json["slaves"] = group.slaves;
  json.update(traffic_json(group.traffic));
  json["overlapped_seconds"] = number(group.overlapped_seconds);
  json["serial_seconds"] = number(group.serial_seconds);
  return json;
}

}  // namespace

void read_json(std::string_view text, std::size_t max_depth,
               JsonEvents& events) {
  // The parser would take a zero byte for the end of the text.
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    throw Failure(fmt::format("JSON: an error at byte {}", zero + 1));
  }
  Sax sax(events, max_depth);
  nlohmann::json::sax_parse(text.begin(), text.end(), &sax);
}

std::string scan_json(const ScannedFile& file) {
  std::string lines;
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    const FileTensor& tensor = file.tensors[i];
    Json json;
    json["schema"] = kScanSchema;
    json["file"] = file.path;
    json["name"] = tensor.name;
    json["dtype"] = tensor.element.name;
    json["shape"] = tensor.shape;
    json.update(statistics_json(tensor, file.statistics[i]));
    lines += line(json) + "\n";
  }
  return lines;
}

std::string scan_totals_json(const ScanTotals& totals) {
  Json json;
  json["schema"] = kScanSchema;
  Json& sum = json["totals"];
  sum["files"] = totals.files;
  sum["errors"] = totals.errors;
  sum["tensors"] = totals.tensors;
  sum["found"] = totals.found;
  sum["not_scanned"] = totals.not_scanned;
  sum["unsupported"] = totals.unsupported;
  sum["count"] = totals.sum.count;
  sum["inf"] = totals.sum.inf_count;
  sum["nan"] = totals.sum.nan_count;
  add_extremes(totals.sum, sum);
  return line(json) + "\n";
}

std::string prediction_json(const Predicted& predicted) {
  const Prediction& prediction = predicted.prediction;
  Json json;
  json["operation"] = predicted.operation;
  json["dtype"] = predicted.dtype;
  json["to"] = predicted.to.empty() ? Json() : Json(predicted.to);
  json["tensors"] = predicted.tensors;
  json["elements"] = predicted.elements;
  json["machine"] = predicted.machine.machine;
  json["core_groups"] = predicted.machine.core_groups;
  json["slaves_per_group"] = predicted.machine.slaves_per_group;
  json["ldm_bytes"] = predicted.machine.ldm_bytes;
  json["tile_asked"] =
      predicted.tile_asked == 0 ? Json() : Json(predicted.tile_asked);
  json["tile_bytes"] = prediction.tile_bytes;
  json["spawns"] = prediction.spawns;
  json.update(traffic_json(sum_of(prediction)));
  json["overlapped_seconds"] = number(prediction.overlapped_seconds);
  json["serial_seconds"] = number(prediction.serial_seconds);
  json["groups"] = Json::array();
  for (const PredictedGroup& group : prediction.groups) {
    json["groups"].push_back(group_json(group));
  }
  return line(json);
}

std::string measured_json(const std::vector<MeasuredPoint>& points) {
  std::string lines;
  for (const MeasuredPoint& point : points) {
    Json json;
    json["table"] = point.table;
    json["direction"] = point.put ? "put" : "get";
    json["slaves"] = point.slaves;
    json["bytes"] = point.bytes;
    json["offset"] = point.offset;
    json["measured"] = point.measured;
    json["predicted"] = point.predicted;
    json["error"] = point.error();
    lines += line(json) + "\n";
  }
  const ErrorSummary summary = summary_of(points);
  Json json;
  json["points"] = summary.points;
  json["median_error"] = summary.median;
  json["worst_error"] = summary.worst;
  return lines + line(json) + "\n";
}

std::string info_json(const MachineInfo& info,
                      const std::vector<std::string>& unknown_variables) {
  const MachineConfig& chosen = info.chosen;
  Json json;
  json["version"] = swamp_version();
  json["machine"] = chosen.machine;
  json["core_groups"] = chosen.core_groups;
  json["slaves_per_group"] = chosen.slaves_per_group;
  json["ldm_bytes"] = chosen.ldm_bytes;
  json["backend"] = chosen.backend;
  json["transfer"] = chosen.transfer;
  json["isa"] = chosen.isa;
  json["bind"] = chosen.bind;
  json["cpu"] = info.cpu;
  json["cores"] = info.cores;
  json["threads"] = info.threads;
  json["topology"] = info.topology;
  json["compiler"] = compiler_version();
  Json& available = json["available"];
  available["machine"] = info.machines;
  available["backend"] = info.backends;
  available["transfer"] = info.transfers;
  available["isa"] = info.isas;
  available["bind"] = info.binds;
  json["unknown_variables"] = unknown_variables;
  return line(json);
}

std::string step_json(const StepRecord& record) {
  Json json;
  json["step"] = record.step;
  json["loss"] = number(record.loss);
  json["scale"] = number(record.scale);
  json["grad_norm"] = record.skipped ? Json() : number(record.grad_norm);
  json["found_inf"] = record.skipped ? 1.0 : 0.0;
  json["skipped"] = record.skipped;
  json["underflow"] = record.underflow;
  json["activation_underflow"] = record.activation_underflow;
  if (record.overflow_elements > 0) {
    json["overflow_tensor"] = record.overflow_tensor;
    json["overflow_index"] = record.overflow_index;
    json["overflow_elements"] = record.overflow_elements;
  }
  return line(json);
}

std::string safetensors_header_json(const Metadata& metadata,
                                    const std::vector<TensorPlace>& tensors) {
  Json json;
  if (!metadata.empty()) json["__metadata__"] = metadata;
  std::uint64_t begin = 0;
  for (const TensorPlace& tensor : tensors) {
    Json& entry = json[tensor.name];
    const std::uint64_t end = begin + tensor.bytes.size();
    entry["dtype"] = tensor.dtype;
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {begin, end};
    begin = end;
  }
  return line(json);
}

}  // namespace swamp::cli
