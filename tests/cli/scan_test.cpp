// `swamp scan` of files, folders and indices, on every machine; files that
// shrink while they are read; bad files: one line on stderr and exit code 2.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <thread>

#include "master/cli/command.h"
#include "master/cli/scan/scanner.h"
#include "master/cli/scan/tensor_file.h"
#include "support/errors.h"
#include "tests/cli/scan_files.h"
#include "tests/cli/scan_lines.h"

namespace swamp::test {
namespace {

using cli::Failure;

class ShrinkingFile : public testing::Test {
 protected:
  void SetUp() override {
#if defined(SWAMP_TEST_EMULATED) && defined(__s390x__)
    GTEST_SKIP() << "qemu-user gives the handler of SIGBUS a wrong address";
#endif
  }
};

TEST_F(ShrinkingFile, IsAnErrorAndNoSignal) {
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
TEST_F(ShrinkingFile, IsAnErrorOnEveryBackend) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  for (const char* backend : {"serial", "openmp", "threads"}) {
    SCOPED_TRACE(backend);
    const TemporaryFile file("");
    std::filesystem::resize_file(file.path(), kBytes);
    const cli::MappedFile mapped(file.path());
    std::filesystem::resize_file(file.path(), 5000);
    cli::FileTensor tensor;
    tensor.element.bits = 32;
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

// The signal after a file that shrank has grown again, or after an I/O error.
TEST_F(ShrinkingFile, ThatGrewAgain) {
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

// The last page of the file remains, so there is no signal.
TEST_F(ShrinkingFile, ByLessThanAPage) {
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
  EXPECT_EQ(run_program("scan").exit_code, 2);
}

TEST(ScanErrors, UnsupportedTensorsAreNotClean) {
  if (!kReadsNpz) GTEST_SKIP() << "built without libzip";
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

TEST(ScanErrors, TensorOfTheIndexIsMissing) {
  const TemporaryFile anchor("");
  const auto folder = std::filesystem::path(anchor.path()).parent_path();
  std::ofstream(folder / "a.safetensors", std::ios::binary)
      << safetensors("{}", "");
  std::ofstream(folder / "m.safetensors.index.json")
      << R"({"weight_map":{"w":"a.safetensors","v":"gone.safetensors"}})";
  const ProgramResult result = run_program({"scan", folder.string()});
  EXPECT_EQ(result.exit_code, 2);
  ASSERT_EQ(lines_of(result.err).size(), 2u) << result.err;
  EXPECT_TRUE(
      has_words(result.err, {"a.safetensors: no tensor 'w', expected it"}));
  EXPECT_TRUE(has_words(result.err, {"gone.safetensors: cannot open"}));
}

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
  EXPECT_TRUE(has_words(result.err, {": cannot list the folder: "}));
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
  EXPECT_TRUE(has_words(result.err, {bad}));
}

TEST(ScanFiles, FormatByContentIfTheNameHasNone) {
  const std::string one = elements(std::vector<float>{1});
  EXPECT_EQ(scan_one("model", npy("<f4", "(1,)", one), 0)["count"], 1);
  EXPECT_EQ(
      scan_one("model", safetensors(header_of("F32", 1, 4), one), 0)["name"],
      "w");
  if (kReadsNpz) {
    EXPECT_EQ(scan_one("model", zip({stored("a.npy", npy("<f4", "(1,)", one))}),
                       0)["name"],
              "a");
  }
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
