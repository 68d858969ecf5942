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

// O_NONBLOCK: opening a pipe must not wait for its writer.
OpenFile open_file(const std::string& path, int flags) {
  return OpenFile(open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666));
}

// open_to_lock() opens a file for writing, because NFS locks no other, or, if
// that is not permitted, an existing one for reading.
OpenFile open_to_lock(const std::string& path, int flags = 0) {
  OpenFile file = open_file(path, O_RDWR | O_NOFOLLOW | flags);
  if (file.is_open() || errno != EACCES) return file;
  return open_file(path, O_RDONLY | O_NOFOLLOW);
}

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
std::string identity(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) == 0) return identity_text(status);
  if (errno != ENOENT) return "";
  const std::filesystem::path target = link_target(path);
  if (stat(folder_of(target).c_str(), &status) != 0) return "";
  return identity_text(status) + "/" + target.filename().string();
}

[[noreturn]] void refuse(const std::string& option, const std::string& path,
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
    const OpenFile file = open_to_lock(at->path().string());
    struct stat status;
    if (file.is_open() && fstat(file.descriptor(), &status) == 0 &&
        S_ISREG(status.st_mode) &&
        flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0) {
      unlink(at->path().c_str());
    }
  }
}

}  // namespace

std::string read_text(const std::string& path, std::size_t least) {
  const OpenFile file = open_file(path, O_RDONLY);
  struct stat status;
  if (!file.is_open() || fstat(file.descriptor(), &status) != 0) {
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
    if (errno == ENOSYS || errno == ENOTSUP || errno == ENOLCK) return 0;
    if (errno != EINTR) return errno;
  }
  return 0;
}

void refuse_locked(const FileName& file) {
  throw Failure(
      fmt::format("{}: got '{}', which another run writes, expected another "
                  "name, or the end of that run",
                  file.what, file.path));
}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::string link_target(const std::string& path) {
  constexpr int kMaxLinks = 40;  // as Linux
  std::filesystem::path target = path;
  for (int links = 0; links < kMaxLinks; ++links) {
    std::error_code not_a_link;
    const auto next = std::filesystem::read_symlink(target, not_a_link);
    if (not_a_link) break;
    target = folder_of(target) / next;
  }
  return target.string();
}

OpenFile locked_file(const FileName& file, const std::string& name) {
  OpenFile opened = open_to_lock(name);
  if (opened.is_open() && try_lock(opened.descriptor()) == EWOULDBLOCK) {
    refuse_locked(file);
  }
  return opened;
}

NameLock::NameLock(const FileName& file, const std::string& name)
    : NameLock(lock_name(name)) {
  struct stat status;
  const bool exists = stat(name.c_str(), &status) == 0;
  if (exists ? !S_ISREG(status.st_mode) : errno != ENOENT) return;
  const int problem = open_lock();
  if (problem == EWOULDBLOCK) refuse_locked(file);
  if (problem != 0) {
    refuse(file.what, file.path,
           fmt::format("its lock '{}': {}", name_,
                       problem == EEXIST ? "it is not an empty file"
                                         : std::strerror(problem)));
  }
  locked_file(file, name);
}

int NameLock::open_lock() {
  for (int tries = 0; tries < kMaxTries; ++tries) {
    OpenFile file = open_to_lock(name_, O_CREAT);
    if (!file.is_open()) {
      const bool no_new_file = errno == EROFS || errno == ENOENT ||
                               errno == ENOTDIR || errno == ENAMETOOLONG;
      if (no_new_file) return 0;
      return errno == ELOOP || errno == EISDIR ? EEXIST : errno;
    }
    struct stat status;
    if (fstat(file.descriptor(), &status) != 0) return errno;
    if (!S_ISREG(status.st_mode) || status.st_size != 0) return EEXIST;
    const int problem = try_lock(file.descriptor());
    if (problem != 0) return problem;
    // Another run may have removed it before it was locked.
    if (!has_name(file.descriptor(), name_)) continue;
    lock_ = std::move(file);
    return 0;
  }
  return EAGAIN;
}

NameLock::~NameLock() {
  if (lock_.is_open() && has_name(lock_.descriptor(), name_)) {
    unlink(name_.c_str());
  }
}

AtomicFile::AtomicFile(const char* option, const std::string& path)
    : path_(path) {
  require_replaceable(option, path);
  remove_abandoned(path);
  int problem = open_partial();
  struct stat before;
  struct stat partial;
  if (problem == 0 && stat(path.c_str(), &before) == 0 &&
      fstat(descriptor(), &partial) == 0 &&
      (before.st_mode & 0777) != (partial.st_mode & 0777) &&
      fchmod(descriptor(), before.st_mode & 0777) != 0) {
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
    file_ = open_file(partial_, O_WRONLY | O_CREAT | O_EXCL);
    if (!file_.is_open()) {
      if (errno == EEXIST) continue;
      return errno;
    }
    const int problem = try_lock(descriptor());
    if (problem == 0 && has_name(descriptor(), partial_)) return 0;
    // Another process took it for an abandoned one before it was locked.
    discard();
    if (problem != 0 && problem != EWOULDBLOCK) return problem;
  }
  return EEXIST;
}

void AtomicFile::discard() noexcept {
  if (!file_.is_open()) return;
  unlink(partial_.c_str());
  file_ = OpenFile();
}

void AtomicFile::fail() const {
  throw Failure(
      fmt::format("cannot write '{}': {}", path_, std::strerror(errno)));
}

void AtomicFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor(), bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail();
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

OpenFile AtomicFile::commit() {
  if (fsync(descriptor()) != 0) fail();
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) fail();
  OpenFile file = std::move(file_);
  errno = sync_folder(path_);
  if (errno != 0) fail();
  return file;
}

}  // namespace swamp::cli