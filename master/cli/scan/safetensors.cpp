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
  ScalarType type;
};
constexpr auto kFloat = Element::Kind::scanned;
constexpr auto kInteger = Element::Kind::integer;
constexpr Dtype kDtypes[] = {
    {"F64", "float64", 8, kFloat, kFloat64},
    {"F32", "float32", 4, kFloat, kFloat32},
    {"F16", "float16", 2, kFloat, kFloat16},
    {"BF16", "bfloat16", 2, kFloat, kBFloat16},
    {"F8_E4M3", "float8_e4m3fn", 1, kFloat, kFloat8E4M3FN},
    {"F8_E5M2", "float8_e5m2", 1, kFloat, kFloat8E5M2},
    {"I64", "int64", 8, kInteger, {}},
    {"I32", "int32", 4, kInteger, {}},
    {"I16", "int16", 2, kInteger, {}},
    {"I8", "int8", 1, kInteger, {}},
    {"U64", "uint64", 8, kInteger, {}},
    {"U32", "uint32", 4, kInteger, {}},
    {"U16", "uint16", 2, kInteger, {}},
    {"U8", "uint8", 1, kInteger, {}},
    {"BOOL", "bool", 1, Element::Kind::boolean, {}}};

Element element_of(const SafetensorsEntry& entry) {
  std::string known;
  for (const Dtype& dtype : kDtypes) {
    if (entry.dtype == dtype.tag) {
      return {dtype.name, dtype.bytes, dtype.kind, dtype.type,
              !kLittleEndianMachine && dtype.bytes > 1};
    }
    known += known.empty() ? dtype.tag : fmt::format(", {}", dtype.tag);
  }
  throw Failure(fmt::format("header: tensor {}: dtype {}, expected one of {}",
                            quoted(entry.name), quoted(entry.dtype), known));
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
  if (entry.end - entry.begin != tensor.bytes()) {
    throw Failure(fmt::format(
        "header: tensor {}: data_offsets [{}, {}], expected the {} bytes of {} "
        "{} between them",
        quoted(entry.name), entry.begin, entry.end, tensor.bytes(),
        tensor.element.name, shape_text(tensor.shape)));
  }
  tensor.data = buffer.substr(static_cast<std::size_t>(entry.begin),
                              static_cast<std::size_t>(tensor.bytes()));
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
