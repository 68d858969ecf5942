#ifndef SWAMP_MASTER_CLI_SCAN_SCANNER_H_
#define SWAMP_MASTER_CLI_SCAN_SCANNER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "master/cli/scan/tensor_file.h"
#include "swamp/swamp.h"

namespace swamp::cli {

// Scanner scans the tensors of a file on a machine of swamp. Tensors that are
// aligned and in this machine's byte order are scanned in place, in lists;
// packed, misaligned and swapped ones are copied to a buffer first.
class Scanner {
 public:
  // `progress` is called now and then with the number of bytes scanned so far.
  using Progress = std::function<void(std::uint64_t bytes)>;
  Scanner(Machine& machine, Progress progress)
      : machine_(machine), progress_(std::move(progress)) {}

  // scan() returns the statistics of each tensor; they are empty if it is not
  // scanned. The parts of complex elements are counted one by one, but
  // first_non_finite is the flat index of an element, in C order whatever the
  // tensor's order. Throws Failure if a packed tensor is broken.
  std::vector<TensorStatistics> scan(const std::vector<FileTensor>& tensors);

  // bytes() returns how many bytes of elements scan() has read so far.
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  void add_pieces(const FileTensor& tensor, std::size_t owner);
  void flush();
  void scan_stream(const FileTensor& tensor, TensorStatistics& out);
  void count(std::uint64_t bytes);

  Machine& machine_;
  Progress progress_;
  std::uint64_t bytes_ = 0;
  std::vector<TensorStatistics> results_;
  std::vector<Tensor> pieces_;  // waiting for flush()
  std::vector<std::size_t> owners_;
  std::vector<TensorStatistics> piece_results_;
  std::uint64_t piece_bytes_ = 0;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_SCAN_SCANNER_H_
