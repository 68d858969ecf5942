// Files that shrink while they are read, and bad files: one line on stderr and
// exit code 2.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "master/cli/command.h"
#include "master/cli/scan/mapped_file.h"
#include "master/cli/scan/scanner.h"
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

// Slaves of every backend must take the signal.
TEST(ShrinkingFile, IsAnErrorOnEveryBackend) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  for (const char* backend : {"serial", "openmp", "threads"}) {
    SCOPED_TRACE(backend);
    const TemporaryFile file("");
    std::filesystem::resize_file(file.path(), kBytes);
    const cli::MappedFile mapped(file.path());
    std::filesystem::resize_file(file.path(), 5000);
    cli::FileTensor tensor;
    tensor.element.bytes = 4;
    tensor.element.kind = cli::Element::Kind::scanned;
    tensor.count = kBytes / 4;
    tensor.data = mapped.bytes();
    MachineConfig config;
    config.backend = backend;
    config.slaves_per_group = 4;
    Machine machine(config);
    cli::Scanner(machine, [](std::uint64_t) {}).scan({tensor});
    EXPECT_THROW(mapped.check(), Failure);
  }
}

// The signal of a file that has its size again, or of an I/O error.
TEST(ShrinkingFile, ThatGrewAgain) {
  const TemporaryFile file(std::string(1 << 20, 'x'));
  const cli::MappedFile mapped(file.path());
  std::filesystem::resize_file(file.path(), 0);
  EXPECT_EQ(mapped.bytes()[99999], '\0');
  std::filesystem::resize_file(file.path(), 1 << 20);
  try {
    mapped.check();
    FAIL() << "no error";
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(),
                 "a part of the file could not be read: an I/O error, or the "
                 "file was rewritten meanwhile");
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
  ASSERT_EQ(mkfifo(pipe.path().c_str(), 0600), 0);
  const TemporaryFile empty("");
  const TemporaryFile torch(zip({stored("model/data.pkl", "\x80\2}q.")}));
  const TemporaryFile old_torch(
      "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.");
  const std::string torch_error = "a torch.save file: export it as safetensors";
  for (const auto& [path, words] :
       {std::pair<std::string, std::string>(pipe.path(), "not a regular file"),
        {"/nonexistent.npy", "No such file"},
        {"/dev/null", "not a regular file"},
        {empty.path(), "unknown format"},
        {torch.path(), torch_error},
        {old_torch.path(), torch_error},
        {std::filesystem::path(empty.path()).parent_path().string(),
         "a folder without"}}) {
    expect_error(run_program({"scan", path}), {"swamp: " + path + ": ", words});
  }
  EXPECT_EQ(run_program({"scan"}).exit_code, 2);
}

TEST(ScanErrors, UnsupportedTensorsAreNotClean) {
  const std::string object = npy("|O", "(1,)", "pickle");
  const TemporaryFile file(
      zip({stored("a.npy", npy("<f4", "(1,)", std::string(4, '\0'))),
           stored("b.npy", object), stored("c.npy", object)}));
  const ProgramResult result = run_program({"scan", file.path()});
  EXPECT_EQ(result.exit_code, 2);
  const std::vector<std::string> lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 3u) << result.out;
  EXPECT_EQ(lines[0], "b  object [1]  unsupported dtype, not scanned");
  EXPECT_EQ(
      lines[2].rfind(file.path() + ": 3 tensors, 0 with inf or nan, 2 not "
                                   "scanned; 1 element, ",
                     0),
      0u);
  EXPECT_EQ(result.err,
            "swamp: " + file.path() +
                ": tensor 'b': got dtype object, expected one that swamp can "
                "scan; 2 tensors are like that\n");
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
