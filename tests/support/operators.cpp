// The cases of the operators: their sizes, dtypes and numbers.
#include "support/operators.h"

#include <map>

#include "support/formats.h"

namespace swamp::test {
namespace {

using cli::OperationRow;

// The sizes of a row, in the order of SizeOption. Every second is causal if the
// row takes that.
using Values = std::uint64_t[5];
constexpr Values kNone[] = {{}};
constexpr Values kMatrices[] = {  // rows, columns
    {1, 1},     {129, 64}, {301, 17},  {33, 129},  {65, 1000},
    {4, 20000}, {9, 4096}, {41, 9001}, {2, 50257}, {700, 64}};
constexpr Values kHeads[] = {  // columns, batch, heads, queries, keys
    {1, 1, 1, 1, 1},    {64, 2, 2, 130, 130}, {65, 2, 3, 67, 101},
    {16, 1, 2, 90, 33}, {96, 1, 2, 30, 40},   {16, 1, 1, 2100, 1100},
    {16, 1, 2, 33, 90}};
constexpr Values kTokens[] = {  // columns, tokens, experts, choices
    {1, 1, 1, 1},      {17, 50, 3, 1},     {64, 301, 8, 2},
    {1000, 40, 64, 8}, {5000, 9, 5000, 4}, {50257, 3, 3, 3}};
constexpr Values kChoices[] = {  // tokens, experts, choices
    {1, 1, 1},
    {50, 3, 2},
    {8195, 64, 2},
    {100000, 5, 3},
    {1500, 300, 2}};

// Edges of vectors of 4 to 32 elements, of blocks and of pieces of rows.
constexpr Values kEdgeMatrices[] = {
    {3, 1},   {2, 2},   {5, 3},    {9, 7},    {7, 15},   {4, 16},   {9, 17},
    {3, 31},  {2, 32},  {8, 33},   {13, 63},  {2, 64},   {5, 65},   {9, 100},
    {2, 129}, {8, 255}, {3, 1000}, {2, 4095}, {2, 4097}, {2, 16384}};
constexpr Values kEdgeHeads[] = {
    {1, 1, 1, 1, 1},     {3, 1, 2, 5, 7},     {20, 1, 1, 3, 700},
    {16, 1, 2, 70, 33},  {24, 1, 1, 33, 100}, {24, 2, 1, 100, 40},
    {65, 1, 1, 67, 101}, {72, 1, 2, 37, 70},  {128, 1, 1, 37, 70},
    {250, 1, 1, 20, 37}, {64, 1, 1, 64, 96},  {8, 1, 2, 70, 1300}};
constexpr Values kEdgeTokens[] = {{3, 7, 2, 1},     {16, 50, 3, 1},
                                  {33, 5, 7, 2},    {64, 100, 8, 2},
                                  {129, 21, 64, 3}, {1000, 9, 129, 1}};
constexpr Values kEdgeChoices[] = {{5, 2, 1},   {7, 1, 1},     {100, 7, 1},
                                   {33, 64, 2}, {100, 129, 1}, {6, 7, 3}};

// models() returns the dtypes that an operation with --to writes.
std::vector<std::optional<ScalarType>> models(const OperationRow& row,
                                              ScalarType dtype) {
  if (!row.takes_to) return {std::nullopt};
  if (dtype == kFloat32) return {std::nullopt, kFloat16, kBFloat16};
  return {std::nullopt, std::string(row.name) == "cast" ? kFloat32 : dtype};
}

// make_cases() makes those of all rows, or their edges.
std::vector<OperatorCase> make_cases(bool edges, Numbers numbers) {
  std::vector<OptionRow> options;
  for (const auto& rows : {row_options(), product_options(), list_options()}) {
    options.insert(options.end(), rows.begin(), rows.end());
  }
  std::vector<OperatorCase> all;
  const auto add = [&](const std::string& name, const auto& row,
                       OperatorCase one, bool causal, bool large = true) {
    one.operation = name;
    one.is_edge = edges;
    one.numbers = numbers;
    const auto add_all = [&](const auto& sizes) {
      for (const Values& values : sizes) {
        // Several grains of queries, only once.
        const bool is_long = row.sizes == cli::kOfHeads && values[3] > 1000;
        if (is_long && !causal) continue;
        const std::uint64_t most = large ? ~0ull : edges ? 2000 : 50000;
        if (values[0] * values[1] > most) continue;
        const std::uint64_t* value = values;
        for (int i = 0; i < cli::kSizeCount; ++i) {
          if ((row.sizes >> i & 1u) != 0) one.sizes.of[i] = *value++;
        }
        all.push_back(one);
        one.sizes.causal = causal && !one.sizes.causal;
      }
    };
    if (row.sizes == 0 && !large && !edges) return;
    const auto add_either = [&](const auto& sizes, const auto& at_edges) {
      edges ? add_all(at_edges) : add_all(sizes);
    };
    row.sizes == cli::kOfMatrix    ? add_either(kMatrices, kEdgeMatrices)
    : row.sizes == cli::kOfHeads   ? add_either(kHeads, kEdgeHeads)
    : row.sizes == cli::kOfTokens  ? add_either(kTokens, kEdgeTokens)
    : row.sizes == cli::kOfChoices ? add_either(kChoices, kEdgeChoices)
                                   : add_all(kNone);
  };
  for (const ScalarType dtype : {kFloat16, kBFloat16, kFloat32}) {
    for (const OperationRow& row : cli::operation_rows()) {
      for (const auto& to : models(row, dtype)) {
        add(row.name, row, {{}, row.run, {}, dtype, to}, row.takes_causal);
      }
    }
    for (const OptionRow& row : options) {
      for (std::size_t v = 0; v < row.variants; ++v) {
        const auto run = [v, run = row.run](SeededCall& c) { run(c, v); };
        add(std::string(row.name) + "_" + std::to_string(v), row,
            {{}, run, {}, dtype, {}}, false, v < row.in_full);
      }
    }
  }
  return all;
}

}  // namespace

const std::vector<OperatorCase>& operator_cases() {
  static const std::vector<OperatorCase> all =
      make_cases(false, Numbers::special_rows);
  return all;
}

const std::vector<OperatorCase>& edge_cases() {
  static const std::vector<OperatorCase> all = [] {
    std::vector<OperatorCase> cases;
    for (const Numbers numbers :
         {Numbers::ordinary, Numbers::special_rows, Numbers::any_bits}) {
      for (OperatorCase& one : make_cases(true, numbers)) {
        cases.push_back(std::move(one));
      }
    }
    return cases;
  }();
  return all;
}

std::vector<const OperatorCase*> one_of_each() {
  std::vector<const OperatorCase*> all;
  std::map<std::string, std::vector<const OperatorCase*>> rows;
  for (const OperatorCase& one : operator_cases()) {
    if (one.is_small()) rows[one.operation].push_back(&one);
  }
  for (const auto& [name, cases] : rows) {
    all.push_back(cases[all.size() % cases.size()]);
  }
  return all;
}

std::string OperatorCase::name() const {
  constexpr const char* kNumbers[] = {"ordinary ", "", "any "};
  std::string text = operation;
  for (const auto& size : sizes.of) {
    if (size) text += " " + std::to_string(*size);
  }
  text += std::string(sizes.causal ? " causal " : " ") +
          kNumbers[static_cast<int>(numbers)] + format_of(dtype).name;
  return to ? text + " to " + format_of(*to).name : text;
}

bool OperatorCase::takes_mixed_lists() const {
  for (const char* name : {"unscale", "check", "norm", "scan", "scaled_"}) {
    if (is_list() && operation.rfind(name, 0) == 0) return true;
  }
  return false;
}

bool OperatorCase::has_special_rows() const {
  for (const char* part : {"softmax", "norm", "cross_entropy", "residual"}) {
    if (operation.find(part) != operation.npos) return true;
  }
  return false;
}

std::size_t OperatorCase::ldm_bytes() const {
  if (has_heads()) return 160 * 1024;
  // Square blocks of 128 x 128 float32 and their codes.
  const bool is_square =
      operation == "quantize_blocks_13" || operation == "quantize_blocks_14";
  return is_square ? 512 * 1024 : 64 * 1024;
}

bool OperatorCase::is_small() const {
  std::uint64_t product = 1;
  for (const auto& size : sizes.of) product *= size.value_or(1);
  return product < 1000000;
}

}  // namespace swamp::test
