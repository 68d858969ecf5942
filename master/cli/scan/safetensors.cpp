// safetensors files: a JSON header and a buffer. The header is not trusted: it
// is read by a parser of events, which limits depth and size, and every offset
// is checked against the buffer and the other tensors.
#include <fmt/core.h>

#include <unordered_set>

#include "master/cli/command.h"
#include "master/cli/json.h"
#include "master/cli/scan/tensor_file.h"
#include "master/cli/text.h"

namespace swamp::cli {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100000000;  // safetensors' own limit
constexpr const char* kMetadata = "__metadata__";

// SafetensorsEntry is a tensor as the header describes it, unchecked.
struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // in the buffer
  std::uint64_t end = 0;
};

// Header reads the JSON of a header:
// {"__metadata__": {"key": "text"},   or null
//  "name": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}}
class Header final : public JsonReader {
 public:
  explicit Header(Metadata* metadata) : metadata_(metadata) {}

  std::vector<SafetensorsEntry> take() { return std::move(entries_); }

  bool start_object(std::size_t) override {
    if (depth() >= 2) refuse("an object");
    if (depth() == 1) seen_ = 0;
    return enter();
  }

  bool key(std::string& name) override {
    if (depth() == 1) {
      name_ = name;
      if (!names_.insert(name).second) {
        fail("got the name twice, expected unique names");
      }
    } else if (depth() == 2 && in_metadata()) {
      text_ = name;
    } else if (depth() == 2) {
      field_ = field_of(name);
      if (field_ == unknown) return true;
      if ((seen_ & field_) != 0) fail(fmt::format("{} twice", name));
      seen_ |= field_;
    }
    return true;
  }

  bool end_object() override {
    leave();
    if (depth() != 1 || name_ == kMetadata) return true;
    if (seen_ != (dtype | shape | offsets)) {
      fail("expected dtype, shape and data_offsets");
    }
    entry_.name = name_;
    entries_.push_back(std::move(entry_));
    entry_ = {};
    offset_count_ = 0;
    return true;
  }

  bool start_array(std::size_t) override {
    check("an array", depth() == 2 && !in_metadata() &&
                          (field_ == shape || field_ == offsets));
    return enter();
  }

  bool end_array() override {
    leave();
    if (depth() == 2 && field_ == offsets && offset_count_ != 2) {
      fail(fmt::format("data_offsets: got {} numbers, expected 2",
                       offset_count_));
    }
    return true;
  }

  // Writers without metadata may store null.
  bool null() override {
    return depth() == 1 && in_metadata() ? true : JsonReader::null();
  }

  bool string(std::string& text) override {
    check("a string", depth() == 2 && (in_metadata() || field_ == dtype));
    if (depth() != 2) return true;
    if (!in_metadata()) {
      if (field_ == dtype) entry_.dtype = text;
    } else if (metadata_ != nullptr) {
      (*metadata_)[text_] = text;
    }
    return true;
  }

  bool number_unsigned(std::uint64_t number) override {
    check("a number", depth() == 3 && (field_ == shape || field_ == offsets));
    if (depth() != 3) return true;
    if (field_ == shape) entry_.shape.push_back(number);
    if (field_ == offsets) {
      (offset_count_ == 0 ? entry_.begin : entry_.end) = number;
      if (++offset_count_ > 2) {
        fail("data_offsets: got more than 2 numbers, expected 2");
      }
    }
    return true;
  }

 private:
  enum Field : unsigned { unknown = 0, dtype = 1, shape = 2, offsets = 4 };

  static Field field_of(const std::string& name) {
    if (name == "dtype") return dtype;
    if (name == "shape") return shape;
    if (name == "data_offsets") return offsets;
    return unknown;
  }

  bool in_metadata() const { return name_ == kMetadata; }

  // The values of unknown fields may be anything.
  void check(const char* kind, bool fine) const override {
    if (fine) return;
    if (depth() == 0) {
      throw Failure(fmt::format("header: got {}, expected an object", kind));
    }
    if (depth() == 1) fail(fmt::format("got {}, expected an object", kind));
    if (in_metadata()) fail(fmt::format("got {}, expected strings", kind));
    if (field_ == dtype)
      fail(fmt::format("dtype: got {}, expected a string", kind));
    if (field_ == shape || field_ == offsets) {
      fail(fmt::format("{}: got {}, expected an array of integers, 0 or more",
                       field_ == shape ? "shape" : "data_offsets", kind));
    }
  }

  [[noreturn]] void fail(const std::string& text) const {
    throw Failure(fmt::format("header: tensor {}: {}", in_quotes(name_), text));
  }

  std::vector<SafetensorsEntry> entries_;
  std::unordered_set<std::string> names_;
  std::string name_;
  std::string text_;  // the name of a text in the metadata
  Metadata* metadata_;
  Field field_ = unknown;
  unsigned seen_ = 0;
  SafetensorsEntry entry_;
  int offset_count_ = 0;
};

struct Dtype {
  const char* tag;
  const char* name;
  std::uint64_t bits;
  Element::Kind kind;
  ScalarType type = kFloat32;
  unsigned parts = 1;
};
constexpr auto kFloat = Element::Kind::scanned;
constexpr auto kFinite = Element::Kind::finite;
constexpr auto kInteger = Element::Kind::integer;
constexpr Dtype kDtypes[] = {
    {"F64", "float64", 64, kFloat, kFloat64},
    {"F32", "float32", 32, kFloat, kFloat32},
    {"F16", "float16", 16, kFloat, kFloat16},
    {"BF16", "bfloat16", 16, kFloat, kBFloat16},
    {"F8_E4M3", "float8_e4m3fn", 8, kFloat, kFloat8E4M3FN},
    {"F8_E5M2", "float8_e5m2", 8, kFloat, kFloat8E5M2},
    {"C64", "complex64", 64, kFloat, kFloat32, 2},
    {"F8_E4M3FNUZ", "float8_e4m3fnuz", 8, kFloat, kFloat8E4M3FNUZ},
    {"F8_E5M2FNUZ", "float8_e5m2fnuz", 8, kFloat, kFloat8E5M2FNUZ},
    {"F8_E8M0", "float8_e8m0fnu", 8, kFloat, kFloat8E8M0FNU},
    {"F6_E2M3", "float6_e2m3fn", 6, kFinite},
    {"F6_E3M2", "float6_e3m2fn", 6, kFinite},
    {"F4", "float4_e2m1fn", 4, kFinite},
    {"I64", "int64", 64, kInteger},
    {"I32", "int32", 32, kInteger},
    {"I16", "int16", 16, kInteger},
    {"I8", "int8", 8, kInteger},
    {"U64", "uint64", 64, kInteger},
    {"U32", "uint32", 32, kInteger},
    {"U16", "uint16", 16, kInteger},
    {"U8", "uint8", 8, kInteger},
    {"BOOL", "bool", 8, Element::Kind::boolean}};

// is_tag() returns whether a text has the form of a dtype: F4, F8_E5M2.
bool is_tag(const std::string& text) {
  constexpr std::size_t kMaxTag = 32;
  return !text.empty() && text.size() <= kMaxTag &&
         text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
             std::string::npos;
}

Element element_of(const SafetensorsEntry& entry) {
  Element element;
  for (const Dtype& dtype : kDtypes) {
    if (entry.dtype != dtype.tag) continue;
    element.name = dtype.name;
    element.bits = dtype.bits;
    element.kind = dtype.kind;
    element.type = dtype.type;
    element.parts = dtype.parts;
    element.swapped = !kLittleEndianMachine && element.part_bytes() > 1;
    return element;
  }
  if (!is_tag(entry.dtype)) {
    throw Failure(
        fmt::format("header: tensor {}: dtype: got {}, expected one "
                    "such as F32 or BF16",
                    in_quotes(entry.name), in_quotes(entry.dtype)));
  }
  element.name = entry.dtype;  // a newer one, of unknown size
  return element;
}

Bytes header_of(Bytes file) {
  if (file.size() < kLengthBytes) {
    throw Failure(
        fmt::format("got {} bytes, expected at least the {} of a header's "
                    "length",
                    file.size(), kLengthBytes));
  }
  const auto length = load_little<std::uint64_t>(file, 0);
  if (length > kMaxHeaderBytes || length > file.size() - kLengthBytes) {
    throw Failure(fmt::format(
        "header: got a length of {}, expected at most {} in a file of {} bytes",
        length,
        std::min<std::uint64_t>(kMaxHeaderBytes, file.size() - kLengthBytes),
        file.size()));
  }
  const Bytes header =
      file.substr(kLengthBytes, static_cast<std::size_t>(length));
  if (header.empty() || header[0] != '{') {
    throw Failure("header: does not begin with '{'; not a safetensors file?");
  }
  return header;
}

FileTensor tensor_of(const SafetensorsEntry& entry, Bytes buffer) {
  FileTensor tensor;
  tensor.name = entry.name;
  tensor.element = element_of(entry);
  tensor.shape = entry.shape;
  settle_count(tensor);
  if (entry.begin > entry.end || entry.end > buffer.size()) {
    throw Failure(fmt::format(
        "header: tensor {}: data_offsets: got [{}, {}], expected "
        "them in order and inside the buffer of {} bytes",
        in_quotes(entry.name), entry.begin, entry.end, buffer.size()));
  }
  const std::uint64_t bytes = entry.end - entry.begin;
  if (tensor.element.bits != 0 && bytes != tensor.bytes()) {
    throw Failure(fmt::format(
        "header: tensor {}: data_offsets: got [{}, {}], expected "
        "the {} bytes of {} {} between them",
        in_quotes(entry.name), entry.begin, entry.end, tensor.bytes(),
        tensor.element.name, shape_text(tensor.shape)));
  }
  tensor.data = buffer.substr(static_cast<std::size_t>(entry.begin),
                              static_cast<std::size_t>(bytes));
  return tensor;
}

// check_cover() throws Failure unless every byte of the buffer is in exactly
// one tensor; the entries are sorted.
void check_cover(const std::vector<SafetensorsEntry>& entries, Bytes buffer) {
  std::uint64_t covered = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != covered) {
      throw Failure(fmt::format(
          "header: tensor {} begins at {} of the buffer, expected {}, the end "
          "of the one before: {}",
          in_quotes(entry.name), entry.begin, covered,
          entry.begin < covered ? "they overlap" : "a gap"));
    }
    covered = entry.end;
  }
  if (covered != buffer.size()) {
    throw Failure(fmt::format(
        "header: the tensors end at {} of the buffer, expected its end at {}",
        covered, buffer.size()));
  }
}

}  // namespace

std::vector<FileTensor> read_safetensors(Bytes file, Metadata* metadata) {
  const Bytes header = header_of(file);
  const Bytes buffer = file.substr(kLengthBytes + header.size());
  Header parser(metadata);
  parser.read(header);
  std::vector<SafetensorsEntry> entries = parser.take();
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
            });
  std::vector<FileTensor> tensors;
  tensors.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries) {
    tensors.push_back(tensor_of(entry, buffer));
  }
  check_cover(entries, buffer);
  return tensors;
}

}  // namespace swamp::cli
