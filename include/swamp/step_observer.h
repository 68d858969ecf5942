/// @file
/// StepObserver: reports the timers and events of a MixedPrecisionOptimizer.
#ifndef SWAMP_STEP_OBSERVER_H_
#define SWAMP_STEP_OBSERVER_H_

#include <string>

#include "swamp/export.h"

namespace swamp {

/// StepObserver is called for Megatron's timers and for the events between
/// them, in order, on the thread that steps. Its functions must not throw.
class SWAMP_API StepObserver {
 public:
  virtual ~StepObserver();
  /// A timer starts.
  ///
  /// @param timer Megatron's name, for example "optimizer-inner-step"
  /// @param log_level Megatron's
  virtual void start(const char* timer, int log_level) = 0;
  /// A timer stops.
  ///
  /// @param timer as in start()
  virtual void stop(const char* timer) = 0;
  /// An event happened.
  ///
  /// @param what for example "grad_scaler.update(False)"
  virtual void event(const std::string& what);
};

}  // namespace swamp

#endif  // SWAMP_STEP_OBSERVER_H_
