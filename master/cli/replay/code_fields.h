// The fields of records of codes: sizes, formats, numbers as hexadecimal
// digits, and matrices.
#ifndef SWAMP_MASTER_CLI_REPLAY_CODE_FIELDS_H_
#define SWAMP_MASTER_CLI_REPLAY_CODE_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "master/cli/json.h"
#include "swamp/rows.h"
#include "swamp/tensor.h"

namespace swamp::cli {

using Words = std::vector<std::uint32_t>;

constexpr int kMaxRecordDepth = 16;

// All throw Failure if the record lacks the field, or has another kind of
// value.
std::size_t size_field(const Json& record, const char* name);
ScalarType format_field(const Json& record, const char* name);

// words_field() reads numbers of that many bits of a type: 8 hexadecimal digits
// of a float32, 4 of a bfloat16, 2 of a code. Several float32 may be a list.
Words words_field(const Json& record, const char* name, ScalarType type);

// hex() is the inverse.
std::string hex(std::uint32_t word, ScalarType type);

// number_text() returns the digits of a number and its value.
std::string number_text(std::uint32_t word, ScalarType type);

// CodeInput is a matrix that becomes codes, rows of bfloat16 or float32.
struct CodeInput {
  std::size_t rows, columns;
  ScalarType type;
  std::vector<std::uint16_t> narrow;
  std::vector<float> wide;

  Matrix matrix() const;
  Tensor tensor() const;
  std::uint32_t bits(std::size_t element) const;
};

// CodeInputs finds the matrix of a record: its field `input` is the matrix, or
// a name in the lines of `inputs.jsonl`, which lies beside the file of records.
class CodeInputs {
 public:
  explicit CodeInputs(std::string path) : path_(std::move(path)) {}
  // The result is valid until the next call. Throws Failure if there is no such
  // matrix.
  const CodeInput& of(const Json& record);

 private:
  std::string path_;
  std::map<std::string, CodeInput> named_;
  CodeInput own_;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_REPLAY_CODE_FIELDS_H_
