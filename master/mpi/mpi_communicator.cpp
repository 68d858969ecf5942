// MpiCommunicator: a duplicate of the caller's MPI communicator, whose errors
// return, and a share of the MPI session. Its first error is kept, because
// after it the ranks may differ, and every later call throws the same.
//
// An exchange is a nonblocking collective of headers: the sizes of the pieces
// that two ranks send and expect, so that both throw if they differ, and the
// pieces themselves if they are small. Large pieces follow in further
// collectives. All waits are tests with a time limit, so that a rank that does
// not answer becomes an error that names it.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "master/mpi/session.h"
#include "master/text.h"
#include "swamp/mpi.h"

namespace swamp {
namespace {

// Header is what a rank sends to each other one before its piece.
struct Header {
  static constexpr std::size_t kInline = 40;
  static constexpr std::uint64_t kMissing = UINT64_MAX;  // not yet received
  std::uint64_t sent_bytes = kMissing;
  std::uint64_t expected_bytes;  // the other way
  std::uint64_t largest;         // bytes of the largest piece that it sends
  std::uint64_t message_bytes;
  unsigned char piece[kInline];  // if it is not larger
};

}  // namespace

struct MpiCommunicator::Impl {
  std::unique_ptr<mpi::Session> session;
  MPI_Comm comm;
  int rank;
  int size;
  MpiOptions options;
  std::vector<Header> sent, received;  // by rank
  std::vector<int> counts, offsets;    // of the headers
  std::string failure = "";            // text of the first error
  int exceptions = std::uncaught_exceptions();

  void exchange(const ConstBytes* send, const MutableBytes* receive);
  void exchange_headers(const ConstBytes* send, const MutableBytes* receive);
  void check_sizes(const ConstBytes* send, const MutableBytes* receive) const;
  void exchange_large(const ConstBytes* send, const MutableBytes* receive);
  std::vector<int> missing() const;
  [[noreturn]] void refuse_wait(const std::vector<int>& ranks,
                                const char* one_of) const;
};

namespace {

constexpr const char* kTimeout = "SWAMP_MPI_TIMEOUT";
constexpr int kDefaultTimeout = 300;
// Smaller pieces are sent with their header.
constexpr std::size_t kMinMessage = 64;
constexpr std::size_t kMaxEcho = 100;

// An empty variable counts as unset, like every SWAMP_* variable.
int environment_timeout() {
  const char* value = std::getenv(kTimeout);
  const std::string text = value == nullptr ? "" : value;
  if (text.empty()) return kDefaultTimeout;
  const bool is_number =
      text.find_first_not_of("0123456789") == std::string::npos;
  if (text.size() > 9 || !is_number) {
    const std::string quote = is_number ? "" : "\"";
    master::refuse(kTimeout, quote + text.substr(0, kMaxEcho) + quote,
                   "a whole number of seconds from 0 (no limit) to 999999999");
  }
  return std::stoi(text);
}

// Returns the options with the timeout of the environment. Throws Error for a
// bad option.
MpiOptions checked(const MpiOptions& options) {
  if (options.message_bytes < kMinMessage || options.message_bytes > INT_MAX) {
    master::refuse("MpiCommunicator: options.message_bytes",
                   std::to_string(options.message_bytes),
                   "from " + std::to_string(kMinMessage) + " to " +
                       std::to_string(INT_MAX));
  }
  MpiOptions checked = options;
  // Read it in any case, because a bad value is always an error.
  const int timeout = environment_timeout();
  if (checked.timeout_seconds < 0) checked.timeout_seconds = timeout;
  return checked;
}

// Makes the errors of the caller's `comm` return while this object lives.
class ReturnErrors {
 public:
  explicit ReturnErrors(MPI_Comm comm) : comm_(comm) {
    mpi::check(MPI_Comm_get_errhandler(comm, &before_),
               "MPI_Comm_get_errhandler");
    mpi::check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN),
               "MPI_Comm_set_errhandler");
  }
  ~ReturnErrors() {
    MPI_Comm_set_errhandler(comm_, before_);
    MPI_Errhandler_free(&before_);
  }
  ReturnErrors(const ReturnErrors&) = delete;
  ReturnErrors& operator=(const ReturnErrors&) = delete;

 private:
  MPI_Comm comm_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
};

// Returns whether the operation ends before `timeout_seconds` have passed (0:
// no limit) since the last change of arrived(). Between tests it yields the
// core to other ranks, and sleeps after a longer wait; but only briefly if
// `large`, because large messages progress only inside MPI calls.
template <class Arrived>
bool wait(MPI_Request& request, int timeout_seconds, bool large,
          Arrived arrived) {
  using Clock = std::chrono::steady_clock;
  using std::chrono::milliseconds;
  Clock::time_point heard = Clock::now();
  std::size_t before = 0;
  for (;;) {
    int done = 0;
    mpi::check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return true;
    const Clock::time_point now = Clock::now();
    if (const std::size_t count = arrived(); count != before) {
      before = count;
      heard = now;
    }
    const Clock::duration waited = now - heard;
    if (timeout_seconds > 0 && waited >= std::chrono::seconds(timeout_seconds))
      return false;
    if (waited < milliseconds(1)) {
      std::this_thread::yield();
    } else if (large || waited < milliseconds(100)) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else {
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
}

MPI_Comm duplicate(MPI_Comm comm, int timeout_seconds) {
  // Not on the stack, because MPI may write to it after a timeout.
  auto copy = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  mpi::check(MPI_Comm_idup(comm, copy.get(), &request), "MPI_Comm_idup");
  if (!wait(request, timeout_seconds, false, [] { return 0; })) {
    static_cast<void>(copy.release());
    throw Error(SWAMP_INTERNAL,
                "MpiCommunicator: not all ranks have created one after " +
                    std::to_string(timeout_seconds) + " s (SWAMP_MPI_TIMEOUT)");
  }
  mpi::check(MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN),
             "MPI_Comm_set_errhandler");
  return *copy;
}

// Types are the pieces of an MPI_Ialltoallw, one for each rank: bytes at an
// address of their own. An entry without bytes is not used.
class Types {
 public:
  explicit Types(std::size_t size) : counts(size), types(size, MPI_BYTE) {}
  ~Types() {
    for (std::size_t r = 0; r < types.size(); ++r) {
      if (counts[r] != 0) MPI_Type_free(&types[r]);
    }
  }
  Types(const Types&) = delete;
  Types& operator=(const Types&) = delete;

  void set(std::size_t rank, const void* data, std::size_t bytes) {
    if (bytes == 0) return;
    MPI_Aint address = 0;
    const int length = static_cast<int>(bytes);
    mpi::check(MPI_Get_address(data, &address), "MPI_Get_address");
    mpi::check(
        MPI_Type_create_hindexed(1, &length, &address, MPI_BYTE, &types[rank]),
        "MPI_Type_create_hindexed");
    counts[rank] = 1;
    mpi::check(MPI_Type_commit(&types[rank]), "MPI_Type_commit");
  }

  std::vector<int> counts;
  std::vector<MPI_Datatype> types;
};

std::unique_ptr<MpiCommunicator::Impl> join(
    std::unique_ptr<mpi::Session> session, MPI_Comm comm,
    const MpiOptions& options) {
  const ReturnErrors guard(comm);
  int rank = 0;
  int size = 0;
  mpi::check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  mpi::check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  try {
    const MPI_Comm copy = duplicate(comm, options.timeout_seconds);
    std::vector<Header> headers(static_cast<std::size_t>(size));
    std::vector<int> counts(headers.size(), sizeof(Header));
    std::vector<int> offsets;
    for (int r = 0; r < size; ++r) {
      offsets.push_back(r * static_cast<int>(sizeof(Header)));
    }
    return std::unique_ptr<MpiCommunicator::Impl>(
        new MpiCommunicator::Impl{std::move(session), copy, rank, size, options,
                                  headers, headers, counts, offsets});
  } catch (...) {
    mpi::Session::give_up();
    throw;
  }
}

std::unique_ptr<MpiCommunicator::Impl> join_world(const MpiOptions& options) {
  const MpiOptions good = checked(options);
  auto session = std::make_unique<mpi::Session>(true);
  return join(std::move(session), MPI_COMM_WORLD, good);
}

std::unique_ptr<MpiCommunicator::Impl> join_fortran(int handle,
                                                    const MpiOptions& options) {
  const MpiOptions good = checked(options);
  auto session = std::make_unique<mpi::Session>(false);
  const MPI_Comm comm = MPI_Comm_f2c(handle);
  // Open MPI returns a null pointer for an unknown handle.
  const bool none = comm == MPI_COMM_NULL || comm == MPI_Comm{};
  int inter = 0;
  if (!none) {
    const ReturnErrors guard(comm);
    mpi::check(MPI_Comm_test_inter(comm, &inter), "MPI_Comm_test_inter");
  }
  if (none || inter != 0) {
    master::refuse(
        "MpiCommunicator::from_fortran: handle",
        std::to_string(handle) + (inter != 0 ? ", an intercommunicator"
                                             : ", which is not a communicator"),
        "the handle of an intracommunicator");
  }
  return join(std::move(session), comm, good);
}

}  // namespace

void MpiCommunicator::Impl::refuse_wait(const std::vector<int>& ranks,
                                        const char* one_of) const {
  std::string text = ranks.size() == 1 ? "rank " : one_of;
  for (const int r : ranks) {
    if (r != ranks.front()) text += ", ";
    text += std::to_string(r);
  }
  throw Error(SWAMP_INTERNAL, "MpiCommunicator: rank " + std::to_string(rank) +
                                  " of " + std::to_string(size) + " waited " +
                                  std::to_string(options.timeout_seconds) +
                                  " s (SWAMP_MPI_TIMEOUT) for " + text);
}

// Returns the ranks whose header has not arrived. Headers are single messages
// to their place in `received`, which is read before the operation has ended.
std::vector<int> MpiCommunicator::Impl::missing() const {
  std::vector<int> ranks;
  for (int r = 0; r < size; ++r) {
    const volatile std::uint64_t& sent_bytes =
        received[static_cast<std::size_t>(r)].sent_bytes;
    if (r != rank && sent_bytes == Header::kMissing) ranks.push_back(r);
  }
  return ranks;
}

void MpiCommunicator::Impl::exchange_headers(const ConstBytes* send,
                                             const MutableBytes* receive) {
  std::uint64_t largest = 0;
  for (int r = 0; r < size; ++r) {
    if (r != rank) largest = std::max<std::uint64_t>(largest, send[r].bytes);
  }
  for (int r = 0; r < size; ++r) {
    Header& header = sent[static_cast<std::size_t>(r)];
    header = {
        send[r].bytes, receive[r].bytes, largest, options.message_bytes, {}};
    if (send[r].bytes != 0 && send[r].bytes <= Header::kInline) {
      std::memcpy(header.piece, send[r].data, send[r].bytes);
    }
    received[static_cast<std::size_t>(r)].sent_bytes = Header::kMissing;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  mpi::check(MPI_Ialltoallv(sent.data(), counts.data(), offsets.data(),
                            MPI_BYTE, received.data(), counts.data(),
                            offsets.data(), MPI_BYTE, comm, &request),
             "MPI_Ialltoallv");
  if (!wait(request, options.timeout_seconds, false,
            [&] { return missing().size(); })) {
    refuse_wait(missing(), "ranks ");
  }
}

void MpiCommunicator::Impl::check_sizes(const ConstBytes* send,
                                        const MutableBytes* receive) const {
  const auto mismatch = [](int from, std::uint64_t bytes, int to,
                           std::uint64_t expected) {
    throw Error(SWAMP_INVALID_ARGUMENT,
                "MpiCommunicator: rank " + std::to_string(from) + " sends " +
                    std::to_string(bytes) + " bytes to rank " +
                    std::to_string(to) + ", which expects " +
                    std::to_string(expected));
  };
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    const Header& header = received[static_cast<std::size_t>(r)];
    if (header.sent_bytes != receive[r].bytes) {
      mismatch(r, header.sent_bytes, rank, receive[r].bytes);
    }
    if (header.expected_bytes != send[r].bytes) {
      mismatch(rank, send[r].bytes, r, header.expected_bytes);
    }
  }
}

// Every rank takes part in as many collectives as the largest piece of all
// ranks needs.
void MpiCommunicator::Impl::exchange_large(const ConstBytes* send,
                                           const MutableBytes* receive) {
  std::uint64_t largest = 0;
  std::uint64_t message_bytes = options.message_bytes;
  for (const Header& header : received) {
    largest = std::max(largest, header.largest);
    message_bytes = std::min(message_bytes, header.message_bytes);
  }
  if (largest <= Header::kInline) return;
  const std::vector<int> zeros(received.size());
  for (std::uint64_t first = 0; first < largest; first += message_bytes) {
    Types from(received.size());
    Types to(received.size());
    std::vector<int> peers;
    for (int r = 0; r < size; ++r) {
      const auto set = [&](Types& types, const void* data, std::size_t bytes) {
        if (r == rank || bytes <= Header::kInline || bytes <= first) return;
        types.set(static_cast<std::size_t>(r),
                  static_cast<const std::byte*>(data) + first,
                  std::min(bytes - first, message_bytes));
        if (peers.empty() || peers.back() != r) peers.push_back(r);
      };
      set(to, send[r].data, send[r].bytes);
      set(from, receive[r].data, receive[r].bytes);
    }
    MPI_Request request = MPI_REQUEST_NULL;
    mpi::check(MPI_Ialltoallw(MPI_BOTTOM, to.counts.data(), zeros.data(),
                              to.types.data(), MPI_BOTTOM, from.counts.data(),
                              zeros.data(), from.types.data(), comm, &request),
               "MPI_Ialltoallw");
    if (!wait(request, options.timeout_seconds, true, [] { return 0; })) {
      refuse_wait(peers, "one of the ranks ");
    }
  }
}

void MpiCommunicator::Impl::exchange(const ConstBytes* send,
                                     const MutableBytes* receive) {
  exchange_headers(send, receive);
  check_sizes(send, receive);
  exchange_large(send, receive);
  for (int r = 0; r < size; ++r) {
    const std::size_t bytes = receive[r].bytes;
    if (r == rank || bytes == 0 || bytes > Header::kInline) continue;
    std::memcpy(receive[r].data, received[static_cast<std::size_t>(r)].piece,
                bytes);
  }
}

MpiCommunicator::MpiCommunicator(const MpiOptions& options)
    : MpiCommunicator(join_world(options)) {}

MpiCommunicator::MpiCommunicator(std::unique_ptr<Impl> impl) noexcept
    : impl_(std::move(impl)) {}

MpiCommunicator MpiCommunicator::from_fortran(int handle,
                                              const MpiOptions& options) {
  return MpiCommunicator(join_fortran(handle, options));
}

MpiCommunicator::~MpiCommunicator() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!impl_->failure.empty() ||
      std::uncaught_exceptions() > impl_->exceptions ||
      (finalized == 0 && !impl_->session->may_call())) {
    mpi::Session::give_up();
    // Leaked deliberately, because MPI may still write into it.
    static_cast<void>(impl_.release());
    return;
  }
  if (finalized == 0) MPI_Comm_free(&impl_->comm);
}

int MpiCommunicator::rank() const noexcept { return impl_->rank; }

int MpiCommunicator::size() const noexcept { return impl_->size; }

void MpiCommunicator::abort_all(int code) noexcept {
  MPI_Abort(impl_->comm, code);
  std::terminate();  // not reached
}

void MpiCommunicator::exchange_pieces(const ConstBytes* send,
                                      const MutableBytes* receive) {
  if (!impl_->failure.empty()) {
    throw Error(SWAMP_INTERNAL,
                "MpiCommunicator: unusable after: " + impl_->failure);
  }
  impl_->session->require_thread();
  try {
    impl_->exchange(send, receive);
  } catch (const std::exception& error) {
    impl_->failure = error.what();
    mpi::Session::give_up();
    throw;
  }
}

}  // namespace swamp
