#include <algorithm>

#include "toolchain/sunway/swcc/assembly.h"

namespace swcc {
namespace {

// joined() returns the tokens in one line.
std::string joined(const std::vector<Token>& tokens, std::size_t begin,
                   std::size_t end) {
  std::string all;
  for (std::size_t i = begin; i < end; ++i) {
    all += (tokens[i].before.empty() ? "" : " ") + tokens[i].text;
  }
  return all;
}

// unquoted() returns the text of adjacent string literals, without comments.
std::string unquoted(const std::vector<Token>& tokens, std::size_t begin,
                     std::size_t end) {
  std::string text;
  for (std::size_t i = begin; i < end; ++i) {
    const std::string& literal = tokens[i].text;
    for (std::size_t k = 1; k + 1 < literal.size(); ++k) {
      if (literal[k] != '\\') {
        text += literal[k];
      } else if (literal[++k] == 'n') {
        text += '\n';
      } else {
        text += literal[k] == 't' ? ' ' : literal[k];
      }
    }
  }
  for (std::size_t at = 0; (at = text.find("/*", at)) != std::string::npos;) {
    const std::size_t close = text.find("*/", at);
    text.erase(at, close == std::string::npos ? close : close + 2 - at);
  }
  return text;
}

std::vector<Instruction> instructions_in(std::string text) {
  std::replace(text.begin(), text.end(), '\t', ' ');
  std::replace(text.begin(), text.end(), ';', '\n');
  std::vector<Instruction> all;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    line = trimmed(line.substr(0, line.find('#')));
    begin = end + 1;
    Instruction one;
    const std::size_t colon = line.find(':');
    if (colon != std::string::npos) {
      one.label = trimmed(line.substr(0, colon));
      line = trimmed(line.substr(colon + 1));
    }
    const std::size_t space = std::min(line.find(' '), line.size());
    one.name = line.substr(0, space);
    line = trimmed(line.substr(space));
    while (!line.empty()) {
      const std::size_t comma = std::min(line.find(','), line.size());
      one.operands.push_back(trimmed(line.substr(0, comma)));
      line = comma < line.size() ? line.substr(comma + 1) : "";
    }
    if (!one.name.empty() || !one.label.empty()) all.push_back(one);
  }
  return all;
}

}  // namespace

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

Assembly read_assembly(const std::vector<Token>& tokens, std::size_t begin,
                       std::size_t end) {
  Assembly assembly;
  std::size_t at = begin;
  while (at < end && tokens[at].text[0] == '"') ++at;
  assembly.code = instructions_in(unquoted(tokens, begin, at));
  int colons = 0;
  Operand operand;
  for (; at < end; ++at) {
    const std::string& word = tokens[at].text;
    if (word == ":") {
      ++colons;
    } else if (colons > 2) {
      break;  // what it overwrites
    } else if (word == "[") {
      operand.name = tokens[at + 1].text;
      at = matching(tokens, at);
    } else if (word[0] == '"') {
      operand.constraint = word.substr(1, word.size() - 2);
    } else if (word == "(") {
      const std::size_t close = matching(tokens, at);
      operand.expression = joined(tokens, at + 1, close);
      operand.output = colons == 1;
      assembly.operands.push_back(operand);
      operand = {};
      at = close;
    }
  }
  return assembly;
}

}  // namespace swcc
