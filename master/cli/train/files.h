// The files of a run: the text it reads and those it writes.
#ifndef SWAMP_MASTER_CLI_TRAIN_FILES_H_
#define SWAMP_MASTER_CLI_TRAIN_FILES_H_

#include <cstddef>
#include <string>
#include <string_view>
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
  const char* what;
  std::string path;
};

// refuse_same_files() throws Failure if two of the names, none of them empty,
// refer to one file, by any spelling or link. The files need not exist.
void refuse_same_files(const std::vector<FileName>& names);

// AtomicFile appears under its name complete or not at all, even after a loss
// of power: it is written to partial_name(), synced, and renamed. A process
// that is killed leaves at most the partial file, which the next run
// overwrites.
class AtomicFile {
 public:
  static std::string partial_name(const std::string& path) {
    return path + ".partial";
  }

  // Opens the partial file; throws Failure, which names `option`, if it cannot.
  AtomicFile(const char* option, const std::string& path);
  // Removes the partial file, unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  int descriptor() const noexcept { return descriptor_; }

  void write(std::string_view bytes);
  // commit() gives the file its name, and replaces a file of that name.
  void commit();

 private:
  [[noreturn]] void fail() const;

  std::string path_;
  std::string partial_;
  int descriptor_ = -1;
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_FILES_H_
