#include "master/cli/scan/npy.h"

#include <fmt/format.h>

#include "master/cli/command.h"

namespace swamp::cli {
namespace {

constexpr std::uint64_t kMaxElementBytes = 1 << 30;

[[noreturn]] void fail_descr(const std::string& descr) {
  throw Failure(
      fmt::format("npy: dtype {}, expected one such as '<f4'", quoted(descr)));
}

bool is_one_of(std::uint64_t value, std::initializer_list<unsigned> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// element_of() reads a descr: byte order, kind, size. numpy writes bfloat16 and
// float8 of ml_dtypes as "<V2" and "<f1", which do not tell what they are.
Element element_of(const std::string& descr) {
  std::size_t at = 0;
  const bool has_order =
      !descr.empty() && std::string("<>=|").find(descr[0]) != std::string::npos;
  const char order = has_order ? descr[at++] : '=';
  if (at == descr.size()) fail_descr(descr);
  const char kind = descr[at++];
  std::uint64_t size = 0;
  const std::size_t digits = at;
  while (at < descr.size() && descr[at] >= '0' && descr[at] <= '9') {
    size = size * 10 + static_cast<unsigned>(descr[at++] - '0');
    if (size > kMaxElementBytes) fail_descr(descr);
  }
  const bool is_time = kind == 'm' || kind == 'M';  // "<M8[ns]"
  const bool has_unit =
      is_time && at < descr.size() && descr[at] == '[' && descr.back() == ']';
  if ((at != descr.size() && !has_unit) || (at == digits) != (kind == 'O')) {
    fail_descr(descr);
  }

  Element element;
  element.bytes = size;
  element.swapped = order == (kLittleEndianMachine ? '>' : '<') && size > 1;
  element.name = fmt::format("{}{}", kind, size);
  if (kind == 'f' && is_one_of(size, {2, 4, 8})) {
    element.kind = Element::Kind::scanned;
    element.type = size == 2 ? kFloat16 : size == 4 ? kFloat32 : kFloat64;
    element.name = fmt::format("float{}", size * 8);
  } else if (kind == 'c' && is_one_of(size, {8, 16})) {
    element.kind = Element::Kind::scanned;
    element.type = size == 8 ? kFloat32 : kFloat64;
    element.parts = 2;
    element.name = fmt::format("complex{}", size * 8);
  } else if ((kind == 'f' && is_one_of(size, {12, 16})) ||
             (kind == 'c' && is_one_of(size, {24, 32}))) {  // long double
    element.name =
        fmt::format("{}{}", kind == 'f' ? "float" : "complex", size * 8);
  } else if ((kind == 'i' || kind == 'u') && is_one_of(size, {1, 2, 4, 8})) {
    element.kind = Element::Kind::integer;
    element.name = fmt::format("{}int{}", kind == 'u' ? "u" : "", size * 8);
  } else if (kind == 'b' && size == 1) {
    element.kind = Element::Kind::boolean;
    element.name = "bool";
  } else if (kind == 'U' || kind == 'S' || (is_time && size == 8)) {
    element.kind = Element::Kind::not_number;
    if (kind == 'U') element.bytes = size * 4;
  } else if (kind == 'O') {
    element.name = "object";
  } else if (!(kind == 'f' && size == 1) && kind != 'V') {
    fail_descr(descr);
  }
  return element;
}

}  // namespace

FileTensor npy_tensor(const NpyHeader& header, std::string name,
                      std::uint64_t npy_bytes) {
  FileTensor tensor;
  tensor.name = std::move(name);
  tensor.element = element_of(header.descr);
  tensor.shape = header.shape;
  tensor.fortran_order = header.fortran_order;
  settle_count(tensor);
  if (tensor.element.name == "object") return tensor;  // a pickle, of any size
  const std::uint64_t there = npy_bytes - header.bytes;
  if (there != tensor.bytes()) {
    throw Failure(fmt::format(
        "npy: {} {} behind its header, expected the {} of {} {}", there,
        there < tensor.bytes() ? "bytes (truncated)" : "bytes", tensor.bytes(),
        tensor.element.name, shape_text(tensor.shape)));
  }
  return tensor;
}

FileTensor read_npy(Bytes file) {
  MemoryStream stream(file);
  const NpyHeader header = read_npy_header(stream);
  FileTensor tensor = npy_tensor(header, "array", file.size());
  tensor.data = file.substr(static_cast<std::size_t>(header.bytes));
  return tensor;
}

}  // namespace swamp::cli
