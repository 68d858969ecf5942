// `swamp moe-report`: JSON lines, MindFormers' files, pictures, and bad files.
#include <gtest/gtest.h>

#include "support/errors.h"
#include "tests/cli/scan_files.h"
#include "tests/cli/scan_lines.h"

namespace swamp::test {
namespace {

const char kLines[] =
    R"({"step": 10, "layer": 1, "counts": [4, 0, 2, 2], "dropped": 1})"
    "\n\n"
    R"({"step": 20, "layer": 1, "counts": [1, 3, 3, 1], "dropped": 0})"
    "\r\n"
    R"({"step": 10, "layer": 0, "counts": [0, 0], "rank": -1})"
    "\n";

TEST(MoeReport, PrintsEachLayer) {
  const TemporaryFile file(kLines);
  EXPECT_EQ(output_of({"moe-report", file.path()}),
            "layer 0: 2 experts, 1 step (10 to 10)\n"
            "  tokens by expert:  0: 0  1: 0\n"
            "  imbalance (max / mean): 1.000 on average, 1.000 in step 10, at "
            "most 1.000\n    in step 10\n"
            "  hot experts of step 10:  0: 0  1: 0\n"
            "  hot experts of all steps:  0: 0  1: 0\n"
            "layer 1: 4 experts, 2 steps (10 to 20)\n"
            "  tokens by expert:  0: 5  1: 3  2: 5  3: 3\n"
            "  imbalance (max / mean): 1.750 on average, 1.500 in step 20, at "
            "most 2.000\n    in step 10\n"
            "  dropped: 1 of 16 tokens, 6.25 %\n"
            "  hot experts of step 20:  1: 3  2: 3\n"
            "  hot experts of all steps:  0: 5  2: 5\n");
}

TEST(MoeReport, Json) {
  const TemporaryFile file(kLines);
  const auto lines =
      lines_of(output_of({"moe-report", "--json", "--hot", "3", file.path()}));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(Json::parse(lines[0])["dropped"], nullptr);
  EXPECT_EQ(Json::parse(lines[1]), Json::parse(R"({
    "layer": 1, "experts": 4, "steps": 2, "first_step": 10, "last_step": 20,
    "tokens": [5, 3, 5, 3], "imbalance": 1.75, "last_imbalance": 1.5,
    "highest_imbalance": 2.0, "highest_imbalance_step": 10, "dropped": 1,
    "drop_rate": 0.0625, "hot": [1, 2, 0], "all_hot": [0, 2, 1]})"));
}

template <class T>
std::string npy_of(const char* descr, const std::vector<T>& values,
                   const std::string& shape = "") {
  return npy(
      descr,
      "(" + (shape.empty() ? std::to_string(values.size()) + "," : shape) + ")",
      elements(values));
}

TEST(MoeReport, MindFormersFiles) {
  Folder folder;
  folder.add("layer-0_7.npy", npy_of<std::int64_t>("<i8", {3, 1, 500}));
  folder.add("layer-0_12.npy", npy_of<float>("<f4", {0, 2, 2}));
  folder.add("layer-1_7.npy", npy_of<std::uint16_t>("<f2", {0x4000, 0x3c00}));
  folder.add("layer-2_7.npy", npy_of<std::uint16_t>(">i2", {0x0200, 0x0001}));
  folder.add("other.npy", "not read");
  const auto lines =
      lines_of(output_of({"moe-report", "--json", folder.path()}));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(Json::parse(lines[0])["tokens"], Json({3, 3, 502}));
  EXPECT_EQ(Json::parse(lines[0])["last_step"], 12);
  EXPECT_EQ(Json::parse(lines[1])["tokens"], Json({2, 1}));
  EXPECT_EQ(Json::parse(lines[2])["tokens"], Json({2, 256}));
  // Files and lines together.
  const TemporaryFile more(R"({"step": 8, "layer": 1, "counts": [0, 9]})");
  EXPECT_EQ(Json::parse(lines_of(output_of({"moe-report", "--json", more.path(),
                                            folder.path() + "/layer-1_7.npy"}))
                            .at(0))["tokens"],
            Json({2, 10}));
}

TEST(MoeReport, BadLines) {
  struct {
    const char* line;
    const char* text;
  } const cases[] = {
      {"[1]", ":2: got no JSON object, expected step, layer and counts"},
      {R"({"step": 2, "layer": 1})", ":2: counts: missing, expected step"},
      {R"({"step": -2, "layer": 1, "counts": [1]})",
       ":2: step: got -2, expected an integer from 0"},
      {R"({"step": 2, "layer": "x", "counts": [1]})",
       ":2: layer: got \"x\", expected an integer from 0"},
      {R"({"step": 2, "layer": 1, "counts": 3})",
       ":2: counts: got 3, expected an array with a number for each expert"},
      {R"({"step": 2, "layer": 1, "counts": [4, 1.5]})",
       ":2: counts[1]: got 1.5, expected an integer from 0"},
      {R"({"step": 2, "layer": 1, "counts": [4, 1], "dropped": 6})",
       ":2: dropped: got 6, expected at most 5, the sum of counts"},
      {R"({"step": 2, "layer": 0, "counts": [4]})",
       ":2: counts: got 1 experts, expected 2, as step 1 of layer 0 has"},
      {R"({"step": 1, "layer": 0, "counts": [4, 2]})",
       ":2: step: got 1 of layer 0 twice, expected each step once"},
      {R"({"step": 1,)", ":2: "},
      {R"({"step": 2, "layer": 1, "layer": 0, "counts": [4, 2]})",
       ":2: JSON: got the key 'layer' twice, expected once"},
      {R"({"step": 2, "layer": 0, "counts": [9007199254740992, 1]})",
       ":2: counts: got a sum of 9007199254740993 or more, expected at most "
       "9007199254740992"},
  };
  for (const auto& one : cases) {
    const TemporaryFile file(
        std::string(R"({"step": 1, "layer": 0, "counts": [1, 2]})") + "\n" +
        one.line + "\n");
    expect_error(run_program({"moe-report", file.path()}),
                 {file.path() + one.text});
  }
  for (const char* nothing : {"", "\n"}) {
    const TemporaryFile empty(nothing);
    expect_error(
        run_program({"moe-report", empty.path()}),
        {empty.path() + ": got no counts, expected at least one line"});
  }
  // Sums that would be 0 modulo 2^64.
  std::string counts = "9007199254740992";
  std::string lines;
  for (int i = 1; i < 2048; ++i) counts += ", 9007199254740992";
  for (int i = 0; i < 2048; ++i) {
    lines += R"({"layer": 3, "counts": [9007199254740992], "step": )" +
             std::to_string(i) + "}\n";
  }
  const TemporaryFile wide(R"({"step": 1, "layer": 0, "counts": [)" + counts +
                           R"(], "dropped": 0})");
  const TemporaryFile tall(lines);
  expect_error(run_program({"moe-report", wide.path()}),
               {wide.path() + ":1: counts: got a sum of 18014398509481984"});
  expect_error(run_program({"moe-report", tall.path()}),
               {"counts of layer 3: got a sum of 18014398509481984 or more, "
                "expected at most 9007199254740992"});
}

TEST(MoeReport, BadFiles) {
  Folder folder;
  expect_error(run_program({"moe-report", folder.path()}),
               {"got a folder without counts, expected files of the names "
                "layer-N_STEP.npy"});
  expect_error(run_program({"moe-report", folder.path() + "/none"}), {"/none"});
  const std::string good = npy_of<std::int64_t>("<i8", {3, 1});
  for (const char* name : {"counts.npy", "layer-_1.npy", "layer-1_x.npy"}) {
    expect_error(run_program({"moe-report", folder.add(name, good)}),
                 {name, "expected layer-N_STEP.npy"});
  }
  const auto expect_bad = [&](const std::string& bytes, const char* text) {
    expect_error(
        run_program({"moe-report", folder.add("layer-0_1.npy", bytes)}),
        {"layer-0_1.npy: ", text});
  };
  expect_bad(npy_of<std::int64_t>("<i8", {3, -1}),
             "counts[1]: got -1, expected an integer from 0");
  expect_bad(npy_of<float>("<f4", {0.5f}), "counts[0]: got 0.5, expected");
  expect_bad(npy_of<std::int64_t>("<i8", {3, 1}, "1, 2"), "counts: got int64");
  expect_bad(npy_of<float>("<c8", {3, 1}, "1,"), "counts: got complex64");
  expect_bad(good.substr(0, good.size() - 1), "truncated");
}

TEST(MoeReport, BadOptions) {
  const TemporaryFile file(kLines);
  expect_error(run_program("moe-report"), {"FILE"}, Hint::help);
  expect_error(run_program({"moe-report", "--hot", "0", file.path()}),
               {"--hot: got '0'"}, Hint::help);
  expect_error(run_program({"moe-report", "--plot", "x.pdf", file.path()}),
               {"--plot: got 'x.pdf', expected a name that ends in .png or "
                ".svg"},
               Hint::help);
  Folder folder;
  const std::string same = folder.add("counts", kLines);
  expect_error(run_program({"moe-report", "--plot", same, same}),
               {"--plot", "FILE", same});
  EXPECT_EQ(read_file(same), kLines);
}

TEST(MoeReport, DrawsHeatMaps) {
  // Also one step and one expert alone.
  const TemporaryFile file(std::string(kLines) +
                           R"({"step": 10, "layer": 2, "counts": [5]})"
                           "\n"
                           R"({"step": 10, "layer": 3, "counts": [5]})"
                           "\n"
                           R"({"step": 20, "layer": 3, "counts": [6]})");
  Folder folder;
  const std::string picture = folder.path() + "/picture.svg";
  const ProgramResult result =
      run_program({"moe-report", "--plot", picture, file.path()});
  if (result.err.find("no gnuplot here") != std::string::npos) {
    EXPECT_EQ(result.exit_code, 2);
    GTEST_SKIP() << "no gnuplot";
  }
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::string svg = read_file(picture);
  EXPECT_TRUE(
      has_words(svg, {"<svg", "layer 0", "layer 1", "expert", "</svg>"}));
  std::size_t images = 0;
  for (std::size_t at = 0; (at = svg.find("<image ", at)) != std::string::npos;
       ++at) {
    ++images;
  }
  EXPECT_EQ(images, 4u);
}

}  // namespace
}  // namespace swamp::test
