#include "master/cli/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "master/cli/command.h"

namespace swamp::cli {
namespace {

// sync_folder() makes the rename last. A file system that cannot sync a folder
// has said all it can.
void sync_folder(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  const int descriptor =
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);
  close(descriptor);
}

}  // namespace

AtomicFile::AtomicFile(const char* option, const std::string& path)
    : path_(path), partial_(path + ".partial") {
  const auto refuse = [&](const char* found) {
    throw Failure(fmt::format("{}: got '{}', expected a writable file: {}",
                              option, path, found));
  };
  std::error_code none;
  const auto status = std::filesystem::status(path, none);
  if (std::filesystem::exists(status) &&
      !std::filesystem::is_regular_file(status)) {
    refuse("it is no regular file");
  }
  descriptor_ =
      open(partial_.c_str(),
           O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) refuse(std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(partial_.c_str());
}

void AtomicFile::fail() const {
  throw Failure(
      fmt::format("cannot write '{}': {}", path_, std::strerror(errno)));
}

void AtomicFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail();
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (fsync(descriptor_) != 0) fail();
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) fail();
  close(descriptor_);
  descriptor_ = -1;
  sync_folder(path_);
}

}  // namespace swamp::cli
