#include "master/cli/scan/zip_end.h"

#include <fmt/format.h>

#include <string>

#include "master/cli/command.h"

namespace swamp::cli {
namespace {

constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kLocatorSignature = 0x07064b50;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::size_t kLocatorBytes = 20;
constexpr std::uint32_t kIn64 = 0xffffffff;  // "see the zip64 field"

[[noreturn]] void fail(const std::string& text) {
  throw Failure("zip: " + text);
}

// find_end() returns the offset of the end record, which the comment's length
// must lead to the end of the file.
std::size_t find_end(Bytes file) {
  if (file.size() < kEndBytes) {
    fail(fmt::format("{} bytes, expected an archive of at least {}",
                     file.size(), kEndBytes));
  }
  const std::size_t last = file.size() - kEndBytes;
  for (std::size_t back = 0; back <= last && back <= 0xffff; ++back) {
    const std::size_t at = last - back;
    if (load_little<std::uint32_t>(file, at) == kEndSignature &&
        load_little<std::uint16_t>(file, at + 20) == back) {
      return at;
    }
  }
  fail(
      "no end of a central directory, expected one at the end of the file; is "
      "it truncated?");
}

}  // namespace

ZipEnd read_zip_end(Bytes file) {
  const std::size_t end = find_end(file);
  const auto disk = load_little<std::uint32_t>(file, end + 4);
  ZipEnd found{load_little<std::uint32_t>(file, end + 16),
               load_little<std::uint32_t>(file, end + 12),
               load_little<std::uint16_t>(file, end + 10)};
  if (load_little<std::uint16_t>(file, end + 8) != found.entries) {
    fail("an archive of several disks, expected one");
  }
  std::uint64_t behind = end;
  if (found.offset == kIn64 || found.bytes == kIn64 ||
      found.entries == 0xffff || disk != 0) {
    if (end < kLocatorBytes + kEnd64Bytes) fail("no room for a zip64 record");
    const std::size_t locator = end - kLocatorBytes;
    const std::size_t end64 = locator - kEnd64Bytes;
    if (load_little<std::uint32_t>(file, locator) != kLocatorSignature ||
        load_little<std::uint64_t>(file, locator + 8) != end64 ||
        load_little<std::uint32_t>(file, end64) != kEnd64Signature) {
      fail("no zip64 record directly before the end record");
    }
    found = {load_little<std::uint64_t>(file, end64 + 48),
             load_little<std::uint64_t>(file, end64 + 40),
             load_little<std::uint64_t>(file, end64 + 32)};
    behind = end64;
  }
  if (found.offset > behind || found.bytes != behind - found.offset) {
    fail(
        fmt::format("the central directory is said to be {} bytes at {}, "
                    "expected it to end at {}",
                    found.bytes, found.offset, behind));
  }
  if (found.entries > found.bytes / kZipEntryBytes) {
    fail(fmt::format("{} entries in a central directory of {} bytes",
                     found.entries, found.bytes));
  }
  return found;
}

}  // namespace swamp::cli
