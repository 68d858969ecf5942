/// @file
/// The emulated many-core machine.
#ifndef SWAMP_MACHINE_H_
#define SWAMP_MACHINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "swamp/export.h"

namespace swamp {

/// MachineConfig selects a machine. A field that is empty or 0 takes the value
/// of its environment variable, or the default if that is unset. It has the
/// fields of swamp_config.
struct MachineConfig {
  std::string machine;            ///< SWAMP_MACHINE: host, sw26010, sw26010pro
  std::string backend;            ///< SWAMP_BACKEND: openmp, serial, threads,
                                  ///< athread (if built by swcc)
  std::string transfer;           ///< SWAMP_TRANSFER: view, copy, check
  std::uint32_t core_groups = 0;  ///< SWAMP_CORE_GROUPS: 1..4096
  std::uint32_t slaves_per_group = 0;  ///< SWAMP_SLAVES_PER_GROUP: 1..4096
  std::size_t ldm_bytes = 0;           ///< SWAMP_LDM_BYTES: 1 KiB..1 GiB
  std::string isa;                     ///< SWAMP_ISA: scalar ... avx512, neon
  std::string bind;                    ///< SWAMP_BIND: none, core
};

/// MachineInfo describes a machine, and what this build has on this CPU.
struct MachineInfo {
  MachineConfig chosen;       ///< every field filled in
  std::string cpu;            ///< the CPU's model name, or "unknown"
  std::uint32_t cores = 0;    ///< cores this process may run on
  std::uint32_t threads = 0;  ///< OS threads a spawn of this thread uses
  std::string topology;       ///< "plain" or "hwloc 2.9.0"; if cores differ,
                              ///< also the number of each kind, slowest first:
                              ///< "hwloc 2.9.0, kinds of cores: 8, 6"
  std::vector<std::string> machines;   ///< what chosen.machine accepts here
  std::vector<std::string> backends;   ///< what chosen.backend accepts here
  std::vector<std::string> transfers;  ///< what chosen.transfer accepts here
  std::vector<std::string> isas;       ///< what chosen.isa accepts here
  std::vector<std::string> binds;      ///< what chosen.bind accepts here
};

/// Machine is the emulated many-core machine: core groups of slaves, each with
/// a scratchpad (LDM), and the threads and kernels that emulate them. Any
/// thread may use it, also several at once.
class SWAMP_API Machine {
 public:
  /// Reads the environment variables.
  ///
  /// @param config fields that are not empty override the environment
  /// @throws Error SWAMP_INVALID_ARGUMENT for a bad value (the text lists the
  ///   valid ones), SWAMP_UNSUPPORTED for what this build or CPU does not have
  explicit Machine(const MachineConfig& config = {});
  /// No operation may be running on it.
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// info() describes the machine, with the threads that the calling thread
  /// would use.
  MachineInfo info() const;

  /// default_machine() returns the process's default machine, made from the
  /// environment at the first call; the library owns it.
  ///
  /// @throws Error as the constructor; the next call tries again
  static Machine& default_machine();

  /// For swamp's own sources.
  struct Impl;
  /// For swamp's own sources.
  Impl& impl() noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace swamp

#endif  // SWAMP_MACHINE_H_
