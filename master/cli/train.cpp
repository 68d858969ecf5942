// `swamp train`: the loop around Trainer, and what it prints.
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstring>

#include "master/cli/command.h"
#include "master/cli/plot.h"
#include "master/cli/summary.h"
#include "master/cli/training_run.h"

namespace swamp::cli {

namespace {

volatile std::sig_atomic_t stop_signal = 0;

void note_signal(int signal) { stop_signal = signal; }

// catch_stop_signals() lets Ctrl-C and SIGTERM end a run after its current
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

}  // namespace

void TrainingRun::say(const std::string& text) {
  if (!ranks_.first()) return;
  progress_.clear();
  print(text);
}

std::string TrainingRun::header() {
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
      trainer_->steps() == 1 ? "" : "s", scale_text(trainer_->scale()),
      summary.underflow(), summary.activation_underflow(), seconds,
      share(trainer_->optimizer_seconds()), share(trainer_->unscale_seconds()),
      log_->place().digest, digest));
}

void TrainingRun::plot() {
  const std::string problem = plot_history(
      options_.plot,
      fmt::format("swamp train: {}, {}", dtype_name(options_.dtype),
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
  // So that a shell sees what has ended the program.
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace swamp::cli
