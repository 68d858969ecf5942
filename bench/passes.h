// The passes of an optimizer as cases, for the families that vary them.
#ifndef SWAMP_BENCH_PASSES_H_
#define SWAMP_BENCH_PASSES_H_

#include <cstddef>
#include <functional>
#include <string>

#include "bench/suite.h"
#include "swamp/machine.h"

namespace swamp::bench {

// add_pass_case() adds the pass of that name ("cast/bfloat16_float32") over
// arrays of `bytes` together; machine() says where, null is the default one.
void add_pass_case(Suite& suite, const std::string& pass,
                   const std::string& name, std::size_t bytes, int threads,
                   std::function<Machine*()> machine);

}  // namespace swamp::bench

#endif  // SWAMP_BENCH_PASSES_H_
