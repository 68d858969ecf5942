#ifndef SWAMP_MASTER_MPI_EXCHANGE_H_
#define SWAMP_MASTER_MPI_EXCHANGE_H_

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "master/mpi/requests.h"
#include "swamp/mpi.h"

namespace swamp::mpi {

// Header goes ahead of each piece: both ranks see whether they agree before any
// of it is sent. A small piece goes with it: one message does for a reduction.
struct Header {
  static constexpr std::size_t kSmall = 40;
  std::uint64_t sent_bytes;
  std::uint64_t expected_bytes;  // the other way
  std::uint64_t message_bytes;
  unsigned char small[kSmall];
};

// Exchange is one exchange of a communicator. It outlives its messages: after
// an Error MPI may still write into it, and it must not be destroyed.
class Exchange {
 public:
  Exchange(MPI_Comm comm, int rank, int size, const MpiOptions& options);

  // Throws Error, and has then taken back what can be taken back.
  void run(const ConstBytes* send, const MutableBytes* receive);

 private:
  void send_headers(const ConstBytes* send, const MutableBytes* receive);
  void check_headers(const ConstBytes* send, const MutableBytes* receive) const;
  void post_large(const ConstBytes* send, const MutableBytes* receive);
  // complete() waits for what is under way.
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
