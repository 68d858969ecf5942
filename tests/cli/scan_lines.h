// Runs `swamp scan --json` on files that a test writes, and reads its lines.
#ifndef SWAMP_TESTS_CLI_SCAN_LINES_H_
#define SWAMP_TESTS_CLI_SCAN_LINES_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/run_program.h"

namespace swamp::test {

using Json = nlohmann::json;

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Folder is a temporary folder to write files into.
class Folder {
 public:
  std::string add(const std::string& name, const std::string& content) {
    const std::filesystem::path path =
        std::filesystem::path(file_.path()).parent_path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }
  std::string path() const {
    return std::filesystem::path(file_.path()).parent_path().string();
  }

 private:
  TemporaryFile file_;  // never written, but its folder is there
};

// scan_lines() scans with --json and returns the lines of the tensors. Expects
// `exit_code`, one line on stderr if that is 2, else none, and totals that fit.
inline std::vector<Json> scan_lines(const std::string& path, int exit_code,
                                    const Environment& environment = {}) {
  const ProgramResult result =
      run_program({"scan", "--json", path}, environment);
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(lines_of(result.err).size(), exit_code == 2 ? 1u : 0u)
      << result.err;
  std::vector<Json> lines;
  std::uint64_t inf = 0;
  std::uint64_t nan = 0;
  for (const std::string& line : lines_of(result.out)) {
    lines.push_back(Json::parse(line));
    EXPECT_EQ(lines.back()["schema"], 1);
    inf += lines.back().value("inf", std::uint64_t{0});
    nan += lines.back().value("nan", std::uint64_t{0});
  }
  if (lines.empty()) {
    ADD_FAILURE() << "no totals";
    return lines;
  }
  const Json totals = lines.back()["totals"];
  lines.pop_back();
  EXPECT_EQ(totals["tensors"], lines.size());
  EXPECT_EQ(totals["errors"], exit_code == 2 ? 1 : 0);
  EXPECT_EQ(totals["inf"], inf);
  EXPECT_EQ(totals["nan"], nan);
  return lines;
}

inline Json scan_one(const std::string& name, const std::string& content,
                     int exit_code, const Environment& environment = {}) {
  Folder folder;
  const std::vector<Json> lines =
      scan_lines(folder.add(name, content), exit_code, environment);
  EXPECT_EQ(lines.size(), 1u);
  return lines.empty() ? Json() : lines[0];
}

inline void expect_found(const Json& json, int inf, int nan, Json first,
                         Json min, Json max, Json absmax) {
  EXPECT_EQ(json["inf"], inf) << json;
  EXPECT_EQ(json["nan"], nan) << json;
  EXPECT_EQ(json["first"], first) << json;
  EXPECT_EQ(json["min"], min) << json;
  EXPECT_EQ(json["max"], max) << json;
  EXPECT_EQ(json["absmax"], absmax) << json;
}

inline std::string header_of(const std::string& dtype, std::size_t count,
                             std::size_t bytes) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":[)" +
         std::to_string(count) + R"(],"data_offsets":[0,)" +
         std::to_string(bytes) + "]}}";
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_CLI_SCAN_LINES_H_
