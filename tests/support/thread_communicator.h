#ifndef SWAMP_TESTS_SUPPORT_THREAD_COMMUNICATOR_H_
#define SWAMP_TESTS_SUPPORT_THREAD_COMMUNICATOR_H_

#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "swamp/communicator.h"

namespace swamp::test {

// Meeting is a barrier for threads. If one of them leaves, the others get an
// Error, as from MPI, and do not wait forever.
class Meeting {
 public:
  explicit Meeting(std::size_t count) : count_(count) {}

  void meet() {
    std::unique_lock<std::mutex> lock(mutex_);
    const std::size_t round = round_;
    if (++here_ == count_) {
      here_ = 0;
      ++round_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return round_ != round || left_; });
    if (round_ == round) throw Error(SWAMP_INTERNAL, "a rank has ended");
  }

  void leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t count_;
  std::size_t here_ = 0;
  std::size_t round_ = 0;
  bool left_ = false;
};

// What the threads of one run_ranks() share.
struct ThreadRanks {
  explicit ThreadRanks(std::size_t count) : meeting(count), sent(count) {}
  Meeting meeting;
  std::vector<const ConstBytes*> sent;
};

// ThreadCommunicator is one rank of several threads in this process.
class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(ThreadRanks& ranks, int rank)
      : ranks_(ranks), rank_(rank) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override {
    return static_cast<int>(ranks_.sent.size());
  }

 private:
  void exchange_pieces(const ConstBytes* send,
                       const MutableBytes* receive) override {
    ranks_.sent[static_cast<std::size_t>(rank_)] = send;
    ranks_.meeting.meet();
    std::string mismatch;
    for (int r = 0; r < size(); ++r) {
      const ConstBytes& piece = ranks_.sent[static_cast<std::size_t>(r)][rank_];
      if (r == rank_) continue;
      if (piece.bytes != receive[r].bytes) {
        mismatch = "rank " + std::to_string(r) + " sends " +
                   std::to_string(piece.bytes) + " bytes to rank " +
                   std::to_string(rank_) + ", which expects " +
                   std::to_string(receive[r].bytes);
      } else if (piece.bytes != 0) {
        std::memcpy(receive[r].data, piece.data, piece.bytes);
      }
    }
    // Sent data must stay until every rank has read it.
    ranks_.meeting.meet();
    if (!mismatch.empty()) throw Error(SWAMP_INVALID_ARGUMENT, mismatch);
  }

  ThreadRanks& ranks_;
  int rank_;
};

// run_ranks() runs `body` as that many ranks, one per thread, and rethrows the
// exception of the lowest rank that failed. If a rank returns while others wait
// for it, they get an Error.
inline void run_ranks(int count,
                      const std::function<void(Communicator&)>& body) {
  ThreadRanks ranks(static_cast<std::size_t>(count));
  std::vector<std::exception_ptr> thrown(ranks.sent.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ThreadCommunicator communicator(ranks, rank);
        body(communicator);
      } catch (...) {
        thrown[static_cast<std::size_t>(rank)] = std::current_exception();
      }
      ranks.meeting.leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& each : thrown) {
    if (each) std::rethrow_exception(each);
  }
}

}  // namespace swamp::test

#endif  // SWAMP_TESTS_SUPPORT_THREAD_COMMUNICATOR_H_
