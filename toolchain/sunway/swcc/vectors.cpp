// The implicit conversions of vectors, which gcc refuses, are made explicit:
// declarations tell which names are vectors, and their assignments,
// initializers and casts get calls of functions that are added to the source.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "toolchain/sunway/swcc/actions.h"
#include "toolchain/sunway/swcc/tokens.h"

namespace swcc {
namespace {

// Kind is a vector type of <simd.h>.
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

// spelled() returns the name of the type in conversions(), converter() the name
// of the function that converts to it.
std::string spelled(const Kind& kind) {
  return std::string("swcc_") + kind.name;
}

std::string converter(const Kind& to, const std::string& from, bool cplusplus) {
  return spelled(to) + "_of" + (cplusplus ? "" : "_" + from);
}

// conversions() returns C functions that convert between all types that can be
// converted. In C++ they are overloads with one name for each result.
std::string conversions(bool cplusplus) {
  std::string text = "# 1 \"<swcc>\"\n";
  if (cplusplus) text += "extern \"C++\" {";
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
    text += head + name + " " + converter(to, "number", cplusplus) + "(" +
            (real ? "double" : "long") + " x) { " + name +
            " v; int i; for (i = 0; i < " + std::to_string(to.lanes) +
            "; ++i) v[i] = (" + to.element + ")x; return v; }";
    for (const Kind& from : kKinds) {
      const std::string start = head + name + " " +
                                converter(to, from.name, cplusplus) + "(" +
                                spelled(from) + " x) { return ";
      if (from.bytes == to.bytes) {
        text += start + "(" + name + ")x; }";
      } else if (from.lanes == to.lanes) {
        text += start + "__builtin_convertvector(x, " + name + "); }";
      }
    }
  }
  return text + (cplusplus ? "}\n" : "\n");
}

class Rewriter {
 public:
  Rewriter(const std::string& source, bool is_cplusplus)
      : tokens_(tokens_of(source)), cplusplus(is_cplusplus) {
    for (const Kind& kind : kKinds) types_[kind.name] = &kind;
    find_types();
  }
  // result() rewrites one function or declaration after the other.
  std::string result() {
    std::string all;
    std::size_t begin = 0;
    while (begin < tokens_.size()) {
      const std::size_t end = end_of_outermost(begin);
      local_ = {};
      find_variables(begin, end);
      all += rewritten(begin, end);
      const bool function = end > begin && text(end - 1) == "}";
      if (!function) global_.add(local_);
      begin = end;
    }
    return all;
  }
  bool found() const { return found_; }

 private:
  struct Variable {
    const Kind* kind;
    int depth;  // number of stars and dimensions
  };

  // Names holds variables of vector types by name, and in `others` the names
  // that also stand for something else.
  struct Names {
    std::map<std::string, Variable> variables;
    std::set<std::string> others;
    void add(const Names& more) {
      variables.insert(more.variables.begin(), more.variables.end());
      others.insert(more.others.begin(), more.others.end());
    }
    bool has(const std::string& name) const {
      return variables.count(name) != 0 || others.count(name) != 0;
    }
    const Variable* find(const std::string& name) const {
      const auto found = variables.find(name);
      return found == variables.end() || others.count(name) != 0
                 ? nullptr
                 : &found->second;
    }
  };

  const std::string& text(std::size_t i) const { return tokens_[i].text; }

  // end_of_outermost() returns the index after the next function, or after the
  // next semicolon outside of functions.
  std::size_t end_of_outermost(std::size_t at) const {
    while (at + 1 < tokens_.size()) {
      const std::string& word = text(at);
      if (word == ";") return at + 1;
      if (word == "(" || word == "[") {
        at = matching(tokens_, at);
      } else if (word == "{") {
        const bool body = at > 0 && text(at - 1) == ")";
        at = matching(tokens_, at);
        if (body) return at + 1;
      }
      ++at;
    }
    return tokens_.size();
  }

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

  // declarator() reads a declarator that begins at `at`, returns the index
  // after it, and sets the variable's name, or "" if it is not a variable.
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
      if (variable.depth == 0) functions_.insert(*name);
      name->clear();
      return at;
    }
    const auto known = local_.variables.find(*name);
    if (known == local_.variables.end()) {
      local_.variables[*name] = variable;
    } else if (known->second.kind != kind ||
               known->second.depth != variable.depth) {
      local_.others.insert(*name);
    }
    return at;
  }

  void find_variables(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i + 1 < end; ++i) {
      if (tokens_[i].foreign) continue;
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

  // note_others() reads the declarators of a type that is not a vector.
  void note_others(std::size_t at) {
    for (;;) {
      while (text(at) == "*") ++at;
      if (!tokens_[at].is_name) return;
      const std::string& name = text(at++);
      if (text(at) == "(") return;  // a function
      local_.others.insert(name);
      at = end_of_expression(at);
      if (text(at) != ",") return;
      ++at;
    }
  }

  // is_type_like() returns whether this name may be the type in a declaration
  // of the next name.
  bool is_type_like(std::size_t i) const {
    static const std::set<std::string> kNot{
        "return",   "else",   "case",   "goto",     "sizeof",        "do",
        "const",    "static", "extern", "volatile", "_Thread_local", "inline",
        "register", "if",     "while"};
    return kNot.count(text(i)) == 0 && type_at(i) == nullptr &&
           tokens_[i + 1].is_name && type_at(i + 1) == nullptr;
  }

  // end_of_expression() returns the index of the comma, semicolon or closing
  // bracket after the expression.
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

  // end_of_operand() returns the index after the operand of a cast; the operand
  // begins at `at`.
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
    if (cplusplus) {
      return " " + converter(to, "", cplusplus) + "(" + expression + ")";
    }
    std::string chosen = "_Generic((" + expression + ")";
    for (const Kind& from : kKinds) {
      if (from.bytes == to.bytes || from.lanes == to.lanes) {
        chosen +=
            ", " + spelled(from) + ": " + converter(to, from.name, cplusplus);
      }
    }
    return " " + chosen + ", default: " + converter(to, "number", cplusplus) +
           ")(" + expression + ")";
  }

  // list() returns a constant initializer, for file scope, where C does not
  // allow calls.
  std::string list(const Kind& kind, const std::string& expression) {
    found_ = true;
    std::string all = " {";
    for (int i = 0; i < kind.lanes; ++i) all += "(" + expression + "), ";
    return all + "}";
  }

  // assigned() returns the variable which, or an element of which, is on the
  // left of the = at `at`, or nullptr.
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
    if (depth > 0 && text(i) == ")") {  // (p + k)[j]
      i = opening(tokens_, i) + 1;
      if (text(i + 1) != "+" && text(i + 1) != "-") return nullptr;
    }
    const Variable* found =
        (local_.has(text(i)) ? local_ : global_).find(text(i));
    if (found == nullptr) return nullptr;
    const bool star = i > 1 && text(i - 1) == "*" &&
                      (text(i - 2) == ";" || text(i - 2) == "{" ||
                       text(i - 2) == "}" || text(i - 2) == ")");
    return depth + (star ? 1 : 0) == found->depth ? found : nullptr;
  }

  // is_vector() returns whether the expression is one variable, an element of
  // an array, or a call that is a vector.
  bool is_vector(std::size_t begin, std::size_t end) const {
    if (functions_.count(text(begin)) != 0 && text(begin + 1) == "(") {
      return matching(tokens_, begin + 1) + 1 == end;
    }
    const Variable* found =
        (local_.has(text(begin)) ? local_ : global_).find(text(begin));
    if (found == nullptr) return false;
    int depth = 0;
    std::size_t at = begin + 1;
    for (; at < end && text(at) == "["; ++depth) at = matching(tokens_, at) + 1;
    return at == end && depth == found->depth;
  }

  // place_before() returns what the assignment at `at` assigns to, or, in a
  // declaration, a value of its type; "" if it is too complicated.
  std::string place_before(std::size_t at) const {
    std::size_t i = at;
    while (i > 1) {
      --i;
      while (i > 1 && text(i) == "]") i = opening(tokens_, i) - 1;
      if (!tokens_[i].is_name) return "";
      if (text(i - 1) != "." && text(i - 1) != "->") break;
      --i;
    }
    if (i < 2) return "";
    const std::string& last = text(i - 1);
    if (tokens_[i - 1].is_name && last != "else" && last != "do") {
      return "(" + last + ")0";
    }
    if (last == ",") return "";
    if (last == "*") {  // of a pointer, in a statement of its own
      const std::string& before = text(i - 2);
      if (before != ";" && before != "{" && before != "}") return "";
      --i;
    }
    std::string all;
    for (; i < at; ++i) all += text(i);
    return all;
  }

  std::string rewritten(std::size_t begin, std::size_t end) {
    std::string out;
    for (std::size_t i = begin; i < end; ++i) {
      const std::string& word = text(i);
      if (word == "{") ++braces_;
      if (word == "}") --braces_;
      const bool cast = !tokens_[i].foreign && word == "(" && i + 3 < end &&
                        type_at(i + 1) != nullptr && text(i + 2) == ")" &&
                        text(i + 3) != "{" && is_cast_after(i);
      if (cast) {
        const std::size_t stop = end_of_operand(i + 3);
        const Kind& kind = *type_at(i + 1);
        out += tokens_[i].before + converted(kind, rewritten(i + 3, stop));
        i = stop - 1;
        continue;
      }
      out += tokens_[i].before;
      // GCC has no modes for one integer of 256 or 512 bits on x86.
      const bool mode =
          (word == "__mode__" || word == "mode") && text(i + 1) == "(" &&
          (text(i + 2) == "__V1OI__" || text(i + 2) == "__V1XI__");
      if (mode) {
        out += text(i + 2) == "__V1OI__" ? "__vector_size__(32"
                                         : "__vector_size__(64";
        found_ = true;
        i += 2;
        continue;
      }
      out += word;
      const bool compound = word == "+=" || word == "-=" || word == "*=";
      if (tokens_[i].foreign || (word != "=" && !compound) || i + 1 >= end ||
          text(i + 1) == "{") {
        continue;
      }
      const Variable* variable = compound ? nullptr : assigned(i);
      if (variable == nullptr) {
        const std::size_t stop = end_of_expression(i + 1);
        const std::string left = cplusplus ? "" : place_before(i);
        if (left.empty() || !is_vector(i + 1, stop)) continue;
        const std::string value = rewritten(i + 1, stop);
        found_ = true;
        out += " _Generic((" + left + "), double: " + value +
               "[0], float: " + value + "[0], default: " + value + ")";
        i = stop - 1;
        continue;
      }
      const std::size_t stop = end_of_expression(i + 1);
      const std::string value = rewritten(i + 1, stop);
      out += braces_ == 0 ? list(*variable->kind, value)
                          : converted(*variable->kind, value);
      i = stop - 1;
    }
    return out;
  }

  // is_cast_after() distinguishes a cast from a function's parameters and from
  // sizeof.
  bool is_cast_after(std::size_t i) const {
    if (i == 0) return false;
    const Token& last = tokens_[i - 1];
    return last.text == "return" ||
           (!last.is_name && last.text != "]" && last.text != ")");
  }

  std::vector<Token> tokens_;
  const bool cplusplus;
  std::map<std::string, const Kind*> types_;
  std::set<std::string> functions_;  // that return vectors
  Names local_, global_;
  int braces_ = 0;
  bool found_ = false;
};

}  // namespace

std::string with_conversions(const std::string& preprocessed, bool cplusplus) {
  Rewriter rewriter(preprocessed, cplusplus);
  const std::string text = rewriter.result();
  return rewriter.found() ? conversions(cplusplus) + text : preprocessed;
}

}  // namespace swcc
