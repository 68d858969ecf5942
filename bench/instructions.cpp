// Runs one operation on 65536 elements a number of times: the program whose
// instructions bench/instructions.py counts on CPUs that qemu-user emulates.
//
//   swamp_bench_instructions           lists the operations
//   swamp_bench_instructions NAME N    runs operation NAME N times
//
// A line of the list: name, elements, bytes read and written per element.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "swamp/swamp.h"

namespace {

using namespace swamp;

constexpr std::size_t kRows = 64, kColumns = 1024;
constexpr std::size_t kCount = kRows * kColumns;

struct Arrays {
  // Six arrays of float32 or less; every byte pattern is a small number.
  std::vector<float> data[6];
  float column[2][kRows];

  Arrays() {
    for (auto& one : data) one.assign(kCount, 0.0f);
    std::memset(column, 0, sizeof column);
  }
  Tensor tensor(int i, ScalarType type) {
    return {data[i].data(), kCount, type};
  }
  Matrix matrix(int i, ScalarType type) {
    return {data[i].data(), kRows, kColumns, type};
  }
  RowVector row(int i, ScalarType type) { return {data[i].data(), type}; }
};

struct Operation {
  const char* name;
  int bytes;  // per element
  void (*run)(Arrays& arrays);
};

template <ScalarType type>
void unscale(Arrays& a) {
  float found_inf = 0;
  const Tensor list = a.tensor(0, type);
  amp_foreach_non_finite_check_and_unscale_(list, found_inf, -1.0f);
}
template <ScalarType type>
void check(Arrays& a) {
  float found_inf = 0;
  const Tensor list = a.tensor(0, type);
  amp_foreach_non_finite_check_and_unscale_(list, found_inf, 1.0f);
}
template <ScalarType in, ScalarType out>
void cast(Arrays& a) {
  const Tensor from = a.tensor(0, in), to = a.tensor(1, out);
  foreach_cast_(to, from);
}
template <ScalarType type>
void norm(Arrays& a) {
  const Tensor list = a.tensor(0, type);
  foreach_norm(list, 0.5f);
}
template <ScalarType gradient, bool with_model>
void adamw(Arrays& a) {
  const Tensor list[] = {a.tensor(0, kFloat32), a.tensor(1, gradient),
                         a.tensor(2, kFloat32), a.tensor(3, kFloat32),
                         a.tensor(4, gradient)};
  AdamStep step;
  static_cast<AdamOptions&>(step) = AdamWOptions();
  step.step = 10;
  foreach_adam_(list[0], list[1], list[2], list[3],
                with_model ? TensorList(list[4]) : TensorList(), step);
}
template <ScalarType type>
void softmax(Arrays& a) {
  scaled_softmax(a.matrix(0, type), a.matrix(1, type));
}
template <ScalarType type>
void norm_of_rows(Arrays& a) {
  layer_norm(a.matrix(0, type), a.row(2, type), a.row(3, type),
             a.matrix(1, type), a.column[0], a.column[1]);
}

constexpr Operation kOperations[] = {
    {"unscale/float32", 8, unscale<kFloat32>},
    {"unscale/bfloat16", 4, unscale<kBFloat16>},
    {"unscale/float16", 4, unscale<kFloat16>},
    {"check/float32", 4, check<kFloat32>},
    {"check/float16", 2, check<kFloat16>},
    {"norm/float32", 4, norm<kFloat32>},
    {"norm/float16", 2, norm<kFloat16>},
    {"cast/bfloat16_float32", 6, cast<kBFloat16, kFloat32>},
    {"cast/float16_float32", 6, cast<kFloat16, kFloat32>},
    {"cast/float32_bfloat16", 6, cast<kFloat32, kBFloat16>},
    {"cast/float32_float16", 6, cast<kFloat32, kFloat16>},
    {"adamw/float32", 28, adamw<kFloat32, false>},
    {"adamw/bfloat16_bfloat16", 28, adamw<kBFloat16, true>},
    {"adamw/float16_float16", 28, adamw<kFloat16, true>},
    {"softmax/float32", 8, softmax<kFloat32>},
    {"softmax/float16", 4, softmax<kFloat16>},
    {"layer_norm/float32", 8, norm_of_rows<kFloat32>},
    {"layer_norm/float16", 4, norm_of_rows<kFloat16>},
};

}  // namespace

int main(int count, char** words) {
  for (const Operation& operation : kOperations) {
    if (count != 3) {
      std::printf("%s %zu %d\n", operation.name, kCount, operation.bytes);
    } else if (std::strcmp(words[1], operation.name) == 0) {
      Arrays arrays;
      for (int i = std::atoi(words[2]); i > 0; --i) operation.run(arrays);
      return 0;
    }
  }
  return count == 3 ? 2 : 0;
}
