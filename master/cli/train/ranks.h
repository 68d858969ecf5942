// The processes that train together.
#ifndef SWAMP_MASTER_CLI_TRAIN_RANKS_H_
#define SWAMP_MASTER_CLI_TRAIN_RANKS_H_

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "master/cli/command.h"
#include "swamp/communicator.h"

namespace swamp::cli {

// CommonFailure is a failure that every rank has at the same place, so that one
// of them reports it.
class CommonFailure : public Failure {
 public:
  using Failure::Failure;
};

// Ranks are the processes that mpirun started. A single one does not start MPI.
class Ranks {
 public:
  // Throws Failure if mpirun started several and swamp was built without MPI,
  // or with another one.
  Ranks();
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Communicator& communicator() noexcept;
  std::size_t rank() noexcept;
  std::size_t count() noexcept;
  // first() is the rank that prints and writes files.
  bool first() noexcept { return rank() == 0; }

  // together() runs a part on every rank. If it throws on one, together()
  // throws CommonFailure with the same text on all.
  void together(const std::function<void()>& part);

  // from_first() returns the `text` of the first rank on every rank.
  std::string from_first(const std::string& text);

  // end_all() prints the failure and ends all ranks with kExitFailure. A single
  // process rethrows the exception instead.
  [[noreturn]] void end_all(const std::exception_ptr& failure);

 private:
  struct Mpi;
  // gather() returns the texts of all ranks in their order, and their lengths.
  std::string gather(const std::string& text, std::vector<std::size_t>& bytes);

  std::unique_ptr<Mpi> mpi_;  // null for a single process
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_RANKS_H_
