#include "master/cli/scan/tensor_file.h"

#include <fmt/core.h>

#include "master/cli/command.h"
#include "master/cli/text.h"

namespace swamp::cli {
namespace {

constexpr std::size_t kMaxDimensions = 64;  // as numpy

}  // namespace

std::vector<FileTensor> read_tensors(FileFormat format, Bytes file) {
  if (format == FileFormat::safetensors) return read_safetensors(file);
  if (format == FileFormat::npz) return read_npz(file);
  MemoryStream stream(file);
  FileTensor tensor = read_npy(stream, "array", file.size());
  tensor.data = file.substr(static_cast<std::size_t>(tensor.member_offset));
  return {tensor};
}

std::string read_up_to(ByteStream& stream, std::size_t count) {
  std::string all;
  while (all.size() < count) {
    const Bytes piece = stream.next(count - all.size());
    if (piece.empty()) break;
    all += piece;
  }
  return all;
}

std::unique_ptr<ByteStream> open_stream(const FileTensor& tensor) {
  if (!tensor.member) return std::make_unique<MemoryStream>(tensor.data);
  std::unique_ptr<ByteStream> stream = open_member(*tensor.member);
  read_up_to(*stream, static_cast<std::size_t>(tensor.member_offset));
  return stream;
}

const char* why_not_scanned(Element::Kind kind) noexcept {
  switch (kind) {
    case Element::Kind::integer:
      return "integer";
    case Element::Kind::boolean:
      return "boolean";
    case Element::Kind::not_number:
      return "not a number";
    case Element::Kind::unsupported:
      return "unsupported dtype";
    case Element::Kind::scanned:
      break;
  }
  return "";
}

void settle_count(FileTensor& tensor) {
  if (tensor.shape.size() > kMaxDimensions) {
    throw Failure(
        fmt::format("tensor {}: shape: {} dimensions, expected at "
                    "most {}",
                    quoted(tensor.name), tensor.shape.size(), kMaxDimensions));
  }
  std::uint64_t count = 1;
  std::uint64_t bytes = 0;
  bool overflow = false;
  for (const std::uint64_t length : tensor.shape) {
    overflow |= __builtin_mul_overflow(count, length, &count);
  }
  overflow |= __builtin_mul_overflow(count, tensor.element.bytes, &bytes);
  if (overflow) {
    throw Failure(fmt::format(
        "tensor {}: shape: {} of {} overflows, expected less than 2^64 bytes",
        quoted(tensor.name), shape_text(tensor.shape), tensor.element.name));
  }
  tensor.count = count;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::vector<std::string> lengths;
  for (const std::uint64_t length : shape) {
    lengths.push_back(std::to_string(length));
  }
  return "[" + joined(lengths) + "]";
}

}  // namespace swamp::cli
