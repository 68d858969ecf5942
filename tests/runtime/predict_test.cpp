// Counted traffic: lines, the cost model, and that a counting machine counts
// what a computing machine transfers.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "runtime/dma.h"
#include "runtime/predict/cost_model.h"
#include "runtime/predict/predictor.h"
#include "runtime/tile_loop.h"
#include "tests/runtime/test_kernels.h"

namespace swamp::runtime {
namespace {

using predict::Lines;
using predict::Traffic;

TEST(PredictTest, LinesOfATransfer) {
  struct Case {
    std::uint64_t address, bytes, touched, whole;
  };
  for (const Case& one : {Case{0, 0, 0, 0},
                          {5, 0, 0, 0},
                          {0, 1, 1, 0},
                          {0, 127, 1, 0},
                          {0, 128, 1, 1},
                          {4, 124, 1, 0},
                          {4, 128, 2, 0},
                          {128, 256, 2, 2},
                          {124, 256, 3, 1},
                          {124, 8, 2, 0},
                          {64, 192, 2, 1},
                          {100, 512, 5, 3}}) {
    const Lines lines = predict::lines_of(one.address, one.bytes);
    EXPECT_EQ(lines.touched, one.touched) << one.address << " " << one.bytes;
    EXPECT_EQ(lines.whole, one.whole) << one.address << " " << one.bytes;
  }
}

// Computed by hand: y = a * x + y of 2^24 float32 on one core group takes 10.6
// million cycles; 4 bytes off, in transfers of 1 KiB, 17.7 million and more.
TEST(PredictTest, WorkedCheck) {
  constexpr std::uint64_t kBytes = std::uint64_t{1024};
  constexpr std::uint64_t kTransfers = (std::uint64_t{4} << 24) / kBytes;
  const auto cycles = [&](std::uint64_t offset) {
    predict::GroupTraffic group;
    for (int i = 0; i < 64; ++i) {
      Traffic slave;
      for (std::uint64_t t = 0; t < kTransfers / 64; ++t) {
        slave.get(kBytes, predict::lines_of(offset, kBytes));
        slave.get(kBytes, predict::lines_of(offset, kBytes));
        slave.put(kBytes, predict::lines_of(offset, kBytes));
      }
      group.add(slave);
    }
    return predict::cycles_of(group);
  };
  EXPECT_NEAR(cycles(0).overlapped, 10.6e6, 0.05e6);
  EXPECT_GT(cycles(0).one_after_another, cycles(0).overlapped);
  EXPECT_NEAR(cycles(4).overlapped, 17.7e6, 0.8e6);
}

// One slave waits for each of its transfers; the memory is idle meanwhile.
TEST(PredictTest, OneSlaveIsBoundByLatency) {
  predict::GroupTraffic group;
  Traffic slave;
  slave.get(128, predict::lines_of(std::uint64_t{0}, 128));
  slave.put(128, predict::lines_of(std::uint64_t{0}, 128));
  group.add(slave);
  EXPECT_EQ(predict::cycles_of(group).overlapped, 441 + 241);
  EXPECT_EQ(predict::cycles_of(group).one_after_another, 441 + 241);
  slave.direct_loads = 3;
  group.add(slave);
  EXPECT_EQ(group.slowest, 441 + 241 + 3 * predict::kDirectCycles);
}

// A launch is as slow as its slowest part.
TEST(PredictTest, TheLargestPartBounds) {
  predict::GroupTraffic group;
  Traffic slave;
  slave.get(128, predict::lines_of(std::uint64_t{0}, 128));
  slave.receive(6000);
  group.add(slave);
  group.add_work(900, 800);
  group.add_work(700, 950);
  const predict::Cycles cycles = predict::cycles_of(group);
  EXPECT_EQ(cycles.overlapped, 441);
  EXPECT_EQ(cycles.rma, 1000);
  EXPECT_EQ(cycles.ldm, 950);
  EXPECT_EQ(cycles.arithmetic, 900);
  EXPECT_EQ(cycles.total, 1000);
}

// LoggingDma is CopyDma that counts. Operations may have any address and are
// counted as if aligned to a line.
class LoggingDma {
 public:
  LoggingDma(const Operation* operation, Traffic& traffic)
      : operation_(operation), traffic_(traffic) {}

  void get(void* ldm, const void* main, std::size_t bytes, Reply* reply) {
    const bool anywhere = main == operation_ || main == operation_->args;
    traffic_.get(bytes, anywhere ? predict::lines_of(std::uint64_t{0}, bytes)
                                 : predict::lines_of(main, bytes));
    dma_.get(ldm, main, bytes, reply);
  }
  void put(void* main, const void* ldm, std::size_t bytes, Reply* reply) {
    traffic_.put(bytes, predict::lines_of(main, bytes));
    dma_.put(main, ldm, bytes, reply);
  }
  void wait(const Reply*, Reply) {}
  void load(void* ldm, const void* main, std::size_t bytes) {
    ++traffic_.direct_loads;
    std::memcpy(ldm, main, bytes);
  }
  void store(void* main, const void* ldm, std::size_t bytes,
             const OperandPart&) {
    ++traffic_.direct_stores;
    std::memcpy(main, ldm, bytes);
  }

 private:
  const Operation* operation_;
  Traffic& traffic_;
  CopyDma dma_;
};

void expect_equal(const Traffic& a, const Traffic& b) {
  EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0);
  EXPECT_EQ(a.get_requests, b.get_requests);
  EXPECT_EQ(a.put_requests, b.put_requests);
  EXPECT_EQ(a.get_bytes, b.get_bytes);
  EXPECT_EQ(a.put_bytes, b.put_bytes);
  EXPECT_EQ(a.lines_read, b.lines_read);
  EXPECT_EQ(a.lines_full, b.lines_full);
  EXPECT_EQ(a.lines_partial, b.lines_partial);
  EXPECT_EQ(a.direct_loads, b.direct_loads);
  EXPECT_EQ(a.direct_stores, b.direct_stores);
}

// A widening operation with odd edges, divided anywhere, on few and many
// slaves.
TEST(PredictTest, CountsTheTransfersOfAComputingMachine) {
  for (const std::uint32_t slaves : {1u, 3u, 64u}) {
    Machine machine(test::machine_config("serial", "copy", slaves, 4096));
    Machine::Impl& impl = machine.impl();
    const test::Args args{5};
    const Operation operation(test::kWiden, &args);
    test::TestList list(operation);
    const std::size_t counts[] = {1, 0, 777, 20000, 3, 64};
    alignas(128) static std::uint16_t in[30000];
    alignas(128) static std::uint32_t out[30000];
    alignas(128) static std::uint64_t sum[30000];
    std::size_t at = 1;  // an odd element before the first word
    for (const std::size_t count : counts) {
      list.add(count, {in + at, out + at, sum + at});
      at += count + 5;
    }
    const SegmentTable table = list.table();
    const std::vector<SlaveRange> ranges = list.split(static_cast<int>(slaves));
    std::vector<runtime::SlaveResult> results(ranges.size());
    Launch launch;
    launch.table = table;
    launch.ranges = ranges.data();
    launch.slaves = static_cast<int>(ranges.size());
    launch.results = results.data();
    launch.ldm_bytes = impl.ldm_bytes;
    launch.tile_bytes = impl.tuning.tile_bytes;

    LdmArenas arenas;
    arenas.reserve(1, impl.ldm_bytes);
    std::fill(std::begin(sum), std::end(sum), 0);
    std::iota(std::begin(in), std::end(in), std::uint16_t{1});
    Traffic worked;
    for (int slave = 0; slave < launch.slaves; ++slave) {
      Ldm ldm = arenas.arena(0, impl.ldm_bytes);
      LoggingDma dma(table.operations, worked);
      TileLoop<LoggingDma>(launch, slave, launch.ranges[slave],
                           impl.kernels->rows, ldm, dma, launch.results[slave])
          .run();
    }
    EXPECT_EQ(sum[1], in[1]);  // computed
    EXPECT_GT(worked.direct_loads, 0u);

    std::fill(std::begin(out), std::end(out), 0);
    auto backend = std::make_unique<CountingBackend>(impl.core_groups);
    const CountingBackend& counter = *backend;
    impl.backend = std::move(backend);
    run(impl, launch, arenas);
    EXPECT_EQ(out[1], 0u);  // not computed
    Traffic counted;
    std::uint64_t used = 0;
    for (const CountingBackend::Group& group : counter.groups()) {
      counted.add(group.traffic);
      used += group.slaves;
    }
    expect_equal(counted, worked);
    EXPECT_EQ(used, ranges.size());
    EXPECT_EQ(counter.launches(), 1u);
    EXPECT_EQ(counter.spawns(), slaves > 1 ? 1u : 0u);
    // Each unit is an operation and 2 accesses; the ranges differ by a unit.
    const std::size_t units =
        std::accumulate(std::begin(counts), std::end(counts), std::size_t{0});
    const auto most = static_cast<double>((units + slaves - 1) / slaves);
    EXPECT_EQ(counter.cycles().arithmetic, most);
    EXPECT_EQ(counter.cycles().ldm, 2 * most);
  }
}

}  // namespace
}  // namespace swamp::runtime
