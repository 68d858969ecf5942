// Files that shrink, and what the program says to bad ones: one line on stderr
// and exit code 2.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "master/cli/command.h"
#include "master/cli/scan/mapped_file.h"
#include "tests/cli/run_program.h"
#include "tests/cli/scan_files.h"

namespace swamp::test {
namespace {

using cli::Failure;

TEST(ShrinkingFile, IsAnErrorAndNoSignal) {
  const TemporaryFile file(std::string(1 << 20, 'x'));
  const cli::MappedFile mapped(file.path());
  EXPECT_NO_THROW(mapped.check());
  std::filesystem::resize_file(file.path(), 5000);
  unsigned sum = 0;  // from two threads, as slaves would
  std::thread other(
      [&] { sum = static_cast<unsigned char>(mapped.bytes()[99999]); });
  other.join();
  for (const char byte : mapped.bytes())
    sum += static_cast<unsigned char>(byte);
  EXPECT_EQ(sum, 5000u * 'x');
  try {
    mapped.check();
    FAIL() << "no error";
  } catch (const Failure& failure) {
    EXPECT_STREQ(
        failure.what(),
        "the file shrank from 1048576 to 5000 bytes while it was read");
  }
}

// The last page of the file stays, so there is no signal to tell.
TEST(ShrinkingFile, ByLessThanAPage) {
  const TemporaryFile file(std::string(100, 'x'));
  const cli::MappedFile mapped(file.path());
  std::filesystem::resize_file(file.path(), 99);
  EXPECT_THROW(mapped.check(), Failure);
}

TEST(ScanErrors, AreOneLineThatNamesTheFile) {
  const TemporaryFile pipe;
  const auto expect_error = [](const std::string& path,
                               const std::string& words) {
    const ProgramResult result = run_program({"scan", path});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    ASSERT_EQ(lines_of(result.err).size(), 1u) << result.err;
    EXPECT_EQ(result.err.rfind("swamp: " + path + ": ", 0), 0u) << result.err;
    EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
  };
  ASSERT_EQ(mkfifo(pipe.path().c_str(), 0600), 0);
  expect_error(pipe.path(), "not a regular file");
  expect_error("/nonexistent.npy", "No such file");
  expect_error("/dev/null", "not a regular file");
  const TemporaryFile empty("");
  expect_error(empty.path(), "unknown format");
  const std::string folder =
      std::filesystem::path(empty.path()).parent_path().string();
  expect_error(folder, "a folder without");
  EXPECT_EQ(run_program({"scan"}).exit_code, 2);
}

TEST(ScanErrors, TensorThatTheIndexPromises) {
  const TemporaryFile anchor("");
  const auto folder = std::filesystem::path(anchor.path()).parent_path();
  std::ofstream(folder / "a.safetensors", std::ios::binary)
      << safetensors("{}", "");
  std::ofstream(folder / "m.safetensors.index.json")
      << R"({"weight_map":{"w":"a.safetensors","v":"gone.safetensors"}})";
  const ProgramResult result = run_program({"scan", folder.string()});
  EXPECT_EQ(result.exit_code, 2);
  ASSERT_EQ(lines_of(result.err).size(), 2u) << result.err;
  EXPECT_NE(result.err.find("a.safetensors: no tensor 'w', expected it"),
            std::string::npos);
  EXPECT_NE(result.err.find("gone.safetensors: cannot open"),
            std::string::npos);
}

}  // namespace
}  // namespace swamp::test
