// Inline assembly of the machine, as C.
#include "toolchain/sunway/swcc/assembly.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
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
// the first operand's value, *1 the operand as what is assigned to, #1 its
// address, and &1 the address that it stands for. ~1 is a vector as an array of
// 8 long, ?1 the type of its elements, and ^1 its size in bytes.
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
    {"dma", 3, "swamp_asm_dma(~1, (void*)$2, (void*)$3);"},
    {"putr", 2, "swamp_putr(#1, sizeof(*#1), (int)$2);"},
    {"putc", 2, "swamp_putc(#1, sizeof(*#1), (int)$2);"},
    {"getr", 1, "swamp_getr(#1, sizeof(*#1));"},
    {"getc", 1, "swamp_getc(#1, sizeof(*#1));"},
    {"vinsw", 4,
     "{ const int swamp_x = (int)$1; __builtin_memmove(~4, ~2, 64);"
     "__builtin_memcpy((char*)~4 + 4 * $3, &swamp_x, 4); }"},
    {"vinsf", 4,
     "{ const ?4 swamp_x = (?4)*#1; __builtin_memmove(~4, ~2, 64);"
     "__builtin_memcpy((char*)~4 + sizeof(?4) * $3, &swamp_x, sizeof(?4)); }"},
    {"vextw", 3,
     "{ int swamp_x; __builtin_memcpy(&swamp_x, (char*)~1 + 4 * $2, 4);"
     "*3 swamp_x; }"},
    {"vextf", 3,
     "{ ?1 swamp_x; __builtin_memcpy(&swamp_x, (char*)~1 + sizeof(?1) * $2,"
     "sizeof(?1)); *3 swamp_x; }"},
    {"vshff", 4,
     "{ ?4 swamp_x[16], swamp_y[16], swamp_r[16] = {0}; const long swamp_m = "
     "$3;"
     "__builtin_memcpy(swamp_x, ~1, 64); __builtin_memcpy(swamp_y, ~2, 64);"
     "swamp_r[0] = swamp_y[swamp_m & 3]; swamp_r[1] = swamp_y[swamp_m >> 2 & "
     "3];"
     "swamp_r[2] = swamp_x[swamp_m >> 4 & 3];"
     "swamp_r[3] = swamp_x[swamp_m >> 6 & 3];"
     "__builtin_memcpy(~4, swamp_r, 4 * sizeof(?4)); }"},
    // The words of a vector that have a value, as a mask.
    {"vmatch", 3,
     "{ unsigned swamp_x[16], swamp_i; long swamp_m = 0; __builtin_memcpy("
     "swamp_x, ~1, 64); for (swamp_i = 0; swamp_i < 16; ++swamp_i) swamp_m |= "
     "(long)(swamp_x[swamp_i] == (unsigned)$2) << swamp_i; *3 swamp_m; }"},
    // These report addresses that are not aligned.
    {"vldd", 2, "swamp_asm_vload(~1, (const void*)&2, ^1);"},
    {"vlds", 2, "swamp_asm_vload(~1, (const void*)&2, ^1);"},
    {"vldw", 2, "swamp_asm_vload(~1, (const void*)&2, ^1);"},
    {"vstd", 2, "swamp_asm_vstore(~1, (void*)&2, ^1);"},
    {"vsts", 2, "swamp_asm_vstore(~1, (void*)&2, ^1);"},
    {"vstw", 2, "swamp_asm_vstore(~1, (void*)&2, ^1);"},
    // The part of 32 bytes at an address before the next multiple of 32, and
    // the part before an address, from the last multiple: or 0 beside it.
    {"vldw_ul", 2,
     "{ const long swamp_a = &2; __builtin_memset(~1, 0, 32); __builtin_memcpy("
     "~1, (void*)swamp_a, 32 - (swamp_a & 31)); }"},
    {"vldw_uh", 2,
     "{ const long swamp_a = &2; __builtin_memset(~1, 0, 32); __builtin_memcpy("
     "(char*)~1 + 32 - (swamp_a & 31), (void*)(swamp_a & -32), swamp_a & 31); "
     "}"},
    {"vstw_ul", 2,
     "{ const long swamp_a = &2; __builtin_memcpy((void*)swamp_a, ~1,"
     "32 - (swamp_a & 31)); }"},
    {"vstw_uh", 2,
     "{ const long swamp_a = &2; __builtin_memcpy((void*)(swamp_a & -32),"
     "(char*)~1 + 32 - (swamp_a & 31), swamp_a & 31); }"},
    // Chooses what performance counters count; they read as 0.
    {"wcsr", 2, "(void)$1;"},
};
// LaneForm is an instruction that computes lane by lane: its last operand
// becomes a function of the lanes x, y and z of those before, which may also be
// numbers. An empty type means the element type of the last operand.
struct LaneForm {
  const char* name;
  const char* type;
  std::size_t operands;
  const char* expression;
};
constexpr LaneForm kLaneForms[] = {
    {"vaddd", "double", 3, "x + y"},
    {"vsubd", "double", 3, "x - y"},
    {"vmuld", "double", 3, "x * y"},
    {"vdivd", "double", 3, "x / y"},
    {"vsqrtd", "double", 2, "__builtin_sqrt(x)"},
    {"vmad", "double", 4, "__builtin_fma(x, y, z)"},
    {"vmsd", "double", 4, "__builtin_fma(x, y, -z)"},
    {"vnmad", "double", 4, "__builtin_fma(-x, y, z)"},
    {"vadds", "float", 3, "x + y"},
    {"vsubs", "float", 3, "x - y"},
    {"vmuls", "float", 3, "x * y"},
    {"vdivs", "float", 3, "x / y"},
    {"vmas", "float", 4, "__builtin_fmaf(x, y, z)"},
    {"vmss", "float", 4, "__builtin_fmaf(x, y, -z)"},
    {"vnmas", "float", 4, "__builtin_fmaf(-x, y, z)"},
    {"vaddw", "unsigned", 3, "x + y"},
    {"vsubw", "unsigned", 3, "x - y"},
    {"vaddl", "unsigned long", 3, "x + y"},
    {"vsubl", "unsigned long", 3, "x - y"},
    {"vsllw", "unsigned", 3, "x << (y & 31)"},
    {"vsrlw", "unsigned", 3, "x >> (y & 31)"},
    {"vsraw", "int", 3, "x >> (y & 31)"},
    {"vandw", "unsigned", 3, "x & y"},
    {"vbisw", "unsigned", 3, "x | y"},
    {"vxorw", "unsigned", 3, "x ^ y"},
    {"vbicw", "unsigned", 3, "x & ~y"},
    // The bits of the number: both, only y, only x, none.
    {"vlog2x1", "unsigned", 3, "x & y"},
    {"vlog2x2", "unsigned", 3, "~x & y"},
    {"vlog2x4", "unsigned", 3, "x & ~y"},
    {"vlog2x6", "unsigned", 3, "x ^ y"},
    {"vlog2x7", "unsigned", 3, "x | y"},
    {"vcpys", "", 3, "__builtin_copysign(y, x)"},
    {"vcpysn", "", 3, "__builtin_copysign(y, -x)"},
    {"vseleq", "", 4, "x == 0 ? y : z"},
    {"vsellt", "", 4, "x < 0 ? y : z"},
    {"vselle", "", 4, "x <= 0 ? y : z"},
};
const LaneForm* lane_form(const Instruction& one) {
  const auto* const found = std::find_if(
      std::begin(kLaneForms), std::end(kLaneForms), [&](const LaneForm& form) {
        return one.name == form.name && one.operands.size() == form.operands;
      });
  return found == std::end(kLaneForms) ? nullptr : found;
}
// The registers of rcsr: numbers of the slave, its cycles, and whether nothing
// has come by row or column, and a message cannot be sent.
const std::map<long, const char*> kNumbers{{0, "tid"},
                                           {1, "rid"},
                                           {2, "cid"},
                                           {3, "cgn"},
                                           {4, "cycle"},
                                           {0x34, "row_empty"},
                                           {0x35, "column_empty"},
                                           {0x36, "put_full"}};
// These work as assembler macros (assembly.h), also alone in an asm.
const std::set<std::string> kMacros{"memb", "wmemb", "nop", "rtc", "rcsr"};

// Writer writes one asm statement in C.
class Writer {
 public:
  Writer(const Assembly& assembly, bool is_cplusplus)
      : of(assembly), cplusplus(is_cplusplus) {}

  // text() returns "" if the statement has an instruction that is not emulated.
  std::string text() {
    find_vectors();
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
    for (const std::string& name : special_) {
      head += "long swamp_register_" + name + "[8] = {" +
              (name == "30" ? "(long)__builtin_frame_address(0)" : "0") + "};";
    }
    return head + "__asm__ __volatile__(\"\" ::: \"memory\");" + body +
           "__asm__ __volatile__(\"\" ::: \"memory\");" + end + "})";
  }

 private:
  static std::string variable(std::size_t i) {
    return "swamp_operand_" + std::to_string(i);
  }
  // register_of() returns the operand in whose register operand i is.
  std::size_t register_of(std::size_t i) const {
    const std::string& constraint = of.operands[i].constraint;
    return is_number(constraint)
               ? static_cast<std::size_t>(std::atoi(constraint.c_str()))
               : i;
  }
  // find_vectors() finds the operands that an instruction uses as vectors:
  // vectors_ has "%" and their numbers.
  void find_vectors() {
    const auto found = [this](const std::string& word) {
      const std::size_t i = index_of(word);
      if (i < of.operands.size()) {
        vectors_.insert("%" + std::to_string(register_of(i)));
      }
    };
    for (const Instruction& one : of.code) {
      if (lane_form(one) != nullptr) {
        std::for_each(one.operands.begin(), one.operands.end(), found);
      }
      for (const Form& form : kForms) {
        if (one.name != form.name || one.operands.size() != form.operands) {
          continue;
        }
        const std::string text = form.text;
        for (std::size_t at = 0; (at = text.find('~', at)) != std::string::npos;
             ++at) {
          found(one.operands[static_cast<std::size_t>(text[at + 1] - '1')]);
        }
      }
    }
  }
  bool is_vector(std::size_t i) const {
    return vectors_.count("%" + std::to_string(register_of(i))) != 0;
  }
  // place() returns operand i as an lvalue: of a vector, its lowest 64 bits.
  std::string place(std::size_t i) const {
    if (register_of(i) != i) return place(register_of(i));
    if (is_vector(i)) return variable(i) + "[0]";
    return of.operands[i].memory() ? "(*" + variable(i) + ")" : variable(i);
  }

  std::string declarations() const {
    std::string all;
    for (std::size_t i = 0; i < of.operands.size(); ++i) {
      const Operand& one = of.operands[i];
      // Memory that no instruction names is there for the compiler only.
      if (one.memory() && named_.count(i) == 0) continue;
      const std::string value = "(" + one.expression + ")";
      if (is_vector(i)) {
        const bool first = register_of(i) == i;
        const std::string array = variable(register_of(i));
        if (first) all += "long " + array + "[8] = {0};";
        if (one.output && one.constraint[0] != '+') continue;
        all += "{ __typeof__(((void)0, " + one.expression +
               ")) swamp_x = " + value + "; __builtin_memcpy(" + array +
               ", &swamp_x, sizeof(swamp_x)); }";
      } else if (is_number(one.constraint)) {
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
      if (one.output && is_vector(i)) {
        all += "__builtin_memcpy((void*)&(" + one.expression + "), " +
               variable(i) + ", sizeof(" + one.expression + "));";
      } else if (one.output && !one.memory()) {
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
    if (word[0] != '$' || !is_number(number) || std::stoi(number) > 63) {
      return "";
    }
    if (number != "30" && number != "31") {
      return "swamp_registers[" + number + "][0]";
    }
    special_.insert(number);
    return "swamp_register_" + number + "[0]";
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

  // array() returns the array that a vector is in, or "".
  std::string array(const std::string& word) {
    const std::string name = object(word);
    const std::size_t bracket = name.rfind("[0]");
    return bracket == std::string::npos ? "" : name.substr(0, bracket);
  }
  // element() returns the type of a vector's elements, which of a register is
  // double.
  std::string element(const std::string& word) {
    const std::size_t i = index_of(word);
    return i < of.operands.size()
               ? "__typeof__((" + of.operands[i].expression + ")[0])"
               : "double";
  }
  std::string size(const std::string& word) {
    const std::size_t i = index_of(word);
    return i < of.operands.size()
               ? "(int)sizeof(" + of.operands[i].expression + ")"
               : "0";
  }

  // statement() returns "" if the instruction is not emulated.
  std::string statement(const Instruction& one) {
    if (one.name == "rcsr" && one.operands.size() == 2) {
      const std::size_t i = index_of(one.operands[1]);
      const bool by_macro = i < of.operands.size();  // a counter
      if (!by_macro && !is_number(one.operands[1])) return "";
      const std::string to = target(one.operands[0]);
      if (to.empty()) return "";
      constexpr long kFirstCounter = 5, kLastCounter = 8;
      const long which = by_macro
                             ? kFirstCounter
                             : std::strtol(one.operands[1].c_str(), nullptr, 0);
      if (which >= kFirstCounter && which <= kLastCounter) return to + "0L;";
      const auto number = kNumbers.find(which);
      return number == kNumbers.end()
                 ? ""
                 : to + "swamp_asm_" + number->second + "();";
    }
    for (const Form& form : kForms) {
      if (one.name != form.name || one.operands.size() != form.operands) {
        continue;
      }
      std::string line;
      for (const char* c = form.text; *c != '\0'; ++c) {
        const bool digit = std::isdigit(static_cast<unsigned char>(c[1])) != 0;
        if (!digit || std::string("$*&@#~?^").find(*c) == std::string::npos) {
          line += *c;
          continue;
        }
        const std::string& word =
            one.operands[static_cast<std::size_t>(c[1] - '1')];
        const std::string part = *c == '$'   ? value(word)
                                 : *c == '*' ? target(word)
                                 : *c == '&' ? address(word)
                                 : *c == '@' ? jump(word)
                                 : *c == '~' ? array(word)
                                 : *c == '?' ? element(word)
                                 : *c == '^' ? size(word)
                                             : pointer(word);
        if (part.empty()) return "";
        line += part;
        ++c;
      }
      return line;
    }
    const LaneForm* form = lane_form(one);
    return form == nullptr ? "" : lanes(one, *form);
  }

  // lanes() writes an instruction that computes lane by lane, of all 64 bytes.
  std::string lanes(const Instruction& one, const LaneForm& form) {
    const std::string& last = one.operands.back();
    const std::string to = array(last);
    const std::string type = *form.type != '\0' ? form.type : element(last);
    if (to.empty() || type.empty()) return "";
    const std::string count = "64 / sizeof(" + type + ")";
    std::string head, lane;
    for (std::size_t i = 0; i + 1 < one.operands.size(); ++i) {
      const std::string name(1, static_cast<char>('x' + i));
      const std::string all = "swamp_" + name;
      const std::string from = array(one.operands[i]);
      if (from.empty()) {
        if (!is_number(one.operands[i])) return "";
        lane += "const " + type + " " + name + " = " + one.operands[i] + ";";
      } else {
        head += type + " " + all + "[" + count + "]; __builtin_memcpy(" + all +
                ", " + from + ", 64);";
        lane += "const " + type + " " + name + " = " + all + "[swamp_i];";
      }
    }
    return "{ " + type + " swamp_r[" + count + "]; unsigned swamp_i;" + head +
           "for (swamp_i = 0; swamp_i < " + count + "; ++swamp_i) {" + lane +
           "swamp_r[swamp_i] = (" + type + ")(" + form.expression +
           "); } __builtin_memcpy(" + to + ", swamp_r, 64); }";
  }

  const Assembly& of;
  std::set<std::string> labels_, targets_, vectors_;
  std::set<std::string> special_;        // registers: the stack pointer and 0
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
  for (const char* name : {"row_empty", "column_empty", "put_full"}) {
    add(std::string("int swamp_asm_") + name + "(void) __asm__(\"swamp_" +
        name + "\")");
  }
  add("unsigned long swamp_asm_cycle(void) __asm__(\"athread_stime_cycle\")");
  add("__thread long swamp_registers[64][8]");
  add("int swamp_asm_syn(int, int) __asm__(\"athread_syn\")");
  add("int swamp_asm_faaw(volatile int*, int) __asm__(\"faaw\")");
  add("long swamp_asm_faal(volatile long*, long) __asm__(\"faal\")");
  add("void swamp_asm_dma(const void*, void*, void*) "
      "__asm__(\"swamp_dma_descriptor\")");
  add("void swamp_asm_vload(long*, const void*, int) "
      "__asm__(\"swamp_vector_load\")");
  add("void swamp_asm_vstore(const long*, void*, int) "
      "__asm__(\"swamp_vector_store\")");
  add("void swamp_putr(const void*, unsigned long, int)");
  add("void swamp_putc(const void*, unsigned long, int)");
  add("void swamp_getr(void*, unsigned long)");
  add("void swamp_getc(void*, unsigned long)");
  return all + "\n";
}

bool only_macros(const Assembly& assembly) {
  return std::all_of(
      assembly.code.begin(), assembly.code.end(), [](const Instruction& one) {
        constexpr long kLastMacro = 4;
        const bool other =
            one.name == "rcsr" && one.operands.size() == 2 &&
            std::strtol(one.operands[1].c_str(), nullptr, 0) > kLastMacro;
        return kMacros.count(one.name) != 0 && !other;
      });
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
                                       }) ||
                           lane_form(one) != nullptr;
        if (!known && !one.name.empty()) refused.insert(one.name);
      }
    }
    out += word;
  }
  return found ? declarations(cplusplus) + out : preprocessed;
}

}  // namespace swcc
