// `swamp train`: the loop around Trainer, and what it prints.
#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "master/cli/atomic_file.h"
#include "master/cli/checkpoint.h"
#include "master/cli/command.h"
#include "master/cli/console.h"
#include "master/cli/plot.h"
#include "master/cli/ranks.h"
#include "master/cli/summary.h"
#include "master/cli/text_data.h"
#include "master/cli/train_log.h"
#include "master/cli/trainer.h"

namespace swamp::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Run is one run of the program: files and stdout are the first rank's.
class Run {
 public:
  Run(const TrainOptions& options, Machine& machine, Ranks& ranks)
      : options_(options), machine_(machine), ranks_(ranks) {}

  void run();

 private:
  void prepare();
  void resume();
  void say(const std::string& text);
  std::string header();
  void train();
  void step();
  void save();
  void close(double seconds);
  void plot();

  TrainOptions options_;
  Machine& machine_;
  Ranks& ranks_;
  std::string text_;
  std::optional<Trainer> trainer_;
  std::optional<StepLog> log_;
  History history_;
  std::uint64_t skipped_ = 0;
  Progress progress_;
};

void Run::run() {
  ranks_.together([&] { prepare(); });
  if (options_.resume) resume();
  if (!log_) {
    ranks_.together([&] {
      log_.emplace(ranks_.first() ? options_.log : "", options_.text);
    });
  }
  say(header());
  if (trainer_->steps() > 0) {
    say(fmt::format("resumed after step {}\n", trainer_->steps()));
  } else if (options_.resume) {
    say(fmt::format("no checkpoint '{}' yet: from the beginning\n",
                    options_.checkpoint));
  }
  train();
}

void Run::prepare() {
  text_ = read_text(options_.text);
  options_.decisive["text"] =
      fmt::format("of {} bytes, digest {:016x}", text_.size(),
                  add_to_digest(kDigestStart, text_));
  options_.decisive["micro batches in a step"] =
      fmt::to_string(ranks_.count() * options_.accumulate);
  if (ranks_.first()) {
    // What cannot be written at the end is said at the beginning.
    for (const auto& [option, path] :
         {std::pair("--checkpoint", options_.checkpoint),
          std::pair("--plot", options_.plot)}) {
      if (path.empty()) continue;
      refuse_text(option, path, options_.text);
      AtomicFile probe(option, path);
    }
  }
  trainer_.emplace(options_, text_, machine_, ranks_);
}

void Run::resume() {
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
  // One that is there is never empty: a length that is not good is an error.
  if (ranks_.from_first(found ? "found" : "").empty()) return;
  content = ranks_.from_first(content);
  Checkpoint checkpoint;
  named([&] {
    checkpoint = decode_checkpoint(content);
    check_options(checkpoint.options, options_.decisive);
    if (checkpoint.trainer.steps > options_.steps) {
      throw Failure(
          fmt::format("made after {} steps, expected --steps {} or "
                      "fewer",
                      checkpoint.trainer.steps, options_.steps));
    }
  });
  named([&] { trainer_->restore(checkpoint.trainer); });
  history_ = std::move(checkpoint.history);
  skipped_ = Summary(history_).skipped();
  ranks_.together([&] {
    log_.emplace(ranks_.first() ? options_.log : "", options_.text,
                 checkpoint.log);
  });
}

void Run::say(const std::string& text) {
  if (!ranks_.first()) return;
  progress_.clear();
  print(text);
}

std::string Run::header() {
  const MachineConfig chosen = machine_.info().chosen;
  std::string ranks;
  if (ranks_.count() > 1) ranks = fmt::format("{} ranks; ", ranks_.count());
  return fmt::format(
      "text {}, {} bytes; {} parameters in {}{}; scaler {}; {}machine {} "
      "{}x{}, {}, {}, {}\n",
      options_.text, text_.size(), trainer_->model().parameter_count(),
      dtype_name(options_.dtype),
      options_.dtype == kFloat32
          ? ""
          : " (float32 master weights and main gradients)",
      trainer_->scaler_name(), ranks, chosen.machine, chosen.core_groups,
      chosen.slaves_per_group, chosen.backend, chosen.transfer, chosen.isa);
}

void Run::train() {
  const auto start = Clock::now();
  while (trainer_->steps() < options_.steps) {
    step();
    const std::uint64_t done = trainer_->steps();
    if (!options_.checkpoint.empty() &&
        (done % options_.save_interval == 0 || done == options_.steps)) {
      save();
    }
  }
  const std::chrono::duration<double> taken = Clock::now() - start;
  close(taken.count());
  if (ranks_.first() && !options_.plot.empty()) plot();
}

void Run::step() {
  const StepRecord record = trainer_->step();
  history_.add(record);
  log_->write(record);
  skipped_ += record.skipped ? 1 : 0;
  if (record.step % options_.log_interval == 0 || record.skipped ||
      record.next_scale != record.scale || !record.warning.empty() ||
      record.step == options_.steps) {
    say(step_text(record, options_.steps, skipped_));
  }
  if (!ranks_.first()) return;
  progress_.show(fmt::format("step {} of {}, loss {}, scale {}, skipped {}",
                             record.step, options_.steps,
                             loss_text(record.loss), scale_text(record.scale),
                             skipped_));
}

void Run::save() {
  Checkpoint checkpoint;
  checkpoint.trainer = trainer_->state();
  if (!ranks_.first()) return;
  checkpoint.options = options_.decisive;
  checkpoint.log = log_->place();
  checkpoint.history = history_;
  log_->sync();
  AtomicFile file("--checkpoint", options_.checkpoint);
  file.write(encode_checkpoint(checkpoint));
  file.commit();
}

void Run::close(double seconds) {
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
      summary.loss_lines(), summary.skipped(), options_.steps,
      options_.steps == 1 ? "" : "s", scale_text(trainer_->scale()),
      summary.underflow(), summary.activation_underflow(), seconds,
      share(trainer_->optimizer_seconds()), share(trainer_->unscale_seconds()),
      log_->place().digest, digest));
}

void Run::plot() {
  const std::string problem = plot_history(
      options_.plot,
      fmt::format("swamp train: {}, {}", dtype_name(options_.dtype),
                  trainer_->scaler_name()),
      history_);
  if (!problem.empty()) print_error(fmt::format("swamp: {}", problem));
}

}  // namespace

void run_train(const TrainOptions& options, Machine& machine) {
  Ranks ranks;
  try {
    Run(options, machine, ranks).run();
  } catch (...) {
    ranks.end_all(std::current_exception());
  }
}

}  // namespace swamp::cli
