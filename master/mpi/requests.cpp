#include "master/mpi/requests.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "master/mpi/check.h"
#include "swamp/error.h"

namespace swamp::mpi {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Where there are more ranks than cores, who waits must let others run; a rank
// that waits long must not heat its core. The steps are small beside the time
// that has been waited already.
void pause(Clock::duration waited, bool large) {
  if (waited < milliseconds(1)) {
    std::this_thread::yield();
  } else if (large || waited < milliseconds(100)) {
    std::this_thread::sleep_for(microseconds(50));
  } else {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

}  // namespace

void Requests::send(const void* data, int bytes, int peer, int tag,
                    MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(data, bytes, MPI_BYTE, peer, tag, comm, &request),
        "MPI_Isend");
  add(request);
  peers_.back() = peer;
}

void Requests::receive(void* data, int bytes, int peer, int tag,
                       MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Irecv(data, bytes, MPI_BYTE, peer, tag, comm, &request),
        "MPI_Irecv");
  add(request);
  peers_.back() = peer;
  receives_.back() = true;
}

void Requests::add(MPI_Request request) {
  requests_.push_back(request);
  peers_.push_back(-1);
  receives_.push_back(false);
}

int Requests::test() {
  done_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int code =
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                   done_.data(), statuses_.data());
  int error_class = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &error_class);
  if (error_class == MPI_ERR_IN_STATUS) {
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const int peer = peers_[static_cast<std::size_t>(done_[at])];
      const std::string call =
          "MPI_Testsome (rank " + std::to_string(peer) + ")";
      check(statuses_[at].MPI_ERROR, call.c_str());
    }
  }
  check(code, "MPI_Testsome");
  return count == MPI_UNDEFINED ? -1 : count;
}

bool Requests::wait(int timeout_seconds, bool large) {
  Clock::time_point heard = Clock::now();
  for (;;) {
    const int count = test();
    if (count < 0) return true;
    const Clock::time_point now = Clock::now();
    if (count > 0) {
      heard = now;
      continue;
    }
    if (timeout_seconds > 0 &&
        now - heard >= std::chrono::seconds(timeout_seconds)) {
      return false;
    }
    pause(now - heard, large);
  }
}

std::vector<int> Requests::missing() const {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] != MPI_REQUEST_NULL) ranks.push_back(peers_[i]);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void Requests::cancel() noexcept {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL || !receives_[i]) continue;
    int done = 0;
    MPI_Cancel(&requests_[i]);
    MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
  }
}

}  // namespace swamp::mpi
