// The operator as a case calls it, and the lists it is called with.
#ifndef SWAMP_BENCH_OPERATOR_H_
#define SWAMP_BENCH_OPERATOR_H_

#include <benchmark/benchmark.h>

#include <cstddef>
#include <string>
#include <vector>

#include "swamp/c_api.h"
#include "swamp/machine.h"

namespace swamp::bench {

struct Dtype {
  const char* name;
  swamp_dtype dtype;
  std::size_t bytes;
};
inline constexpr Dtype kDtypes[] = {{"float32", SWAMP_FLOAT32, 4},
                                    {"float16", SWAMP_FLOAT16, 2},
                                    {"bfloat16", SWAMP_BFLOAT16, 2},
                                    {"float64", SWAMP_FLOAT64, 8}};

using List = std::vector<swamp_tensor>;

// make_list() lays tensors of these counts into shared memory, one behind the
// other from `offset` on, each on a line of its own as allocators do it.
List make_list(const Dtype& dtype, const std::vector<std::size_t>& counts,
               std::size_t offset = 0);
// list_bytes() is how much shared memory that takes.
std::size_t list_bytes(const Dtype& dtype,
                       const std::vector<std::size_t>& counts);
// element_bytes() is what of it are elements.
std::size_t element_bytes(const Dtype& dtype,
                          const std::vector<std::size_t>& counts);

// c_machine() is the environment's machine, made through the C ABI once and
// kept, with this transfer mode ("": the environment's). With one thread it is
// a machine that can do with one.
swamp_machine* c_machine(int threads, const std::string& transfer = "");

// run_operator() is the timed loop of a case: the operator on the whole list.
void run_operator(benchmark::State& state, swamp_machine* machine,
                  const List& list, float inv_scale);
void run_operator(benchmark::State& state, Machine& machine, const List& list,
                  float inv_scale);
// The same with another of the lists, all alike, every time.
void run_operator(benchmark::State& state, Machine& machine,
                  const std::vector<List>& lists, float inv_scale);

}  // namespace swamp::bench

#endif  // SWAMP_BENCH_OPERATOR_H_
