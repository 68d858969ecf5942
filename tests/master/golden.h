// The golden records, which are lines of JSON: how numbers, bits and arrays are
// written in them. tests/golden/FORMAT.md describes the traces; record.py and
// exact.py beside the others make them.
#ifndef SWAMP_TESTS_MASTER_GOLDEN_H_
#define SWAMP_TESTS_MASTER_GOLDEN_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/formats.h"
#include "swamp/rows.h"

namespace swamp::test {

using Json = nlohmann::json;

inline std::vector<Json> read_golden(const std::string& name) {
  const std::string path = std::string(SWAMP_GOLDEN_DIR) + "/" + name;
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(Json::parse(line));
  }
  return lines;
}

inline double number(const Json& text) {
  return std::strtod(text.get_ref<const std::string&>().c_str(), nullptr);
}

inline ScalarType type_of(const Json& dtype) {
  return dtype == "f16" || dtype == "float16"     ? kFloat16
         : dtype == "bf16" || dtype == "bfloat16" ? kBFloat16
                                                  : kFloat32;
}

// bit_patterns() reads bits that blanks separate, words() those of elements of
// a type, which nothing separates.
inline std::vector<std::uint64_t> bit_patterns(const Json& text) {
  std::istringstream parts(text.get<std::string>());
  std::vector<std::uint64_t> bits;
  for (std::string part; parts >> part;) {
    bits.push_back(std::stoull(part, nullptr, 16));
  }
  return bits;
}
inline std::vector<std::uint32_t> words(const Json& from, ScalarType type) {
  const std::string text = from;
  const std::size_t digits = 2 * format_of(type).bytes;
  std::vector<std::uint32_t> all;
  for (std::size_t i = 0; i < text.size(); i += digits) {
    all.push_back(static_cast<std::uint32_t>(
        std::stoul(text.substr(i, digits), nullptr, 16)));
  }
  return all;
}
inline std::vector<float> floats(const Json& from) {
  std::vector<float> all;
  for (const std::uint32_t bits : words(from, kFloat32)) {
    all.push_back(float_from_bits(bits));
  }
  return all;
}

// Elements is an array of one type, and its memory.
class Elements {
 public:
  Elements(ScalarType type, std::size_t count)
      : format_(&format_of(type)), count_(count), memory_(count + 1) {}
  template <class Word>
  Elements(ScalarType type, const std::vector<Word>& bits)
      : Elements(type, bits.size()) {
    set_all(bits);
  }

  std::size_t count() const { return count_; }
  Tensor tensor() { return {memory_.data(), count_, format_->type}; }
  Matrix matrix(std::size_t rows) {
    return {memory_.data(), rows, count_ / rows, format_->type};
  }
  std::uint64_t bits(std::size_t i) const {
    return load_bits(*format_, memory_.data(), i);
  }
  double value(std::size_t i) const { return value_of(*format_, bits(i)); }
  void set_bits(std::size_t i, std::uint64_t bits) {
    store_bits(*format_, memory_.data(), i, bits);
  }
  template <class Word>
  void set_all(const std::vector<Word>& bits) {
    ASSERT_EQ(bits.size(), count_);
    for (std::size_t i = 0; i < count_; ++i) set_bits(i, bits[i]);
  }
  std::vector<std::uint64_t> all_bits() const {
    std::vector<std::uint64_t> all;
    for (std::size_t i = 0; i < count_; ++i) all.push_back(bits(i));
    return all;
  }

 private:
  const Format* format_;
  std::size_t count_;
  std::vector<std::uint64_t> memory_;  // wide enough for any format
};

// StepTrace is the input of a trace of any loss scaler.
struct StepTrace {
  std::string id, scaler;
  std::string params;          // JSON
  std::vector<bool> overflow;  // by step
  float found_inf_value;
};

inline std::vector<StepTrace> read_step_traces() {
  std::vector<StepTrace> traces;
  for (const auto& file :
       std::filesystem::directory_iterator(SWAMP_GOLDEN_DIR)) {
    if (file.path().extension() != ".jsonl") continue;
    for (const Json& line : read_golden(file.path().filename())) {
      if (line.contains("kind")) continue;
      StepTrace trace{line.at("id"), line.at("scaler"),
                      line.at("params").dump(),
                      std::vector<bool>(line.at("n").get<std::size_t>()),
                      line.value("found_inf_value", 1.0f)};
      // An entry is a step, [start, count] or [start, count, stride].
      for (const Json& entry : line.at("overflow")) {
        std::vector<std::size_t> run = {0, 1, 1};
        if (entry.is_array()) {
          for (std::size_t i = 0; i < entry.size(); ++i) run.at(i) = entry[i];
        } else {
          run[0] = entry;
        }
        for (std::size_t i = 0; i < run[1]; ++i) {
          trace.overflow.at(run[0] + i * run[2]) = true;
        }
      }
      traces.push_back(trace);
    }
  }
  return traces;
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MASTER_GOLDEN_H_
