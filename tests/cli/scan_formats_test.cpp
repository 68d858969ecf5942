// scan of files of every format, dtype and order.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "support/errors.h"
#include "tests/cli/scan_files.h"
#include "tests/cli/scan_lines.h"

namespace swamp::test {
namespace {

TEST(ScanSafetensors, EveryFloatDtype) {
  const auto scan = [](const char* dtype, const std::string& data,
                       std::size_t count, const char* name) {
    const Json json =
        scan_one("x.safetensors",
                 safetensors(header_of(dtype, count, data.size()), data), 1);
    EXPECT_EQ(json["dtype"], name);
    EXPECT_EQ(json["shape"], Json::array({count}));
    EXPECT_EQ(json["count"], count);
    return json;
  };
  using U16 = std::vector<std::uint16_t>;
  using U8 = std::vector<std::uint8_t>;
  expect_found(
      scan("F16", elements(U16{0x3c00, 0xfc00, 0x7c01, 0xc000}), 4, "float16"),
      1, 1, 1, -2.0, 1.0, 2.0);
  expect_found(
      scan("BF16", elements(U16{0x3f80, 0xc000, 0x7fc0}), 3, "bfloat16"), 0, 1,
      2, -2.0, 1.0, 2.0);
  expect_found(
      scan("F32", elements(std::vector<float>{kInf, 0.1f, kNan}), 3, "float32"),
      1, 1, 0, double{0.1f}, double{0.1f}, double{0.1f});
  expect_found(scan("F64", elements(std::vector<double>{1e300, -1e-300, kNan}),
                    3, "float64"),
               0, 1, 2, -1e-300, 1e300, 1e300);
  expect_found(
      scan("F8_E4M3", elements(U8{0x7e, 0xff, 0x78, 0x81}), 4, "float8_e4m3fn"),
      0, 1, 1, -0.001953125, 448.0, 448.0);
  expect_found(
      scan("F8_E5M2", elements(U8{0x7b, 0xfc, 0x7d, 0x01}), 4, "float8_e5m2"),
      1, 1, 1, 0.0000152587890625, 57344.0, 57344.0);
  expect_found(scan("F8_E4M3FNUZ", elements(U8{0x7f, 0x81, 0x80, 0x00}), 4,
                    "float8_e4m3fnuz"),
               0, 1, 2, -0.0009765625, 240.0, 240.0);
  expect_found(
      scan("F8_E5M2FNUZ", elements(U8{0x80, 0xff}), 2, "float8_e5m2fnuz"), 0, 1,
      0, -57344.0, -57344.0, 57344.0);
  expect_found(scan("F8_E8M0", elements(U8{0x7f, 0xff, 0x00, 0xfe, 0xff}), 5,
                    "float8_e8m0fnu"),
               0, 2, 1, 0x1p-127, 0x1p127, 0x1p127);
}

// More than a buffer, with the nan in the second one.
TEST(ScanSafetensors, DecodesInBuffers) {
  for (const auto& [dtype, nan] :
       {std::pair{"F8_E8M0", '\xff'}, {"F8_E4M3FNUZ", '\x80'}}) {
    std::string data(2500001, '\x7f');
    const bool powers = std::string(dtype) == "F8_E8M0";
    const double value = powers ? 1.0 : 240.0;
    expect_found(
        scan_one("x.safetensors",
                 safetensors(header_of(dtype, data.size(), data.size()), data),
                 0),
        0, 0, nullptr, value, value, value);
    data[1500000] = data[2500000] = nan;
    for (const char* transfer : {"view", "copy", "check"}) {
      expect_found(
          scan_one(
              "x.safetensors",
              safetensors(header_of(dtype, data.size(), data.size()), data), 1,
              {{"SWAMP_TRANSFER", transfer}}),
          0, 2, 1500000, value, value, value);
    }
  }
}

// All patterns of these are numbers.
TEST(ScanSafetensors, FormatsWithoutNanAreClean) {
  for (const auto& [dtype, name, bytes] :
       {std::tuple<const char*, const char*, std::size_t>{"F4", "float4_e2m1fn",
                                                          4},
        {"F6_E2M3", "float6_e2m3fn", 6},
        {"F6_E3M2", "float6_e3m2fn", 6}}) {
    const Json json = scan_one(
        "x.safetensors",
        safetensors(header_of(dtype, 8, bytes), std::string(bytes, '\xff')), 0);
    EXPECT_EQ(json["dtype"], name);
    EXPECT_EQ(json["count"], 8);
    EXPECT_EQ(json["scanned"], false);
    EXPECT_EQ(json["reason"], "a format without inf and nan");
  }
}

TEST(ScanSafetensors, ComplexIsScannedInParts) {
  const std::string data =
      elements(std::vector<float>{1, 2, -3, kNan, kInf, 0});
  const Json json =
      scan_one("x.safetensors", safetensors(header_of("C64", 3, 24), data), 1);
  EXPECT_EQ(json["dtype"], "complex64");
  EXPECT_EQ(json["count"], 3);
  expect_found(json, 1, 1, 1, -3.0, 2.0, 3.0);
}

TEST(ScanSafetensors, UnsupportedDtypesAreListedAndNotClean) {
  for (const auto& [dtype, name, bytes] :
       {std::tuple<const char*, const char*, std::size_t>{"F8_E3M4", "F8_E3M4",
                                                          4},
        {"F2", "F2", 1}}) {
    Folder folder;
    const std::string path = folder.add(
        "x.safetensors",
        safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                    R"("w":{"dtype":")" +
                        std::string(dtype) +
                        R"(","shape":[4],"data_offsets":[4,)" +
                        std::to_string(4 + bytes) + "]}}",
                    std::string(4 + bytes, '\0')));
    const std::vector<Json> lines = scan_lines(path, 2);
    ASSERT_EQ(lines.size(), 2u);
    expect_found(lines[0], 0, 0, nullptr, 0.0, 0.0, 0.0);
    EXPECT_EQ(lines[1]["dtype"], name);
    EXPECT_EQ(lines[1]["count"], 4);
    EXPECT_EQ(lines[1]["scanned"], false);
    EXPECT_EQ(lines[1]["reason"], "unsupported dtype");
  }
}

TEST(ScanSafetensors, NothingFiniteHasNoExtremes) {
  const std::string data = elements(std::vector<float>{kNan, -kInf});
  expect_found(
      scan_one("x.safetensors", safetensors(header_of("F32", 2, 8), data), 1),
      1, 1, 0, nullptr, nullptr, nullptr);
}

TEST(ScanSafetensors, MisalignedTensorsNextToIntegers) {
  const std::vector<float> floats = {1, kNan, -3};
  const std::vector<double> doubles = {4, 5, kInf};
  const std::string header =
      R"({"__metadata__":null,)"
      R"("d":{"dtype":"F64","shape":[3,1],"data_offsets":[13,37]},)"
      R"("i":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
      R"("f":{"dtype":"F32","shape":[],"data_offsets":[37,41],"new":[{"a":1}]},)"
      R"("e":{"dtype":"F16","shape":[0,7],"data_offsets":[13,13]},)"
      R"("g":{"dtype":"F32","shape":[3],"data_offsets":[1,13]}}   )";
  Folder folder;
  const std::string path = folder.add(
      "x.safetensors",
      safetensors(header, "\x07" + elements(floats) + elements(doubles) +
                              elements(std::vector<float>{9})));
  const std::vector<Json> lines = scan_lines(path, 1);
  ASSERT_EQ(lines.size(), 5u);  // in the order of the buffer
  EXPECT_EQ(lines[0]["name"], "i");
  EXPECT_EQ(lines[0]["scanned"], false);
  expect_found(lines[1], 0, 1, 1, -3.0, 1.0, 3.0);
  EXPECT_EQ(lines[2]["count"], 0);
  expect_found(lines[2], 0, 0, nullptr, nullptr, nullptr, nullptr);
  expect_found(lines[3], 1, 0, 2, 4.0, 5.0, 5.0);
  expect_found(lines[4], 0, 0, nullptr, 9.0, 9.0, 9.0);
}

TEST(ScanSafetensors, TextListsTensorsThatNeedAttention) {
  Folder folder;
  const std::string header =
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("b\u001b":{"dtype":"I32","shape":[1],"data_offsets":[8,12]},)"
      R"("c":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})";
  const std::string path = folder.add(
      "x.safetensors",
      safetensors(header, elements(std::vector<float>{1, kInf, 0, 5})));
  const std::vector<std::string> lines =
      lines_of(run_program({"scan", path}).out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0],
            "a  float32 [2]  inf 1 nan 0 first 1  min 1 max 1 absmax 1");
  EXPECT_EQ(lines[1], "b?  int32 [1]  integer, not scanned");
  EXPECT_EQ(lines[2].rfind(path + ": 3 tensors, 1 with inf or nan, 1 not "
                                  "scanned; 3 elements, inf 1 nan 0  min 1 "
                                  "max 5 absmax 5; ",
                           0),
            0u)
      << lines[2];
  EXPECT_TRUE(has_words(lines[2], {" GB/s"}));
  EXPECT_EQ(lines_of(run_program({"scan", "--all", path}).out).size(), 4u);
}

TEST(ScanNpy, VersionsOrdersAndByteOrders) {
  // C order: 1 2 inf / nan 5 6; the first is at 2.
  const std::vector<float> c = {1, 2, kInf, kNan, 5, 6};
  const std::vector<float> f = {1, kNan, 2, 5, kInf, 6};
  for (const int major : {1, 2, 3}) {
    expect_found(
        scan_one("x.npy", npy("<f4", "(2, 3)", elements(c), false, major), 1),
        1, 1, 2, 1.0, 6.0, 6.0);
    expect_found(
        scan_one("x.npy", npy("<f4", "(2, 3)", elements(f), true, major), 1), 1,
        1, 2, 1.0, 6.0, 6.0);
  }
  std::string swapped;
  for (const float value : c) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    swapped += big(bits, 4);
  }
  expect_found(scan_one("x.npy", npy(">f4", "(6,)", swapped), 1), 1, 1, 2, 1.0,
               6.0, 6.0);
  expect_found(scan_one("x.npy", npy(">f2", "()", big(0x7c00, 2)), 1), 1, 0, 0,
               nullptr, nullptr, nullptr);
  expect_found(
      scan_one("x.npy", npy(">f8", "(1,)", big(0xfff0000000000000u, 8)), 1), 1,
      0, 0, nullptr, nullptr, nullptr);
  // = is this machine's order.
  const double half = -0.5;
  std::string native(sizeof half, '\0');
  std::memcpy(native.data(), &half, sizeof half);
  expect_found(scan_one("x.npy", npy("=f8", "(1,)", native), 0), 0, 0, nullptr,
               -0.5, -0.5, 0.5);
}

TEST(ScanNpy, ComplexIsScannedInParts) {
  expect_found(
      scan_one("x.npy",
               npy("<c8", "(3,)",
                   elements(std::vector<float>{1, 2, 3, kNan, kInf, -4})),
               1),
      1, 1, 1, -4.0, 3.0, 4.0);
  const std::uint64_t one = 0x3ff0000000000000u;
  const std::uint64_t inf = 0x7ff0000000000000u;
  expect_found(
      scan_one("x.npy", npy(">c16", "(1,)", big(one, 8) + big(inf, 8)), 1), 1,
      0, 0, 1.0, 1.0, 1.0);
  // (2, 2) in Fortran order: memory's element 2 is element 1 in C order.
  expect_found(
      scan_one(
          "x.npy",
          npy("<c8", "(2, 2)",
              elements(std::vector<float>{0, 0, 0, 0, 0, kInf, 0, 0}), true),
          1),
      1, 0, 1, 0.0, 0.0, 0.0);
  expect_found(
      scan_one("x.npy",
               npy("<c16", "(1,)", elements(std::vector<double>{-1, 2})), 0),
      0, 0, nullptr, -1.0, 2.0, 2.0);
}

// Only arrays that can hold no inf or nan are clean without a scan.
TEST(ScanNpy, UnscannedTensorsAreListed) {
  struct Row {
    const char* descr;
    const char* name;
    std::size_t bytes;
    const char* reason;
  };
  for (const Row& row : {Row{"|i1", "int8", 1, "integer"},
                         {">u8", "uint64", 8, "integer"},
                         {"|b1", "bool", 1, "boolean"},
                         {"|S3", "S3", 3, "not a number"},
                         {"<U2", "U2", 8, "not a number"},
                         {"<M8[ns]", "M8", 8, "not a number"},
                         {"<V2", "V2", 2, "unsupported dtype"},
                         {"<f1", "f1", 1, "unsupported dtype"},
                         {"<f12", "float96", 12, "unsupported dtype"},
                         {"<f16", "float128", 16, "unsupported dtype"},
                         {"<c24", "complex192", 24, "unsupported dtype"},
                         {"<c32", "complex256", 32, "unsupported dtype"},
                         {"|O", "object", 99, "unsupported dtype"}}) {
    const bool unsupported = std::string(row.reason) == "unsupported dtype";
    const Json json = scan_one(
        "x.npy", npy(row.descr, "(1,)", std::string(row.bytes, '\xff')),
        unsupported ? 2 : 0);
    EXPECT_EQ(json["dtype"], row.name);
    EXPECT_EQ(json["scanned"], false);
    EXPECT_EQ(json["reason"], row.reason);
    scan_one("empty.npy", npy(row.descr, "(0,)", ""), 0);
  }
}

TEST(ScanNpz, StoredDeflatedAndZip64) {
  if (!kReadsNpz) GTEST_SKIP() << "built without libzip";
  std::vector<float> large(700000, 3);  // several buffers
  large[600001] = kNan;
  const std::string dirty = npy("<f4", "(700000,)", elements(large));
  const std::string clean =
      npy("<f2", "(2,)", elements(std::vector<std::uint16_t>{0, 1}));
  ZipEntry in64 = stored("c.npy", dirty);
  in64.zip64 = true;
  Folder folder;
  const std::string path = folder.add(
      "x.npz", zip({stored("a.npy", clean), deflated("b.npy", dirty), in64,
                    deflated("empty.npy", npy("<f4", "(0,)", ""))}));
  const std::vector<Json> lines = scan_lines(path, 1);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["name"], "a");
  EXPECT_EQ(lines[0]["inf"], 0);
  for (const std::size_t i : {1u, 2u}) {
    expect_found(lines[i], 0, 1, 600001, 3.0, 3.0, 3.0);
  }
  EXPECT_EQ(lines[3]["count"], 0);
}

TEST(ScanNpz, FortranOrderOfAPackedMember) {
  if (!kReadsNpz) GTEST_SKIP() << "built without libzip";
  const std::vector<float> f = {1, kNan, 2, 5, kInf, 6};
  const std::string member = npy("<f4", "(2, 3)", elements(f), true);
  for (const ZipEntry& entry :
       {stored("a.npy", member), deflated("a.npy", member)}) {
    expect_found(scan_one("x.npz", zip({entry}), 1), 1, 1, 2, 1.0, 6.0, 6.0);
  }
}

}  // namespace
}  // namespace swamp::test
