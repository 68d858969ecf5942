#include "master/cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "master/cli/predict_arguments.h"
#include "master/cli/train_arguments.h"
#include "runtime/variables.h"

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
  scan->add_flag("--json", options.json,
                 "print one JSON object a tensor, then the totals");
  scan->add_flag("--recursive", options.recursive, "also folders in folders");
  scan->footer(
      "Lists every tensor that holds inf or nan: how many, the flat index (in "
      "C\n"
      "order) of the first, and the extremes of what is finite; then a line a\n"
      "file. A complex number counts as two floats. Integers, booleans and\n"
      "text are listed and not scanned. Headers are checked before they are\n"
      "believed: a safetensors buffer must be covered exactly.\n"
      "Exit code: 0 clean, 1 inf or nan found, 2 a bad file or option, or a\n"
      "tensor of another dtype, which is listed and cannot be scanned. All\n"
      "other files are scanned.");
}

// check_command() throws UsageError if the first word of the command line is
// neither an option nor a command.
void check_command(const std::string& word, const CLI::App& app) {
  if (word.empty() || word.front() == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
    if (word == names.back()) return;
  }
  throw UsageError(fmt::format("got '{}', expected one of {} or help{}", word,
                               fmt::join(names, ", "),
                               runtime::suggestion(word, names)));
}

// unexpected_text() is about words that the chosen command does not take.
std::string unexpected_text(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  const CLI::App& command = commands.empty() ? app : *commands.front();
  const std::string word = command.remaining().empty()
                               ? app.remaining(true).front()
                               : command.remaining().front();
  if (word.size() < 2 || word.front() != '-') {
    return fmt::format("got '{}', expected no more words", word);
  }
  std::vector<std::string> names;
  for (const CLI::Option* option :
       command.get_options([](const CLI::Option*) { return true; })) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return fmt::format("got '{}', expected an option of swamp {}{}", word,
                     command.get_name(), runtime::suggestion(word, names));
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
  app.set_version_flag("-V,--version", fmt::format("swamp {}", swamp_version()),
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
  app.footer("swamp help COMMAND, or swamp COMMAND --help, lists its options.");

  std::vector<std::string> words(argv + 1, argv + std::max(argc, 1));
  if (words.empty() || words.front() == "help") {
    if (!words.empty()) words.erase(words.begin());
    words.push_back("--help");
  }
  try {
    check_command(words.front(), app);
    std::reverse(words.begin(), words.end());  // as CLI11 wants them
    app.parse(words);
    if (chosen_command(app).empty()) {
      throw UsageError(
          "no command given, expected info, predict, replay, scan or train");
    }
    if (train->parsed()) train_options = train_arguments.settle();
  } catch (const CLI::CallForHelp&) {
    return Answer{app.help()};
  } catch (const CLI::CallForVersion& version) {
    return Answer{fmt::format("{}\n", version.what())};
  } catch (const CLI::ExtrasError&) {
    throw UsageError(unexpected_text(app), chosen_command(app));
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
