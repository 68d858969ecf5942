#include "toolchain/sunway/swcc/vectors.h"

#include <map>
#include <set>
#include <vector>

#include "toolchain/sunway/swcc/tokens.h"

namespace swcc {
namespace {

struct Kind {
  const char* name;
  const char* element;
  int lanes;
  int bytes;
};
constexpr Kind kKinds[] = {
    {"floatv4", "float", 4, 16},
    {"floatv8", "float", 8, 32},
    {"doublev4", "double", 4, 32},
    {"doublev8", "double", 8, 64},
    {"intv8", "int", 8, 32},
    {"intv16", "int", 16, 64},
    {"uintv8", "unsigned", 8, 32},
    {"uintv16", "unsigned", 16, 64},
    {"int256", "long", 4, 32},
    {"int512", "long", 8, 64},
    {"uint256", "unsigned long", 4, 32},
    {"uint512", "unsigned long", 8, 64},
    {"float16v32", "_Float16", 32, 64},
};

std::string spelled(const Kind& kind) {
  return std::string("swcc_") + kind.name;
}
std::string converter(const Kind& to, const std::string& from) {
  return spelled(to) + "_of_" + from;
}

// conversions() are functions, from every type to every type that can be.
std::string conversions() {
  std::string text = "# 1 \"<swcc>\"\n";
  for (const Kind& kind : kKinds) {
    text += std::string("typedef ") + kind.element + " " + spelled(kind) +
            " __attribute__((vector_size(" + std::to_string(kind.bytes) +
            "), may_alias));";
  }
  const std::string head =
      "static inline __attribute__((always_inline, unused)) ";
  for (const Kind& to : kKinds) {
    const std::string name = spelled(to);
    const bool real = std::string("float double _Float16").find(to.element) !=
                      std::string::npos;
    text += head + name + " " + converter(to, "number") + "(" +
            (real ? "double" : "long") + " x) { " + name +
            " v; int i; for (i = 0; i < " + std::to_string(to.lanes) +
            "; ++i) v[i] = (" + to.element + ")x; return v; }";
    for (const Kind& from : kKinds) {
      const std::string start = head + name + " " + converter(to, from.name) +
                                "(" + spelled(from) + " x) { return ";
      if (from.bytes == to.bytes) {
        text += start + "(" + name + ")x; }";
      } else if (from.lanes == to.lanes) {
        text += start + "__builtin_convertvector(x, " + name + "); }";
      }
    }
  }
  return text + "\n";
}

class Rewriter {
 public:
  explicit Rewriter(const std::string& source) : tokens_(tokens_of(source)) {
    for (const Kind& kind : kKinds) types_[kind.name] = &kind;
    find_types();
    find_variables();
  }
  std::string result() { return rewritten(0, tokens_.size()); }
  bool found() const { return found_; }

 private:
  struct Variable {
    const Kind* kind;
    int depth;  // stars and dimensions
  };

  const std::string& text(std::size_t i) const { return tokens_[i].text; }
  const Kind* type_at(std::size_t i) const {
    const auto found = types_.find(text(i));
    return found == types_.end() ? nullptr : found->second;
  }

  void find_types() {
    for (std::size_t i = 0; i + 3 < tokens_.size(); ++i) {
      if (text(i) == "typedef" && type_at(i + 1) != nullptr &&
          text(i + 3) == ";") {
        types_[text(i + 2)] = type_at(i + 1);
      }
    }
  }

  // declarator() reads one from `at` on and returns the place behind it, and
  // the variable's name; none where there is none.
  std::size_t declarator(std::size_t at, const Kind* kind, std::string* name) {
    Variable variable{kind, 0};
    name->clear();
    while (text(at) == "*" || text(at) == "const" || text(at) == "restrict") {
      if (text(at) == "*") ++variable.depth;
      ++at;
    }
    if (!tokens_[at].is_name || type_at(at) != nullptr) return at;
    *name = text(at++);
    while (text(at) == "[") {
      ++variable.depth;
      at = matching(tokens_, at) + 1;
    }
    if (text(at) == "__attribute__" || text(at) == "__attribute") {
      at = matching(tokens_, at + 1) + 1;
    }
    if (text(at) == "(") {  // a function
      name->clear();
      return at;
    }
    const auto known = variables_.find(*name);
    if (known == variables_.end()) {
      variables_[*name] = variable;
    } else if (known->second.kind != kind ||
               known->second.depth != variable.depth) {
      unclear_.insert(*name);
    }
    return at;
  }

  void find_variables() {
    for (std::size_t i = 0; i + 1 < tokens_.size(); ++i) {
      const Kind* kind = type_at(i);
      if (kind != nullptr) {
        std::string name;
        std::size_t at = declarator(i + 1, kind, &name);
        while (!name.empty()) {
          if (text(at) == "=") at = end_of_expression(at + 1);
          if (text(at) != ",") break;
          at = declarator(at + 1, kind, &name);
        }
      } else if (tokens_[i].is_name && is_type_like(i)) {
        note_others(i + 1);
      }
    }
  }

  // note_others() reads the declarators of a type that is no vector.
  void note_others(std::size_t at) {
    for (;;) {
      while (text(at) == "*") ++at;
      if (!tokens_[at].is_name) return;
      const std::string& name = text(at++);
      if (text(at) == "(") return;  // a function
      others_.insert(name);
      at = end_of_expression(at);
      if (text(at) != ",") return;
      ++at;
    }
  }

  // is_type_like() is a name that could begin a declaration of the next one.
  bool is_type_like(std::size_t i) const {
    static const std::set<std::string> kNot{
        "return",   "else",   "case",   "goto",     "sizeof",        "do",
        "const",    "static", "extern", "volatile", "_Thread_local", "inline",
        "register", "if",     "while"};
    return kNot.count(text(i)) == 0 && type_at(i) == nullptr &&
           tokens_[i + 1].is_name && type_at(i + 1) == nullptr;
  }

  // end_of_expression() is the place of the comma, semicolon or closing bracket
  // behind it.
  std::size_t end_of_expression(std::size_t at) const {
    while (at + 1 < tokens_.size()) {
      const std::string& word = text(at);
      if (word == "," || word == ";" || word == ")" || word == "]" ||
          word == "}") {
        return at;
      }
      at = word == "(" || word == "[" || word == "{" ? matching(tokens_, at) + 1
                                                     : at + 1;
    }
    return at;
  }

  // end_of_operand() is the place behind what a cast before `at` applies to.
  std::size_t end_of_operand(std::size_t at) const {
    for (;;) {
      const std::string& word = text(at);
      const bool prefix = word == "-" || word == "+" || word == "!" ||
                          word == "~" || word == "*" || word == "&" ||
                          word == "++" || word == "--";
      if (prefix) {
        ++at;
      } else if (word == "(" &&
                 (type_at(at + 1) != nullptr || is_builtin_type(at + 1))) {
        at = matching(tokens_, at) + 1;  // another cast
      } else {
        break;
      }
    }
    at = text(at) == "(" ? matching(tokens_, at) + 1 : at + 1;
    for (;;) {
      const std::string& word = text(at);
      if (word == "(" || word == "[") {
        at = matching(tokens_, at) + 1;
      } else if (word == "." || word == "->") {
        at += 2;
      } else if (word == "++" || word == "--") {
        ++at;
      } else {
        return at;
      }
    }
  }

  bool is_builtin_type(std::size_t i) const {
    static const std::set<std::string> kTypes{
        "int",      "long",   "float",    "double", "char", "short",
        "unsigned", "signed", "_Float16", "void",   "const"};
    return kTypes.count(text(i)) != 0;
  }

  std::string converted(const Kind& to, const std::string& expression) {
    found_ = true;
    std::string chosen = "_Generic((" + expression + ")";
    for (const Kind& from : kKinds) {
      if (from.bytes == to.bytes || from.lanes == to.lanes) {
        chosen += ", " + spelled(from) + ": " + converter(to, from.name);
      }
    }
    return " " + chosen + ", default: " + converter(to, "number") + ")(" +
           expression + ")";
  }

  // list() is a constant initializer: at file scope nothing is called.
  std::string list(const Kind& kind, const std::string& expression) {
    found_ = true;
    std::string all = " {";
    for (int i = 0; i < kind.lanes; ++i) all += "(" + expression + "), ";
    return all + "}";
  }

  // assigned() is the variable whose element, or which itself, stands before
  // the = at `at`, or nullptr.
  const Variable* assigned(std::size_t at) const {
    int depth = 0;
    std::size_t i = at;
    if (i == 0) return nullptr;
    --i;
    while (i > 0 && text(i) == "]") {
      ++depth;
      i = opening(tokens_, i);
      if (i == 0) return nullptr;
      --i;
    }
    const auto found = variables_.find(text(i));
    if (found == variables_.end() || unclear_.count(text(i)) != 0 ||
        others_.count(text(i)) != 0) {
      return nullptr;
    }
    const bool star = i > 1 && text(i - 1) == "*" &&
                      (text(i - 2) == ";" || text(i - 2) == "{" ||
                       text(i - 2) == "}" || text(i - 2) == ")");
    return depth + (star ? 1 : 0) == found->second.depth ? &found->second
                                                         : nullptr;
  }

  std::string rewritten(std::size_t begin, std::size_t end) {
    std::string out;
    for (std::size_t i = begin; i < end; ++i) {
      const std::string& word = text(i);
      if (word == "{") ++braces_;
      if (word == "}") --braces_;
      const bool cast = word == "(" && i + 3 < end &&
                        type_at(i + 1) != nullptr && text(i + 2) == ")" &&
                        text(i + 3) != "{" && is_cast_after(i);
      if (cast) {
        const std::size_t stop = end_of_operand(i + 3);
        const Kind& kind = *type_at(i + 1);
        out += tokens_[i].before + converted(kind, rewritten(i + 3, stop));
        i = stop - 1;
        continue;
      }
      out += tokens_[i].before + word;
      if (word != "=" || i + 1 >= end || text(i + 1) == "{") continue;
      const Variable* variable = assigned(i);
      if (variable == nullptr) continue;
      const std::size_t stop = end_of_expression(i + 1);
      const std::string value = rewritten(i + 1, stop);
      out += braces_ == 0 ? list(*variable->kind, value)
                          : converted(*variable->kind, value);
      i = stop - 1;
    }
    return out;
  }

  // is_cast_after() tells a cast from a function's parameters and sizeof.
  bool is_cast_after(std::size_t i) const {
    if (i == 0) return false;
    const Token& last = tokens_[i - 1];
    return last.text == "return" ||
           (!last.is_name && last.text != "]" && last.text != ")");
  }

  std::vector<Token> tokens_;
  std::map<std::string, const Kind*> types_;
  std::map<std::string, Variable> variables_;
  std::set<std::string> unclear_, others_;
  int braces_ = 0;
  bool found_ = false;
};

}  // namespace

bool mentions_vectors(const std::string& source) {
  if (source.find("simd") != std::string::npos) return true;
  for (const Kind& kind : kKinds) {
    if (source.find(kind.name) != std::string::npos) return true;
  }
  return false;
}

std::string with_conversions(const std::string& preprocessed) {
  Rewriter rewriter(preprocessed);
  const std::string text = rewriter.result();
  return rewriter.found() ? conversions() + text : preprocessed;
}

}  // namespace swcc
