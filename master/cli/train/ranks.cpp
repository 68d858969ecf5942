#include "master/cli/train/ranks.h"

#include <fmt/core.h>

#include <numeric>

#include "master/cli/command.h"

#ifdef SWAMP_HAS_MPI
#include "swamp/mpi.h"
#endif

namespace swamp::cli {

#ifdef SWAMP_HAS_MPI
struct Ranks::Mpi {
  MpiCommunicator communicator;
};
#else
struct Ranks::Mpi {  // never constructed
  Communicator& communicator;
  [[noreturn]] static void abort_all(int) noexcept { std::terminate(); }
};
#endif

Ranks::Ranks() {
  const int launched = launched_ranks();
  if (launched <= 1) return;
#ifdef SWAMP_HAS_MPI
  mpi_ = std::make_unique<Mpi>();
  const int found = mpi_->communicator.size();
  if (found != launched) {
    throw Failure(
        fmt::format("got {} ranks of mpirun and {} of MPI, expected as many: "
                    "this swamp was built with another MPI",
                    launched, found));
  }
#else
  throw Failure(
      fmt::format("got {} ranks of mpirun, expected one: this swamp was built "
                  "without MPI",
                  launched));
#endif
}

Ranks::~Ranks() = default;

Communicator& Ranks::communicator() noexcept {
  return mpi_ == nullptr ? Communicator::alone() : mpi_->communicator;
}

std::size_t Ranks::rank() noexcept {
  return static_cast<std::size_t>(communicator().rank());
}

std::size_t Ranks::count() noexcept {
  return static_cast<std::size_t>(communicator().size());
}

std::string Ranks::gather(const std::string& text,
                          std::vector<std::size_t>& bytes) {
  bytes.resize(count());
  const std::size_t mine = text.size();
  communicator().all_gather(&mine, sizeof mine, bytes.data());
  std::string all(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}),
                  '\0');
  communicator().all_gather_varied(text.data(), bytes.data(), all.data());
  return all;
}

void Ranks::together(const std::function<void()>& part) {
  if (mpi_ == nullptr) return part();
  std::string problem;
  try {
    part();
  } catch (const std::exception& error) {
    problem = error.what();
    if (problem.empty()) problem = "unknown error";
  }
  std::vector<std::size_t> bytes;
  const std::string all = gather(problem, bytes);
  for (std::size_t r = 0; r < bytes.size(); ++r) {
    if (bytes[r] == 0) continue;
    // An error of the first rank needs no number.
    const std::string text = all.substr(0, bytes[r]);
    throw CommonFailure(r == 0 ? text : fmt::format("rank {}: {}", r, text));
  }
}

std::string Ranks::from_first(const std::string& text) {
  if (mpi_ == nullptr) return text;
  std::vector<std::size_t> bytes;
  return gather(first() ? text : "", bytes);
}

void Ranks::end_all(const std::exception_ptr& failure) {
  if (mpi_ == nullptr) std::rethrow_exception(failure);
  try {
    std::rethrow_exception(failure);
  } catch (const CommonFailure& error) {
    if (first()) {
      print_error(fmt::format("swamp: {}", error.what()));
    } else {
      try {
        communicator().barrier();  // the first rank then ends this one
      } catch (const std::exception&) {
        print_error("swamp: the first rank has not ended the others");
      }
    }
  } catch (const std::exception& error) {
    print_error(fmt::format("swamp: rank {}: {}", rank(), error.what()));
  }
#ifdef SWAMP_HAS_MPI
  mpi_->communicator.abort_all(kExitFailure);
#else
  std::terminate();
#endif
}

}  // namespace swamp::cli
