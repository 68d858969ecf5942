#ifndef SWAMP_MASTER_MPI_EXCHANGE_H_
#define SWAMP_MASTER_MPI_EXCHANGE_H_

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "swamp/mpi.h"

namespace swamp::mpi {

// Requests is a list of pending messages, each to or from one rank.
class Requests {
 public:
  void send(const void* data, int bytes, int peer, int tag, MPI_Comm comm);
  void receive(void* data, int bytes, int peer, int tag, MPI_Comm comm);
  // Adds a collective operation, which has no single peer.
  void add(MPI_Request request);

  // Polls until all are done and returns true, or returns false after
  // `timeout_seconds` without progress (0: no limit). If `large`, the pauses
  // stay short, because large messages progress only inside MPI calls.
  bool wait(int timeout_seconds, bool large);

  // Returns the ranks of the pending messages, sorted.
  std::vector<int> missing() const;

  // Cancels the receives that are still pending.
  void cancel() noexcept;

 private:
  // Returns how many completed in this call, or -1 if none was left.
  int test();

  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;  // -1: unknown
  std::vector<bool> receives_;
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
};

// Header is sent before each piece, so that both ranks can check the lengths
// before any data is sent. It carries a small piece itself, so a reduction
// needs only one message.
struct Header {
  static constexpr std::size_t kSmall = 40;
  std::uint64_t sent_bytes;
  std::uint64_t expected_bytes;  // the other way
  std::uint64_t message_bytes;
  unsigned char small[kSmall];
};

// Exchange runs the exchanges of a communicator. After an Error it must not be
// destroyed, because MPI may still write into it.
class Exchange {
 public:
  Exchange(MPI_Comm comm, int rank, int size, const MpiOptions& options);

  // Throws Error after it has cancelled what can be cancelled.
  void run(const ConstBytes* send, const MutableBytes* receive);

 private:
  void send_headers(const ConstBytes* send, const MutableBytes* receive);
  void check_headers(const ConstBytes* send, const MutableBytes* receive) const;
  void post_large(const ConstBytes* send, const MutableBytes* receive);
  // Waits for the pending messages.
  void complete(bool large);

  MPI_Comm comm_;
  int rank_;
  int size_;
  MpiOptions options_;
  std::vector<Header> sent_;      // by rank
  std::vector<Header> received_;  // by rank
  Requests requests_;
};

}  // namespace swamp::mpi

#endif  // SWAMP_MASTER_MPI_EXCHANGE_H_
