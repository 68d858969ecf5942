#include "master/cli/train/text_data.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "master/cli/command.h"

namespace swamp::cli {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& found) {
  throw Failure(fmt::format(
      "text '{}': {}, expected a readable file of at least {} bytes", path,
      found, kContext + 1));
}

// File closes its descriptor.
class File {
 public:
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  explicit File(const std::string& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

std::string read_all(int descriptor, const std::string& path) {
  std::string bytes;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = read(descriptor, buffer, sizeof buffer);
    if (got == 0) return bytes;
    if (got > 0) {
      bytes.append(buffer, static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      fail(path, std::strerror(errno));
    }
  }
}

}  // namespace

std::string read_text(const std::string& path) {
  const File file(path);
  struct stat status;
  if (file.descriptor() < 0 || fstat(file.descriptor(), &status) != 0) {
    fail(path, std::strerror(errno));
  }
  if (S_ISDIR(status.st_mode)) fail(path, "is a directory");
  if (!S_ISREG(status.st_mode)) fail(path, "is not a regular file");
  std::string text = read_all(file.descriptor(), path);
  if (text.empty()) fail(path, "is empty");
  if (text.size() <= kContext) {
    fail(path, fmt::format("has only {} bytes", text.size()));
  }
  return text;
}

void sample_batch(const std::string& text, std::size_t count, Random& random,
                  Batch& batch) {
  batch.contexts.resize(count * kContext);
  batch.targets.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t start = random.below(text.size() - kContext);
    std::memcpy(&batch.contexts[i * kContext], &text[start], kContext);
    batch.targets[i] = static_cast<std::uint8_t>(text[start + kContext]);
  }
}

}  // namespace swamp::cli
