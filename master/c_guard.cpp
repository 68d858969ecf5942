#include "master/c_guard.h"

#include <cstdio>
#include <string>

#include "master/text.h"

namespace swamp {
namespace {

// Fixed memory, because reporting SWAMP_OUT_OF_MEMORY must not allocate.
thread_local char last_error_text[2048] = "";

}  // namespace

swamp_status fail(swamp_status status, const char* text) noexcept {
  std::snprintf(last_error_text, sizeof last_error_text, "%s", text);
  return status;
}

const char* last_error() noexcept { return last_error_text; }

void require(const void* pointer, const char* name) {
  if (pointer != nullptr) return;
  master::refuse(name, "null", "an address");
}

void require_struct_size(const char* name, std::uint32_t given,
                         std::size_t known) {
  if (given == known) return;
  master::refuse(std::string(name) + ".struct_size", std::to_string(given),
                 std::to_string(known));
}

}  // namespace swamp
