// Gives times to what slaves did, and writes them into the file of SWAMP_TRACE:
// transfers take as long as the cost model says, the transfers of a core group
// share its memory controller, and computing takes as long as it did here.
#ifndef SWAMP_SUNWAY_EMULATOR_TRACE_SIMULATION_H_
#define SWAMP_SUNWAY_EMULATOR_TRACE_SIMULATION_H_

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"

namespace swamp::sunway {

// TraceFile writes events for Perfetto: an array of JSON, whose last bracket a
// program that was killed may leave out.
class TraceFile {
 public:
  explicit TraceFile(const std::string& name)
      : file_(open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                   0666)) {}
  bool good() const { return file_ >= 0; }
  // name() names a process, or one of its threads, once; process 0 is the
  // master's.
  void name(std::size_t process, int thread, const std::string& text) {
    if (!named_.insert({process, thread}).second) return;
    add(process, thread,
        std::string("\"ph\":\"M\",\"name\":\"") +
            (thread == 0 ? "process" : "thread") +
            "_name\",\"args\":{\"name\":\"" + text + "\"}");
  }
  void event(std::size_t group, int thread, const char* category,
             const std::string& text, double begin, double end,
             const std::string& args) {
    // Microseconds. Both ends are rounded to nanoseconds, so that an event ends
    // where the next one begins.
    const long long from = std::llround(begin), to = std::llround(end);
    char times[96];
    std::snprintf(times, sizeof times,
                  ",\"ts\":%lld.%03lld,\"dur\":%lld.%03lld", from / 1000,
                  from % 1000, (to - from) / 1000, (to - from) % 1000);
    add(group, thread,
        "\"ph\":\"X\",\"name\":\"" + text + "\",\"cat\":\"" + category + "\"" +
            times + (args.empty() ? "" : ",\"args\":{" + args + "}"));
  }
  // flush() is called before the program continues, because a child of fork()
  // has a copy of the buffer.
  void flush() {
    std::size_t done = 0;
    while (done < buffer_.size()) {
      const ssize_t n =
          write(file_, buffer_.data() + done, buffer_.size() - done);
      if (n <= 0) {
        print_line("swamp: SWAMP_TRACE: cannot write the file");
        break;
      }
      done += static_cast<std::size_t>(n);
    }
    buffer_.clear();
  }
  void close() {
    buffer_ += separator_ == ",\n" ? "\n]\n" : "[]\n";
    flush();
    ::close(file_);
  }

 private:
  void add(std::size_t group, int thread, const std::string& fields) {
    buffer_ += separator_ + "{\"pid\":" + std::to_string(group) +
               ",\"tid\":" + std::to_string(thread) + "," + fields + "}";
    separator_ = ",\n";
  }
  int file_;
  std::string buffer_, separator_ = "[\n";
  std::set<std::pair<std::size_t, int>> named_;
};

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
