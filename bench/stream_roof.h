// The roof of passes over several arrays: a plain loop with the same streams.
#ifndef SWAMP_BENCH_STREAM_ROOF_H_
#define SWAMP_BENCH_STREAM_ROOF_H_

#include <cstddef>
#include <string>
#include <vector>

#include "bench/suite.h"

namespace swamp::bench {

// Streams is what a pass does to its arrays: one is read, some of float32 are
// moved in place, one is written; `in` and `out` are bytes of an element, 2, 4
// or 0 for none.
struct Streams {
  std::size_t in;
  std::size_t inout;
  std::size_t out;

  // What one element moves, read and written each counted. That a line must be
  // read before it is written in part is not: a store past the caches need not.
  std::size_t traffic() const { return in + 8 * inout + out; }
  // The arrays of one element.
  std::size_t bytes() const { return in + 4 * inout + out; }
  std::string name() const {
    return "in:" + std::to_string(in) + "/inout:" + std::to_string(inout) +
           "/out:" + std::to_string(out);
  }
};

// kStreamUnit divides the counts of arrays that lie in lines of their own.
inline constexpr std::size_t kStreamUnit = 32;

// stream_count() is the elements that fill `bytes`, all arrays together.
constexpr std::size_t stream_count(std::size_t bytes, std::size_t of_element) {
  return bytes / of_element / kStreamUnit * kStreamUnit;
}

// StreamArrays places the arrays of a pass one behind the other, each on a page
// of its own, and not all at the same distance from a multiple of 4 KiB.
struct StreamArrays {
  StreamArrays(const Streams& streams, std::size_t count);
  std::size_t bytes;                 // of memory, all of them
  std::vector<std::size_t> offsets;  // in, inout ..., out
};

// stream_roof() adds the loop for this CPU in its variants (prefetch distance;
// stores past the caches) and returns their names. Only the combinations of
// streams that the families use are compiled.
std::vector<std::string> stream_roof(Suite& suite, const Streams& streams,
                                     std::size_t bytes, int threads);

}  // namespace swamp::bench

#endif  // SWAMP_BENCH_STREAM_ROOF_H_
