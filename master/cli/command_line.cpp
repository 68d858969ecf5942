// The command line, read with CLI11. CLI11 is slow to compile: only this source
// includes it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "master/cli/command.h"
#include "runtime/variables.h"
#include "swamp/swamp.h"

namespace swamp::cli {
namespace {

constexpr std::size_t kNameColumns = 34;  // of --help

void add_option(Option& option, CLI::App& command) {
  // The formatter indents every line of the text.
  const std::string help = wrapped(option.help, kColumns - kNameColumns);
  if (option.flag != nullptr) {
    command.add_flag_callback(
        option.name, [&option] { *option.flag = option.given = true; }, help);
    return;
  }
  CLI::Option* added = command.add_option(
      option.name,
      [&option](const CLI::results_t& values) {
        option.given = true;
        for (const std::string& value : values) option.take(value);
        return true;
      },
      help);
  added->type_name(option.type)->default_str(option.initial);
  added->required(option.required);
  if (!option.repeated) return;
  if (option.name.front() == '-') {
    added->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  } else {
    added->expected(CLI::detail::expected_max_vector_size);
  }
}

// check_command() throws UsageError if the first word of the command line is
// neither an option nor a command.
void check_command(const std::string& word,
                   const std::vector<Command>& commands) {
  if (word.empty() || word.front() == '-') return;
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (word == command.name) return;
    names.emplace_back(command.name);
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

}  // namespace

std::string parse_command_line(int argc, char** argv,
                               std::vector<Command>& commands,
                               const Command*& chosen) {
  CLI::App app(
      "Mixed-precision training on CPUs, by the programming model of Sunway.",
      "swamp");
  app.set_version_flag("-V,--version", fmt::format("swamp {}", swamp_version()),
                       "print the version and exit");
  app.get_formatter()->column_width(kNameColumns);
  app.require_subcommand(0, 1);
  app.footer("swamp help COMMAND, or swamp COMMAND --help, lists its options.");
  std::string names;
  for (Command& command : commands) {
    CLI::App* added = app.add_subcommand(command.name, command.help);
    added->footer(command.footer);
    for (Option& option : command.options) add_option(option, *added);
    if (!names.empty()) names += &command == &commands.back() ? " or " : ", ";
    names += command.name;
  }
  const auto note_chosen = [&] {
    const auto parsed = app.get_subcommands();
    for (const Command& command : commands) {
      if (!parsed.empty() && parsed.front()->get_name() == command.name) {
        chosen = &command;
      }
    }
  };

  std::vector<std::string> words(argv + 1, argv + std::max(argc, 1));
  if (words.empty() || words.front() == "help") {
    if (!words.empty()) words.erase(words.begin());
    words.emplace_back("--help");
  }
  check_command(words.front(), commands);
  std::reverse(words.begin(), words.end());  // the order that CLI11 expects
  try {
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::CallForVersion& version) {
    return fmt::format("{}\n", version.what());
  } catch (const CLI::ExtrasError&) {
    note_chosen();
    throw UsageError(unexpected_text(app));
  } catch (const CLI::ParseError& error) {
    note_chosen();
    throw UsageError(error.what());
  } catch (const UsageError&) {
    note_chosen();
    throw;
  }
  note_chosen();
  if (chosen == nullptr) {
    throw UsageError("no command given, expected " + names);
  }
  return "";
}

}  // namespace swamp::cli
