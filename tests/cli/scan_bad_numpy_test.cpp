// Lying npy headers, and zip archives that are made to trick, are one-line
// errors.
#include <gtest/gtest.h>

#include "tests/cli/scan_files.h"
#include "tests/cli/scan_refusal.h"

namespace swamp::test {
namespace {

using cli::FileFormat;

TEST(BadNpy, Headers) {
  const std::string four(4, '\0');
  const auto refuse = [](const std::string& file, const std::string& words) {
    SCOPED_TRACE(file.substr(0, 200));
    expect_refusal(FileFormat::npy, file, words);
  };
  const auto refuse_header = [&](const std::string& dictionary,
                                 const std::string& words) {
    refuse(npy_with(dictionary, four), words);
  };
  EXPECT_EQ(refusal(FileFormat::npy, npy("<f4", "(1,)", four)), "");
  refuse("", "does not begin");
  refuse("\x93NUMPX\1", "does not begin");
  refuse("\x93NUMPY\1", "truncated");
  refuse(npy("<f4", "(1,)", four, false, 4), "version 4.0");
  refuse(npy("<f4", "(1,)", four).substr(0, 50), "truncated");
  refuse("\x93NUMPY" + little(2, 2) + little(0xffffffff, 4), "at most");
  refuse(npy("<f4", "(2,)", four), "4 bytes (truncated) after");
  refuse(npy("<f4", "(1,)", four + "x"), "5 bytes after its header");
  refuse(npy("<f4", "(4294967296, 4294967296)", four), "overflows");
  refuse(npy("<f4", "(18446744073709551616,)", four), "2^64 or more");
  refuse(npy("<f4", "(-1,)", four), "expected numbers");
  refuse(npy("<f4", "(1)", four), "expected a tuple");
  refuse(npy("<f4", "1", four), "expected '('");
  for (const char* descr : {"", "<", "<f", "f3", "<f4x", "<x4", "<i3", "?",
                            "<f99999999999999999999", "<M8[ns"}) {
    refuse(npy(descr, "(1,)", four), "dtype");
  }
  refuse_header(
      "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}",
      "structured");
  refuse_header("{'descr': '<f4', 'shape': ()}", "expected descr");
  refuse_header("{'descr': '<f4', 'descr': '<f4'}", "descr twice");
  refuse_header("{'descr': '<f4', 'more': 1}", "unknown key 'more'");
  refuse_header("{'descr': '<f4', 'fortran_order': 1}", "True or False");
  refuse_header("{'descr': '<f4", "without an end");
  refuse_header("{'descr': '<f4', 'fortran_order': False, 'shape': ()} x",
                "after the closing brace");
  refuse_header("__import__('os').system('x')", "expected '{'");
}

class BadNpz : public testing::Test {
 protected:
  const std::string array_ = npy("<f4", "(100,)", std::string(400, '\0'));

  static void refuse(const std::string& file, const std::string& words) {
    expect_refusal(FileFormat::npz, file, words);
  }
};

TEST_F(BadNpz, Directory) {
  const std::string good = zip({stored("a.npy", array_)});
  ASSERT_EQ(refusal(FileFormat::npz, good), "");
  refuse("", "0 bytes");
  refuse("PK", "no valid central directory");
  refuse(good.substr(0, good.size() - 1), "no valid central directory");
  refuse(good + "x", "contradict each other");
  refuse("x" + good, "no valid central directory");
  refuse(zip({stored("a.npy", array_), stored("a.npy", array_)}),
         "two members have the same name");
  refuse(zip({stored("a.txt", array_)}), "the name of an .npy file");
  std::string count = good;
  count[count.size() - 12] = count[count.size() - 14] = 9;
  refuse(count, "contradict each other");
  ZipEntry in64 = stored("a.npy", array_);
  in64.zip64 = true;
  std::string count64 = zip({in64});  // 2^40 entries
  const std::size_t end64 = count64.rfind("PK\6\6");
  count64[end64 + 29] = count64[end64 + 37] = 1;
  refuse(count64, "contradict each other");
  std::string local = good;
  local[30] = 'b';  // the member calls itself b.npy
  refuse(local, "contradict each other");
  std::string encrypted = good;
  encrypted[good.find("PK\1\2") + 8] = 1;
  refuse(encrypted, "encrypted");
}

TEST_F(BadNpz, SizesThatLie) {
  const auto entry_of = [&](auto change) {
    ZipEntry made = stored("a.npy", array_);
    change(made);
    return zip({made});
  };
  refuse(entry_of([](ZipEntry& e) { e.method = 12; }), "method 12");
  refuse(entry_of([](ZipEntry& e) { ++e.bytes; }), "stored as");
  refuse(entry_of([](ZipEntry& e) { ++e.crc; }), "damaged");
  // Two entries of the directory that lead to the same bytes.
  std::string twice = zip({stored("a.npy", array_), stored("b.npy", array_)});
  const std::size_t second = twice.rfind("PK\1\2");
  twice.replace(second + 42, 4, little(0, 4));
  twice.replace(second + 46, 5, "a.npz");
  refuse(twice, "contradict each other");
  std::string beyond = zip({stored("a.npy", array_)});
  const std::size_t at = beyond.find("PK\1\2");
  beyond.replace(at + 42, 4, little(0xfffffff0u, 4));
  refuse(beyond, "no valid central directory");
  beyond.replace(at + 42, 4, little(0, 4));
  beyond.replace(at + 20, 8,
                 little(array_.size() + 1, 4) + little(array_.size() + 1, 4));
  refuse(beyond, "no valid central directory");
}

TEST_F(BadNpz, MembersInsideOthers) {
  // Every member is the stored bytes of the one before, with its header.
  std::vector<ZipEntry> members = {stored("0.npy", array_)};
  for (int i = 1; i < 9; ++i) {
    const std::string inner = zip({members.back()});
    members.push_back(stored(std::to_string(i) + ".npy",
                             inner.substr(0, inner.find("PK\1\2"))));
  }
  const std::string outer = zip({members.back()});
  std::string file = outer.substr(0, outer.find("PK\1\2"));
  const std::size_t begin = file.size();
  std::size_t offset = 0;
  for (auto member = members.rbegin(); member != members.rend(); ++member) {
    const std::string own = zip({*member});
    std::string entry = own.substr(own.find("PK\1\2"), 46 + 5);
    file += entry.replace(42, 4, little(offset, 4));
    offset += 30 + 5;
  }
  const std::size_t bytes = file.size() - begin;
  file += "PK\5\6" + little(0, 4) + little(9, 2) + little(9, 2) +
          little(bytes, 4) + little(begin, 4) + little(0, 2);
  refuse(file, "its bytes belong to another member, too");
}

TEST_F(BadNpz, Bombs) {
  const auto entry_of = [&](auto change) {
    ZipEntry made = deflated("a.npy", array_);
    change(made);
    return zip({made});
  };
  ASSERT_EQ(refusal(FileFormat::npz, entry_of([](ZipEntry&) {})), "");
  refuse(entry_of([](ZipEntry& e) { e.bytes = std::uint64_t{1} << 31; }),
         "which deflate cannot do");
  // More or less comes out than is promised, by header or by directory.
  refuse(entry_of([](ZipEntry& e) { e.bytes -= 4; }), "expected the 400");
  const std::string honest = npy("<f4", "(99,)", std::string(400, '\0'));
  ZipEntry more = deflated("a.npy", honest);
  more.bytes -= 4;
  refuse(zip({more}), "more than the");
  ZipEntry less = deflated("a.npy", npy("<f4", "(99,)", std::string(392, 0)));
  less.bytes += 4;
  refuse(zip({less}), "expected the");
  refuse(entry_of([](ZipEntry& e) { e.data[0] = 7; }), "broken");
  refuse(entry_of([](ZipEntry& e) { e.data.resize(300); }), "damaged");
  refuse(entry_of([](ZipEntry& e) { ++e.crc; }), "damaged");
}

}  // namespace
}  // namespace swamp::test
