// Lists of tensors without memory, for the plan: it looks at counts only.
#ifndef SWAMP_TESTS_MASTER_FAKE_LIST_H_
#define SWAMP_TESTS_MASTER_FAKE_LIST_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "master/plan.h"
#include "runtime/launch.h"
#include "support/random.h"

namespace swamp::test {

struct FakeTensor {
  std::size_t count;
  int type;  // index of its operation
};

class FakeList {
 public:
  static constexpr int kOperations = 4;

  explicit FakeList(const std::vector<FakeTensor>& tensors);

  const runtime::SegmentTable& table() const { return table_; }
  std::uint64_t traffic_bytes() const { return traffic_bytes_; }
  std::size_t elements() const { return elements_; }
  std::uint64_t bytes_of(std::size_t segment, std::size_t elements) const {
    return elements * table_[segment].operation->traffic_bytes;
  }
  std::string text() const;

 private:
  std::unique_ptr<Operation[]> operations_;
  std::vector<std::uint64_t> memory_;
  runtime::SegmentTable table_;
  std::uint64_t traffic_bytes_ = 0;
  std::size_t elements_ = 0;
};

// random_tensors() draws lists of all sorts: small and large tensors, empty
// ones, counts at the edges of blocks, a single tensor, none at all.
std::vector<FakeTensor> random_tensors(Random& random);

// grain_runs() collects the grains of a list.
std::vector<master::GrainRun> grain_runs(const FakeList& list);

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MASTER_FAKE_LIST_H_
