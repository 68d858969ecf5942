#ifndef SWAMP_MASTER_CLI_SCAN_ELEMENT_STREAM_H_
#define SWAMP_MASTER_CLI_SCAN_ELEMENT_STREAM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "master/cli/scan/tensor_file.h"

namespace swamp::cli {

inline bool is_aligned(const void* data, std::uint64_t bytes) noexcept {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

// ElementStream reads a tensor's elements in the order of memory, a buffer at a
// time, aligned and in this machine's byte order. A complex element counts as
// two, its real and its imaginary part.
class ElementStream {
 public:
  explicit ElementStream(const FileTensor& tensor);

  // next() returns how many elements are at data() now, 0 at the end. Throws
  // Failure if there are more or fewer than the tensor has.
  std::size_t next();
  void* data() noexcept { return buffer_.data(); }

 private:
  const FileTensor& tensor_;
  std::unique_ptr<ByteStream> bytes_;
  std::uint64_t left_;  // bytes
  std::vector<std::uint64_t> buffer_;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_ELEMENT_STREAM_H_
