// The picture of a run: a PNG or SVG if there is gnuplot, else a line on
// stderr.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "tests/cli/training.h"

namespace swamp::test {
namespace {

bool has_gnuplot() {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (std::filesystem::exists(folder + "/gnuplot")) return true;
  }
  return false;
}

ProgramResult plot(const std::string& path, std::vector<std::string> more,
                   const Environment& environment = {}) {
  const TemporaryFile text(sample_text());
  more.insert(more.begin(),
              {"train", text.path(), "--batch", "4", "--plot", path});
  return run_program(more, environment);
}

TEST(Plot, IsAPicture) {
  if (!has_gnuplot()) GTEST_SKIP() << "needs gnuplot";
  // An odd name is no part of any script or shell.
  const TemporaryFile folder;
  std::filesystem::create_directory(folder.path());
  const std::string base = folder.path() + "/'`x`\"$(x); a";
  for (const auto& [suffix, options] :
       {std::pair<const char*, std::vector<std::string>>(".png",
                                                         {"--steps", "30"}),
        {"", {"--steps", "1", "--dtype", "float32"}},
        {".PNG", {"--steps", "2", "--loss-scale", "4294967296"}},
        {".png", {"--steps", "6", "--bf16", "--lr", "1e30"}},
        {".svg", {"--steps", "30"}}}) {
    const std::string path = base + suffix;
    const ProgramResult result = plot(path, options);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    const ProgramResult read = run_command({"/bin/cat", path});
    EXPECT_GT(read.out.size(), 5000u);
    if (std::string(suffix) == ".svg") {
      EXPECT_EQ(read.out.rfind("<?xml", 0), 0u);
      EXPECT_NE(read.out.find("<svg"), std::string::npos);
      EXPECT_NE(read.out.find("</svg>"), std::string::npos);
    } else {
      EXPECT_EQ(read.out.substr(0, 8), "\x89PNG\r\n\x1a\n");
      EXPECT_EQ(read.out.substr(12, 4), "IHDR");
      EXPECT_EQ(read.out.substr(16, 8), std::string("\0\0\4\260\0\0\3\40", 8));
    }
    std::filesystem::remove(path);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));  // nothing partial
  }
}

TEST(Plot, IsDrawnOfAnInterruptedRun) {
  if (!has_gnuplot()) GTEST_SKIP() << "needs gnuplot";
  const TemporaryFile text(sample_text());
  const TemporaryFile log;
  const TemporaryFile picture;
  const ProgramResult result =
      run_command({kProgram, "train", text.path(), "--batch", "4", "--steps",
                   "1000000", "--log", log.path(), "--plot", picture.path()},
                  {}, "", -1, [&] { return lines_of(log.read()).size() >= 3; });
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(picture.read().substr(1, 3), "PNG");
  EXPECT_FALSE(std::filesystem::exists(picture.path() + ".partial"));
}

TEST(Plot, WithoutGnuplotTheRunSucceeds) {
  const TemporaryFile picture;
  const ProgramResult result =
      plot(picture.path(), {"--steps", "2"}, {{"PATH", "/nonexistent"}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "swamp: --plot: no gnuplot here; '" + picture.path() +
                            "' is not written\n");
  EXPECT_EQ(lines_of(result.out).back().rfind("weights ", 0), 0u);
  EXPECT_FALSE(std::filesystem::exists(picture.path()));
}

}  // namespace
}  // namespace swamp::test
