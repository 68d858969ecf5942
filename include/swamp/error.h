/// @file
/// The exception of the C++ API.
#ifndef SWAMP_ERROR_H_
#define SWAMP_ERROR_H_

#include <stdexcept>
#include <string>

#include "swamp/c_api.h"
#include "swamp/export.h"

namespace swamp {

/// Error is the exception of the C++ API. what() names the argument, its value
/// and what was expected. A call that throws has written nothing. The C++ API
/// may also throw std::bad_alloc.
class SWAMP_API Error : public std::runtime_error {
 public:
  /// @param status of the same failure in the C ABI
  /// @param text for what(); copied
  Error(swamp_status status, const std::string& text)
      : std::runtime_error(text), status_(status) {}

  /// What the C ABI would have returned.
  swamp_status status() const noexcept { return status_; }

 private:
  swamp_status status_;
};

}  // namespace swamp

#endif  // SWAMP_ERROR_H_
