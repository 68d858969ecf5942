#ifndef SWAMP_MASTER_MPI_REQUESTS_H_
#define SWAMP_MASTER_MPI_REQUESTS_H_

#include <mpi.h>

#include <vector>

namespace swamp::mpi {

// Requests are messages under way, each to or from one rank.
class Requests {
 public:
  void send(const void* data, int bytes, int peer, int tag, MPI_Comm comm);
  void receive(void* data, int bytes, int peer, int tag, MPI_Comm comm);
  // For a collective operation; its peer is unknown.
  void add(MPI_Request request);

  // wait() looks for messages until all are done, and returns true; false after
  // so many seconds without one (0: no limit). `large`: messages that take
  // their time; the pauses stay short, because they move only while MPI is
  // called.
  bool wait(int timeout_seconds, bool large);

  // missing() are the ranks of what is not done, in order.
  std::vector<int> missing() const;

  // cancel() takes back the receives that nobody has answered.
  void cancel() noexcept;

 private:
  // test() returns how many have come to an end now; -1 when none is left.
  int test();

  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;  // -1: unknown
  std::vector<bool> receives_;
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace swamp::mpi

#endif  // SWAMP_MASTER_MPI_REQUESTS_H_
