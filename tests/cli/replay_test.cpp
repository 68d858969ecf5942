// `swamp replay`: every golden trace, of scale managers too, the output's
// encoding, and bad files.
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

// kTrace is a good record; what follows in tests spoils one of its parts.
const char kTrace[] =
    R"({"id":"a","scaler":"torch.amp.GradScaler","params":{},"n":3,)"
    R"("overflow":[1],"scale_dtype":"f32","trackers":["growth_tracker"]})";

std::string spoiled(const std::string& part, const std::string& by) {
  std::string text = kTrace;
  const std::size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.replace(at, part.size(), by);
}

TEST(Replay, EveryGoldenTraceMatches) {
  std::vector<std::string> arguments = {"replay", "--check"};
  for (const auto& entry :
       std::filesystem::directory_iterator(SWAMP_GOLDEN_DIR)) {
    if (entry.path().extension() == ".jsonl") {
      arguments.push_back(entry.path().string());
    }
  }
  EXPECT_EQ(arguments.size(), 37u);
  EXPECT_EQ(output_of(arguments), "146 skipped\n1367 passed, 0 failed\n");
}

TEST(Replay, PrintsTheEncodingOfTheFormat) {
  for (const char* name : {"apex.amp.LossScaler", "metaseq.DynamicLossScaler",
                           "deepspeed.DynamicLossScaler"}) {
    const auto ours = lines_of(output_of({"replay", golden(name)}));
    const auto theirs = lines_of(read_file(golden(name)));
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) {
      Json expected = Json::parse(theirs[i]);
      for (const char* key : {"scaler", "seq", "params", "n", "overflow",
                              "scale_dtype", "trackers", "source", "note"}) {
        expected.erase(key);
      }
      // As texts: 512.0 is not 512.
      EXPECT_EQ(Json::parse(ours[i]).dump(), expected.dump());
    }
  }
}

TEST(Replay, CheckFindsEveryKindOfDifference) {
  const auto first_line = [](const std::string& name) {
    return lines_of(read_file(golden(name))).front();
  };
  const std::string line = first_line("megatron.DynamicGradScaler");
  const std::string torch = first_line("torch.amp.GradScaler");
  for (const char* key : {"init", "rows", "digest"}) {
    Json record = Json::parse(line);
    record[key] = Json::parse(torch)[key];
    const TemporaryFile file(line + "\n" + record.dump() + "\n");
    const ProgramResult result =
        run_program({"replay", "--check", file.path()});
    EXPECT_EQ(result.exit_code, 1);
    const auto lines = lines_of(result.out);
    ASSERT_EQ(lines.size(), 2u) << result.out;
    EXPECT_EQ(lines[0].rfind("FAILED public/megatron.DynamicGradScaler/", 0),
              0u);
    EXPECT_TRUE(has_words(lines[0], {key}));
    EXPECT_EQ(lines[1], "1 passed, 1 failed");
  }
  Json record = Json::parse(line);
  record["event"] = {1, "RuntimeError", ""};
  const TemporaryFile file(record.dump());
  EXPECT_EQ(run_program({"replay", "--check", file.path()}).exit_code, 1);
}

TEST(Replay, RecordsOfOtherKindsAreCounted) {
  const TemporaryFile file("{\"kind\":\"step\"}\n\n" + std::string(kTrace));
  const ProgramResult result = run_program({"replay", file.path()});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out,
            R"({"id":"a","init":["0x1p+16",0],"rows":[[0,"0x1p+16",1],)"
            R"([1,"0x1p+15",0],[2,"0x1p+15",1]],)"
            R"("digest":[[2,"4bfa47d718f5c535"]]})"
            "\n");
  EXPECT_EQ(result.err, "swamp: records of other kinds skipped: 1\n");
}

TEST(Replay, BadFilesAreOneLineWithItsNumber) {
  const std::string bad[] = {
      "garbage",
      "[1]",
      "{",
      std::string("{}\0", 3),
      "\xff\xfe",
      std::string(100000, '['),
      "{\"kind\":3}",
      "{\"kind\":\"ckpt\"}",
      spoiled("\"id\"", "\"di\""),
      spoiled("torch.amp", "torch.pma"),
      spoiled("{}", "[]"),
      spoiled("{}", "{\"growth_factor\":0.5}"),
      spoiled("{}", "{\"nope\":0.5}"),
      spoiled("{}", "{\"init_scale\":{}}"),
      spoiled("{}", "{\"init_scale\":1e999}"),
      spoiled("3", "-3"),
      spoiled("3", "1e30"),
      spoiled("3", "99999999999"),
      spoiled("3", "0"),
      spoiled("[1]", "[3]"),
      spoiled("[1]", "[-1]"),
      spoiled("[1]", "[[]]"),
      spoiled("[1]", "[[1,3]]"),
      spoiled("[1]", "[[1,2,18446744073709551615]]"),
      spoiled("[1]", "[[1,2,0]]"),
      spoiled("[1]", "[1,1]"),
      spoiled("[1]", "[[0,3],[0,3],[0,3,1]]"),
      spoiled("[1]", "[\"1\"]"),
      spoiled("[1]", "{}"),
      spoiled("f32", "f16"),
      spoiled("[\"growth_tracker\"]", "[\"nope\"]"),
      spoiled("[\"growth_tracker\"]", "[0]"),
      spoiled("[\"growth_tracker\"]", "0"),
      spoiled("[1]", "[1],\"found_inf_value\":\"x\""),
      spoiled("[1]", "[1],\"kind\":\"ckpt\",\"saved_by\":{},\"state_dict\":{}"),
      spoiled("[1]",
              "[1],\"kind\":\"ckpt\",\"saved_by\":{\"x\":1},"
              "\"state_dict\":{}"),
  };
  for (const std::string& line : bad) {
    const TemporaryFile file(std::string(kTrace) + "\n\n" + line + "\n");
    const ProgramResult result = run_program({"replay", file.path()});
    SCOPED_TRACE(line);
    EXPECT_EQ(lines_of(result.out).size(), 1u);
    expect_late_error(result, {"swamp: " + file.path() + ":3: "});
  }
}

TEST(Replay, CheckNeedsResultsToCompare) {
  const TemporaryFile file(kTrace);
  expect_error(run_program({"replay", "--check", file.path()}),
               {"swamp: " + file.path() + ":1: init: missing"});
}

// ---- Scale managers.

TEST(ReplayScales, EveryGoldenRecordMatches) {
  std::vector<std::string> arguments = {"replay", "--check"};
  for (const auto& entry : std::filesystem::directory_iterator(
           SWAMP_GOLDEN_DIR + std::string("/float8/scales"))) {
    arguments.push_back(entry.path().string());
  }
  EXPECT_EQ(arguments.size(), 15u);
  EXPECT_EQ(output_of(arguments), "10297 passed, 0 failed\n");
}

// Every result of one record of each file is spoiled in turn.
TEST(ReplayScales, CheckFindsEveryDifference) {
  const struct {
    const char* file;
    std::vector<const char*> results;  // JSON pointers
  } rows[] = {
      {"te_delayed",
       {"/steps/1/reduced", "/steps/2/scale", "/steps/0/scale_inv",
        "/steps/3/history"}},
      {"te_current", {"/scale", "/scale_inv"}},
      {"te_block", {"/scale", "/scale_inv"}},
      {"te_mxfp8", {"/e8m0", "/factor"}},
      {"te_nvfp4", {"/s_enc", "/blocks/1/e4m3", "/blocks/6/factor"}},
      {"torchao_float8", {"/scale"}},
      {"torchao_mx", {"/e8m0"}},
      {"torchao_nvfp4",
       {"/per_tensor_scale", "/blocks/0/e4m3", "/blocks/1/factor",
        "/blocks/2/single_e4m3", "/blocks/3/single_factor"}},
      {"microxcaling", {"/shared_exp"}},
      {"msamp", {"/scale"}},
      {"mindspeed", {"/inverse_scale"}},
      {"modelopt", {"/fp8_scale", "/mxfp8_e8m0"}},
      {"optimizer_state",
       {"/te_float8_scale", "/te_float8_factor", "/te_float16_scale",
        "/te_float16_factor", "/torchao_float8_scale"}},
  };
  for (const auto& row : rows) {
    const std::string path = "float8/scales/" + std::string(row.file);
    const Json record = Json::parse(lines_of(read_file(golden(path)))[40]);
    std::string text;
    for (const char* result : row.results) {
      Json bad = record;
      bad[Json::json_pointer(result)] = "3f800123";
      text += bad.dump() + "\n";
    }
    const TemporaryFile file(text);
    const ProgramResult result =
        run_program({"replay", "--check", file.path()});
    EXPECT_EQ(result.exit_code, 1) << row.file;
    const auto lines = lines_of(result.out);
    ASSERT_EQ(lines.size(), row.results.size() + 1) << result.out;
    for (std::size_t i = 0; i < row.results.size(); ++i) {
      const std::string name = row.results[i];
      EXPECT_TRUE(has_words(lines[i], {"of line " + std::to_string(i + 1),
                                       name.substr(name.rfind('/') + 1),
                                       "the file has \"3f800123\""}));
    }
  }
}

TEST(ReplayScales, PrintsTheRecordWithItsResults) {
  const TemporaryFile file(
      R"({"recipe":"te.DelayedScaling","fused":true,"fmt":"e5m2",)"
      R"("amax_history_len":2,"amax_compute_algo":"max","margin":0,)"
      R"("steps":[{"amax_per_rank":["3f800000","40000000"]}]})");
  EXPECT_EQ(output_of({"replay", file.path()}),
            R"({"recipe":"te.DelayedScaling","fused":true,"fmt":"e5m2",)"
            R"("amax_history_len":2,"amax_compute_algo":"max","margin":0,)"
            R"("steps":[{"amax_per_rank":["3f800000","40000000"],)"
            R"("reduced":"40000000","scale":"46e00000",)"
            R"("scale_inv":"38124925","history":"0000000040000000"}]})"
            "\n");
  expect_error(run_program({"replay", "--check", file.path()}),
               {"swamp: " + file.path() + ":1: reduced: missing"});
}

TEST(ReplayScales, BadRecordsNameTheField) {
  const std::string good =
      R"({"recipe":"te.DelayedScaling","fused":true,"fmt":"e4m3",)"
      R"("amax_history_len":2,"amax_compute_algo":"max","margin":0,)"
      R"("steps":[{"amax_per_rank":["3f800000"]}]})";
  const struct {
    std::string part, by, words;
  } rows[] = {
      {"te.Delayed", "te.Delaid", "recipe: got '\"te.DelaidScaling\"'"},
      {"\"te.DelayedScaling\"", "1", "recipe: got '1', expected one of te.D"},
      {"e4m3", "e9", "fmt: got '\"e9\"', expected a format of te.Delayed"},
      {"true", "1", "fused: got 1, expected true or false"},
      {"2", "0", "amax_history_len: got 0, expected an integer, at least 1"},
      {"max\"", "min\"", "amax_compute_algo: got 'min', expected one of 'max'"},
      {"0,", "[],", "margin: got '[]', expected a text, a boolean"},
      {"3f800000", "3f80000", "amax_per_rank: got '\"3f80000\"', expected 8"},
      {"3f800000", "bfc00000", "amax: got -1.5"},
      {"[\"3f800000\"]", "[]", "expected at least one rank"},
      {"[{", "[3,{", "steps: got '3', expected objects"},
      {"}]}", "},{\"amax_per_rank\":[\"3f800000\",\"3f800000\"]}]}",
       "expected as many ranks as in the first step"},
  };
  for (const auto& row : rows) {
    std::string text = good;
    const std::size_t at = text.rfind(row.part);
    ASSERT_NE(at, std::string::npos) << row.part;
    text.replace(at, row.part.size(), row.by);
    const TemporaryFile file(text);
    expect_error(run_program({"replay", file.path()}),
                 {"swamp: " + file.path() + ":1: ", row.words});
  }
}

TEST(Replay, AnEndlessDeviceIsAnError) {
  expect_error(run_program("replay /dev/zero"),
               {"swamp: /dev/zero:1: got a longer line, expected at most "
                "134217728 bytes"});
}

TEST(Replay, FilesThatCannotBeRead) {
  for (const char* path : {"/", "/nonexistent/file"}) {
    expect_error(run_program({"replay", path}), {"cannot be read"});
  }
  EXPECT_EQ(run_program("replay").exit_code, 2);
}

}  // namespace
}  // namespace swamp::test
