// A file of tensors, as its header describes it. Headers are not to be trusted:
// the readers of all formats check them before anything is believed.
#ifndef SWAMP_MASTER_CLI_SCAN_TENSOR_FILE_H_
#define SWAMP_MASTER_CLI_SCAN_TENSOR_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "master/cli/scan/byte_stream.h"
#include "swamp/tensor.h"

namespace swamp::cli {

// Element is the dtype of a tensor.
struct Element {
  // Only `scanned` tensors are read. An `unsupported` one may hold inf or nan
  // that swamp cannot find, so it is never reported as clean.
  enum class Kind : std::uint8_t {
    scanned,
    integer,
    boolean,
    not_number,  // text, times
    unsupported
  };

  std::string name;         // as numpy and ml_dtypes call it: float16, int64
  std::uint64_t bytes = 0;  // of one element; 0 if unknown
  Kind kind = Kind::unsupported;
  ScalarType type = kFloat32;  // of a part, if scanned
  unsigned parts = 1;          // 2 if complex: the real and the imaginary part
  bool swapped = false;        // in the other byte order than this machine's

  std::uint64_t part_bytes() const noexcept { return bytes / parts; }
};

// why_not_scanned() is a few words for a kind that is not scanned.
const char* why_not_scanned(Element::Kind kind) noexcept;

struct NpzMember;

// FileTensor is a tensor and where its elements are: in `data`, or after the
// first `member_offset` bytes of `member`, a file in a zip archive.
struct FileTensor {
  std::string name;
  Element element;
  std::vector<std::uint64_t> shape;
  bool fortran_order = false;
  std::uint64_t count = 0;  // elements
  Bytes data;
  std::shared_ptr<const NpzMember> member;
  std::uint64_t member_offset = 0;

  std::uint64_t bytes() const noexcept { return count * element.bytes; }
};

enum class FileFormat : std::uint8_t { safetensors, npy, npz };

// read_tensors() reads the header of a file whose content is `file`, which must
// outlive the result. Throws Failure, without the file's name.
std::vector<FileTensor> read_tensors(FileFormat format, Bytes file);

// open_stream() begins to read a tensor's elements.
std::unique_ptr<ByteStream> open_stream(const FileTensor& tensor);

// settle_count() fills in the tensor's count from its shape; throws Failure
// where its bytes overflow or there are too many dimensions.
void settle_count(FileTensor& tensor);

std::string shape_text(const std::vector<std::uint64_t>& shape);

// quoted() is a name from a file in an error: in quotes, and cut when long.
std::string quoted(std::string_view text);

inline constexpr bool kLittleEndianMachine =
    __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_TENSOR_FILE_H_
