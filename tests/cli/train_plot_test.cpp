// The picture of a run: a PNG where there is gnuplot, a line on stderr where
// there is none.
#include <gtest/gtest.h>

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
  const std::string path = folder.path() + "/'`x`\"$(x); a.png";
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--steps", "30"},
        {"--steps", "1", "--dtype", "float32"},
        {"--steps", "2", "--loss-scale", "4294967296"},
        {"--steps", "6", "--bf16", "--lr", "1e30"}}) {
    const ProgramResult result = plot(path, options);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    const ProgramResult read = run_command({"/bin/cat", path});
    EXPECT_EQ(read.out.substr(0, 8), "\x89PNG\r\n\x1a\n");
    EXPECT_EQ(read.out.substr(12, 4), "IHDR");
    EXPECT_EQ(read.out.substr(16, 8), std::string("\0\0\4\260\0\0\3\40", 8));
    EXPECT_GT(read.out.size(), 5000u);
    std::filesystem::remove(path);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));  // nothing partial
  }
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
