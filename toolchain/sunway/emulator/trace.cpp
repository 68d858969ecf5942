// SWAMP_TRACE=FILE: what slaves did, on the time scale of the machine. An
// observer records computing, transfers, waits and barriers of every slave
// while the program runs in copy mode. After the join a simulation gives them
// times: transfers take as long as the cost model says, the transfers of a core
// group share its memory controller, and computing takes as long as it did
// here. The file is for Perfetto and chrome://tracing, a summary goes to
// stderr.
#include <fcntl.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "toolchain/sunway/emulator/debug_info.h"
#include "toolchain/sunway/emulator/host_process.h"
#include "toolchain/sunway/emulator/machine.h"
#include "toolchain/sunway/emulator/observer.h"
#include "toolchain/sunway/emulator/schedule.h"
#include "toolchain/sunway/emulator/transfer.h"

namespace swamp::sunway {
namespace {

using Word = const volatile void*;

// Op is one thing that a slave did. Times are nanoseconds.
struct Op {
  enum class What {
    compute,  // number: its time
    get,      // number: bytes
    put,
    rma,
    raise,     // the end of the last transfer raises a reply word, `object`
    complete,  // waits for the last transfer, or for all if there is an object
    wait,      // until `object` was raised `number` times
    release,   // see SlaveObserver::releases()
    acquire,
  };
  What what;
  const char* name;  // of the call
  Word object;
  std::uint64_t number;
  long block, stride;
  predict::Lines lines;
};

// Key is one release: its object, and which of the releases it is.
using Key = std::pair<Word, std::uint64_t>;

unsigned long thread_time() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<unsigned long>(time.tv_sec) * 1000000000 +
         static_cast<unsigned long>(time.tv_nsec);
}

double in_ns(double cycles) { return cycles / predict::kHertz * 1e9; }

// Words counts how often each reply word was raised, and each lock released, in
// this launch.
class Words {
 public:
  std::uint64_t add(Word word) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ++counts_[word];
  }
  std::uint64_t count(Word word) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = counts_.find(word);
    return found == counts_.end() ? 0 : found->second;
  }
  void clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    counts_.clear();
  }

 private:
  std::mutex mutex_;
  std::map<Word, std::uint64_t> counts_;
};
Words& raised() {
  static auto* const all = new Words;
  return *all;
}
Words& unlocked() {
  static auto* const all = new Words;
  return *all;
}

// Recorder records one slave. It carries the transfers out like the core.
class Recorder final : public SlaveObserver {
 public:
  explicit Recorder(Slave& slave) : slave_(slave) {}
  std::vector<Op> ops;

  void thread_begins() override {}
  void launched() override {}
  void function_begins() override {
    released_.clear();
    acquired_.clear();
    last_ = thread_time();
  }
  void function_ends() override { computed(); }
  std::size_t stack_bytes() const noexcept override { return 0; }
  void turn_lost() noexcept override {}
  void turn_regained() override {}

  void issue(const Transfer& t, const void*, bool) override {
    record(t);
    carry_out(t);
    raise(t.reply);
    if (t.reply != nullptr) add_reply(t.reply);
    last_ = thread_time();
  }
  void blocking(const Transfer& t, const void*) override {
    record(t);
    carry_out(t);
    add(Op::What::complete, t.call, nullptr, 0);
    last_ = thread_time();
  }
  bool allows(const Transfer& t, const void*) override {
    record(t);
    return true;
  }
  void broadcast(const Transfer&, const void*) override {}
  void dma_barrier() override {
    computed();
    add(Op::What::complete, "dma_barrier", &slave_, 0);
  }

  bool allows_rma(const Rma& rma, const Slave&, bool sends) override {
    if (rma.length <= 0) return false;
    computed();
    if (sends) transfer(Op::What::rma, rma.call, rma.length);
    return true;
  }
  void sent(const Rma& rma) override {
    raise(rma.local_reply);
    last_ = thread_time();
  }
  void fetched(const Transfer& t, const void*) override {
    transfer(Op::What::rma, t.call, t.length);
    if (t.reply == nullptr) {
      add(Op::What::complete, t.call, nullptr, 0);
    } else {
      raise(t.reply);
    }
    last_ = thread_time();
  }
  void replies(const volatile void* reply) override { raise(reply); }
  bool reaches(const Slave&, const std::byte*, long, const char*,
               const void*) override {
    return true;
  }
  void received(std::byte*, long, Slave& sender, const volatile void* reply,
                const char*, const void*) override {
    static_cast<Recorder&>(*sender.observer).raise(reply);
  }

  void wait_begins(volatile void*, int, const char* call,
                   const void*) override {
    computed();
    call_ = call;
  }
  void wait_ends(volatile void* reply, int value) override {
    // All but the last raises, as many as the word is above the value.
    const auto count = static_cast<long>(raised().count(reply));
    const long above = read_reply(reply) - value;
    add(Op::What::wait, call_, reply,
        static_cast<std::uint64_t>(std::max(count - above, 0l)));
    last_ = thread_time();
  }

  bool operand(const void*, std::size_t, bool, const char*,
               const void*) override {
    return true;
  }
  void allocated(std::size_t, std::size_t, std::size_t, const void*) override {}
  void freed(std::size_t, std::size_t, std::size_t, const void*) override {}
  void freed_all() override {}

  void releases(Sync kind, Word object, std::uint64_t number) override {
    computed();
    if (kind == Sync::barrier) number = released_[object]++;
    if (kind == Sync::lock) number = unlocked().add(object);
    add(Op::What::release, "", object, number);
  }
  void acquires(Sync kind, Word object, std::uint64_t number) override {
    if (kind == Sync::barrier) number = acquired_[object]++;
    if (kind == Sync::lock) number = unlocked().count(object);
    add(Op::What::acquire,
        kind == Sync::barrier ? "barrier"
        : kind == Sync::lock  ? "lock"
                              : "message",
        object, number);
    last_ = thread_time();
  }
  void tried(Word, const void*) override { sched_yield(); }
  void atomic(Word, std::size_t, bool, const void*) override {}

 private:
  void add(Op::What what, const char* name, Word object, std::uint64_t number) {
    ops.push_back({what, name, object, number, 0, 0, {}});
  }
  // computed() records the time since the last call of the library.
  void computed() {
    const unsigned long now = thread_time();
    if (now > last_) add(Op::What::compute, "", nullptr, now - last_);
    last_ = now;
  }
  void transfer(Op::What what, const char* call, long bytes) {
    add(what, call, nullptr, static_cast<std::uint64_t>(bytes));
  }
  void record(const Transfer& t) {
    computed();
    const auto what = t.kind == Transfer::Kind::get   ? Op::What::get
                      : t.kind == Transfer::Kind::put ? Op::What::put
                                                      : Op::What::rma;
    transfer(what, t.call, std::max(t.length, 0l));
    Op& op = ops.back();
    op.block = t.stride == 0 ? t.length : t.block;
    op.stride = t.stride;
    if (t.length <= 0 || what == Op::What::rma) return;
    for_blocks(t, [&](std::byte* main, std::byte*, std::size_t bytes) {
      op.lines.add(predict::lines_of(main, bytes));
    });
  }
  void raise(Word reply) {
    if (reply == nullptr) return;
    (void)raised().add(reply);
    add(Op::What::raise, "", reply, 0);
  }

  Slave& slave_;
  unsigned long last_ = 0;
  const char* call_ = "";
  std::map<Word, std::uint64_t> released_, acquired_;  // of this launch
};

Recorder& recorder_of(const Slave& slave) {
  return static_cast<Recorder&>(*slave.observer);
}

// Times is what a slave did with its time in a launch.
struct Times {
  double compute = 0, dma = 0, rma = 0, sync = 0;
  double busy() const { return compute + dma + rma; }
};

// Kernel is the sum of the launches of a function.
struct Kernel {
  std::uint64_t launches = 0, bytes = 0;
  double ns = 0;        // of the launches
  double group_ns = 0;  // times core groups
  double slave_ns = 0;  // times slaves
  double most = 0;      // of the busiest slave of each launch, times slaves
  Times all;            // of all slaves
};

// File writes events: an array of JSON, whose last bracket a program that was
// killed may leave out.
class File {
 public:
  explicit File(const std::string& name)
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

constexpr std::size_t kMasterProcess = 0;  // core group i is process i + 1
constexpr int kLanes = 16;                 // threads of a slave in the file

// Simulation gives times to what the slaves of one launch did, slave by slave
// in the order of time.
class Simulation {
 public:
  explicit Simulation(File& file) : file_(file) {}

  void add(Slave& slave, double start) {
    tracks_.push_back({&slave, &recorder_of(slave).ops});
    tracks_.back().now = start;
    for (const Op& op : *tracks_.back().ops) {
      if (op.what == Op::What::release) ++missing_[{op.object, op.number}];
    }
  }

  void run() {
    for (std::size_t i = 0; i < tracks_.size(); ++i) continue_with(i);
    for (;;) {
      bool forced = false;
      if (queue_.empty()) {
        // What the master does is not recorded: a wait for it ends at once.
        const auto first = std::min_element(
            tracks_.begin(), tracks_.end(), [](const Track& a, const Track& b) {
              return std::make_pair(!a.blocked, a.now) <
                     std::make_pair(!b.blocked, b.now);
            });
        if (first == tracks_.end() || !first->blocked) return;
        forced = true;
        first->blocked = false;
        continue_with(static_cast<std::size_t>(first - tracks_.begin()));
      }
      const std::size_t i = queue_.top().second;
      queue_.pop();
      step(tracks_[i], forced);
      if (!tracks_[i].blocked) continue_with(i);
    }
  }

  struct Track {
    Slave* slave;
    const std::vector<Op>* ops;
    double now = 0;
    std::size_t at = 0;
    double last_end = 0;  // of the last transfer
    bool last_is_rma = false;
    double all_end = 0;  // of all transfers
    bool blocked = false;
    std::vector<double> lanes{};  // ends of transfers that are drawn
    Times times{};
    std::uint64_t bytes = 0;
  };
  std::vector<Track>& tracks() { return tracks_; }

 private:
  // end_of() returns when a transfer that is issued now ends.
  double end_of(const Track& track, const Op& op) {
    if (op.what == Op::What::rma) {
      return track.now +
             in_ns(predict::kRmaLatency +
                   static_cast<double>(op.number) / predict::kRmaBytesPerCycle);
    }
    const bool get = op.what == Op::What::get;
    const double work =
        get ? static_cast<double>(op.lines.touched) * predict::kReadLine
            : static_cast<double>(op.lines.whole) * predict::kWholeLineFew +
                  static_cast<double>(op.lines.partial()) *
                      predict::kPartialLine;
    double& free = controllers_[track.slave->group];
    free = std::max(free, track.now) + in_ns(work);
    const std::uint64_t alone =
        get ? predict::get_cycles(op.lines) : predict::put_cycles(op.lines);
    const double latency = get ? predict::kGetLatency : predict::kPutLatency;
    return std::max(track.now + in_ns(static_cast<double>(alone)),
                    free + in_ns(latency));
  }

  void draw_transfer(Track& track, const Op& op, double end) {
    const auto lane =
        std::find_if(track.lanes.begin(), track.lanes.end(),
                     [&](double busy) { return busy <= track.now; });
    const auto index = lane - track.lanes.begin();
    if (lane == track.lanes.end()) track.lanes.push_back(0);
    track.lanes[static_cast<std::size_t>(index)] = end;
    char args[256];
    if (op.what == Op::What::rma) {
      std::snprintf(args, sizeof args, "\"bytes\":%llu",
                    static_cast<unsigned long long>(op.number));
    } else {
      std::snprintf(
          args, sizeof args,
          "\"bytes\":%llu,\"block\":%ld,\"stride\":%ld,\"lines\":%llu,"
          "\"partial\":%llu,\"efficiency\":%.3f",
          static_cast<unsigned long long>(op.number), op.block, op.stride,
          static_cast<unsigned long long>(op.lines.touched),
          static_cast<unsigned long long>(op.lines.partial()),
          static_cast<double>(op.number) /
              static_cast<double>(std::max<std::uint64_t>(op.lines.touched, 1) *
                                  predict::kLineBytes));
    }
    draw(track, 1 + std::min<int>(static_cast<int>(index), kLanes - 2),
         op.what == Op::What::rma ? "rma" : "dma", op.name, track.now, end,
         args);
  }
  void draw(const Track& track, int lane, const char* category,
            const std::string& name, double begin, double end,
            const std::string& args = "") {
    const int id = track.slave->id, thread = id * kLanes + lane + 1;
    const auto group = static_cast<std::size_t>(track.slave->group);
    file_.name(group + 1, 0, "core group " + std::to_string(group));
    file_.name(group + 1, thread,
               "slave " + std::to_string(id) + (lane == 0 ? "" : " transfers"));
    file_.event(group + 1, thread, category, name, begin, end, args);
  }

  // until() advances a slave to a time for which it waited.
  void until(Track& track, double time, double& sum, const char* category,
             const char* name) {
    if (time <= track.now) return;
    draw(track, 0, category, name, track.now, time);
    sum += time - track.now;
    track.now = time;
  }

  void continue_with(std::size_t i) {
    if (tracks_[i].at < tracks_[i].ops->size()) {
      queue_.emplace(tracks_[i].now, i);
    }
  }
  // wake() lets the slaves that are blocked look again.
  void wake() {
    for (std::size_t i = 0; i < tracks_.size(); ++i) {
      if (!tracks_[i].blocked) continue;
      tracks_[i].blocked = false;
      continue_with(i);
    }
  }

  void step(Track& track, bool forced) {
    const Op& op = (*track.ops)[track.at];
    switch (op.what) {
      case Op::What::compute: {
        const auto time = static_cast<double>(op.number);
        draw(track, 0, "compute", "computing", track.now, track.now + time);
        track.times.compute += time;
        track.now += time;
        break;
      }
      case Op::What::get:
      case Op::What::put:
      case Op::What::rma: {
        const double end = end_of(track, op);
        draw_transfer(track, op, end);
        track.last_end = end;
        track.last_is_rma = op.what == Op::What::rma;
        track.all_end = std::max(track.all_end, end);
        if (!track.last_is_rma) track.bytes += op.number;
        break;
      }
      case Op::What::raise: {
        std::vector<std::pair<double, bool>>& all = ends_[op.object];
        const auto end = std::make_pair(track.last_end, track.last_is_rma);
        all.insert(std::upper_bound(all.begin(), all.end(), end), end);
        wake();
        break;
      }
      case Op::What::complete:
        until(track, op.object == nullptr ? track.last_end : track.all_end,
              track.last_is_rma ? track.times.rma : track.times.dma,
              track.last_is_rma ? "rma" : "dma", "wait");
        break;
      case Op::What::wait: {
        const std::vector<std::pair<double, bool>>& all = ends_[op.object];
        const auto count = static_cast<std::size_t>(op.number);
        if (all.size() < count && !forced) {
          track.blocked = true;
          return;
        }
        const std::size_t last = std::min(count, all.size());
        if (last > 0) {
          const auto& [end, is_rma] = all[last - 1];
          until(track, end, is_rma ? track.times.rma : track.times.dma,
                is_rma ? "rma" : "dma", op.name);
        }
        break;
      }
      case Op::What::release: {
        const Key key{op.object, op.number};
        double& latest = released_[key];
        latest = std::max(latest, track.now);
        if (--missing_[key] == 0) wake();
        break;
      }
      case Op::What::acquire: {
        const Key key{op.object, op.number};
        const auto missing = missing_.find(key);
        if (missing != missing_.end() && missing->second > 0 && !forced) {
          track.blocked = true;
          return;
        }
        until(track, released_[key], track.times.sync, "sync", op.name);
        break;
      }
    }
    ++track.at;
  }

  File& file_;
  std::vector<Track> tracks_;
  // The slaves that can continue, the earliest first.
  std::priority_queue<std::pair<double, std::size_t>,
                      std::vector<std::pair<double, std::size_t>>,
                      std::greater<>>
      queue_;
  std::map<int, double> controllers_;  // when they are free, by core group
  std::map<Word, std::vector<std::pair<double, bool>>> ends_;  // of raises
  std::map<Key, std::uint64_t> missing_;  // releases that are still to come
  std::map<Key, double> released_;
};

// Tracer observes the machine. Under the machine's mutex.
class Tracer final : public Observer {
 public:
  explicit Tracer(const std::string& name) : file_(name) {}
  bool good() const { return file_.good(); }

  std::unique_ptr<SlaveObserver> make(Slave& slave) override {
    return std::make_unique<Recorder>(slave);
  }
  std::size_t bytes_above() const noexcept override { return 0; }
  void refused(const void*, const char*) override {}

  void launched(unsigned mask, const void*, const void*) override {
    if (running_.empty()) raised().clear();
    const double now = master_time();
    for (std::size_t i = 0; i < machine().groups.size(); ++i) {
      if ((mask >> i & 1u) != 0) running_.emplace(i, now);
    }
  }
  void joining(unsigned, const void*, const void*) override {
    before_join_ = master_time();
  }
  void joined(unsigned) override {
    if (machine().live == 0) finish();
  }
  void releases(Word object, std::uint64_t, unsigned mask) override {
    if (mask != 0) (void)unlocked().add(object);
  }
  void acquires(Word, std::uint64_t, unsigned) override {}
  void atomic(Word, std::size_t) override {}
  void polls() noexcept override {}
  void allocated(const void*, std::size_t, const void*) override {}
  void halting(const void*) override {}
  void exiting() override {
    if (has_machine() && machine().live == 0) finish();
    summarize();
    file_.close();
  }

 private:
  // master_time() is the time of the program without that of its joins, which
  // are as long as the simulation says.
  double master_time() const {
    return offset_ + static_cast<double>(nanoseconds() - anchor_);
  }

  // finish() simulates what has run since the machine was idle.
  void finish() {
    if (running_.empty()) return;
    Simulation simulation(file_);
    for (const auto& [group, start] : running_) {
      for (const auto& slave : machine().groups[group].slaves) {
        if (!recorder_of(*slave).ops.empty()) simulation.add(*slave, start);
      }
    }
    simulation.run();
    double end = before_join_;
    std::map<SlaveFunction, std::vector<const Simulation::Track*>> kernels;
    for (Simulation::Track& track : simulation.tracks()) {
      // Transfers that nobody waited for.
      track.now = std::max(track.now, track.all_end);
      end = std::max(end, track.now);
      kernels[track.slave->function].push_back(&track);
      recorder_of(*track.slave).ops.clear();
    }
    for (const auto& [function, tracks] : kernels) add(function, tracks);
    file_.flush();
    running_.clear();
    offset_ = end;
    anchor_ = nanoseconds();
  }

  // add() adds a launch of a function to its sum, and to the master's line.
  void add(SlaveFunction function,
           const std::vector<const Simulation::Track*>& tracks) {
    Kernel& kernel = kernels_[function];
    const std::string name =
        name_of_function(reinterpret_cast<const void*>(function));
    std::map<int, double> starts;
    double most = 0;
    double last = 0;
    for (const Simulation::Track* track : tracks) {
      starts[track->slave->group] =
          running_.at(static_cast<std::size_t>(track->slave->group));
      const Times& t = track->times;
      kernel.all.compute += t.compute;
      kernel.all.dma += t.dma;
      kernel.all.rma += t.rma;
      kernel.all.sync += t.sync;
      kernel.bytes += track->bytes;
      most = std::max(most, t.busy());
      last = std::max(last, track->now);
    }
    double first = std::numeric_limits<double>::max();
    for (const auto& [group, start] : starts) first = std::min(first, start);
    ++kernel.launches;
    const auto slaves = static_cast<double>(tracks.size());
    kernel.ns += last - first;
    kernel.group_ns += (last - first) * static_cast<double>(starts.size());
    kernel.slave_ns += (last - first) * slaves;
    kernel.most += most * slaves;
    file_.name(kMasterProcess, 0, "master");
    file_.name(kMasterProcess, 1, "launches");
    file_.event(kMasterProcess, 1, "launch", name, first, last,
                "\"slaves\":" + std::to_string(tracks.size()));
  }

  void summarize() const {
    // Peak of a core group, from the time of a line.
    constexpr double kPeak =
        predict::kLineBytes / predict::kReadLine * predict::kHertz * 1e-9;
    for (const auto& [function, kernel] : kernels_) {
      const std::string name =
          name_of_function(reinterpret_cast<const void*>(function));
      const Times& t = kernel.all;
      const double whole = std::max(kernel.slave_ns, 1.0);
      const double idle = whole - t.busy() - t.sync;
      char line[512];
      std::snprintf(
          line, sizeof line,
          "swamp: trace: %s: launches %llu, %.3f us; of the slaves' time "
          "computing %.1f %%, waiting for DMA %.1f %%, RMA %.1f %%, barriers "
          "and locks %.1f %%, idle %.1f %%; DMA %llu bytes, %.2f GB/s of %.1f "
          "of each core group; busiest slave %.2f times the mean",
          name.c_str(), static_cast<unsigned long long>(kernel.launches),
          kernel.ns * 1e-3, 100 * t.compute / whole, 100 * t.dma / whole,
          100 * t.rma / whole, 100 * t.sync / whole,
          100 * std::max(idle, 0.0) / whole,
          static_cast<unsigned long long>(kernel.bytes),
          static_cast<double>(kernel.bytes) / std::max(kernel.group_ns, 1.0),
          kPeak, kernel.most / std::max(t.busy(), 1.0));
      print_line(line);
    }
  }

  File file_;
  std::map<std::size_t, double> running_;  // core group, its start
  std::map<SlaveFunction, Kernel> kernels_;
  unsigned long anchor_ = nanoseconds();
  double offset_ = 0, before_join_ = 0;
};

}  // namespace

void start_trace() {
  const std::string& file = settings().trace_file;
  auto* const tracer = new Tracer(file);
  if (!tracer->good()) {
    fail(2, "SWAMP_TRACE: got \"" + file +
                "\", expected a file that can be written");
  }
  observer = tracer;
}

}  // namespace swamp::sunway
