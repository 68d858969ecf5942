// Addresses in another slave's LDM, `address | slave << 20 | 1L << 45`, become
// calls of swamp_remote_ldm(), with 0 for the bit. Therefore code that still
// has the bit, and the numbers of both shifts, may compute such an address in
// another way.
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "toolchain/sunway/swcc/actions.h"
#include "toolchain/sunway/swcc/tokens.h"

namespace swcc {
namespace {

// Remote rewrites addresses in another slave's LDM.
class Remote {
 public:
  static constexpr unsigned kShift = 45, kSlave = 20;
  static constexpr unsigned long long kBit = 1ULL << kShift;

  explicit Remote(const std::string& text) : tokens_(tokens_of(text)) {}

  // rewrite() returns the rewritten source, which is unchanged if it has no
  // such address, or "" if one cannot be rewritten.
  std::string rewrite() {
    for (std::size_t i = 0; i + 2 < tokens_.size(); ++i) {
      const std::size_t length = bit_at(i);
      if (length == 0) continue;
      const bool declares = i > 2 && tokens_[i - 1].text == "=" &&
                            tokens_[i - 2].is_name && is(i + length, ", ;") &&
                            (tokens_[i - 3].is_name || is(i - 3, ","));
      const std::size_t end = declares ? end_of_uses(i) : 0;
      if (declares && end == 0) {  // has_remote_bit() finds uses as the bit
        if (tokens_[i].is_name) return "";
        i += length - 1;
        continue;
      }
      tokens_[i].text = "0";
      for (std::size_t n = 1; n < length; ++n) tokens_[i + n].text = " ";
      if (declares) {
        names_[tokens_[i - 2].text] = end;
      } else if (!replace(i, i + length)) {
        return "";
      }
    }
    std::string out;
    for (const Token& token : tokens_) out += token.before + token.text;
    return out;
  }
  // has_shifts() returns whether the program has the number 45, and 20 as a
  // shift or as the value of a name.
  bool has_shifts() const {
    bool bit = false, slave = false;
    for (std::size_t i = 1; i < tokens_.size(); ++i) {
      if (tokens_[i].foreign) continue;
      std::size_t before = i - 1;
      while (before > 0 && tokens_[before].text == "(") --before;
      bit = bit || number(i) == kShift;
      slave = slave || number(i) == 1ULL << kSlave ||
              (number(i) == kSlave && is(before, "<< ="));
    }
    return bit && slave;
  }

 private:
  // bit_at() returns the number of tokens if the bit of such addresses begins
  // here: 1L << 45, or a variable with this value.
  std::size_t bit_at(std::size_t i) const {
    if (tokens_[i].foreign) return 0;
    const auto name = names_.find(tokens_[i].text);
    if (number(i) == kBit || (name != names_.end() && i < name->second)) {
      return 1;
    }
    return shifted(number(i), i + 1) == kBit ? 3 : 0;
  }
  // number() returns the value of an integer, or 0.
  unsigned long long number(std::size_t i) const {
    const std::string& text = tokens_[i].text;
    if (text.empty() || text[0] < '0' || text[0] > '9') return 0;
    char* end = nullptr;
    const unsigned long long value = std::strtoull(text.c_str(), &end, 0);
    return std::string(end).find_first_not_of("uUlL") == std::string::npos
               ? value
               : 0;
  }
  // shifted() returns the value after the `<<` at i and the number behind it,
  // or 0.
  unsigned long long shifted(unsigned long long value, std::size_t i) const {
    if (tokens_[i].text != "<<") return 0;
    const unsigned long long by = number(i + 1);
    return by < 64 ? value << by : 0;
  }
  // end_of_uses() returns where the uses of the variable with the value at i
  // end, or 0 if that is not known: a use that this does not find would get
  // another value.
  std::size_t end_of_uses(std::size_t i) const {
    const std::size_t name = i - 2;
    std::size_t first = name;  // of the names that the declaration begins with
    if (tokens_[name - 1].text == ",") {
      while (first > 0 && !is(first - 1, "; { } : ( [")) {
        --first;
        if (is(first, ") ]")) first = opening(tokens_, first);
      }
    } else {
      while (first > 0 && is_type(first - 1)) --first;
    }
    if (!tokens_[first].is_name || !is_type(first + 1) ||
        is(first, kStatements) ||
        (first > 0 && !is(first - 1, "; { } ) ] :"))) {
      return 0;
    }
    bool is_internal = false;
    for (std::size_t at = first; is_type(at); ++at) {
      if (is(at, "extern inline")) return 0;
      is_internal = is_internal || is(at, "static constexpr");
    }
    for (std::size_t at = first; at > 0;) {
      --at;
      const std::string& text = tokens_[at].text;
      if (text == ")" || text == "]" || text == "}") {
        at = opening(tokens_, at);
        continue;
      }
      if (text == "(" || text == "[") return 0;
      if (text != "{") continue;
      if (at > 0 && tokens_[at - 1].text[0] == '"') continue;  // extern "C"
      return is_in_function(at) ? matching(tokens_, at) : 0;
    }
    for (std::size_t at = 0; at < name; ++at) {
      if (!tokens_[at].foreign && tokens_[at].text == tokens_[name].text) {
        return 0;
      }
    }
    return is_internal ? tokens_.size() : 0;
  }
  // is_type() returns whether the token can be of a type: std::size_t has two
  // colons.
  bool is_type(std::size_t i) const {
    return tokens_[i].is_name ||
           (tokens_[i].text == ":" && i > 1 &&
            (tokens_[i - 1].text == ":" || tokens_[i + 1].text == ":"));
  }
  // is_in_function() returns whether the { at `open` begins a block with
  // statements.
  bool is_in_function(std::size_t open) const {
    if (open == 0) return false;
    if (tokens_[open - 1].text != ")") {
      return is(open - 1, "; { } ( : else do try const noexcept override");
    }
    const std::size_t before = opening(tokens_, open - 1);
    return before > 0 && !is(before - 1, "__attribute__ alignas decltype");
  }
  bool is(std::size_t i, const char* words) const {
    const std::string& text = tokens_[i].text;
    return text.empty() ||
           (" " + std::string(words) + " ").find(" " + text + " ") !=
               std::string::npos;
  }
  // split() adds the begins and ends of the operands of `|` in [begin, end),
  // also of those in parentheses.
  void split(std::size_t begin, std::size_t end,
             std::vector<std::pair<std::size_t, std::size_t>>& operands) const {
    std::size_t first = begin;
    bool any = false;
    for (std::size_t i = begin; i <= end; ++i) {
      if (i < end && is(i, "( [ {")) i = matching(tokens_, i);
      if (i < end && tokens_[i].text != "|") continue;
      any = any || i < end;
      if (any && tokens_[first].text == "(" &&
          matching(tokens_, first) + 1 == i) {
        split(first + 1, i - 1, operands);
      } else {
        operands.emplace_back(first, i);
      }
      first = i + 1;
    }
  }
  bool replace(std::size_t begin, std::size_t end) {
    std::vector<std::pair<std::size_t, std::size_t>> operands;
    std::size_t first = 0, last = 0;
    for (;;) {
      while (!is(begin - 1, "( [ { , ; = ? : && || return")) {
        --begin;
        if (is(begin, ") ] }")) begin = opening(tokens_, begin);
      }
      while (!is(end, ") ] } , ; ? : && ||")) {
        if (is(end, "( [ {")) end = matching(tokens_, end);
        ++end;
      }
      std::vector<std::pair<std::size_t, std::size_t>> found;
      split(begin, end, found);
      if (found.size() > 1) {
        operands = found;
        first = begin;
        last = end;
      } else if (!operands.empty()) {
        break;
      }
      if (tokens_[begin - 1].text != "(" || tokens_[end].text != ")") break;
      --begin;
      ++end;
    }
    if (operands.size() != 3) return false;
    // The lines stay as they are.
    std::string call = "swamp_remote_ldm(";
    std::size_t operand = 0;
    for (std::size_t i = first; i < last; ++i) {
      if (i != first) call += tokens_[i].before;
      if (operand == 3 || i < operands[operand].first) continue;
      if (i == operands[operand].first) call += "(unsigned long)(";
      call += tokens_[i].text;
      if (i + 1 == operands[operand].second) {
        call += ++operand < 3 ? ")," : ")";
      }
    }
    tokens_[first].text = call + ")";
    for (std::size_t i = first + 1; i < last; ++i) tokens_[i] = {};
    return true;
  }

  // Statements that begin with two names as declarations do.
  static constexpr const char* kStatements =
      "else do if return throw co_return co_yield co_await new delete sizeof "
      "not compl __real__ __imag__ __extension__";

  std::vector<Token> tokens_;
  // Variables with the bit, and where their block ends.
  std::map<std::string, std::size_t> names_;
};

}  // namespace

bool has_remote_bit(const std::string& preprocessed,
                    const std::string& assembly) {
  constexpr unsigned kSlaves = 26;  // the bits below are those of slave << 20
  for (const std::string before : {"$", ".quad\t"}) {
    for (std::size_t at = 0;
         (at = assembly.find(before, at)) != std::string::npos;) {
      at += before.size();
      const unsigned long long value =
          std::strtoull(assembly.c_str() + at, nullptr, 10);
      const bool sets = at >= 6 && assembly.compare(at - 6, 5, "btsq\t") == 0;
      if (sets ? value == Remote::kShift
               : value >> kSlaves == Remote::kBit >> kSlaves) {
        // Other numbers, as descriptors of DMA, have this bit, too.
        return Remote(preprocessed).has_shifts();
      }
    }
  }
  return false;
}

std::string with_remote_ldm(const std::string& preprocessed) {
  return Remote(preprocessed).rewrite();
}

}  // namespace swcc
