#include "fake_list.h"

namespace swamp::test {

FakeList::FakeList(const std::vector<FakeTensor>& tensors) : tensors_(tensors) {
  for (std::size_t i = 0; i < size(); ++i) {
    traffic_bytes_ += bytes_of(i, count(i));
  }
}

std::uint64_t FakeList::element_traffic(std::size_t i) const {
  constexpr std::uint64_t kBytes[kTypes] = {8, 8, 12, 20};
  return kBytes[tensors_[i].type];
}

std::string FakeList::text() const {
  std::string text;
  for (std::size_t i = 0; i < size() && i < 40; ++i) {
    text += std::to_string(count(i)) + "x" +
            std::to_string(element_traffic(i)) + " ";
  }
  return text + "(" + std::to_string(size()) + " tensors)";
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
      list, [&](const master::GrainRun& run) { runs.push_back(run); });
  return runs;
}

}  // namespace swamp::test
