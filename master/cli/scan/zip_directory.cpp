#include "master/cli/scan/zip_directory.h"

#include <fmt/format.h>

#include <unordered_set>

#include "master/cli/command.h"
#include "master/cli/scan/tensor_file.h"
#include "master/cli/scan/zip_end.h"

namespace swamp::cli {
namespace {

constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint32_t kEntrySignature = 0x02014b50;
constexpr std::size_t kLocalBytes = 30;
constexpr std::uint32_t kIn64 = 0xffffffff;  // "see the zip64 field"
constexpr std::uint16_t kZip64Field = 1;
constexpr std::uint16_t kEncrypted = 0x2041;  // any of three kinds
constexpr std::uint64_t kMaxRatio = 1032;     // of deflate

[[noreturn]] void fail(const std::string& text) {
  throw Failure("zip: " + text);
}

// Sizes are 32 bits wide, or in a zip64 field, in this order.
struct Sizes {
  std::uint64_t bytes;
  std::uint64_t packed;
  std::uint64_t offset;
};

void read_zip64_field(Bytes extra, const std::string& name, Sizes& sizes) {
  while (extra.size() >= 4) {
    const auto id = load_little<std::uint16_t>(extra, 0);
    const auto bytes = load_little<std::uint16_t>(extra, 2);
    if (bytes > extra.size() - 4) break;
    Bytes field = extra.substr(4, bytes);
    extra.remove_prefix(4u + bytes);
    if (id != kZip64Field) continue;
    for (std::uint64_t* size : {&sizes.bytes, &sizes.packed, &sizes.offset}) {
      if (*size != kIn64) continue;
      if (field.size() < 8) {
        fail(fmt::format("member {}: its zip64 field is too short", name));
      }
      *size = load_little<std::uint64_t>(field, 0);
      field.remove_prefix(8);
    }
    return;
  }
}

// check_method() refuses what could not be unpacked, or not honestly.
void check_method(const ZipMember& member, std::uint16_t flags,
                  std::uint64_t packed, const std::string& name) {
  if ((flags & kEncrypted) != 0) {
    fail(fmt::format("member {}: encrypted, expected plain", name));
  }
  if (member.method == ZipMember::kStored) {
    if (packed == member.bytes) return;
    fail(fmt::format("member {}: {} bytes stored as {}", name, member.bytes,
                     packed));
  }
  if (member.method != ZipMember::kDeflated) {
    fail(
        fmt::format("member {}: method {}, expected 0 (stored) or 8 (deflated)",
                    name, member.method));
  }
  if (member.bytes / kMaxRatio > packed) {
    fail(fmt::format("member {}: {} bytes deflated to {}, which deflate cannot",
                     name, member.bytes, packed));
  }
}

// Entry is a member and the bytes of the file that are its own.
struct Entry {
  ZipMember member;
  std::uint64_t begin;
  std::uint64_t end;
};

// read_entry() reads the entry at the start of `rest`, which it removes, and
// the member's own header, which must say the same.
Entry read_entry(Bytes file, const ZipEnd& directory, Bytes& rest) {
  if (rest.size() < kZipEntryBytes ||
      load_little<std::uint32_t>(rest, 0) != kEntrySignature) {
    fail("a broken entry in the central directory");
  }
  const std::size_t name_bytes = load_little<std::uint16_t>(rest, 28);
  const std::size_t extra_bytes = load_little<std::uint16_t>(rest, 30);
  const std::size_t comment_bytes = load_little<std::uint16_t>(rest, 32);
  const std::size_t entry_bytes =
      kZipEntryBytes + name_bytes + extra_bytes + comment_bytes;
  if (entry_bytes > rest.size()) {
    fail("an entry reaches beyond the central directory");
  }
  Entry entry;
  ZipMember& member = entry.member;
  const auto flags = load_little<std::uint16_t>(rest, 8);
  member.method = load_little<std::uint16_t>(rest, 10);
  member.crc = load_little<std::uint32_t>(rest, 16);
  member.name = rest.substr(kZipEntryBytes, name_bytes);
  const std::string name = quoted(member.name);
  Sizes sizes{load_little<std::uint32_t>(rest, 24),
              load_little<std::uint32_t>(rest, 20),
              load_little<std::uint32_t>(rest, 42)};
  read_zip64_field(rest.substr(kZipEntryBytes + name_bytes, extra_bytes), name,
                   sizes);
  rest.remove_prefix(entry_bytes);
  member.bytes = sizes.bytes;
  check_method(member, flags, sizes.packed, name);

  // The directory begins behind every member.
  const std::uint64_t limit = directory.offset;
  if (sizes.offset > limit || limit - sizes.offset < kLocalBytes) {
    fail(
        fmt::format("member {}: at {}, expected it before the central "
                    "directory at {}",
                    name, sizes.offset, limit));
  }
  const Bytes local =
      file.substr(static_cast<std::size_t>(sizes.offset),
                  static_cast<std::size_t>(limit - sizes.offset));
  const std::size_t local_name = load_little<std::uint16_t>(local, 26);
  const std::size_t header_bytes =
      kLocalBytes + local_name + load_little<std::uint16_t>(local, 28);
  if (load_little<std::uint32_t>(local, 0) != kLocalSignature ||
      load_little<std::uint16_t>(local, 8) != member.method ||
      local.substr(kLocalBytes, local_name) != member.name) {
    fail(fmt::format("member {}: the header at {} is not its own", name,
                     sizes.offset));
  }
  if (header_bytes > local.size() ||
      sizes.packed > local.size() - header_bytes) {
    fail(
        fmt::format("member {}: {} packed bytes at {} reach beyond the "
                    "central directory at {}",
                    name, sizes.packed, sizes.offset, limit));
  }
  member.packed =
      local.substr(header_bytes, static_cast<std::size_t>(sizes.packed));
  entry.begin = sizes.offset;
  entry.end = sizes.offset + header_bytes + sizes.packed;
  return entry;
}

void check_overlaps(std::vector<const Entry*> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry* a, const Entry* b) { return a->begin < b->begin; });
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if (entries[i]->begin >= entries[i - 1]->end) continue;
    fail(fmt::format("members {} and {} overlap",
                     quoted(entries[i - 1]->member.name),
                     quoted(entries[i]->member.name)));
  }
}

}  // namespace

std::vector<ZipMember> read_zip_directory(Bytes file) {
  const ZipEnd directory = read_zip_end(file);
  Bytes rest = file.substr(static_cast<std::size_t>(directory.offset),
                           static_cast<std::size_t>(directory.bytes));
  std::vector<Entry> entries;
  std::unordered_set<std::string> names;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    entries.push_back(read_entry(file, directory, rest));
    const std::string& name = entries.back().member.name;
    if (!names.insert(name).second) {
      fail(fmt::format("two members are named {}", quoted(name)));
    }
  }
  if (!rest.empty()) {
    fail(fmt::format("{} bytes behind the last entry of the central directory",
                     rest.size()));
  }
  std::vector<const Entry*> by_place;
  for (const Entry& entry : entries) by_place.push_back(&entry);
  check_overlaps(std::move(by_place));
  std::vector<ZipMember> members;
  for (Entry& entry : entries) members.push_back(std::move(entry.member));
  return members;
}

}  // namespace swamp::cli
