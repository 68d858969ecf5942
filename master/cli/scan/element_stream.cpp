#include "master/cli/scan/element_stream.h"

#include <fmt/format.h>

#include <cstring>

#include "master/cli/command.h"

namespace swamp::cli {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;  // stays in cache

// Written so that the compiler makes vectors of it.
template <class Unsigned>
void swap_each(void* data, std::size_t bytes, Unsigned (*swap)(Unsigned)) {
  auto* values = static_cast<Unsigned*>(data);
  const std::size_t count = bytes / sizeof(Unsigned);
  for (std::size_t i = 0; i < count; ++i) values[i] = swap(values[i]);
}

void swap_bytes(void* data, std::size_t bytes, std::size_t width) {
  if (width == 2) {
    swap_each<std::uint16_t>(data, bytes, [](std::uint16_t x) {
      return static_cast<std::uint16_t>(__builtin_bswap16(x));
    });
  } else if (width == 4) {
    swap_each<std::uint32_t>(data, bytes, [](std::uint32_t x) {
      return std::uint32_t{__builtin_bswap32(x)};
    });
  } else if (width == 8) {
    swap_each<std::uint64_t>(data, bytes, [](std::uint64_t x) {
      return std::uint64_t{__builtin_bswap64(x)};
    });
  }
}

}  // namespace

ElementStream::ElementStream(const FileTensor& tensor)
    : tensor_(tensor),
      bytes_(open_stream(tensor)),
      left_(tensor.bytes()),
      buffer_(static_cast<std::size_t>(
          std::min<std::uint64_t>(kBufferBytes, left_) / 8 + 1)) {}

std::size_t ElementStream::next() {
  if (left_ == 0) {
    if (bytes_->next(1).empty()) return 0;
    throw Failure(fmt::format("tensor {}: more bytes than its header says",
                              quoted(tensor_.name)));
  }
  auto* data = reinterpret_cast<char*>(buffer_.data());
  const auto wanted =
      static_cast<std::size_t>(std::min<std::uint64_t>(kBufferBytes, left_));
  std::size_t filled = 0;
  while (filled < wanted) {
    const Bytes piece = bytes_->next(wanted - filled);
    if (piece.empty()) {
      throw Failure(fmt::format("tensor {}: ends {} bytes too early",
                                quoted(tensor_.name), left_ - filled));
    }
    std::memcpy(data + filled, piece.data(), piece.size());
    filled += piece.size();
  }
  left_ -= filled;
  const auto width = static_cast<std::size_t>(tensor_.element.part_bytes());
  if (tensor_.element.swapped) swap_bytes(data, filled, width);
  return filled / width;
}

}  // namespace swamp::cli
