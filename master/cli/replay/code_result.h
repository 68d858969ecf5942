// The results of a record of codes: they are set, compared with the file's, and
// the first that differs is described, with its block.
#ifndef SWAMP_MASTER_CLI_REPLAY_CODE_RESULT_H_
#define SWAMP_MASTER_CLI_REPLAY_CODE_RESULT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "master/cli/json.h"
#include "master/cli/replay/code_fields.h"
#include "swamp/tensor.h"

namespace swamp::cli {

// The longest block, or row of a product, that a message shows.
inline constexpr std::size_t kMaxShown = 128;

// Place is where a number of a result is, for a message.
struct Place {
  std::string name;
  std::string more;                  // its block's inputs and scale
  std::size_t first = 0, count = 0;  // numbers of the result in its block
};
using PlaceOf = std::function<Place(std::size_t number)>;

// Layout is a matrix of codes whose neighbours share a scale.
struct Layout {
  const CodeInput& input;
  bool is_transposed = false;
  std::size_t block = 0;  // 0: the scale is the matrix's

  std::size_t columns() const {
    return is_transposed ? input.rows : input.columns;
  }
  std::uint32_t bits(std::size_t row, std::size_t column) const {
    return input.bits(is_transposed ? column * input.columns + row
                                    : row * input.columns + column);
  }
  // place() returns the place of an element if a number of the result has
  // `elements` of them.
  Place place(std::size_t element, std::size_t elements = 1) const;
  // places() is of codes of a format; the layout must live as long.
  PlaceOf places(ScalarType format) const;
};

class CodeResults {
 public:
  CodeResults(Json& record, bool check) : record_(record), check_(check) {}

  // Alike returns whether the file's number stays, though it differs from ours.
  using Alike = std::function<bool(std::size_t i, std::uint32_t ours,
                                   std::uint32_t theirs)>;
  static bool never(std::size_t, std::uint32_t, std::uint32_t) { return false; }
  static bool both_nan(std::size_t, std::uint32_t a, std::uint32_t b);

  // set() sets a result, numbers of a type. place(i) is that of a number that
  // differs. Throws Failure if a record that is checked lacks it.
  void set(const char* field, ScalarType type, Words ours, const Alike& alike,
           const PlaceOf& place);
  void set(const char* field, float ours);

  // difference() returns the first, "" if the record has our results.
  const std::string& difference() const { return difference_; }

 private:
  void compare(const char* field, ScalarType type, const Words& ours,
               const Words& theirs, const PlaceOf& place);

  Json& record_;
  bool check_;
  std::string difference_;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_REPLAY_CODE_RESULT_H_
