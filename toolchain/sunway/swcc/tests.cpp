// The tests that precede the calls of the checker in the code of slaves, and
// the counts of operations: edits of an assembly file (see fast_path.h). The
// compiler assumes that a call changes rax and the flags.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "toolchain/sunway/emulator/check/fast_path.h"
#include "toolchain/sunway/swcc/actions.h"

namespace swcc {
namespace {

namespace check = swamp::sunway::check;

// flops() returns how many floating-point operations an instruction has.
int flops(const std::string& name, const std::string& operands) {
  const std::string plain = name[0] == 'v' ? name.substr(1) : name;
  if (plain.size() < 5) return 0;
  const std::string type = plain.substr(plain.size() - 2);
  const int wide = operands.find("%ymm") != std::string::npos ? 2 : 1;
  const int lanes = type == "ss" || type == "sd" ? 1
                    : type == "pd"               ? 2 * wide
                    : type == "ps"               ? 4 * wide
                                                 : 0;
  for (const char* operation : {"add", "sub", "mul", "div", "max", "min"}) {
    if (plain == operation + type) return lanes;
  }
  if (plain == "sqrt" + type) return lanes;
  return plain.rfind("fmadd", 0) == 0 || plain.rfind("fmsub", 0) == 0 ||
                 plain.rfind("fnmadd", 0) == 0 || plain.rfind("fnmsub", 0) == 0
             ? 2 * lanes
             : 0;
}

// sets_flags() returns whether an instruction sets all flags of which others
// depend, and does not read them.
bool sets_flags(const std::string& name) {
  if (name.size() < 3) return false;
  const std::string plain = name.substr(0, name.size() - 1);
  const bool sized = std::string("bwlq").find(name.back()) != std::string::npos;
  for (const char* operation : {"cmp", "test", "add", "sub", "and", "xor"}) {
    if (sized && plain == operation) return true;
  }
  return false;
}

// Line is a line of an assembly file: an instruction with its operands, a
// label, or something else.
struct Line {
  std::string text, name, operands;
  bool label = false;
  explicit Line(const std::string& line) : text(line) {
    if (line.size() < 2) return;
    // .LVL1, .LBB1 and the like are for debuggers.
    const bool local = line.rfind(".L", 0) == 0;
    label = line[0] != '\t' && line.back() == ':' &&
            (!local || (line[2] >= '0' && line[2] <= '9'));
    if (line[0] != '\t' || line[1] == '.') return;
    const std::size_t space = line.find_first_of("\t ", 1);
    name = line.substr(1, space - 1);
    if (space != std::string::npos) operands = line.substr(space + 1);
  }
  bool jumps() const { return !name.empty() && name[0] == 'j'; }
  // call() returns the function that is called, without @PLT.
  std::string call() const {
    return name == "call" ? operands.substr(0, operands.find('@')) : "";
  }
};

bool is_access(const std::string& call) {
  return call.rfind("__tsan_read", 0) == 0 ||
         call.rfind("__tsan_write", 0) == 0 ||
         call.rfind("__tsan_volatile_", 0) == 0;
}

// half_accesses() returns how many halves of an access of LDM a call stands
// for: gcc divides vectors into parts of 16 bytes, and the machine accesses 32.
int half_accesses(const std::string& call) {
  return call.substr(call.size() - 2) == "16" ? 1 : 2;
}

// is_without_tests() is for a line `.loc FILE LINE COLUMN`.
bool is_without_tests(const std::string& place) {
  std::istringstream words(place);
  std::string name;
  int file = 0, line = 0, column = 1;
  words >> name >> file >> line >> column;
  return column == 0;
}

class Editor {
 public:
  explicit Editor(const std::string& assembly) {
    struct Access {
      const char* bytes;
      const char* compare;
    };
    constexpr Access kAccesses[] = {{"1", "cmpb"},
                                    {"2", "cmpw"},
                                    {"4", "cmpl"},
                                    {"8", "cmpq"},
                                    {"16", "cmpq"}};
    for (const char* kind : {"read", "write"}) {
      for (const Access& access : kAccesses) {
        const auto flags = [&](std::size_t from) {
          return "\t" + std::string(access.compare) + " $0, " +
                 std::to_string(check::kShadowDistance + from) +
                 "(%rdi)\n\tjne .Lswamp_call@\n";
        };
        tests_[std::string("__tsan_") + kind + access.bytes] =
            "\tmovq %rdi, %rax\n\tsubq %gs:" +
            std::to_string(check::kSlotOffset) +
            ", %rax\n\tcmpq %gs:" + std::to_string(check::kLimitOffset) +
            ", %rax\n\tjae .Lswamp_call@\n" +
            (access.bytes == std::string("16") ? flags(8) : "") + flags(0);
      }
    }
    tests_["__tsan_func_entry"] =
        "\tcmpq %gs:" + std::to_string(check::kLowestOffset) +
        ", %rsp\n\tjb .Lswamp_call@\n";
    std::istringstream lines(assembly);
    std::string line;
    while (std::getline(lines, line)) lines_.emplace_back(line);
    find_detours();
  }

  std::string result() {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const Line& line = lines_[i];
      if (i == 0 || ends_block(line) || ends_block(lines_[i - 1])) {
        begin_block(i);
      }
      const std::string call = line.call();
      const auto found = tests_.find(call);
      if (found != tests_.end()) {
        out_ += counts();
        out_ += test(found->second, line.text);
      } else if (call != "__tsan_func_exit") {
        if (is_access(call)) out_ += counts();
        if (i == count_at_ && !at_call_) out_ += counts();
        if (line.text.rfind("\t.loc ", 0) == 0) {
          // The view number of a place is defined once.
          place_ = line.text.substr(0, line.text.find(" view")) + "\n";
        }
        if (line.text == "\t.cfi_endproc") {
          out_ += calls_;
          calls_.clear();
        }
        out_ += line.text + "\n";
      }
    }
    return out_;
  }

 private:
  // find_detours() finds the blocks that only report an index out of bounds and
  // jump back: the code that they leave and enter again is one block.
  void find_detours() {
    std::map<std::string, int> jumps, returns;  // by label
    std::string begin;                          // the label of this block
    bool reports = false;
    for (const Line& line : lines_) {
      if (line.label) {
        begin = line.text.substr(0, line.text.size() - 1);
        reports = false;
      }
      if (line.call().rfind("__ubsan_", 0) == 0) {
        reports = true;
        detours_.insert(begin);
      }
      if (line.jumps()) {
        ++jumps[line.operands];
        if (reports && line.name == "jmp") ++returns[line.operands];
      } else if (line.name.empty() && !line.label) {
        // In a table of jumps.
        const std::size_t at = line.text.find(".L");
        if (at != std::string::npos) ++jumps[line.text.substr(at)];
      }
    }
    for (const auto& [label, count] : returns) {
      if (count == jumps[label]) detours_.insert(label);
    }
  }
  // ends_block() is true for labels and jumps, except for those of detours.
  bool ends_block(const Line& line) const {
    if (line.label) {
      return detours_.count(line.text.substr(0, line.text.size() - 1)) == 0;
    }
    return line.jumps() && detours_.count(line.operands) == 0;
  }

  // begin_block() counts the operations up to the next label or jump.
  void begin_block(std::size_t at) {
    block_flops_ = block_accesses_ = 0;
    at_call_ = sets_flags_ = false;
    count_at_ = lines_.size();
    for (std::size_t i = at; i < lines_.size(); ++i) {
      if (i > at && lines_[i].label && ends_block(lines_[i])) break;
      if (lines_[i].text.rfind("\t.loc ", 0) == 0) {
        without_tests_ = is_without_tests(lines_[i].text);
      }
      const int count =
          without_tests_ ? 0 : flops(lines_[i].name, lines_[i].operands);
      if (sets_flags(lines_[i].name) && !sets_flags_) {
        sets_flags_ = true;
        count_at_ = i;
      } else if (count != 0 && count_at_ == lines_.size()) {
        count_at_ = i;
      }
      block_flops_ += count;
      if (is_access(lines_[i].call())) {
        block_accesses_ += half_accesses(lines_[i].call());
        at_call_ = true;
      }
      if (lines_[i].jumps() && ends_block(lines_[i])) break;
    }
  }
  // counts() adds the counts of the block once: at its first call of the
  // checker or before an instruction that sets the flags, where they are free,
  // or else without changing them.
  std::string counts() {
    if (!at_call_ && sets_flags_ && block_flops_ != 0) {
      const std::string n = std::to_string(std::exchange(block_flops_, 0));
      return "\taddl $" + n +
             ", %gs:" + std::to_string(check::kCountsOffset + 4) + "\n";
    }
    const long count = static_cast<long>(block_flops_) << 32 | block_accesses_;
    block_flops_ = block_accesses_ = 0;
    if (count == 0) return "";
    const std::string n = std::to_string(count);
    const std::string at = "%gs:" + std::to_string(check::kCountsOffset);
    if (at_call_) {
      return "\tmovabsq $" + n + ", %rax\n\taddq %rax, " + at + "\n";
    }
    return "\tpushq %rax\n\tpushq %rcx\n\tmovabsq $" + n + ", %rcx\n\tmovq " +
           at + ", %rax\n\tleaq (%rax,%rcx), %rax\n" + "\tmovq %rax, " + at +
           "\n\tpopq %rcx\n\tpopq %rax\n";
  }

  // test() writes a test; the call goes to the end of the function, because it
  // is rare.
  std::string test(std::string text, const std::string& call) {
    const std::string number = std::to_string(label_++);
    for (std::size_t at = 0; (at = text.find('@', at)) != std::string::npos;) {
      text.replace(at, 1, number);
    }
    calls_ += place_ + ".Lswamp_call" + number + ":\n" + call +
              "\n\tjmp .Lswamp_done" + number + "\n";
    return text + ".Lswamp_done" + number + ":\n";
  }

  std::map<std::string, std::string> tests_;  // by call; @ is the label
  std::vector<Line> lines_;
  std::set<std::string> detours_;  // labels of such blocks, and after them
  std::string out_;
  std::string calls_;  // of this function
  std::string place_;  // the last .loc, for the calls out of line
  int label_ = 0;
  int block_flops_ = 0, block_accesses_ = 0;
  bool at_call_ = false;        // the block calls the checker
  bool without_tests_ = false;  // the copy of a loop, see loops.cpp
  bool sets_flags_ = false;     // without reading them, at count_at_
  std::size_t count_at_ = 0;    // where a block without calls is counted
};

}  // namespace

std::string with_tests(const std::string& assembly) {
  return Editor(assembly).result();
}

}  // namespace swcc
