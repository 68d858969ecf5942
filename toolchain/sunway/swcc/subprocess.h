#ifndef SWAMP_TOOLCHAIN_SWCC_SUBPROCESS_H_
#define SWAMP_TOOLCHAIN_SWCC_SUBPROCESS_H_

#include <string>

#include "toolchain/sunway/swcc/options.h"

namespace swcc {

// run() runs a program to its end and returns its exit code. If `errors` is not
// empty, the program's stderr goes to that file.
int run(const Words& command, const std::string& errors = "");
// run_or_exit() ends swcc with the program's exit code if that is not 0.
void run_or_exit(const Words& command);
// leave() ends swcc with an error.
[[noreturn]] void leave(int code);
// remove_on_failure() sets the regular file that is removed if swcc ends with
// an error; "" for none.
void remove_on_failure(const std::string& file);
// become() replaces this process by the program.
[[noreturn]] void become(const Words& command);

// temporary_file() returns a new file name with this ending, in a folder that
// is removed when swcc ends.
std::string temporary_file(const std::string& ending);

// Places are the folders of swcc's headers and library, found relative to the
// executable, so that the installed tree may be moved.
struct Places {
  std::string include;
  std::string library;
};
const Places& places();

bool file_exists(const std::string& name);
std::string read_file(const std::string& name);
void write_file(const std::string& name, const std::string& content);

}  // namespace swcc

#endif  // SWAMP_TOOLCHAIN_SWCC_SUBPROCESS_H_
