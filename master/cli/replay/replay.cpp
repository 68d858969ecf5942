// `swamp replay`: runs recorded traces of loss scalers and of scale managers,
// and records of blocks, casts and products of codes, through ours, and
// compares what a record has.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "master/cli/command.h"
#include "master/cli/replay/float8_record.h"
#include "master/cli/replay/trace.h"
#include "master/cli/text.h"
#include "swamp/swamp.h"

namespace swamp::cli {
namespace {

constexpr std::size_t kDigestInterval = 256;
constexpr std::size_t kAllRows = 48;  // shorter traces show every step

// More than a trace with as many steps as read_trace() allows.
constexpr std::size_t kMaxLineBytes = std::size_t{1} << 27;

void add_number(double value, std::uint64_t& digest) {
  digest = add_to_digest(digest, little_endian_bytes(&value, 1));
}

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
                                  trace.scaler, joined(known)));
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
  std::uint64_t digest = kDigestStart;
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
    add_number(row.scale, digest);
    for (const double tracker : row.trackers) add_number(tracker, digest);
    const bool last = step + 1 == count;
    if (last || step % kDigestInterval == kDigestInterval - 1) {
      replay.digests.push_back({step, digest});
    }
    if (last || count <= kAllRows || row.scale != previous) {
      replay.rows.push_back(row);
    }
    previous = row.scale;
  }
  return replay;
}

// play() runs a trace. Throws Failure if our scaler refuses it.
Replay play(const Trace& trace) {
  try {
    // The parameters of the object that saved must be valid, too.
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

struct ReplayOptions {
  std::vector<std::string> files;
  bool check = false;
};

struct Counts {
  std::uint64_t passed = 0;
  std::uint64_t failed = 0;
  std::uint64_t skipped = 0;
};

void replay_line(const std::string& line, std::uint64_t number,
                 const ReplayOptions& options, CodeInputs& inputs,
                 Machine& machine, Counts& counts) {
  // Printed with --check, and without it.
  std::string id, json, differs;
  std::optional<RecordReplay> record =
      replay_codes(line, options.check, inputs, machine);
  if (!record) record = replay_scales(line, options.check);
  if (record) {
    id = fmt::format("{} of line {}", record->name, number);
    json = std::move(record->json);
    differs = std::move(record->difference);
  } else if (const auto trace = read_trace(line)) {
    const Replay replay = play(*trace);
    id = trace->id;
    if (options.check) {
      differs = difference(line, *trace, replay);
    } else {
      json = replay_json(*trace, replay);
    }
  } else {
    ++counts.skipped;
    return;
  }
  if (!options.check) {
    print(json + "\n");
    return;
  }
  ++(differs.empty() ? counts.passed : counts.failed);
  if (!differs.empty()) print(fmt::format("FAILED {}: {}\n", id, differs));
}

[[noreturn]] void fail_read() {
  throw Failure(fmt::format("cannot be read: {}",
                            std::strerror(errno != 0 ? errno : EIO)));
}

// read_line() returns false at the end of the file. A line is bounded, because
// the file may be a device that never ends it.
bool read_line(std::FILE* file, std::string& line) {
  line.clear();
  errno = 0;
  int character = getc_unlocked(file);
  if (character == EOF && std::ferror(file) == 0) return false;
  for (; character != EOF && character != '\n';
       character = getc_unlocked(file)) {
    if (line.size() == kMaxLineBytes) {
      throw Failure(fmt::format("got a longer line, expected at most {} bytes",
                                kMaxLineBytes));
    }
    line += static_cast<char>(character);
  }
  if (std::ferror(file) != 0) fail_read();
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return true;
}

void replay_file(const std::string& path, const ReplayOptions& options,
                 Machine& machine, Counts& counts) {
  CodeInputs inputs(path.substr(0, path.rfind('/') + 1) + "inputs.jsonl");
  std::uint64_t number = 1;
  try {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
        std::fopen(path.c_str(), "rbe"), &std::fclose);
    if (!file) fail_read();
    for (std::string line; read_line(file.get(), line); ++number) {
      if (line.empty()) continue;
      replay_line(line, number, options, inputs, machine, counts);
    }
  } catch (const Failure& failure) {
    throw Failure(fmt::format("{}:{}: {}", path, number, failure.what()));
  }
}

// run_replay() returns kExitFound if --check finds a difference.
int run_replay(const ReplayOptions& options, Machine& machine) {
  Counts counts;
  for (const std::string& path : options.files) {
    replay_file(path, options, machine, counts);
  }
  if (!options.check) {
    if (counts.skipped != 0) {
      print_error(fmt::format("swamp: records of other kinds skipped: {}",
                              counts.skipped));
    }
    return EXIT_SUCCESS;
  }
  if (counts.skipped != 0) print(fmt::format("{} skipped\n", counts.skipped));
  print(fmt::format("{} passed, {} failed\n", counts.passed, counts.failed));
  return counts.failed == 0 ? EXIT_SUCCESS : kExitFound;
}

}  // namespace

Run add_replay(CLI::App& command) {
  const auto options = std::make_shared<ReplayOptions>();
  command
      .add_option("FILE", options->files,
                  "traces, one JSON object per line (tests/golden/FORMAT.md,\n"
                  "scales, blocks, casts and products: "
                  "tests/golden/float8/README.md)")
      ->type_name("")
      ->required();
  command.add_flag("--check", options->check,
                   "compare with the file's own results");
  command.footer(
      "Runs swamp's scaler or scale manager of the same name, or the casts "
      "and\n"
      "products of codes, and prints one JSON line per trace. A matrix is "
      "part\n"
      "of its record, or in inputs.jsonl in the folder of FILE.\n"
      "With --check it prints the differences instead, and ends with how many\n"
      "traces passed and failed. Records of other kinds are skipped.\n"
      "Exit code: 0; 1 when a check fails; 2 for a bad file or option.");
  return [options](Machine& machine) {
    warn_of_unknown_variables();
    return run_replay(*options, machine);
  };
}

}  // namespace swamp::cli
