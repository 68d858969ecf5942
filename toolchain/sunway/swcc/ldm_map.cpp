// The map of LDM (swcc -mldm-map): variables from the symbols of slave objects,
// and the stack from the call graphs that gcc wrote when it compiled them.
#include <cxxabi.h>
#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "toolchain/sunway/swcc/actions.h"
#include "toolchain/sunway/swcc/subprocess.h"

namespace swcc {
namespace {

constexpr const char* kMachine[] = {"athread_", "CRTS_", "swamp_", "ldm_",
                                    "mem",      "faal",  "faaw",   "updt_"};
constexpr long kPro = 256 * 1024, kFirst = 64 * 1024;

std::string readable(const std::string& name) {
  if (name.rfind("_Z", 0) != 0) return name;
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = text != nullptr ? text : name;
  std::free(text);
  return result;
}

// Function is a node of the call graph.
struct Function {
  long bytes = -1;  // of its frame; -1: it is in a library
  bool dynamic = false;
  std::set<std::string> calls;
};

// quoted() returns the text after `key: "` in a line, or "".
std::string quoted(const std::string& line, const std::string& key) {
  const std::string begin = key + ": \"";
  const std::size_t at = line.find(begin);
  if (at == std::string::npos) return "";
  const std::size_t from = at + begin.size();
  return line.substr(from, line.find('"', from) - from);
}

class CallGraph {
 public:
  explicit CallGraph(const std::vector<std::string>& graphs) {
    for (const std::string& graph : graphs) read(graph);
  }

  struct Stack {
    long bytes = 0;
    std::set<std::string> unknown;  // why it may be more
  };
  // stack_of() returns the stack of a function and its deepest calls.
  Stack stack_of(const std::string& name) {
    const auto known = known_.find(name);
    if (known != known_.end()) return known->second;
    Stack stack;
    const auto found = functions_.find(name);
    if (name == "__indirect_call") {
      stack.unknown.insert("calls by pointer");
    } else if (found == functions_.end() || found->second.bytes < 0) {
      // Those of the machine need little.
      const bool machine = std::any_of(
          std::begin(kMachine), std::end(kMachine),
          [&](const char* prefix) { return name.rfind(prefix, 0) == 0; });
      if (!machine) stack.unknown.insert(name + "()");
    } else if (!active_.insert(name).second) {
      stack.unknown.insert("recursion of " + readable(name));
      return stack;
    } else {
      const Function& function = found->second;
      if (function.dynamic) stack.unknown.insert("arrays of variable size");
      for (const std::string& call : function.calls) {
        const Stack below = stack_of(call);
        stack.bytes = std::max(stack.bytes, below.bytes);
        stack.unknown.insert(below.unknown.begin(), below.unknown.end());
      }
      constexpr long kReturnAddress = 8;
      stack.bytes += function.bytes + kReturnAddress;
      active_.erase(name);
    }
    known_[name] = stack;
    return stack;
  }

 private:
  void read(const std::string& graph) {
    std::istringstream lines(graph);
    std::string line;
    while (std::getline(lines, line)) {
      if (line.rfind("node: ", 0) == 0) {
        // A label is "name\nplace\n48 bytes (static)".
        const std::string label = quoted(line, "label");
        const std::size_t bytes = label.find(" bytes (");
        if (bytes == std::string::npos) continue;
        Function& function = functions_[quoted(line, "title")];
        const std::size_t begin = label.rfind("\\n", bytes) + 2;
        function.bytes = std::atol(label.c_str() + begin);
        function.dynamic = label.find("dynamic", bytes) != std::string::npos;
      } else if (line.rfind("edge: ", 0) == 0) {
        functions_[quoted(line, "sourcename")].calls.insert(
            quoted(line, "targetname"));
      }
    }
  }

  std::map<std::string, Function> functions_;
  std::map<std::string, Stack> known_;  // of stack_of()
  std::set<std::string> active_;        // the calls that stack_of() is in
};

// static_bytes() returns the size of a program's thread-local variables.
long static_bytes(const std::string& program) {
  const std::string image = read_file(program);
  Elf64_Ehdr header;
  std::memcpy(&header, image.data(), sizeof header);
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, image.data() + header.e_phoff + i * sizeof segment,
                sizeof segment);
    if (segment.p_type == PT_TLS) return static_cast<long>(segment.p_memsz);
  }
  return 0;
}

std::string left(long bytes) {
  return bytes >= 0 ? std::to_string(bytes)
                    : "none (" + std::to_string(-bytes) + " too many)";
}

}  // namespace

void print_ldm_map(const LdmMap& map, const std::string& program) {
  std::vector<LdmVariable> variables = map.variables;
  std::sort(variables.begin(), variables.end(),
            [](const LdmVariable& a, const LdmVariable& b) {
              return a.bytes != b.bytes ? a.bytes > b.bytes : a.name < b.name;
            });
  const long all = static_bytes(program);
  std::printf("ldm: variables, %ld bytes\n", all);
  for (const LdmVariable& variable : variables) {
    std::printf("ldm: %8ld %s (%s)\n", variable.bytes,
                readable(variable.name).c_str(), variable.object.c_str());
  }
  CallGraph graph(map.call_graphs);
  for (const std::string& kernel : map.kernels) {
    const CallGraph::Stack stack = graph.stack_of(kernel);
    std::string more;
    for (const std::string& why : stack.unknown) {
      more += (more.empty() ? " and " : ", ") + why;
    }
    std::printf(
        "ldm: %s: variables %ld, stack %ld%s; left for ldm_malloc: %s of "
        "%ld, on SW26010 %s of %ld\n",
        readable(kernel).c_str(), all, stack.bytes, more.c_str(),
        left(kPro - all - stack.bytes).c_str(), kPro,
        left(kFirst - all - stack.bytes).c_str(), kFirst);
  }
}

}  // namespace swcc
