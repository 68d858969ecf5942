// The LDM of slaves that are OS threads of the host.
#ifndef SWAMP_RUNTIME_LDM_ARENAS_H_
#define SWAMP_RUNTIME_LDM_ARENAS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/ldm.h"

namespace swamp::runtime {

// LdmArenas owns the arenas of the OS threads of a run. They belong to the
// calling thread, so that they are all there before the first slave writes.
class LdmArenas {
 public:
  // reserve() makes at least `workers` arenas of at least `bytes` each. Throws
  // Error SWAMP_OUT_OF_MEMORY. Allocates nothing when they are there.
  void reserve(int workers, std::size_t bytes);
  // arena() is worker's arena, of exactly `bytes`.
  Ldm arena(int worker, std::size_t bytes) const noexcept {
    return Ldm(arenas_[static_cast<std::size_t>(worker)].get(), bytes);
  }

 private:
  struct Free {
    void operator()(std::byte* arena) const noexcept;
  };
  std::vector<std::unique_ptr<std::byte[], Free>> arenas_;
  std::size_t bytes_ = 0;
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_LDM_ARENAS_H_
