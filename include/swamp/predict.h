/// @file
/// What an operation would cost on SW26010-Pro: DMA transactions, counted, the
/// time of their transfers, from a model of a measured machine, and the time of
/// the products of attention, from published peak rates.
#ifndef SWAMP_PREDICT_H_
#define SWAMP_PREDICT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "swamp/export.h"
#include "swamp/machine.h"

namespace swamp {

/// PredictedTraffic is the traffic of slaves with main memory, counted as by
/// the machine's own counters, whose names are given. A line is 128 bytes.
struct PredictedTraffic {
  std::uint64_t get_requests = 0;       ///< PC3_REQ_DMA_GET
  std::uint64_t get_bytes = 0;          ///< read by them
  std::uint64_t get_lines = 0;          ///< lines read by them
  std::uint64_t put_requests = 0;       ///< PC2_REQ_DMA_PUT
  std::uint64_t put_bytes = 0;          ///< written by them
  std::uint64_t put_whole_lines = 0;    ///< lines written completely
  std::uint64_t put_partial_lines = 0;  ///< lines written in part
  std::uint64_t direct_loads = 0;       ///< PC2_GLD: without DMA
  std::uint64_t direct_stores = 0;      ///< PC3_GST: without DMA
  std::uint64_t rma_requests = 0;       ///< broadcasts received, not in gets
  std::uint64_t rma_bytes = 0;          ///< received by them
};

/// PredictedTime is the time of a prediction. Each part is the time of the
/// slowest core group, and within it, except for DMA, of the slowest slave, as
/// if there were no other part.
struct PredictedTime {
  double overlapped_seconds = 0;  ///< DMA, transfers overlap
  double serial_seconds = 0;  ///< DMA, each get is waited for before the next
  double rma_seconds = 0;     ///< broadcasts are received
  double ldm_seconds = 0;     ///< each transferred byte is accessed once
  double arithmetic_seconds = 0;  ///< products of attention; 0 for the others
  /// The largest of them except serial, launch by launch: all overlap.
  double total_seconds = 0;
};

/// PredictedGroup is the part of one core group; its times are of this group
/// alone.
struct PredictedGroup : PredictedTime {
  std::uint32_t slaves = 0;  ///< slaves that had work
  PredictedTraffic traffic;  ///< of all its slaves
};

/// Prediction is the sum of all operations that a Predictor has counted; in its
/// times a launch ends with its last core group. Spawn, join and what the
/// master computes are not included, and every core group is assumed to work on
/// its own memory. The assumptions of the model are listed in
/// toolchain/sunway/README.md.
struct Prediction : PredictedTime {
  std::vector<PredictedGroup> groups;  ///< every core group of the machine
  std::uint64_t operations = 0;        ///< operations launched
  std::uint64_t spawns = 0;    ///< without those the master computes alone
  std::size_t tile_bytes = 0;  ///< of the widest array, reduced to fit LDM
};

/// Predictor has a machine that counts transfers and computes nothing.
/// Operations on it use the real partition and the real tile loop, but access
/// no array of tensors, matrices or heads. So their data may be any addresses
/// that are aligned to their elements; the position of an array within 128-byte
/// lines affects the counts. Arrays that the master reads or writes must exist:
/// targets, losses and lse of cross entropy, lse of attention, token_of, probs,
/// the gradients of weight and bias, and the mean and rstd of rows that are
/// visited in parts. The results of such an operation are meaningless. Times
/// are always those measured for SW26010-Pro, because none were measured for
/// SW26010. Not thread-safe.
class SWAMP_API Predictor {
 public:
  /// @param config as for Machine, but an empty `machine` is sw26010pro,
  ///   whatever SWAMP_MACHINE is; backend, transfer and bind are ignored
  /// @param tile_bytes of the widest array of an operation; 0: the machine's.
  ///   Tiles are whole lines of every array if two of them fit into LDM
  /// @param broadcast what several slaves of a row of 8 get is fetched once,
  ///   and broadcast to the others by RMA
  /// @throws Error as the constructor of Machine
  explicit Predictor(const MachineConfig& config = {},
                     std::size_t tile_bytes = 0, bool broadcast = false);
  ~Predictor();
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  /// machine() is the machine to pass to operations. It belongs to the
  /// Predictor.
  Machine& machine() noexcept;

  /// prediction() returns the sum of all operations so far.
  Prediction prediction() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace swamp

#endif  // SWAMP_PREDICT_H_
