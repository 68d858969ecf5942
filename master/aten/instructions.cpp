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

// Instructions says what the CPU multiplies, and oneDNN may use.
struct Instructions {
  bool bfloat16 = false, bfloat16_tiles = false, float16_tiles = false;
};

// usable() asks the CPU, and the environment of oneDNN: a limit such as
// ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 has no tiles, AVX512_CORE_AMX none of
// float16.
Instructions usable() {
  Instructions found;
#if defined(__x86_64__)
  constexpr unsigned kBfloat16 = 1u << 22, kFloat16 = 1u << 21;
  unsigned a = 0, b = 0, c = 0, d = 0;
  found.bfloat16 = __builtin_cpu_supports("avx512bf16") != 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return found;
  found.bfloat16_tiles = (d & kBfloat16) != 0;
  found.float16_tiles = a >= 1 &&
                        __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 &&
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
    found.float16_tiles = found.float16_tiles && has("AMX_FP16");
    found.bfloat16_tiles = found.bfloat16_tiles && has("AMX");
    found.bfloat16 =
        found.bfloat16 &&
        (has("AVX512_CORE_BF16") || has("FP16") || has("AMX") || has("AVX10"));
    break;
  }
#endif
  return found;
}

const Instructions& instructions() {
  static const Instructions found = usable();
  return found;
}

}  // namespace

bool prefers_tiles(at::ScalarType type) {
  return !is_reproducible() &&
         (type == at::kBFloat16
              ? instructions().bfloat16_tiles
              : type == at::kHalf && instructions().float16_tiles);
}

bool prefers_onednn(at::ScalarType type) {
  return prefers_tiles(type) || (!is_reproducible() && type == at::kBFloat16 &&
                                 instructions().bfloat16);
}

}  // namespace swamp::aten
