// The serial backend: all slaves on the calling thread, in order.
#include "runtime/backend.h"

namespace swamp::runtime {
namespace {

class SerialBackend final : public Backend {
 public:
  int worker_count() const noexcept override { return 1; }
  void run(int slave_count, WorkerEntry entry,
           void* context) noexcept override {
    entry(context, 0, slave_count, 0);
  }
};

}  // namespace

std::unique_ptr<Backend> make_serial_backend(const BackendOptions&) {
  return std::make_unique<SerialBackend>();
}

}  // namespace swamp::runtime
