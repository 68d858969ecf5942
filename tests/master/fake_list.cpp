#include "fake_list.h"

#include <new>

namespace swamp::test {

FakeList::FakeList(const std::vector<FakeTensor>& tensors)
    : operations_(std::make_unique<Operation[]>(kOperations)) {
  // Two operands: the plan must not care how long a segment is.
  const std::uint16_t bytes[kOperations] = {2, 2, 4, 8};
  for (std::size_t i = 0; i < kOperations; ++i) {
    operations_[i].operand_count = 2;
    operations_[i].traffic_bytes = 2u * bytes[i] + 4;
  }
  const std::size_t stride = segment_bytes(2);
  memory_.resize(tensors.size() * stride / sizeof(std::uint64_t) + 1);
  auto* base = reinterpret_cast<std::byte*>(memory_.data());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Operation* operation =
        &operations_[static_cast<std::size_t>(tensors[i].type)];
    new (base + i * stride) Segment{operation, tensors[i].count};
    traffic_bytes_ += tensors[i].count * operation->traffic_bytes;
    elements_ += tensors[i].count;
  }
  table_ = {base, stride, tensors.size(), operations_.get(), kOperations};
}

std::string FakeList::text() const {
  std::string text;
  for (std::size_t i = 0; i < table_.count && i < 40; ++i) {
    text += std::to_string(table_[i].count) + "x" +
            std::to_string(table_[i].operation->traffic_bytes) + " ";
  }
  return text + "(" + std::to_string(table_.count) + " tensors)";
}

std::vector<FakeTensor> random_tensors(Random& random) {
  constexpr std::size_t kBlock = master::kBlockElements;
  const std::size_t edges[] = {0,          1,           kBlock - 1,
                               kBlock,     kBlock + 1,  2 * kBlock - 1,
                               2 * kBlock, 100 * kBlock};
  const std::uint64_t kind = random.below(6);
  const std::size_t length =
      kind == 0 ? random.below(3) : 1 + random.below(kind == 1 ? 1000 : 60);
  std::vector<FakeTensor> tensors;
  for (std::size_t i = 0; i < length; ++i) {
    std::size_t count = 0;
    switch (random.below(kind == 1 ? 2 : 5)) {
      case 0:
        count = random.below(300);
        break;
      case 1:
        count = random.below(kBlock);
        break;
      case 2:
        count = edges[random.below(sizeof edges / sizeof edges[0])];
        break;
      case 3:
        count = random.below(50 * kBlock);
        break;
      default:
        count = kind == 2 ? random.below(5000 * kBlock) : 0;
    }
    tensors.push_back({count, static_cast<int>(random.below(4))});
  }
  return tensors;
}

std::vector<master::GrainRun> grain_runs(const FakeList& list) {
  std::vector<master::GrainRun> runs;
  master::for_each_grain_run(
      list.table(), [&](const master::GrainRun& run) { runs.push_back(run); });
  return runs;
}

}  // namespace swamp::test
