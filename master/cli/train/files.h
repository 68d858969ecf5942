// The files of a run: the text it reads and those it writes.
#ifndef SWAMP_MASTER_CLI_TRAIN_FILES_H_
#define SWAMP_MASTER_CLI_TRAIN_FILES_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace swamp::cli {

// read_text() returns the bytes of a regular file of at least `least` bytes.
// Throws Failure for anything else.
std::string read_text(const std::string& path, std::size_t least);

// file_exists() returns false only if the system says that there is no such
// file. For any other error it throws Failure, which names `option`, so that
// nothing is overwritten because it could not be seen.
bool file_exists(const char* option, const std::string& path);

// FileName is the path of a file and what a message calls it.
struct FileName {
  std::string what;
  std::string path;
};

// refuse_same_files() throws Failure if two of the names, none of them empty,
// refer to one file, by any spelling or link. The files need not exist.
void refuse_same_files(const std::vector<FileName>& names);

// try_lock() locks an open file until it is closed, which the kernel does for a
// process that is killed. Returns 0 or errno, EWOULDBLOCK if another process
// has the lock. Also returns 0 for devices and pipes, which are not locked, and
// on a file system without locks, as NFS without its lock service: a run must
// not end because a server lacks them.
int try_lock(int descriptor);

// refuse_locked() throws Failure: another run writes the file.
[[noreturn]] void refuse_locked(const FileName& file);

// OpenFile closes its descriptor, which also frees its lock.
class OpenFile {
 public:
  explicit OpenFile(int descriptor = -1) noexcept : descriptor_(descriptor) {}
  ~OpenFile();
  OpenFile(OpenFile&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  OpenFile& operator=(OpenFile&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  bool is_open() const noexcept { return descriptor_ >= 0; }
  int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

// locked_file() opens and locks the regular file of a name; the result is not
// open if there is none. Throws Failure, which names `file`, if another process
// has the lock.
OpenFile locked_file(const FileName& file, const std::string& name);

// link_target() returns the name that opening `path` leads to, through the
// symbolic links of its last part.
std::string link_target(const std::string& path);

// NameLock keeps other runs from a name, whether they would write to its file
// or replace it. The lock is on a file of its own, lock_name(), because a file
// that is replaced becomes another one. A process that is killed leaves that
// file, without a lock.
class NameLock {
 public:
  static std::string lock_name(const std::string& path) {
    return path + ".lock";
  }

  // Throws Failure, which names `file`, if another process has the lock of
  // `name` or has locked its file, or if lock_name() is not an empty file,
  // which only swamp makes. Locks nothing if `name` is a device, a pipe or a
  // folder, or if its folder takes no new file, so that no run can replace the
  // file either.
  NameLock(const FileName& file, const std::string& name);
  // Removes the file of the lock.
  ~NameLock();
  NameLock(const NameLock&) = delete;
  NameLock& operator=(const NameLock&) = delete;

 private:
  explicit NameLock(std::string lock) : name_(std::move(lock)) {}
  // Returns 0 or errno, EEXIST if it is not an empty file.
  int open_lock();

  std::string name_;
  OpenFile lock_;
};

// AtomicFile appears under its name complete or not at all, even after a loss
// of power: it is written to a file that no other process writes, beside the
// name, synced, and renamed. It has the permissions of the file that it
// replaces. A process that is killed leaves that file; the next AtomicFile of
// the same name removes it.
class AtomicFile {
 public:
  // Opens the file; throws Failure, which names `option`, if it cannot.
  AtomicFile(const char* option, const std::string& path);
  // Removes it, unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  int descriptor() const noexcept { return file_.descriptor(); }

  void write(std::string_view bytes);
  // commit() gives the file its name, and replaces a file of that name. Returns
  // the file, which is locked.
  OpenFile commit();

 private:
  // Returns 0 or errno.
  int open_partial();
  void discard() noexcept;
  [[noreturn]] void fail() const;

  std::string path_;
  std::string partial_;  // the name until commit()
  OpenFile file_;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_FILES_H_
