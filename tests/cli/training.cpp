#include "tests/cli/training.h"

#include <cstdint>
#include <regex>
#include <stdexcept>

namespace swamp::test {
namespace {

std::string captured(const std::string& text, const char* pattern) {
  std::smatch match;
  if (!std::regex_search(text, match, std::regex(pattern))) {
    throw std::runtime_error(std::string("not in the output: ") + pattern +
                             "\n" + text);
  }
  return match[1];
}

}  // namespace

Training run_training(const std::vector<std::string>& arguments,
                      const Environment& environment) {
  const TemporaryFile text(sample_text());
  const TemporaryFile log;
  std::vector<std::string> all = {"train", text.path(), "--log", log.path()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const ProgramResult result = run_program(all, environment);
  if (result.exit_code != 0 || !result.err.empty()) {
    throw std::runtime_error("swamp train: exit code " +
                             std::to_string(result.exit_code) + ": " +
                             result.err);
  }
  Training training;
  training.out = result.out;
  for (const std::string& line : lines_of(log.read())) {
    training.steps.push_back(nlohmann::json::parse(line));
  }
  training.weights = captured(result.out, "\nweights ([0-9a-f]{16})\n");
  training.final_loss = std::stod(captured(result.out, "\nfinal loss ([^ ]+)"));
  training.skipped = std::stoll(captured(result.out, "\nskipped (\\d+) of"));
  training.underflow = std::stoll(captured(result.out, "\nunderflow (\\d+) "));
  return training;
}

std::string sample_text() {
  const std::vector<std::string> words = {
      "the",   "slave", "core",  "reads", "a",      "tile",  "of",
      "swamp", "water", "and",   "moves", "weight", "after", "gradient",
      "when",  "no",    "value", "is",    "lost",   "in",    "half"};
  std::string text;
  std::uint32_t state = 12345;
  while (text.size() < 20000) {
    state = state * 1664525u + 1013904223u;
    text += words[(state >> 16) % words.size()];
    text += (state >> 28) == 0 ? ".\n" : " ";
  }
  return text;
}

}  // namespace swamp::test
