// Files that are read completely, and files that appear completely or not at
// all: written beside their name, synced, renamed, and the folder synced. Locks
// (flock) show which files are in use: the kernel frees the locks of a process
// that is killed, so that what it left is recognised and blocks no other one.
#include "master/cli/train/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

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
  explicit File(const std::string& path, int flags = 0)
      : descriptor_(
            open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags)) {}
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
                         const std::string& found) {
  throw Failure(fmt::format("{}: got '{}', expected a writable file: {}",
                            option, path, found));
}

// Throws Failure unless `path` is free or a regular file.
void require_replaceable(const char* option, const std::string& path) {
  if (file_exists(option, path) && !std::filesystem::is_regular_file(path)) {
    refuse(option, path, "it is not a regular file");
  }
}

// has_name() returns whether `path` still is the name of an open file.
bool has_name(int descriptor, const std::string& path) {
  struct stat opened;
  struct stat named;
  return fstat(descriptor, &opened) == 0 && lstat(path.c_str(), &named) == 0 &&
         identity_text(opened) == identity_text(named);
}

// Attempts to lock a file that other runs may remove.
constexpr int kMaxTries = 100;

constexpr char kPartial[] = ".partial-";
constexpr std::size_t kRandomDigits = 8;

std::string partial_name(const std::string& path) {
  return fmt::format("{}{}{:0{}x}", path, kPartial,
                     std::random_device()() & 0xffffffffu, kRandomDigits);
}

// remove_abandoned() removes the files of AtomicFiles of this name whose
// process was killed: their locks are free.
void remove_abandoned(const std::string& path) {
  const std::string begin =
      std::filesystem::path(path).filename().string() + kPartial;
  std::error_code ended;  // also without permission to read the folder
  for (std::filesystem::directory_iterator at(folder_of(path), ended), end;
       !ended && at != end; at.increment(ended)) {
    const std::string name = at->path().filename().string();
    if (name.size() != begin.size() + kRandomDigits ||
        name.compare(0, begin.size(), begin) != 0 ||
        name.find_first_not_of("0123456789abcdef", begin.size()) !=
            std::string::npos) {
      continue;
    }
    const File file(at->path().string(), O_NOFOLLOW);
    struct stat status;
    if (file.descriptor() >= 0 && fstat(file.descriptor(), &status) == 0 &&
        S_ISREG(status.st_mode) &&
        flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0) {
      unlink(at->path().c_str());
    }
  }
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

int try_lock(int descriptor) {
  struct stat status;
  if (fstat(descriptor, &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) return 0;
  while (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == ENOSYS || errno == ENOTSUP) return 0;
    if (errno != EINTR) return errno;
  }
  return 0;
}

void refuse_locked(const char* option, const std::string& path) {
  throw Failure(
      fmt::format("{}: got '{}', which another run writes, expected another "
                  "name, or the end of that run",
                  option, path));
}

NameLock::NameLock(const char* option, const std::string& path)
    : name_(lock_name(path)) {
  require_replaceable(option, path);
  const auto fail = [&](const char* found) {
    if (descriptor_ >= 0) close(descriptor_);
    refuse(option, path, fmt::format("its lock '{}': {}", name_, found));
  };
  for (int tries = 0; tries < kMaxTries; ++tries) {
    descriptor_ =
        open(name_.c_str(),
             O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    struct stat status;
    if (descriptor_ < 0 || fstat(descriptor_, &status) != 0) {
      fail(std::strerror(errno));
    }
    if (!S_ISREG(status.st_mode) || status.st_size != 0) {
      fail("it is not an empty file");
    }
    const int problem = try_lock(descriptor_);
    // Another run may have removed it before it was locked.
    if (problem == 0 && has_name(descriptor_, name_)) return;
    if (problem != 0 && problem != EWOULDBLOCK) fail(std::strerror(problem));
    close(descriptor_);
    if (problem == EWOULDBLOCK) refuse_locked(option, path);
  }
  descriptor_ = -1;
  fail("other runs remove it");
}

NameLock::~NameLock() {
  if (has_name(descriptor_, name_)) unlink(name_.c_str());
  close(descriptor_);
}

AtomicFile::AtomicFile(const char* option, const std::string& path)
    : path_(path) {
  require_replaceable(option, path);
  remove_abandoned(path);
  int problem = open_partial();
  struct stat before;
  struct stat partial;
  if (problem == 0 && stat(path.c_str(), &before) == 0 &&
      fstat(descriptor_, &partial) == 0 &&
      (before.st_mode & 0777) != (partial.st_mode & 0777) &&
      fchmod(descriptor_, before.st_mode & 0777) != 0) {
    problem = errno;
  }
  if (problem == 0) return;
  discard();
  refuse(option, path, std::strerror(problem));
}

AtomicFile::~AtomicFile() { discard(); }

int AtomicFile::open_partial() {
  for (int tries = 0; tries < kMaxTries; ++tries) {
    partial_ = partial_name(path_);
    descriptor_ =
        open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      if (errno == EEXIST) continue;
      return errno;
    }
    const int problem = try_lock(descriptor_);
    if (problem == 0 && has_name(descriptor_, partial_)) return 0;
    // Another process took it for an abandoned one before it was locked.
    discard();
    if (problem != 0 && problem != EWOULDBLOCK) return problem;
  }
  return EEXIST;
}

void AtomicFile::discard() noexcept {
  if (descriptor_ < 0) return;
  unlink(partial_.c_str());
  close(descriptor_);
  descriptor_ = -1;
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