// The command line, read with CLI11: the commands, and what it says of errors.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "master/cli/command.h"
#include "runtime/variables.h"
#include "swamp/swamp.h"

namespace swamp::cli {
namespace {

constexpr std::size_t kNameColumns = 34;  // of --help

struct Row {
  const char* name;
  const char* help;
  Run (*add)(CLI::App& command);
};
constexpr Row kCommands[] = {
    {"info", "show the machine", add_info},
    {"predict", "predict time and traffic on SW26010-Pro", add_predict},
    {"replay", "run traces of loss scalers", add_replay},
    {"scan", "find inf and nan in files", add_scan},
    {"train", "train a small language model on a text", add_train}};

// check_command() throws UsageError if the first word of the command line is
// neither an option nor a command.
void check_command(const std::string& word) {
  if (word.empty() || word.front() == '-') return;
  if (word == "moe-report") {
    throw UsageError(
        "moe-report: this command is python -m swamp_torch.moe report now");
  }
  std::vector<std::string> names;
  for (const Row& row : kCommands) {
    if (word == row.name) return;
    names.emplace_back(row.name);
  }
  throw UsageError(fmt::format("got '{}', expected one of {} or help{}", word,
                               joined(names),
                               runtime::suggestion(word, names)));
}

// unexpected_text() is the error for a word that the chosen command does not
// take.
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

// A whole number is shown without an exponent.
std::string real_text(double value) {
  return value >= 1 && value < 1e15 ? fmt::format("{:.15g}", value)
                                    : fmt::format("{}", value);
}

}  // namespace

CLI::Option* add_text(CLI::App& command, const char* option, const char* type,
                      const std::string& initial, const std::string& help,
                      std::function<void(const std::string&)> take) {
  return command.add_option_function(option, std::move(take), help)
      ->type_name(type)
      ->default_str(initial);
}

CLI::Option* add_real(CLI::App& command, const char* option, double& value,
                      double low, double high, const char* help) {
  return add_text(command, option, "X", real_text(value), help,
                  [=, &value](const std::string& given) {
                    value = parse_real(option, given, low, high);
                  });
}

Run parse_command_line(int argc, char** argv, std::string& command,
                       std::string& answer) {
  const auto app = std::make_shared<CLI::App>(
      "Mixed-precision training on CPUs, by the programming model of Sunway.",
      "swamp");
  app->set_version_flag("-V,--version",
                        fmt::format("swamp {}", swamp_version()),
                        "print the version and exit");
  app->get_formatter()->column_width(kNameColumns);
  app->require_subcommand(0, 1);
  std::map<std::string, Run> runs;
  std::string names;
  for (const Row& row : kCommands) {
    CLI::App* added = app->add_subcommand(row.name, row.help);
    runs[row.name] = row.add(*added);
    for (CLI::Option* option : added->get_options()) {
      // The formatter indents every line of the text.
      option->description(
          wrapped(option->get_description(), kColumns - kNameColumns));
    }
    if (!names.empty())
      names += &row == std::end(kCommands) - 1 ? " or " : ", ";
    names += row.name;
  }
  // After the commands, which would inherit it.
  app->footer(
      "swamp help COMMAND, or swamp COMMAND --help, lists its options.");
  const auto note_command = [&] {
    const auto parsed = app->get_subcommands();
    if (!parsed.empty()) command = parsed.front()->get_name();
  };

  std::vector<std::string> words(argv + 1, argv + std::max(argc, 1));
  if (words.empty() || words.front() == "help") {
    if (!words.empty()) words.erase(words.begin());
    words.emplace_back("--help");
  }
  check_command(words.front());
  std::reverse(words.begin(), words.end());  // the order that CLI11 expects
  try {
    app->parse(words);
  } catch (const CLI::CallForHelp&) {
    answer = app->help();
    return {};
  } catch (const CLI::CallForVersion& version) {
    answer = fmt::format("{}\n", version.what());
    return {};
  } catch (const CLI::ExtrasError&) {
    note_command();
    throw UsageError(unexpected_text(*app));
  } catch (const CLI::ParseError& error) {
    note_command();
    throw UsageError(error.what());
  } catch (const UsageError&) {
    note_command();
    throw;
  }
  note_command();
  if (command.empty()) throw UsageError("no command given, expected " + names);
  return [app, run = runs[command]](Machine& machine) { return run(machine); };
}

}  // namespace swamp::cli
