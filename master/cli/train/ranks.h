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

// CommonFailure is a failure that every rank meets at the same place: one of
// them says it.
class CommonFailure : public Failure {
 public:
  using Failure::Failure;
};

// Ranks are those of mpirun. MPI is started only where there are several.
class Ranks {
 public:
  // Throws Failure where mpirun started several and there is no MPI in here.
  Ranks();
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Communicator& communicator() noexcept;
  std::size_t rank() noexcept;
  std::size_t count() noexcept;
  // first() is the rank that prints and writes files.
  bool first() noexcept { return rank() == 0; }

  // together() runs a part on every rank; where it throws on one, it throws
  // CommonFailure with the same text on all.
  void together(const std::function<void()>& part);

  // from_first() is `text` of the first rank, on every rank.
  std::string from_first(const std::string& text);

  // end_all() says why and ends the other ranks too, with kExitFailure; alone,
  // it throws the exception on.
  [[noreturn]] void end_all(const std::exception_ptr& failure);

 private:
  struct Mpi;
  // gather() is the texts of all ranks, in their order, and how long each is.
  std::string gather(const std::string& text, std::vector<std::size_t>& bytes);

  std::unique_ptr<Mpi> mpi_;  // null: alone
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_RANKS_H_
