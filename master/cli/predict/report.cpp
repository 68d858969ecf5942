// What `swamp predict` prints for a prediction: text and JSON.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "master/cli/json.h"
#include "master/cli/predict/predict.h"
#include "master/cli/text.h"

namespace swamp::cli {
namespace {

constexpr char kLimits[] =
    "DMA at costs measured on SW39000 (SW26010-Pro), LDM and arithmetic at "
    "peak.\n"
    "Spawn and join come on top, and each core group works on memory of its "
    "own.\n"
    "Of the arithmetic, only the products of attention are counted.\n";

// traffic_text() is three lines, or four with RMA.
std::string traffic_text(const PredictedTraffic& traffic) {
  std::string text = fmt::format(
      "  PC3_REQ_DMA_GET {} ({} bytes, {} lines)\n"
      "  PC2_REQ_DMA_PUT {} ({} bytes, {} whole and {} partial lines)\n"
      "  PC2_GLD {}, PC3_GST {}\n",
      traffic.get_requests, traffic.get_bytes, traffic.get_lines,
      traffic.put_requests, traffic.put_bytes, traffic.put_whole_lines,
      traffic.put_partial_lines, traffic.direct_loads, traffic.direct_stores);
  if (traffic.rma_requests != 0) {
    text += fmt::format("  RMA {} broadcasts received ({} bytes)\n",
                        traffic.rma_requests, traffic.rma_bytes);
  }
  return text;
}

double microseconds(double seconds) { return seconds * 1e6; }

// speed() is in GB/s, 0 if nothing was moved.
double speed(const PredictedTraffic& traffic, double seconds) {
  const auto bytes = static_cast<double>(traffic.get_bytes + traffic.put_bytes);
  return seconds > 0 ? bytes / seconds / 1e9 : 0;
}

std::string head_text(const Predicted& predicted) {
  const std::string what =
      !predicted.sizes.empty()
          ? predicted.sizes
          : fmt::format("{} tensor{}, {} elements", predicted.tensors,
                        plural(predicted.tensors), predicted.elements);
  const std::string head =
      fmt::format("{} {}{}: {}", predicted.operation, predicted.dtype,
                  predicted.to.empty() ? "" : " to " + predicted.to, what);
  return wrapped(head) +
         fmt::format("\n{}: {} slaves a core group, {} bytes of LDM each\n",
                     predicted.machine.machine,
                     predicted.machine.slaves_per_group,
                     predicted.machine.ldm_bytes);
}

// Counter is a number of the traffic and its name in JSON.
struct Counter {
  const char* name;
  std::uint64_t PredictedTraffic::*count;
};
constexpr Counter kCounters[] = {
    {"PC3_REQ_DMA_GET", &PredictedTraffic::get_requests},
    {"get_bytes", &PredictedTraffic::get_bytes},
    {"get_lines", &PredictedTraffic::get_lines},
    {"PC2_REQ_DMA_PUT", &PredictedTraffic::put_requests},
    {"put_bytes", &PredictedTraffic::put_bytes},
    {"put_whole_lines", &PredictedTraffic::put_whole_lines},
    {"put_partial_lines", &PredictedTraffic::put_partial_lines},
    {"PC2_GLD", &PredictedTraffic::direct_loads},
    {"PC3_GST", &PredictedTraffic::direct_stores},
    {"rma_requests", &PredictedTraffic::rma_requests},
    {"rma_bytes", &PredictedTraffic::rma_bytes}};

Json traffic_json(const PredictedTraffic& traffic) {
  Json json;
  for (const Counter& counter : kCounters) {
    json[counter.name] = traffic.*counter.count;
  }
  return json;
}

Json time_json(const PredictedTime& time) {
  Json json;
  json["overlapped_seconds"] = time.overlapped_seconds;
  json["serial_seconds"] = time.serial_seconds;
  json["rma_seconds"] = time.rma_seconds;
  json["ldm_seconds"] = time.ldm_seconds;
  json["arithmetic_seconds"] = time.arithmetic_seconds;
  json["total_seconds"] = time.total_seconds;
  return json;
}

PredictedTraffic sum_of(const Prediction& prediction) {
  PredictedTraffic sum;
  for (const PredictedGroup& group : prediction.groups) {
    for (const Counter& counter : kCounters) {
      sum.*counter.count += group.traffic.*counter.count;
    }
  }
  return sum;
}

// bound_of() is the part that is the largest.
const char* bound_of(const PredictedTime& time) {
  const std::pair<double, const char*> parts[] = {
      {time.overlapped_seconds, "DMA"},
      {time.rma_seconds, "RMA"},
      {time.ldm_seconds, "LDM"},
      {time.arithmetic_seconds, "arithmetic"}};
  const auto* largest = std::max_element(
      std::begin(parts), std::end(parts),
      [](const auto& a, const auto& b) { return a.first < b.first; });
  return largest->second;
}

// time_text() is the parts other than DMA, and the largest of all.
std::string time_text(const PredictedTime& time) {
  const auto part = [](const char* name, double seconds) {
    return seconds == 0
               ? std::string()
               : fmt::format("{:<28}{:.3f} us\n", name, microseconds(seconds));
  };
  return part("RMA", time.rma_seconds) + part("LDM", time.ldm_seconds) +
         part("arithmetic", time.arithmetic_seconds) +
         fmt::format("all overlapped              {:.3f} us, bound by {}\n",
                     microseconds(time.total_seconds), bound_of(time));
}

Json group_json(const PredictedGroup& group) {
  Json json;
  json["slaves"] = group.slaves;
  json.update(traffic_json(group.traffic));
  json.update(time_json(group));
  return json;
}

}  // namespace

std::string sizes_text(const Sizes& sizes) {
  std::string text;
  for (int i = 0; i < kSizeCount; ++i) {
    if (!sizes.of[i]) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", kSizeOptions[i] + 2,
                        *sizes.of[i]);
  }
  return text + (sizes.causal ? " causal" : "");
}

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
  return text + time_text(prediction) + kLimits;
}

std::string predictions_text(const std::vector<Predicted>& predicted) {
  std::string text = head_text(predicted.front());
  constexpr char kRow[] =
      "{:>6} {:>6} {:>8} {:>8} {:>10} {:>6} {:>10} {:>10} {:>7}\n";
  text += fmt::format(kRow, "groups", "tile", "gets", "puts", "us DMA", "GB/s",
                      "one by one", "arithmetic", "bound");
  const auto tenths = [](double value) { return fmt::format("{:.1f}", value); };
  for (const Predicted& one : predicted) {
    const Prediction& prediction = one.prediction;
    const PredictedTraffic sum = sum_of(prediction);
    const PredictedTime& time = prediction;
    text += fmt::format(
        kRow, prediction.groups.size(), prediction.tile_bytes, sum.get_requests,
        sum.put_requests, tenths(microseconds(time.overlapped_seconds)),
        tenths(speed(sum, time.overlapped_seconds)),
        tenths(microseconds(time.serial_seconds)),
        tenths(microseconds(time.arithmetic_seconds)), bound_of(time));
  }
  return text + kLimits;
}

std::string prediction_json(const Predicted& predicted) {
  const Prediction& prediction = predicted.prediction;
  Json json;
  json["operation"] = predicted.operation;
  json["dtype"] = predicted.dtype;
  json["to"] = predicted.to.empty() ? Json() : Json(predicted.to);
  if (predicted.sizes.empty()) {
    json["tensors"] = predicted.tensors;
    json["elements"] = predicted.elements;
  } else {
    json["sizes"] = predicted.sizes;
  }
  json["machine"] = predicted.machine.machine;
  json["core_groups"] = predicted.machine.core_groups;
  json["slaves_per_group"] = predicted.machine.slaves_per_group;
  json["ldm_bytes"] = predicted.machine.ldm_bytes;
  json["rma"] = predicted.rma;
  json["tile_asked"] =
      predicted.tile_asked == 0 ? Json() : Json(predicted.tile_asked);
  json["tile_bytes"] = prediction.tile_bytes;
  json["spawns"] = prediction.spawns;
  json.update(traffic_json(sum_of(prediction)));
  json.update(time_json(prediction));
  json["bound"] = bound_of(prediction);
  Json& groups = json["groups"] = Json::array();
  for (const PredictedGroup& group : prediction.groups) {
    groups.push_back(group_json(group));
  }
  return json_line(json);
}

}  // namespace swamp::cli
