// swamp predict: its counts equal those made by hand, and bad options are
// errors that name what was expected.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/errors.h"
#include "tests/cli/run_program.h"
#include "tests/cli/scan_files.h"

namespace swamp::test {
namespace {

using nlohmann::json;

std::vector<json> predictions(const Words& arguments,
                              const Environment& environment = {}) {
  std::vector<json> out;
  for (const std::string& line :
       lines_of(output_of(Words("predict --json") + arguments, environment))) {
    out.push_back(json::parse(line));
  }
  return out;
}

json prediction(const Words& arguments, const Environment& environment = {}) {
  const std::vector<json> all = predictions(arguments, environment);
  EXPECT_EQ(all.size(), 1u);
  return all.empty() ? json() : all.front();
}

std::uint64_t number(const json& object, const char* key) {
  return object.at(key).get<std::uint64_t>();
}

TEST(Predict, IsListed) {
  EXPECT_TRUE(has_words(output_of("--help"), {"predict"}));
  EXPECT_TRUE(has_words(output_of("predict --help"), {"--operation"}));
}

// One slave (the list is too short for a spawn) gets its segment, the operation
// and its arguments for each of the two slots, and the tiles.
TEST(Predict, CountsEqualThoseByHand) {
  const json one = prediction("--list 8192 --tile 4096");
  EXPECT_EQ(number(one, "spawns"), 0u);
  EXPECT_EQ(number(one, "PC3_REQ_DMA_GET"), 1u + 2 * 2 + 8);
  EXPECT_EQ(number(one, "PC2_REQ_DMA_PUT"), 8u);
  EXPECT_EQ(number(one, "put_bytes"), 32768u);
  EXPECT_EQ(number(one, "put_whole_lines"), 256u);
  EXPECT_EQ(number(one, "put_partial_lines"), 0u);
  EXPECT_EQ(number(one, "get_lines"), 256u + 1 + 2 * 2);
  EXPECT_EQ(number(one, "PC2_GLD"), 0u);
  EXPECT_EQ(one.at("groups").size(), 6u);
  EXPECT_EQ(one.at("groups").at(0).at("slaves"), 1);
  EXPECT_EQ(one.at("groups").at(5).at("slaves"), 0);
}

TEST(Predict, ASpawnCoversTheListOnce) {
  const json all = prediction("--list 1x33554432 --tile 16384");
  constexpr std::uint64_t kBytes = 33554432ull * 4;
  EXPECT_EQ(number(all, "spawns"), 1u);
  EXPECT_EQ(number(all, "PC2_REQ_DMA_PUT"), kBytes / 16384);
  EXPECT_EQ(number(all, "put_bytes"), kBytes);
  EXPECT_EQ(number(all, "put_whole_lines"), kBytes / 128);
  // Every one of 384 slaves also gets one segment, two operations, two
  // arguments.
  EXPECT_EQ(number(all, "PC3_REQ_DMA_GET"), kBytes / 16384 + 384 * 5);
  EXPECT_EQ(number(all, "get_lines"), kBytes / 128 + 384 * 5);
  std::uint64_t slaves = 0;
  std::uint64_t bytes = 0;
  for (const json& group : all.at("groups")) {
    slaves += number(group, "slaves");
    bytes += number(group, "put_bytes");
  }
  EXPECT_EQ(slaves, 384u);
  EXPECT_EQ(bytes, kBytes);
}

// 4 bytes after the start of a line, every tile of 32 lines has 31 whole lines
// and 2 partial ones.
TEST(Predict, AddressesCount) {
  const json all = prediction("--list 8192 --tile 4096 --offset 4");
  EXPECT_EQ(number(all, "put_whole_lines"), 8u * 31);
  EXPECT_EQ(number(all, "put_partial_lines"), 8u * 2);
  const json aligned = prediction("--list 8192 --tile 4096");
  EXPECT_GT(all.at("overlapped_seconds"), aligned.at("overlapped_seconds"));

  // Tensors of 25 elements, one after the other: 100 bytes of a 128-byte line,
  // then parts of two lines.
  const json packed = prediction("--list 2x25 --align 4");
  EXPECT_EQ(number(packed, "put_partial_lines"), 1u + 2);
  EXPECT_EQ(number(packed, "put_whole_lines"), 0u);
  EXPECT_EQ(number(prediction("--list 2x25"), "put_partial_lines"), 2u);
}

// An odd element of 16 bits is read and written directly, not by DMA.
TEST(Predict, OddElementsAreDirectAccesses) {
  const json odd = prediction("--list 3x7 --dtype float16");
  EXPECT_EQ(number(odd, "PC2_GLD"), 3u);
  EXPECT_EQ(number(odd, "PC3_GST"), 3u);
  EXPECT_EQ(number(odd, "put_bytes"), 3u * 12);
  const json even = prediction("--list 3x8 --dtype float16");
  EXPECT_EQ(number(even, "PC2_GLD"), 0u);
}

TEST(Predict, OperationsReadAndWriteTheirStreams) {
  struct Case {
    Words operation;
    std::uint64_t read, written;  // bytes per element
  };
  constexpr std::uint64_t kCount = 1 << 20;
  for (const Case& one : {Case{{"unscale"}, 4, 4},
                          {{"check"}, 4, 0},
                          {{"scan"}, 4, 0},
                          {{"norm"}, 4, 0},
                          {{"count_zeros"}, 4, 0},
                          {{"cast"}, 4, 2},
                          {{"cast", "--dtype", "bfloat16"}, 2, 4},
                          {{"accumulate", "--dtype", "float16"}, 6, 4},
                          {{"sgd"}, 12, 8},
                          {{"adam", "--dtype", "bfloat16"}, 14, 12},
                          {{"adam", "--to", "bfloat16"}, 16, 14}}) {
    const json all = prediction(
        Words{"--list", std::to_string(kCount), "--operation"} + one.operation);
    // Besides, there are segments, operations, partial results.
    const std::uint64_t kBeside = kCount / 8;
    EXPECT_GE(number(all, "get_bytes"), kCount * one.read) << one.operation[0];
    EXPECT_LT(number(all, "get_bytes"), kCount * one.read + kBeside)
        << one.operation[0];
    EXPECT_GE(number(all, "put_bytes"), kCount * one.written)
        << one.operation[0];
    EXPECT_LT(number(all, "put_bytes"), kCount * one.written + kBeside)
        << one.operation[0];
  }
}

TEST(Predict, CoreGroupsAndTilesMakeATable) {
  const std::vector<json> all =
      predictions("--list gpt2-small --core-groups 1,6 --tile 1024,16384");
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(number(all[0], "core_groups"), 1u);
  EXPECT_EQ(number(all[0], "tile_bytes"), 1024u);
  EXPECT_EQ(number(all[3], "core_groups"), 6u);
  EXPECT_EQ(number(all[3], "tile_bytes"), 16384u);
  EXPECT_EQ(number(all[0], "elements"), 124439808u);
  EXPECT_EQ(number(all[0], "tensors"), 148u);
  // Six memories are six times one.
  const double one = all[1].at("overlapped_seconds");
  const double six = all[3].at("overlapped_seconds");
  EXPECT_NEAR(one / six, 6, 0.06);
  // Small tiles wait more often.
  EXPECT_GT(all[0].at("serial_seconds"), all[1].at("serial_seconds"));
}

TEST(Predict, TilesShrinkToFitLdm) {
  const Words adam =
      "--list resnet50 --operation adam --to bfloat16 --tile 65536";
  const json pro = prediction(adam);
  const json old = prediction(adam + "--machine sw26010");
  EXPECT_EQ(number(pro, "elements"), 25557032u);
  EXPECT_EQ(number(old, "core_groups"), 4u);
  EXPECT_EQ(number(old, "ldm_bytes"), 65536u);
  // Two slots of 18 bytes per element.
  EXPECT_LT(number(old, "tile_bytes"), 65536u / 2 / 18 * 4);
  EXPECT_GT(number(old, "tile_bytes"), 4096u);
  EXPECT_LT(number(pro, "tile_bytes"), 65536u);
  EXPECT_GT(number(pro, "tile_bytes"), 16384u);
}

TEST(Predict, DefaultTileIsTheMachines) {
  EXPECT_EQ(number(prediction("--list bert-base"), "tile_bytes"), 16384u);
  EXPECT_EQ(number(prediction("--list bert-base"), "elements"), 109482240u);
}

TEST(Predict, IsTheSameEveryTime) {
  const Words arguments = "predict --list 100x777 --operation norm --json";
  const std::string first = output_of(arguments);
  EXPECT_EQ(run_program(arguments, {{"SWAMP_BACKEND", "threads"},
                                    {"SWAMP_MACHINE", "sw26010"},
                                    {"SWAMP_TRANSFER", "check"}})
                .out,
            first);
}

TEST(Predict, TakesTheTensorsOfAFile) {
  const TemporaryFile file(
      safetensors(R"({"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]},)"
                  R"("b":{"dtype":"I32","shape":[1],"data_offsets":[12,16]},)"
                  R"("c":{"dtype":"F16","shape":[8],"data_offsets":[16,32]}})",
                  std::string(32, '\0')));
  const json own = prediction({file.path()});
  EXPECT_EQ(own.at("dtype"), "float16");
  EXPECT_EQ(number(own, "tensors"), 2u);
  EXPECT_EQ(number(own, "put_bytes"), 12u + 16);
  const json wide = prediction({file.path(), "--dtype", "float32"});
  EXPECT_EQ(number(wide, "put_bytes"), 24u + 32);
}

TEST(Predict, EmptyTensorsCostNothing) {
  const json none = prediction("--list 3x0");
  EXPECT_EQ(number(none, "PC3_REQ_DMA_GET"), 0u);
  EXPECT_EQ(number(none, "tensors"), 3u);
  EXPECT_EQ(none.at("overlapped_seconds"), 0.0);
}

// with_sizes() is an operation on bfloat16, on one core group.
json with_sizes(const std::string& operation, const Words& sizes) {
  return prediction(Words{"--operation", operation} +
                    "--dtype bfloat16 --core-groups 1" + sizes);
}

// Rows of 2048 bytes: tiles of 8 rows, 48 rows a slave. Each slave also gets
// one segment, two operations, which are two lines each, and two arguments.
TEST(Predict, SoftmaxByHand) {
  constexpr std::uint64_t kRowCount = 64 * 48, kBytes = kRowCount * 2048;
  const Words sizes = "--rows 3072 --columns 1024";
  const json forward = with_sizes("softmax", sizes);
  EXPECT_EQ(number(forward, "PC3_REQ_DMA_GET"), kRowCount / 8 + 64 * 5);
  EXPECT_EQ(number(forward, "get_lines"), kBytes / 128 + 64 * 7);
  EXPECT_EQ(number(forward, "put_bytes"), kBytes);
  EXPECT_EQ(number(forward, "put_whole_lines"), kBytes / 128);
  EXPECT_EQ(number(forward, "put_partial_lines"), 0u);
  EXPECT_EQ(forward.at("bound"), "DMA");
  EXPECT_EQ(forward.at("arithmetic_seconds"), 0.0);
  // A slave's part of what is read and written, once: 32 bytes per cycle.
  EXPECT_NEAR(forward.at("ldm_seconds"), 48 * 2 * 2048 / 32 / 2.25e9, 1e-8);

  const json backward = with_sizes("softmax_backward", sizes);
  EXPECT_EQ(number(backward, "get_lines"), 2 * kBytes / 128 + 64 * 7);
  EXPECT_EQ(number(backward, "put_bytes"), kBytes);
}

TEST(Predict, RowOperatorsReadAndWriteTheirMatrices) {
  struct Case {
    const char* operation;
    std::uint64_t read, written;          // bytes per element
    std::uint64_t row_read, row_written;  // bytes per row
    std::uint64_t sums = 0;               // over rows, of each column
  };
  constexpr std::uint64_t kRowCount = 8192, kCount = kRowCount * 1024;
  constexpr std::uint64_t kGrains = (kRowCount - 1) / 43 + 1;
  for (const Case& one : {Case{"softmax", 2, 2, 0, 0},
                          {"softmax_backward", 4, 2, 0, 0},
                          {"cross_entropy", 2, 0, 8, 12},
                          {"cross_entropy_backward", 2, 2, 24, 0},
                          {"layer_norm", 2, 2, 0, 8},
                          {"rms_norm", 2, 2, 0, 4},
                          {"layer_norm_backward", 4, 2, 8, 0, 2},
                          {"rms_norm_backward", 4, 2, 4, 0, 1},
                          {"residual_add", 6, 4, 0, 0},
                          {"gated_activation", 4, 2, 0, 0},
                          {"gated_activation_backward", 6, 4, 0, 0}}) {
    const json all =
        with_sizes(one.operation, {"--rows", "8192", "--columns", "1024"});
    // A double for each grain, and the float32 sum of them.
    const std::uint64_t partials = kGrains * one.sums * 1024 * 8;
    const std::uint64_t read =
        kCount * one.read + kRowCount * one.row_read + partials;
    const std::uint64_t written = kCount * one.written +
                                  kRowCount * one.row_written + partials +
                                  one.sums * 1024 * 4;
    EXPECT_GE(number(all, "get_bytes"), read) << one.operation;
    EXPECT_LT(number(all, "get_bytes"), read + read / 16) << one.operation;
    EXPECT_EQ(number(all, "put_bytes"), written) << one.operation;
    EXPECT_EQ(all.at("bound"), "DMA") << one.operation;
    // A row that does not fit into LDM is read in pieces.
    const json pieces =
        with_sizes(one.operation, {"--rows", "3", "--columns", "300000"});
    EXPECT_GE(number(pieces, "get_bytes"), 3u * 300000 * one.read)
        << one.operation;
  }
}

// 48 heads of 1024 rows of 64 columns, in blocks of 64 queries.
TEST(Predict, AttentionByHand) {
  constexpr std::uint64_t kHeadCount = 48, kN = 1024, kD = 64;
  constexpr std::uint64_t kBlocks = kHeadCount * kN / 64;
  const auto predict_with = [](Words more) {
    return prediction(
        Words("--operation attention --dtype bfloat16 --batch 4 --heads 12 "
              "--queries 1024 --keys 1024 --columns 64") +
        more);
  };
  // The partial result of a block is a maximum, a sum and an output for each of
  // 64 queries, in float32.
  constexpr std::uint64_t kQueries = 64 * kD * 2;
  constexpr std::uint64_t kState = 64 * (2 + kD) * 4;
  constexpr std::uint64_t kWritten =
      kBlocks * kState + kHeadCount * kN * (kD * 2 + 4);
  // Every block reads the keys and values; each of two slots, its queries.
  constexpr std::uint64_t kKeys = kN * 2 * kD * 2;
  constexpr std::uint64_t kRead = kBlocks * (kKeys + 2 * kQueries + kState);
  const json all = predict_with({});
  EXPECT_EQ(number(all, "put_bytes"), kWritten);
  EXPECT_GE(number(all, "get_bytes"), kRead);
  EXPECT_LT(number(all, "get_bytes"), kRead + kRead / 100);
  EXPECT_EQ(number(all, "rma_bytes"), 0u);

  // Two blocks a slave: the 16 blocks of a head are in one row of 8 slaves.
  const json shared = predict_with("--rma");
  EXPECT_EQ(number(shared, "rma_bytes"), kBlocks * kKeys / 8 * 7);
  EXPECT_EQ(number(shared, "get_bytes") + number(shared, "rma_bytes"),
            number(all, "get_bytes"));
  EXPECT_EQ(number(shared, "put_bytes"), kWritten);
  EXPECT_LT(shared.at("overlapped_seconds"), all.at("overlapped_seconds"));

  // Block i of a head sees 64 * (i + 1) keys: 136 * 64 for 16 blocks.
  const json causal = predict_with("--causal");
  const std::uint64_t hidden = kHeadCount * (16 * kN - 136 * 64) * 2 * kD * 2;
  EXPECT_EQ(number(causal, "put_bytes"), kWritten);
  EXPECT_LE(number(causal, "get_bytes"), number(all, "get_bytes") - hidden);
  EXPECT_GE(number(causal, "get_bytes"), kRead - kRead / 50 - hidden);

  // The two products at 16 flop per cycle of 384 slaves, 128 queries each.
  const double flops = 4.0 * kHeadCount * kN * kN * kD;
  EXPECT_NEAR(all.at("arithmetic_seconds"), flops / (384 * 2.25e9 * 16), 1e-9);
  EXPECT_EQ(all.at("bound"), "arithmetic");
  EXPECT_EQ(shared.at("bound"), "arithmetic");
}

TEST(Predict, AttentionBackwardByHand) {
  const json all =
      with_sizes("attention_backward",
                 "--batch 4 --heads 16 --queries 512 --keys 512 --columns 64");
  constexpr std::uint64_t kRowCount = 64 * 512, kNarrow = 64 * 2,
                          kWide = 64 * 4;
  constexpr std::uint64_t kBlocks = kRowCount / 64;
  // For each of 8 blocks of keys, a query reads q, the gradient, LogSumExp and
  // dot, and writes a term of dq in float32. Each of two slots reads the keys
  // of the block, in float32: where they are, packed, packed values, and
  // widened.
  constexpr std::uint64_t kVisits = 8 * kRowCount;
  std::uint64_t read =
      kVisits * (2 * kNarrow + 12) + kBlocks * 2 * 3 * 64 * kWide;
  std::uint64_t written = kVisits * kWide;
  // dk and dv of 2 grains of queries.
  written += 2 * kRowCount * 2 * kWide;
  // Before: LogSumExp and dot of each query; packed keys and values, widened
  // keys.
  read += kRowCount * (2 * kNarrow + 4 + 2 * kNarrow);
  written += kRowCount * (12 + 3 * kWide);
  // After: the terms of dq, dk and dv are added and rounded.
  read += kVisits * kWide + kRowCount * 2 * 2 * kWide;
  written += kRowCount * (kNarrow + 2 * kNarrow);
  EXPECT_EQ(number(all, "put_bytes"), written);
  EXPECT_GE(number(all, "get_bytes"), read);
  EXPECT_LT(number(all, "get_bytes"), read + read / 50);
  // Five products: 8 launches, in which each slave has the keys of one head.
  EXPECT_NEAR(all.at("arithmetic_seconds"),
              10.0 * 64 * 512 * 512 * 64 / (64 * 2.25e9 * 16), 1e-9);
}

// Every row is a segment of 6 operands, 64 bytes, of which batches of 16 are
// read; the first or last of a slave may be read in part.
TEST(Predict, PermuteByHand) {
  constexpr std::uint64_t kTokens = 4096, kRowBytes = 768 * 2;
  const Words sizes = "--tokens 4096 --experts 64 --choices 2 --columns 768";
  const json permute = with_sizes("moe_permute", sizes);
  const std::uint64_t moved = 2 * kTokens * kRowBytes;
  const std::uint64_t segments = 2 * kTokens * 64;
  EXPECT_EQ(number(permute, "put_bytes"), moved);
  EXPECT_EQ(number(permute, "put_whole_lines"), moved / 128);
  EXPECT_EQ(number(permute, "PC2_REQ_DMA_PUT"), 2 * kTokens);
  EXPECT_GE(number(permute, "get_bytes"), moved + segments);
  EXPECT_LT(number(permute, "get_bytes"), moved + segments + 64 * 2048);
  EXPECT_EQ(permute.at("arithmetic_seconds"), 0.0);

  // Each token reads two rows and their probabilities: 16 bytes.
  const json unpermute = with_sizes("moe_unpermute", sizes);
  const std::uint64_t read = moved + kTokens * (64 + 16);
  EXPECT_EQ(number(unpermute, "put_bytes"), kTokens * kRowBytes);
  EXPECT_GE(number(unpermute, "get_bytes"), read);
  EXPECT_LT(number(unpermute, "get_bytes"), read + 64 * 2048);

  // 8192 numbers in grains of 2048, each with a count for every expert.
  const json histogram =
      with_sizes("moe_histogram", "--tokens 4096 --experts 64 --choices 2");
  EXPECT_EQ(number(histogram, "put_bytes"), 4u * 64 * 4);
  const json positions =
      with_sizes("moe_positions", "--tokens 4096 --experts 64 --choices 2");
  EXPECT_EQ(number(positions, "put_bytes"), 2 * 4u * 64 * 4 + 8192 * 4);
}

}  // namespace
}  // namespace swamp::test
