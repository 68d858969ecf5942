#ifndef SWAMP_TOOLCHAIN_SWCC_TOKENS_H_
#define SWAMP_TOOLCHAIN_SWCC_TOKENS_H_

#include <cstddef>
#include <string>
#include <vector>

namespace swcc {

// Token is a piece of preprocessed C and the spaces, newlines and line markers
// before it.
struct Token {
  std::string before;
  std::string text;
  bool is_name = false;
  bool foreign = false;  // of a header of the system's or swcc's
};

// tokens_of() ends with a token whose text is empty.
std::vector<Token> tokens_of(const std::string& source);

// matching() is the place of the bracket that closes the one at `open`, or of
// the end.
std::size_t matching(const std::vector<Token>& tokens, std::size_t open);
// opening() is the place of the bracket that the one at `close` closes, or 0.
std::size_t opening(const std::vector<Token>& tokens, std::size_t close);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_TOKENS_H_
