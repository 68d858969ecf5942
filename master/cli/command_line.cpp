// The options of all commands. CLI11 is slow to compile: it is included here
// and nowhere else.
#include "master/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <limits>

#include "master/cli/number.h"

namespace swamp::cli {
namespace {

// Large enough for every run, small enough that no sum of them overflows.
constexpr std::uint64_t kMany = 1000000000;
// A scale and its inverse must both be normal float32 numbers.
constexpr double kMinScale = 0x1p-126;
constexpr double kMaxScale = 0x1p+126;

ScalarType parse_dtype(const std::string& text) {
  for (const ScalarType dtype : {kFloat16, kBFloat16, kFloat32}) {
    if (text == dtype_name(dtype)) return dtype;
  }
  throw UsageError(fmt::format(
      "--dtype: got '{}', expected float16, bfloat16 or float32", text));
}

// Adder adds options to one command. Their values go through our own parsers,
// so that their messages say what was expected.
class Adder {
 public:
  explicit Adder(CLI::App* command) : command_(command) {}

  CLI::Option* text(const char* name, const char* type, std::string shown,
                    const char* help,
                    std::function<void(const std::string&)> take) {
    return command_->add_option_function<std::string>(name, take, help)
        ->type_name(type)
        ->default_str(shown);
  }

  template <typename Integer>
  CLI::Option* integer(const char* name, Integer& value, std::uint64_t low,
                       std::uint64_t high, const char* help) {
    return text(
        name, "N", fmt::to_string(value), help,
        [=, &value](const std::string& given) {
          value = static_cast<Integer>(parse_integer(name, given, low, high));
        });
  }

  CLI::Option* real(const char* name, const char* shown, double& value,
                    double low, double high, const char* help) {
    return text(name, "X", shown, help, [=, &value](const std::string& given) {
      value = parse_real(name, given, low, high);
    });
  }

 private:
  CLI::App* command_;
};

struct ScaleOptions {
  CLI::Option* constant;
  CLI::Option* initial;
  CLI::Option* window;
};

ScaleOptions add_scale_options(Adder& add, TrainOptions& options) {
  ScaleOptions scale;
  scale.constant =
      add.real("--loss-scale", "", options.scale, kMinScale, kMaxScale,
               "constant loss scale, instead of a dynamic one");
  scale.initial =
      add.real("--initial-loss-scale", "4294967296", options.scale, kMinScale,
               kMaxScale, "first dynamic loss scale (float16 only)");
  scale.window = add.integer(
      "--loss-scale-window", options.scale_window, 1,
      std::numeric_limits<std::int32_t>::max(),
      "clean steps after which a dynamic scale doubles (float16 only)");
  scale.constant->excludes(scale.initial)->excludes(scale.window);
  return scale;
}

// settle_scale() is what the options of the scale mean together.
void settle_scale(const ScaleOptions& given, TrainOptions& options) {
  if (given.constant->count() > 0) {
    options.dynamic_scale = false;
  } else if (options.dtype != kFloat16) {
    for (const CLI::Option* option : {given.initial, given.window}) {
      if (option->count() == 0) continue;
      throw UsageError(
          fmt::format("{}: got --dtype {}, expected float16, the only one that "
                      "scales dynamically",
                      option->get_name(), dtype_name(options.dtype)));
    }
    options.dynamic_scale = false;
    options.scale = 1.0;
  }
}

ScaleOptions add_train_options(CLI::App* train, TrainOptions& options) {
  Adder add(train);
  add.text("TEXT", "FILE", options.text, "the text to learn",
           [&](const std::string& text) { options.text = text; });
  add.text("--dtype", "TYPE", dtype_name(options.dtype),
           "float16, bfloat16 or float32: of the model and its gradients",
           [&](const std::string& text) { options.dtype = parse_dtype(text); });
  add.integer("--steps", options.steps, 1, kMany, "steps to train");
  add.integer("--batch", options.batch, 1, 4096, "examples in a step");
  add.integer("--seed", options.seed, 0,
              std::numeric_limits<std::uint64_t>::max(),
              "of the first weights and the order of the examples");
  add.real("--lr", "0.001", options.lr, 1e-30, 1e30, "Adam's learning rate");
  const ScaleOptions scale = add_scale_options(add, options);
  add.text("--log", "FILE", "", "write one JSON object a step",
           [&](const std::string& text) {
             if (text.empty()) {
               throw UsageError("--log: got '', expected the name of a file");
             }
             options.log = text;
           });
  add.integer("--log-interval", options.log_interval, 1, kMany,
              "print every Nth step");
  return scale;
}

void add_replay_options(CLI::App* replay, ReplayOptions& options) {
  replay
      ->add_option("FILE", options.files,
                   "traces, one JSON object a line (tests/golden/FORMAT.md)")
      ->type_name("")
      ->required();
  replay->add_flag("--check", options.check,
                   "compare with the file's own rows, digests and events");
  replay->footer(
      "Runs swamp's scaler of the same name and prints one JSON line a trace;\n"
      "with --check prints what differs and ends with how many passed and\n"
      "failed. Records of other kinds are skipped.\n"
      "Exit code: 0; 1 when a check fails; 2 for a bad file or option.");
}

void add_scan_options(CLI::App* scan, ScanOptions& options) {
  scan->add_option("FILE", options.files,
                   "safetensors, *.index.json, npy or npz, or a folder of them")
      ->type_name("")
      ->required();
  scan->add_flag("--all", options.all, "list clean tensors, too");
  scan->add_flag("--json", options.json, "print one JSON object a tensor");
  scan->add_flag("--recursive", options.recursive, "also folders in folders");
  scan->footer(
      "Lists every tensor that holds inf or nan: how many, the flat index (in "
      "C\n"
      "order) of the first, and the extremes of what is finite; then a line a\n"
      "file. Integers are listed and not scanned. Headers are checked before\n"
      "they are believed: a safetensors buffer must be covered exactly.\n"
      "Exit code: 0 clean, 1 inf or nan found, 2 a bad file or option; a bad\n"
      "file does not keep the others from being scanned.");
}

// chosen_command() is the name of the command that was given, "" for none.
std::string chosen_command(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? "" : commands.front()->get_name();
}

}  // namespace

CommandLine parse_command_line(int argc, char** argv) {
  InfoOptions info_options;
  ReplayOptions replay_options;
  ScanOptions scan_options;
  TrainOptions train_options;
  CLI::App app("Mixed-precision training on CPUs, in the way of Sunway.",
               "swamp");
  app.set_version_flag("--version", fmt::format("swamp {}", swamp_version()),
                       "print the version and exit");
  app.get_formatter()->column_width(36);
  app.require_subcommand(0, 1);
  CLI::App* info = app.add_subcommand("info", "show the machine");
  info->add_flag("--json", info_options.json, "print one JSON object");
  CLI::App* replay = app.add_subcommand("replay", "run traces of loss scalers");
  add_replay_options(replay, replay_options);
  CLI::App* scan = app.add_subcommand("scan", "look for inf and nan in files");
  add_scan_options(scan, scan_options);
  CLI::App* train = app.add_subcommand(
      "train", "train a small language model on a text, end to end");
  const ScaleOptions scale = add_train_options(train, train_options);

  try {
    app.parse(argc, argv);
    if (chosen_command(app).empty()) {
      throw UsageError(
          "no command given, expected info, replay, scan or train");
    }
    settle_scale(scale, train_options);
  } catch (const CLI::CallForHelp&) {
    return Answer{app.help()};
  } catch (const CLI::CallForVersion& version) {
    return Answer{fmt::format("{}\n", version.what())};
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what(), chosen_command(app));
  } catch (const UsageError& error) {
    throw UsageError(error.what(), chosen_command(app));
  }
  if (info->parsed()) return info_options;
  if (replay->parsed()) return replay_options;
  if (scan->parsed()) return scan_options;
  return train_options;
}

}  // namespace swamp::cli
