/// @file
/// What an operation would cost on SW26010-Pro: DMA transactions, counted, and
/// the time of their transfers, from a model of a measured machine.
#ifndef SWAMP_PREDICT_H_
#define SWAMP_PREDICT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "swamp/export.h"
#include "swamp/machine.h"

namespace swamp {

/// PredictedTraffic is what slaves ask of main memory, counted as the machine's
/// own counters do. A line is 128 bytes.
struct PredictedTraffic {
  std::uint64_t get_requests = 0;       ///< PC3_REQ_DMA_GET
  std::uint64_t get_bytes = 0;          ///< of them
  std::uint64_t get_lines = 0;          ///< lines they read
  std::uint64_t put_requests = 0;       ///< PC2_REQ_DMA_PUT
  std::uint64_t put_bytes = 0;          ///< of them
  std::uint64_t put_whole_lines = 0;    ///< lines they write from end to end
  std::uint64_t put_partial_lines = 0;  ///< lines they write in part
  std::uint64_t direct_loads = 0;       ///< PC2_GLD: past the DMA
  std::uint64_t direct_stores = 0;      ///< PC3_GST: past the DMA
};

/// PredictedGroup is one core group's part.
struct PredictedGroup {
  std::uint32_t slaves = 0;       ///< that had something to do
  PredictedTraffic traffic;       ///< of all its slaves
  double overlapped_seconds = 0;  ///< as in Prediction, of this group alone
  double serial_seconds = 0;      ///< as in Prediction, of this group alone
};

/// Prediction is the sum of all operations that a Predictor has counted. Times
/// are those of transfers: spawn, join and arithmetic come on top, and every
/// core group is taken to work on memory of its own.
struct Prediction {
  std::vector<PredictedGroup> groups;  ///< every core group of the machine
  std::uint64_t operations = 0;        ///< operations launched
  std::uint64_t spawns = 0;            ///< fewer where the master worked alone
  std::size_t tile_bytes = 0;     ///< of the widest array; shrinks to fit LDM
  double overlapped_seconds = 0;  ///< transfers hidden behind each other
  double serial_seconds = 0;      ///< every get waited for before the next
};

/// Predictor is a machine that counts instead of working: operations of
/// swamp/amp.h, swamp/foreach.h and swamp/scan.h that run on it go through the
/// real plan and the real tile loop, and touch no array. So the arrays' data
/// may be any addresses, aligned to their elements; how they lie on 128-byte
/// lines counts. What such an operation returns means nothing. Times are always
/// at SW26010-Pro's measured costs; nothing is measured for SW26010. One thread
/// at a time.
class SWAMP_API Predictor {
 public:
  /// @param config machine (empty: sw26010pro, whatever SWAMP_MACHINE says),
  ///   core_groups, slaves_per_group, ldm_bytes and isa count, as for Machine
  /// @param tile_bytes of the widest array of an operation; 0: the machine's.
  ///   Tiles are whole lines of every array, and shrink to fit LDM twice
  /// @throws Error as the constructor of Machine
  explicit Predictor(const MachineConfig& config = {},
                     std::size_t tile_bytes = 0);
  ~Predictor();
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  /// machine() is to be given to operations; it lives as long as the Predictor.
  Machine& machine() noexcept;

  /// prediction() is what has been counted so far.
  Prediction prediction() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace swamp

#endif  // SWAMP_PREDICT_H_
