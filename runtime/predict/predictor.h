// A backend that counts the transfers and products of a launch, and computes
// nothing.
#ifndef SWAMP_RUNTIME_PREDICT_PREDICTOR_H_
#define SWAMP_RUNTIME_PREDICT_PREDICTOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/backend.h"
#include "runtime/predict/cost_model.h"

namespace swamp::runtime {

// CountingBackend runs the tile loop of every slave, one after another on the
// calling thread, with a DMA that transfers nothing and kernels that compute
// nothing. Its machine must have transfer mode copy. One thread at a time.
class CountingBackend final : public Backend {
 public:
  // With `broadcast`, what several slaves of a row get is fetched once and
  // broadcast to the others by RMA.
  explicit CountingBackend(std::size_t core_groups, bool broadcast = false)
      : groups_(core_groups), broadcast_(broadcast) {}

  void run(const Launch& launch) override;

  // Of all launches so far.
  struct Group {
    predict::Traffic traffic;
    std::uint64_t slaves = 0;  // of the launch that used most
    predict::Cycles cycles;
  };
  const std::vector<Group>& groups() const noexcept { return groups_; }
  // A launch ends when its last core group ends.
  const predict::Cycles& cycles() const noexcept { return cycles_; }
  std::uint64_t launches() const noexcept { return launches_; }
  // Launches of more than one slave.
  std::uint64_t spawns() const noexcept { return spawns_; }
  // The largest tile, in bytes of the widest operand: less than the machine's
  // tile_bytes if LDM is small.
  std::size_t tile_bytes() const noexcept { return tile_bytes_; }

 private:
  void record_tiles(const Launch& launch);

  static constexpr int kSlavesOfRow = 8;

  std::vector<Group> groups_;
  bool broadcast_;
  predict::Cycles cycles_;
  std::uint64_t launches_ = 0;
  std::uint64_t spawns_ = 0;
  std::size_t tile_bytes_ = 0;
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_PREDICT_PREDICTOR_H_
