#include "master/cli/scan/safetensors.h"

#include <fmt/format.h>

#include "master/cli/command.h"
#include "master/cli/scan/safetensors_header.h"

namespace swamp::cli {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100000000;  // the reference's own

struct Dtype {
  const char* tag;
  const char* name;
  std::uint64_t bytes;
  Element::Kind kind;
  ScalarType type = kFloat32;
  unsigned parts = 1;
};
constexpr auto kFloat = Element::Kind::scanned;
constexpr auto kInteger = Element::Kind::integer;
constexpr auto kUnsupported = Element::Kind::unsupported;
constexpr Dtype kDtypes[] = {
    {"F64", "float64", 8, kFloat, kFloat64},
    {"F32", "float32", 4, kFloat, kFloat32},
    {"F16", "float16", 2, kFloat, kFloat16},
    {"BF16", "bfloat16", 2, kFloat, kBFloat16},
    {"F8_E4M3", "float8_e4m3fn", 1, kFloat, kFloat8E4M3FN},
    {"F8_E5M2", "float8_e5m2", 1, kFloat, kFloat8E5M2},
    {"C64", "complex64", 8, kFloat, kFloat32, 2},
    {"F8_E4M3FNUZ", "float8_e4m3fnuz", 1, kUnsupported},
    {"F8_E5M2FNUZ", "float8_e5m2fnuz", 1, kUnsupported},
    {"F8_E8M0", "float8_e8m0fnu", 1, kUnsupported},
    {"I64", "int64", 8, kInteger},
    {"I32", "int32", 4, kInteger},
    {"I16", "int16", 2, kInteger},
    {"I8", "int8", 1, kInteger},
    {"U64", "uint64", 8, kInteger},
    {"U32", "uint32", 4, kInteger},
    {"U16", "uint16", 2, kInteger},
    {"U8", "uint8", 1, kInteger},
    {"BOOL", "bool", 1, Element::Kind::boolean}};

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
    element.bytes = dtype.bytes;
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
                    quoted(entry.name), quoted(entry.dtype)));
  }
  element.name = entry.dtype;  // a newer one, of unknown size
  return element;
}

Bytes header_of(Bytes file) {
  if (file.size() < kLengthBytes) {
    throw Failure(
        fmt::format("{} bytes, expected at least the {} of a header's "
                    "length",
                    file.size(), kLengthBytes));
  }
  const auto length = load_little<std::uint64_t>(file, 0);
  if (length > kMaxHeaderBytes || length > file.size() - kLengthBytes) {
    throw Failure(fmt::format(
        "header: a length of {}, expected at most {} in a file of {} bytes",
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
        "header: tensor {}: data_offsets [{}, {}], expected them in order and "
        "inside the buffer of {} bytes",
        quoted(entry.name), entry.begin, entry.end, buffer.size()));
  }
  const std::uint64_t bytes = entry.end - entry.begin;
  if (tensor.element.bytes != 0 && bytes != tensor.bytes()) {
    throw Failure(fmt::format(
        "header: tensor {}: data_offsets [{}, {}], expected the {} bytes of {} "
        "{} between them",
        quoted(entry.name), entry.begin, entry.end, tensor.bytes(),
        tensor.element.name, shape_text(tensor.shape)));
  }
  tensor.data = buffer.substr(static_cast<std::size_t>(entry.begin),
                              static_cast<std::size_t>(bytes));
  return tensor;
}

// check_cover() wants every byte of the buffer in exactly one tensor.
void check_cover(const std::vector<SafetensorsEntry>& entries, Bytes buffer) {
  std::uint64_t covered = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != covered) {
      throw Failure(fmt::format(
          "header: tensor {} begins at {} of the buffer, expected {}, the end "
          "of the one before: {}",
          quoted(entry.name), entry.begin, covered,
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
  std::vector<SafetensorsEntry> entries =
      parse_safetensors_header(header, metadata);
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
