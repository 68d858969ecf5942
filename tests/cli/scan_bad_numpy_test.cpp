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
  refuse(npy("<f4", "(2,)", four), "4 bytes (truncated) behind");
  refuse(npy("<f4", "(1,)", four + "x"), "5 bytes behind its header");
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
                "behind the closing brace");
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
  refuse("PK", "2 bytes");
  refuse(good.substr(0, good.size() - 1), "no end of a central directory");
  refuse(good + "x", "no end of a central directory");
  refuse("x" + good, "expected it to end at");
  refuse(zip({stored("a.npy", array_), stored("a.npy", array_)}),
         "two members are named");
  refuse(zip({stored("a.txt", array_)}), "the name of an .npy file");
  std::string count = good;
  count[count.size() - 12] = count[count.size() - 14] = 9;
  refuse(count, "central directory");
  std::string local = good;
  local[30] = 'b';  // the member calls itself b.npy
  refuse(local, "not its own");
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
  refuse(twice, "not its own");
  std::string beyond = zip({stored("a.npy", array_)});
  const std::size_t at = beyond.find("PK\1\2");
  beyond.replace(at + 42, 4, little(0xfffffff0u, 4));
  refuse(beyond, "before the central directory");
  beyond.replace(at + 42, 4, little(0, 4));
  beyond.replace(at + 20, 8,
                 little(array_.size() + 1, 4) + little(array_.size() + 1, 4));
  refuse(beyond, "reach beyond");
}

TEST_F(BadNpz, MembersThatOverlap) {
  // The second member lies inside the stored bytes of the first.
  const std::string inner = zip({stored("b.npy", array_)});
  const std::string hidden = inner.substr(0, inner.find("PK\1\2"));
  std::string file = zip({stored("a.npy", hidden), stored("b.npy", array_)});
  const std::size_t first = file.find("PK\3\4", 4);  // hidden in a.npy
  const std::size_t second = file.rfind("PK\1\2");
  file.replace(second + 42, 4, little(first, 4));
  refuse(file, "overlap");
}

TEST_F(BadNpz, Bombs) {
  const auto entry_of = [&](auto change) {
    ZipEntry made = deflated("a.npy", array_);
    change(made);
    return zip({made});
  };
  ASSERT_EQ(refusal(FileFormat::npz, entry_of([](ZipEntry&) {})), "");
  refuse(entry_of([](ZipEntry& e) { e.bytes = std::uint64_t{1} << 31; }),
         "which deflate cannot");
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
  refuse(entry_of([](ZipEntry& e) { e.data += 'x'; }), "behind the end");
  refuse(entry_of([](ZipEntry& e) { e.data.resize(300); }), "too early");
  refuse(entry_of([](ZipEntry& e) { ++e.crc; }), "damaged");
}

}  // namespace
}  // namespace swamp::test
