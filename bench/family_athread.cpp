// spawn/athread/: an athread program that spawns slaves with nothing to do,
// compiled by swcc. It is another process, which counts along on a pipe.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/suite.h"
#include "bench/threads.h"
#include "bench/timed.h"

namespace swamp::bench {

#if defined(SWAMP_BENCH_ATHREAD)
namespace {

constexpr double kAim = 1000;  // us, of 64 slaves

// plain_environment() is ours without the SWAMP_* variables.
std::vector<char*> plain_environment() {
  std::vector<char*> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "SWAMP_", 6) != 0) out.push_back(*entry);
  }
  out.push_back(nullptr);
  return out;
}

// AthreadProgram is the running program.
class AthreadProgram {
 public:
  explicit AthreadProgram(int slaves) {
    int to[2];
    int from[2];
    if (pipe2(to, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    if (pipe2(from, O_CLOEXEC) != 0) {
      close(to[0]);
      close(to[1]);
      throw std::runtime_error("no pipe");
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    std::string path = SWAMP_BENCH_ATHREAD;
    std::string count = std::to_string(slaves);
    char* arguments[] = {path.data(), count.data(), nullptr};
    const int error = posix_spawn(&process_, path.c_str(), &actions, nullptr,
                                  arguments, plain_environment().data());
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = fdopen(from[0], "r");
    if (error != 0) {
      process_ = 0;
      end();
      throw std::runtime_error("cannot start " + path + ": " +
                               std::strerror(error));
    }
  }
  ~AthreadProgram() { end(); }
  AthreadProgram(const AthreadProgram&) = delete;
  AthreadProgram& operator=(const AthreadProgram&) = delete;

  // spawn() spawns and joins `count` times; false where the program has ended.
  bool spawn(std::size_t count) {
    const std::string line = std::to_string(count) + "\n";
    const auto written = write(to_, line.data(), line.size());
    char answer[32];
    return written == static_cast<ssize_t>(line.size()) &&
           std::fgets(answer, sizeof answer, from_) != nullptr &&
           line == answer;
  }

 private:
  void end() {
    close(to_);
    std::fclose(from_);
    if (process_ != 0) waitpid(process_, nullptr, 0);
  }

  pid_t process_ = 0;
  int to_ = -1;
  std::FILE* from_ = nullptr;
};

// A batch is one message there and one back, so that a spawn costs more.
void run_athread(benchmark::State& state, int slaves) {
  AthreadProgram program(slaves);
  const auto batch = [&] {
    if (!program.spawn(kSpawnBatch)) state.SkipWithError("the program ended");
  };
  timed_batches(state, kSpawnBatch, batch);
}

// athread_row() has its aim in microseconds: there is nothing to compare with.
Row athread_row(std::string what, std::string name, Aim aim) {
  return [=](const Results& results) -> std::optional<Line> {
    const std::optional<Measured> measured = results.find(name);
    if (!measured) return std::nullopt;
    return Line{what, time_text(measured->seconds), "", std::nullopt,
                results.too_few(name) ? kTooFew
                                      : aim_text(aim, measured->seconds * 1e6)};
  };
}

}  // namespace

void add_athread(Suite& suite) {
  for (const int slaves : {64, 384}) {
    if (suite.quick() && slaves != 64) continue;
    const std::string name = "spawn/athread/slaves:" + std::to_string(slaves);
    suite.add(name, thread_counts().back(), {},
              [=](benchmark::State& state) { run_athread(state, slaves); });
    suite.row(athread_row(
        "athread program, " + std::to_string(slaves) + " slaves (aim: us)",
        name, slaves == 64 ? Aim{Aim::at_most, kAim} : Aim{}));
  }
}

#else
void add_athread(Suite&) {}
#endif

}  // namespace swamp::bench
