// Addresses in another slave's LDM, `address | slave << 20 | 1L << 45`, become
// calls of swamp_remote_ldm(), with 0 for the bit. Therefore code that still
// has the bit computes such an address in another way.
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
  static constexpr unsigned kShift = 45;
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
      tokens_[i].text = "0";
      for (std::size_t n = 1; n < length; ++n) tokens_[i + n].text = " ";
      if (declares) {
        names_[tokens_[i - 2].text] = end_of_block(i);
      } else if (!replace(i, i + length)) {
        return "";
      }
    }
    std::string out;
    for (const Token& token : tokens_) out += token.before + token.text;
    return out;
  }
  // has_shift() returns whether the program has the number 45.
  bool has_shift() const {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (!tokens_[i].foreign && number(i) == kShift) return true;
    }
    return false;
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
  std::size_t end_of_block(std::size_t i) const {
    while (i > 0) {
      --i;
      if (tokens_[i].text == "{") return matching(tokens_, i);
      if (tokens_[i].text == "}") i = opening(tokens_, i);
    }
    return tokens_.size();
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

  std::vector<Token> tokens_;
  // Variables with the bit, and where their block ends.
  std::map<std::string, std::size_t> names_;
};

}  // namespace

bool has_remote_bit(const std::string& preprocessed,
                    const std::string& assembly) {
  constexpr unsigned kSlaves = 26;  // the bits below are those of slave << 20
  for (std::size_t at = 0;
       (at = assembly.find('$', at)) != std::string::npos;) {
    ++at;
    const unsigned long long value =
        std::strtoull(assembly.c_str() + at, nullptr, 10);
    const bool sets = at >= 6 && assembly.compare(at - 6, 5, "btsq\t") == 0;
    if (sets ? value == Remote::kShift
             : value >> kSlaves == Remote::kBit >> kSlaves) {
      // Descriptors of DMA have this bit, too.
      return Remote(preprocessed).has_shift();
    }
  }
  return false;
}

std::string with_remote_ldm(const std::string& preprocessed) {
  return Remote(preprocessed).rewrite();
}

}  // namespace swcc
