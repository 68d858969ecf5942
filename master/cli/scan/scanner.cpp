// Tensors that lie in memory as they are needed go to scan_non_finite() in
// lists of pieces; others pass through a buffer, where their bytes are swapped
// or their codes become float32.
// Only a Fortran array in which inf or nan was found is read twice.
#include "master/cli/scan/scanner.h"

#include <fmt/core.h>

#include <cmath>
#include <cstring>

#include "master/cli/command.h"
#include "master/cli/text.h"
#include "swamp/float_formats.h"

namespace swamp::cli {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;  // stays in cache
// A list is short enough that the progress line moves, and long enough that the
// cost of a launch does not matter.
constexpr std::uint64_t kListBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kPieceBytes = std::uint64_t{64} << 20;

// A plain loop, which the compiler vectorises.
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

ElementStream::ElementStream(const FileTensor& tensor)
    : tensor_(tensor),
      bytes_(open_stream(tensor)),
      left_(tensor.bytes()),
      buffer_(static_cast<std::size_t>(
          std::min<std::uint64_t>(kBufferBytes, left_) / 8 + 1)) {}

std::size_t ElementStream::next() {
  if (left_ == 0) {
    if (bytes_->next(1).empty()) return 0;
    throw Failure(fmt::format("tensor {}: more bytes than its header gives",
                              in_quotes(tensor_.name)));
  }
  auto* data = reinterpret_cast<char*>(buffer_.data());
  const auto wanted =
      static_cast<std::size_t>(std::min<std::uint64_t>(kBufferBytes, left_));
  std::size_t filled = 0;
  while (filled < wanted) {
    const Bytes piece = bytes_->next(wanted - filled);
    if (piece.empty()) {
      throw Failure(fmt::format("tensor {}: ends {} bytes too early",
                                in_quotes(tensor_.name), left_ - filled));
    }
    std::memcpy(data + filled, piece.data(), piece.size());
    filled += piece.size();
  }
  left_ -= filled;
  const auto width = static_cast<std::size_t>(tensor_.element.part_bytes());
  if (tensor_.element.swapped) swap_bytes(data, filled, width);
  return filled / width;
}

// A flat index means C order, in which the last index runs fastest. In memory
// of Fortran order the first runs fastest.

// Walk visits the elements of an array in Fortran order and computes their flat
// indices in C order.
class Walk {
 public:
  explicit Walk(const std::vector<std::uint64_t>& shape)
      : shape_(shape), at_(shape.size(), 0), strides_(shape.size(), 1) {
    for (std::size_t d = shape.size(); d-- > 1;) {
      strides_[d - 1] = strides_[d] * shape[d];
    }
  }

  std::uint64_t index() const noexcept { return index_; }

  void step() noexcept {
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      index_ += strides_[d];
      if (++at_[d] < shape_[d]) return;
      index_ -= strides_[d] * shape_[d];
      at_[d] = 0;
    }
  }

 private:
  const std::vector<std::uint64_t>& shape_;
  std::vector<std::uint64_t> at_;
  std::vector<std::uint64_t> strides_;
  std::uint64_t index_ = 0;
};

// npy has only these three float formats.
bool is_finite(const void* data, std::size_t i, ScalarType type) {
  if (type == kFloat64) {
    return std::isfinite(static_cast<const double*>(data)[i]);
  }
  if (type == kFloat32) {
    return std::isfinite(static_cast<const float*>(data)[i]);
  }
  return std::isfinite(
      float16_to_float(static_cast<const std::uint16_t*>(data)[i]));
}

// differs_from_c_order() is false for arrays that are the same in both orders.
bool differs_from_c_order(const FileTensor& tensor) {
  std::size_t long_dimensions = 0;
  for (const std::uint64_t length : tensor.shape) {
    long_dimensions += length != 1 ? 1 : 0;
  }
  return tensor.fortran_order && long_dimensions > 1;
}

// first_in_c_order() reads a tensor that has inf or nan once more, element by
// element, and returns the lowest flat index of one.
std::uint64_t first_in_c_order(const FileTensor& tensor) {
  std::uint64_t lowest = ~std::uint64_t{0};
  Walk walk(tensor.shape);
  ElementStream stream(tensor);
  while (const std::size_t elements = stream.next()) {
    for (std::size_t i = 0; i < elements; ++i) {
      if (walk.index() < lowest &&
          !is_finite(stream.data(), i, tensor.element.type)) {
        lowest = walk.index();
      }
      // A buffer never ends between the parts of an element.
      if ((i + 1) % tensor.element.parts == 0) walk.step();
    }
  }
  return lowest;
}

// is_decoded() returns whether scan_non_finite() needs the values of the codes.
bool is_decoded(ScalarType type) {
  const Specials specials = kFloatFormats[type].specials;
  return specials != Specials::ieee && specials != Specials::nan;
}

// is_ready() returns whether the tensor can be scanned in place.
bool is_ready(const FileTensor& tensor) {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data.data());
  return !tensor.member && !tensor.element.swapped &&
         !is_decoded(tensor.element.type) &&
         address % tensor.element.part_bytes() == 0;
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
    // Only read. Operators that write use the same type, so it is not const.
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
  std::vector<float> values;
  while (const std::size_t elements = stream.next()) {
    Tensor piece[] = {{stream.data(), elements, tensor.element.type}};
    if (is_decoded(tensor.element.type)) {
      values.resize(elements);
      const Tensor decoded{values.data(), elements, kFloat32};
      dequantize(piece[0], decoded, 1, &machine_);
      piece[0] = decoded;
    }
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
