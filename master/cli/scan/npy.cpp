// npy files: numpy's format of one array. The header is a Python dict, and
// only numpy's own form of it is understood; its shape and dtype are checked
// against the size of the file before the data are read.
#include <fmt/core.h>

#include "master/cli/command.h"
#include "master/cli/scan/tensor_file.h"
#include "master/cli/text.h"

namespace swamp::cli {
namespace {

constexpr Bytes kMagic = "\x93NUMPY";
constexpr std::size_t kMaxNpyHeaderBytes = 1 << 20;

// NpyHeader is the header of an npy file.
struct NpyHeader {
  std::string descr;  // "<f4"
  bool fortran_order = false;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes = 0;  // of the header itself: the elements begin there
};

// Parser reads the one Python literal that a header is, and nothing else:
// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class Parser {
 public:
  explicit Parser(Bytes text) : text_(text) {}

  NpyHeader parse() {
    NpyHeader header;
    bool seen[3] = {};
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      const int which = key == "descr"           ? 0
                        : key == "fortran_order" ? 1
                        : key == "shape"         ? 2
                                                 : -1;
      if (which < 0) fail(fmt::format("unknown key {}", in_quotes(key)));
      if (seen[which]) fail(fmt::format("{} twice", key));
      seen[which] = true;
      expect(':');
      if (which == 0) header.descr = descr();
      if (which == 1) header.fortran_order = boolean();
      if (which == 2) header.shape = tuple();
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    if (!seen[0] || !seen[1] || !seen[2]) {
      fail("expected descr, fortran_order and shape");
    }
    skip_space();
    if (at_ != text_.size()) fail("text after the closing brace");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& text) const {
    throw Failure(fmt::format("npy: header, character {}: {}", at_ + 1, text));
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' ||
                                  text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  bool take(char wanted) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) fail(fmt::format("expected '{}'", wanted));
  }

  std::string string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail("expected a string");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == Bytes::npos) fail("a string without an end");
    const std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }

  std::string descr() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[') {
      fail("descr: got a structured dtype, expected a plain one such as '<f4'");
    }
    return string();
  }

  bool boolean() {
    skip_space();
    for (const bool value : {false, true}) {
      const Bytes word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    fail("fortran_order: expected True or False");
  }

  std::vector<std::uint64_t> tuple() {
    std::vector<std::uint64_t> values;
    expect('(');
    while (!take(')')) {
      values.push_back(integer());
      if (take(',')) continue;
      if (values.size() == 1) fail("shape: got a number, expected a tuple");
      expect(')');
      break;
    }
    return values;
  }

  std::uint64_t integer() {
    skip_space();
    const std::size_t begin = at_;
    std::uint64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      if (__builtin_mul_overflow(value, 10u, &value) ||
          __builtin_add_overflow(value, digit, &value)) {
        fail("shape: a number of 2^64 or more");
      }
      ++at_;
    }
    if (at_ == begin) fail("shape: expected numbers, 0 or more");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote 3L
    return value;
  }

  Bytes text_;
  std::size_t at_ = 0;
};

// read_header() reads the header of format version 1, 2 or 3.
NpyHeader read_header(ByteStream& stream) {
  const std::string start = read_up_to(stream, kMagic.size() + 2);
  if (start.substr(0, kMagic.size()) != kMagic) {
    throw Failure("npy: does not begin with \\x93NUMPY");
  }
  if (start.size() < kMagic.size() + 2) {
    throw Failure("npy: truncated before its version");
  }
  const int major = static_cast<unsigned char>(start[kMagic.size()]);
  const int minor = static_cast<unsigned char>(start[kMagic.size() + 1]);
  if (major < 1 || major > 3 || minor != 0) {
    throw Failure(fmt::format(
        "npy: got version {}.{}, expected 1.0, 2.0 or 3.0", major, minor));
  }
  const std::size_t width = major == 1 ? 2 : 4;
  const std::string length = read_up_to(stream, width);
  if (length.size() < width) throw Failure("npy: truncated in its header");
  const std::size_t bytes = major == 1 ? load_little<std::uint16_t>(length, 0)
                                       : load_little<std::uint32_t>(length, 0);
  if (bytes > kMaxNpyHeaderBytes) {
    throw Failure(
        fmt::format("npy: got a header of {} bytes, expected at most {}", bytes,
                    kMaxNpyHeaderBytes));
  }
  const std::string text = read_up_to(stream, bytes);
  if (text.size() < bytes) {
    throw Failure(fmt::format("npy: truncated: {} bytes of a header of {}",
                              text.size(), bytes));
  }
  NpyHeader header = Parser(text).parse();
  header.bytes = start.size() + width + bytes;
  return header;
}

constexpr std::uint64_t kMaxElementBytes = 1 << 30;

[[noreturn]] void fail_descr(const std::string& descr) {
  throw Failure(fmt::format("npy: got the dtype {}, expected one such as '<f4'",
                            in_quotes(descr)));
}

bool is_one_of(std::uint64_t value, std::initializer_list<unsigned> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// element_of() reads a descr: byte order, kind, size. numpy writes bfloat16 and
// float8 of ml_dtypes as "<V2" and "<f1", which are ambiguous.
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
  element.bits = size * 8;
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
    if (kind == 'U') element.bits = size * 32;
  } else if (kind == 'O') {
    element.name = "object";
  } else if (!(kind == 'f' && size == 1) && kind != 'V') {
    fail_descr(descr);
  }
  return element;
}

}  // namespace

FileTensor read_npy(ByteStream& stream, std::string name, std::uint64_t bytes) {
  const NpyHeader header = read_header(stream);
  FileTensor tensor;
  tensor.name = std::move(name);
  tensor.element = element_of(header.descr);
  tensor.shape = header.shape;
  tensor.fortran_order = header.fortran_order;
  tensor.member_offset = header.bytes;
  settle_count(tensor);
  if (tensor.element.name == "object") return tensor;  // a pickle, of any size
  const std::uint64_t there = bytes - header.bytes;
  if (there != tensor.bytes()) {
    throw Failure(fmt::format(
        "npy: got {} {} after its header, expected the {} of {} {}", there,
        there < tensor.bytes() ? "bytes (truncated)" : "bytes", tensor.bytes(),
        tensor.element.name, shape_text(tensor.shape)));
  }
  return tensor;
}

}  // namespace swamp::cli
