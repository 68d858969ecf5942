#include "toolchain/sunway/swcc/vector_kinds.h"

namespace swcc {

std::string spelled(const Kind& kind) {
  return std::string("swcc_") + kind.name;
}
std::string converter(const Kind& to, const std::string& from, bool cplusplus) {
  return spelled(to) + "_of" + (cplusplus ? "" : "_" + from);
}

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

}  // namespace swcc
