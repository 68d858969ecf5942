// The kernels of direct convolutions: the bits of the reference on every ISA,
// for both memory formats, groups of all kinds and all kinds of numbers.
#include <gtest/gtest.h>

#include <algorithm>

#include "row_cases.h"
#include "slave/convolution_args.h"
#include "support/guarded_pages.h"

namespace swamp::test {
namespace {

using slave::ConvolutionArgs;
using slave::ConvolutionAxis;
using slave::kConvolutionLanes;

// with_positions() sets the positions of the copy.
ConvolutionAxis with_positions(ConvolutionAxis axis) {
  std::int32_t first = 0, last = axis.in - 1;
  for (const std::int32_t o : {0, axis.out - 1}) {
    for (const std::int32_t k : {0, axis.taps - 1}) {
      const std::int32_t at =
          o * axis.in_step + k * axis.tap_step + axis.offset;
      const std::int32_t below = at < 0 ? axis.divisor - 1 : 0;
      first = std::min(first, (at - below) / axis.divisor);
      last = std::max(last, at / axis.divisor);
    }
  }
  axis.before = -first;
  axis.positions = last - first + 1;
  return axis;
}

struct Groups {
  std::uint32_t lanes, channels, group_lanes, group_terms;
};

// Units of `images` images, which end at a protected page or begin after one.
struct Images {
  GuardedPages pages;
  std::byte* data;
  std::size_t bytes;
  Operand layout = {};

  Images(std::size_t images, std::size_t channels, std::size_t pixels,
         bool by_channel, ScalarType type, bool at_end)
      : pages(images * channels * pixels * kFloatFormats[type].bytes),
        bytes(images * channels * pixels * kFloatFormats[type].bytes) {
    data = at_end ? pages.end() - bytes : pages.begin();
    layout.line_step =
        (by_channel ? pixels : channels) * kFloatFormats[type].bytes;
    layout.unit_step = channels * pixels * kFloatFormats[type].bytes;
  }
};

std::vector<std::byte> run(ConvolutionArgs args, ScalarType type, int numbers,
                           bool is_weight, const KernelTable& table,
                           bool at_end) {
  args.images = 3;
  Images x(args.images, args.channels, args.in_pixels(), args.x_by_channel != 0,
           type, at_end),
      y(args.images, args.lanes, args.out_pixels(), args.out_by_channel != 0,
        type, at_end),
      weight(1, args.lanes, args.all_terms(), true, type, at_end),
      bias(1, args.lanes, 1, true, type, at_end);
  Random random(args.lanes);
  const Format& format = format_of(type);
  for (Images* one : {&x, &y, &weight, &bias}) {
    const auto fill = numbers == 0 ? fill_ordinary : fill_any;
    fill(format, one->data, one->bytes / format.bytes, random);
  }
  args.band_rows = 3;
  GuardedPages scratch(slave::ConvolutionScratch(args, is_weight).bytes + 4096);
  std::memset(scratch.begin(), 0xff, scratch.bytes());
  auto* const memory = reinterpret_cast<float*>(scratch.begin());
  if (!is_weight) {
    const Operand layout[] = {x.layout, {}, {}, y.layout};
    run_rows(table, kernel_of(F::convolution, {type}), &args,
             {x.data, weight.data, numbers == 0 ? nullptr : bias.data, y.data},
             args.images, 0, nullptr, false, memory, nullptr, layout);
    return {y.data, y.data + y.bytes};
  }
  const Operand layout[] = {x.layout, y.layout};
  std::vector<float> partial(slave::convolution_partial_bytes(args.terms) / 4);
  run_rows(table, kernel_of(F::convolution_weight, {type}), &args,
           {x.data, y.data}, args.images, 0, partial.data(), false, memory,
           nullptr, layout);
  const auto* const end =
      reinterpret_cast<const std::byte*>(partial.data() + partial.size());
  std::vector<std::byte> sums;
  for (std::size_t t = args.terms; t != 0; --t) {
    const std::byte* const at = end - t * kConvolutionLanes * sizeof(float);
    sums.insert(sums.end(), at, at + args.lanes * sizeof(float));
  }
  return sums;
}

TEST(ConvolutionKernels, BitsOfReference) {
  const ConvolutionAxis axes[] = {
      {7, 7, 3, 1, 1, -1, 1, 0, 0},   {9, 4, 3, 2, 1, 0, 1, 0, 0},
      {30, 29, 4, 1, 2, -3, 1, 0, 0}, {4, 9, 5, 1, -1, 1, 2, 0, 0},
      {3, 7, 2, 1, -2, 0, 3, 0, 0},   {1, 1, 1, 1, 1, 0, 1, 0, 0}};
  const Groups groups[] = {{16, 16, 1, 1}, {5, 5, 1, 1},   {2, 2, 1, 1},
                           {16, 16, 4, 4}, {16, 8, 2, 1},  {12, 9, 4, 3},
                           {16, 3, 16, 3}, {11, 8, 11, 8}, {1, 1, 1, 1},
                           {6, 12, 1, 2}};
  std::uint32_t count = 0;
  for (const ConvolutionAxis& rows : axes) {
    for (const ConvolutionAxis& columns : axes) {
      if (rows.in == 30) continue;
      for (const Groups& group : groups) {
        ConvolutionArgs args{};
        args.rows = with_positions(rows);
        args.columns = with_positions(columns);
        args.lanes = group.lanes;
        args.channels = group.channels;
        args.group_lanes = group.group_lanes;
        args.group_terms = group.group_terms;
        args.x_by_channel = ++count % 2;
        args.out_by_channel = count / 2 % 2;
        args.terms = args.all_terms();
        const ScalarType type = kRowTypes[count % 3];
        for (const bool is_weight : {false, true}) {
          if (is_weight && rows.divisor * columns.divisor != 1) continue;
          if (is_weight && args.terms > 3) {
            args.first_term = 2;
            args.terms -= 3;
          }
          SCOPED_TRACE(testing::Message()
                       << "case " << count << (is_weight ? " weight" : ""));
          for (const int numbers : {0, 1}) {
            const auto expected =
                run(args, type, numbers, is_weight, row_tables()[0], true);
            for (const KernelTable& table : row_tables()) {
              for (const bool at_end : {true, false}) {
                EXPECT_TRUE(run(args, type, numbers, is_weight, table,
                                at_end) == expected)
                    << table.isa << " numbers " << numbers;
              }
            }
          }
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(ConvolutionKernels, TransposesLines) {
  for (const slave::TransposeArgs& args :
       {slave::TransposeArgs{32, 64}, {16, 9}, {7, 24}, {3, 8}, {1, 1}}) {
    for (const ScalarType type : kRowTypes) {
      const auto run = [&](const KernelTable& table, bool at_end) {
        constexpr std::size_t kUnits = 3;
        Images x(kUnits, args.lanes, args.terms, true, type, at_end),
            y(kUnits, args.lanes, args.terms, false, type, at_end);
        Random random(args.terms);
        const Format& format = format_of(type);
        fill_any(format, x.data, x.bytes / format.bytes, random);
        const Operand layout[] = {x.layout, y.layout};
        run_rows(table, kernel_of(F::transpose, {type}), &args,
                 {x.data, y.data}, kUnits, 0, nullptr, false, nullptr, nullptr,
                 layout);
        return std::vector<std::byte>(y.data, y.data + y.bytes);
      };
      const auto expected = run(row_tables()[0], true);
      for (const KernelTable& table : row_tables()) {
        for (const bool at_end : {true, false}) {
          EXPECT_TRUE(run(table, at_end) == expected)
              << table.isa << ": " << args.lanes << " x " << args.terms;
        }
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
