// npz files: zip archives of npy files, read with libzip.
#include <fmt/core.h>

#include "master/cli/command.h"
#include "master/cli/scan/tensor_file.h"
#include "master/cli/text.h"

#ifdef SWAMP_HAS_LIBZIP
#include <zip.h>
#endif

namespace swamp::cli {

#ifdef SWAMP_HAS_LIBZIP
// NpzMember is one npy file in an archive.
struct NpzMember {
  std::shared_ptr<zip_t> archive;
  std::uint64_t index = 0;
  std::string name;
  std::uint64_t bytes = 0;  // unpacked, by the archive's directory
};

namespace {

constexpr Bytes kSuffix = ".npy";
constexpr std::uint64_t kMaxRatio = 1032;  // of deflate

[[noreturn]] void fail(const std::string& text) {
  throw Failure("zip: " + text);
}

[[noreturn]] void fail(const std::string& member, const std::string& text) {
  fail(fmt::format("member {}: {}", in_quotes(member), text));
}

// ZipError frees the texts that libzip makes.
struct ZipError {
  zip_error_t error;

  ZipError() { zip_error_init(&error); }
  ~ZipError() { zip_error_fini(&error); }
  ZipError(const ZipError&) = delete;
  ZipError& operator=(const ZipError&) = delete;

  [[noreturn]] void fail() {
    const int code = zip_error_code_zip(&error);
    if (code == ZIP_ER_MEMORY) throw std::bad_alloc();
    if (code == ZIP_ER_NOZIP) {
      cli::fail(
          "no valid central directory, expected one at the end of the file; is "
          "it truncated?");
    }
    if (code == ZIP_ER_INCONS) {
      cli::fail("the central directory and the members contradict each other");
    }
    if (code == ZIP_ER_EXISTS) cli::fail("two members have the same name");
    cli::fail(zip_error_strerror(&error));
  }
};

// open_archive() reads the central directory and compares it with the members'
// own headers. libzip reads the bytes again whenever a member is read.
std::shared_ptr<zip_t> open_archive(Bytes file) {
  // libzip takes an empty file for an archive without members.
  if (file.empty()) fail("got 0 bytes, expected an archive");
  ZipError error;
  zip_source_t* source =
      zip_source_buffer_create(file.data(), file.size(), 0, &error.error);
  if (source == nullptr) error.fail();
  zip_t* archive =
      zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error.error);
  if (archive == nullptr) {
    zip_source_free(source);
    error.fail();
  }
  return {archive, &zip_discard};
}

// check_packing() refuses a member that cannot be unpacked, or whose sizes are
// impossible.
void check_packing(const zip_stat_t& entry) {
  if (entry.encryption_method != ZIP_EM_NONE) {
    fail(entry.name, "got an encrypted member, expected a plain one");
  }
  if (entry.comp_method == ZIP_CM_STORE) {
    if (entry.comp_size == entry.size) return;
    fail(entry.name,
         fmt::format("{} bytes stored as {}", entry.size, entry.comp_size));
  }
  if (entry.comp_method != ZIP_CM_DEFLATE) {
    fail(entry.name,
         fmt::format("got method {}, expected 0 (stored) or 8 (deflated)",
                     entry.comp_method));
  }
  if (entry.size / kMaxRatio > entry.comp_size) {
    fail(entry.name, fmt::format("{} bytes in {}, which deflate cannot do",
                                 entry.size, entry.comp_size));
  }
}

// read_directory() also bounds what all members together can unpack to, at
// about kMaxRatio times the file: members that share bytes are refused.
std::vector<NpzMember> read_directory(Bytes file) {
  const std::shared_ptr<zip_t> archive = open_archive(file);
  const auto count =
      static_cast<zip_uint64_t>(zip_get_num_entries(archive.get(), 0));
  std::vector<NpzMember> members;
  std::uint64_t left = file.size();
  for (zip_uint64_t i = 0; i < count; ++i) {
    constexpr zip_uint64_t kNeeded = ZIP_STAT_NAME | ZIP_STAT_SIZE |
                                     ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD |
                                     ZIP_STAT_ENCRYPTION_METHOD;
    zip_stat_t entry;
    if (zip_stat_index(archive.get(), i, ZIP_FL_ENC_RAW, &entry) != 0 ||
        (entry.valid & kNeeded) != kNeeded) {
      fail(fmt::format("entry {} of the central directory is broken", i));
    }
    check_packing(entry);
    if (entry.comp_size > left) {
      fail(entry.name, "its bytes belong to another member, too");
    }
    left -= entry.comp_size;
    members.push_back({archive, i, entry.name, entry.size});
  }
  return members;
}

// MemberStream unpacks a member as it is read. libzip checks the CRC at the
// end, but not the length.
class MemberStream final : public ByteStream {
 public:
  explicit MemberStream(const NpzMember& member)
      : member_(member),
        file_(zip_fopen_index(member.archive.get(), member.index, 0)) {
    if (file_ == nullptr) {
      fail(member.name, zip_strerror(member.archive.get()));
    }
  }
  ~MemberStream() override { zip_fclose(file_); }

  Bytes next(std::size_t most) override {
    const zip_int64_t read =
        zip_fread(file_, buffer_, std::min(most, sizeof buffer_));
    if (read < 0) fail_read();
    done_ += static_cast<std::uint64_t>(read);
    if (done_ > member_.bytes) {
      fail(member_.name,
           fmt::format("more than the {} bytes of its header", member_.bytes));
    }
    if (read == 0 && done_ != member_.bytes && most != 0) {
      fail(member_.name,
           fmt::format("got {} bytes, expected the {} of its header", done_,
                       member_.bytes));
    }
    return {buffer_, static_cast<std::size_t>(read)};
  }

 private:
  [[noreturn]] void fail_read() {
    zip_error_t* error = zip_file_get_error(file_);
    switch (zip_error_code_zip(error)) {
      case ZIP_ER_MEMORY:
        throw std::bad_alloc();
      case ZIP_ER_CRC:
        fail(member_.name, "its CRC differs: the data is damaged");
      default:
        fail(member_.name, fmt::format("its packed data is broken: {}",
                                       zip_error_strerror(error)));
    }
  }

  const NpzMember& member_;
  zip_file_t* file_;
  std::uint64_t done_ = 0;
  char buffer_[1 << 16];
};

FileTensor read_member(const std::shared_ptr<const NpzMember>& member) {
  const Bytes name = member->name;
  if (name.size() < kSuffix.size() ||
      name.substr(name.size() - kSuffix.size()) != kSuffix) {
    throw Failure("expected the name of an .npy file");
  }
  MemberStream stream(*member);
  FileTensor tensor = read_npy(
      stream, std::string(name.substr(0, name.size() - kSuffix.size())),
      member->bytes);
  tensor.member = member;
  return tensor;
}

}  // namespace

std::vector<FileTensor> read_npz(Bytes file) {
  std::vector<FileTensor> tensors;
  for (NpzMember& entry : read_directory(file)) {
    const auto member = std::make_shared<const NpzMember>(std::move(entry));
    try {
      tensors.push_back(read_member(member));
    } catch (const Failure& failure) {
      const std::string text = failure.what();
      if (text.rfind("zip: ", 0) == 0) throw;  // names the member already
      throw Failure(
          fmt::format("member {}: {}", in_quotes(member->name), text));
    }
  }
  return tensors;
}

std::unique_ptr<ByteStream> open_member(const NpzMember& member) {
  return std::make_unique<MemberStream>(member);
}

#else

std::vector<FileTensor> read_npz(Bytes) {
  throw Failure("npz: unsupported here: this swamp was built without libzip");
}

std::unique_ptr<ByteStream> open_member(const NpzMember&) {
  return nullptr;  // read_npz() makes no members
}

#endif

}  // namespace swamp::cli
