// Inline assembly of the machine, as C.
#include "toolchain/sunway/swcc/assembly.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "toolchain/sunway/swcc/actions.h"
#include "toolchain/sunway/swcc/tokens.h"

namespace swcc {
namespace {

using Tokens = std::vector<Token>;

bool is_number(const std::string& text) {
  char* end = nullptr;
  (void)std::strtol(text.c_str(), &end, 0);
  return !text.empty() && *end == '\0';
}

// Form is how an instruction of the machine is written in C. In its text, $1 is
// the first operand's value, *1 the operand as what is assigned to, and &1 the
// address that it stands for.
struct Form {
  const char* name;
  std::size_t operands;
  const char* text;
};
constexpr Form kForms[] = {
    {"memb", 0, "__sync_synchronize();"},
    {"wmemb", 0, "__sync_synchronize();"},
    {"nop", 0, ";"},
    {"rtc", 1, "*1 swamp_asm_cycle();"},
    {"sync", 1, "swamp_asm_syn(1, (int)$1);"},
    {"synr", 1, "swamp_asm_syn(0, (int)$1);"},
    {"ldi", 2, "*1 &2;"},
    {"mov", 2, "*2 $1;"},
    {"ldw", 2, "*1 *(volatile int*)&2;"},
    {"ldl", 2, "*1 *(volatile long*)&2;"},
    {"stw", 2, "*(volatile int*)&2 = (int)$1;"},
    {"stl", 2, "*(volatile long*)&2 = $1;"},
    {"faaw", 2, "*1 swamp_asm_faaw((volatile int*)&2, 1);"},
    {"faal", 2, "*1 swamp_asm_faal((volatile long*)&2, 1);"},
    {"ctpop", 2, "*2 __builtin_popcountl($1);"},
    {"ctlz", 2, "*2 ($1 == 0 ? 64 : __builtin_clzl($1));"},
    {"cttz", 2, "*2 ($1 == 0 ? 64 : __builtin_ctzl($1));"},
    {"addw", 3, "*3 (int)($1 + $2);"},
    {"subw", 3, "*3 (int)($1 - $2);"},
    {"addl", 3, "*3 $1 + $2;"},
    {"subl", 3, "*3 $1 - $2;"},
    {"s4addl", 3, "*3 $1 * 4 + $2;"},
    {"s8addl", 3, "*3 $1 * 8 + $2;"},
    {"mull", 3, "*3 $1 * $2;"},
    {"and", 3, "*3 $1 & $2;"},
    {"bis", 3, "*3 $1 | $2;"},
    {"xor", 3, "*3 $1 ^ $2;"},
    {"sll", 3, "*3 (long)((unsigned long)$1 << ($2 & 63));"},
    {"srl", 3, "*3 (long)((unsigned long)$1 >> ($2 & 63));"},
    {"sra", 3, "*3 $1 >> ($2 & 63);"},
    {"br", 1, "goto @1;"},
    {"beq", 2, "if ($1 == 0) goto @2;"},
    {"bne", 2, "if ($1 != 0) goto @2;"},
    {"blt", 2, "if ($1 < 0) goto @2;"},
    {"ble", 2, "if ($1 <= 0) goto @2;"},
    {"bgt", 2, "if ($1 > 0) goto @2;"},
    {"bge", 2, "if ($1 >= 0) goto @2;"},
    // The first statement refuses descriptors that are not a dma_desc.
    {"dma", 3,
     "(void)(0 ? *#1 : (_Complex unsigned __int128)0);"
     "swamp_asm_dma(#1, (void*)$2, (void*)$3);"},
    {"putr", 2, "swamp_putr(#1, sizeof(*#1), (int)$2);"},
    {"putc", 2, "swamp_putc(#1, sizeof(*#1), (int)$2);"},
    {"getr", 1, "swamp_getr(#1, sizeof(*#1));"},
    {"getc", 1, "swamp_getc(#1, sizeof(*#1));"},
};
constexpr std::array<const char*, 5> kNumbers{"tid", "rid", "cid", "cgn",
                                              "cycle"};  // of rcsr
// These work as assembler macros (assembly.h), also alone in an asm.
const std::set<std::string> kMacros{"memb", "wmemb", "nop", "rtc", "rcsr"};

// Writer writes one asm statement in C.
class Writer {
 public:
  Writer(const Assembly& assembly, bool is_cplusplus)
      : of(assembly), cplusplus(is_cplusplus) {}

  // text() returns "" if the statement has an instruction that is not emulated.
  std::string text() {
    std::string body;
    for (const Instruction& one : of.code) {
      if (!one.label.empty()) {
        if (!is_number(one.label) || !labels_.insert(one.label).second) {
          return "";
        }
        body += "swamp_label_" + one.label + ": __attribute__((unused));";
      }
      const std::string line = one.name.empty() ? ";" : statement(one);
      if (line.empty()) return "";
      body += line;
    }
    for (const std::string& target : targets_) {
      if (labels_.count(target) == 0) return "";
    }
    const std::string end = results();
    std::string head = "__extension__ ({ ";
    for (const std::string& label : labels_) {
      head += "__label__ swamp_label_" + label + ";";
    }
    head += declarations();
    for (const std::string& name : registers_) {
      head += "long swamp_register_" + name + " = " +
              (name == "30" ? "(long)__builtin_frame_address(0)" : "0") + ";";
    }
    return head + "__asm__ __volatile__(\"\" ::: \"memory\");" + body +
           "__asm__ __volatile__(\"\" ::: \"memory\");" + end + "})";
  }

 private:
  static std::string variable(std::size_t i) {
    return "swamp_operand_" + std::to_string(i);
  }
  // place() returns operand i as an lvalue.
  std::string place(std::size_t i) const {
    const std::string& constraint = of.operands[i].constraint;
    if (is_number(constraint)) {  // the same register as an output
      return variable(static_cast<std::size_t>(std::atoi(constraint.c_str())));
    }
    return of.operands[i].memory() ? "(*" + variable(i) + ")" : variable(i);
  }

  std::string declarations() const {
    std::string all;
    for (std::size_t i = 0; i < of.operands.size(); ++i) {
      const Operand& one = of.operands[i];
      // Memory that no instruction names is there for the compiler only.
      if (one.memory() && named_.count(i) == 0) continue;
      const std::string value = "(" + one.expression + ")";
      if (is_number(one.constraint)) {
        all += place(i) + " = " + value + ";";
      } else if (one.memory()) {
        all += "__typeof__" + value + "* " + variable(i) + " = &" + value + ";";
      } else if (one.output) {
        all += "__typeof__" + value + " " + variable(i) +
               (one.constraint[0] == '+' ? " = " + value : "") + ";";
      } else {
        // The comma makes a pointer of an array.
        const bool narrow = !cplusplus && whole_.count(i) == 0;
        const std::string name = variable(i) + (narrow ? "_whole" : "");
        all += "__typeof__(((void)0, " + one.expression + ")) " + name + " = " +
               value + ";";
        if (narrow) all += narrowed(i, name);
      }
    }
    return all;
  }
  // narrowed() declares operand i as the first element of a vector:
  // sync_array() of many programs has a vector variable for a number.
  static std::string narrowed(std::size_t i, const std::string& whole) {
    const std::string choose =
        "__builtin_choose_expr(sizeof(" + whole + ") > sizeof(long), ";
    return "__typeof__(" + choose + "0L, " + whole + ")) " + variable(i) +
           " = " + choose + "*(long*)(void*)&" + whole + ", " + whole + ");";
  }
  std::string results() const {
    std::string all;
    for (std::size_t i = 0; i < of.operands.size(); ++i) {
      const Operand& one = of.operands[i];
      if (one.output && !one.memory()) {
        all += "(" + one.expression + ") = " + variable(i) + ";";
      }
    }
    return all;
  }

  // index_of() returns the number of the operand that %0 or %[name] is, or the
  // number of operands if it is none.
  std::size_t index_of(const std::string& word) {
    if (word.size() > 1 && word[0] == '%') {
      for (std::size_t i = 0; i < of.operands.size(); ++i) {
        if (word == "%" + std::to_string(i) ||
            (!of.operands[i].name.empty() &&
             word == "%[" + of.operands[i].name + "]")) {
          named_.insert(i);
          return i;
        }
      }
    }
    return of.operands.size();
  }

  // object() returns the lvalue that a word stands for, or "".
  std::string object(const std::string& word) {
    const std::size_t i = index_of(word);
    if (i < of.operands.size()) return place(i);
    const std::string number =
        word.substr(std::min<std::size_t>(1, word.size()));
    if (word[0] != '$' || !is_number(number) || std::stoi(number) > 30) {
      return "";  // from $32 on they are vectors
    }
    registers_.insert(number);
    return "swamp_register_" + number;
  }
  std::string value(const std::string& word) {
    if (word == "$31") return "0L";
    if (is_number(word)) return "((long)" + word + ")";
    const std::string name = object(word);
    return name.empty() ? "" : "((long)" + name + ")";
  }
  std::string target(const std::string& word) {  // "x = (type)"
    if (word == "$31") return "(void)";
    const std::string name = object(word);
    return name.empty() ? "" : name + " = (__typeof__(" + name + "))";
  }
  // address() returns what 8(%1), a number or an operand in memory stands for.
  std::string address(const std::string& word) {
    const std::size_t open = word.find('(');
    if (open == std::string::npos) {
      const std::size_t i = index_of(word);
      if (i < of.operands.size() && of.operands[i].memory()) {
        return "((long)" + variable(i) + ")";
      }
      return is_number(word) ? value(word) : "";
    }
    const std::string offset = trimmed(word.substr(0, open));
    const std::string base =
        value(trimmed(word.substr(open + 1, word.find(')') - open - 1)));
    if (base.empty() || (!offset.empty() && !is_number(offset))) return "";
    return "(" + base + " + " + (offset.empty() ? "0" : offset) + ")";
  }
  // jump() returns the label that 1b or 1f names.
  std::string jump(const std::string& word) {
    if (word.size() < 2 || !is_number(word.substr(0, word.size() - 1))) {
      return "";
    }
    const std::string label = word.substr(0, word.size() - 1);
    targets_.insert(label);
    return "swamp_label_" + label;
  }
  std::string pointer(const std::string& word) {
    whole_.insert(index_of(word));
    const std::string name = object(word);
    return name.empty() ? "" : "(&" + name + ")";
  }

  // statement() returns "" if the instruction is not emulated.
  std::string statement(const Instruction& one) {
    if (one.name == "rcsr" && one.operands.size() == 2) {
      const int which = std::atoi(one.operands[1].c_str());
      const std::string to = target(one.operands[0]);
      if (!is_number(one.operands[1]) || to.empty() || which < 0 ||
          which >= static_cast<int>(kNumbers.size())) {
        return "";
      }
      return to + "swamp_asm_" + kNumbers[static_cast<std::size_t>(which)] +
             "();";
    }
    for (const Form& form : kForms) {
      if (one.name != form.name || one.operands.size() != form.operands) {
        continue;
      }
      std::string line;
      for (const char* c = form.text; *c != '\0'; ++c) {
        const bool digit = std::isdigit(static_cast<unsigned char>(c[1])) != 0;
        if (!digit || std::string("$*&@#").find(*c) == std::string::npos) {
          line += *c;
          continue;
        }
        const std::string& word =
            one.operands[static_cast<std::size_t>(c[1] - '1')];
        const std::string part = *c == '$'   ? value(word)
                                 : *c == '*' ? target(word)
                                 : *c == '&' ? address(word)
                                 : *c == '@' ? jump(word)
                                             : pointer(word);
        if (part.empty()) return "";
        line += part;
        ++c;
      }
      return line;
    }
    return "";
  }

  const Assembly& of;
  std::set<std::string> labels_, targets_, registers_;
  std::set<std::size_t> named_, whole_;  // operands in instructions
  const bool cplusplus;
};

// The functions that statements call, under names of their own: the program may
// not have included their headers.
std::string declarations(bool cplusplus) {
  std::string all = "# 1 \"<swcc>\"\n";
  const std::string c = cplusplus ? "extern \"C\" " : "extern ";
  const auto add = [&](const std::string& function) {
    all += c + function + ";";
  };
  for (const char* name : {"tid", "rid", "cid", "cgn"}) {
    add(std::string("int swamp_asm_") + name + "(void) __asm__(\"athread_get_" +
        name + "\")");
  }
  add("unsigned long swamp_asm_cycle(void) __asm__(\"athread_stime_cycle\")");
  add("int swamp_asm_syn(int, int) __asm__(\"athread_syn\")");
  add("int swamp_asm_faaw(volatile int*, int) __asm__(\"faaw\")");
  add("long swamp_asm_faal(volatile long*, long) __asm__(\"faal\")");
  add("void swamp_asm_dma(const void*, void*, void*) "
      "__asm__(\"swamp_dma_descriptor\")");
  add("void swamp_putr(const void*, unsigned long, int)");
  add("void swamp_putc(const void*, unsigned long, int)");
  add("void swamp_getr(void*, unsigned long)");
  add("void swamp_getc(void*, unsigned long)");
  return all + "\n";
}

bool only_macros(const Assembly& assembly) {
  return std::all_of(
      assembly.code.begin(), assembly.code.end(),
      [](const Instruction& one) { return kMacros.count(one.name) != 0; });
}

}  // namespace

std::string with_assembly_calls(const std::string& preprocessed, bool cplusplus,
                                std::set<std::string>& refused) {
  const Tokens tokens = tokens_of(preprocessed);
  std::string out;
  bool found = false;
  int depth = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string& word = tokens[i].text;
    if (word == "{") ++depth;
    if (word == "}") --depth;
    std::size_t open = i + 1;
    const bool is_asm = word == "asm" || word == "__asm__" || word == "__asm";
    while (is_asm && open < tokens.size() && tokens[open].is_name) ++open;
    out += tokens[i].before;
    if (is_asm && depth > 0 && !tokens[i].foreign && open + 1 < tokens.size() &&
        tokens[open].text == "(" && tokens[open + 1].text[0] == '"') {
      const std::size_t close = matching(tokens, open);
      const Assembly assembly = read_assembly(tokens, open + 1, close);
      const std::string text =
          only_macros(assembly) ? "" : Writer(assembly, cplusplus).text();
      if (!text.empty()) {
        out += text;
        // The newlines and line markers of the statement remain.
        for (++i; i <= close; ++i) out += tokens[i].before;
        found = true;
        i = close;
        continue;
      }
      for (const Instruction& one : assembly.code) {
        const bool known = kMacros.count(one.name) != 0 ||
                           std::any_of(std::begin(kForms), std::end(kForms),
                                       [&](const Form& form) {
                                         return one.name == form.name;
                                       });
        if (!known && !one.name.empty()) refused.insert(one.name);
      }
    }
    out += word;
  }
  return found ? declarations(cplusplus) + out : preprocessed;
}

}  // namespace swcc
