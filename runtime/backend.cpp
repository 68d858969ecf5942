#include "runtime/backend.h"

#include <memory>
#include <new>
#include <string>

#include "swamp/error.h"

namespace swamp::runtime {
namespace {

// All slaves on the calling thread, in order.
class SerialBackend final : public Backend {
 public:
  void run(const Launch& launch) noexcept override {
    run_slaves(launch, 0, launch.slaves, 0);
  }
};

std::unique_ptr<Backend> make_serial_backend(const BackendOptions&) {
  return std::make_unique<SerialBackend>();
}

}  // namespace

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

void make_claims(const Launch& launch, int team) noexcept {
  for (int worker = 0; worker < team; ++worker) {
    Claim& claim = launch.claims[worker];
    claim.next.store(first_slave(launch.slaves, worker, team),
                     std::memory_order_relaxed);
    claim.end = first_slave(launch.slaves, worker + 1, team);
  }
}

void run_claims(const Launch& launch, int worker, int team) noexcept {
  const auto run_rest = [&](int of) {
    if (of < 0 || of >= team) return;
    Claim& claim = launch.claims[of];
    // Reading comes first: an addition would take the line from its owner.
    while (claim.next.load(std::memory_order_relaxed) < claim.end) {
      const int slave = claim.next.fetch_add(1, std::memory_order_relaxed);
      if (slave >= claim.end) break;
      run_slaves(launch, slave, slave + 1, worker);
    }
  };
  run_rest(worker);
  for (int distance = 1; distance < team; ++distance) {
    run_rest(worker + distance);
    run_rest(worker - distance);
  }
}

void LdmArenas::Free::operator()(std::byte* arena) const noexcept {
  ::operator delete[](arena, std::align_val_t{kLdmAlignment});
}

void LdmArenas::reserve(int workers, std::size_t bytes) {
  const auto count = static_cast<std::size_t>(workers);
  if (bytes <= bytes_ && count <= arenas_.size()) return;
  try {
    if (bytes > bytes_) {
      arenas_.clear();
      bytes_ = bytes;
    }
    arenas_.reserve(count);
    while (arenas_.size() < count) {
      arenas_.emplace_back(static_cast<std::byte*>(
          ::operator new[](bytes_, std::align_val_t{kLdmAlignment})));
    }
  } catch (const std::bad_alloc&) {
    throw Error(SWAMP_OUT_OF_MEMORY,
                "cannot allocate the LDM of " + std::to_string(workers) +
                    " workers, " + std::to_string(bytes) + " bytes each");
  }
}

}  // namespace swamp::runtime
