// Gives times to what slaves did: transfers take as long as the cost model
// says, the transfers of a core group share its memory controller, and
// computing takes as long as it did here.
#ifndef SWAMP_SUNWAY_EMULATOR_TRACE_SIMULATION_H_
#define SWAMP_SUNWAY_EMULATOR_TRACE_SIMULATION_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/trace_file.h"

namespace swamp::sunway {

constexpr std::size_t kMasterProcess = 0;  // core group i is process i + 1

// Times is what a slave did with its time in a launch.
struct Times {
  double compute = 0, dma = 0, rma = 0, sync = 0;
  double busy() const { return compute + dma + rma; }
};

// SlaveTimes is one slave's part of a launch.
struct SlaveTimes {
  const Slave* slave;
  double end;           // also of transfers for which it did not wait
  std::uint64_t bytes;  // of DMA
  Times times;
};

// simulate() gives times to what slaves have recorded, each with the time of
// its start, and writes them into the file.
std::vector<SlaveTimes> simulate(
    const std::vector<std::pair<const Slave*, double>>& slaves,
    TraceFile& file);

}  // namespace swamp::sunway

#endif  // SWAMP_SUNWAY_EMULATOR_TRACE_SIMULATION_H_
