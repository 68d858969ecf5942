// Functions of one 16-bit number as tables of their results: a result takes
// less time to look up than most functions take to compute.
#ifndef SWAMP_MASTER_ATEN_NUMBER_TABLE_H_
#define SWAMP_MASTER_ATEN_NUMBER_TABLE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <vector>

namespace swamp::aten {

// NumberTable is one function, whose results have the dtype of x or are truth
// values: a table for each 16-bit dtype. Any thread may call.
class NumberTable {
 public:
  using Compute = std::function<at::Tensor(const at::Tensor&)>;

  // look_up() writes f(x) to y, which may be x, and returns true. It returns
  // false if there is no table, or if it can't read x or write y in the order of
  // memory. It makes a table, of 128 KiB, after kLeastCalled elements with the
  // same arguments of f, so that arguments that change cost little, and keeps
  // it until they differ. compute() is f of a contiguous tensor with the dtype
  // of x; its result is contiguous.
  static constexpr std::int64_t kLeastCalled = 4 << 16;
  bool look_up(const at::Tensor& x, const at::Tensor& y,
               std::vector<double> arguments, const Compute& compute);

 private:
  using Results = std::vector<std::uint8_t>;
  struct Entry {
    std::int64_t called = 0;  // elements
    std::vector<double> arguments;
    std::shared_ptr<const Results> results;
  };
  std::shared_ptr<const Results> results_of(const at::Tensor& x,
                                            std::vector<double> arguments,
                                            const Compute& compute);

  std::mutex mutex_;
  Entry half_, bfloat16_;
};

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_NUMBER_TABLE_H_
