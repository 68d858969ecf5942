// Headers that contradict their file, and zip archives made to trick a reader,
// are one-line errors.
#include <gtest/gtest.h>

#include "master/cli/command.h"
#include "master/cli/scan/tensor_file.h"
#include "support/errors.h"
#include "tests/cli/scan_files.h"

namespace swamp::test {
namespace {

using cli::Failure;
using cli::FileFormat;

// refusal() returns the error of the reader of `format`, "" if it reads all of
// `file`.
std::string refusal(cli::FileFormat format, const std::string& file) {
  try {
    for (const cli::FileTensor& tensor : cli::read_tensors(format, file)) {
      const auto stream = cli::open_stream(tensor);
      while (!stream->next(1 << 16).empty()) {
      }
    }
  } catch (const cli::Failure& failure) {
    return failure.what();
  }
  return "";
}

void expect_refusal(cli::FileFormat format, const std::string& file,
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
  expect_bad_header(one("[4294967296,4294967296]", "F32"), "less than 2^64");
  expect_bad_header(one("[9223372036854775808,2,0]", "F32"), "less than 2^64");
  expect_bad_header(one("[2305843009213693952]", "F64"), "less than 2^64");
  std::string many = "[1";
  for (int i = 0; i < 64; ++i) many += ",1";
  expect_bad_header(one(many + "]", "F64"), "65 dimensions");
  expect_bad_header(one("[-4]", "F32"), "a negative number");
  expect_bad_header(one("4", "F32"), "expected an array");
  expect_bad_header(one("[[4]]", "F32"), "an array, expected an array of int");
  expect_bad_header(one("[\"4\"]", "F32"), "a string");
  expect_bad_header(one("[4]", "f32"), "dtype: got 'f32', expected one such");
  expect_bad_header(one("[4]", ""), "dtype: got ''");
  expect_bad_header(one("[4]", std::string(33, 'F')), "dtype: got 'FFF");
  expect_bad_header(one("[31]", "F4"), "expected whole bytes");
  expect_bad_header(one("[18]", "F6_E2M3"), "expected whole bytes");
  expect_bad_header(one("[36893488147419103232]", "F4"), "a fraction");
  expect_bad_header(one("[16]", "F4"), "expected the 8 bytes of float4_e2m1fn");
  expect_bad_header(one("[6148914691236517208,4]", "F6_E3M2"),
                    "less than 2^64");
  // A dtype of unknown size must still lie in the buffer and cover it.
  expect_bad_header("{" + entry("a", "0", "24", "[4]", "F31") + "}",
                    "inside the buffer");
  expect_bad_header("{" + entry("a", "0", "8", "[4]", "F31") + "}",
                    "end at 8 of the buffer");
}

TEST(BadSafetensors, Json) {
  const std::string a = entry("a", "0", "16", "[4]");
  expect_bad_header("{" + a + "," + a + "}", "got the name twice");
  expect_bad_header(R"({"a":{"dtype":"F32","dtype":"F32"}})", "dtype twice");
  expect_bad_header(R"({"a":{"dtype":"F32","shape":[4]}})", "expected dtype");
  expect_bad_header(R"({"a":[]})", "expected an object");
  expect_bad_header(R"({"a":7})", "expected an object");
  expect_bad_header(R"({"__metadata__":{"a":1}})", "expected strings");
  expect_bad_header(R"({"__metadata__":[]})", "expected an object");
  expect_bad_header(R"({"__metadata__":null,"__metadata__":null})",
                    "got the name twice");
  expect_bad_header(R"({"__metadata__":{"a":null}})", "expected strings");
  expect_bad_header(R"({"a":null})", "got null, expected an object");
  expect_bad_header(R"({"a":{"dtype":null}})", "got null, expected a string");
  expect_bad_header("{" + a + R"(,"__metadata__":{"x":[1,2]}})",
                    "an array, expected strings");
  expect_bad_header(R"({"a":{"dtype":"F32","data_offsets":[0,16],"shape":[4]},)"
                    R"("__metadata__":{"x":[4]}})",
                    "an array, expected strings");
  expect_bad_header("{" + a, "JSON: an error at byte");
  expect_bad_header("{" + a + "}}", "JSON: an error at byte");
  expect_bad_header("{" + a + "}" + std::string(1, '\0'), "JSON: an error");
  expect_bad_header("{\"\xff\":1}", "JSON: an error");
  expect_bad_header("[]", "does not begin with '{'");
  expect_bad_header(" {}", "does not begin with '{'");
  // Deep nesting, in a known and in an unknown field.
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
      EXPECT_TRUE(has_words(failure.what(), {words}));
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
  refuse(npy("<f4", "(2,)", four), "4 bytes (truncated) after");
  refuse(npy("<f4", "(1,)", four + "x"), "5 bytes after its header");
  refuse(npy("<f4", "(4294967296, 4294967296)", four),
         "expected less than 2^64");
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
  void SetUp() override {
    if (!kReadsNpz) GTEST_SKIP() << "built without libzip";
  }

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
  local[30] = 'b';  // the member's own name is b.npy
  refuse(local, "contradict each other");
  std::string encrypted = good;
  encrypted[good.find("PK\1\2") + 8] = 1;
  refuse(encrypted, "encrypted");
}

TEST_F(BadNpz, WrongSizes) {
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
  // The unpacked bytes are more or fewer than header or directory state.
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
