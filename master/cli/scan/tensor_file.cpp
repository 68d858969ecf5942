// The mapped file and its handler of SIGBUS, the streams of bytes, and what all
// formats share of a tensor's shape.
#include "master/cli/scan/tensor_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "master/cli/command.h"
#include "master/cli/text.h"

namespace swamp::cli {
namespace {

constexpr std::size_t kMaxDimensions = 64;  // as numpy

// The state of the one MappedFile, for the signal handler.
std::atomic<std::uintptr_t> mapped_begin{0};
std::atomic<std::uintptr_t> mapped_end{0};
std::atomic<bool> faulted{false};

void on_sigbus(int, siginfo_t* info, void*) {
  const int saved_errno = errno;
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const std::uintptr_t end = mapped_end;
  if (at >= mapped_begin && at < end) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const std::uintptr_t begin = at / page * page;
    void* zeros =
        mmap(reinterpret_cast<void*>(begin), end - begin, PROT_READ,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (zeros != MAP_FAILED) {
      faulted = true;
      errno = saved_errno;
      return;
    }
  }
  // Not in our file: the access is repeated and ends the program.
  std::signal(SIGBUS, SIG_DFL);
  errno = saved_errno;
}

void install_handler() {
  struct sigaction action = {};
  action.sa_sigaction = &on_sigbus;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

[[noreturn]] void fail_system(const char* what) {
  throw Failure(fmt::format("{}: {}", what, std::strerror(errno)));
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  // Non-blocking, because opening a pipe would wait for its writer.
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail_system("cannot open");
  struct stat status = {};
  const bool known = fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    close(descriptor_);
    throw Failure("not a regular file");
  }
  if (status.st_size == 0) return;  // cannot be mapped
  const auto count = static_cast<std::size_t>(status.st_size);
  void* memory = mmap(nullptr, count, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    close(descriptor_);
    errno = error;
    fail_system("cannot map");
  }
  (void)madvise(memory, count, MADV_SEQUENTIAL);
  bytes_ = Bytes(static_cast<const char*>(memory), count);
  faulted = false;
  mapped_begin = reinterpret_cast<std::uintptr_t>(memory);
  mapped_end = mapped_begin + count;
  install_handler();
}

MappedFile::~MappedFile() {
  mapped_begin = mapped_end = 0;
  if (!bytes_.empty()) {
    munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  }
  close(descriptor_);
}

void MappedFile::check() const {
  struct stat status = {};
  const bool known = fstat(descriptor_, &status) == 0;
  const auto count = static_cast<std::uint64_t>(known ? status.st_size : 0);
  // Compare the size, too: a file that shrank within its last page causes no
  // signal, but reads as zeros there.
  if (count < bytes_.size()) {
    throw Failure(
        fmt::format("the file shrank from {} to {} bytes while it was read",
                    bytes_.size(), count));
  }
  if (faulted) {
    throw Failure(
        "a part of the file could not be read: an I/O error, or the file was "
        "rewritten meanwhile");
  }
}

std::vector<FileTensor> read_tensors(FileFormat format, Bytes file) {
  if (format == FileFormat::safetensors) return read_safetensors(file);
  if (format == FileFormat::npz) return read_npz(file);
  MemoryStream stream(file);
  FileTensor tensor = read_npy(stream, "array", file.size());
  tensor.data = file.substr(static_cast<std::size_t>(tensor.member_offset));
  return {tensor};
}

std::string read_up_to(ByteStream& stream, std::size_t count) {
  std::string all;
  while (all.size() < count) {
    const Bytes piece = stream.next(count - all.size());
    if (piece.empty()) break;
    all += piece;
  }
  return all;
}

std::unique_ptr<ByteStream> open_stream(const FileTensor& tensor) {
  if (!tensor.member) return std::make_unique<MemoryStream>(tensor.data);
  std::unique_ptr<ByteStream> stream = open_member(*tensor.member);
  read_up_to(*stream, static_cast<std::size_t>(tensor.member_offset));
  return stream;
}

const char* why_not_scanned(Element::Kind kind) noexcept {
  switch (kind) {
    case Element::Kind::integer:
      return "integer";
    case Element::Kind::boolean:
      return "boolean";
    case Element::Kind::not_number:
      return "not a number";
    case Element::Kind::finite:
      return "a format without inf and nan";
    case Element::Kind::unsupported:
      return "unsupported dtype";
    case Element::Kind::scanned:
      break;
  }
  return "";
}

void settle_count(FileTensor& tensor) {
  if (tensor.shape.size() > kMaxDimensions) {
    throw Failure(fmt::format(
        "tensor {}: shape: got {} dimensions, expected at "
        "most {}",
        in_quotes(tensor.name), tensor.shape.size(), kMaxDimensions));
  }
  const std::uint64_t bits = tensor.element.bits;
  std::uint64_t count = 1;
  std::uint64_t bytes = 0;
  bool overflow = false;
  for (const std::uint64_t length : tensor.shape) {
    overflow |= __builtin_mul_overflow(count, length, &count);
  }
  overflow |= __builtin_mul_overflow(count / 8, bits, &bytes);
  overflow |= __builtin_add_overflow(bytes, count % 8 * bits / 8, &bytes);
  if (overflow) {
    throw Failure(fmt::format(
        "tensor {}: shape: got {} of {}, expected less than 2^64 bytes",
        in_quotes(tensor.name), shape_text(tensor.shape), tensor.element.name));
  }
  if (count % 8 * bits % 8 != 0) {
    throw Failure(fmt::format(
        "tensor {}: shape: got {} of {}, expected whole bytes",
        in_quotes(tensor.name), shape_text(tensor.shape), tensor.element.name));
  }
  tensor.count = count;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::vector<std::string> lengths;
  for (const std::uint64_t length : shape) {
    lengths.push_back(std::to_string(length));
  }
  return "[" + joined(lengths) + "]";
}

}  // namespace swamp::cli
