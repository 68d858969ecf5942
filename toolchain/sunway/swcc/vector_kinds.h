#ifndef SWAMP_TOOLCHAIN_SWCC_VECTOR_KINDS_H_
#define SWAMP_TOOLCHAIN_SWCC_VECTOR_KINDS_H_

#include <string>

namespace swcc {

// Kind is a vector type of <simd.h>.
struct Kind {
  const char* name;
  const char* element;
  int lanes;
  int bytes;
};
inline constexpr Kind kKinds[] = {
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

// spelled() is the type's name in conversions(), converter() the function's
// that makes it of another.
std::string spelled(const Kind& kind);
std::string converter(const Kind& to, const std::string& from, bool cplusplus);

// conversions() are functions, from every type to every type that can be. In
// C++ they are overloads of one name for each result.
std::string conversions(bool cplusplus);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_VECTOR_KINDS_H_
