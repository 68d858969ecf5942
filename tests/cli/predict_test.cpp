// swamp predict: its counts equal those made by hand, and bad options are
// errors that name what was expected.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/errors.h"
#include "tests/cli/run_program.h"
#include "tests/cli/scan_files.h"

namespace swamp::test {
namespace {

using nlohmann::json;

std::vector<json> predictions(std::vector<std::string> arguments,
                              const Environment& environment = {}) {
  arguments.insert(arguments.begin(), "predict");
  arguments.emplace_back("--json");
  std::vector<json> out;
  for (const std::string& line : lines_of(output_of(arguments, environment))) {
    out.push_back(json::parse(line));
  }
  return out;
}

json prediction(const std::vector<std::string>& arguments,
                const Environment& environment = {}) {
  const std::vector<json> all = predictions(arguments, environment);
  EXPECT_EQ(all.size(), 1u);
  return all.empty() ? json() : all.front();
}

std::uint64_t number(const json& object, const char* key) {
  return object.at(key).get<std::uint64_t>();
}

TEST(Predict, IsListed) {
  EXPECT_TRUE(has_words(output_of({"--help"}), {"predict"}));
  EXPECT_TRUE(has_words(output_of({"predict", "--help"}), {"--operation"}));
}

// One slave (the list is too short for a spawn) gets its segment, the operation
// and its arguments for each of the two slots, and the tiles.
TEST(Predict, CountsEqualThoseByHand) {
  const json one = prediction({"--list", "8192", "--tile", "4096"});
  EXPECT_EQ(number(one, "spawns"), 0u);
  EXPECT_EQ(number(one, "PC3_REQ_DMA_GET"), 1u + 2 * 2 + 8);
  EXPECT_EQ(number(one, "PC2_REQ_DMA_PUT"), 8u);
  EXPECT_EQ(number(one, "put_bytes"), 32768u);
  EXPECT_EQ(number(one, "put_whole_lines"), 256u);
  EXPECT_EQ(number(one, "put_partial_lines"), 0u);
  EXPECT_EQ(number(one, "get_lines"), 256u + 1 + 2 * 2);
  EXPECT_EQ(number(one, "PC2_GLD"), 0u);
  EXPECT_EQ(one.at("groups").size(), 6u);
  EXPECT_EQ(one.at("groups").at(0).at("slaves"), 1);
  EXPECT_EQ(one.at("groups").at(5).at("slaves"), 0);
}

TEST(Predict, ASpawnCoversTheListOnce) {
  const json all = prediction({"--list", "1x33554432", "--tile", "16384"});
  constexpr std::uint64_t kBytes = 33554432ull * 4;
  EXPECT_EQ(number(all, "spawns"), 1u);
  EXPECT_EQ(number(all, "PC2_REQ_DMA_PUT"), kBytes / 16384);
  EXPECT_EQ(number(all, "put_bytes"), kBytes);
  EXPECT_EQ(number(all, "put_whole_lines"), kBytes / 128);
  // Every one of 384 slaves also gets one segment, two operations, two
  // arguments.
  EXPECT_EQ(number(all, "PC3_REQ_DMA_GET"), kBytes / 16384 + 384 * 5);
  EXPECT_EQ(number(all, "get_lines"), kBytes / 128 + 384 * 5);
  std::uint64_t slaves = 0;
  std::uint64_t bytes = 0;
  for (const json& group : all.at("groups")) {
    slaves += number(group, "slaves");
    bytes += number(group, "put_bytes");
  }
  EXPECT_EQ(slaves, 384u);
  EXPECT_EQ(bytes, kBytes);
}

// 4 bytes after the start of a line, every tile of 32 lines has 31 whole lines
// and 2 partial ones.
TEST(Predict, AddressesCount) {
  const json all =
      prediction({"--list", "8192", "--tile", "4096", "--offset", "4"});
  EXPECT_EQ(number(all, "put_whole_lines"), 8u * 31);
  EXPECT_EQ(number(all, "put_partial_lines"), 8u * 2);
  const json aligned = prediction({"--list", "8192", "--tile", "4096"});
  EXPECT_GT(all.at("overlapped_seconds"), aligned.at("overlapped_seconds"));

  // Tensors of 25 elements, one after the other: 100 bytes of a 128-byte line,
  // then parts of two lines.
  const json packed = prediction({"--list", "2x25", "--align", "4"});
  EXPECT_EQ(number(packed, "put_partial_lines"), 1u + 2);
  EXPECT_EQ(number(packed, "put_whole_lines"), 0u);
  EXPECT_EQ(number(prediction({"--list", "2x25"}), "put_partial_lines"), 2u);
}

// An odd element of 16 bits is read and written directly, not by DMA.
TEST(Predict, OddElementsAreDirectAccesses) {
  const json odd = prediction({"--list", "3x7", "--dtype", "float16"});
  EXPECT_EQ(number(odd, "PC2_GLD"), 3u);
  EXPECT_EQ(number(odd, "PC3_GST"), 3u);
  EXPECT_EQ(number(odd, "put_bytes"), 3u * 12);
  const json even = prediction({"--list", "3x8", "--dtype", "float16"});
  EXPECT_EQ(number(even, "PC2_GLD"), 0u);
}

TEST(Predict, OperationsReadAndWriteTheirStreams) {
  struct Case {
    std::vector<std::string> operation;
    std::uint64_t read, written;  // bytes per element
  };
  constexpr std::uint64_t kCount = 1 << 20;
  for (const Case& one : {Case{{"unscale"}, 4, 4},
                          {{"check"}, 4, 0},
                          {{"scan"}, 4, 0},
                          {{"norm"}, 4, 0},
                          {{"count_zeros"}, 4, 0},
                          {{"cast"}, 4, 2},
                          {{"cast", "--dtype", "bfloat16"}, 2, 4},
                          {{"accumulate", "--dtype", "float16"}, 6, 4},
                          {{"sgd"}, 12, 8},
                          {{"adam", "--dtype", "bfloat16"}, 14, 12},
                          {{"adam", "--to", "bfloat16"}, 16, 14}}) {
    std::vector<std::string> arguments = {"--list", std::to_string(kCount),
                                          "--operation"};
    arguments.insert(arguments.end(), one.operation.begin(),
                     one.operation.end());
    const json all = prediction(arguments);
    // Besides, there are segments, operations, partial results.
    const std::uint64_t kBeside = kCount / 8;
    EXPECT_GE(number(all, "get_bytes"), kCount * one.read) << one.operation[0];
    EXPECT_LT(number(all, "get_bytes"), kCount * one.read + kBeside)
        << one.operation[0];
    EXPECT_GE(number(all, "put_bytes"), kCount * one.written)
        << one.operation[0];
    EXPECT_LT(number(all, "put_bytes"), kCount * one.written + kBeside)
        << one.operation[0];
  }
}

TEST(Predict, CoreGroupsAndTilesMakeATable) {
  const std::vector<json> all = predictions(
      {"--list", "gpt2-small", "--core-groups", "1,6", "--tile", "1024,16384"});
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(number(all[0], "core_groups"), 1u);
  EXPECT_EQ(number(all[0], "tile_bytes"), 1024u);
  EXPECT_EQ(number(all[3], "core_groups"), 6u);
  EXPECT_EQ(number(all[3], "tile_bytes"), 16384u);
  EXPECT_EQ(number(all[0], "elements"), 124439808u);
  EXPECT_EQ(number(all[0], "tensors"), 148u);
  // Six memories are six times one.
  const double one = all[1].at("overlapped_seconds");
  const double six = all[3].at("overlapped_seconds");
  EXPECT_NEAR(one / six, 6, 0.06);
  // Small tiles wait more often.
  EXPECT_GT(all[0].at("serial_seconds"), all[1].at("serial_seconds"));
}

TEST(Predict, TilesShrinkToFitLdm) {
  const std::vector<std::string> adam = {"--list", "resnet50", "--operation",
                                         "adam",   "--to",     "bfloat16",
                                         "--tile", "65536"};
  std::vector<std::string> small = adam;
  small.insert(small.end(), {"--machine", "sw26010"});
  const json pro = prediction(adam);
  const json old = prediction(small);
  EXPECT_EQ(number(pro, "elements"), 25557032u);
  EXPECT_EQ(number(old, "core_groups"), 4u);
  EXPECT_EQ(number(old, "ldm_bytes"), 65536u);
  // Two slots of 18 bytes per element.
  EXPECT_LT(number(old, "tile_bytes"), 65536u / 2 / 18 * 4);
  EXPECT_GT(number(old, "tile_bytes"), 4096u);
  EXPECT_LT(number(pro, "tile_bytes"), 65536u);
  EXPECT_GT(number(pro, "tile_bytes"), 16384u);
}

TEST(Predict, DefaultTileIsTheMachines) {
  EXPECT_EQ(number(prediction({"--list", "bert-base"}), "tile_bytes"), 16384u);
  EXPECT_EQ(number(prediction({"--list", "bert-base"}), "elements"),
            109482240u);
}

TEST(Predict, IsTheSameEveryTime) {
  const std::vector<std::string> arguments = {
      "predict", "--list", "100x777", "--operation", "norm", "--json"};
  const std::string first = output_of(arguments);
  EXPECT_EQ(run_program(arguments, {{"SWAMP_BACKEND", "threads"},
                                    {"SWAMP_MACHINE", "sw26010"},
                                    {"SWAMP_TRANSFER", "check"}})
                .out,
            first);
}

TEST(Predict, TakesTheTensorsOfAFile) {
  const TemporaryFile file(
      safetensors(R"({"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},)"
                  R"("b":{"dtype":"I32","shape":[1],"data_offsets":[12,16]},)"
                  R"("c":{"dtype":"F16","shape":[8],"data_offsets":[16,32]}})",
                  std::string(32, '\0')));
  const json own = prediction({file.path()});
  EXPECT_EQ(own.at("dtype"), "float16");
  EXPECT_EQ(number(own, "tensors"), 2u);
  EXPECT_EQ(number(own, "put_bytes"), 12u + 16);
  const json wide = prediction({file.path(), "--dtype", "float32"});
  EXPECT_EQ(number(wide, "put_bytes"), 24u + 32);
}

TEST(Predict, EmptyTensorsCostNothing) {
  const json none = prediction({"--list", "3x0"});
  EXPECT_EQ(number(none, "PC3_REQ_DMA_GET"), 0u);
  EXPECT_EQ(number(none, "tensors"), 3u);
  EXPECT_EQ(none.at("overlapped_seconds"), 0.0);
}

TEST(Predict, TableShowsEveryPoint) {
  const std::vector<json> lines = predictions({"--table"});
  ASSERT_EQ(lines.size(), 72u + 14 + 28 + 1);
  std::vector<double> errors;
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    const double measured = lines[i].at("measured");
    const double predicted = lines[i].at("predicted");
    EXPECT_NEAR(lines[i].at("error"), predicted / measured - 1, 1e-12);
    errors.push_back(std::abs(predicted / measured - 1));
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_EQ(lines.back().at("points"), 114);
  EXPECT_NEAR(lines.back().at("median_error"), (errors[56] + errors[57]) / 2,
              1e-12);
  EXPECT_LT(lines.back().at("median_error"), 0.15);
  EXPECT_TRUE(has_words(output_of({"predict", "--table"}), {"median error"}));
}

struct BadCall {
  const char* name;
  std::vector<std::string> arguments;
  std::vector<std::string> parts;  // of the message
  Hint hint = Hint::help;
};

class BadPredictions : public testing::TestWithParam<BadCall> {};

TEST_P(BadPredictions, NameWhatWasExpected) {
  std::vector<std::string> arguments = GetParam().arguments;
  arguments.insert(arguments.begin(), "predict");
  expect_error(run_program(arguments), GetParam().parts, GetParam().hint);
}

INSTANTIATE_TEST_SUITE_P(
    Predict, BadPredictions,
    testing::Values(
        BadCall{"no_list", {}, {"--list"}},
        BadCall{"list_and_file", {"x.npy", "--list", "1"}, {"one of them"}},
        BadCall{"empty_list", {"--list", ""}, {"--list", "''"}},
        BadCall{"empty_item", {"--list", "1x2,,3"}, {"--list", "''"}},
        BadCall{"words", {"--list", "gpt3"}, {"'gpt3'", "gpt2-small"}},
        BadCall{"two_x", {"--list", "1x2x3"}, {"'2x3'", "integer"}},
        BadCall{"negative", {"--list", "-5"}, {"'-5'"}},
        BadCall{"no_tensors", {"--list", "0x5"}, {"tensors", "1 to 1000000"}},
        BadCall{"many_tensors", {"--list", "1000001x1"}, {"1 to 1000000"}},
        BadCall{"tensors_in_all",
                {"--list", "600000x1,600000x1"},
                {"--list", "1000000 tensors"}},
        BadCall{"many_elements",
                {"--list", "99999999999999999999"},
                {"elements", "1099511627776"}},
        BadCall{"elements_in_all",
                {"--list", "2x1099511627776"},
                {"--list", "1099511627776 elements"}},
        BadCall{"operation",
                {"--list", "1", "--operation", "unscal"},
                {"--operation", "'unscal'", "unscale", "adam"}},
        BadCall{"dtype",
                {"--list", "1", "--dtype", "int8"},
                {"--dtype", "'int8'", "bfloat16"}},
        BadCall{"to", {"--list", "1", "--to", "half"}, {"--to", "'half'"}},
        BadCall{"to_of_unscale",
                {"--list", "1", "--to", "float16"},
                {"--to", "unscale", "cast"}},
        BadCall{
            "dtype_of_norm",
            {"--list", "1", "--operation", "norm", "--dtype", "float8_e5m2"},
            {"norm: ", "float8"},
            Hint::none},
        BadCall{"dtypes_of_cast",
                {"--list", "1", "--operation", "cast", "--dtype", "float16",
                 "--to", "bfloat16"},
                {"cast: "},
                Hint::none},
        BadCall{"machine",
                {"--list", "1", "--machine", "host"},
                {"--machine", "'host'", "sw26010pro"}},
        BadCall{"core_groups_none",
                {"--list", "1", "--core-groups", "0"},
                {"--core-groups", "1 to 6"}},
        BadCall{"core_groups_many",
                {"--list", "1", "--core-groups", "7"},
                {"--core-groups", "1 to 6"}},
        BadCall{"core_groups_of_machine",
                {"--list", "1", "--machine", "sw26010", "--core-groups", "5"},
                {"--core-groups", "'5'", "4 of sw26010"}},
        BadCall{"tile", {"--list", "1", "--tile", "127"}, {"--tile", "128 to"}},
        BadCall{
            "tile_list", {"--list", "1", "--tile", "1024,"}, {"--tile", "''"}},
        BadCall{"align", {"--list", "1", "--align", "24"}, {"power of 2"}},
        BadCall{"align_of_dtype",
                {"--list", "2x1", "--align", "4", "--offset", "2"},
                {"unscale: ", "tensors[0]"},
                Hint::none},
        BadCall{"offset", {"--list", "1", "--offset", "128"}, {"0 to 127"}},
        BadCall{
            "file", {"/nonexistent/x.npy"}, {"/nonexistent/x.npy"}, Hint::none},
        BadCall{"table_and_list", {"--table", "--list", "1"}, {"--table"}},
        BadCall{"option", {"--lits", "1"}, {"--lits"}}),
    [](const testing::TestParamInfo<BadCall>& it) {
      return std::string(it.param.name);
    });

}  // namespace
}  // namespace swamp::test
