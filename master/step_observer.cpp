#include "swamp/step_observer.h"

namespace swamp {

StepObserver::~StepObserver() = default;

void StepObserver::event(const std::string&) {}

void Timers::start(const char* timer, int) {
  started_[timer] = std::chrono::steady_clock::now();
}

void Timers::stop(const char* timer) {
  const auto found = started_.find(timer);
  if (found == started_.end()) return;
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - found->second;
  seconds_[timer] += taken.count();
  started_.erase(found);
}

void Timers::reset() {
  started_.clear();
  seconds_.clear();
}

}  // namespace swamp
