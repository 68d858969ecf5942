#include "toolchain/sunway/swcc/tokens.h"

#include <cctype>

namespace swcc {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// end_of_space() skips spaces and whole lines that begin with #.
std::size_t end_of_space(const std::string& text, std::size_t at) {
  bool line_start = at == 0 || text[at - 1] == '\n';
  while (at < text.size()) {
    if (line_start && text[at] == '#') {
      at = text.find('\n', at);
      if (at == std::string::npos) return text.size();
    } else if (std::isspace(static_cast<unsigned char>(text[at])) == 0) {
      return at;
    }
    line_start = text[at] == '\n' || (line_start && text[at] == ' ');
    ++at;
  }
  return at;
}

std::size_t end_of_literal(const std::string& text, std::size_t at) {
  const char quote = text[at];
  for (++at; at < text.size() && text[at] != quote; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at < text.size() ? at + 1 : text.size();
}

std::size_t end_of_number(const std::string& text, std::size_t at) {
  while (at < text.size()) {
    const bool sign =
        (text[at] == '+' || text[at] == '-') &&
        std::string("eEpP").find(text[at - 1]) != std::string::npos;
    if (!is_word(text[at]) && text[at] != '.' && !sign) return at;
    ++at;
  }
  return at;
}

std::size_t end_of_token(const std::string& text, std::size_t at) {
  const char c = text[at];
  const char next = at + 1 < text.size() ? text[at + 1] : '\0';
  const auto digit = [](char d) {
    return std::isdigit(static_cast<unsigned char>(d)) != 0;
  };
  if (c == '"' || c == '\'') return end_of_literal(text, at);
  if (digit(c) || (c == '.' && digit(next))) {
    return end_of_number(text, at + 1);
  }
  if (is_word(c)) {
    while (at < text.size() && is_word(text[at])) ++at;
    return at;
  }
  for (const char* two :
       {"->", "==", "!=", "<=", ">=", "+=", "-=", "*=", "/=", "&=", "|=", "^=",
        "%=", "++", "--", "&&", "||", "<<", ">>"}) {
    if (c == two[0] && next == two[1]) return at + 2;
  }
  return at + 1;
}

bool opens(const std::string& text) {
  return text == "(" || text == "[" || text == "{";
}
bool closes(const std::string& text) {
  return text == ")" || text == "]" || text == "}";
}

// is_foreign() returns whether the last line marker in `space` names a header
// of the system or of swcc (gcc's flag 3, because of -isystem), or `was` if
// there is no marker.
bool is_foreign(const std::string& space, bool was) {
  const std::size_t close = space.rfind('"');
  if (close == std::string::npos || close == 0) return was;
  const std::size_t open = space.rfind('"', close - 1);
  const std::string file = space.substr(open + 1, close - open - 1);
  return file.rfind("/usr/", 0) == 0 ||
         space.find(" 3", close) != std::string::npos;
}

}  // namespace

std::vector<Token> tokens_of(const std::string& source) {
  std::vector<Token> tokens;
  std::size_t at = 0;
  bool foreign = false;
  do {
    const std::size_t begin = end_of_space(source, at);
    const std::size_t end =
        begin < source.size() ? end_of_token(source, begin) : begin;
    Token token{source.substr(at, begin - at),
                source.substr(begin, end - begin), false, false};
    foreign = is_foreign(token.before, foreign);
    token.foreign = foreign;
    token.is_name =
        !token.text.empty() && is_word(token.text[0]) &&
        std::isdigit(static_cast<unsigned char>(token.text[0])) == 0;
    tokens.push_back(token);
    at = end;
  } while (!tokens.back().text.empty());
  return tokens;
}

std::size_t matching(const std::vector<Token>& tokens, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i + 1 < tokens.size(); ++i) {
    if (opens(tokens[i].text)) ++depth;
    if (closes(tokens[i].text) && --depth == 0) return i;
  }
  return tokens.size() - 1;
}

std::size_t opening(const std::vector<Token>& tokens, std::size_t close) {
  int depth = 0;
  for (std::size_t i = close; i > 0; --i) {
    if (closes(tokens[i].text)) ++depth;
    if (opens(tokens[i].text) && --depth == 0) return i;
  }
  return 0;
}

}  // namespace swcc
