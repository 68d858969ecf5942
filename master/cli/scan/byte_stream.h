// Bytes that are read once from their start to their end, wherever they lie.
#ifndef SWAMP_MASTER_CLI_SCAN_BYTE_STREAM_H_
#define SWAMP_MASTER_CLI_SCAN_BYTE_STREAM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace swamp::cli {

// Bytes is memory that somebody else owns.
using Bytes = std::string_view;

class ByteStream {
 public:
  ByteStream() = default;
  virtual ~ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // next() returns up to `most` more bytes, none at the end; valid until the
  // next call. Throws Failure where the bytes are not what was promised.
  virtual Bytes next(std::size_t most) = 0;
};

class MemoryStream final : public ByteStream {
 public:
  explicit MemoryStream(Bytes bytes) noexcept : bytes_(bytes) {}

  Bytes next(std::size_t most) override {
    const Bytes piece = bytes_.substr(0, most);
    bytes_.remove_prefix(piece.size());
    return piece;
  }

 private:
  Bytes bytes_;
};

// read_up_to() returns `count` bytes, fewer only where the stream ends.
inline std::string read_up_to(ByteStream& stream, std::size_t count) {
  std::string all;
  while (all.size() < count) {
    const Bytes piece = stream.next(count - all.size());
    if (piece.empty()) break;
    all += piece;
  }
  return all;
}

// load_little() reads an unsigned integer whose lowest byte comes first; the
// bytes must be there.
template <class Unsigned>
Unsigned load_little(Bytes bytes, std::size_t offset) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = sizeof(Unsigned); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[offset + i]);
  }
  return static_cast<Unsigned>(value);
}

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_BYTE_STREAM_H_
