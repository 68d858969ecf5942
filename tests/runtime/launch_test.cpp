// Launches of trivial kernels, x backend x transfer x slaves.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "bench/critical_path.h"
#include "runtime/float_environment.h"
#include "runtime/memory_check.h"
#include "support/errors.h"
#include "support/random.h"
#include "tests/runtime/test_kernels.h"

namespace swamp::test {
namespace {

// Every combination of backend, transfer mode and number of slaves, and no
// report of the checker.
template <class Body>
void for_each_machine(std::size_t ldm_bytes, Body body) {
  const std::size_t before = runtime::report_count();
  for (const std::string& backend : backends()) {
    for (const std::string& transfer : transfers()) {
      for (const std::uint32_t slaves : {1u, 2u, 64u, 384u}) {
        SCOPED_TRACE(backend + " " + transfer + " " + std::to_string(slaves));
        Machine machine(machine_config(backend, transfer, slaves, ldm_bytes));
        body(machine);
      }
    }
  }
  EXPECT_EQ(runtime::report_count(), before);
}

constexpr std::size_t kCounts[] = {1,  0,    3, 16,   100, 8192, 5000,
                                   17, 9000, 0, 4097, 2,   1,    20000};

TEST(LaunchTest, EveryElementOnce) {
  // The small LDM gives many tiles, the default few.
  for (const std::size_t ldm_bytes : {std::size_t{4096}, std::size_t{0}}) {
    for_each_machine(ldm_bytes, [](Machine& machine) {
      const Args args{7};
      const Operation operation(kAdd, &args);
      TestList list(operation);
      std::vector<std::vector<std::uint32_t>> arrays;
      for (const std::size_t count : kCounts) {
        arrays.emplace_back(count);
        std::iota(arrays.back().begin(), arrays.back().end(), 1u);
        list.add(count, {arrays.back().data()});
      }
      arrays[4][99] = arrays[8][0] = arrays[8][8999] = kFlagged;
      std::uint64_t flagged = 0;
      for (const runtime::SlaveResult& result : run(machine, list)) {
        flagged += result.flagged_elements;
      }
      EXPECT_EQ(flagged, 3u);
      for (std::size_t t = 0; t < arrays.size(); ++t) {
        for (std::size_t i = 0; i < arrays[t].size(); ++i) {
          const bool was_flagged =
              (t == 4 && i == 99) || (t == 8 && (i == 0 || i == 8999));
          const std::uint32_t was =
              was_flagged ? kFlagged : static_cast<std::uint32_t>(i + 1);
          ASSERT_EQ(arrays[t][i], was + 7) << t << " " << i;
        }
      }
    });
  }
}

// Each array lies between neighbours, which stay as they are.
TEST(LaunchTest, SeveralStreamsAndOddEdges) {
  for_each_machine(4096, [](Machine& machine) {
    const Args args{0x10000};
    const Operation operation(kWiden, &args);
    TestList list(operation);
    struct Tensor {
      std::vector<std::uint16_t> in;
      std::vector<std::uint32_t> out;
      std::vector<std::uint64_t> sum;
      std::size_t skip;
    };
    std::vector<Tensor> tensors;
    std::size_t skip = 0;
    for (const std::size_t count : kCounts) {
      Tensor tensor{std::vector<std::uint16_t>(count + skip),
                    std::vector<std::uint32_t>(count + 2, 77),
                    std::vector<std::uint64_t>(count + 2, 5), skip};
      std::iota(tensor.in.begin(), tensor.in.end(), std::uint16_t{3});
      tensors.push_back(std::move(tensor));
      Tensor& t = tensors.back();
      list.add(count, {t.in.data() + skip, t.out.data() + 1, t.sum.data() + 1});
      skip = 1 - skip;  // every second array begins in the middle of a word
    }
    run(machine, list);
    for (const Tensor& t : tensors) {
      const std::size_t count = t.out.size() - 2;
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(t.out[i + 1], t.in[i + t.skip] + 0x10000u) << i;
        ASSERT_EQ(t.sum[i + 1], t.in[i + t.skip] + 5u) << i;
      }
      EXPECT_TRUE(t.out[0] == 77 && t.out[count + 1] == 77);
      EXPECT_TRUE(t.sum[0] == 5 && t.sum[count + 1] == 5);
    }
  });
}

// Bytes begin and end anywhere in a word, also twice in one word, and every
// slave writes a partial result for each of its segments.
TEST(LaunchTest, BytesAnywhereAndPartialResults) {
  for_each_machine(4096, [](Machine& machine) {
    const Args args{3};
    const Operation operation(kTally, &args);
    TestList list(operation);
    std::vector<std::vector<std::uint8_t>> arrays;
    std::vector<std::size_t> skips, counts;
    std::uint64_t filled = 1;
    std::size_t skip = 0;
    for (const std::size_t count : {1u, 2u, 3u, 0u, 5u, 7u, 1000u, 20001u, 1u,
                                    4096u, 30003u, 2u, 6u, 0u, 9u}) {
      arrays.emplace_back(count + skip + 5);
      for (std::uint8_t& byte : arrays.back()) {
        byte = static_cast<std::uint8_t>(filled = filled * 1103515245 + 12345);
      }
      skips.push_back(skip);
      counts.push_back(count);
      list.add(count, {arrays.back().data() + skip});
      skip = (skip + 1) % 4;
    }
    const auto original = arrays;
    const int slaves = machine.impl().slaves();
    std::vector<std::uint64_t> memory(
        arrays.size() + static_cast<std::size_t>(slaves), ~std::uint64_t{0});
    const runtime::Partials partials{
        reinterpret_cast<std::byte*>(memory.data()), sizeof memory[0],
        memory.size()};
    run(machine, list, partials);

    std::vector<std::uint64_t> sums(arrays.size());
    const std::vector<runtime::SlaveRange> ranges = list.split(slaves);
    for (int s = 0; s < slaves; ++s) {
      const runtime::SlaveRange& range = ranges[static_cast<std::size_t>(s)];
      for (std::size_t t = range.begin_segment; t <= range.end_segment; ++t) {
        const std::size_t begin =
            t == range.begin_segment ? range.begin_unit : 0;
        if (t == arrays.size()) break;
        const std::size_t end =
            t == range.end_segment ? range.end_unit : counts[t];
        if (begin >= end) continue;
        sums[t] += *reinterpret_cast<std::uint64_t*>(partials.slot(t, s));
      }
    }
    for (std::size_t t = 0; t < arrays.size(); ++t) {
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < arrays[t].size(); ++i) {
        const bool inside = i >= skips[t] && i < skips[t] + counts[t];
        if (inside) sum += original[t][i];
        ASSERT_EQ(arrays[t][i],
                  static_cast<std::uint8_t>(original[t][i] + (inside ? 3 : 0)))
            << t << " " << i;
      }
      EXPECT_EQ(sums[t], sum) << "segment " << t;
    }
  });
}

// Segments of rows with constants of their own, one shared by two segments.
TEST(LaunchTest, RowsConstantsAndScratch) {
  // 20001 columns: operands of more than 65535 bytes per unit.
  for_each_machine(std::size_t{1} << 19, [](Machine& machine) {
    for (const std::uint32_t columns : {1u, 3u, 17u, 64u, 1000u, 20001u}) {
      const RowArgs args{columns};
      Operation operation(kRows, &args, columns);
      operation.scratch_bytes = columns * sizeof(std::uint32_t);
      // The LDM of backend athread is never larger than the hardware's.
      if (!runtime::ldm_need(machine.impl(), operation, 0).fits()) {
        EXPECT_EQ(machine.info().chosen.backend, "athread");
        continue;
      }
      TestList list(operation);
      std::vector<std::uint32_t> constants(2 * columns);
      std::iota(constants.begin(), constants.end(), 1u << 20);
      struct Matrix {
        std::vector<std::uint16_t> in;
        std::vector<std::uint64_t> value;
        std::vector<std::uint32_t> out;
        const std::uint32_t* constant;
      };
      std::vector<Matrix> matrices;
      const std::size_t all_rows[] = {5, 0, 1, 40};
      for (std::size_t m = 0; m < 4; ++m) {
        const std::size_t rows = columns > 1000 ? all_rows[m] % 4 : all_rows[m];
        matrices.push_back({std::vector<std::uint16_t>(rows * columns),
                            std::vector<std::uint64_t>(rows),
                            std::vector<std::uint32_t>(rows * columns),
                            constants.data() + (m == 3 ? columns : 0)});
        Matrix& matrix = matrices.back();
        std::iota(matrix.in.begin(), matrix.in.end(), std::uint16_t{7});
        std::iota(matrix.value.begin(), matrix.value.end(), 99u);
        list.add(rows,
                 {matrix.in.data(), const_cast<std::uint32_t*>(matrix.constant),
                  matrix.value.data(), matrix.out.data()});
      }
      run(machine, list);
      for (const Matrix& matrix : matrices) {
        for (std::size_t i = 0; i < matrix.out.size(); ++i) {
          ASSERT_EQ(matrix.out[i], matrix.in[i] + matrix.constant[i % columns] +
                                       matrix.value[i / columns])
              << columns << " " << i;
        }
      }
    }
  });
}

// set_lines() gives an operand units of several lines: one unit after another,
// as lines of one matrix, or side by side.
void set_lines(Operation& operation, int s, bool whole_words, std::size_t units,
               std::size_t lines, std::size_t line_bytes, Random& random) {
  const std::size_t gap = whole_words ? (0 - line_bytes) % 4 + 4
                                      : random.below(3) * random.below(9);
  std::size_t line_step = line_bytes + gap;
  std::size_t unit_step = lines * line_step + random.below(2) * gap;
  if (random.below(3) == 0) {
    line_step = units * line_bytes + gap;
    unit_step = line_bytes;
  }
  operation.set_lines(s, lines, line_bytes, line_step, unit_step);
}

// Units of several lines, which two segments have in turn: each writes its own
// bytes, and those between the lines stay as they were.
TEST(LaunchTest, LinesThatLieApart) {
  for_each_machine(12 * 1024, [](Machine& machine) {
    Random random(31);
    for (int round = 0; round < 12; ++round) {
      const std::size_t units = 1 + random.below(40);
      const std::size_t lines = 1 + random.below(6);
      const std::size_t line_bytes = random.below(2) == 0
                                         ? 1 + random.below(9)
                                         : 4 * (1 + random.below(30));
      const Args args{static_cast<std::uint32_t>(1 + random.below(200))};
      Operation operation(kLines, &args);
      std::vector<std::uint8_t> arrays[3], expected[3];
      const std::size_t at = round % 3 == 0 ? 0 : random.below(4);
      for (int s = 0; s < 3; ++s) {
        set_lines(operation, s, round % 3 == 0, units, lines, line_bytes,
                  random);
        const Operand& operand = operation.operands[s];
        arrays[s].resize((units - 1) * operand.unit_step +
                         operand.unit_extent() + 8);
        for (std::uint8_t& byte : arrays[s]) {
          byte = static_cast<std::uint8_t>(random.below(256));
        }
        expected[s] = arrays[s];
      }
      for (std::size_t i = 0; i < units * lines * line_bytes; ++i) {
        std::uint8_t* byte[3];
        for (int s = 0; s < 3; ++s) {
          const Operand& operand = operation.operands[s];
          const std::size_t line = i / line_bytes;
          byte[s] =
              &expected[s][at + line / lines * operand.unit_step +
                           line % lines * operand.line_step + i % line_bytes];
        }
        *byte[1] = static_cast<std::uint8_t>(*byte[0] + args.value);
        *byte[2] = static_cast<std::uint8_t>(*byte[2] + *byte[0]);
      }
      TestList list(operation);
      std::size_t begin = 0;
      for (const std::size_t end : {units / 2, units}) {
        const auto address = [&](int s) {
          return arrays[s].data() + at +
                 begin * operation.operands[s].unit_step;
        };
        list.add(end - begin, {address(0), address(1), address(2)});
        begin = end;
      }
      run(machine, list);
      for (int s = 0; s < 3; ++s) {
        ASSERT_EQ(arrays[s], expected[s]) << "round " << round << " " << s;
      }
    }
  });
}

TEST(LaunchTest, TooLittleLdmIsAnErrorBeforeTheFirstWrite) {
  for (const std::string transfer : {"copy", "check"}) {
    Machine machine(machine_config("serial", transfer, 4, 1024));
    const Args args{1};
    const Operation operation(kAdd, &args);
    std::vector<std::uint32_t> data(100, 1);
    TestList list(operation);
    list.add(100, {data.data()});
    expect_refused(
        [&] { run(machine, list); },
        {"SWAMP_LDM_BYTES: got 1024, expected at least ", "for kernel add"},
        SWAMP_UNSUPPORTED);
    EXPECT_EQ(data, std::vector<std::uint32_t>(100, 1));
  }
}

// Runs body(worker) on a thread for each worker of a team.
template <class Body>
void on_threads(int team, Body body) {
  std::vector<std::thread> threads;
  for (int worker = 0; worker < team; ++worker) {
    threads.emplace_back([=] { body(worker); });
  }
  for (std::thread& thread : threads) thread.join();
}

// Counts the runs of each slave.
std::vector<std::atomic<int>>& runs() {
  static std::vector<std::atomic<int>> runs(400);
  return runs;
}

// Each slave is run once, also if some workers of the team never come.
TEST(Claims, EachSlaveOnce) {
  for (const int team : {1, 2, 3, 8, 64}) {
    for (const int slaves : {1, 2, 7, 64, 400}) {
      for (const int present : {1, (team + 1) / 2, team}) {
        SCOPED_TRACE(std::to_string(team) + " " + std::to_string(slaves) + " " +
                     std::to_string(present));
        for (std::atomic<int>& run : runs()) run = 0;
        std::vector<runtime::Claim> claims(static_cast<std::size_t>(team));
        runtime::Launch launch;
        launch.slaves = slaves;
        launch.claims = claims.data();
        launch.float_environment = runtime::read_float_environment();
        launch.run_slave = [](const runtime::Launch&, int slave, int) noexcept {
          ++runs()[static_cast<std::size_t>(slave)];
        };
        runtime::make_claims(launch, team);
        on_threads(present, [&](int worker) {
          runtime::run_claims(launch, worker, team);
        });
        for (int slave = 0; slave < 400; ++slave) {
          ASSERT_EQ(runs()[static_cast<std::size_t>(slave)],
                    slave < slaves ? 1 : 0)
              << slave;
        }
      }
    }
  }
}

// The slaves of a worker are divided evenly, and spread over a larger team.
TEST(Claims, FirstSlave) {
  for (const int team : {1, 2, 3, 64, 192}) {
    for (const int slaves : {1, 2, 8, 63, 64, 65, 384}) {
      EXPECT_EQ(runtime::first_slave(slaves, 0, team), 0);
      EXPECT_EQ(runtime::first_slave(slaves, team, team), slaves);
      for (int worker = 0; worker < team; ++worker) {
        const int own = runtime::first_slave(slaves, worker + 1, team) -
                        runtime::first_slave(slaves, worker, team);
        EXPECT_GE(own, slaves / team);
        EXPECT_LE(own, (slaves + team - 1) / team);
      }
    }
  }
  EXPECT_EQ(runtime::first_slave(8, 1, 64), 1);  // slave 0 is worker 0's
  EXPECT_EQ(runtime::first_slave(8, 8, 64), 1);  // and slave 1 worker 8's
  EXPECT_EQ(runtime::first_slave(8, 9, 64), 2);
}

// Slave 0 waits until all others have run: with fixed shares, those of its
// worker never would.
TEST(Claims, OthersRunTheSlavesOfASlowWorker) {
  const std::vector<std::string> names = backends();
  if (std::count(names.begin(), names.end(), "openmp") == 0) {
    GTEST_SKIP() << "no OpenMP";
  }
  Machine machine(machine_config("openmp", "view", 2, 0));
  if (machine.impl().backend->worker_count() < 2) GTEST_SKIP() << "one CPU";
  static std::atomic<int> done;
  done = 0;
  constexpr int kSlaves = 32;
  runtime::Launch launch;
  launch.slaves = kSlaves;
  std::vector<runtime::Claim> claims(
      static_cast<std::size_t>(machine.impl().backend->worker_count()));
  launch.claims = claims.data();
  launch.float_environment = runtime::read_float_environment();
  launch.run_slave = [](const runtime::Launch&, int slave, int) noexcept {
    for (int i = 0; slave == 0 && done != kSlaves - 1 && i < 20000; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (slave == 0) {
      EXPECT_EQ(done, kSlaves - 1);
    }
    ++done;
  };
  machine.impl().backend->run(launch);
  EXPECT_EQ(done, kSlaves);
}

// The more threads, the more traffic a spawn must save. A long launch is
// divided into parts that threads claim; in the transfer modes of a simulated
// machine, its slaves are claimed.
TEST(Claims, Division) {
  constexpr std::uint64_t kKib = 1024;
  const struct {
    std::uint32_t slaves;
    std::uint64_t alone, spawned;  // KiB of traffic
  } cases[] = {{1, 1 << 20, ~std::uint64_t{0} / kKib},
               {2, 511, 512},
               {64, 755, 770},
               {384, 3300, 3330}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.slaves);
    MachineConfig config = machine_config("serial", "view", c.slaves, 0);
    config.machine = "host";
    Machine machine(config);
    EXPECT_EQ(runtime::divide(machine.impl(), 0).slaves, 1);
    EXPECT_EQ(runtime::divide(machine.impl(), c.alone * kKib).slaves, 1);
    EXPECT_EQ(runtime::divide(machine.impl(), c.spawned * kKib).slaves,
              static_cast<int>(c.slaves));
  }
  for (const std::string& backend : backends()) {
    for (const std::string& transfer : transfers()) {
      SCOPED_TRACE(backend + " " + transfer);
      Machine machine(machine_config(backend, transfer, 2, 0));
      const Machine::Impl& impl = machine.impl();
      const int workers = impl.backend->worker_count();
      const bool claims = backend == "openmp" && workers > 1;
      const std::uint64_t much =
          impl.tuning.claim_traffic_bytes * static_cast<unsigned>(workers);
      EXPECT_EQ(runtime::divide(impl, much - 1).workers, 0);
      EXPECT_EQ(runtime::divide(impl, much).workers, claims ? workers : 0);
      EXPECT_EQ(runtime::divide(impl, much).slaves,
                claims && impl.transfer == runtime::Transfer::view
                    ? std::max(2, impl.tuning.claimed_parts * workers)
                    : 2);
    }
  }
}

// Every part runs once, and of several that throw the lowest one counts.
TEST(RunParts, OnceAndTheLowestError) {
  struct Failed {
    std::size_t begin, end;
  };
  constexpr std::size_t kCount = 1000;
  constexpr std::uint64_t kMuch = 1 << 20;
  for_each_machine(0, [&](Machine& machine) {
    Machine::Impl& impl = machine.impl();
    std::vector<int> calls(kCount);
    std::atomic<int> parts{0};
    runtime::run_parts(impl, kCount, kMuch,
                       [&](std::size_t begin, std::size_t end) {
                         ++parts;
                         for (std::size_t i = begin; i < end; ++i) ++calls[i];
                       });
    EXPECT_EQ(std::count(calls.begin(), calls.end(), 1), kCount);
    const bool divides = impl.backend->worker_count() > 1;
    EXPECT_EQ(parts, divides ? std::min(impl.slaves(), int{kCount}) : 1);
    try {
      runtime::run_parts(impl, kCount, kMuch,
                         [&](std::size_t begin, std::size_t end) {
                           if (end > 300) throw Failed{begin, end};
                         });
      ADD_FAILURE();
    } catch (const Failed& failed) {
      EXPECT_LE(failed.begin, 300u);
      EXPECT_GT(failed.end, 300u);
    }
    // Little work is one part.
    parts = 0;
    runtime::run_parts(impl, kCount, 1, [&](auto...) { ++parts; });
    EXPECT_EQ(parts, 1);
  });
}

// compute() uses so much processor time.
void compute(int milliseconds) {
  const bench::Times begin = bench::Times::now();
  while (begin.until_now().least() < milliseconds * 1e-3) {
  }
}

// The ruler of swamp_bench --critical_path finds one slow slave, and the time
// of the master. The time of other programs does not count.
TEST(CriticalPath, FindsWhatIsSlow) {
  runtime::Launch launch;
  launch.slaves = 8;
  launch.float_environment = runtime::read_float_environment();
  launch.run_slave = [](const runtime::Launch&, int slave, int) noexcept {
    if (slave == 5) compute(20);
  };
  bench::SlavesInTurn turns(launch.slaves);
  for (int call = 0; call < 5; ++call) {
    turns.begin();
    turns.run(launch);
    compute(10);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    launch.slaves = 1;  // of the master alone: neither spawn nor join
    turns.run(launch);
    launch.slaves = 8;
    turns.end();
  }
  const bench::CriticalPath path = turns.path();
  EXPECT_EQ(path.launches, 1u);
  EXPECT_GE(path.longest, 0.020);
  EXPECT_LT(path.balance(), 0.5);
  EXPECT_GE(path.master, 0.010);
  EXPECT_LT(path.master, 0.030);
  EXPECT_DOUBLE_EQ(path.seconds(0.5), path.master + path.longest + 0.5);
}

}  // namespace
}  // namespace swamp::test
