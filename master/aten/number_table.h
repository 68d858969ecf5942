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
#include <optional>
#include <vector>

namespace swamp::aten {

// NumberTable is one function, whose results have the dtype of x or are truth
// values: a table for each 16-bit dtype. Any thread may call.
class NumberTable {
 public:
  using Compute = std::function<at::Tensor(const at::Tensor&)>;

  // look_up() returns f(x) in a dtype, with the strides of PyTorch's result, and
  // look_up_() writes it to x. They return nothing, or false, if there is no
  // table, or if x can't be read in the order of memory. They make a table, of
  // 128 KiB, after kLeastCalled elements with the same arguments of f, so that
  // arguments that change cost little, and keep it until they differ. compute()
  // is f of a contiguous tensor with the dtype of x; its result is contiguous.
  static constexpr std::int64_t kLeastCalled = 4 << 16;
  std::optional<at::Tensor> look_up(const at::Tensor& x, at::ScalarType type,
                                    std::vector<double> arguments,
                                    const Compute& compute);
  bool look_up_(const at::Tensor& x, std::vector<double> arguments,
                const Compute& compute);

 private:
  using Results = std::vector<std::uint8_t>;
  struct Entry {
    std::int64_t called = 0;  // elements
    std::vector<double> arguments;
    std::shared_ptr<const Results> results;
  };
  // results_of() returns null if there is no table.
  std::shared_ptr<const Results> results_of(const at::Tensor& x,
                                            std::vector<double> arguments,
                                            const Compute& compute);

  std::mutex mutex_;
  Entry half_, bfloat16_;
};

}  // namespace swamp::aten

#endif  // SWAMP_MASTER_ATEN_NUMBER_TABLE_H_
