// A line of JSON for each step, whose length and digest a checkpoint holds, so
// that a resumed run continues the same file; and the lines and sums that the
// user sees.
#include "master/cli/train/log.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>

#include "master/cli/command.h"
#include "master/cli/json.h"
#include "master/cli/train/files.h"

namespace swamp::cli {
namespace {

// digest_of_start() is the digest of the first `count` bytes of a file, or of
// all of it if it is shorter.
std::uint64_t digest_of_start(std::FILE* file, std::uint64_t count) {
  std::uint64_t digest = kDigestStart;
  char buffer[1 << 14];
  while (count > 0) {
    const std::size_t got = std::fread(
        buffer, 1, std::min<std::uint64_t>(sizeof buffer, count), file);
    if (got == 0) break;
    digest = add_to_digest(digest, {buffer, got});
    count -= got;
  }
  return digest;
}

std::string step_json(const StepRecord& record) {
  Json json;
  json["step"] = record.step;
  json["loss"] = json_number(record.loss);
  json["scale"] = json_number(record.scale);
  json["grad_norm"] = record.skipped ? Json() : json_number(record.grad_norm);
  json["found_inf"] = record.skipped ? 1.0 : 0.0;
  json["skipped"] = record.skipped;
  json["underflow"] = record.underflow;
  json["activation_underflow"] = record.activation_underflow;
  if (record.overflow_elements > 0) {
    json["overflow_tensor"] = record.overflow_tensor;
    json["overflow_index"] = record.overflow_index;
    json["overflow_elements"] = record.overflow_elements;
  }
  return json_line(json);
}

// ranks_text() names the rank that overflowed and the owner of the shard.
std::string ranks_text(const StepRecord& record) {
  return fmt::format("{}, in the shard of rank {}",
                     record.overflow_rank < 0
                         ? "only in the sum of the ranks"
                         : fmt::format("of rank {}", record.overflow_rank),
                     record.overflow_owner);
}

// open_log() opens a log and locks it; only then it empties a new one, because
// it may be that of another run. Returns null and sets errno if it cannot.
// Throws Failure if another run writes it.
std::FILE* open_log(const std::string& path, bool is_new) {
  const int descriptor = open(
      path.c_str(), (is_new ? O_WRONLY | O_CREAT : O_RDWR) | O_CLOEXEC, 0666);
  if (descriptor < 0) return nullptr;
  int problem = try_lock(descriptor);
  if (problem == EWOULDBLOCK) {
    close(descriptor);
    refuse_locked({"--log", path});
  }
  // Devices and pipes have no length.
  if (problem == 0 && is_new && ftruncate(descriptor, 0) != 0 &&
      errno != EINVAL) {
    problem = errno;
  }
  std::FILE* const file =
      problem == 0 ? fdopen(descriptor, is_new ? "w" : "r+") : nullptr;
  if (file != nullptr) return file;
  close(descriptor);
  if (problem != 0) errno = problem;
  return nullptr;
}

constexpr std::size_t kIndent = 10;  // of the lines that continue a step

}  // namespace

StepLog::StepLog(const std::string& path, const LogPlace& place)
    : path_(path), place_(place) {
  if (path_.empty()) return;
  if (place_.bytes > 0) {
    resume();
    return;
  }
  file_ = open_log(path_, true);
  if (file_ == nullptr) {
    throw Failure(fmt::format("--log: got '{}', expected a writable file: {}",
                              path_, std::strerror(errno)));
  }
}

void StepLog::resume() {
  const auto refuse = [&](const std::string& found) {
    if (file_ != nullptr) std::fclose(file_);
    throw Failure(
        fmt::format("--log: got '{}', expected the log of the run "
                    "that is resumed: {}",
                    path_, found));
  };
  file_ = open_log(path_, false);
  if (file_ == nullptr) refuse(std::strerror(errno));
  if (digest_of_start(file_, place_.bytes) != place_.digest) {
    refuse(fmt::format("its first {} bytes differ", place_.bytes));
  }
  const auto end = static_cast<off_t>(place_.bytes);
  if (ftruncate(fileno(file_), end) != 0 || fseeko(file_, end, SEEK_SET) != 0) {
    refuse(std::strerror(errno));
  }
}

StepLog::~StepLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void StepLog::fail() const {
  throw Failure(
      fmt::format("cannot write to '{}': {}", path_, std::strerror(errno)));
}

void StepLog::write(const StepRecord& record) {
  const std::string line = step_json(record) + "\n";
  place_.bytes += line.size();
  place_.digest = add_to_digest(place_.digest, line);
  if (file_ == nullptr) return;
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() ||
      std::fflush(file_) != 0) {
    fail();
  }
}

void StepLog::sync() {
  // A pipe or a terminal has no disk.
  if (file_ == nullptr || fsync(fileno(file_)) == 0) return;
  if (errno != EINVAL && errno != EROFS) fail();
}

std::string step_text(const StepRecord& record, std::uint64_t steps,
                      std::uint64_t skipped, std::size_t ranks) {
  std::vector<std::string> fields = {
      fmt::format("step {:>{}}", record.step, std::to_string(steps).size()),
      "loss " + loss_text(record.loss), "scale " + scale_text(record.scale)};
  if (record.next_scale != record.scale) {
    fields.back() += " -> " + scale_text(record.next_scale);
  }
  if (!record.skipped) {
    fields.push_back("grad norm " + loss_text(record.grad_norm));
    fields.push_back(fmt::format("skipped so far {}", skipped));
  } else if (record.overflow_elements == 0) {
    fields.emplace_back("skipped");
  } else {
    fields.push_back(fmt::format("skipped: {}[{}]", record.overflow_tensor,
                                 record.overflow_index));
    if (record.overflow_elements > 1) {
      fields.back() += fmt::format(" + {} more", record.overflow_elements - 1);
    }
    if (ranks > 1) fields.push_back(ranks_text(record));
  }
  std::string text = wrapped_fields(fields, kIndent) + "\n";
  if (record.warning.empty()) return text;
  const std::string warning = std::string(kIndent, ' ') + record.warning;
  return text + wrapped(warning, kColumns, kIndent) + "\n";
}

std::string loss_text(double loss) {
  return std::isnan(loss) ? "nan" : fmt::format("{:.4f}", loss);
}

std::string scale_text(double scale) {
  int exponent = 0;
  if (std::frexp(scale, &exponent) == 0.5) {
    return fmt::format("2^{}", exponent - 1);
  }
  return fmt::format("{}", scale);
}

Summary::Summary(const History& history) {
  for (std::size_t i = 0; i < history.steps(); ++i) {
    underflow_ += history.underflow(i);
    activation_underflow_ += history.activation_underflow(i);
    add_loss(i + 1, history.loss(i), history.skipped(i));
  }
}

void Summary::add_loss(std::uint64_t step, double loss, bool skipped) {
  // A scale that is too large spoils gradients only. A loss that is not finite
  // comes from the weights, whether the step is skipped or taken.
  const bool finite = std::isfinite(loss);
  if (finite) {
    diverged_from_ = 0;
  } else if (diverged_from_ == 0) {
    diverged_from_ = step;
  }
  if (skipped) {
    ++skipped_;
    return;
  }
  if (!finite && diverged_taken_++ == 0) diverged_first_ = step;
  last_losses_.push_back(loss);
  if (last_losses_.size() > kFinalSteps) last_losses_.pop_front();
}

std::string Summary::final_loss_line() const {
  const std::size_t count = last_losses_.size();
  if (count == 0) return "final loss none: every step was skipped\n";
  const double sum =
      std::accumulate(last_losses_.begin(), last_losses_.end(), 0.0);
  return fmt::format("final loss {} (mean of the last {} step{} taken)\n",
                     loss_text(sum / static_cast<double>(count)), count,
                     plural(count));
}

std::string Summary::loss_lines() const {
  std::string text = final_loss_line();
  if (diverged_from_ != 0) {
    text += fmt::format("the loss was not finite from step {} on\n",
                        diverged_from_);
  } else if (diverged_taken_ != 0) {
    text += fmt::format(
        "the loss was not finite in {} step{} taken, first in step {}\n",
        diverged_taken_, plural(diverged_taken_), diverged_first_);
  }
  return text;
}

}  // namespace swamp::cli
