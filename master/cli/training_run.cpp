// How a run begins, goes on where another has ended, and is saved.
#include "master/cli/training_run.h"

#include <fmt/format.h>

#include <functional>

#include "master/cli/atomic_file.h"
#include "master/cli/checkpoint.h"
#include "master/cli/summary.h"
#include "master/cli/text_data.h"

namespace swamp::cli {

void TrainingRun::run() {
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

void TrainingRun::prepare() {
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

void TrainingRun::save() {
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

}  // namespace swamp::cli
