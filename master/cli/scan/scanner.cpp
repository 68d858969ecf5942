#include "master/cli/scan/scanner.h"

#include <fmt/format.h>

#include "master/cli/command.h"
#include "master/cli/scan/c_order.h"
#include "master/cli/scan/element_stream.h"

namespace swamp::cli {
namespace {

// Few enough bytes for a progress line that moves, enough that a spawn is free.
constexpr std::uint64_t kListBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kPieceBytes = std::uint64_t{64} << 20;

bool is_ready(const FileTensor& tensor) {
  return !tensor.member && !tensor.element.swapped &&
         is_aligned(tensor.data.data(), tensor.element.part_bytes());
}

}  // namespace

std::vector<TensorStatistics> Scanner::scan(
    const std::vector<FileTensor>& tensors) {
  results_.assign(tensors.size(), {});
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const FileTensor& tensor = tensors[i];
    if (tensor.element.kind != Element::Kind::scanned) continue;
    if (is_ready(tensor)) {
      add_pieces(tensor, i);
    } else {
      scan_stream(tensor, results_[i]);
    }
  }
  flush();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    TensorStatistics& result = results_[i];
    if (result.non_finite_count() == 0) continue;
    result.first_non_finite /= tensors[i].element.parts;
    if (differs_from_c_order(tensors[i])) {
      result.first_non_finite = first_in_c_order(tensors[i]);
    }
  }
  return std::move(results_);
}

void Scanner::add_pieces(const FileTensor& tensor, std::size_t owner) {
  const std::uint64_t width = tensor.element.part_bytes();
  const std::uint64_t count = tensor.count * tensor.element.parts;
  for (std::uint64_t first = 0; first < count;) {
    const std::uint64_t elements = std::min(kPieceBytes / width, count - first);
    const char* data = tensor.data.data() + first * width;
    // Read only: Tensor is the type of operators that write, too.
    pieces_.push_back({const_cast<char*>(data),
                       static_cast<std::size_t>(elements),
                       tensor.element.type});
    owners_.push_back(owner);
    piece_bytes_ += elements * width;
    first += elements;
    if (piece_bytes_ >= kListBytes) flush();
  }
}

void Scanner::flush() {
  piece_results_.resize(pieces_.size());
  scan_non_finite(pieces_, piece_results_.data(), &machine_);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    results_[owners_[i]].add(piece_results_[i]);
  }
  count(piece_bytes_);
  pieces_.clear();
  owners_.clear();
  piece_bytes_ = 0;
}

void Scanner::scan_stream(const FileTensor& tensor, TensorStatistics& out) {
  ElementStream stream(tensor);
  while (const std::size_t elements = stream.next()) {
    const Tensor piece[] = {{stream.data(), elements, tensor.element.type}};
    TensorStatistics result;
    scan_non_finite(piece, &result, &machine_);
    out.add(result);
    count(elements * tensor.element.part_bytes());
  }
}

void Scanner::count(std::uint64_t bytes) {
  if (bytes == 0) return;
  bytes_ += bytes;
  progress_(bytes_);
}

}  // namespace swamp::cli
