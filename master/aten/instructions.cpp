// The instructions that decide whether PyTorch's products are faster than
// swamp's.
#include <cctype>
#include <cstdlib>
#include <string>

#include "master/aten/overrides.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace swamp::aten {
namespace {

// Tiles says which tiles the CPU multiplies, and oneDNN may use.
struct Tiles {
  bool bfloat16 = false, float16 = false;
};

// usable_tiles() asks the CPU, and the environment of oneDNN: a limit such as
// ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 has no tiles, AVX512_CORE_AMX none of
// float16.
Tiles usable_tiles() {
  Tiles found;
#if defined(__x86_64__)
  constexpr unsigned kBfloat16 = 1u << 22, kFloat16 = 1u << 21;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return found;
  found.bfloat16 = (d & kBfloat16) != 0;
  found.float16 = a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 &&
                  (a & kFloat16) != 0;
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string limit(value);
    for (char& letter : limit) {
      letter =
          static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    }
    // Other values, such as ALL, are no limit.
    if (limit.rfind("SSE", 0) != 0 && limit.rfind("AVX", 0) != 0) break;
    const auto has = [&](const char* part) {
      return limit.find(part) != std::string::npos;
    };
    found.bfloat16 = found.bfloat16 && has("AMX");
    found.float16 = found.float16 && has("AMX_FP16");
    break;
  }
#endif
  return found;
}

}  // namespace

bool has_tiles(at::ScalarType type) {
  static const Tiles tiles = usable_tiles();
  return type == at::kBFloat16 ? tiles.bfloat16
                               : type == at::kHalf && tiles.float16;
}

bool has_instruction(at::ScalarType type) {
#if defined(__x86_64__)
  static const bool has_bfloat16 = __builtin_cpu_supports("avx512bf16") != 0;
  return has_tiles(type) || (type == at::kBFloat16 && has_bfloat16);
#else
  return has_tiles(type);
#endif
}

}  // namespace swamp::aten
