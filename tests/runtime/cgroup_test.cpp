// The CPU limits of made-up cgroup trees.
#include "runtime/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <locale>

namespace swamp::runtime {
namespace {

namespace fs = std::filesystem;

class CgroupTest : public ::testing::Test {
 protected:
  CgroupTest()
      : root_(fs::temp_directory_path() /
              ("swamp_cgroup_test." + std::to_string(getpid()))) {
    fs::create_directories(root_);
  }
  ~CgroupTest() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  std::uint32_t limit(const std::string& membership) {
    write("membership", membership);
    return cgroup_cpu_limit((root_ / "membership").string(), root_.string());
  }

  fs::path root_;
};

TEST_F(CgroupTest, Version2) {
  write("a/b/cpu.max", "250000 100000\n");
  EXPECT_EQ(limit("0::/a/b\n"), 3u);  // 2.5, rounded up
  write("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(limit("0::/a/b\n"), 0u);
  write("a/b/cpu.max", "10000 100000\n");
  EXPECT_EQ(limit("0::/a/b\n"), 1u);
}

TEST_F(CgroupTest, TheLowestOfAllParentsCounts) {
  write("a/cpu.max", "200000 100000\n");
  write("a/b/cpu.max", "800000 100000\n");
  EXPECT_EQ(limit("0::/a/b\n"), 2u);
  write("cpu.max", "100000 100000\n");  // the root of a container
  EXPECT_EQ(limit("0::/a/b\n"), 1u);
  EXPECT_EQ(limit("0::/\n"), 1u);
}

TEST_F(CgroupTest, Version1) {
  write("cpu/docker/x/cpu.cfs_quota_us", "400000\n");
  write("cpu/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limit("5:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n"), 4u);
  write("cpu/docker/x/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(limit("3:cpuacct,cpu:/docker/x\n"), 0u);
}

// GCC's locale fr_FR.UTF-8 groups digits by a space, which also separates the
// two numbers.
TEST_F(CgroupTest, TheProgramsLocaleDoesNotMatter) {
  struct French : std::numpunct<char> {
    char do_thousands_sep() const override { return ' '; }
    std::string do_grouping() const override { return "\3"; }
  };
  write("a/cpu.max", "300000 100000\n");
  const std::locale own =
      std::locale::global(std::locale(std::locale::classic(), new French));
  const std::uint32_t found = limit("0::/a\n");
  std::locale::global(own);
  EXPECT_EQ(found, 3u);
}

TEST_F(CgroupTest, GarbageAndNothingMeanNoLimit) {
  EXPECT_EQ(limit(""), 0u);
  EXPECT_EQ(limit("garbage\n::\n0:\n"), 0u);
  EXPECT_EQ(limit("0::/not/there\n"), 0u);
  write("a/cpu.max", "0 0\n");
  EXPECT_EQ(limit("0::/a\n"), 0u);
  write("a/cpu.max", "lots of it\n");
  EXPECT_EQ(limit("0::/a\n"), 0u);
  EXPECT_EQ(cgroup_cpu_limit("/not/there", "/not/there"), 0u);
}

}  // namespace
}  // namespace swamp::runtime
