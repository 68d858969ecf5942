// Runs one trace, step for step.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "master/cli/command.h"
#include "master/cli/replay/trace.h"

namespace swamp::cli {
namespace {

constexpr std::size_t kDigestInterval = 256;
constexpr std::size_t kAllRows = 48;  // shorter traces show every step

// Fnv is FNV-1a-64 over the little-endian bytes of doubles.
class Fnv {
 public:
  void add(double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    for (int byte = 0; byte < 8; ++byte) {
      hash_ = (hash_ ^ ((bits >> (8 * byte)) & 0xffu)) * 0x100000001b3u;
    }
  }
  std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

// View is a scaler with its trackers in the order of the trace.
class View {
 public:
  explicit View(const Trace& trace)
      : scaler_(LossScaler::from_name(trace.scaler,
                                      scaler_options_from_json(trace.params))) {
    const std::vector<std::string> known = scaler_.tracker_names();
    for (const std::string& name : trace.trackers) {
      const auto found = std::find(known.begin(), known.end(), name);
      if (found == known.end()) {
        throw Failure(fmt::format("trackers: got '{}', {} has {}", name,
                                  trace.scaler, fmt::join(known, ", ")));
      }
      order_.push_back(static_cast<std::size_t>(found - known.begin()));
    }
  }

  LossScaler& scaler() { return scaler_; }

  std::vector<bool> integers() const {
    std::vector<bool> out;
    for (const std::size_t index : order_) {
      out.push_back(scaler_.tracker_is_integer(index));
    }
    return out;
  }

  Row row(std::size_t step) const {
    const std::vector<double> values = scaler_.trackers();
    Row row{step, scaler_.scale(), {}};
    for (const std::size_t index : order_) {
      row.trackers.push_back(values[index]);
    }
    return row;
  }

 private:
  LossScaler scaler_;
  std::vector<std::size_t> order_;
};

bool keeps_float32(const Row& row) {
  return static_cast<double>(static_cast<float>(row.scale)) == row.scale;
}

Replay play_steps(const Trace& trace, View& view) {
  Replay replay;
  replay.init = view.row(0);
  replay.is_integer = view.integers();
  if (trace.is_float32 && !keeps_float32(replay.init)) {
    throw Failure(fmt::format("scale_dtype: got f32, but {} keeps a double",
                              trace.scaler));
  }
  Fnv fnv;
  double previous = replay.init.scale;
  const std::size_t count = trace.overflow.size();
  for (std::size_t step = 0; step < count; ++step) {
    try {
      view.scaler().update(trace.overflow[step] ? trace.found_inf : 0.0f);
    } catch (const ScalerError& error) {
      replay.rows.push_back(view.row(step));
      replay.event = Event{step, error.type(), error.message()};
      return replay;
    }
    const Row row = view.row(step);
    fnv.add(row.scale);
    for (const double tracker : row.trackers) fnv.add(tracker);
    const bool last = step + 1 == count;
    if (last || step % kDigestInterval == kDigestInterval - 1) {
      replay.digests.push_back({step, fnv.hash()});
    }
    if (last || count <= kAllRows || row.scale != previous) {
      replay.rows.push_back(row);
    }
    previous = row.scale;
  }
  return replay;
}

}  // namespace

Replay play(const Trace& trace) {
  try {
    // The parameters of the object that saved must be good ones.
    if (!trace.saved_by.empty()) {
      LossScaler::from_name(trace.scaler,
                            scaler_options_from_json(trace.saved_by));
    }
    View view(trace);
    if (!trace.state_dict.empty()) {
      view.scaler().load_state_dict(trace.state_dict);
    }
    return play_steps(trace, view);
  } catch (const Error& error) {
    throw Failure(error.what());
  }
}

}  // namespace swamp::cli
