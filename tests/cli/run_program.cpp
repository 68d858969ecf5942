#include "tests/cli/run_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "support/errors.h"

namespace swamp::test {
namespace {

std::vector<std::string> child_environment(const Environment& added) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::strncmp(*variable, "SWAMP_", 6) == 0) continue;
    const std::string text = *variable;
    const std::string name = text.substr(0, text.find('='));
    if (std::any_of(added.begin(), added.end(),
                    [&](const auto& own) { return own.first == name; })) {
      continue;
    }
    variables.emplace_back(*variable);
  }
  for (const auto& [name, value] : added) {
    variables.push_back(name + "=" + value);
  }
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// wait_for() returns the status of a child, and kills a child that is late.
int wait_for(pid_t child, int kill_after_ms,
             std::function<bool()> interrupt_if) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(kill_after_ms);
  int status = 0;
  while (kill_after_ms >= 0 || interrupt_if) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    if (interrupt_if) {
      kill(child, SIGSTOP);
      const bool interrupts = interrupt_if();
      kill(child, SIGCONT);
      if (interrupts) {
        kill(child, SIGINT);
        interrupt_if = {};
      }
    }
    if (kill_after_ms >= 0 && Clock::now() >= deadline) {
      kill(child, SIGKILL);
      break;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  if (waitpid(child, &status, 0) != child) {
    throw std::runtime_error("waitpid failed");
  }
  return status;
}

}  // namespace

const char* const kProgram = SWAMP_PROGRAM;

Words::Words(const char* line) {
  std::istringstream stream(line);
  for (std::string word; stream >> word;) {
    push_back(word == "''" ? "" : word);
  }
}

ProgramResult run_program(const Words& arguments,
                          const Environment& environment,
                          const std::string& out_path) {
  return run_command(Words{kProgram} + arguments, environment, out_path);
}

ProgramResult run_command(const Words& given, const Environment& environment,
                          const std::string& out_path, int kill_after_ms,
                          std::function<bool()> interrupt_if) {
  const TemporaryFile out_file;
  const TemporaryFile err_file;
  const std::string& out = out_path.empty() ? out_file.path() : out_path;
  std::vector<std::string> words = given;
  std::vector<std::string> variables = child_environment(environment);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                   O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(),
                                   O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO,
                                   err_file.path().c_str(), O_WRONLY | O_CREAT,
                                   0600);
  pid_t child = 0;
  const int failure =
      posix_spawn(&child, words[0].c_str(), &actions, nullptr,
                  pointers(words).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    throw std::runtime_error(words[0] + ": " + std::strerror(failure));
  }
  const int status = wait_for(child, kill_after_ms, std::move(interrupt_if));
  ProgramResult result;
  result.exit_code =
      WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (out_path.empty()) result.out = out_file.read();
  result.err = err_file.read();
  return result;
}

std::string output_of(const Words& arguments, const Environment& environment) {
  const ProgramResult result = run_program(arguments, environment);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  return result.out;
}

void expect_late_error(const ProgramResult& result,
                       const std::vector<std::string>& parts, Hint hint) {
  EXPECT_EQ(result.exit_code, 2);
  const std::vector<std::string> lines = lines_of(result.err);
  ASSERT_EQ(lines.size(), hint == Hint::help ? 2u : 1u) << result.err;
  EXPECT_EQ(lines[0].rfind("swamp: ", 0), 0u) << lines[0];
  EXPECT_TRUE(has_words(lines[0], parts));
  if (hint == Hint::none) return;
  EXPECT_EQ(lines[1].rfind("Try 'swamp ", 0), 0u) << lines[1];
  EXPECT_TRUE(has_words(lines[1], {"--help'."}));
}

void expect_error(const ProgramResult& result,
                  const std::vector<std::string>& parts, Hint hint) {
  EXPECT_EQ(result.out, "");
  expect_late_error(result, parts, hint);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string test_name(std::string text) {
  for (char& character : text) {
    if (std::isalnum(static_cast<unsigned char>(character)) == 0) {
      character = '_';
    }
  }
  return text.substr(std::min(text.find_first_not_of('_'), text.size()));
}

TemporaryFile::TemporaryFile() {
  std::string name =
      (std::filesystem::temp_directory_path() / "swamp_cli_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("no temporary folder");
  }
  folder_ = name;
  path_ = folder_ + "/file";
}

TemporaryFile::TemporaryFile(const std::string& content) : TemporaryFile() {
  std::ofstream(path_, std::ios::binary) << content;
}

TemporaryFile::~TemporaryFile() {
  std::error_code none;
  std::filesystem::remove_all(folder_, none);
}

std::string TemporaryFile::read() const { return read_file(path_); }

}  // namespace swamp::test
