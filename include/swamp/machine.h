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

/// MachineConfig says what machine to make. A field that is empty or 0 takes
/// the value of its environment variable, else the default. The fields are
/// those of swamp_config.
struct MachineConfig {
  std::string machine;            ///< SWAMP_MACHINE: host, sw26010, sw26010pro
  std::string backend;            ///< SWAMP_BACKEND: openmp, serial, threads,
                                  ///< athread (where swcc is the compiler)
  std::string transfer;           ///< SWAMP_TRANSFER: view, copy, check
  std::uint32_t core_groups = 0;  ///< SWAMP_CORE_GROUPS: 1..4096
  std::uint32_t slaves_per_group = 0;  ///< SWAMP_SLAVES_PER_GROUP: 1..4096
  std::size_t ldm_bytes = 0;           ///< SWAMP_LDM_BYTES: 1 KiB..1 GiB
  std::string isa;                     ///< SWAMP_ISA: scalar ... avx512
  std::string bind;                    ///< SWAMP_BIND: none, core
};

/// MachineInfo describes a machine, and what this build offers on this CPU.
struct MachineInfo {
  MachineConfig chosen;       ///< every field filled in
  std::string cpu;            ///< the CPU's model name, or "unknown"
  std::uint32_t cores = 0;    ///< cores this process may run on
  std::uint32_t threads = 0;  ///< OS threads a spawn from here would use
  std::string topology;       ///< "hwloc 2.9.0" or "plain"
  std::vector<std::string> machines;   ///< what chosen.machine accepts here
  std::vector<std::string> backends;   ///< what chosen.backend accepts here
  std::vector<std::string> transfers;  ///< what chosen.transfer accepts here
  std::vector<std::string> isas;       ///< what chosen.isa accepts here
  std::vector<std::string> binds;      ///< what chosen.bind accepts here
};

/// Machine is the emulated many-core machine: core groups of slaves, each with
/// a scratchpad (LDM), and the threads and kernels that stand for them. Any
/// thread may use it, also several at once. Nothing may be running on it when
/// it is destroyed.
class SWAMP_API Machine {
 public:
  /// Reads the environment now.
  ///
  /// @param config what to make
  /// @throws Error SWAMP_INVALID_ARGUMENT for a bad value (the text lists the
  ///   good ones), SWAMP_UNSUPPORTED for what this build or CPU lacks
  explicit Machine(const MachineConfig& config = {});
  /// No call may be running on it.
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// info() describes the machine as the calling thread would use it now.
  MachineInfo info() const;

  /// default_machine() is the process's own, made from the environment at the
  /// first call; the library owns it.
  ///
  /// @throws Error as the constructor; a failure is not remembered
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
