#include "master/cli/train_log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "master/cli/command.h"
#include "master/cli/json.h"
#include "master/cli/trainer.h"

namespace swamp::cli {
namespace {

// digest_of_start() is the digest of the first `count` bytes of a file; where
// it is shorter, of what there is.
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

// ranks_text() is which rank overflowed, and whose shard it was.
std::string ranks_text(const StepRecord& record) {
  return fmt::format("; {}, in the shard of rank {}",
                     record.overflow_rank < 0
                         ? "only in the sum of the ranks"
                         : fmt::format("of rank {}", record.overflow_rank),
                     record.overflow_owner);
}

}  // namespace

StepLog::StepLog(const std::string& path, const LogPlace& place)
    : path_(path), place_(place) {
  if (path_.empty()) return;
  if (place_.bytes > 0) {
    go_on();
    return;
  }
  file_ = std::fopen(path_.c_str(), "we");
  if (file_ == nullptr) {
    throw Failure(fmt::format("--log: got '{}', expected a writable file: {}",
                              path_, std::strerror(errno)));
  }
}

void StepLog::go_on() {
  const auto refuse = [&](const std::string& found) {
    if (file_ != nullptr) std::fclose(file_);
    throw Failure(
        fmt::format("--log: got '{}', expected the log of the run "
                    "that is resumed: {}",
                    path_, found));
  };
  file_ = std::fopen(path_.c_str(), "r+e");
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
  std::string text =
      fmt::format("step {:>{}}  loss {}  scale {}", record.step,
                  fmt::formatted_size("{}", steps), loss_text(record.loss),
                  scale_text(record.scale));
  if (record.skipped) {
    text += fmt::format(
        "  found_inf 1  skipped  (first in {}[{}], {} element{}{})",
        record.overflow_tensor, record.overflow_index, record.overflow_elements,
        record.overflow_elements == 1 ? "" : "s",
        ranks > 1 ? ranks_text(record) : "");
  } else {
    text += fmt::format("  grad norm {}  skipped so far {}",
                        loss_text(record.grad_norm), skipped);
  }
  if (record.next_scale != record.scale) {
    text += fmt::format("  next scale {}", scale_text(record.next_scale));
  }
  if (!record.warning.empty()) text += fmt::format("  {}", record.warning);
  return text + "\n";
}

std::string loss_text(double loss) {
  return std::isnan(loss) ? "nan" : fmt::format("{:.4f}", loss);
}

}  // namespace swamp::cli
