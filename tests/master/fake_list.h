// Lists of counts, for the partition.
#ifndef SWAMP_TESTS_MASTER_FAKE_LIST_H_
#define SWAMP_TESTS_MASTER_FAKE_LIST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "master/partition.h"
#include "support/random.h"

namespace swamp::test {

struct FakeTensor {
  std::size_t count;
  int type;  // index of its traffic
};

// FakeList is a List of partition.h.
class FakeList {
 public:
  static constexpr int kTypes = 4;

  explicit FakeList(const std::vector<FakeTensor>& tensors);

  std::size_t size() const { return tensors_.size(); }
  std::size_t count(std::size_t i) const { return tensors_[i].count; }
  std::uint64_t element_traffic(std::size_t i) const;

  std::uint64_t traffic_bytes() const { return traffic_bytes_; }
  std::uint64_t bytes_of(std::size_t i, std::size_t elements) const {
    return elements * element_traffic(i);
  }
  std::string text() const;

 private:
  std::vector<FakeTensor> tensors_;
  std::uint64_t traffic_bytes_ = 0;
};

// random_tensors() returns random lists of all kinds: small and large tensors,
// empty ones, counts at the edges of blocks, a single tensor, none at all.
std::vector<FakeTensor> random_tensors(Random& random);

// grain_runs() returns the grains of a list.
std::vector<master::GrainRun> grain_runs(const FakeList& list);

}  // namespace swamp::test

#endif  // SWAMP_TESTS_MASTER_FAKE_LIST_H_
