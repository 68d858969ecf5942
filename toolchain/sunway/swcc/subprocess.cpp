#include "toolchain/sunway/swcc/subprocess.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

extern char** environ;

namespace swcc {
namespace {

namespace fs = std::filesystem;

std::string unfinished;  // of remove_on_failure()

std::vector<char*> pointers(const Words& command) {
  std::vector<char*> list;
  for (const std::string& word : command) {
    list.push_back(const_cast<char*>(word.c_str()));
  }
  list.push_back(nullptr);
  return list;
}

struct Folder {
  Folder() {
    std::error_code error;
    path = (fs::temp_directory_path(error) / "swcc-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) {
      fail(path + ": cannot make a temporary folder: " + std::strerror(errno));
    }
  }
  ~Folder() {
    std::error_code error;
    fs::remove_all(path, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path;
};

Places find_places() {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* folder : {"lib", SWCC_LIBRARY_FOLDER}) {
    const fs::path library = here.parent_path() / folder;
    const fs::path include = library / "swamp" / "sunway" / "include";
    if (fs::exists(include / "athread.h", error) &&
        fs::exists(library / "libswamp_sunway.so", error)) {
      return {include.string(), library.string()};
    }
  }
  fail("cannot find its headers and libswamp_sunway.so next to " +
       here.string());
}

}  // namespace

int run(const Words& command, const std::string& errors) {
  std::vector<char*> list = pointers(command);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (!errors.empty()) {
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  }
  pid_t child = 0;
  const int error =
      posix_spawnp(&child, list[0], &actions, nullptr, list.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail(command[0] + ": " + std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

void run_or_exit(const Words& command) {
  const int code = run(command);
  if (code != 0) leave(code);
}

void remove_on_failure(const std::string& file) { unfinished = file; }

void leave(int code) {
  std::error_code error;
  if (!unfinished.empty() && fs::is_regular_file(unfinished, error)) {
    fs::remove(unfinished, error);
  }
  std::exit(code);
}

void become(const Words& command) {
  std::vector<char*> list = pointers(command);
  execvp(list[0], list.data());
  fail(command[0] + ": " + std::strerror(errno));
}

std::string temporary_file(const std::string& ending) {
  static const Folder folder;
  static int count = 0;
  return folder.path + "/" + std::to_string(++count) + ending;
}

const Places& places() {
  static const Places found = find_places();
  return found;
}

bool file_exists(const std::string& name) {
  std::error_code error;
  return fs::is_regular_file(name, error);
}

std::string read_file(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  if (!file) fail(name + ": cannot read: " + std::strerror(errno));
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

void write_file(const std::string& name, const std::string& content) {
  std::ofstream file(name, std::ios::binary);
  file << content;
  file.close();
  if (!file) fail(name + ": cannot write: " + std::strerror(errno));
}

}  // namespace swcc
