#ifndef SWAMP_ERROR_H_
#define SWAMP_ERROR_H_

#include <stdexcept>
#include <string>

#include "swamp/c_api.h"
#include "swamp/export.h"

namespace swamp {

// Error is what the C++ API throws. what() names the argument, its value and
// what was expected; status() is what the C ABI would have returned. A call
// that throws has written nothing.
class SWAMP_API Error : public std::runtime_error {
 public:
  Error(swamp_status status, const std::string& text)
      : std::runtime_error(text), status_(status) {}

  swamp_status status() const noexcept { return status_; }

 private:
  swamp_status status_;
};

}  // namespace swamp

#endif  // SWAMP_ERROR_H_
