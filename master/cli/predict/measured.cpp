// Bandwidths measured on SW39000 (job 8419757, and a later study on the same
// cluster), and the cost model's for each.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "master/cli/json.h"
#include "master/cli/predict/predict.h"
#include "runtime/predict/cost_model.h"

namespace swamp::cli {
namespace {

// One size of a transfer: cycles if one slave transfers, and bytes per cycle of
// 64 slaves together, at the start of lines and 4 bytes after it.
struct SizeRow {
  std::uint32_t bytes;
  double get_cycles, get, get_after;
  double put_cycles, put, put_after;
};
constexpr SizeRow kSizes[] = {
    {8, 441, 0.446, 0.446, 240, 0.197, 0.196},
    {64, 441, 3.57, 3.56, 240, 1.57, 0.81},
    {128, 441, 7.12, 4.98, 242, 15.37, 1.21},
    {256, 459, 9.84, 7.81, 251, 15.24, 2.17},
    {512, 479, 13.87, 12.18, 263, 14.84, 3.93},
    {1024, 543, 16.31, 14.90, 292, 14.64, 5.64},
    {2048, 590, 20.52, 19.60, 348, 14.97, 7.04},
    {4096, 712, 21.29, 21.00, 460, 15.23, 10.08},
    {8192, 953, 20.63, 20.65, 679, 15.89, 11.85},
    {16384, 1437, 20.50, 20.47, 1118, 16.25, 13.38},
    {32768, 2364, 20.88, 20.72, 1990, 15.89, 14.78},
    {65536, 4175, 21.23, 21.17, 3739, 16.00, 14.96},
};

// Bytes per cycle of 128 KiB transfers, by how many slaves.
struct SlavesRow {
  std::uint32_t slaves;
  double get, put;
};
constexpr SlavesRow kSlaves[] = {
    {1, 16.7, 18.1},  {2, 16.9, 18.7},  {4, 19.5, 21.3},  {8, 20.9, 20.6},
    {16, 21.1, 20.5}, {32, 21.4, 18.4}, {64, 20.9, 15.4},
};
constexpr std::uint32_t kSlavesBytes = 128 * 1024;

// Cycles of each put if 64 slaves put, by bytes after the start of a line. They
// are of another job, whose levels differ by up to 30 %.
constexpr std::uint32_t kScanOffsets[] = {0, 4, 64, 124};
struct ScanRow {
  std::uint32_t bytes;
  double cycles[4];
};
constexpr ScanRow kScan[] = {
    {64, {1917, 3579, 1913, 3498}},  {96, {1917, 3572, 3503, 5014}},
    {124, {3577, 3574, 3504, 3493}}, {128, {439, 5180, 3502, 5008}},
    {132, {2735, 5166, 5028, 2684}}, {256, {885, 6060, 4590, 6222}},
    {260, {3522, 6057, 6169, 3493}},
};

// MeasuredPoint is one bandwidth measured on SW39000 (which is SW26010-Pro), in
// one core group, and the model's for the same transfers.
struct MeasuredPoint {
  const char* table;     // "size", "slaves" or "scan"
  bool put;              // otherwise get
  std::uint32_t slaves;  // that transfer at once
  std::uint32_t bytes;   // of each transfer
  std::uint32_t offset;  // bytes after the start of a line
  double measured;       // bytes per cycle, all slaves together
  double predicted;      // bytes per cycle
  // error() is 0.1 if the model is 10 % too fast.
  double error() const noexcept { return predicted / measured - 1; }
};

// Returns the modelled bytes per cycle if every slave does one transfer, on
// lines of its own.
double modelled(const MeasuredPoint& point) {
  predict::GroupTraffic group;
  const predict::Lines lines = predict::lines_of(std::uint64_t{point.offset},
                                                 std::uint64_t{point.bytes});
  for (std::uint32_t i = 0; i < point.slaves; ++i) {
    predict::Traffic slave;
    if (point.put) {
      slave.put(point.bytes, lines);
    } else {
      slave.get(point.bytes, lines);
    }
    group.add(slave);
  }
  return static_cast<double>(group.all.get_bytes + group.all.put_bytes) /
         predict::cycles_of(group).one_after_another;
}

// measured_points() returns all measurements and the model's predictions.
std::vector<MeasuredPoint> measured_points() {
  std::vector<MeasuredPoint> points;
  const auto add = [&](const char* table, bool put, std::uint32_t slaves,
                       std::uint32_t bytes, std::uint32_t offset,
                       double bytes_per_cycle) {
    points.push_back({table, put, slaves, bytes, offset, bytes_per_cycle, 0});
    points.back().predicted = modelled(points.back());
  };
  for (const bool put : {false, true}) {
    for (const SizeRow& row : kSizes) {
      const double bytes = row.bytes;
      add("size", put, 1, row.bytes, 0,
          bytes / (put ? row.put_cycles : row.get_cycles));
    }
    for (const SizeRow& row : kSizes) {
      add("size", put, 64, row.bytes, 0, put ? row.put : row.get);
    }
    for (const SizeRow& row : kSizes) {
      add("size", put, 64, row.bytes, 4, put ? row.put_after : row.get_after);
    }
  }
  for (const bool put : {false, true}) {
    for (const SlavesRow& row : kSlaves) {
      add("slaves", put, row.slaves, kSlavesBytes, 0, put ? row.put : row.get);
    }
  }
  for (const ScanRow& row : kScan) {
    for (int i = 0; i < 4; ++i) {
      add("scan", true, 64, row.bytes, kScanOffsets[i],
          64.0 * row.bytes / row.cycles[i]);
    }
  }
  return points;
}

// ErrorSummary is of the points of one table, or of all.
struct ErrorSummary {
  std::size_t points = 0;
  double median = 0;  // magnitudes
  double worst = 0;
};

ErrorSummary summary_of(const std::vector<MeasuredPoint>& points,
                        const std::string& table = "") {
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

}  // namespace

std::string measured_text() {
  const std::vector<MeasuredPoint> points = measured_points();
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

std::string measured_json() {
  const std::vector<MeasuredPoint> points = measured_points();
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
    lines += json.line() + "\n";
  }
  const ErrorSummary summary = summary_of(points);
  Json json;
  json["points"] = summary.points;
  json["median_error"] = summary.median;
  json["worst_error"] = summary.worst;
  return lines + json.line() + "\n";
}

}  // namespace swamp::cli
