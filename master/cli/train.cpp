// `swamp train`: the loop around Trainer, and what it prints.
#include <fmt/format.h>

#include <chrono>

#include "master/cli/command.h"
#include "master/cli/console.h"
#include "master/cli/text_data.h"
#include "master/cli/train_log.h"
#include "master/cli/trainer.h"

namespace swamp::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string header(const TrainOptions& options, const std::string& text,
                   const Trainer& trainer, const Machine& machine) {
  const MachineConfig chosen = machine.info().chosen;
  return fmt::format(
      "text {}, {} bytes; {} parameters in {}{}; machine {} {}x{}, {}, {}, "
      "{}\n",
      options.text, text.size(), trainer.model().parameter_count(),
      dtype_name(options.dtype),
      options.dtype == kFloat32
          ? ""
          : " (float32 master weights and main gradients)",
      chosen.machine, chosen.core_groups, chosen.slaves_per_group,
      chosen.backend, chosen.transfer, chosen.isa);
}

bool worth_a_line(const StepRecord& record, const TrainOptions& options) {
  return record.step % options.log_interval == 0 || record.skipped ||
         record.next_scale != record.scale || record.step == options.steps;
}

std::string closing(const Summary& summary, const TrainOptions& options,
                    Trainer& trainer, double seconds) {
  const double share =
      seconds > 0 ? 100 * trainer.unscale_seconds() / seconds : 0.0;
  return fmt::format(
      "{}"
      "skipped {} of {} step{}\n"
      "final scale {}\n"
      "underflow {} parameter-gradient elements, {} activation-gradient "
      "elements\n"
      "time {:.2f} s, unscale {:.2f} %\n"
      "weights {:016x}\n",
      summary.loss_lines(), summary.skipped(), options.steps,
      options.steps == 1 ? "" : "s", scale_text(trainer.scale()),
      summary.underflow(), summary.activation_underflow(), seconds, share,
      trainer.weights_digest());
}

}  // namespace

void run_train(const TrainOptions& options, Machine& machine) {
  const std::string text = read_text(options.text);
  StepLog log(options.log, options.text);
  Trainer trainer(options, text, machine);
  Summary summary;
  Progress progress;
  print(header(options, text, trainer, machine));

  const auto start = Clock::now();
  for (std::uint64_t step = 1; step <= options.steps; ++step) {
    const StepRecord record = trainer.step();
    summary.add(record);
    log.write(record);
    if (worth_a_line(record, options)) {
      progress.clear();
      print(step_text(record, options.steps));
    }
    progress.show(fmt::format("step {} of {}, loss {}", step, options.steps,
                              loss_text(record.loss)));
  }
  const std::chrono::duration<double> taken = Clock::now() - start;
  progress.clear();
  print(closing(summary, options, trainer, taken.count()));
}

}  // namespace swamp::cli
