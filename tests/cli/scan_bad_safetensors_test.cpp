// Lying safetensors headers and indices are one-line errors.
#include <gtest/gtest.h>

#include "master/cli/scan/file_list.h"
#include "tests/cli/scan_files.h"
#include "tests/cli/scan_refusal.h"

namespace swamp::test {
namespace {

using cli::Failure;
using cli::FileFormat;

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
  expect_bad_header(one("[4]", "f32"), "dtype: got 'f32', expected one such");
  expect_bad_header(one("[4]", ""), "dtype: got ''");
  expect_bad_header(one("[4]", std::string(33, 'F')), "dtype: got 'FFF");
  // A dtype of unknown size must still lie in the buffer and cover it.
  expect_bad_header("{" + entry("a", "0", "24", "[4]", "F31") + "}",
                    "inside the buffer");
  expect_bad_header("{" + entry("a", "0", "8", "[4]", "F31") + "}",
                    "end at 8 of the buffer");
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

}  // namespace
}  // namespace swamp::test
