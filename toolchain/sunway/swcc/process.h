#ifndef SWAMP_TOOLCHAIN_SWCC_PROCESS_H_
#define SWAMP_TOOLCHAIN_SWCC_PROCESS_H_

#include <string>

#include "toolchain/sunway/swcc/options.h"

namespace swcc {

// run() runs a program to its end and returns its exit code. What it says on
// stderr goes to `errors`, where that is a file.
int run(const Words& command, const std::string& errors = "");
// run_or_exit() ends swcc with the program's exit code when that is not 0.
void run_or_exit(const Words& command);
// leave() ends swcc with an error.
[[noreturn]] void leave(int code);
// remove_on_failure() names the output file, a regular one, to be removed if
// swcc ends with an error; "" for none any more.
void remove_on_failure(const std::string& file);
// become() is run() in this process's place.
[[noreturn]] void become(const Words& command);

// Folder is a temporary folder, removed with what it holds.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // file() is a new name in it, that ends as asked.
  std::string file(const std::string& ending);

 private:
  std::string path_;
  int count_ = 0;
};

// folder() is swcc's own, removed when it ends.
Folder& folder();

std::string read_file(const std::string& name);
void write_file(const std::string& name, const std::string& content);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_PROCESS_H_
