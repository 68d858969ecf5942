// scan of folders, of several files, and on every machine.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/scan_files.h"
#include "tests/cli/scan_lines.h"

namespace swamp::test {
namespace {

TEST(ScanFolders, IndexAndShardsComeOnce) {
  const std::string good =
      safetensors(header_of("F32", 1, 4), elements(std::vector<float>{1}));
  Folder folder;
  folder.add("m/a-1.safetensors", good);
  folder.add("m/b.npy", npy("<f4", "(1,)", elements(std::vector<float>{2})));
  folder.add("m/other.txt", "not looked at");
  folder.add("m/deep/c.npy",
             npy("<f4", "(1,)", elements(std::vector<float>{kInf})));
  const std::string index = folder.add(
      "m/m.safetensors.index.json",
      R"({"metadata":{"total_size":4},"weight_map":{"w":"a-1.safetensors"}})");
  EXPECT_EQ(scan_lines(folder.path() + "/m", 0).size(), 2u);
  EXPECT_EQ(scan_lines(index, 0).size(), 1u);
  const ProgramResult deep =
      run_program({"scan", "--json", "--recursive", folder.path()});
  EXPECT_EQ(deep.exit_code, 1) << deep.err;
  EXPECT_EQ(lines_of(deep.out).size(), 4u);  // and the totals
}

// A folder whose path is too long cannot be read, not even by root.
TEST(ScanFolders, AnUnreadableOneDoesNotHideTheOthers) {
  Folder folder;
  folder.add("z/x.npy", npy("<f4", "(1,)", elements(std::vector<float>{kInf})));
  const std::string name(255, 'n');
  int parent = open(folder.path().c_str(), O_RDONLY | O_DIRECTORY);
  for (int depth = 0; depth < 20; ++depth) {
    ASSERT_EQ(mkdirat(parent, name.c_str(), 0700), 0);
    const int child = openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY);
    ASSERT_GE(child, 0);
    close(parent);
    parent = child;
  }
  close(parent);
  const ProgramResult result =
      run_program({"scan", "--json", "--recursive", folder.path()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(lines_of(result.out).size(), 2u) << result.out;
  ASSERT_EQ(lines_of(result.err).size(), 1u);
  EXPECT_EQ(result.err.rfind(
                "swamp: " + folder.path() + "/" + name + "/" + name + "/", 0),
            0u);
  EXPECT_NE(result.err.find(": cannot list the folder: "), std::string::npos);
}

TEST(ScanFiles, ABadOneDoesNotHideTheOthers) {
  Folder folder;
  const std::string bad = folder.add("bad.npy", "no");
  const std::string dirty = folder.add(
      "dirty.npy", npy("<f4", "(1,)", elements(std::vector<float>{kInf})));
  const ProgramResult result = run_program({"scan", "--json", bad, dirty});
  EXPECT_EQ(result.exit_code, 2);
  const std::vector<std::string> lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1],
            R"({"schema":1,"totals":{"files":1,"errors":1,"tensors":1,)"
            R"("found":1,"not_scanned":0,"unsupported":0,"count":1,"inf":1,)"
            R"("nan":0,"min":null,"max":null,"absmax":null}})");
  ASSERT_EQ(lines_of(result.err).size(), 1u);
  EXPECT_NE(result.err.find(bad), std::string::npos);
}

TEST(ScanFiles, FormatByContentWhereTheNameSaysNothing) {
  const std::string one = elements(std::vector<float>{1});
  EXPECT_EQ(scan_one("model", npy("<f4", "(1,)", one), 0)["count"], 1);
  EXPECT_EQ(
      scan_one("model", safetensors(header_of("F32", 1, 4), one), 0)["name"],
      "w");
  EXPECT_EQ(scan_one("model", zip({stored("a.npy", npy("<f4", "(1,)", one))}),
                     0)["name"],
            "a");
}

TEST(ScanMachines, SameAnswersEverywhere) {
  std::vector<float> values(100000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::sin(static_cast<float>(i)) * 1e-40f;  // subnormal
  }
  values[77777] = kNan;
  Folder folder;
  const std::string path =
      folder.add("x.npy", npy("<f4", "(100000,)", elements(values)));
  const std::vector<Json> expected = scan_lines(path, 1);
  ASSERT_EQ(expected.size(), 1u);
  EXPECT_EQ(expected[0]["first"], 77777);
  for (const Environment& environment :
       {Environment{{"SWAMP_BACKEND", "serial"}},
        {{"SWAMP_BACKEND", "threads"}, {"SWAMP_TRANSFER", "copy"}},
        {{"SWAMP_MACHINE", "sw26010"}, {"SWAMP_TRANSFER", "check"}},
        {{"SWAMP_ISA", "scalar"}}}) {
    EXPECT_EQ(scan_lines(path, 1, environment), expected);
  }
}

}  // namespace
}  // namespace swamp::test
