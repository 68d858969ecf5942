// Headers that lie are one line on stderr and exit code 2.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "master/cli/command.h"
#include "master/cli/scan/index_file.h"
#include "master/cli/scan/mapped_file.h"
#include "master/cli/scan/tensor_file.h"
#include "tests/cli/run_program.h"
#include "tests/cli/scan_files.h"

namespace swamp::test {
namespace {

using cli::Failure;
using cli::FileFormat;

// refusal() is what the reader of `format` says to `file`, "" where it reads
// all of it.
std::string refusal(FileFormat format, const std::string& file) {
  try {
    for (const cli::FileTensor& tensor : cli::read_tensors(format, file)) {
      const auto stream = cli::open_stream(tensor);
      while (!stream->next(1 << 16).empty()) {
      }
    }
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

void expect_refusal(FileFormat format, const std::string& file,
                    const std::string& words) {
  const std::string text = refusal(format, file);
  EXPECT_NE(text.find(words), std::string::npos)
      << "'" << words << "' is not in '" << text << "'";
  EXPECT_LT(text.size(), 2000u);
}

void expect_bad_header(const std::string& header, const std::string& words,
                       std::size_t buffer_bytes = 16) {
  SCOPED_TRACE(header.substr(0, 200));
  expect_refusal(FileFormat::safetensors,
                 safetensors(header, std::string(buffer_bytes, '\0')), words);
}

std::string entry(const std::string& name, const std::string& begin,
                  const std::string& end, const std::string& shape = "[2]",
                  const std::string& dtype = "F32") {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":[" + begin + "," + end + "]}";
}

TEST(BadSafetensors, Offsets) {
  const std::string good = entry("a", "0", "8") + "," + entry("b", "8", "16");
  EXPECT_EQ(refusal(FileFormat::safetensors,
                    safetensors("{" + good + "}", std::string(16, '\0'))),
            "");
  const auto two = [](const std::string& a, const std::string& b) {
    return "{" + a + "," + b + "}";
  };
  const std::string a = entry("a", "0", "8");
  expect_bad_header(two(a, entry("b", "16", "24")), "inside the buffer");
  expect_bad_header(two(a, entry("b", "16", "8")), "in order");
  expect_bad_header(two(a, entry("b", "4", "12")), "overlap");
  expect_bad_header(two(a, entry("b", "0", "8")), "overlap");
  expect_bad_header(two(a, entry("b", "9", "17")), "a gap", 17);
  expect_bad_header("{" + entry("b", "8", "16") + "}", "a gap");
  expect_bad_header("{" + a + "}", "end at 8 of the buffer");
  expect_bad_header("{}", "end at 0 of the buffer");
  expect_bad_header(two(a, entry("b", "8", "12")), "expected the 8 bytes");
  expect_bad_header(two(a, entry("b", "8", "18446744073709551615")),
                    "inside the buffer");
  expect_bad_header(two(a, entry("b", "8", "18446744073709551616")),
                    "a fraction");
  expect_bad_header(two(a, entry("b", "-8", "16")), "a negative number");
  expect_bad_header(two(a, entry("b", "8.0", "16")), "a fraction");
  expect_bad_header(two(a, entry("b", "8,12", "16")), "expected 2");
}

TEST(BadSafetensors, ShapesAndDtypes) {
  const auto one = [](const std::string& shape, const std::string& dtype) {
    return "{" + entry("a", "0", "16", shape, dtype) + "}";
  };
  expect_bad_header(one("[4294967296,4294967296]", "F32"), "overflow");
  expect_bad_header(one("[9223372036854775808,2,0]", "F32"), "overflow");
  expect_bad_header(one("[2305843009213693952]", "F64"), "overflow");
  std::string many = "[1";
  for (int i = 0; i < 64; ++i) many += ",1";
  expect_bad_header(one(many + "]", "F64"), "65 dimensions");
  expect_bad_header(one("[-4]", "F32"), "a negative number");
  expect_bad_header(one("4", "F32"), "expected an array");
  expect_bad_header(one("[[4]]", "F32"), "an array, expected an array of int");
  expect_bad_header(one("[\"4\"]", "F32"), "a string");
  expect_bad_header(one("[4]", "F31"), "dtype 'F31', expected one of F64");
  expect_bad_header(one("[4]", "f32"), "dtype 'f32'");
  expect_bad_header(one("[4]", ""), "dtype ''");
}

TEST(BadSafetensors, Json) {
  const std::string a = entry("a", "0", "16", "[4]");
  expect_bad_header("{" + a + "," + a + "}", "is there twice");
  expect_bad_header(R"({"a":{"dtype":"F32","dtype":"F32"}})", "dtype twice");
  expect_bad_header(R"({"a":{"dtype":"F32","shape":[4]}})", "expected dtype");
  expect_bad_header(R"({"a":[]})", "expected an object");
  expect_bad_header(R"({"a":7})", "expected an object");
  expect_bad_header(R"({"__metadata__":{"a":1}})", "expected strings");
  expect_bad_header(R"({"__metadata__":[]})", "expected an object");
  expect_bad_header("{" + a, "JSON: an error at byte");
  expect_bad_header("{" + a + "}}", "JSON: an error at byte");
  expect_bad_header("{" + a + "}" + std::string(1, '\0'), "JSON: an error");
  expect_bad_header("{\"\xff\":1}", "JSON: an error");
  expect_bad_header("[]", "does not begin with '{'");
  expect_bad_header(" {}", "does not begin with '{'");
  // Deep nesting, where a known and where an unknown field allows it.
  const std::string deep(1000000, '[');
  expect_bad_header("{\"a\":{\"shape\":" + deep, "expected an array of int");
  expect_bad_header("{\"a\":{\"x\":" + deep, "nested deeper");
  std::string objects = "{\"a\":{";
  for (int i = 0; i < 100000; ++i) objects += "\"x\":{";
  expect_bad_header(objects, "nested deeper");
  expect_bad_header("{\"" + std::string(5000000, 'n') + "\":1}",
                    "(5000000 bytes)");
}

TEST(BadSafetensors, Length) {
  const auto refuse = [](const std::string& file, const std::string& words) {
    expect_refusal(FileFormat::safetensors, file, words);
  };
  refuse("", "0 bytes");
  refuse("1234567", "7 bytes");
  refuse(little(0, 8), "does not begin");
  refuse(little(3, 8) + "{}", "a length of 3, expected at most 2");
  refuse(little(~std::uint64_t{0}, 8) + "{}", "expected at most 2");
  refuse(little(100000001, 8) + std::string(100000001, ' '),
         "expected at most 100000000");
}

TEST(BadIndex, Files) {
  const auto refuse = [](const std::string& json, const std::string& words) {
    try {
      cli::read_index(json);
      ADD_FAILURE() << "no error: " << json;
    } catch (const Failure& failure) {
      EXPECT_NE(std::string(failure.what()).find(words), std::string::npos)
          << failure.what();
    }
  };
  for (const char* file :
       {"../x", "/etc/x", "a/../../x", "..", "a/..", "", "x\\u0000y"}) {
    refuse(std::string(R"({"weight_map":{"w":")") + file + "\"}}",
           "in the folder of the index");
  }
  EXPECT_EQ(cli::read_index(R"({"weight_map":{"w":"a/..b"}})").size(), 1u);
  refuse("{}", "no weight_map");
  refuse("[]", "expected an object");
  refuse(R"({"weight_map":[]})", "expected an object");
  refuse(R"({"weight_map":{"w":1}})", "expected the name of a file");
  refuse(R"({"weight_map":{"w":"a","w":"b"}})", "there twice");
  refuse(R"({"weight_map":{},"weight_map":{}})", "weight_map twice");
  refuse("{\"x\":" + std::string(100000, '['), "nested deeper");
}

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

TEST(ShrinkingFile, IsAnErrorAndNoSignal) {
  const TemporaryFile file(std::string(1 << 20, 'x'));
  const cli::MappedFile mapped(file.path());
  EXPECT_NO_THROW(mapped.check());
  std::filesystem::resize_file(file.path(), 5000);
  unsigned sum = 0;  // from two threads, as slaves would
  std::thread other(
      [&] { sum = static_cast<unsigned char>(mapped.bytes()[99999]); });
  other.join();
  for (const char byte : mapped.bytes())
    sum += static_cast<unsigned char>(byte);
  EXPECT_EQ(sum, 5000u * 'x');
  try {
    mapped.check();
    FAIL() << "no error";
  } catch (const Failure& failure) {
    EXPECT_STREQ(
        failure.what(),
        "the file shrank from 1048576 to 5000 bytes while it was read");
  }
}

// The last page of the file stays, so there is no signal to tell.
TEST(ShrinkingFile, ByLessThanAPage) {
  const TemporaryFile file(std::string(100, 'x'));
  const cli::MappedFile mapped(file.path());
  std::filesystem::resize_file(file.path(), 99);
  EXPECT_THROW(mapped.check(), Failure);
}

TEST(ScanErrors, AreOneLineThatNamesTheFile) {
  const TemporaryFile pipe;
  const auto expect_error = [](const std::string& path,
                               const std::string& words) {
    const ProgramResult result = run_program({"scan", path});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_EQ(result.out, "");
    ASSERT_EQ(lines_of(result.err).size(), 1u) << result.err;
    EXPECT_EQ(result.err.rfind("swamp: " + path + ": ", 0), 0u) << result.err;
    EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
  };
  ASSERT_EQ(mkfifo(pipe.path().c_str(), 0600), 0);
  expect_error(pipe.path(), "not a regular file");
  expect_error("/nonexistent.npy", "No such file");
  expect_error("/dev/null", "not a regular file");
  const TemporaryFile empty("");
  expect_error(empty.path(), "unknown format");
  const std::string folder =
      std::filesystem::path(empty.path()).parent_path().string();
  expect_error(folder, "a folder without");
  EXPECT_EQ(run_program({"scan"}).exit_code, 2);
}

TEST(ScanErrors, TensorThatTheIndexPromises) {
  const TemporaryFile anchor("");
  const auto folder = std::filesystem::path(anchor.path()).parent_path();
  std::ofstream(folder / "a.safetensors", std::ios::binary)
      << safetensors("{}", "");
  std::ofstream(folder / "m.safetensors.index.json")
      << R"({"weight_map":{"w":"a.safetensors","v":"gone.safetensors"}})";
  const ProgramResult result = run_program({"scan", folder.string()});
  EXPECT_EQ(result.exit_code, 2);
  ASSERT_EQ(lines_of(result.err).size(), 2u) << result.err;
  EXPECT_NE(result.err.find("a.safetensors: no tensor 'w', expected it"),
            std::string::npos);
  EXPECT_NE(result.err.find("gone.safetensors: cannot open"),
            std::string::npos);
}

}  // namespace
}  // namespace swamp::test
