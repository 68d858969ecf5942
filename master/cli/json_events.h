// Reading JSON that is not to be trusted.
#ifndef SWAMP_MASTER_CLI_JSON_EVENTS_H_
#define SWAMP_MASTER_CLI_JSON_EVENTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace swamp::cli {

// JsonEvents is told what a JSON text holds, in order. What it throws ends the
// reading.
class JsonEvents {
 public:
  JsonEvents() = default;
  virtual ~JsonEvents() = default;
  JsonEvents(const JsonEvents&) = delete;
  JsonEvents& operator=(const JsonEvents&) = delete;

  virtual void begin_object() = 0;
  virtual void key(const std::string& name) = 0;
  virtual void end_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_array() = 0;
  virtual void string(const std::string& value) = 0;
  virtual void integer(std::uint64_t value) = 0;
  // other() is null, a boolean, a negative number or a fraction.
  virtual void other(const char* kind) = 0;
};

// read_json() reads all of `text`, which must be one JSON value nested at most
// `max_depth` deep; nothing of it is kept. Throws Failure.
void read_json(std::string_view text, std::size_t max_depth,
               JsonEvents& events);

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_JSON_EVENTS_H_
