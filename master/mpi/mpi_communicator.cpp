// MpiCommunicator: a duplicate of the caller's MPI communicator, whose errors
// return, an Exchange on it, and a share of the MPI session. Its first error is
// kept, because after it the ranks may differ, and every later call throws the
// same.
#include <mpi.h>

#include <climits>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

#include "master/mpi/exchange.h"
#include "master/mpi/session.h"
#include "master/text.h"
#include "swamp/mpi.h"

namespace swamp {

struct MpiCommunicator::Impl {
  Impl(std::unique_ptr<mpi::Session> share, MPI_Comm copy, int own_rank,
       int ranks, const MpiOptions& options)
      : session(std::move(share)),
        comm(copy),
        rank(own_rank),
        size(ranks),
        exchange(copy, own_rank, ranks, options) {}

  std::unique_ptr<mpi::Session> session;
  MPI_Comm comm;
  int rank;
  int size;
  mpi::Exchange exchange;
  std::string failure;  // text of the first error
  int exceptions = std::uncaught_exceptions();
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

MPI_Comm duplicate(MPI_Comm comm, int timeout_seconds) {
  // Not on the stack, because MPI may write to it after a timeout.
  auto copy = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  mpi::check(MPI_Comm_idup(comm, copy.get(), &request), "MPI_Comm_idup");
  mpi::Requests requests;
  requests.add(request);
  if (!requests.wait(timeout_seconds, false)) {
    static_cast<void>(copy.release());
    throw Error(SWAMP_INTERNAL,
                "MpiCommunicator: not all ranks have created one after " +
                    std::to_string(timeout_seconds) + " s (SWAMP_MPI_TIMEOUT)");
  }
  mpi::check(MPI_Comm_set_errhandler(*copy, MPI_ERRORS_RETURN),
             "MPI_Comm_set_errhandler");
  return *copy;
}

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
    return std::make_unique<MpiCommunicator::Impl>(std::move(session), copy,
                                                   rank, size, options);
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
    impl_->exchange.run(send, receive);
  } catch (const std::exception& error) {
    impl_->failure = error.what();
    mpi::Session::give_up();
    throw;
  }
}

}  // namespace swamp
