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
  bool foreign = false;  // from a header of the system or of swcc
};

// tokens_of() splits the source; the text of the last token is empty.
std::vector<Token> tokens_of(const std::string& source);

// matching() returns the index of the bracket that closes the one at `open`, or
// of the last token.
std::size_t matching(const std::vector<Token>& tokens, std::size_t open);
// opening() returns the index of the bracket that the one at `close` closes, or
// 0.
std::size_t opening(const std::vector<Token>& tokens, std::size_t close);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_TOKENS_H_
