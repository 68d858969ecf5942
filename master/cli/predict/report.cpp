#include "master/cli/predict/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace swamp::cli {
namespace {

constexpr char kLimits[] =
    "Transfers only, at costs measured on SW39000 (SW26010-Pro): spawn, join "
    "and "
    "arithmetic\ncome on top, and each core group works on memory of its "
    "own.\n";

std::string traffic_text(const PredictedTraffic& traffic) {
  return fmt::format(
      "PC3_REQ_DMA_GET {} ({} bytes, {} lines), PC2_REQ_DMA_PUT {} ({} bytes, "
      "{} whole lines, {} partial), PC2_GLD {}, PC3_GST {}",
      traffic.get_requests, traffic.get_bytes, traffic.get_lines,
      traffic.put_requests, traffic.put_bytes, traffic.put_whole_lines,
      traffic.put_partial_lines, traffic.direct_loads, traffic.direct_stores);
}

double microseconds(double seconds) { return seconds * 1e6; }

// speed() is GB/s; 0 where nothing moved.
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
      predicted.tensors == 1 ? "" : "s", predicted.elements,
      predicted.machine.machine, predicted.machine.slaves_per_group,
      predicted.machine.ldm_bytes);
}

}  // namespace

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

std::string prediction_text(const Predicted& predicted) {
  const Prediction& prediction = predicted.prediction;
  std::string text = head_text(predicted);
  text += fmt::format("core groups {}, tiles of {} bytes, spawns {}{}\n",
                      prediction.groups.size(), prediction.tile_bytes,
                      prediction.spawns,
                      prediction.operations != prediction.spawns
                          ? " (so little the master does alone)"
                          : "");
  for (std::size_t i = 0; i < prediction.groups.size(); ++i) {
    const PredictedGroup& group = prediction.groups[i];
    if (group.slaves == 0) continue;
    text += fmt::format(
        "cg {}: {} slave{}: {}; {:.3f} us overlapped, {:.3f} us one after "
        "another\n",
        i, group.slaves, group.slaves == 1 ? "" : "s",
        traffic_text(group.traffic), microseconds(group.overlapped_seconds),
        microseconds(group.serial_seconds));
  }
  const PredictedTraffic sum = sum_of(prediction);
  text += fmt::format(
      "all: {}\ntransfers on SW26010-Pro: {:.3f} us overlapped ({:.1f} GB/s), "
      "{:.3f} us one after another ({:.1f} GB/s)\n",
      traffic_text(sum), microseconds(prediction.overlapped_seconds),
      speed(sum, prediction.overlapped_seconds),
      microseconds(prediction.serial_seconds),
      speed(sum, prediction.serial_seconds));
  return text + kLimits;
}

std::string predictions_text(const std::vector<Predicted>& predicted) {
  std::string text = head_text(predicted.front());
  text +=
      fmt::format("{:>11} {:>10} {:>10} {:>10} {:>13} {:>14} {:>7} {:>17}\n",
                  "core groups", "tile bytes", "gets", "puts", "partial lines",
                  "us overlapped", "GB/s", "us one by one");
  for (const Predicted& one : predicted) {
    const Prediction& prediction = one.prediction;
    const PredictedTraffic sum = sum_of(prediction);
    text += fmt::format(
        "{:>11} {:>10} {:>10} {:>10} {:>13} {:>14.1f} {:>7.1f} {:>9.1f} "
        "({:+.1f} %)\n",
        prediction.groups.size(), prediction.tile_bytes, sum.get_requests,
        sum.put_requests, sum.put_partial_lines,
        microseconds(prediction.overlapped_seconds),
        speed(sum, prediction.overlapped_seconds),
        microseconds(prediction.serial_seconds),
        prediction.overlapped_seconds > 0
            ? (prediction.serial_seconds / prediction.overlapped_seconds - 1) *
                  100
            : 0.0);
  }
  return text + kLimits;
}

ErrorSummary summary_of(const std::vector<MeasuredPoint>& points,
                        const std::string& table) {
  std::vector<double> errors;
  for (const MeasuredPoint& point : points) {
    if (table.empty() || table == point.table) {
      errors.push_back(std::abs(point.error()));
    }
  }
  if (errors.empty()) return {};
  std::sort(errors.begin(), errors.end());
  const std::size_t count = errors.size();
  return {count, (errors[(count - 1) / 2] + errors[count / 2]) / 2,
          errors.back()};
}

std::string measured_text(const std::vector<MeasuredPoint>& points) {
  std::string text = fmt::format(
      "{:<8} {:<4} {:>6} {:>7} {:>7} {:>9} {:>9} {:>9}\n", "table", "",
      "slaves", "bytes", "offset", "measured", "model", "error");
  std::vector<std::string> tables;
  for (const MeasuredPoint& point : points) {
    if (tables.empty() || tables.back() != point.table) {
      tables.emplace_back(point.table);
    }
    text += fmt::format(
        "{:<8} {:<4} {:>6} {:>7} {:>7} {:>9.3f} {:>9.3f} {:>+7.1f} %\n",
        point.table, point.put ? "put" : "get", point.slaves, point.bytes,
        point.offset, point.measured, point.predicted, point.error() * 100);
  }
  text += "Bytes a cycle of 2.25 GHz, all slaves of one core group together.\n";
  tables.emplace_back();
  for (const std::string& table : tables) {
    const ErrorSummary summary = summary_of(points, table);
    text +=
        fmt::format("{}: {} points, median error {:.1f} %, worst {:.1f} %\n",
                    table.empty() ? "all" : table, summary.points,
                    summary.median * 100, summary.worst * 100);
  }
  return text;
}

}  // namespace swamp::cli
