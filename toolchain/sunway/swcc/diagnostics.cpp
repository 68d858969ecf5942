// What swcc makes of gcc's messages.
#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "toolchain/sunway/swcc/actions.h"
#include "toolchain/sunway/swcc/subprocess.h"
#include "toolchain/sunway/swcc/tokens.h"

namespace swcc {
namespace {

// Message is an error or a warning with all its lines.
struct Message {
  std::string place;  // "file:line", without colours
  std::string file;
  std::string text;
  bool error = false;
};

std::string without_colours(const std::string& line) {
  static const std::regex kColour("\x1b\\[[0-9;]*[mK]");
  return std::regex_replace(line, kColour, "");
}

std::vector<Message> messages_in(const std::string& text) {
  static const std::regex kStart(
      "^([^ :][^:]*):([0-9]+):([0-9]+:)? *(warning|fatal error|error|Error|"
      "Warning): .*");
  static const std::regex kContext(
      "^(In file included from .*|.*: (In|At) .*:|.*Assembler messages:)$");
  std::vector<Message> all;
  std::string context;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin) + "\n";
    begin = end + 1;
    const std::string plain = without_colours(line.substr(0, line.size() - 1));
    std::smatch match;
    if (std::regex_match(plain, match, kStart)) {
      const std::string kind = match[4];
      all.push_back({match[1].str() + ":" + match[2].str(), match[1],
                     context + line, kind.find("rror") != std::string::npos});
      context.clear();
    } else if (std::regex_match(plain, kContext)) {
      context += line;
    } else if (!all.empty() && context.empty()) {
      all.back().text += line;
    } else {
      context += line;  // more of "In file included from"
    }
  }
  return all;
}

}  // namespace

std::string remaining_errors(const std::string& first,
                             const std::string& second) {
  const std::vector<Message> before = messages_in(first);
  std::set<std::string> left, shown;
  const std::vector<Message> after = messages_in(second);
  for (const Message& one : after) {
    if (one.error) left.insert(one.place);
  }
  std::string text;
  for (const Message& one : before) {
    if (!one.error || left.count(one.place) == 0) continue;
    text += one.text;
    shown.insert(one.place);
  }
  for (const Message& one : after) {
    if (one.error && shown.count(one.place) == 0) text += one.text;
  }
  return text.empty() ? second : text;
}

std::string advice(const std::string& source, const std::string& errors) {
  std::set<std::string> files{source};
  for (const Message& one : messages_in(errors)) {
    if (one.error && one.file.rfind("/usr/", 0) != 0) files.insert(one.file);
  }
  static const std::regex kX86(
      "#[ \t]*(?:el)?if[^\n]*\\b(\\w*(?:x86_64|X86_64|amd64|__SSE|__AVX)\\w*)");
  for (const std::string& file : files) {
    std::smatch match;
    const std::string text = file_exists(file) ? read_file(file) : "";
    if (std::regex_search(text, match, kX86)) {
      return file + ": asks for " + match[1].str() +
             ", which is defined here, because the emulated machine runs on "
             "this computer; ask for __sw_host__ or __sw_slave__ first";
    }
  }
  return "";
}

Words headers_for(const std::string& errors) {
  static const std::regex kKeyword(
      "\\b(__(thread_local|ldm)(_fix|_share|_kernel)?|__thread_(kernel|mix)|"
      "__ldm_kernel|__(uncached|atomic|cross)(_cross|_thread)?)\\b");
  static const std::regex kType(
      "\\b(u?int(v8|v16|256|512)|floatv[48]|doublev[48]|float16(v32)?)\\b");
  static const std::regex kStdio("\\b(stdout|stderr|FILE|EOF)\\b");
  Words headers;
  if (std::regex_search(errors, kKeyword)) {
    headers.push_back("swamp_sunway/side.h");
  }
  if (std::regex_search(errors, kType)) {
    headers.push_back("swamp_sunway/simd_types.h");
  }
  if (std::regex_search(errors, kStdio)) headers.push_back("stdio.h");
  return headers;
}

}  // namespace swcc
