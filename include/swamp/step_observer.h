/// @file
/// StepObserver hears what a MixedPrecisionOptimizer does, in order.
#ifndef SWAMP_STEP_OBSERVER_H_
#define SWAMP_STEP_OBSERVER_H_

#include <chrono>
#include <map>
#include <string>

#include "swamp/export.h"

namespace swamp {

/// StepObserver is told of timers, with Megatron's names, and of the events
/// between them. Called on the thread that steps; it must not throw.
class SWAMP_API StepObserver {
 public:
  virtual ~StepObserver();
  /// A timer starts.
  ///
  /// @param timer as "optimizer-inner-step"
  /// @param log_level Megatron's
  virtual void start(const char* timer, int log_level) = 0;
  /// It stops.
  ///
  /// @param timer as in start()
  virtual void stop(const char* timer) = 0;
  /// Something happens.
  ///
  /// @param what as "grad_scaler.update(False)"
  virtual void event(const std::string& what);
};

/// Timers is the observer that adds up seconds. One thread at a time.
class SWAMP_API Timers : public StepObserver {
 public:
  void start(const char* timer, int log_level) override;
  void stop(const char* timer) override;
  /// Seconds between start() and stop(), by timer.
  const std::map<std::string, double>& seconds() const noexcept {
    return seconds_;
  }
  /// Forgets everything.
  void reset();

 private:
  std::map<std::string, std::chrono::steady_clock::time_point> started_;
  std::map<std::string, double> seconds_;
};

}  // namespace swamp

#endif  // SWAMP_STEP_OBSERVER_H_
