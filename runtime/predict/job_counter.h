#ifndef SWAMP_RUNTIME_PREDICT_JOB_COUNTER_H_
#define SWAMP_RUNTIME_PREDICT_JOB_COUNTER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/predict/cost_model.h"
#include "runtime/spawn.h"

namespace swamp::runtime {

// JobCounter takes the jobs of a machine that only counts: every slave's tile
// loop runs, one slave after another on the calling thread, through a DMA that
// moves nothing and with kernels that do nothing.
class JobCounter {
 public:
  explicit JobCounter(std::size_t core_groups) : groups_(core_groups) {}

  // count() is run_job() for a machine that has this counter. The caller has
  // found that all operations fit into LDM.
  void count(const Machine::Impl& machine, const Job& job, LdmArenas& arenas);

  // Of all jobs so far.
  struct Group {
    predict::Traffic traffic;
    std::uint64_t slaves = 0;  // that worked in any of them, at most
    predict::Cycles cycles;
  };
  const std::vector<Group>& groups() const noexcept { return groups_; }
  // A job ends when its last core group has ended.
  const predict::Cycles& cycles() const noexcept { return cycles_; }
  std::uint64_t jobs() const noexcept { return jobs_; }
  std::uint64_t spawns() const noexcept { return spawns_; }
  // Of the widest operand, the largest there was: less than the machine's where
  // LDM is short.
  std::size_t tile_bytes() const noexcept { return tile_bytes_; }

 private:
  void note_tiles(const Machine::Impl& machine, const Job& job);

  std::vector<Group> groups_;
  predict::Cycles cycles_;
  std::uint64_t jobs_ = 0;
  std::uint64_t spawns_ = 0;
  std::size_t tile_bytes_ = 0;
};

}  // namespace swamp::runtime

#endif  // SWAMP_RUNTIME_PREDICT_JOB_COUNTER_H_
