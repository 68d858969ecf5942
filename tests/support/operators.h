// The operators of the library with sizes, dtypes and options: what the tests
// of a property of all operators run. A row of `swamp predict` is here without
// more; options that it lacks are rows of *_options.cpp.
#ifndef SWAMP_TESTS_SUPPORT_OPERATORS_H_
#define SWAMP_TESTS_SUPPORT_OPERATORS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "master/cli/predict/predict.h"
#include "support/guarded_pages.h"
#include "swamp/float8.h"

namespace swamp::test {

class SeededCall;

// Numbers of the inputs: ordinary ones, also with rows of special ones and an
// inf in a list, or any bits.
enum class Numbers { ordinary, special_rows, any_bits };

struct OperatorCase {
  std::string operation;  // name of the row
  std::function<void(SeededCall&)> run;
  cli::Sizes sizes;
  ScalarType dtype;
  std::optional<ScalarType> to;
  bool is_edge = false;
  Numbers numbers = Numbers::special_rows;

  std::string name() const;  // with sizes and dtypes
  // is_small() returns whether a call takes microseconds.
  bool is_small() const;
  bool has_heads() const { return sizes.of[cli::kSizeHeads].has_value(); }
  bool is_list() const {
    return !has_heads() && !sizes.of[cli::kSizeTokens] &&
           !sizes.of[cli::kSizeRows];
  }
  bool takes_mixed_lists() const;
  // The scalar references take rows without gaps and tiles of one grain.
  bool has_reference() const {
    return operation.find("gaps") == operation.npos &&
           (!is_list() || operation.rfind("norm", 0) != 0);
  }
  // Whether the payload of a wide nan is promised: not if the factor is nan.
  bool has_nan_payload() const {
    return operation == "unscale" || (operation.rfind("scaled_", 0) == 0 &&
                                      is_list() && operation != "scaled_12");
  }
  // Whether all references round as the CPU is told to. 8-bit codes do not.
  bool is_directed() const {
    return is_list() && operation.rfind("adam_float8", 0) != 0 &&
           operation.rfind("quantize", 0) != 0;
  }
  // Rows of inf and nan leave nothing of a product.
  bool has_special_rows() const;
  // The LDM of a slave that is enough for these sizes.
  std::size_t ldm_bytes() const;
};

// operator_cases() returns those of a row after those of another, dtype by
// dtype.
const std::vector<OperatorCase>& operator_cases();
// edge_cases() returns the same rows with sizes around those of vectors and
// blocks, of all numbers.
const std::vector<OperatorCase>& edge_cases();

// Options that `swamp predict` lacks. Each is a row.
struct OptionRow {
  const char* name;
  std::uint32_t sizes;   // as in OperationRow
  std::size_t variants;  // their number is appended to the name
  void (*run)(SeededCall& call, std::size_t variant);
  std::size_t in_full = variants;  // the others have no large matrices
};
std::vector<OptionRow> row_options();
std::vector<OptionRow> product_options();
std::vector<OptionRow> list_options();

// one_of_each() returns a small case of every row.
std::vector<const OperatorCase*> one_of_each();

// SeededCall calls an operator with arrays of seeded values, and compares all
// arrays. Each array begins or ends at a protected page.
class SeededCall : public cli::Call {
 public:
  explicit SeededCall(const OperatorCase& one);

  // run() calls the operator with the arrays as they were at first. In place,
  // each output of over() is its input. Expects that nothing outside of the
  // arrays is written.
  void run(Machine& on, bool in_place = false);
  bool works_in_place() const { return has_over_; }
  // results() returns the arrays after run(), with one pattern for all nan. In
  // place, inputs are as they were.
  std::vector<std::vector<std::byte>> results() const;
  // gives() returns whether they are the expected ones.
  bool gives(const std::vector<std::vector<std::byte>>& expected) const;
  // A row of several calls calls it between them, with the arrays that the call
  // has written; by default any.
  void next_call(std::initializer_list<const void*> written = {});
  // is_untouched() returns whether no array has changed since the call began
  // that has failed.
  bool is_untouched() const;

  cli::Tensors array(std::optional<ScalarType> type = {}) override;
  void* next(std::size_t bytes, std::optional<ScalarType> type) override;
  void* memory(std::size_t bytes) override;
  float* numbers(std::size_t count) override;
  Matrix over(const Matrix& x) override;
  ExpertChoices experts() override;
  void is_made(void* data) override;

  // bytes() returns bytes that are 0 with a probability of 1 / `of`.
  std::uint8_t* bytes(std::size_t count, std::uint64_t of);
  // random() returns bytes of all values.
  const std::uint8_t* random(std::size_t count);

 private:
  struct Array {
    Array(std::size_t count, std::size_t element_bytes, std::size_t index);

    std::byte* end() const { return data + bytes; }

    GuardedPages pages;
    std::byte* data;
    std::size_t bytes;
    std::optional<ScalarType> type;
    std::vector<std::byte> first;        // its bytes before run()
    std::vector<std::byte> before;       // and before a later call of the row
    const Array* replaced_by = nullptr;  // the input that is the output
  };
  std::vector<std::byte> result_of(const Array& array) const;
  const std::byte* bytes_of(const Array& array) const;
  // take() returns the next array; fill(array) gives a new one its values.
  template <class Fill>
  std::byte* take(std::size_t count, std::size_t element_bytes, Fill fill);

  const OperatorCase& one_;
  std::deque<Array> arrays_;
  std::size_t next_ = 0;
  bool in_place_ = false, has_over_ = false;
};

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SUPPORT_OPERATORS_H_
