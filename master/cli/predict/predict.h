// The parts of `swamp predict`: the list of tensors, the operation, the report.
#ifndef SWAMP_MASTER_CLI_PREDICT_PREDICT_H_
#define SWAMP_MASTER_CLI_PREDICT_PREDICT_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "swamp/activation.h"
#include "swamp/attention.h"
#include "swamp/machine.h"
#include "swamp/moe.h"
#include "swamp/predict.h"
#include "swamp/rows.h"
#include "swamp/tensor.h"

namespace swamp::cli {

// model_names() returns the models that model_counts() accepts.
std::vector<std::string> model_names();

// model_counts() returns the element count of each parameter of a model, in the
// order of its state dict; empty for an unknown name.
std::vector<std::uint64_t> model_counts(const std::string& name);

// Shape is one tensor of a list.
struct Shape {
  std::uint64_t count;
  ScalarType dtype;
};

// Larger lists are refused: to partition them takes too much memory, and to
// predict them takes minutes.
inline constexpr std::uint64_t kMaxTensors = 1000000;
inline constexpr std::uint64_t kMaxListElements = std::uint64_t{1} << 40;

// list_of_text() reads "1x33554432,148x100000" (tensors x elements), "1024"
// (one tensor) and the names of models. Throws UsageError.
std::vector<Shape> list_of_text(const std::string& text, ScalarType dtype);

// list_of_files() returns the float tensors of files that scan can read, all of
// them as `dtype` if one is given. Throws Failure, which names the file.
std::vector<Shape> list_of_files(const std::vector<std::string>& files,
                                 std::optional<ScalarType> dtype);

// Sizes of operations on matrices and heads, by the options of kSizeOptions;
// absent if not given.
enum SizeOption {
  kSizeRows,
  kSizeColumns,
  kSizeBatch,
  kSizeHeads,
  kSizeQueries,
  kSizeKeys,
  kSizeTokens,
  kSizeExperts,
  kSizeChoices,
  kSizeCount
};
inline constexpr const char* kSizeOptions[kSizeCount] = {
    "--rows", "--columns", "--batch",   "--heads",  "--queries",
    "--keys", "--tokens",  "--experts", "--choices"};
struct Sizes {
  std::optional<std::uint64_t> of[kSizeCount];
  bool causal = false;
};
// Larger operations are refused: tables and arrays of the master must fit into
// memory, and predictions take seconds.
inline constexpr std::uint64_t kMostRows = std::uint64_t{1} << 22;
inline constexpr std::uint64_t kMostElements = std::uint64_t{1} << 34;
inline constexpr std::uint64_t kMostHeadElements = std::uint64_t{1} << 28;
inline constexpr std::uint64_t kMostScores = std::uint64_t{1} << 36;

// Call gives a call of an operation its sizes and its arrays. Those of the
// program are addresses without memory, those of the tests
// (support/operators.h) are seeded memory.
using Tensors = std::vector<Tensor>;
class Call {
 public:
  virtual ~Call() = default;

  // array() lays out the next array of a list: of the list's own dtypes, or all
  // of one.
  virtual Tensors array(std::optional<ScalarType> dtype = {}) = 0;
  // next() returns the next array that only slaves read or write: values of a
  // dtype, or integers.
  virtual void* next(std::size_t bytes, std::optional<ScalarType> dtype) = 0;
  // memory() returns zeros that exist, and begin with a line.
  virtual void* memory(std::size_t bytes) = 0;
  // numbers() returns float32 that the master may read.
  virtual float* numbers(std::size_t count) = 0;
  // is_made() is called after an array of memory() was filled by the operation.
  virtual void is_made(void*) {}
  // over() returns an output like `x`, for operations whose output may be x.
  virtual Matrix over(const Matrix& x);
  // experts() returns the numbers of the experts that the tokens chose.
  virtual ExpertChoices experts();

  std::size_t size(SizeOption option) const {
    return sizes.of[option].value_or(1);
  }
  // made() returns integers, the value of each is of(its index).
  template <class T, class Of>
  T* made(std::size_t count, Of of) {
    auto* const all = result<T>(count);
    for (std::size_t i = 0; i < count; ++i) all[i] = static_cast<T>(of(i));
    is_made(all);
    return all;
  }
  // result() returns what the operation returns, or counts of the master.
  template <class T>
  T* result(std::size_t count = 1) {
    return static_cast<T*>(memory(count * sizeof(T)));
  }
  std::int32_t* integers(std::size_t count) {
    return static_cast<std::int32_t*>(next(count * 4, std::nullopt));
  }
  Tensors float32() { return array(kFloat32); }
  // model() is the model weights that a step writes, if --to is given.
  Tensors model() { return to ? array(to) : Tensors(); }
  Matrix matrix(std::size_t rows, std::size_t columns, ScalarType type);
  Matrix matrix(std::size_t rows) {
    return matrix(rows, size(kSizeColumns), dtype);
  }
  Matrix matrix() { return matrix(size(kSizeRows)); }
  // vector() is a weight or bias of a norm.
  RowVector vector() { return {matrix(1).data, dtype}; }
  Heads heads(SizeOption rows);
  Heads queries() { return heads(kSizeQueries); }
  Heads keys() { return heads(kSizeKeys); }
  Matrix tokens() { return matrix(size(kSizeTokens)); }
  std::size_t query_count() const {
    return size(kSizeBatch) * size(kSizeHeads) * size(kSizeQueries);
  }
  float* of_rows() { return numbers(size(kSizeRows)); }
  float* of_columns() { return numbers(size(kSizeColumns)); }
  std::size_t choices() const { return size(kSizeTokens) * size(kSizeChoices); }

  Sizes sizes;                  // of an operation without a list
  ScalarType dtype = kFloat32;  // the same
  std::optional<ScalarType> to;
  Machine* machine = nullptr;
};

constexpr std::uint32_t bits_of(std::initializer_list<SizeOption> sizes) {
  std::uint32_t bits = 0;
  for (const SizeOption size : sizes) bits |= 1u << size;
  return bits;
}
inline constexpr std::uint32_t kOfMatrix = bits_of({kSizeRows, kSizeColumns});
inline constexpr std::uint32_t kOfHeads =
    bits_of({kSizeBatch, kSizeHeads, kSizeQueries, kSizeKeys, kSizeColumns});
inline constexpr std::uint32_t kOfChoices =
    bits_of({kSizeTokens, kSizeExperts, kSizeChoices});
inline constexpr std::uint32_t kOfTokens = kOfChoices | bits_of({kSizeColumns});

// OperationRow is a function of the API. Its arrays may get addresses in any
// order, because these differ by multiples of a line. The tests of the library
// run every row: the same bits on every machine, nothing written on errors.
struct OperationRow {
  const char* name;
  std::uint32_t sizes;  // required; none: takes a list
  void (*run)(Call& call);
  bool takes_to = false;
  bool takes_causal = false;
};
const std::vector<OperationRow>& operation_rows();

// Predicted is one prediction and its arguments.
struct Predicted {
  std::string operation;
  std::string dtype;
  std::string to;     // "" if there is none
  std::string sizes;  // sizes_text() of an operation without a list
  bool rma = false;
  std::uint64_t tensors = 0;
  std::uint64_t elements = 0;
  std::uint64_t tile_asked = 0;  // bytes; 0: the machine's default
  MachineConfig machine;
  Prediction prediction;
};

// prediction_text() shows one, core group by core group.
std::string prediction_text(const Predicted& predicted);
// predictions_text() is a table of several that differ in core groups or tile.
std::string predictions_text(const std::vector<Predicted>& predicted);
// prediction_json() is one line.
std::string prediction_json(const Predicted& predicted);

// sizes_text() repeats the options: "rows 8 columns 16".
std::string sizes_text(const Sizes& sizes);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_PREDICT_PREDICT_H_
