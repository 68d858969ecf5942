// `swamp replay` of blocks, casts and products of codes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/errors.h"
#include "tests/cli/run_program.h"

namespace swamp::test {

using Json = nlohmann::json;

namespace {

std::string golden(const std::string& name) {
  return std::string(SWAMP_GOLDEN_DIR) + "/" + name + ".jsonl";
}

// golden_folder() returns the paths of its files.
std::vector<std::string> golden_folder(const std::string& name) {
  std::vector<std::string> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(SWAMP_GOLDEN_DIR + ("/" + name))) {
    if (entry.path().extension() == ".jsonl") {
      paths.push_back(entry.path().string());
    }
  }
  return paths;
}

TEST(ReplayCodes, EveryGoldenRecordMatches) {
  std::vector<std::string> arguments = {"replay", "--check"};
  for (const char* folder : {"float8/blocks", "float8/products", "float8"}) {
    for (const std::string& path : golden_folder(folder)) {
      arguments.push_back(path);
    }
  }
  EXPECT_EQ(arguments.size(), 14u);
  // Inputs and bytes of stochastic rounding are of other kinds.
  for (const char* transfer : {"view", "copy", "check"}) {
    EXPECT_EQ(output_of(arguments, {{"SWAMP_TRANSFER", transfer},
                                    {"SWAMP_LDM_BYTES", "524288"}}),
              "69 skipped\n160 passed, 0 failed\n");
  }
}

// Every file of golden data can be replayed, alone.
TEST(ReplayCodes, OtherKindsAreSkipped) {
  for (const std::string& path : golden_folder("rows")) {
    EXPECT_TRUE(has_words(output_of({"replay", "--check", path}),
                          {" skipped\n0 passed, 0 failed\n"}));
  }
}

// Every result of the first record of each kind is spoiled in turn.
TEST(ReplayCodes, CheckFindsEveryDifference) {
  const struct {
    const char* file;
    std::vector<const char*> results;
  } rows[] = {
      {"blocks/te_mxfp8", {"scales", "codes"}},
      {"blocks/torchao_mx", {"scales", "codes"}},
      {"blocks/te_nvfp4",
       {"global_amax", "scales", "codes", "codes_stochastic"}},
      {"blocks/te_block", {"scale_inv", "codes"}},
      {"blocks/te_current", {"scale", "scale_inv", "codes"}},
      {"blocks/torchao_float8", {"scale", "codes"}},
      {"blocks/microxcaling", {"values"}},
      {"blocks/te_rht", {"bf16"}},
      {"products/exact", {"sums", "out"}},
      {"products/nvfp4", {"out"}},
  };
  const std::string inputs = read_file(golden("float8/blocks/inputs"));
  for (const auto& row : rows) {
    SCOPED_TRACE(row.file);
    const Json record = Json::parse(
        lines_of(read_file(golden("float8/" + std::string(row.file))))[0]);
    const Json without = [&] {
      Json rest = record;
      for (const char* result : row.results) rest.erase(result);
      return rest;
    }();
    std::string text = record.dump() + "\n";
    for (const char* result : row.results) {
      Json bad = record;
      std::string digits = bad[result];
      digits[digits.size() / 2] = digits[digits.size() / 2] == '1' ? '2' : '1';
      bad[result] = digits;
      text += bad.dump() + "\n";
    }
    const TemporaryFile file(text);
    const std::filesystem::path folder =
        std::filesystem::path(file.path()).parent_path();
    std::ofstream(folder / "inputs.jsonl") << inputs;
    const ProgramResult result =
        run_program({"replay", "--check", file.path()});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    const auto lines = lines_of(result.out);
    ASSERT_EQ(lines.size(), row.results.size() + 1) << result.out;
    for (std::size_t i = 0; i < row.results.size(); ++i) {
      EXPECT_TRUE(has_words(
          lines[i], {"of line " + std::to_string(i + 2) + ": " + row.results[i],
                     ": expected ", ", found "}))
          << lines[i];
    }
    EXPECT_EQ(lines.back(),
              "1 passed, " + std::to_string(row.results.size()) + " failed");
    // The results are printed, and --check needs them.
    std::ofstream(file.path()) << without.dump();
    EXPECT_EQ(Json::parse(output_of({"replay", file.path()})), record);
    expect_error(run_program({"replay", "--check", file.path()}),
                 {":1: " + std::string(row.results[0]) + ": missing"});
  }
}

// Records as other people's code writes them, with their own input.
std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

Json own_input(int rows, int columns, const char* type,
               const std::string& digits) {
  return {{"rows", rows}, {"cols", columns}, {type, digits}};
}

const Json& own_block() {  // 1 and -2 in turn
  static const Json block = {
      {"recipe", "torchao.mx"},
      {"mode", "floor"},
      {"fmt", "e4m3"},
      {"input", own_input(1, 64, "f32", repeated("3f800000c0000000", 32))},
      {"scales", "7878"},
      {"codes", repeated("70f8", 32)}};
  return block;
}

const Json& own_cast() {
  static const Json cast = {{"cast", "float8_e5m2"},
                            {"policy", "overflow"},
                            {"scale", "40000000"},
                            {"input", own_input(1, 3, "bf16", "3f807f80ffc0")},
                            {"codes", "407cff"}};
  return cast;
}

const Json& own_random_cast() {  // the largest random bits round up
  static const Json cast = {
      {"cast", "e2m1"},
      {"rounding", "stochastic"},
      {"random_octets", "00ff"},
      {"input", own_input(1, 2, "f32", "3f400000c0200000")},
      {"codes", "d1"}};
  return cast;
}

const Json& own_product() {  // 2 * (1 * 1 + 1 * 2), 2 * (1 * 1 - 1 * 2)
  static const Json product = {{"M", 1},
                               {"N", 2},
                               {"K", 2},
                               {"a", "e4m3"},
                               {"codes_a", "3838"},
                               {"scales_a", "80"},
                               {"b", "e4m3"},
                               {"codes_b", "384038c0"},
                               {"scales_b", "7f7f"},
                               {"out", "40c00000c0000000"}};
  return product;
}

TEST(ReplayCodes, CheckShowsTheFirstWrongBlock) {
  const std::string block =
      "; block of columns 32 to 63: inputs " + repeated("3f800000c0000000", 16);
  const struct {
    const Json& record;
    const char* field;
    std::string value, message;
  } rows[] = {
      {own_block(), "codes",
       repeated("70f8", 16) + "70f971f8" + repeated("70f8", 14),
       "torchao.mx of line 1: codes of row 0, column 33: expected f8 (-256), "
       "found f9 (-288); input c0000000 (-2)" +
           block + ", scale 78 (0.0078125), expected " + repeated("70f8", 16) +
           ", found 70f971f8" + repeated("70f8", 14)},
      {own_block(), "scales", "7879",
       "torchao.mx of line 1: scales of row 0, column 32: expected 78 "
       "(0.0078125), found 79 (0.015625); input 3f800000 (1)" +
           block},
      {own_block(), "scales", "78",
       "torchao.mx of line 1: scales: expected 2 numbers, found 1"},
      {own_cast(), "codes", "407bff",
       "cast of line 1: codes of row 0, column 1: expected 7c (inf), found 7b "
       "(57344); input 7f80 (inf)"},
      {own_random_cast(), "codes", "c1",
       "cast of line 1: codes of row 0, column 0: expected d1 (0.5, -3), found "
       "c1 (0.5, -2); input 3f400000 (0.75), c0200000 (-2.5)"},
      {own_product(), "out", "40c00000c0000001",
       "product of MX of line 1: out of row 0, column 1: expected c0000000 "
       "(-2), found c0000001 (-2.0000002); codes of a 3838; codes of b 38c0"},
  };
  for (const auto& row : rows) {
    Json record = row.record;
    const TemporaryFile good(record.dump());
    EXPECT_EQ(output_of({"replay", "--check", good.path()}),
              "1 passed, 0 failed\n");
    record[row.field] = row.value;
    const TemporaryFile bad(record.dump());
    const ProgramResult result = run_program({"replay", "--check", bad.path()});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "FAILED " + row.message + "\n0 passed, 1 failed\n");
  }
}

TEST(ReplayCodes, BadRecordsNameTheField) {
  const Json block = Json::parse(
      lines_of(read_file(golden("float8/blocks/torchao_mx"))).front());
  const Json exact =
      Json::parse(lines_of(read_file(golden("float8/products/exact"))).front());
  const struct {
    Json record;
    const char* field;
    Json value;
    std::string words;
  } rows[] = {
      {block, "input", "narrow",
       "input: got 'narrow', expected a matrix or a n"},
      {block, "input", 3, "input: got '3', expected a string"},
      {block, "input", own_input(1, 2, "f32", "3f8000003f80000"),
       "f32: got '\"3f8000003f80000\"', expected hexadecimal numbers of 8"},
      {block, "input", own_input(1, 2, "f32", "3f800000"),
       "f32: got 1 numbers, expected 1 x 2"},
      {block, "input", own_input(1, 9000, "bf16", ""), "cols: got '9000'"},
      {block, "input", own_input(1, 2, "f64", ""), "bf16: missing"},
      {own_block(), "fmt", "float8_e8m0fnu", "got 12 (float8_e8m0fnu)"},
      {own_cast(), "cast", "float16",
       "cast: got '\"float16\"', expected a for"},
      {own_cast(), "rounding", "odd", "expected one of nearest_even, nearest_"},
      {own_cast(), "policy", "clip",
       "policy: got '\"clip\"', expected one of s"},
      {own_cast(), "rounding", "stochastic", "random_octets: missing"},
      {own_random_cast(), "random_octets", "00",
       "got '1', expected one of each"},
      {own_cast(), "scale", "00000000", "scale: got 0"},
      {own_cast(), "codes", "zz", "codes: got '\"zz\"', expected hexadecimal"},
      {own_product(), "scales_a", "8080", "a.scales.count: got 2"},
      {own_product(), "scales_b", 3, "scales_b: got '3', expected a string"},
      {block, "recipe", "torchao.my", "expected a recipe of blocks"},
      {block, "mode", "down", "mode: got '\"down\"', expected one of the"},
      {block, "fmt", "e9", "fmt: got '\"e9\"', expected a format"},
      {block, "codes", "abc", "codes: got '\"abc\"', expected hexadecimal"},
      {exact, "M", 1000000, "M: got '1000000', expected an integer, at most"},
      {exact, "M", 3, "a.codes.count: got "},
      {exact, "K", -1, "K: got '-1', expected an integer"},
      {exact, "a", "float8", "a: got '\"float8\"', expected a format"},
      {exact, "scale_inv_a", "", "scale_inv_a: got '\"\"', expected 8"},
  };
  for (const auto& row : rows) {
    Json record = row.record;
    record[row.field] = row.value;
    const TemporaryFile file(record.dump());
    std::ofstream(std::filesystem::path(file.path()).parent_path() /
                  "inputs.jsonl")
        << read_file(golden("float8/blocks/inputs"));
    expect_error(run_program({"replay", file.path()}),
                 {"swamp: " + file.path() + ":1: ", row.words});
  }
  // Without its inputs.
  const TemporaryFile file(block.dump());
  expect_error(
      run_program({"replay", file.path()}),
      {"input: got 'normal', expected a matrix or a name of ", "inputs.jsonl"});
}

}  // namespace
}  // namespace swamp::test
