// Helpers of the C ABI: exceptions to status and text, null checks. Implemented
// in c_api.cpp.
#ifndef SWAMP_MASTER_C_GUARD_H_
#define SWAMP_MASTER_C_GUARD_H_

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>

#include "swamp/error.h"
#include "swamp/machine.h"

struct swamp_machine {
  swamp::Machine machine;
};

namespace swamp {

// Returns the machine for the C++ API; null stays null.
inline Machine* machine_of(swamp_machine* machine) noexcept {
  return machine != nullptr ? &machine->machine : nullptr;
}

// Keeps the text for swamp_last_error() of this thread and returns the status.
swamp_status fail(swamp_status status, const char* text) noexcept;
const char* last_error() noexcept;

// Runs `body` and converts what it throws to a status.
template <class Body>
swamp_status guarded(Body body) noexcept {
  try {
    body();
    return SWAMP_OK;
  } catch (const Error& error) {
    return fail(error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(SWAMP_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return fail(SWAMP_INTERNAL, error.what());
  } catch (...) {
    return fail(SWAMP_INTERNAL, "an unknown exception");
  }
}

// Throw Error unless the argument is valid. `older` is the size of a struct in a
// version before its last fields, 0 if there is none.
void require(const void* pointer, const char* name);
void require_struct_size(const char* name, std::uint32_t given,
                         std::size_t known, std::size_t older = 0);

}  // namespace swamp

#endif  // SWAMP_MASTER_C_GUARD_H_
