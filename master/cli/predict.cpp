// swamp predict: what an operation would cost on SW26010-Pro.
#include <fmt/format.h>

#include "master/cli/command.h"
#include "master/cli/console.h"
#include "master/cli/json.h"
#include "master/cli/predict/lists.h"
#include "master/cli/predict/operations.h"
#include "master/cli/predict/report.h"
#include "swamp/error.h"

namespace swamp::cli {
namespace {

std::uint64_t core_groups_of(const std::string& machine) {
  if (machine == "sw26010pro") return 6;
  if (machine == "sw26010") return 4;
  throw UsageError(fmt::format(
      "--machine: got '{}', expected one of sw26010, sw26010pro", machine));
}

std::vector<std::uint64_t> settled_core_groups(const PredictOptions& options) {
  const std::uint64_t all = core_groups_of(options.machine);
  for (const std::uint64_t groups : options.core_groups) {
    if (groups <= all) continue;
    throw UsageError(
        fmt::format("--core-groups: got '{}', expected at most the {} of {}",
                    groups, all, options.machine));
  }
  return options.core_groups.empty() ? std::vector<std::uint64_t>{all}
                                     : options.core_groups;
}

std::vector<Shape> settled_list(const PredictOptions& options) {
  std::optional<ScalarType> dtype;
  if (!options.dtype.empty()) dtype = dtype_of("--dtype", options.dtype);
  if (options.files.empty() == options.list.empty()) {
    throw UsageError(options.files.empty()
                         ? "no list given, expected --list LIST or a FILE"
                         : "--list and a FILE given, expected one of them");
  }
  return options.files.empty()
             ? list_of_text(options.list, dtype.value_or(kFloat32))
             : list_of_files(options.files, dtype);
}

std::string dtype_text(const std::vector<Shape>& list) {
  for (const Shape& shape : list) {
    if (shape.dtype != list.front().dtype) return "mixed";
  }
  return dtype_name(list.front().dtype);
}

Predicted predict_one(const PredictOptions& options,
                      const std::vector<Shape>& list, std::uint64_t core_groups,
                      std::uint64_t tile) {
  MachineConfig config;
  config.machine = options.machine;
  config.core_groups = static_cast<std::uint32_t>(core_groups);
  config.slaves_per_group = 64;
  Predictor predictor(config, tile);
  std::optional<ScalarType> to;
  if (!options.to.empty()) to = dtype_of("--to", options.to);
  try {
    run_operation(options.operation, list, to, {options.align, options.offset},
                  predictor.machine());
  } catch (const Error& error) {
    throw Failure(fmt::format("{}: {}", options.operation, error.what()));
  }
  Predicted out;
  out.operation = options.operation;
  out.dtype = dtype_text(list);
  out.to = options.to;
  out.tensors = list.size();
  for (const Shape& shape : list) out.elements += shape.count;
  out.tile_asked = tile;
  out.machine = predictor.machine().info().chosen;
  out.prediction = predictor.prediction();
  return out;
}

void print_measured(bool json) {
  const std::vector<MeasuredPoint> points = measured_points();
  print(json ? measured_json(points) : measured_text(points));
}

void print_predictions(const PredictOptions& options) {
  const std::vector<std::uint64_t> core_groups = settled_core_groups(options);
  const std::vector<Shape> list = settled_list(options);
  std::vector<std::uint64_t> tiles = options.tiles;
  if (tiles.empty()) tiles.push_back(0);
  std::vector<Predicted> all;
  for (const std::uint64_t groups : core_groups) {
    for (const std::uint64_t tile : tiles) {
      all.push_back(predict_one(options, list, groups, tile));
    }
  }
  if (options.json) {
    std::string lines;
    for (const Predicted& one : all) lines += prediction_json(one) + "\n";
    print(lines);
  } else {
    print(all.size() == 1 ? prediction_text(all.front())
                          : predictions_text(all));
  }
}

}  // namespace

void run_predict(const PredictOptions& options) {
  try {
    if (options.table && !(options.files.empty() && options.list.empty())) {
      throw UsageError(
          "--table: with a list, expected none: it shows the model");
    }
    if (options.table) {
      print_measured(options.json);
    } else {
      print_predictions(options);
    }
  } catch (const UsageError& error) {
    throw UsageError(error.what(), "predict");
  }
}

}  // namespace swamp::cli
