#include "master/cli/scan/safetensors_header.h"

#include <fmt/format.h>

#include <unordered_set>

#include "master/cli/command.h"
#include "master/cli/json_events.h"
#include "master/cli/scan/tensor_file.h"

namespace swamp::cli {
namespace {

// {"__metadata__": {"key": "text"},
//  "name": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}}
constexpr std::size_t kMaxDepth = 8;  // an unknown field may be anything
constexpr const char* kMetadata = "__metadata__";

class Header final : public JsonEvents {
 public:
  explicit Header(Metadata* metadata) : metadata_(metadata) {}

  std::vector<SafetensorsEntry> take() { return std::move(entries_); }

  void begin_object() override {
    if (depth_ >= 2) value("an object", false);
    if (++depth_ == 2) seen_ = 0;
  }

  void key(const std::string& name) override {
    if (depth_ == 1) {
      name_ = name;
      if (!names_.insert(name).second) {
        fail("is there twice, expected unique names");
      }
    } else if (depth_ == 2 && in_metadata()) {
      text_ = name;
    } else if (depth_ == 2) {
      field_ = field_of(name);
      if (field_ == unknown) return;
      if ((seen_ & field_) != 0) fail(fmt::format("{} twice", name));
      seen_ |= field_;
    }
  }

  void end_object() override {
    if (--depth_ != 1 || name_ == kMetadata) return;
    if (seen_ != (dtype | shape | offsets)) {
      fail("expected dtype, shape and data_offsets");
    }
    entry_.name = name_;
    entries_.push_back(std::move(entry_));
    entry_ = {};
    offset_count_ = 0;
  }

  void begin_array() override {
    value("an array", depth_ == 2 && !in_metadata() &&
                          (field_ == shape || field_ == offsets));
    ++depth_;
  }

  void end_array() override {
    if (--depth_ == 2 && field_ == offsets && offset_count_ != 2) {
      fail(fmt::format("data_offsets: {} numbers, expected 2", offset_count_));
    }
  }

  void string(const std::string& text) override {
    value("a string", depth_ == 2 && (in_metadata() || field_ == dtype));
    if (depth_ != 2) return;
    if (!in_metadata()) {
      if (field_ == dtype) entry_.dtype = text;
    } else if (metadata_ != nullptr) {
      (*metadata_)[text_] = text;
    }
  }

  void integer(std::uint64_t number) override {
    value("a number", depth_ == 3 && (field_ == shape || field_ == offsets));
    if (depth_ != 3) return;
    if (field_ == shape) entry_.shape.push_back(number);
    if (field_ == offsets) {
      (offset_count_ == 0 ? entry_.begin : entry_.end) = number;
      if (++offset_count_ > 2) fail("data_offsets: expected 2 numbers");
    }
  }

  void other(const char* kind) override { value(kind, false); }

 private:
  enum Field : unsigned { unknown = 0, dtype = 1, shape = 2, offsets = 4 };

  static Field field_of(const std::string& name) {
    if (name == "dtype") return dtype;
    if (name == "shape") return shape;
    if (name == "data_offsets") return offsets;
    return unknown;
  }

  bool in_metadata() const { return name_ == kMetadata; }

  // value() refuses a value that is not `fine` at this place. The values of
  // unknown fields may be anything.
  void value(const char* kind, bool fine) const {
    if (fine) return;
    if (depth_ == 0) {
      throw Failure(fmt::format("header: {}, expected an object", kind));
    }
    if (depth_ == 1) fail(fmt::format("{}, expected an object", kind));
    if (in_metadata()) fail(fmt::format("{}, expected strings", kind));
    if (field_ == dtype)
      fail(fmt::format("dtype: {}, expected a string", kind));
    if (field_ == shape || field_ == offsets) {
      fail(fmt::format("{}: {}, expected an array of integers, 0 or more",
                       field_ == shape ? "shape" : "data_offsets", kind));
    }
  }

  [[noreturn]] void fail(const std::string& text) const {
    throw Failure(fmt::format("header: tensor {}: {}", quoted(name_), text));
  }

  std::vector<SafetensorsEntry> entries_;
  std::unordered_set<std::string> names_;
  std::size_t depth_ = 0;
  std::string name_;
  std::string text_;  // the name of a text in the metadata
  Metadata* metadata_;
  Field field_ = unknown;
  unsigned seen_ = 0;
  SafetensorsEntry entry_;
  int offset_count_ = 0;
};

}  // namespace

std::vector<SafetensorsEntry> parse_safetensors_header(Bytes json,
                                                       Metadata* metadata) {
  Header header(metadata);
  read_json(json, kMaxDepth, header);
  return header.take();
}

}  // namespace swamp::cli
