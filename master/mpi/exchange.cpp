// One exchange of pieces between all ranks. First each rank sends every other
// one a header: the sizes of what it sends and what it expects, so that both
// throw if they differ, and the piece itself if it is small. Large pieces
// follow in messages. All waits are tests of nonblocking requests with a time
// limit, so that a rank that does not answer becomes an error that names it.
#include "master/mpi/exchange.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "master/mpi/session.h"
#include "swamp/error.h"

namespace swamp::mpi {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Yields the core to other ranks, and sleeps after a longer wait. A pause is
// short compared with the time waited so far.
void pause(Clock::duration waited, bool large) {
  if (waited < milliseconds(1)) {
    std::this_thread::yield();
  } else if (large || waited < milliseconds(100)) {
    std::this_thread::sleep_for(microseconds(50));
  } else {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

constexpr int kHeaderTag = 1;
constexpr int kPieceTag = 2;

std::string list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (const int rank : ranks) {
    if (rank != ranks.front()) text += ", ";
    text += std::to_string(rank);
  }
  return text;
}

// Splits a piece into messages: visit(offset, bytes).
template <class Visit>
void for_messages(std::size_t bytes, std::size_t message_bytes, Visit visit) {
  for (std::size_t first = 0; first < bytes; first += message_bytes) {
    visit(first, static_cast<int>(std::min(bytes - first, message_bytes)));
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

Exchange::Exchange(MPI_Comm comm, int rank, int size, const MpiOptions& options)
    : comm_(comm),
      rank_(rank),
      size_(size),
      options_(options),
      sent_(static_cast<std::size_t>(size)),
      received_(static_cast<std::size_t>(size)) {}

void Exchange::run(const ConstBytes* send, const MutableBytes* receive) {
  try {
    requests_ = Requests();
    send_headers(send, receive);
    complete(false);
    check_headers(send, receive);
    requests_ = Requests();
    post_large(send, receive);
    complete(true);
  } catch (...) {
    requests_.cancel();
    throw;
  }
  for (int r = 0; r < size_; ++r) {
    const std::size_t bytes = receive[r].bytes;
    if (r == rank_ || bytes == 0 || bytes > Header::kSmall) continue;
    std::memcpy(receive[r].data, received_[static_cast<std::size_t>(r)].small,
                bytes);
  }
}

void Exchange::send_headers(const ConstBytes* send,
                            const MutableBytes* receive) {
  // Each rank starts with its successor, so that not all send to rank 0 first.
  for (int step = 1; step < size_; ++step) {
    const int r = (rank_ + step) % size_;
    const auto at = static_cast<std::size_t>(r);
    Header& header = sent_[at];
    header = {send[r].bytes, receive[r].bytes, options_.message_bytes, {}};
    if (send[r].bytes != 0 && send[r].bytes <= Header::kSmall) {
      std::memcpy(header.small, send[r].data, send[r].bytes);
    }
    requests_.receive(&received_[at], sizeof(Header), r, kHeaderTag, comm_);
    requests_.send(&header, sizeof(Header), r, kHeaderTag, comm_);
  }
}

void Exchange::check_headers(const ConstBytes* send,
                             const MutableBytes* receive) const {
  const auto mismatch = [](int from, std::uint64_t sent, int to,
                           std::uint64_t expected) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                "MpiCommunicator: rank " + std::to_string(from) + " sends " +
                    std::to_string(sent) + " bytes to rank " +
                    std::to_string(to) + ", which expects " +
                    std::to_string(expected));
  };
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    const Header& header = received_[static_cast<std::size_t>(r)];
    if (header.sent_bytes != receive[r].bytes) {
      mismatch(r, header.sent_bytes, rank_, receive[r].bytes);
    }
    if (header.expected_bytes != send[r].bytes) {
      mismatch(rank_, send[r].bytes, r, header.expected_bytes);
    }
  }
}

void Exchange::post_large(const ConstBytes* send, const MutableBytes* receive) {
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_;
    const int from = (rank_ + size_ - step) % size_;
    const auto message_bytes = [&](int r) {
      return std::min<std::size_t>(
          options_.message_bytes,
          received_[static_cast<std::size_t>(r)].message_bytes);
    };
    if (receive[from].bytes > Header::kSmall) {
      auto* data = static_cast<std::byte*>(receive[from].data);
      for_messages(receive[from].bytes, message_bytes(from),
                   [&](std::size_t first, int bytes) {
                     requests_.receive(data + first, bytes, from, kPieceTag,
                                       comm_);
                   });
    }
    if (send[to].bytes > Header::kSmall) {
      const auto* data = static_cast<const std::byte*>(send[to].data);
      for_messages(send[to].bytes, message_bytes(to),
                   [&](std::size_t first, int bytes) {
                     requests_.send(data + first, bytes, to, kPieceTag, comm_);
                   });
    }
  }
}

void Exchange::complete(bool large) {
  if (requests_.wait(options_.timeout_seconds, large)) return;
  throw Error(SWAMP_INTERNAL, "MpiCommunicator: rank " + std::to_string(rank_) +
                                  " of " + std::to_string(size_) + " waited " +
                                  std::to_string(options_.timeout_seconds) +
                                  " s (SWAMP_MPI_TIMEOUT) for " +
                                  list(requests_.missing()));
}

}  // namespace swamp::mpi
