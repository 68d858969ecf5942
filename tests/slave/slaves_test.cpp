// The kernels compiled for Sunway's slaves, run there and compared with the
// references: every count, odd alignments, every pattern of a narrow format,
// every float environment. Each spawn has many tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "kernel_cases.h"
#include "runtime/launch.h"
#include "runtime/machine_impl.h"
#include "slave/kernel_list.h"
#include "support/float_environment_scope.h"
#include "support/random.h"
#include "swamp/machine.h"

namespace swamp::test {

// PrintTo() keeps addresses out of the names of tests.
void PrintTo(const KernelCase& value, std::ostream* out) { *out << value.name; }

namespace {

constexpr int kSlaves = 5;
constexpr std::size_t kMaxCount = 200;
constexpr std::size_t kMargin = 64;
constexpr std::byte kGuard{0xa5};

// The kernels that the master would run instead of a slave.
void on_the_master(const void*, const Tile&, Result&) {
  ADD_FAILURE() << "a part of the list was run by the master";
}

MachineConfig config() {
  MachineConfig config;
  config.backend = "athread";
  config.transfer = "copy";
  config.core_groups = 1;
  config.slaves_per_group = kSlaves;
  return config;
}

// machine() returns a machine whose master has no kernels.
Machine& machine() {
  static Machine made(config());
  static std::vector<KernelRow> rows;
  static constexpr KernelFunction function = &on_the_master;
  static KernelTable table{"none", true, nullptr};
  if (rows.empty()) {
    rows.assign(slave::kKernelCount, {"none", &function});
    table.rows = rows.data();
    made.impl().kernels = &table;
  }
  return made;
}

// Tensor is one array of each operand, surrounded by guard bytes.
class Tensor {
 public:
  Tensor(const KernelCase& kernel, KernelTiles original, std::size_t turn)
      : original_(std::move(original)) {
    for (std::size_t s = 0; s < kernel.operands.size(); ++s) {
      const std::size_t element = kernel.operands[s].format->bytes;
      const std::size_t before = kMargin + (turn * 7 + s * 5) % 17 * element;
      std::vector<std::byte> bytes(before + original_.bytes(s) + kMargin,
                                   kGuard);
      std::copy_n(original_.operand(s), original_.bytes(s),
                  bytes.begin() + static_cast<std::ptrdiff_t>(before));
      before_.push_back(before);
      memory_.push_back(std::move(bytes));
    }
  }
  const KernelTiles& original() const { return original_; }
  std::size_t count() const { return original_.count(); }
  std::byte* operand(std::size_t s) { return memory_[s].data() + before_[s]; }

  bool intact() const {
    const auto is_guard = [](std::byte b) { return b == kGuard; };
    for (std::size_t s = 0; s < memory_.size(); ++s) {
      const auto begin = memory_[s].begin();
      const auto data = begin + static_cast<std::ptrdiff_t>(before_[s]);
      if (!std::all_of(begin, data, is_guard) ||
          !std::all_of(data + static_cast<std::ptrdiff_t>(original_.bytes(s)),
                       memory_[s].end(), is_guard)) {
        return false;
      }
    }
    return true;
  }

 private:
  KernelTiles original_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::size_t> before_;
};

std::size_t partial_bytes(Partial kind) {
  return kind == Partial::norm   ? sizeof(slave::NormPartial)
         : kind == Partial::scan ? sizeof(slave::ScanPartial)
                                 : 0;
}

// SlaveRun is a list of tensors and the results of the slaves.
class SlaveRun {
 public:
  SlaveRun(const KernelCase& kernel, const ArgsSample& args,
           std::vector<Tensor>& tensors)
      : kernel_(kernel), tensors_(tensors) {
    operation_ = Operation(slave::kKernels[kernel.id], args.bytes.data());
    for (Tensor& tensor : tensors) {
      words_.push_back(reinterpret_cast<std::uint64_t>(&operation_));
      words_.push_back(tensor.count());
      for (std::size_t s = 0; s < kernel.operands.size(); ++s) {
        words_.push_back(reinterpret_cast<std::uint64_t>(tensor.operand(s)));
      }
      if (kernel.operands.size() < operation_.operand_count) {
        words_.push_back(reinterpret_cast<std::uint64_t>(&kTestKey));
      }
    }
    for (int i = 0; i < kSlaves; ++i) {
      ranges_.push_back({share(i), 0, share(i + 1), 0});
    }
    const std::size_t bytes = partial_bytes(kernel.family.partial);
    const std::size_t slots = tensors.size() + kSlaves;
    partial_memory_.resize(slots * bytes / sizeof(double));
    partials_ = {reinterpret_cast<std::byte*>(partial_memory_.data()), bytes,
                 slots};
  }

  void run() {
    runtime::LdmArenas arenas;
    runtime::Launch launch;
    launch.table = {reinterpret_cast<const std::byte*>(words_.data()),
                    segment_bytes(operation_.operand_count), tensors_.size(),
                    &operation_, 1};
    launch.ranges = ranges_.data();
    launch.slaves = kSlaves;
    launch.results = results_;
    launch.partials = partials_;
    runtime::run(machine().impl(), launch, arenas);
  }

  const runtime::SlaveResult& result(int slave) const {
    return results_[slave];
  }
  const runtime::SlaveRange& range(int slave) const {
    return ranges_[static_cast<std::size_t>(slave)];
  }
  // partial() returns the partial result of a tensor; all nan are the same.
  std::vector<std::byte> partial(std::size_t tensor, int slave) const {
    std::vector<std::byte> bytes(sizeof KernelResult{}.partial_bytes);
    std::memcpy(bytes.data(), partials_.slot(tensor, slave), partials_.bytes);
    make_nan_equal(kernel_, bytes.data());
    return bytes;
  }

 private:
  std::size_t share(int slave) const {
    return tensors_.size() * static_cast<std::size_t>(slave) / kSlaves;
  }

  const KernelCase& kernel_;
  std::vector<Tensor>& tensors_;
  Operation operation_{};
  std::vector<std::uint64_t> words_;
  std::vector<runtime::SlaveRange> ranges_;
  std::vector<double> partial_memory_;
  runtime::Partials partials_;
  runtime::SlaveResult results_[kSlaves];
};

class SlaveKernels : public testing::TestWithParam<KernelCase> {
 protected:
  static std::vector<Tensor> make_tensors(Fill fill) {
    const KernelCase& kernel = GetParam();
    Random random(9);
    std::vector<Tensor> tensors;
    for (std::size_t count = 0; count <= kMaxCount; ++count) {
      tensors.emplace_back(kernel, KernelTiles(kernel, count, fill, random),
                           count);
    }
    const unsigned bytes = kernel.operands[0].format->bytes;
    const std::size_t patterns =
        bytes <= 2 ? std::size_t{1} << (8 * bytes) : 20011;
    KernelTiles every(kernel, patterns, fill, random);
    if (bytes <= 2 && fill == fill_any) {
      std::vector<std::uint64_t> bits(patterns);
      for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = i;
      every.set(bits);
    }
    tensors.emplace_back(kernel, std::move(every), 1);
    return tensors;
  }

  // expect_reference() runs the list on the slaves and, tensor by tensor, here.
  static void expect_reference(const ArgsSample& args, Fill fill,
                               unsigned control) {
    const KernelCase& kernel = GetParam();
    std::vector<Tensor> tensors = make_tensors(fill);
    SlaveRun actual(kernel, args, tensors);
    {
      const ControlScope scope(control);
      actual.run();
    }
    for (int slave = 0; slave < kSlaves; ++slave) {
      runtime::SlaveResult want;
      for (std::size_t t = actual.range(slave).begin_segment;
           t < actual.range(slave).end_segment; ++t) {
        SCOPED_TRACE("tensor " + std::to_string(t));
        Tensor& tensor = tensors[t];
        KernelTiles expected = tensor.original();
        expected.flip_out();
        KernelResult one;
        {
          const ControlScope scope(control);
          one = expected.run(kernel.reference, args, 0);
        }
        want.add(t, one);
        void* tiles[kMaxOperands] = {};
        for (std::size_t s = 0; s < kernel.operands.size(); ++s) {
          tiles[s] = tensor.operand(s);
        }
        ASSERT_TRUE(
            compare_written(kernel, args, tiles, expected, tensor.original()));
        ASSERT_TRUE(tensor.intact());
        if (partial_bytes(kernel.family.partial) == 0 || tensor.count() == 0) {
          continue;
        }
        KernelResult gathered = one;
        const std::vector<std::byte> bytes = actual.partial(t, slave);
        std::copy(bytes.begin(), bytes.end(), gathered.partial_bytes);
        ASSERT_TRUE(same_result(gathered, one));
      }
      const runtime::SlaveResult& got = actual.result(slave);
      EXPECT_EQ(got.flagged_elements, want.flagged_elements);
      EXPECT_EQ(got.flagged_segments, want.flagged_segments);
      EXPECT_EQ(got.first_segment, want.first_segment);
      EXPECT_EQ(got.first_index, want.first_index);
      EXPECT_EQ(got.last_segment, want.last_segment);
    }
  }
};

TEST_P(SlaveKernels, AsTheReference) {
  // The environments in turn; each kernel runs in most of them.
  std::size_t turn = 0;
  for (const ArgsSample& args : GetParam().family.samples) {
    for (const Fill fill : {fill_any, fill_finite, fill_ordinary}) {
      const FloatEnvironment& environment =
          kFloatEnvironments[turn++ % std::size(kFloatEnvironments)];
      SCOPED_TRACE(args.text + ", " + environment.name);
      expect_reference(args, fill, environment.control);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(SlaveKernels, Once) {
  expect_reference(GetParam().family.samples.back(), fill_any, 0);
}

std::string name_of(const testing::TestParamInfo<KernelCase>& param) {
  return param.param.name;
}
INSTANTIATE_TEST_SUITE_P(All, SlaveKernels, testing::ValuesIn(kernel_cases()),
                         name_of);

}  // namespace

}  // namespace swamp::test
