// Counted traffic: lines, the cost model and the measurements to which it was
// fitted, and that a counting machine counts what a computing machine
// transfers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "runtime/dma.h"
#include "runtime/predict/cost_model.h"
#include "runtime/predict/predictor.h"
#include "runtime/tile_loop.h"
#include "tests/runtime/test_kernels.h"

namespace swamp::runtime {
namespace {

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
    const predict::Lines lines = predict::lines_of(one.address, one.bytes);
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
  for (const double flops : {900.0 * 16, 1100.0 * 16}) {
    group.most_flops = flops;
    const predict::Cycles cycles = predict::cycles_of(group);
    EXPECT_EQ(cycles.overlapped, 441);
    EXPECT_EQ(cycles.rma, 1000);
    EXPECT_EQ(cycles.ldm, (128 + 6000) / 32.0);
    EXPECT_EQ(cycles.arithmetic, flops / 16);
    EXPECT_EQ(cycles.total, std::max(1000.0, flops / 16));
  }
}

// Bandwidths measured on SW39000 (job 8419757, and a later study on the same
// cluster), in bytes per cycle of all slaves of one core group together, by how
// many slaves do a transfer, its bytes, and how many bytes after the start of a
// line it begins. The model was fitted to them.
struct Measured {
  bool put;
  int slaves;
  std::uint32_t bytes, offset;
  double measured;
};

std::vector<Measured> measured() {
  std::vector<Measured> all;
  // One slave: the cycles of a get and a put. 64 slaves: bytes per cycle of
  // gets, gets 4 bytes after the start of a line, puts, and the same.
  constexpr double kSizes[][7] = {
      {8, 441, 0.446, 0.446, 240, 0.197, 0.196},
      {64, 441, 3.57, 3.56, 240, 1.57, 0.81},
      {128, 441, 7.12, 4.98, 242, 15.37, 1.21},
      {256, 459, 9.84, 7.81, 251, 15.24, 2.17},
      {512, 479, 13.87, 12.18, 263, 14.84, 3.93},
      {1024, 543, 16.31, 14.90, 292, 14.64, 5.64},
      {2048, 590, 20.52, 19.60, 348, 14.97, 7.04},
      {4096, 712, 21.29, 21.00, 460, 15.23, 10.08},
      {8192, 953, 20.63, 20.65, 679, 15.89, 11.85},
      {16384, 1437, 20.50, 20.47, 1118, 16.25, 13.38},
      {32768, 2364, 20.88, 20.72, 1990, 15.89, 14.78},
      {65536, 4175, 21.23, 21.17, 3739, 16.00, 14.96},
  };
  for (const auto& row : kSizes) {
    const auto bytes = static_cast<std::uint32_t>(row[0]);
    all.push_back({false, 1, bytes, 0, bytes / row[1]});
    all.push_back({true, 1, bytes, 0, bytes / row[4]});
    all.push_back({false, 64, bytes, 0, row[2]});
    all.push_back({false, 64, bytes, 4, row[3]});
    all.push_back({true, 64, bytes, 0, row[5]});
    all.push_back({true, 64, bytes, 4, row[6]});
  }
  // By the number of slaves: gets and puts of 128 KiB.
  constexpr double kSlaves[][3] = {
      {1, 16.7, 18.1},  {2, 16.9, 18.7},  {4, 19.5, 21.3},  {8, 20.9, 20.6},
      {16, 21.1, 20.5}, {32, 21.4, 18.4}, {64, 20.9, 15.4},
  };
  for (const auto& row : kSlaves) {
    for (const bool put : {false, true}) {
      all.push_back(
          {put, static_cast<int>(row[0]), 128 * 1024, 0, row[put ? 2 : 1]});
    }
  }
  // Cycles of each put of 64 slaves, at four offsets. They are of another job,
  // whose levels differ by up to 30 %.
  constexpr std::uint32_t kOffsets[] = {0, 4, 64, 124};
  constexpr double kScan[][5] = {
      {64, 1917, 3579, 1913, 3498},  {96, 1917, 3572, 3503, 5014},
      {124, 3577, 3574, 3504, 3493}, {128, 439, 5180, 3502, 5008},
      {132, 2735, 5166, 5028, 2684}, {256, 885, 6060, 4590, 6222},
      {260, 3522, 6057, 6169, 3493},
  };
  for (const auto& row : kScan) {
    for (int i = 0; i < 4; ++i) {
      const auto bytes = static_cast<std::uint32_t>(row[0]);
      all.push_back({true, 64, bytes, kOffsets[i], 64 * row[0] / row[i + 1]});
    }
  }
  return all;
}

TEST(PredictTest, ModelIsCloseToMeasurements) {
  std::vector<double> errors;
  for (const Measured& one : measured()) {
    predict::GroupTraffic group;
    for (int i = 0; i < one.slaves; ++i) {
      const predict::Lines lines = predict::lines_of(std::uint64_t{one.offset},
                                                     std::uint64_t{one.bytes});
      Traffic slave;
      if (one.put) {
        slave.put(one.bytes, lines);
      } else {
        slave.get(one.bytes, lines);
      }
      group.add(slave);
    }
    const double predicted = static_cast<double>(one.slaves) * one.bytes /
                             predict::cycles_of(group).one_after_another;
    errors.push_back(std::abs(predicted / one.measured - 1));
    EXPECT_LT(errors.back(), 0.6) << one.put << " " << one.slaves << " "
                                  << one.bytes << " " << one.offset;
  }
  ASSERT_EQ(errors.size(), 114u);
  std::sort(errors.begin(), errors.end());
  EXPECT_LT((errors[56] + errors[57]) / 2, 0.04);
}

// LoggingDma is CopyDma that counts. Operations may have any address and are
// counted as if aligned to a line.
class LoggingDma {
 public:
  LoggingDma(const Operation* operation, Traffic& traffic)
      : operation_(operation), traffic_(traffic) {}

  void get(void* ldm, const void* main, const Lines& one, Reply* reply) {
    EXPECT_EQ(one.count, 1u);
    const bool anywhere = main == operation_ || main == operation_->args;
    traffic_.get(one.bytes, anywhere
                                ? predict::lines_of(std::uint64_t{0}, one.bytes)
                                : predict::lines_of(main, one.bytes));
    dma_.get(ldm, main, one, reply);
  }
  void put(void* main, const void* ldm, const Lines& one, Reply* reply) {
    EXPECT_EQ(one.count, 1u);
    traffic_.put(one.bytes, predict::lines_of(main, one.bytes));
    dma_.put(main, ldm, one, reply);
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
    launch.limits.ldm_bytes = impl.ldm_bytes;
    launch.limits.tile_bytes = impl.tuning.tile_bytes;

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
    // Each unit is 16 floating-point operations; the ranges differ by a unit.
    const std::size_t units =
        std::accumulate(std::begin(counts), std::end(counts), std::size_t{0});
    const auto most = static_cast<double>((units + slaves - 1) / slaves);
    EXPECT_EQ(counter.cycles().arithmetic, most);
  }
}

}  // namespace
}  // namespace swamp::runtime
