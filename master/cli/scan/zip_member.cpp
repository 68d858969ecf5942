#include "master/cli/scan/zip_member.h"

#include <fmt/format.h>

#include <vector>

#include "master/cli/command.h"
#include "master/cli/scan/tensor_file.h"

#ifdef SWAMP_HAS_ZLIB
#include <zlib.h>
#endif

namespace swamp::cli {
namespace {

[[noreturn]] void fail(const ZipMember& member, const std::string& text) {
  throw Failure(fmt::format("zip: member {}: {}", quoted(member.name), text));
}

// check_crc() compares at the end of a member.
[[maybe_unused]] void check_crc(const ZipMember& member, unsigned long crc) {
  if (crc == member.crc) return;
  fail(member, fmt::format("CRC {:08x}, expected {:08x}: the data is damaged",
                           crc, member.crc));
}

#ifdef SWAMP_HAS_ZLIB
constexpr std::size_t kMaxZlibBytes = std::size_t{1} << 30;

unsigned long add_crc(unsigned long crc, Bytes piece) {
  return crc32_z(crc, reinterpret_cast<const Bytef*>(piece.data()),
                 piece.size());
}

// StoredStream hands out the archive's own bytes.
class StoredStream final : public ByteStream {
 public:
  explicit StoredStream(const ZipMember& member)
      : member_(member), rest_(member.packed) {}

  Bytes next(std::size_t most) override {
    const Bytes piece = rest_.substr(0, most);
    rest_.remove_prefix(piece.size());
    crc_ = add_crc(crc_, piece);
    if (rest_.empty()) check_crc(member_, crc_);
    return piece;
  }

 private:
  const ZipMember& member_;
  Bytes rest_;
  unsigned long crc_ = 0;
};

class InflateStream final : public ByteStream {
 public:
  explicit InflateStream(const ZipMember& member)
      : member_(member), packed_(member.packed) {
    if (inflateInit2(&zlib_, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~InflateStream() override { inflateEnd(&zlib_); }

  Bytes next(std::size_t most) override {
    // Never more than was promised, and a byte to see that there is no more.
    const std::uint64_t promised = member_.bytes - done_;
    std::size_t wanted = std::min(most, kMaxZlibBytes);
    if (wanted > promised) wanted = static_cast<std::size_t>(promised) + 1;
    if (ended_) return {};
    if (buffer_.size() < wanted) buffer_.resize(wanted);
    zlib_.next_out = reinterpret_cast<Bytef*>(buffer_.data());
    zlib_.avail_out = static_cast<uInt>(wanted);
    while (zlib_.avail_out != 0 && !ended_) inflate_some();
    const Bytes piece(buffer_.data(), wanted - zlib_.avail_out);
    done_ += piece.size();
    if (done_ > member_.bytes) {
      fail(member_, fmt::format("more than the {} bytes that it says it has",
                                member_.bytes));
    }
    crc_ = add_crc(crc_, piece);
    // The last byte is not given away before all is known to be right.
    if (!ended_ && done_ == member_.bytes) expect_end();
    if (ended_) check_end();
    return piece;
  }

 private:
  void inflate_some() {
    if (zlib_.avail_in == 0) {
      const Bytes piece = packed_.substr(0, kMaxZlibBytes);
      packed_.remove_prefix(piece.size());
      zlib_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
      zlib_.avail_in = static_cast<uInt>(piece.size());
    }
    const int status = inflate(&zlib_, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      ended_ = true;
    } else if (status == Z_BUF_ERROR) {
      fail(member_, "its deflated data ends too early");
    } else if (status != Z_OK) {
      fail(member_, fmt::format("its deflated data is broken ({})",
                                zlib_.msg != nullptr ? zlib_.msg : "zlib"));
    }
  }

  void expect_end() {
    char spare;
    zlib_.next_out = reinterpret_cast<Bytef*>(&spare);
    zlib_.avail_out = 1;
    while (zlib_.avail_out != 0 && !ended_) inflate_some();
    if (zlib_.avail_out == 0) {
      fail(member_, fmt::format("more than the {} bytes that it says it has",
                                member_.bytes));
    }
  }

  void check_end() {
    if (done_ != member_.bytes) {
      fail(member_, fmt::format("{} bytes, expected the {} that it says it has",
                                done_, member_.bytes));
    }
    if (zlib_.avail_in != 0 || !packed_.empty()) {
      fail(member_, "bytes behind the end of its deflated data");
    }
    check_crc(member_, crc_);
  }

  const ZipMember& member_;
  Bytes packed_;
  z_stream zlib_ = {};
  std::vector<char> buffer_;
  std::uint64_t done_ = 0;
  unsigned long crc_ = 0;
  bool ended_ = false;
};
#endif

}  // namespace

std::unique_ptr<ByteStream> open_member(const ZipMember& member) {
#ifdef SWAMP_HAS_ZLIB
  if (member.method == ZipMember::kStored) {
    return std::make_unique<StoredStream>(member);
  }
  return std::make_unique<InflateStream>(member);
#else
  if (member.method == ZipMember::kStored) {
    return std::make_unique<MemoryStream>(member.packed);
  }
  fail(member, "deflated; unsupported here: this swamp was built without zlib");
#endif
}

}  // namespace swamp::cli
