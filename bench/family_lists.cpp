// list/: lists of many tensors, as an optimizer hands them over.
#include <algorithm>
#include <string>
#include <vector>

#include "bench/memory.h"
#include "bench/operator.h"
#include "bench/suite.h"
#include "bench/threads.h"
#include "master/cli/predict/models.h"

namespace swamp::bench {
namespace {

constexpr double kTensorAim = 6;  // ns a tensor of 16 elements

struct Shape {
  const char* name;
  std::vector<std::size_t> counts;
};

std::vector<Shape> shapes() {
  const auto equal = [](std::size_t tensors, std::size_t count) {
    return std::vector<std::size_t>(tensors, count);
  };
  return {{"10000x16", equal(10000, 16)},
          {"1000x100", equal(1000, 100)},
          {"1000x10000", equal(1000, 10000)},
          {"148x100000", equal(148, 100000)},
          {"gpt2", cli::model_counts("gpt2-small")}};
}

void add_list_case(Suite& suite, const Shape& shape, const Dtype& dtype,
                   int threads) {
  const std::string name = std::string("list/") + shape.name + "/" +
                           dtype.name + threads_name(threads);
  const std::size_t elements = element_bytes(dtype, shape.counts);
  suite.add(name, threads,
            {2.0 * static_cast<double>(elements),
             static_cast<double>(shape.counts.size())},
            [=](benchmark::State& state) {
              run_operator(state, c_machine(threads),
                           make_list(dtype, shape.counts), kFlipSign);
            });
  const std::string what =
      std::string(shape.name) + " " + dtype.name + ", " + threads_text(threads);
  // Of small tensors the cost of a tensor tells; of large ones, the roof.
  constexpr std::size_t kSmallCount = 4096;
  if (shape.counts.front() > kSmallCount) {
    // What is larger than "memory" has its roof, and there it is cheaper.
    const std::size_t roof_bytes =
        std::min(elements, suite.options().memory_bytes);
    suite.row(
        speed_row(what, name, "roof", scale_roof(suite, roof_bytes, threads)));
    return;
  }
  const bool aimed = shape.counts.front() == 16 && threads == 1;
  suite.row(
      item_row(what, name, aimed ? Aim{Aim::at_most, kTensorAim} : Aim{}));
}

}  // namespace

void add_lists(Suite& suite) {
  suite.section("Lists of tensors, through the C ABI");
  for (const Shape& shape : shapes()) {
    for (const Dtype& dtype : kDtypes) {
      if (dtype.dtype == SWAMP_FLOAT64) continue;  // nobody trains in it
      if (suite.quick() && dtype.dtype != SWAMP_FLOAT32) continue;
      if (list_bytes(dtype, shape.counts) > suite.options().list_limit_bytes) {
        continue;
      }
      for (const int threads : thread_counts()) {
        add_list_case(suite, shape, dtype, threads);
      }
    }
  }
}

}  // namespace swamp::bench
