// Backend serial: all slaves on the calling thread, in order.
#include "runtime/backend.h"

namespace swamp::runtime {
namespace {

class SerialBackend final : public Backend {
 public:
  void run(const Launch& launch) noexcept override {
    run_slaves(launch, 0, launch.slaves, 0);
  }
};

}  // namespace

std::unique_ptr<Backend> make_serial_backend(const BackendOptions&) {
  return std::make_unique<SerialBackend>();
}

}  // namespace swamp::runtime
