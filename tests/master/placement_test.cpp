// Where the pages of MixedPrecisionOptimizer's arrays lie on a machine whose
// core groups are NUMA nodes: a page belongs to the group whose slave writes it
// first, and steps should use it from that group. tests/master/numa_guest runs
// this on a machine that has two nodes.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/machine_impl.h"
#include "swamp/mixed_precision.h"

namespace swamp::test {
namespace {

// Placement is a backend that counts the bytes that slaves read and write in
// pages of their own group and of others. Slaves then run on one thread, or by
// another backend.
class Placement final : public runtime::Backend {
 public:
  struct Bytes {
    double local = 0, remote = 0;
    double fresh = 0;   // in pages that have no group yet
    double master = 0;  // the same, but the master has touched them before
  };

  explicit Placement(std::uint32_t slaves_per_group,
                     std::unique_ptr<runtime::Backend> inner = nullptr)
      : slaves_per_group_(static_cast<int>(slaves_per_group)),
        inner_(std::move(inner)) {}

  // ignore() leaves out an array that does not belong to the optimizer.
  void ignore(const void* data, std::size_t bytes) {
    for (const auto page : pages(data, bytes)) group_of_[page] = kIgnored;
  }
  Bytes take() { return std::exchange(bytes_, {}); }

  // pages_by_node() returns for each group how many of its pages the system has
  // on each node.
  std::map<int, std::map<int, std::size_t>> pages_by_node() const {
    std::map<int, std::map<int, std::size_t>> counts;
    for (const auto& [page, group] : group_of_) {
      if (group == kIgnored) continue;
      void* address = reinterpret_cast<void*>(page * kPage);
      int node = -1;
      if (syscall(SYS_move_pages, 0, 1ul, &address, nullptr, &node, 0) == 0 &&
          node >= 0) {
        ++counts[group][node];
      }
    }
    return counts;
  }

  void run(const runtime::Launch& launch) override {
    for (int slave = 0; slave < launch.slaves; ++slave) {
      if (launch.table.count != 0) count(launch, slave);
      if (!inner_) runtime::run_slaves(launch, slave, slave + 1, 0);
    }
    if (inner_) inner_->run(launch);
  }
  int worker_count() const noexcept override {
    return inner_ ? inner_->worker_count() : 1;
  }

 private:
  static constexpr int kIgnored = -1;
  static constexpr std::uintptr_t kPage = 4096;

  static std::vector<std::uintptr_t> pages(const void* data,
                                           std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    std::vector<std::uintptr_t> all;
    for (auto page = begin / kPage; page * kPage < begin + bytes; ++page) {
      all.push_back(page);
    }
    return all;
  }
  static bool is_touched(std::uintptr_t page) {
    unsigned char there = 0;
    return mincore(reinterpret_cast<void*>(page * kPage), kPage, &there) == 0 &&
           (there & 1) != 0;
  }

  void count(const runtime::Launch& launch, int slave) {
    const runtime::SlaveRange& range = launch.ranges[slave];
    std::size_t begin = range.begin_unit;
    const auto add = [&](std::size_t i, std::size_t end) {
      const Segment& segment = launch.table[i];
      for (int s = 0; s < segment.operation->operand_count; ++s) {
        const Operand& operand = segment.operation->operands[s];
        if (operand.unit_bytes == 0 || operand.access == Access::constant) {
          continue;
        }
        add_bytes(slave / slaves_per_group_,
                  segment.data()[s] + begin * operand.unit_bytes,
                  (end - begin) * operand.unit_bytes, operand.is_written());
      }
      begin = 0;
    };
    for (std::size_t i = range.begin_segment; i < range.end_segment; ++i) {
      add(i, launch.table[i].count);
    }
    if (range.end_unit != 0) add(range.end_segment, range.end_unit);
  }

  void add_bytes(int group, const std::byte* data, std::size_t bytes,
                 bool is_written) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    for (const auto page : pages(data, bytes)) {
      const auto in_page =
          static_cast<double>(std::min(begin + bytes, (page + 1) * kPage) -
                              std::max(begin, page * kPage));
      const auto found = group_of_.find(page);
      if (found == group_of_.end()) {
        bytes_.fresh += in_page;
        if (is_touched(page)) bytes_.master += in_page;
        if (is_written) group_of_[page] = group;
      } else if (found->second != kIgnored) {
        (found->second == group ? bytes_.local : bytes_.remote) += in_page;
      }
    }
  }

  int slaves_per_group_;
  std::unique_ptr<runtime::Backend> inner_;
  std::unordered_map<std::uintptr_t, int> group_of_;
  Bytes bytes_;
};

// A transformer of 8.5 million parameters: matrices with weight decay, vectors
// without.
class Model {
 public:
  explicit Model(Placement& placement) : groups(2) {
    groups[1].weight_decay = 0;
    add(0, 20000 * 128, placement);
    for (int layer = 0; layer < 12; ++layer) {
      constexpr std::size_t kSquare = 128 * 128;
      for (const std::size_t count : {3 * kSquare, kSquare, 4 * kSquare,
                                      4 * kSquare, std::size_t{300000}}) {
        add(0, count, placement);
      }
      for (const std::size_t count : {384u, 128u, 512u, 128u, 128u, 128u}) {
        add(1, count, placement);
      }
    }
  }
  std::vector<ParameterGroup> groups;

 private:
  void add(std::size_t group, std::size_t count, Placement& placement) {
    Tensor tensors[2];
    for (Tensor& tensor : tensors) {
      memory_.emplace_back(count, std::uint16_t{0x3c00});
      tensor = {memory_.back().data(), count, kBFloat16};
      placement.ignore(tensor.data, 2 * count);
    }
    groups[group].parameters.push_back(
        {"p" + std::to_string(memory_.size()), tensors[0], tensors[1]});
  }
  std::vector<std::vector<std::uint16_t>> memory_;
};

TEST(Placement, OwnArraysLieWhereTheyAreUsed) {
  // With huge pages the first slave touches pages of others.
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  // So that each large array has pages of its own, which nobody has touched.
  mallopt(M_MMAP_THRESHOLD, 64 * 1024);
  const struct {
    std::uint32_t core_groups, slaves_per_group;
    bool fused;
  } cases[] = {{2, 32, true}, {8, 24, true}, {2, 64, false}, {8, 24, false}};
  for (const auto& c : cases) {
    SCOPED_TRACE(std::to_string(c.core_groups) + " " +
                 std::to_string(c.slaves_per_group) + " " +
                 std::to_string(c.fused));
    // Free memory of earlier tests, whose pages they touched, goes back.
    malloc_trim(0);
    MachineConfig config;
    config.backend = "serial";
    config.transfer = "view";
    config.core_groups = c.core_groups;
    config.slaves_per_group = c.slaves_per_group;
    Machine machine(config);
    auto backend = std::make_unique<Placement>(c.slaves_per_group);
    Placement& placement = *backend;
    machine.impl().backend = std::move(backend);
    const Model model(placement);
    MixedPrecisionOptions options;
    options.bf16 = true;
    options.fused = c.fused;
    options.machine = &machine;
    MixedPrecisionOptimizer optimizer(model.groups, options);
    const Placement::Bytes made = placement.take();
    EXPECT_GT(made.fresh, 8e6 * 3 * 4);  // master and two moments, at least
    EXPECT_LE(made.master, 0.05 * made.fresh);
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(optimizer.step().success);
      const Placement::Bytes used = placement.take();
      EXPECT_LE(used.fresh, 0.01 * used.local);
      EXPECT_LE(used.remote, 0.05 * (used.local + used.remote));
    }
  }
  prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}

// The same on this machine's nodes: each group's pages are on one node, which
// no other group has.
TEST(Placement, PagesLieOnTheNodesOfTheSlaves) {
  MachineConfig config;
  config.machine = "host";
  config.backend = "threads";
  config.transfer = "view";
  config.bind = "core";
  Machine machine(config);
  Machine::Impl& impl = machine.impl();
  if (impl.core_groups == 1 || !impl.topology.is_this_system) {
    GTEST_SKIP() << "this machine has one NUMA node";
  }
  mallopt(M_MMAP_THRESHOLD, 64 * 1024);
  auto backend = std::make_unique<Placement>(impl.slaves_per_group,
                                             std::move(impl.backend));
  Placement& placement = *backend;
  impl.backend = std::move(backend);
  const Model model(placement);
  MixedPrecisionOptions options;
  options.bf16 = true;
  options.machine = &machine;
  MixedPrecisionOptimizer optimizer(model.groups, options);
  for (int step = 0; step < 2; ++step) ASSERT_TRUE(optimizer.step().success);
  std::map<int, int> group_of_node;
  for (const auto& [group, nodes] : placement.pages_by_node()) {
    std::size_t all = 0, most = 0;
    int node = -1;
    for (const auto& [one, pages] : nodes) {
      all += pages;
      if (pages > most) most = pages, node = one;
      std::printf("group %d, node %d: %zu pages\n", group, one, pages);
    }
    EXPECT_GE(static_cast<double>(most), 0.95 * static_cast<double>(all));
    EXPECT_TRUE(group_of_node.emplace(node, group).second) << node;
  }
  EXPECT_EQ(group_of_node.size(), impl.core_groups);
}

}  // namespace
}  // namespace swamp::test
