// `swamp predict`: the time and traffic of an operation on SW26010-Pro.
#include "master/cli/predict/predict.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <deque>
#include <memory>
#include <optional>

#include "master/cli/command.h"
#include "master/cli/text.h"
#include "swamp/error.h"

namespace swamp::cli {
namespace {

struct PredictOptions {
  std::string operation = "unscale";
  std::string dtype;  // "": from the file, or float32
  std::string to;     // "": the operation's own
  std::string list;   // "" with files
  std::vector<std::string> files;
  std::string machine = "sw26010pro";
  std::vector<std::uint64_t> core_groups;  // empty: all of the machine
  std::vector<std::uint64_t> tiles;        // bytes; empty: the machine's
  std::uint64_t align = 128;               // bytes, of every tensor
  std::uint64_t offset = 0;                // bytes, of the first
  Sizes sizes;
  bool rma = false;
  bool json = false;
};

std::uint64_t machine_core_groups(const std::string& machine) {
  if (machine == "sw26010pro") return 6;
  if (machine == "sw26010") return 4;
  throw UsageError(fmt::format(
      "--machine: got '{}', expected one of sw26010, sw26010pro", machine));
}

std::vector<std::uint64_t> core_groups_of(const PredictOptions& options) {
  const std::uint64_t all = machine_core_groups(options.machine);
  for (const std::uint64_t groups : options.core_groups) {
    if (groups <= all) continue;
    throw UsageError(
        fmt::format("--core-groups: got '{}', expected at most the {} of {}",
                    groups, all, options.machine));
  }
  return options.core_groups.empty() ? std::vector<std::uint64_t>{all}
                                     : options.core_groups;
}

constexpr std::initializer_list<ScalarType> kRowDtypes = {kFloat16, kBFloat16,
                                                          kFloat32};

std::vector<Shape> list_of(const PredictOptions& options) {
  std::optional<ScalarType> dtype;
  if (!options.dtype.empty()) dtype = parse_dtype("--dtype", options.dtype);
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

// Placement is where the tensors of an array begin, in bytes.
struct Placement {
  std::uint64_t align = 128;  // each begins at `offset` plus a multiple of this
  std::uint64_t offset = 0;   // of the first, from a 128-byte line
};

// The command line's arguments for one operation.
struct Arguments {
  std::vector<Shape> list;
  std::optional<ScalarType> to;
  Placement placement;
  Sizes sizes;                  // of an operation without a list
  ScalarType dtype = kFloat32;  // the same
};

// CountingCall gives an operation addresses: the machine only counts transfers.
class CountingCall : public Call {
 public:
  CountingCall(const Arguments& given, Machine& counting) : arguments_(given) {
    sizes = given.sizes;
    dtype = given.dtype;
    to = given.to;
    machine = &counting;
  }
  Tensors array(std::optional<ScalarType> type) override {
    const Placement& placement = arguments_.placement;
    std::uint64_t at = address();
    Tensors tensors;
    for (const Shape& shape : arguments_.list) {
      const ScalarType own = type.value_or(shape.dtype);
      at += (placement.offset - at) % placement.align;
      tensors.push_back({reinterpret_cast<void*>(at), shape.count, own});
      at += shape.count * kFloatFormats[own].bytes;
    }
    return tensors;
  }
  void* next(std::size_t, std::optional<ScalarType>) override {
    return reinterpret_cast<void*>(address());
  }
  void* memory(std::size_t bytes) override {
    constexpr std::size_t kLine = 128;
    memory_.emplace_back(bytes + kLine);
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.back().data());
    return memory_.back().data() + -at % kLine;
  }
  // Zeros: backward of attention computes nothing again.
  float* numbers(std::size_t count) override { return result<float>(count); }

 private:
  // address() is where the next array begins: above all memory of this process,
  // with a large distance between arrays.
  std::uint64_t address() {
    constexpr std::uint64_t kDistance = std::uint64_t{1} << 56;
    return ++arrays_ * kDistance + arguments_.placement.offset;
  }

  const Arguments& arguments_;
  std::uint64_t arrays_ = 0;
  std::deque<std::vector<std::byte>> memory_;
};

std::string operation_names() {
  std::vector<std::string> names;
  for (const OperationRow& row : operation_rows()) names.emplace_back(row.name);
  return joined(names);
}

const OperationRow& row_of(const std::string& name) {
  for (const OperationRow& row : operation_rows()) {
    if (name == row.name) return row;
  }
  throw UsageError(fmt::format("--operation: got '{}', expected one of {}",
                               name, operation_names()));
}

// require() throws UsageError unless exactly the row's sizes are given.
void require(const OperationRow& row, const Arguments& arguments) {
  if (arguments.to && !row.takes_to) {
    throw UsageError(fmt::format(
        "--to: got '{}' with operation {}, expected it with cast, sgd or "
        "adam only",
        dtype_name(*arguments.to), row.name));
  }
  const Sizes& sizes = arguments.sizes;
  std::string expected;
  for (int i = 0; i < kSizeCount; ++i) {
    if ((row.sizes >> i & 1u) == 0) continue;
    expected +=
        fmt::format("{}{}", expected.empty() ? "" : ", ", kSizeOptions[i]);
  }
  if (expected.empty()) expected = "a list";
  for (int i = 0; i < kSizeCount; ++i) {
    const bool takes = (row.sizes >> i & 1u) != 0;
    if (takes == sizes.of[i].has_value()) continue;
    throw UsageError(
        takes ? fmt::format("{}: not given, expected {} with operation {}",
                            kSizeOptions[i], expected, row.name)
              : fmt::format("{}: got '{}' with operation {}, expected {}",
                            kSizeOptions[i], *sizes.of[i], row.name, expected));
  }
  if (sizes.causal && !row.takes_causal) {
    throw UsageError(fmt::format(
        "--causal: given with operation {}, expected it with softmax and "
        "attention only",
        row.name));
  }
  const auto limit = [&](std::uint64_t most, const char* what,
                         std::initializer_list<SizeOption> options) {
    std::uint64_t count = 1;
    for (const SizeOption option : options) {
      const std::uint64_t size = sizes.of[option].value_or(1);
      if (size > most / count) {
        throw UsageError(fmt::format("{}: got '{}', expected at most {} {}",
                                     kSizeOptions[option], size, most, what));
      }
      count *= size;
    }
  };
  const bool heads = sizes.of[kSizeHeads].has_value();
  limit(kMostRows, "rows of all heads", {kSizeBatch, kSizeHeads, kSizeQueries});
  limit(kMostRows, "rows of all heads", {kSizeBatch, kSizeHeads, kSizeKeys});
  limit(kMostScores, "scores",
        {kSizeBatch, kSizeHeads, kSizeQueries, kSizeKeys});
  limit(kMostRows, "rows of tokens", {kSizeTokens, kSizeChoices});
  limit(heads ? kMostHeadElements : kMostElements, "elements",
        {kSizeRows, kSizeTokens, kSizeChoices, kSizeBatch, kSizeHeads,
         kSizeQueries, kSizeColumns});
  limit(heads ? kMostHeadElements : kMostElements, "elements",
        {kSizeBatch, kSizeHeads, kSizeKeys, kSizeColumns});
}

// arguments_of() reads the list of an operation that takes one.
Arguments arguments_of(const PredictOptions& options) {
  Arguments arguments;
  arguments.placement = {options.align, options.offset};
  arguments.sizes = options.sizes;
  if (!options.to.empty()) arguments.to = parse_dtype("--to", options.to);
  if (row_of(options.operation).sizes == 0) {
    arguments.list = list_of(options);
    return arguments;
  }
  if (!options.files.empty() || !options.list.empty()) {
    throw UsageError(fmt::format(
        "{}: got '{}' with operation {}, expected --columns and other sizes",
        options.list.empty() ? "FILE" : "--list",
        options.list.empty() ? options.files.front() : options.list,
        options.operation));
  }
  if (!options.dtype.empty()) {
    arguments.dtype = parse_dtype("--dtype", options.dtype, kRowDtypes);
  }
  return arguments;
}

Predicted predict_one(const PredictOptions& options, const Arguments& arguments,
                      std::uint64_t core_groups, std::uint64_t tile) {
  MachineConfig config;
  config.machine = options.machine;
  config.core_groups = static_cast<std::uint32_t>(core_groups);
  config.slaves_per_group = 64;
  Predictor predictor(config, tile, options.rma);
  try {
    CountingCall call(arguments, predictor.machine());
    row_of(options.operation).run(call);
  } catch (const Error& error) {
    throw Failure(fmt::format("{}: {}", options.operation, error.what()));
  }
  Predicted out;
  out.operation = options.operation;
  out.rma = options.rma;
  const std::vector<Shape>& list = arguments.list;
  out.to = options.to;
  if (list.empty()) {
    out.dtype = dtype_name(arguments.dtype);
    out.sizes = sizes_text(arguments.sizes);
  } else {
    out.dtype = dtype_text(list);
    out.tensors = list.size();
    for (const Shape& shape : list) out.elements += shape.count;
  }
  out.tile_asked = tile;
  out.machine = predictor.machine().info().chosen;
  out.prediction = predictor.prediction();
  return out;
}

void print_predictions(const PredictOptions& options) {
  const std::vector<std::uint64_t> core_groups = core_groups_of(options);
  const Arguments arguments = arguments_of(options);
  require(row_of(options.operation), arguments);
  std::vector<std::uint64_t> tiles = options.tiles;
  if (tiles.empty()) tiles.push_back(0);
  std::vector<Predicted> all;
  for (const std::uint64_t groups : core_groups) {
    for (const std::uint64_t tile : tiles) {
      all.push_back(predict_one(options, arguments, groups, tile));
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

constexpr std::uint64_t kMostCoreGroups = 6;
constexpr std::uint64_t kLeastTile = 128;
constexpr std::uint64_t kMostTile = std::uint64_t{1} << 30;
constexpr std::uint64_t kMostAlign = 4096;
constexpr std::size_t kMostValues = 64;

// integers() reads "1,2,3".
std::vector<std::uint64_t> integers(const std::string& option,
                                    const std::string& text, std::uint64_t low,
                                    std::uint64_t high) {
  std::vector<std::uint64_t> values;
  for (const std::string& item : split(text)) {
    values.push_back(parse_integer(option, item, low, high));
  }
  if (values.size() > kMostValues) {
    throw UsageError(fmt::format("{}: got {} values, expected at most {}",
                                 option, values.size(), kMostValues));
  }
  return values;
}

void add_sizes(CLI::App& command, PredictOptions& options) {
  constexpr const char* kSizeHelp[kSizeCount] = {
      "of a matrix: softmax, cross entropy, norms, residual_add, gates",
      "of a matrix, of a token, or of a head",
      "of attention",
      "of attention",
      "rows of a head",
      "rows of a head",
      "of a mixture of experts",
      "of a mixture of experts",
      "experts of a token"};
  for (int i = 0; i < kSizeCount; ++i) {
    const char* name = kSizeOptions[i];
    add_text(command, name, "N", "", kSizeHelp[i],
             [name, i, &options](const std::string& given) {
               options.sizes.of[i] = parse_integer(name, given, 1, kMostRows);
             });
  }
}

// add_places() adds where the operation runs, and where its tensors are.
void add_places(CLI::App& command, PredictOptions& options) {
  add_text(command, "--core-groups", "N,...", "all",
           "how many work; several numbers make a table",
           [&options](const std::string& given) {
             options.core_groups =
                 integers("--core-groups", given, 1, kMostCoreGroups);
           });
  add_text(command, "--tile", "BYTES,...", "the machine's",
           "tile of the widest array; several numbers make a table",
           [&options](const std::string& given) {
             options.tiles = integers("--tile", given, kLeastTile, kMostTile);
           });
  add_text(command, "--align", "BYTES", std::to_string(options.align),
           "every tensor begins at a multiple of this power of 2",
           [&options](const std::string& given) {
             const std::uint64_t align =
                 parse_integer("--align", given, 1, kMostAlign);
             if ((align & (align - 1)) != 0) {
               throw UsageError(fmt::format(
                   "--align: got '{}', expected a power of 2", given));
             }
             options.align = align;
           });
  add_integer(command, "--offset", options.offset, 0, 127,
              "bytes from a 128-byte line to the first tensor");
}

void add_options(CLI::App& command, PredictOptions& options) {
  const auto text = [&](const char* name, const char* type, std::string& value,
                        const std::string& help) {
    add_text(
        command, name, type, value, help,
        [name, &value](const std::string& given) {
          if (given.empty()) {
            throw UsageError(fmt::format("{}: got '', expected a value", name));
          }
          value = given;
        });
  };
  command
      .add_option("FILE", options.files,
                  "the float tensors of safetensors, npy or npz files")
      ->type_name("");
  text("--operation", "NAME", options.operation, operation_names());
  text("--list", "LIST", options.list,
       "tensors x elements, as 1x33554432,148x100000, or a model: " +
           joined(model_names()));
  add_sizes(command, options);
  command.add_flag("--causal", options.sizes.causal,
                   "softmax, attention: without the keys after a query");
  command.add_flag(
      "--rma", options.rma,
      "fetch once what slaves of a row of 8 share, and broadcast it");
  text("--dtype", "NAME", options.dtype,
       "of the tensors, in a step of the gradients; default: the file's, or "
       "float32");
  text("--to", "NAME", options.to,
       "dtype that a cast writes, or of the model weights that a step writes");
  text("--machine", "NAME", options.machine, "sw26010pro or sw26010");
  add_places(command, options);
  command.add_flag("--json", options.json,
                   "print one JSON object per prediction");
  command.footer(
      "Runs the partition and the tile loop of the operation on arrays "
      "without\n"
      "memory, and counts requests, bytes and 128-byte lines as the hardware\n"
      "counters of SW26010-Pro do. Prints the time of these transfers, both "
      "if\n"
      "they overlap (each slave requests the next tile while it waits for "
      "one)\n"
      "and one after another, and, at peak rates, of the accesses to LDM and "
      "of\n"
      "the products of attention. SWAMP_LDM_BYTES is obeyed. Times are at the\n"
      "costs of SW26010-Pro for both machines; assumptions and sources are in\n"
      "toolchain/sunway/README.md.\n"
      "Exit code: 0; 2 for a bad file or option.");
}

}  // namespace

Run add_predict(CLI::App& command) {
  const auto options = std::make_shared<PredictOptions>();
  add_options(command, *options);
  return [options](Machine&) {
    warn_of_unknown_variables();
    print_predictions(*options);
    return 0;
  };
}

}  // namespace swamp::cli
