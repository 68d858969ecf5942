// Files of tensors: which files the arguments name, their bytes in memory, and
// the tensors that their headers describe. A header may be wrong, so all
// readers check it against the file before they use it.
#ifndef SWAMP_MASTER_CLI_SCAN_TENSOR_FILE_H_
#define SWAMP_MASTER_CLI_SCAN_TENSOR_FILE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "swamp/tensor.h"

namespace swamp::cli {

// Bytes is memory that the caller owns.
using Bytes = std::string_view;

// MappedFile is a regular file in memory, read-only.
//
// Reading a page that cannot be read, because the file was truncated or the
// disk failed, raises SIGBUS. Our handler maps zeros there and sets a flag, so
// that the reading thread continues; check() then throws, and nothing that was
// read is used. A SIGBUS elsewhere ends the program as usual.
// There is one MappedFile at a time.
class MappedFile {
 public:
  // Throws Failure, without the path, if it cannot be opened.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  Bytes bytes() const noexcept { return bytes_; }

  // check() throws Failure if the file has shrunk since it was opened, or if a
  // part of it could not be read.
  void check() const;

 private:
  Bytes bytes_;
  int descriptor_ = -1;
};

// ByteStream reads bytes once, from their start to their end.
class ByteStream {
 public:
  ByteStream() = default;
  virtual ~ByteStream() = default;
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // next() returns up to `most` more bytes, none at the end; they are valid
  // until the next call. Throws Failure if the bytes are damaged.
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

// read_up_to() returns `count` bytes, fewer only if the stream ends.
std::string read_up_to(ByteStream& stream, std::size_t count);

// load_little() reads an unsigned little-endian integer; `bytes` must hold it.
template <class Unsigned>
Unsigned load_little(Bytes bytes, std::size_t offset) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = sizeof(Unsigned); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[offset + i]);
  }
  return static_cast<Unsigned>(value);
}

// Element is the dtype of a tensor.
struct Element {
  // Only `scanned` tensors are read. An `unsupported` one may hold inf or nan
  // that swamp cannot find, so it is never reported as clean.
  enum class Kind : std::uint8_t {
    scanned,
    integer,
    boolean,
    not_number,  // text, times
    finite,      // floats of a format without inf and nan
    unsupported
  };

  std::string name;        // as numpy and ml_dtypes call it: float16, int64
  std::uint64_t bits = 0;  // of one element; 0 if unknown
  Kind kind = Kind::unsupported;
  ScalarType type = kFloat32;  // of a part, if scanned
  unsigned parts = 1;          // 2 if complex: the real and the imaginary part
  bool swapped = false;        // in the other byte order than this machine's

  // Of an element that is scanned.
  std::uint64_t part_bytes() const noexcept { return bits / 8 / parts; }
};

// why_not_scanned() is a few words for a kind that is not scanned.
const char* why_not_scanned(Element::Kind kind) noexcept;

struct NpzMember;

// FileTensor is a tensor and the place of its elements: `data`, or `member` of
// a zip archive after its first `member_offset` bytes.
struct FileTensor {
  std::string name;
  Element element;
  std::vector<std::uint64_t> shape;
  bool fortran_order = false;
  std::uint64_t count = 0;  // elements
  Bytes data;
  std::shared_ptr<const NpzMember> member;
  std::uint64_t member_offset = 0;

  // Without overflow: settle_count() has checked the result.
  std::uint64_t bytes() const noexcept {
    return count / 8 * element.bits + count % 8 * element.bits / 8;
  }
};

enum class FileFormat : std::uint8_t { safetensors, npy, npz };

// ScanFile is one file to scan.
struct ScanFile {
  std::string path;
  FileFormat format;
  // The tensors that the file must hold, because an index lists them.
  std::vector<std::string> expected;
};

// list_files() returns the files that the arguments of scan name: files as they
// are, of a folder its *.safetensors, *.npy and *.npz sorted by name, of an
// index its shards. A shard of an index in the same folder is listed once. An
// error of an argument goes to `complain`, and the others are listed.
std::vector<ScanFile> list_files(
    const std::vector<std::string>& arguments, bool recursive,
    const std::function<void(const std::string& text)>& complain);

// ShardMap is the tensors that each file of a sharded checkpoint must hold, by
// the file's name relative to the index.
using ShardMap = std::map<std::string, std::vector<std::string>>;

// read_index() reads the JSON of a *.index.json: {"weight_map": {tensor:
// file}}. A file outside of the index's folder is refused. Throws Failure.
ShardMap read_index(Bytes json);

// read_tensors() reads the header of a file whose content is `file`, which must
// outlive the result. Throws Failure, without the file's name.
std::vector<FileTensor> read_tensors(FileFormat format, Bytes file);

// Metadata is the texts of a safetensors header that belong to no tensor.
using Metadata = std::map<std::string, std::string>;

// read_safetensors() reads a safetensors file: the header's length in 8 bytes,
// the header (JSON), the buffer, which the tensors must cover exactly. They
// come in the order of the buffer; `metadata` may be null. Throws Failure.
std::vector<FileTensor> read_safetensors(Bytes file,
                                         Metadata* metadata = nullptr);

// read_npy() reads an npy file of `bytes` bytes, header included, from the
// start of a stream up to its elements; `member_offset` is then the header's
// length. Throws Failure if the elements would not fill the rest exactly.
FileTensor read_npy(ByteStream& stream, std::string name, std::uint64_t bytes);

// read_npz() reads the headers of an npz: a zip archive of npy files.
std::vector<FileTensor> read_npz(Bytes file);

// open_member() begins to unpack a member of an npz. The stream throws Failure
// if the member is damaged, or longer or shorter than its directory says.
std::unique_ptr<ByteStream> open_member(const NpzMember& member);

// open_stream() begins to read a tensor's elements.
std::unique_ptr<ByteStream> open_stream(const FileTensor& tensor);

// settle_count() computes the tensor's count from its shape. Throws Failure if
// its bytes overflow or are not whole, or there are too many dimensions.
void settle_count(FileTensor& tensor);

std::string shape_text(const std::vector<std::uint64_t>& shape);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_TENSOR_FILE_H_
