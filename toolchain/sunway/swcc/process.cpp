#include "toolchain/sunway/swcc/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

extern char** environ;

namespace swcc {
namespace {

std::string unfinished;  // the output file, while a failure would spoil it

std::vector<char*> pointers(const Words& command) {
  std::vector<char*> list;
  for (const std::string& word : command) {
    list.push_back(const_cast<char*>(word.c_str()));
  }
  list.push_back(nullptr);
  return list;
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
  if (!unfinished.empty() &&
      std::filesystem::is_regular_file(unfinished, error)) {
    std::filesystem::remove(unfinished, error);
  }
  std::exit(code);
}

void become(const Words& command) {
  std::vector<char*> list = pointers(command);
  execvp(list[0], list.data());
  fail(command[0] + ": " + std::strerror(errno));
}

Folder::Folder() {
  std::error_code error;
  std::string name =
      (std::filesystem::temp_directory_path(error) / "swcc-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    fail(name + ": cannot make a temporary folder: " + std::strerror(errno));
  }
  path_ = name;
}

Folder::~Folder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

std::string Folder::file(const std::string& ending) {
  return path_ + "/" + std::to_string(++count_) + ending;
}

Folder& folder() {
  static Folder made;
  return made;
}

std::string read_file(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  if (!file) fail(name + ": cannot read: " + std::strerror(errno));
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

void write_file(const std::string& name, const std::string& content) {
  std::ofstream file(name, std::ios::binary);
  file << content;
  file.close();
  if (!file) fail(name + ": cannot write: " + std::strerror(errno));
}

}  // namespace swcc
