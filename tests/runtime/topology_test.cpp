// The machine `host` on topologies that hwloc makes up.
#include "runtime/topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>

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

}  // namespace
}  // namespace swamp::runtime
