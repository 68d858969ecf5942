// `swamp train`: how a run begins or resumes, its loop, what it prints and
// saves.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "master/cli/command.h"
#include "master/cli/text.h"
#include "master/cli/train/checkpoint.h"
#include "master/cli/train/files.h"
#include "master/cli/train/log.h"
#include "master/cli/train/model.h"
#include "master/cli/train/options.h"
#include "master/cli/train/ranks.h"
#include "master/cli/train/trainer.h"
#include "swamp/c_api.h"

namespace swamp::cli {
namespace {

volatile std::sig_atomic_t stop_signal = 0;

void note_signal(int signal) { stop_signal = signal; }

// catch_stop_signals() makes Ctrl-C and SIGTERM end a run after its current
// step. The second one kills; a signal that was ignored stays ignored.
void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction before;
    if (sigaction(signal, nullptr, &before) == 0 &&
        before.sa_handler == SIG_DFL) {
      sigaction(signal, &action, nullptr);
    }
  }
}

// TrainingRun is one run. Only the first rank prints and writes files.
class TrainingRun {
 public:
  TrainingRun(const TrainOptions& options, Machine& machine, Ranks& ranks)
      : options_(options), machine_(machine), ranks_(ranks) {}

  // run() returns the signal that ended the run before its last step, or 0.
  int run();

 private:
  void read();
  void require_same_ranks();
  void check_files();
  std::uint64_t summed_apart();
  void resume();
  void say(const std::string& text);
  std::string header();
  int train();
  int step();
  void save();
  void close(double seconds);
  void plot();

  TrainOptions options_;
  Machine& machine_;
  Ranks& ranks_;
  std::string text_;
  std::list<NameLock> locks_;
  // The present file of the checkpoint, locked, so that no log of another run
  // is written to it by a hard link.
  OpenFile checkpoint_file_;
  std::optional<Trainer> trainer_;
  std::optional<StepLog> log_;
  History history_;
  std::uint64_t skipped_ = 0;
  std::string resume_note_;
  Progress progress_;
};

int TrainingRun::run() {
  ranks_.together([&] { read(); });
  ranks_.together([&] { require_same_ranks(); });
  ranks_.together([&] {
    if (ranks_.first()) check_files();
    trainer_.emplace(options_, text_, machine_, ranks_);
  });
  if (options_.resume) resume();
  if (!log_) {
    ranks_.together([&] { log_.emplace(ranks_.first() ? options_.log : ""); });
  }
  say(header());
  if (trainer_->steps() > 0) {
    say(fmt::format("resumed after step {}\n{}", trainer_->steps(),
                    resume_note_));
  } else if (options_.resume) {
    say(fmt::format("no checkpoint '{}' yet: from the beginning\n",
                    options_.checkpoint));
  }
  return train();
}

void TrainingRun::read() {
  text_ = read_text(options_.text, kContext + 1);
  options_.decisive["text"] =
      fmt::format("of {} bytes, digest {:016x}", text_.size(),
                  add_to_digest(kDigestStart, text_));
  options_.decisive["micro batches in a step"] =
      std::to_string(ranks_.count() * options_.accumulate);
}

// require_same_ranks() refuses ranks that were started with different options:
// all that a resumed run must have, too, and those that decide when the ranks
// call each other. Only the first one uses the names of files.
void TrainingRun::require_same_ranks() {
  std::map<std::string, std::string> values = choices(options_.decisive);
  values["--accumulate"] = std::to_string(options_.accumulate);
  values["--steps"] = std::to_string(options_.steps);
  values["--save-interval"] = std::to_string(options_.save_interval);
  values["--timing-log-level"] =
      options_.timing_log_level > 0
          ? fmt::format("1 or 2 every {} steps", options_.log_interval)
          : "0";
  values["--barrier-with-L1-time"] =
      options_.barrier_with_l1_time ? "true" : "none";
  values["--checkpoint"] = options_.checkpoint.empty() ? "none" : "a file";
  values["--resume"] = options_.resume ? "true" : "none";
  values["TEXT"] = "one " + values["text"];
  values.erase("text");
  values["version of swamp"] = swamp_version();
  ranks_.communicator().require_same(values);
}

// check_files() refuses, before the first step, files that could not be written
// at the end or that would destroy another file, and locks their names. A log
// is written through links. A checkpoint and a picture replace a link, which
// another run may follow before.
void TrainingRun::check_files() {
  const FileName log = {"--log", options_.log};
  const FileName checkpoint = {"--checkpoint", options_.checkpoint};
  const FileName plot = {"--plot", options_.plot};
  std::vector<FileName> names = {{"TEXT", options_.text}};
  std::vector<std::pair<FileName, std::string>> locked;
  for (const FileName& file : {log, checkpoint, plot}) {
    if (file.path.empty()) continue;
    names.push_back(file);
    const std::string target = link_target(file.path);
    locked.emplace_back(file, target);
    if (file.what == log.what || target == file.path) continue;
    locked.emplace_back(file, file.path);
  }
  for (const auto& [file, name] : locked) {
    names.push_back({"the lock of " + file.what, NameLock::lock_name(name)});
  }
  refuse_same_files(names);
  for (const auto& [file, name] : locked) locks_.emplace_back(file, name);
  if (!options_.checkpoint.empty()) {
    checkpoint_file_ = locked_file(checkpoint, options_.checkpoint);
    if (!options_.resume && !options_.overwrite &&
        file_exists("--checkpoint", options_.checkpoint)) {
      throw Failure(
          fmt::format("--checkpoint: got '{}', which exists, expected another "
                      "name, or --resume to go on from it, or --overwrite",
                      options_.checkpoint));
    }
  }
  for (const FileName& file : {checkpoint, plot}) {
    if (!file.path.empty()) AtomicFile probe(file.what.c_str(), file.path);
  }
}

// summed_apart() is the number of micro batches that a rank adds up before the
// sums of the ranks are added. It decides the bits of the sum. One rank, or one
// micro batch per rank, adds them one after another.
std::uint64_t TrainingRun::summed_apart() {
  return ranks_.count() == 1 ? 1 : options_.accumulate;
}

void TrainingRun::resume() {
  bool found = false;
  std::string content;
  const auto named = [&](const std::function<void()>& part) {
    ranks_.together([&] {
      try {
        part();
      } catch (const std::exception& error) {
        throw Failure(fmt::format("--resume: '{}': {}", options_.checkpoint,
                                  error.what()));
      }
    });
  };
  named([&] {
    if (ranks_.first()) found = read_checkpoint(options_.checkpoint, content);
  });
  if (ranks_.from_first(found ? "found" : "").empty()) return;
  content = ranks_.from_first(content);
  Checkpoint checkpoint;
  named([&] {
    checkpoint = decode_checkpoint(content);
    check_options(choices(checkpoint.options), choices(options_.decisive));
    if (checkpoint.trainer.steps > options_.steps) {
      throw Failure(
          fmt::format("made after {} steps, expected --steps {} or "
                      "fewer",
                      checkpoint.trainer.steps, options_.steps));
    }
  });
  named([&] { trainer_->restore(checkpoint.trainer); });
  if (checkpoint.summed_apart != summed_apart()) {
    resume_note_ = fmt::format(
        "note: the micro batches of a step are now added in another order\n"
        "(--accumulate {} on {} rank{}):\n"
        "the bits are not those of a run without this change\n",
        options_.accumulate, ranks_.count(), plural(ranks_.count()));
  }
  history_ = std::move(checkpoint.history);
  skipped_ = Summary(history_).skipped();
  ranks_.together([&] {
    log_.emplace(ranks_.first() ? options_.log : "", checkpoint.log);
  });
}

void TrainingRun::save() {
  Checkpoint checkpoint;
  checkpoint.trainer = trainer_->state();
  if (!ranks_.first()) return;
  checkpoint.options = options_.decisive;
  checkpoint.summed_apart = summed_apart();
  checkpoint.log = log_->place();
  checkpoint.history = history_;
  log_->sync();
  AtomicFile file("--checkpoint", options_.checkpoint);
  file.write(encode_checkpoint(checkpoint));
  checkpoint_file_ = file.commit();
}

void TrainingRun::say(const std::string& text) {
  if (!ranks_.first()) return;
  progress_.clear();
  print(text);
}

std::string TrainingRun::header() {
  const MachineConfig chosen = machine_.info().chosen;
  std::string text =
      fmt::format("text {}, {} bytes\n", options_.text, text_.size());
  text += fmt::format("model {} parameters in {}{}\n",
                      trainer_->model().parameter_count(),
                      dtype_name(options_.model.dtype),
                      options_.model.dtype == kFloat32
                          ? ""
                          : " (float32 master weights and main gradients)");
  const Float8Options& float8 = options_.model.float8;
  if (!float8.recipe.empty()) {
    text +=
        fmt::format("linear layers in {}, {}\n", float8.format, float8.recipe);
  }
  text += fmt::format("scaler {}\n", trainer_->scaler_name());
  text += fmt::format("machine {} {}x{}, {}, {}, {}", chosen.machine,
                      chosen.core_groups, chosen.slaves_per_group,
                      chosen.backend, chosen.transfer, chosen.isa);
  if (ranks_.count() > 1) text += fmt::format("; {} ranks", ranks_.count());
  return text + "\n";
}

int TrainingRun::train() {
  const auto start = std::chrono::steady_clock::now();
  int signal = 0;
  while (signal == 0 && trainer_->steps() < options_.steps) {
    signal = step();
    const std::uint64_t done = trainer_->steps();
    if (!options_.checkpoint.empty() &&
        (done % options_.save_interval == 0 || done == options_.steps ||
         signal != 0)) {
      save();
    }
  }
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  if (signal != 0) {
    say(fmt::format("stopped after step {} of {}: {}\n", trainer_->steps(),
                    options_.steps, strsignal(signal)));
  }
  close(taken.count());
  if (ranks_.first() && !options_.plot.empty()) plot();
  return signal;
}

int TrainingRun::step() {
  const StepRecord record = trainer_->step(stop_signal);
  history_.add(record);
  log_->write(record);
  skipped_ += record.skipped ? 1 : 0;
  if (record.step % options_.log_interval == 0 || record.skipped ||
      record.next_scale != record.scale || !record.warning.empty() ||
      record.step == options_.steps) {
    say(step_text(record, options_.steps, skipped_, ranks_.count()));
  }
  if (options_.timing_log_level > 0 &&
      record.step % options_.log_interval == 0) {
    say(trainer_->timers_text(options_.log_interval));
  }
  if (!ranks_.first()) return record.signal;
  progress_.show(fmt::format("step {} of {}, loss {}, scale {}, skipped {}",
                             record.step, options_.steps,
                             loss_text(record.loss), scale_text(record.scale),
                             skipped_));
  return record.signal;
}

void TrainingRun::close(double seconds) {
  const Summary summary(history_);
  const std::uint64_t digest =
      weights_digest(trainer_->model(), trainer_->state());
  const auto share = [&](double part) {
    return seconds > 0 ? 100 * part / seconds : 0.0;
  };
  say(fmt::format(
      "{}"
      "skipped {} of {} step{}\n"
      "final scale {}\n"
      "underflow {} parameter-gradient elements, {} activation-gradient "
      "elements\n"
      "time {:.2f} s, optimizer {:.2f} %, unscale {:.2f} %\n"
      "log {:016x}\n"
      "weights {:016x}\n",
      summary.loss_lines(), summary.skipped(), trainer_->steps(),
      plural(trainer_->steps()), scale_text(trainer_->scale()),
      summary.underflow(), summary.activation_underflow(), seconds,
      share(trainer_->optimizer_seconds()), share(trainer_->unscale_seconds()),
      log_->place().digest, digest));
}

void TrainingRun::plot() {
  const std::string problem = plot_history(
      options_.plot,
      fmt::format("swamp train: {}, {}", dtype_name(options_.model.dtype),
                  trainer_->scaler_name()),
      history_);
  if (!problem.empty()) print_error(fmt::format("swamp: {}", problem));
}

void run_train(const TrainOptions& options, Machine& machine) {
  catch_stop_signals();
  int signal = 0;
  {
    Ranks ranks;
    try {
      if (ranks.first()) warn_of_unknown_variables();
      signal = TrainingRun(options, machine, ranks).run();
    } catch (...) {
      ranks.end_all(std::current_exception());
    }
  }
  if (signal == 0) signal = stop_signal;  // while the plot was drawn
  if (signal == 0) return;
  // A shell then sees what has ended the program.
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

Run add_train(CLI::App& command) {
  const auto arguments = std::make_shared<TrainArguments>();
  arguments->add_to(command);
  command.footer(
      "One line per step: 'skipped: w1[7] + 2 more' means that three elements\n"
      "of the gradients were inf or nan, and where the first was. The last\n"
      "lines are digests of the log and of the weights: the same options give\n"
      "the same.\n"
      "Exit code: 0; 2 for a bad file or option, or if training has diverged.");
  return [arguments, &command](Machine& machine) {
    run_train(arguments->settle(command), machine);
    return 0;
  };
}

}  // namespace swamp::cli
