#include "tests/cli/training.h"

#include <cstdint>
#include <stdexcept>

namespace swamp::test {
namespace {

// value_after() returns the word after the first words of a line.
std::string value_after(const std::string& text, const std::string& words) {
  const std::string marker = "\n" + words + " ";
  const std::size_t place = text.find(marker);
  if (place == std::string::npos) {
    throw std::runtime_error("no '" + words + "' in the output:\n" + text);
  }
  const std::size_t start = place + marker.size();
  return text.substr(start, text.find_first_of(" \n", start) - start);
}

}  // namespace

Training run_training(const Words& arguments, const Environment& environment) {
  const TemporaryFile text(sample_text());
  const TemporaryFile log;
  const ProgramResult result =
      run_program(Words{"train", text.path(), "--log", log.path()} + arguments,
                  environment);
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
  training.weights = value_after(result.out, "weights");
  const std::string loss = value_after(result.out, "final loss");
  training.final_loss = std::stod(loss == "none:" ? "nan" : loss);
  training.skipped = std::stoll(value_after(result.out, "skipped"));
  const std::string underflow = value_after(result.out, "underflow");
  training.underflow = std::stoll(underflow);
  training.activation_underflow = std::stoll(value_after(
      result.out, "underflow " + underflow + " parameter-gradient elements,"));
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
