// The operators of one transformer layer, forward and backward.
#include <fmt/core.h>

#include "master/cli/command.h"
#include "master/cli/predict/predict.h"
#include "master/cli/text.h"

namespace swamp::cli {
namespace {

struct Model {
  const char* name;
  std::uint64_t width, heads, columns, tokens;
  std::uint64_t batch;  // default
};
// GPT-2 small: Radford et al. 2019. 1.3b: 24 layers, 2048 wide, 16 heads of
// 128, as Cerebras-GPT 1.3B (arXiv 2304.03208; from memory). GPT-3 XL (Brown et
// al. 2020) lists 24 heads of 128, which are not 2048 columns.
constexpr Model kModels[] = {{"gpt2", 768, 12, 64, 1024, 4},
                             {"1.3b", 2048, 16, 128, 2048, 1}};

// A mixture of experts instead of the layer's MLP.
constexpr std::uint64_t kExperts = 64;
constexpr std::uint64_t kChoices = 2;

enum class Part { layer, rma, moe };
struct LayerRow {
  Part part;
  const char* operation;
  std::uint64_t times;
};
// The gradient of moe_permute is moe_unpermute, and the reverse.
constexpr LayerRow kRows[] = {
    {Part::layer, "layer_norm", 2},
    {Part::layer, "attention", 1},
    {Part::layer, "residual_add", 2},
    {Part::layer, "layer_norm_backward", 2},
    {Part::layer, "attention_backward", 1},
    {Part::rma, "attention", 1},
    {Part::rma, "attention_backward", 1},
    {Part::moe, "moe_histogram", 1},
    {Part::moe, "moe_positions", 1},
    {Part::moe, "moe_permute", 2},
    {Part::moe, "moe_unpermute", 2},
};

const Model& model_of(const std::string& name) {
  for (const Model& model : kModels) {
    if (name == model.name) return model;
  }
  throw UsageError(fmt::format("--layer: got '{}', expected one of {}", name,
                               joined(layer_names())));
}

Sizes sizes_of(const Model& model, std::uint64_t batch,
               const std::string& operation) {
  Sizes sizes;
  const std::uint64_t tokens = batch * model.tokens;
  if (operation.rfind("attention", 0) == 0) {
    sizes.of[kSizeBatch] = batch;
    sizes.of[kSizeHeads] = model.heads;
    sizes.of[kSizeQueries] = sizes.of[kSizeKeys] = model.tokens;
    sizes.of[kSizeColumns] = model.columns;
    sizes.causal = true;
  } else if (operation.rfind("moe", 0) == 0) {
    sizes.of[kSizeTokens] = tokens;
    sizes.of[kSizeExperts] = kExperts;
    sizes.of[kSizeChoices] = kChoices;
    if (operation.find("permute") != std::string::npos) {
      sizes.of[kSizeColumns] = model.width;
    }
  } else {
    sizes.of[kSizeRows] = tokens;
    sizes.of[kSizeColumns] = model.width;
  }
  return sizes;
}

Predicted predict_row(const LayerOptions& options, const LayerRow& row,
                      std::uint64_t core_groups) {
  const Model& model = model_of(options.model);
  MachineConfig config;
  config.machine = "sw26010pro";
  config.core_groups = static_cast<std::uint32_t>(core_groups);
  config.slaves_per_group = 64;
  Predictor predictor(config, 0, row.part == Part::rma);
  Arguments arguments;
  arguments.sizes =
      sizes_of(model, options.batch.value_or(model.batch), row.operation);
  arguments.dtype = options.dtype;
  run_operation(row.operation, arguments, predictor.machine());
  Predicted out;
  out.operation = row.operation;
  out.dtype = dtype_name(options.dtype);
  out.sizes = sizes_text(arguments.sizes);
  out.layer = options.model;
  out.times = row.times;
  out.rma = row.part == Part::rma;
  out.machine = predictor.machine().info().chosen;
  out.prediction = predictor.prediction();
  return out;
}

constexpr char kRow[] = "{:<22} {:>2} {:>7} {:>8} {:>8} {:>8} {:>8} {}\n";

std::string milliseconds(double seconds) {
  return fmt::format("{:.3f}", seconds * 1e3);
}

std::string row_text(const Predicted& one) {
  const PredictedTraffic traffic = sum_of(one.prediction);
  const PredictedTime& time = one.prediction;
  const auto times = static_cast<double>(one.times);
  const auto bytes = static_cast<double>(traffic.get_bytes + traffic.put_bytes);
  return fmt::format(kRow, one.operation, one.times,
                     fmt::format("{:.1f}", times * bytes / 1e6),
                     milliseconds(times * time.overlapped_seconds),
                     milliseconds(times * time.ldm_seconds),
                     milliseconds(times * time.arithmetic_seconds),
                     milliseconds(times * time.total_seconds), bound_of(time));
}

// products_text() is the time of the layer's matrix products, forward and
// backward, at the share of the peak that was published for SW26010-Pro (90.1
// %, ICPP 2022) with float32: 16 flop per cycle and slave.
std::string products_text(const Model& model, std::uint64_t batch,
                          std::uint64_t core_groups) {
  constexpr double kShare = 0.901;
  constexpr double kFlops = 64 * 2.25e9 * 16 * kShare;  // of a core group
  const auto width = static_cast<double>(model.width);
  const auto tokens = static_cast<double>(batch * model.tokens);
  const double weights = 12 * width * width;
  const double seconds =
      3 * 2 * weights * tokens / kFlops / static_cast<double>(core_groups);
  return fmt::format(kRow, "matrix products (BLAS)", 1, "-", "-", "-",
                     milliseconds(seconds), milliseconds(seconds),
                     "arithmetic");
}

std::string table_text(const LayerOptions& options, std::uint64_t core_groups) {
  const Model& model = model_of(options.model);
  const std::uint64_t batch = options.batch.value_or(model.batch);
  std::string text =
      fmt::format("core groups: {}\n{}", core_groups,
                  fmt::format(kRow, "operator", "x", "MB", "ms: DMA", "LDM",
                              "arith.", "largest", "bound"));
  Part part = Part::layer;
  double total = 0;
  const auto end_layer = [&] {
    text += fmt::format(kRow, "all of these", "", "", "", "", "",
                        milliseconds(total), "");
    text += products_text(model, batch, core_groups);
  };
  for (const LayerRow& row : kRows) {
    const Predicted one = predict_row(options, row, core_groups);
    if (part != row.part) {
      if (part == Part::layer) end_layer();
      part = row.part;
      text += part == Part::rma
                  ? "If a row of 8 slaves fetches shared tiles once, and "
                    "broadcasts them by RMA:\n"
                  : fmt::format(
                        "If the MLP is {} experts, {} of them for each "
                        "token:\n",
                        kExperts, kChoices);
    }
    if (part == Part::layer) {
      total += static_cast<double>(one.times) * one.prediction.total_seconds;
    }
    text += row_text(one);
  }
  return text;
}

}  // namespace

std::vector<std::string> layer_names() {
  std::vector<std::string> names;
  for (const Model& model : kModels) names.emplace_back(model.name);
  return names;
}

std::string layer_text(const LayerOptions& options) {
  const Model& model = model_of(options.model);
  const std::uint64_t batch = options.batch.value_or(model.batch);
  const std::uint64_t most =
      kMostHeadElements / (model.heads * model.tokens * model.columns);
  if (batch > most) {
    throw UsageError(
        fmt::format("--batch: got '{}', expected at most {} with --layer {}",
                    batch, most, model.name));
  }
  std::string text;
  if (!options.json) {
    text = fmt::format(
        "One layer of {}, forward and backward, {}: batch {}, {} tokens,\n"
        "{} wide, {} heads of {}, causal. sw26010pro, 64 slaves a core group\n",
        model.name, dtype_name(options.dtype), batch, model.tokens, model.width,
        model.heads, model.columns);
  }
  for (const std::uint64_t groups : options.core_groups) {
    if (!options.json) {
      text += table_text(options, groups);
      continue;
    }
    for (const LayerRow& row : kRows) {
      text += prediction_json(predict_row(options, row, groups)) + "\n";
    }
  }
  return options.json ? text : text + limits_text();
}

}  // namespace swamp::cli
