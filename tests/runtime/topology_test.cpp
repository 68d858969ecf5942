// The machine `host` on synthetic topologies of hwloc, and in cgroups.
#include "runtime/topology.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <locale>

#include "support/errors.h"

#ifdef SWAMP_HAS_HWLOC
#include <hwloc.h>
#endif

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

// Threads have different cores while there are any, and the slaves of a core
// group have the cores of its NUMA node, which are consecutive.
TEST(TopologyTest, CoresOfATeam) {
  for (const std::size_t cores : {1u, 2u, 64u, 192u}) {
    Topology topology;
    topology.core_pus.assign(cores, 0);
    for (const int team : {1, 2, 8, 64, 128, 384}) {
      SCOPED_TRACE(std::to_string(cores) + " " + std::to_string(team));
      std::vector<int> threads(cores);
      for (int worker = 0; worker < team; ++worker) {
        const std::size_t core = core_of(topology, worker, team);
        ASSERT_LT(core, cores);
        ++threads[core];
        const auto group = static_cast<std::size_t>(worker) * 8 /
                           static_cast<std::size_t>(team);
        if (cores % 8 == 0 && team % 8 == 0) {
          EXPECT_EQ(core * 8 / cores, group);
        }
      }
      const auto most = (static_cast<std::size_t>(team) + cores - 1) / cores;
      EXPECT_LE(*std::max_element(threads.begin(), threads.end()),
                static_cast<int>(most));
    }
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

// A laptop with 8 efficiency and 6 performance cores, which have two PUs each.
TEST_F(Synthetic, KindsOfCores) {
  hwloc_topology_t hybrid;
  ASSERT_EQ(hwloc_topology_init(&hybrid), 0);
  ASSERT_EQ(hwloc_topology_set_synthetic(hybrid, "Core:14 PU:2"), 0);
  ASSERT_EQ(hwloc_topology_load(hybrid), 0);
  hwloc_bitmap_t set = hwloc_bitmap_alloc();
  hwloc_bitmap_set_range(set, 0, 11);
  ASSERT_EQ(hwloc_cpukinds_register(hybrid, set, 9, 0, nullptr, 0), 0);
  hwloc_bitmap_zero(set);
  hwloc_bitmap_set_range(set, 12, 27);
  ASSERT_EQ(hwloc_cpukinds_register(hybrid, set, 1, 0, nullptr, 0), 0);
  hwloc_bitmap_free(set);
  const std::string file =
      testing::TempDir() + "swamp_hybrid." + std::to_string(getpid()) + ".xml";
  ASSERT_EQ(hwloc_topology_export_xml(hybrid, file.c_str(), 0), 0);
  hwloc_topology_destroy(hybrid);
  setenv("HWLOC_XMLFILE", file.c_str(), 1);
  const Topology topology = read_topology();
  unsetenv("HWLOC_XMLFILE");
  unlink(file.c_str());
  EXPECT_EQ(topology.cores(), 14u);
  EXPECT_TRUE(
      test::has_words(topology.source, {"hwloc", "kinds of cores: 8, 6"}))
      << topology.source;
  EXPECT_EQ(read("Core:14 PU:2").source.find("kinds"), std::string::npos);
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
