#include "master/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "master/cli/predict_arguments.h"
#include "master/cli/train_arguments.h"

namespace swamp::cli {
namespace {

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
  PredictOptions predict_options;
  ReplayOptions replay_options;
  ScanOptions scan_options;
  CLI::App app("Mixed-precision training on CPUs, in the way of Sunway.",
               "swamp");
  app.set_version_flag("--version", fmt::format("swamp {}", swamp_version()),
                       "print the version and exit");
  app.get_formatter()->column_width(36);
  app.require_subcommand(0, 1);
  CLI::App* info = app.add_subcommand("info", "show the machine");
  info->add_flag("--json", info_options.json, "print one JSON object");
  CLI::App* predict = app.add_subcommand(
      "predict", "say what an operation would cost on SW26010-Pro");
  add_predict_options(predict, predict_options);
  CLI::App* replay = app.add_subcommand("replay", "run traces of loss scalers");
  add_replay_options(replay, replay_options);
  CLI::App* scan = app.add_subcommand("scan", "look for inf and nan in files");
  add_scan_options(scan, scan_options);
  CLI::App* train = app.add_subcommand(
      "train", "train a small language model on a text, end to end");
  TrainArguments train_arguments(train);
  TrainOptions train_options;

  try {
    app.parse(argc, argv);
    if (chosen_command(app).empty()) {
      throw UsageError(
          "no command given, expected info, predict, replay, scan or train");
    }
    if (train->parsed()) train_options = train_arguments.settle();
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
  if (predict->parsed()) return predict_options;
  if (replay->parsed()) return replay_options;
  if (scan->parsed()) return scan_options;
  return train_options;
}

}  // namespace swamp::cli
