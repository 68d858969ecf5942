// The machine `host` on synthetic topologies of hwloc, and in cgroups.
#include "runtime/topology.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <locale>

#include "support/errors.h"

namespace swamp::runtime {
namespace {

TEST(TopologyTest, ObeysTheBindingOfThisProcess) {
  cpu_set_t own;
  ASSERT_EQ(sched_getaffinity(0, sizeof own, &own), 0);
  int first = 0;
  while (!CPU_ISSET(static_cast<unsigned>(first), &own)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(first), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const Topology topology = read_topology();
  ASSERT_EQ(sched_setaffinity(0, sizeof own, &own), 0);
  EXPECT_EQ(topology.cores(), 1u);
  EXPECT_EQ(topology.groups, 1u);
  EXPECT_EQ(topology.core_pus[0], first);
}

TEST(TopologyTest, ACpuLimitIsSharedByTheGroups) {
  Topology topology;
  topology.groups = 2;
  topology.core_pus.assign(8, 0);
  const std::uint32_t expected[][2] = {{0, 4}, {8, 4}, {100, 4},
                                       {7, 4}, {6, 3}, {1, 1}};
  for (const auto& [limit, slaves] : expected) {
    topology.cpu_limit = limit;
    EXPECT_EQ(topology.slaves_per_group(), slaves) << limit;
  }
}

#ifdef SWAMP_HAS_HWLOC
class Synthetic : public ::testing::Test {
 protected:
  static Topology read(const char* description) {
    setenv("HWLOC_SYNTHETIC", description, 1);
    const Topology topology = read_topology();
    return topology;
  }
  void TearDown() override { unsetenv("HWLOC_SYNTHETIC"); }
};

TEST_F(Synthetic, AGroupPerNumaNodeASlavePerCore) {
  const struct {
    const char* description;
    std::uint32_t groups, cores, slaves_per_group;
  } cases[] = {
      {"NUMANode:1 Core:1 PU:1", 1, 1, 1},
      {"Package:2 NUMANode:1 Core:4 PU:1", 2, 8, 4},
      {"Package:2 Core:4 PU:2", 1, 8, 8},
      {"Group:6 NUMANode:1 Core:65 PU:1", 6, 390, 65},
      {"NUMANode:4 Core:2 PU:2", 4, 8, 2},
      {"PU:3", 1, 3, 3},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.description);
    const Topology topology = read(c.description);
    EXPECT_EQ(topology.groups, c.groups);
    EXPECT_EQ(topology.cores(), c.cores);
    EXPECT_EQ(topology.slaves_per_group(), c.slaves_per_group);
    EXPECT_FALSE(topology.is_this_system);
  }
}

TEST_F(Synthetic, GarbageIsAnErrorNotTheRealMachine) {
  EXPECT_TRUE(test::has_words(test::error_of([&] { read("seven:cores"); }),
                              {"seven:cores"}));
}
#endif

// ---- The CPU limits of made-up cgroup trees.

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
