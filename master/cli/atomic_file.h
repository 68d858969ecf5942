#ifndef SWAMP_MASTER_CLI_ATOMIC_FILE_H_
#define SWAMP_MASTER_CLI_ATOMIC_FILE_H_

#include <string>
#include <string_view>

namespace swamp::cli {

// AtomicFile becomes the file of its name at once, whole, or not at all, even
// where the machine loses power: it is written beside it under the name with
// ".partial", synced, and renamed. A process that is killed leaves at most that
// one, which the next overwrites.
class AtomicFile {
 public:
  // Opens the partial file; throws Failure, that names `option`, where it
  // cannot.
  AtomicFile(const char* option, const std::string& path);
  // Removes the partial file, unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  int descriptor() const noexcept { return descriptor_; }

  void write(std::string_view bytes);
  // commit() gives the file its name, in the place of the one that had it.
  void commit();

 private:
  [[noreturn]] void fail() const;

  std::string path_;
  std::string partial_;
  int descriptor_ = -1;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_ATOMIC_FILE_H_
