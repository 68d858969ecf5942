// Text to numbers and dtypes, lists to text, and digests of bytes.
#ifndef SWAMP_MASTER_CLI_TEXT_H_
#define SWAMP_MASTER_CLI_TEXT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "swamp/float_formats.h"
#include "swamp/tensor.h"

namespace swamp::cli {

// parse_integer() and parse_real() are strict: the whole text must be a number
// in the range. Else they throw a UsageError that names option, text and range.
std::uint64_t parse_integer(const std::string& option, const std::string& text,
                            std::uint64_t low, std::uint64_t high);
double parse_real(const std::string& option, const std::string& text,
                  double low, double high);

// Dtypes are named as in PyTorch.
inline const char* dtype_name(ScalarType dtype) {
  return kFloatFormats[dtype].name;
}
// parse_dtype() throws UsageError unless the name is one of those allowed.
inline constexpr std::initializer_list<ScalarType> kAllDtypes = {
    kFloat16, kBFloat16, kFloat32, kFloat64, kFloat8E4M3FN, kFloat8E5M2};
ScalarType parse_dtype(const std::string& option, const std::string& name,
                       std::initializer_list<ScalarType> allowed = kAllDtypes);

// split() returns the texts between the commas; an empty text is one empty
// item.
std::vector<std::string> split(const std::string& text);
std::string joined(const std::vector<std::string>& texts);

// plural() is the "s" after a number of things.
inline const char* plural(std::uint64_t count) { return count == 1 ? "" : "s"; }

// printable() replaces control characters, because names come from files.
std::string printable(std::string text);
// in_quotes() is a name for an error message: printable, in quotes, cut if
// long.
std::string in_quotes(std::string_view text);

// kColumns is the width of a terminal: no line of output is longer, unless one
// word is.
inline constexpr std::size_t kColumns = 80;

// wrapped() breaks a text at blanks into lines of at most `columns` characters.
// All but the first begin with `indent` blanks. The last has no '\n'.
std::string wrapped(const std::string& text, std::size_t columns = kColumns,
                    std::size_t indent = 0);
// wrapped_fields() does so between the fields, which two blanks separate.
std::string wrapped_fields(const std::vector<std::string>& fields,
                           std::size_t indent);

inline constexpr bool kLittleEndianMachine =
    __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;

// little_endian_bytes() are the bytes of numbers as files and digests have
// them.
template <class Number>
std::string little_endian_bytes(const Number* values, std::size_t count) {
  std::string bytes(reinterpret_cast<const char*>(values),
                    count * sizeof(Number));
  if (!kLittleEndianMachine) {
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(Number)) {
      std::reverse(&bytes[i], &bytes[i] + sizeof(Number));
    }
  }
  return bytes;
}

inline constexpr std::uint64_t kDigestStart = 0xcbf29ce484222325u;

// add_to_digest() continues an FNV-1a digest with `bytes`.
inline std::uint64_t add_to_digest(std::uint64_t digest,
                                   std::string_view bytes) noexcept {
  for (const char byte : bytes) {
    digest = (digest ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  }
  return digest;
}

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TEXT_H_
