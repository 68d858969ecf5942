// `swamp replay`: every golden trace, the output's encoding, and bad files.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/errors.h"
#include "tests/cli/run_program.h"

namespace swamp::test {
namespace {

using Json = nlohmann::json;

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
