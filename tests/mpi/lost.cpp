// lost CASE: the case selects the ranks that are lost, and how. The others call
// a collective function, print its Error and exit with 1.
#include <mpi.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "swamp/mpi.h"

namespace {

using swamp::MpiCommunicator;

// Longer than any test waits; it ends a rank that a failed test left running.
void sleep_long() { std::this_thread::sleep_for(std::chrono::seconds(900)); }

void exchange_for_ever(MpiCommunicator& ranks) {
  for (;;) ranks.sum(1.0);
}

void killed(MpiCommunicator& ranks) {
  for (int i = 0;; ++i) {
    ranks.sum(1.0);
    if (i == 100 && ranks.rank() == 1) std::raise(SIGKILL);
  }
}

void stopped(MpiCommunicator& ranks) {
  for (int i = 0;; ++i) {
    ranks.sum(1.0);
    if (i == 100 && ranks.rank() == 1) std::raise(SIGSTOP);
  }
}

void thrown(MpiCommunicator& ranks) {
  if (ranks.rank() == 2)
    throw std::runtime_error("rank 2 has a reason of its own");
  exchange_for_ever(ranks);
}

// Without MPI_Finalize, and with 0.
void ended(MpiCommunicator& ranks) {
  ranks.barrier();
  if (ranks.rank() == 1) {
    std::puts("rank 1 ends");
    std::fflush(stdout);
    std::_Exit(0);
  }
  exchange_for_ever(ranks);
}

void aborted(MpiCommunicator& ranks) {
  if (ranks.rank() == 3) ranks.abort_all(3);
  exchange_for_ever(ranks);
}

void mismatch(MpiCommunicator& ranks) {
  const std::size_t bytes = ranks.rank() == 2 ? 5 : 4;
  const std::vector<char> mine(bytes);
  std::vector<char> all(4 * bytes);
  ranks.all_gather(mine.data(), bytes, all.data());
}

void late(MpiCommunicator& ranks) {
  if (ranks.rank() % 2 == 1) sleep_long();
  ranks.barrier();
}

// Rank 1 agrees to a large piece and stops before it has arrived.
void unread(MpiCommunicator& ranks) {
  std::vector<char> large(std::size_t{64} << 20);
  std::vector<swamp::ConstBytes> send(4);
  std::vector<swamp::MutableBytes> receive(4);
  if (ranks.rank() == 0) send[1] = {large.data(), large.size()};
  if (ranks.rank() == 1) receive[0] = {large.data(), large.size()};
  ranks.barrier();
  if (ranks.rank() == 1) {
    std::thread([] {
      // Soon after rank 0 has joined, below.
      std::this_thread::sleep_for(std::chrono::milliseconds(505));
      std::raise(SIGSTOP);
    }).detach();
  }
  if (ranks.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  ranks.exchange(send.data(), receive.data());
  ranks.barrier();
}

void again(MpiCommunicator& ranks) {
  if (ranks.rank() == 1) sleep_long();
  try {
    ranks.barrier();
  } catch (const swamp::Error&) {
    ranks.barrier();
  }
}

// Only rank 0 makes a communicator.
void unmade(MpiCommunicator& ranks) {
  if (ranks.rank() != 0) sleep_long();
  MpiCommunicator::from_fortran(MPI_Comm_c2f(MPI_COMM_WORLD));
}

// MPI was initialised with MPI_THREAD_FUNNELED by main().
void funneled(MpiCommunicator& ranks) {
  ranks.barrier();
  std::string text;
  std::thread([&] {
    try {
      ranks.barrier();
    } catch (const swamp::Error& error) {
      text = error.what();
    }
  }).join();
  ranks.barrier();  // only the other thread got the error
  throw std::runtime_error(text);
}

// MPI_Test(), below, fails.
bool test_fails = false;
void error(MpiCommunicator& ranks) {
  test_fails = true;
  ranks.barrier();
}

struct Case {
  const char* name;
  void (*run)(MpiCommunicator& ranks);
};
constexpr Case kCases[] = {
    {"killed", killed}, {"stopped", stopped}, {"thrown", thrown},
    {"ended", ended},   {"aborted", aborted}, {"mismatch", mismatch},
    {"late", late},     {"unread", unread},   {"again", again},
    {"unmade", unmade}, {"variable", late},   {"funneled", funneled},
    {"error", error},
};

}  // namespace

extern "C" int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  return test_fails ? MPI_ERR_TRUNCATE : PMPI_Test(request, done, status);
}

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  for (const Case& each : kCases) {
    if (name != each.name) continue;
    try {
      if (name == "funneled") {
        int provided = 0;
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
      }
      MpiCommunicator ranks;
      each.run(ranks);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
    return 0;
  }
  std::fprintf(stderr, "lost: no case \"%s\"\n", name.c_str());
  return 2;
}
