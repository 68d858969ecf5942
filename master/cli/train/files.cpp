// Files that are read completely, and files that appear completely or not at
// all: written beside their name, synced, renamed, and the folder synced.
#include "master/cli/train/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>

#include "master/cli/command.h"

namespace swamp::cli {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& found,
                       std::size_t least) {
  throw Failure(fmt::format(
      "text '{}': {}, expected a readable file{}", path, found,
      least == 0 ? "" : fmt::format(" of at least {} bytes", least)));
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

std::string read_all(int descriptor, const std::string& path,
                     std::size_t least) {
  std::string bytes;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = read(descriptor, buffer, sizeof buffer);
    if (got == 0) return bytes;
    if (got > 0) {
      bytes.append(buffer, static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      fail(path, std::strerror(errno), least);
    }
  }
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

// sync_folder() makes the rename durable; returns 0 or errno. A folder
// without read permission, or a file system that cannot sync folders, is not an
// error.
int sync_folder(const std::string& path) {
  const int descriptor =
      open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno == EACCES ? 0 : errno;
  const int problem = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  return problem == EINVAL || problem == ENOTSUP ? 0 : problem;
}

std::string identity_text(const struct stat& status) {
  return fmt::format("{}:{}", status.st_dev, status.st_ino);
}

// identity() is the same text for all names of one file: device and inode, or,
// if there is no file yet, those of its folder and its last name. It is empty
// if a file of that name can neither be read nor made.
std::string identity(std::filesystem::path path) {
  constexpr int kMaxLinks = 40;  // as Linux
  struct stat status;
  for (int links = 0; links < kMaxLinks; ++links) {
    if (stat(path.c_str(), &status) == 0) return identity_text(status);
    if (errno != ENOENT) return "";
    std::error_code not_a_link;
    const auto target = std::filesystem::read_symlink(path, not_a_link);
    if (not_a_link) break;
    path = folder_of(path) / target;
  }
  if (stat(folder_of(path).c_str(), &status) != 0) return "";
  return identity_text(status) + "/" + path.filename().string();
}

[[noreturn]] void refuse(const char* option, const std::string& path,
                         const char* found) {
  throw Failure(fmt::format("{}: got '{}', expected a writable file: {}",
                            option, path, found));
}

}  // namespace

std::string read_text(const std::string& path, std::size_t least) {
  const File file(path);
  struct stat status;
  if (file.descriptor() < 0 || fstat(file.descriptor(), &status) != 0) {
    fail(path, std::strerror(errno), least);
  }
  if (S_ISDIR(status.st_mode)) fail(path, "is a directory", least);
  if (!S_ISREG(status.st_mode)) fail(path, "is not a regular file", least);
  std::string text = read_all(file.descriptor(), path, least);
  if (text.size() < least) {
    fail(path,
         text.empty() ? "is empty"
                      : fmt::format("has only {} bytes", text.size()),
         least);
  }
  return text;
}

bool file_exists(const char* option, const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) == 0) return true;
  if (errno == ENOENT) return false;
  refuse(option, path, std::strerror(errno));
}

void refuse_same_files(const std::vector<FileName>& names) {
  std::map<std::string, const FileName*> seen;
  for (const FileName& name : names) {
    const std::string file = identity(name.path);
    if (file.empty()) continue;  // opening it gives the reason
    const auto [first, is_new] = seen.emplace(file, &name);
    if (is_new) continue;
    throw Failure(fmt::format(
        "{}: got '{}', the same file as {} '{}', expected another file",
        name.what, name.path, first->second->what, first->second->path));
  }
}

AtomicFile::AtomicFile(const char* option, const std::string& path)
    : path_(path), partial_(partial_name(path)) {
  if (file_exists(option, path) && !std::filesystem::is_regular_file(path)) {
    refuse(option, path, "it is not a regular file");
  }
  descriptor_ =
      open(partial_.c_str(),
           O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) refuse(option, path, std::strerror(errno));
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
  errno = sync_folder(path_);
  if (errno != 0) fail();
}

}  // namespace swamp::cli