#include <string>
#include <vector>

#include "toolchain/sunway/swcc/actions.h"
#include "toolchain/sunway/swcc/tokens.h"

namespace swcc {
namespace {

using Tokens = std::vector<Token>;

std::string joined(const Tokens& tokens, std::size_t begin, std::size_t end) {
  std::string all;
  for (std::size_t i = begin; i < end; ++i) {
    all += tokens[i].before + tokens[i].text;
  }
  return all;
}

// instruction_in() returns the name of a template's only instruction, or "".
std::string instruction_in(const std::string& literal) {
  for (const char* name : {"putr", "putc", "getr", "getc"}) {
    const std::size_t at = literal.find_first_not_of("\" \t");
    if (at == std::string::npos || literal.compare(at, 4, name) != 0) continue;
    const std::size_t first = literal.find("%0", at);
    const std::size_t second = literal.find("%1", at);
    const bool put = name[0] == 'p';
    if (first == std::string::npos || (second != std::string::npos) != put) {
      continue;
    }
    // Only the end of the line may follow the operands.
    const std::string rest = literal.substr((put ? second : first) + 2);
    if (rest.find_first_not_of("\\nt \"") == std::string::npos) return name;
  }
  return "";
}

// operands() returns the expressions a, b of "r"(a), "r"(b) in an asm from
// `begin` to `end`, outputs first.
std::vector<std::string> operands(const Tokens& tokens, std::size_t begin,
                                  std::size_t end) {
  std::vector<std::string> all;
  int colons = 0;
  for (std::size_t i = begin; i < end; ++i) {
    if (tokens[i].text == ":") ++colons;
    if (tokens[i].text != "(" || colons > 2) continue;
    const std::size_t close = matching(tokens, i);
    all.push_back(joined(tokens, i + 1, close));
    i = close;
  }
  return all;
}

std::string call(const std::string& name, const std::vector<std::string>& of) {
  if (name[0] == 'g') {
    return "swamp_" + name + "((void*)&(" + of[0] + "), sizeof(" + of[0] + "))";
  }
  return "__extension__ ({ __typeof__(" + of[0] + ") swamp_value = (" + of[0] +
         "); swamp_" + name + "((const void*)&swamp_value, " +
         "sizeof(swamp_value), (int)(" + of[1] + ")); })";
}

}  // namespace

std::string with_register_calls(const std::string& preprocessed,
                                bool cplusplus) {
  const Tokens tokens = tokens_of(preprocessed);
  std::string out;
  bool found = false;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string& word = tokens[i].text;
    std::size_t open = i + 1;
    const bool is_asm = word == "asm" || word == "__asm__" || word == "__asm";
    while (is_asm && open < tokens.size() && tokens[open].is_name) ++open;
    const bool whole = is_asm && open + 1 < tokens.size() &&
                       tokens[open].text == "(" &&
                       tokens[open + 1].text[0] == '"';
    const std::string name =
        whole ? instruction_in(tokens[open + 1].text) : std::string();
    const std::size_t close = whole ? matching(tokens, open) : i;
    std::vector<std::string> of;
    if (!name.empty()) of = operands(tokens, open + 2, close);
    out += tokens[i].before;
    if (of.size() == (name.empty() || name[0] == 'g' ? 1u : 2u)) {
      out += call(name, of);
      found = true;
      i = close;
    } else {
      out += word;
    }
  }
  if (!found) return preprocessed;
  const std::string c = cplusplus ? "extern \"C\" " : "";
  std::string head = "# 1 \"<swcc>\"\n";
  for (const char* name : {"putr", "putc"}) {
    head += c + "void swamp_" + name + "(const void*, unsigned long, int);";
  }
  for (const char* name : {"getr", "getc"}) {
    head += c + "void swamp_" + name + "(void*, unsigned long);";
  }
  return head + "\n" + out;
}

}  // namespace swcc
