#include "toolchain/sunway/emulator/trace_simulation.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <queue>
#include <string>

#include "toolchain/sunway/emulator/trace_recorder.h"

namespace swamp::sunway {
namespace {

constexpr int kLanes = 16;  // threads of a slave in the file

// Key is one release: its object, and which of the releases it is.
using Key = std::pair<Word, std::uint64_t>;

double in_ns(double cycles) { return cycles / predict::kHertz * 1e9; }

// Simulation gives times to what the slaves of one launch did, slave by slave
// in the order of time.
class Simulation {
 public:
  explicit Simulation(TraceFile& file) : file_(file) {}

  void add(const Slave& slave, double start) {
    tracks_.push_back({&slave, &recorded(slave)});
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
    const Slave* slave;
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
  const std::vector<Track>& tracks() const { return tracks_; }

 private:
  // end_of() returns when a transfer that is issued now ends.
  double end_of(const Track& track, const Op& op) {
    if (op.what == Op::What::rma) {
      return track.now +
             in_ns(static_cast<double>(predict::kRmaLatency) +
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

  TraceFile& file_;
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

}  // namespace

std::vector<SlaveTimes> simulate(
    const std::vector<std::pair<const Slave*, double>>& slaves,
    TraceFile& file) {
  Simulation simulation(file);
  for (const auto& [slave, start] : slaves) simulation.add(*slave, start);
  simulation.run();
  std::vector<SlaveTimes> all;
  for (const auto& track : simulation.tracks()) {
    all.push_back({track.slave, std::max(track.now, track.all_end), track.bytes,
                   track.times});
  }
  return all;
}

}  // namespace swamp::sunway
