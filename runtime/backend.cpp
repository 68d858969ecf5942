#include "runtime/backend.h"

namespace swamp::runtime {

BackendRows backend_rows() noexcept {
  static const BackendRow rows[] = {
#ifdef SWAMP_HAS_ATHREAD
      {"athread", &make_athread_backend, "sw26010pro"},
#endif
#ifdef SWAMP_HAS_OPENMP
      {"openmp", &make_openmp_backend},
#endif
      {"threads", &make_threads_backend},
      {"serial", &make_serial_backend},
  };
  return {rows, sizeof rows / sizeof rows[0]};
}

}  // namespace swamp::runtime
