#include <fmt/core.h>

#include "master/cli/command.h"
#include "master/cli/predict/predict.h"
#include "master/cli/scan/tensor_file.h"
#include "master/cli/text.h"

namespace swamp::cli {
namespace {

constexpr char kForm[] =
    "expected TENSORSxELEMENTS, ELEMENTS or a model, separated by commas";

// Adder keeps a list within its limits. Throws Failure.
class Adder {
 public:
  explicit Adder(std::vector<Shape>& list) : list_(list) {}

  void add(std::uint64_t count, ScalarType dtype) {
    if (list_.size() == kMaxTensors) {
      throw Failure(fmt::format(
          "the list has more than {} tensors, expected at most so many",
          kMaxTensors));
    }
    if (count > kMaxListElements - elements_) {
      throw Failure(fmt::format(
          "the list has more than {} elements, expected at most so many",
          kMaxListElements));
    }
    elements_ += count;
    list_.push_back({count, dtype});
  }

 private:
  std::vector<Shape>& list_;
  std::uint64_t elements_ = 0;
};

[[noreturn]] void fail_form(const std::string& item) {
  throw UsageError(fmt::format("--list: got '{}', {} ({})", item, kForm,
                               joined(model_names())));
}

// parse_item() adds one part of the text.
void parse_item(const std::string& item, ScalarType dtype, Adder& adder) {
  const std::vector<std::uint64_t> model = model_counts(item);
  for (const std::uint64_t count : model) adder.add(count, dtype);
  if (!model.empty()) return;
  if (item.empty() || item.find_first_not_of("0123456789x") != item.npos) {
    fail_form(item);
  }
  const std::size_t x = item.find('x');
  const std::string elements = x == item.npos ? item : item.substr(x + 1);
  std::uint64_t tensors = 1;
  if (x != item.npos) {
    tensors =
        parse_integer("--list: tensors", item.substr(0, x), 1, kMaxTensors);
  }
  const std::uint64_t count =
      parse_integer("--list: elements", elements, 0, kMaxListElements);
  for (std::uint64_t i = 0; i < tensors; ++i) adder.add(count, dtype);
}

}  // namespace

std::vector<Shape> list_of_text(const std::string& text, ScalarType dtype) {
  std::vector<Shape> list;
  Adder adder(list);
  try {
    for (const std::string& item : split(text)) parse_item(item, dtype, adder);
  } catch (const UsageError&) {
    throw;
  } catch (const Failure& failure) {
    throw UsageError(fmt::format("--list: got '{}', {}", text, failure.what()));
  }
  return list;
}

std::vector<Shape> list_of_files(const std::vector<std::string>& files,
                                 std::optional<ScalarType> dtype) {
  std::vector<Shape> list;
  Adder adder(list);
  const auto complain = [](const std::string& text) { throw Failure(text); };
  for (const ScanFile& input : list_files(files, false, complain)) {
    try {
      const MappedFile file(input.path);
      for (const FileTensor& tensor :
           read_tensors(input.format, file.bytes())) {
        if (tensor.element.kind != Element::Kind::scanned) continue;
        adder.add(tensor.count, dtype.value_or(tensor.element.type));
      }
      file.check();
    } catch (const Failure& failure) {
      throw Failure(fmt::format("{}: {}", input.path, failure.what()));
    }
  }
  if (list.empty()) {
    throw Failure(
        fmt::format("{}: no tensor of floats, expected one", joined(files)));
  }
  return list;
}

}  // namespace swamp::cli
