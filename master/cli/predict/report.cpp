// What `swamp predict` prints for a prediction: text and JSON.
#include <fmt/core.h>

#include "master/cli/json.h"
#include "master/cli/predict/predict.h"
#include "master/cli/text.h"

namespace swamp::cli {
namespace {

constexpr char kLimits[] =
    "Transfers only, at costs measured on SW39000 (SW26010-Pro): spawn, join "
    "and\n"
    "arithmetic come on top, and each core group works on memory of its own.\n";

// traffic_text() is three lines.
std::string traffic_text(const PredictedTraffic& traffic) {
  return fmt::format(
      "  PC3_REQ_DMA_GET {} ({} bytes, {} lines)\n"
      "  PC2_REQ_DMA_PUT {} ({} bytes, {} whole and {} partial lines)\n"
      "  PC2_GLD {}, PC3_GST {}\n",
      traffic.get_requests, traffic.get_bytes, traffic.get_lines,
      traffic.put_requests, traffic.put_bytes, traffic.put_whole_lines,
      traffic.put_partial_lines, traffic.direct_loads, traffic.direct_stores);
}

double microseconds(double seconds) { return seconds * 1e6; }

// speed() is in GB/s, 0 if nothing was moved.
double speed(const PredictedTraffic& traffic, double seconds) {
  const auto bytes = static_cast<double>(traffic.get_bytes + traffic.put_bytes);
  return seconds > 0 ? bytes / seconds / 1e9 : 0;
}

std::string head_text(const Predicted& predicted) {
  return fmt::format(
      "{} {}{}: {} tensor{}, {} elements\n{}: {} slaves a core group, {} bytes "
      "of LDM each\n",
      predicted.operation, predicted.dtype,
      predicted.to.empty() ? "" : " to " + predicted.to, predicted.tensors,
      plural(predicted.tensors), predicted.elements, predicted.machine.machine,
      predicted.machine.slaves_per_group, predicted.machine.ldm_bytes);
}

PredictedTraffic sum_of(const Prediction& prediction) {
  PredictedTraffic sum;
  for (const PredictedGroup& group : prediction.groups) {
    const PredictedTraffic& traffic = group.traffic;
    sum.get_requests += traffic.get_requests;
    sum.get_bytes += traffic.get_bytes;
    sum.get_lines += traffic.get_lines;
    sum.put_requests += traffic.put_requests;
    sum.put_bytes += traffic.put_bytes;
    sum.put_whole_lines += traffic.put_whole_lines;
    sum.put_partial_lines += traffic.put_partial_lines;
    sum.direct_loads += traffic.direct_loads;
    sum.direct_stores += traffic.direct_stores;
  }
  return sum;
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
  json["overlapped_seconds"] = group.overlapped_seconds;
  json["serial_seconds"] = group.serial_seconds;
  return json;
}

}  // namespace

std::string prediction_text(const Predicted& predicted) {
  const Prediction& prediction = predicted.prediction;
  std::string text = head_text(predicted);
  text += fmt::format(
      "core groups {}, tiles of {} bytes, spawns {}{}\n",
      prediction.groups.size(), prediction.tile_bytes, prediction.spawns,
      prediction.operations != prediction.spawns ? " (the master works alone)"
                                                 : "");
  for (std::size_t i = 0; i < prediction.groups.size(); ++i) {
    const PredictedGroup& group = prediction.groups[i];
    if (group.slaves == 0) continue;
    text += fmt::format(
        "cg {}: {} slave{}, {:.3f} us overlapped, {:.3f} us one after "
        "another\n",
        i, group.slaves, plural(group.slaves),
        microseconds(group.overlapped_seconds),
        microseconds(group.serial_seconds));
    text += traffic_text(group.traffic);
  }
  const PredictedTraffic sum = sum_of(prediction);
  text += "all\n" + traffic_text(sum);
  text += fmt::format(
      "transfers overlapped        {:.3f} us ({:.1f} GB/s)\n"
      "transfers one after another {:.3f} us ({:.1f} GB/s)\n",
      microseconds(prediction.overlapped_seconds),
      speed(sum, prediction.overlapped_seconds),
      microseconds(prediction.serial_seconds),
      speed(sum, prediction.serial_seconds));
  return text + kLimits;
}

std::string predictions_text(const std::vector<Predicted>& predicted) {
  std::string text = head_text(predicted.front());
  constexpr char kRow[] = "{:>6} {:>7} {:>9} {:>9} {:>8} {:>13} {:>7} {:>14}\n";
  text += fmt::format(kRow, "groups", "tile", "gets", "puts", "partial",
                      "us overlapped", "GB/s", "us one by one");
  const auto tenths = [](double value) { return fmt::format("{:.1f}", value); };
  for (const Predicted& one : predicted) {
    const Prediction& prediction = one.prediction;
    const PredictedTraffic sum = sum_of(prediction);
    text +=
        fmt::format(kRow, prediction.groups.size(), prediction.tile_bytes,
                    sum.get_requests, sum.put_requests, sum.put_partial_lines,
                    tenths(microseconds(prediction.overlapped_seconds)),
                    tenths(speed(sum, prediction.overlapped_seconds)),
                    tenths(microseconds(prediction.serial_seconds)));
  }
  return text + kLimits;
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
  json["overlapped_seconds"] = prediction.overlapped_seconds;
  json["serial_seconds"] = prediction.serial_seconds;
  Json::Array groups;
  for (const PredictedGroup& group : prediction.groups) {
    groups.push_back(group_json(group));
  }
  json["groups"] = std::move(groups);
  return json.line();
}

}  // namespace swamp::cli
