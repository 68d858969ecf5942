// How a run begins, goes on where another has ended, and is saved.
#include "master/cli/training_run.h"

#include <fmt/format.h>

#include <functional>

#include "master/cli/atomic_file.h"
#include "master/cli/checkpoint.h"
#include "master/cli/summary.h"
#include "master/cli/text_data.h"

namespace swamp::cli {

int TrainingRun::run() {
  ranks_.together([&] { prepare(); });
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

void TrainingRun::prepare() {
  text_ = read_text(options_.text);
  options_.decisive["text"] =
      fmt::format("of {} bytes, digest {:016x}", text_.size(),
                  add_to_digest(kDigestStart, text_));
  options_.decisive["micro batches in a step"] =
      fmt::to_string(ranks_.count() * options_.accumulate);
  if (ranks_.first()) check_files();
  trainer_.emplace(options_, text_, machine_, ranks_);
}

// check_files() refuses at the beginning what could not be written at the end,
// or would destroy another file.
void TrainingRun::check_files() {
  const FileName written[] = {{"--checkpoint", options_.checkpoint},
                              {"--plot", options_.plot}};
  std::vector<FileName> names = {{"TEXT", options_.text}};
  if (!options_.log.empty()) names.push_back({"--log", options_.log});
  for (const FileName& file : written) {
    if (!file.path.empty()) names.push_back(file);
  }
  for (const FileName& file : written) {
    if (file.path.empty()) continue;
    names.push_back(
        {"a temporary file of swamp's", AtomicFile::partial_name(file.path)});
  }
  refuse_same_files(names);
  if (!options_.checkpoint.empty() && !options_.resume && !options_.overwrite &&
      file_exists("--checkpoint", options_.checkpoint)) {
    throw Failure(
        fmt::format("--checkpoint: got '{}', which exists, expected another "
                    "name, or --resume to go on from it, or --overwrite",
                    options_.checkpoint));
  }
  for (const FileName& file : written) {
    if (!file.path.empty()) AtomicFile probe(file.what, file.path);
  }
}

// summed_apart() is how many micro batches a rank adds up before the ranks'
// sums are added: what decides the bits of a sum of as many. One rank, or one
// micro batch a rank, adds them one after another.
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
  if (checkpoint.summed_apart != 0 &&
      checkpoint.summed_apart != summed_apart()) {
    resume_note_ = fmt::format(
        "note: the micro batches of a step are now added in another order "
        "(--accumulate {} on {} rank{}): "
        "the bits are not those of a run without this change\n",
        options_.accumulate, ranks_.count(), ranks_.count() == 1 ? "" : "s");
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
  file.commit();
}

}  // namespace swamp::cli
