// The attention kernels: the bits of the reference on every ISA, for blocks of
// every size and tiles of every division.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "row_cases.h"
#include "slave/attention_args.h"

namespace swamp::test {
namespace {

using slave::AttentionArgs;
using slave::AttentionPosition;
using slave::AttentionState;

// Case is one head.
struct Case {
  const char* name;
  std::size_t queries, keys, columns, value_columns;
  std::int64_t visible;  // as AttentionPosition, of query 0
  bool mask;
  int kind;  // of the rows of q, k and v: RowKind
};
constexpr std::int64_t kAll = AttentionPosition::kAll;
constexpr Case kCases[] = {
    {"one", 1, 1, 1, 1, kAll, false, ordinary},
    {"three columns", 5, 7, 3, 3, kAll, false, ordinary},
    {"whole", 64, 96, 64, 64, kAll, false, ordinary},
    {"grains", 3, 700, 20, 20, kAll, true, ordinary},
    {"ragged", 67, 101, 65, 65, kAll, false, ordinary},
    {"causal", 80, 80, 32, 32, 1, false, ordinary},
    {"causal, few keys", 70, 33, 16, 16, 1, false, ordinary},
    {"bottom right", 33, 100, 24, 24, 68, false, ordinary},
    {"rows without keys", 100, 40, 24, 24, -59, false, ordinary},
    {"mask", 40, 70, 64, 64, kAll, true, ordinary},
    {"causal mask", 70, 70, 64, 64, 1, true, ordinary},
    {"wide head", 20, 37, 256, 256, kAll, false, ordinary},
    {"128", 37, 70, 128, 128, 1, false, ordinary},
    {"other value columns", 37, 70, 40, 72, 1, false, ordinary},
    {"large scores", 40, 70, 64, 64, 1, false, wide},
    {"equal scores", 40, 70, 64, 64, 1, false, equal},
    {"nan", 80, 80, 16, 16, 1, false, with_nan},
    {"inf", 80, 80, 16, 16, 1, false, with_inf},
    {"minus inf", 80, 80, 16, 16, 1, true, with_minus_inf},
};

// Head is the operands of a case.
struct Head {
  const Case& shape;
  Data q, k, v, mask;

  Head(const Case& one, ScalarType type, Random& random)
      : shape(one),
        q(type, one.queries * one.columns),
        k(type, one.keys * one.columns),
        v(type, one.keys * one.value_columns),
        mask(kFloat32, one.queries * one.keys) {
    const auto fill = [&](Data& data, std::size_t columns) {
      const std::size_t rows = data.count() / columns;
      for (std::size_t i = 0; i < rows; ++i) {
        // Special values in a few rows only, or everything would be nan.
        const bool special =
            one.kind == wide || one.kind == equal || random.below(16) == 0;
        fill_row(data, i * columns, columns, special ? one.kind : ordinary,
                 random);
      }
    };
    fill(q, one.columns);
    fill(k, one.columns);
    fill(v, one.value_columns);
    for (std::size_t i = 0; i < mask.count(); ++i) {
      const std::size_t query = i / one.keys;
      const bool hidden = random.below(3) == 0 || query % 7 == 3;
      mask.set(
          i, hidden ? -std::numeric_limits<float>::infinity() : normal(random));
    }
  }
};

// Packed is one block of a head, packed by a table's kernel. Its rows are also
// widened to `wide` unless that is null.
std::vector<float> packed(const KernelTable& table, Data& x,
                          const AttentionArgs& args, std::size_t columns,
                          std::size_t first, float* wide = nullptr) {
  AttentionArgs pack = args;
  pack.columns = static_cast<std::uint32_t>(columns);
  std::vector<float> to(columns * args.lanes, std::nanf(""));
  Data scratch(kFloat32, slave::attention_output_scratch_bytes(columns) / 4);
  const Operand layout[slave::AttentionPackOperand::count] = {};
  run_rows(table, kernel_of(F::attention_pack, {x.type()}), &pack,
           {x.at(first * columns), to.data(), wide}, 1, 0, nullptr, false,
           reinterpret_cast<float*>(scratch.data()), nullptr, layout);
  return to;
}

struct Output {
  Data out, lse;
};

// one_state() computes the AttentionState of one query with `keys` keys. With
// `pieces`, its launches are divided into tiles.
std::vector<float> one_state(const KernelTable& table, Head& head,
                             AttentionArgs args, std::size_t query,
                             std::size_t keys, float* mask, Random* pieces) {
  const Case& one = head.shape;
  const ScalarType type = head.q.type();
  const auto for_tiles = [&](std::size_t count, const auto& run) {
    for (std::size_t at = 0; at < count;) {
      std::size_t n = count - at;
      if (pieces != nullptr) n = std::min(n, 1 + pieces->below(40));
      run(at, n);
      at += n;
    }
  };
  std::vector<float> e(keys + 1, std::nanf(""));
  Data scratch(kFloat32,
               slave::attention_output_scratch_bytes(one.columns) / 4);
  std::vector<float> largest(keys / slave::kAttentionGrain + 1);
  for_tiles(keys, [&](std::size_t at, std::size_t count) {
    run_rows(table, kernel_of(F::attention_scores, {type}), &args,
             {head.k.at(at * one.columns), head.q.at(query * one.columns),
              one.mask ? mask + at : nullptr, e.data() + at},
             count, at, largest.data() + at / slave::kAttentionGrain, false,
             reinterpret_cast<float*>(scratch.data()));
  });
  EXPECT_TRUE(scratch.intact());
  EXPECT_TRUE(std::isnan(e[keys]));
  const std::size_t step =
      slave::attention_keys(one.columns, one.value_columns);
  const std::size_t floats = AttentionState::kOut + one.value_columns;
  std::vector<float> states((keys + step - 1) / step * floats, std::nanf(""));
  float max = 0, before = -HUGE_VALF;
  const auto steps = [&](std::size_t first, std::size_t count) {
    args.rows = static_cast<std::uint32_t>(std::min(step, keys - first));
    for_tiles(count, [&](std::size_t at, std::size_t units) {
      const std::size_t key = first + at * step;
      run_rows(table, kernel_of(F::attention_steps, {type}), &args,
               {head.v.at(key * one.value_columns), e.data() + key, &before,
                states.data() + key / step * floats},
               units, at, &max);
    });
    before = max;
  };
  if (keys >= step) steps(0, keys / step);
  if (keys % step != 0) steps(keys / step * step, 1);
  std::vector<float> all(floats);
  for_tiles(states.size() / floats, [&](std::size_t at, std::size_t count) {
    run_rows(table, kernel_of(F::attention_merge, {}), &args,
             {states.data() + at * floats}, count, at, all.data());
  });
  return all;
}

// forward() computes a head in blocks of `lanes` queries, or of one; 0: of one
// whose keys are shared. With `pieces`, a segment is computed in several tiles.
Output forward(const KernelTable& table, Head& head, std::size_t lanes,
               Random* pieces) {
  const Case& one = head.shape;
  const ScalarType type = head.q.type();
  const bool shares_keys = lanes == 0;
  if (shares_keys) lanes = 1;
  Output result{Data(type, one.queries * one.value_columns),
                Data(kFloat32, one.queries)};
  const std::size_t step =
      slave::attention_keys(one.columns, one.value_columns);
  for (std::size_t first = 0; first < one.queries; first += lanes) {
    const std::size_t rows = std::min(lanes, one.queries - first);
    AttentionArgs args{static_cast<std::uint32_t>(one.columns),
                       static_cast<std::uint32_t>(one.value_columns),
                       static_cast<std::uint32_t>(lanes),
                       static_cast<std::uint32_t>(rows),
                       0.25f,
                       0,
                       0};
    std::vector<float> q = packed(table, head.q, args, one.columns, first);
    std::vector<float> mask(one.keys * lanes);
    for (std::size_t i = 0; i < mask.size(); ++i) {
      const std::size_t query = first + std::min(i % lanes, rows - 1);
      mask[i] =
          static_cast<float>(head.mask.value(query * one.keys + i / lanes));
    }
    AttentionPosition position{one.visible + static_cast<std::int64_t>(first)};
    std::vector<float> state(AttentionState::bytes(lanes, one.value_columns) /
                             4);
    Data scratch(kFloat32,
                 slave::attention_scratch_bytes(one.columns, one.value_columns,
                                                lanes, type == kFloat32) /
                     4);
    const auto keys = static_cast<std::size_t>(std::clamp<std::int64_t>(
        position.visible + static_cast<std::int64_t>(rows) - 1, 0,
        static_cast<std::int64_t>(one.keys)));
    if (shares_keys) {
      state = one_state(table, head, args, first, keys, mask.data(), pieces);
    }
    for (std::size_t at = shares_keys ? keys : 0; at < keys;) {
      std::size_t count = keys - at;
      if (pieces != nullptr) {
        count = std::min(count, step * (1 + pieces->below(3)));
      }
      run_rows(
          table, kernel_of(F::attention, {type}), &args,
          {head.k.at(at * one.columns), head.v.at(at * one.value_columns),
           q.data(), one.mask ? mask.data() + at * lanes : nullptr, &position},
          count, at, state.data(), false,
          reinterpret_cast<float*>(scratch.data()));
      at += count;
    }
    EXPECT_TRUE(scratch.intact());
    Data row(kFloat32,
             slave::attention_output_scratch_bytes(one.value_columns) / 4);
    run_rows(table, kernel_of(F::attention_output, {type}), &args,
             {result.out.at(first * one.value_columns), state.data(),
              result.lse.at(first)},
             1, 0, nullptr, false, reinterpret_cast<float*>(row.data()));
  }
  return result;
}

struct Gradients {
  Data q, k, v;
};

// add_lines() runs attention_sum on `units` rows of `lines` lines, `step`
// floats apart, in two calls if there are two lines or more and there is a sum.
void add_lines(const KernelTable& table, ScalarType type, AttentionArgs args,
               void* x, float* sum, float* terms, std::size_t lines,
               std::size_t step, std::size_t units) {
  const std::size_t width = slave::attention_padded(args.columns);
  const auto bytes = static_cast<std::uint32_t>(width * sizeof(float));
  Data row(kFloat32, width);
  const auto add = [&](void* to, std::size_t begin, std::size_t end) {
    Operand layout[slave::AttentionSumOperand::count] = {};
    layout[slave::AttentionSumOperand::terms] = {
        static_cast<std::uint32_t>((end - begin) * bytes), bytes,
        step * sizeof(float), bytes, Access::in};
    args.continues = begin != 0;
    run_rows(table, kernel_of(F::attention_sum, {type}), &args,
             {to, sum, begin == end ? nullptr : terms + begin * step}, units, 0,
             nullptr, false, reinterpret_cast<float*>(row.data()), nullptr,
             layout);
  };
  const std::size_t first = sum == nullptr ? 0 : lines / 2;
  if (first != 0) add(nullptr, 0, first);
  add(x, first, lines);
  EXPECT_TRUE(row.intact());
}

// backward() computes the gradients of a head in blocks of `lanes` keys.
Gradients backward(const KernelTable& table, Head& head, Data& gradient,
                   Output& forward, std::size_t lanes, Random* pieces) {
  const Case& one = head.shape;
  const ScalarType type = head.q.type();
  const std::size_t columns = one.columns, value_columns = one.value_columns;
  const std::size_t padded = slave::attention_padded(columns);
  Gradients result{Data(type, one.queries * columns),
                   Data(type, one.keys * columns),
                   Data(type, one.keys * value_columns)};
  const AttentionArgs args{static_cast<std::uint32_t>(columns),
                           static_cast<std::uint32_t>(value_columns),
                           static_cast<std::uint32_t>(lanes),
                           0,
                           0.25f,
                           0,
                           0};
  std::vector<slave::AttentionDot> dots(one.queries);
  {
    void* const operands[] = {gradient.data(), forward.out.data(),
                              forward.lse.data(), dots.data()};
    Tile tile;
    tile.operands = operands;
    tile.count = one.queries;
    Result flags;
    (*table.rows[kernel_of(F::attention_dot, {type})].function)(&args, tile,
                                                                flags);
    std::uint64_t lost = 0;
    for (const slave::AttentionDot& dot : dots) {
      lost += slave::has_lost_lse(dot.lse.high, type == kFloat32);
    }
    EXPECT_EQ(flags.flagged_elements, lost);
  }
  for (std::size_t i = 0; i < dots.size(); i += 3) dots[i].lse.low = 0.3f;
  constexpr std::size_t kTerm = slave::kMaxAttentionLanes;
  const std::size_t terms = (one.keys + kTerm - 1) / kTerm;
  std::vector<float> dq(terms * one.queries * padded, std::nanf(""));
  for (std::size_t first = 0; first < one.keys; first += lanes) {
    const std::size_t rows = std::min(lanes, one.keys - first);
    AttentionArgs block = args;
    block.rows = static_cast<std::uint32_t>(rows);
    std::vector<float> wide_k(lanes * padded, std::nanf(""));
    const std::vector<float> packed_k =
        packed(table, head.k, block, columns, first, wide_k.data());
    const std::vector<float> packed_v =
        packed(table, head.v, block, value_columns, first);
    block.visible = one.visible - static_cast<std::int64_t>(first);
    std::vector<float> keys = packed_k;
    keys.insert(keys.end(), packed_v.begin(), packed_v.end());
    keys.insert(keys.end(), wide_k.begin(), wide_k.end());
    float* const term = dq.data() + first / kTerm * one.queries * padded;
    block.continues = first % kTerm != 0;
    std::vector<float> mask(one.queries * lanes);
    for (std::size_t i = 0; i < mask.size(); ++i) {
      const std::size_t key = first + std::min(i % lanes, rows - 1);
      mask[i] = static_cast<float>(head.mask.value(i / lanes * one.keys + key));
    }
    std::vector<float> partial(lanes * (columns + value_columns));
    Data scratch(kFloat32,
                 slave::attention_backward_scratch_bytes(
                     columns, value_columns, lanes, type == kFloat32) /
                     4);
    for (std::size_t at = 0; at < one.queries;) {
      std::size_t count = one.queries - at;
      if (pieces != nullptr)
        count =
            std::min(count, slave::kAttentionQueries * (1 + pieces->below(5)));
      run_rows(table, kernel_of(F::attention_backward, {type}), &block,
               {head.q.at(at * columns), gradient.at(at * value_columns),
                &dots[at], one.mask ? &mask[at * lanes] : nullptr,
                &term[at * padded], keys.data()},
               count, at, partial.data(), false,
               reinterpret_cast<float*>(scratch.data()));
      at += count;
    }
    EXPECT_TRUE(scratch.intact());
    const auto unpack = [&](Data& to, std::size_t width, float scale,
                            float* from) {
      AttentionArgs unpacked = block;
      unpacked.columns = static_cast<std::uint32_t>(width);
      unpacked.scale = scale;
      Data row(kFloat32, slave::attention_output_scratch_bytes(width) / 4);
      const Operand layout[slave::AttentionUnpackOperand::count] = {};
      run_rows(table, kernel_of(F::attention_unpack, {type}), &unpacked,
               {to.at(first * width), from}, 1, 0, nullptr, false,
               reinterpret_cast<float*>(row.data()), nullptr, layout);
    };
    unpack(result.k, columns, args.scale, partial.data());
    unpack(result.v, value_columns, 1, partial.data() + columns * lanes);
  }
  // With a sum, the terms are added in two calls.
  std::vector<float> sum(lanes == 32 ? one.queries * padded : 0);
  add_lines(table, type, args, result.q.data(),
            sum.empty() ? nullptr : sum.data(), dq.data(), terms,
            one.queries * padded, one.queries);
  return result;
}

// Masks whose units are columns of a matrix (lanes are rows), or rows, or are
// shared by all units; whose lanes have elements of their own or one.
TEST(Attention, Masks) {
  Random random(23);
  constexpr std::size_t kUnits = 70, kStride = 77;
  for (int i = 0; i < 2 * 3 * 4 * 6; ++i) {
    const ScalarType type = kRowTypes[i % 3];
    const bool bytes = i % 6 == 2, by_query = i / 6 % 2 != 0;
    const bool shares_lanes = i / 12 % 2 != 0, shares_units = i / 24 % 2 != 0;
    const std::size_t lanes = std::size_t{16} << i / 48;
    const std::size_t rows = i % 2 == 0 ? lanes : lanes - 3;
    SCOPED_TRACE(i);
    Data data(type, kStride * kStride);
    std::uint8_t* const octets = data.data();
    const std::size_t element = bytes ? 1 : kFloatFormats[type].bytes;
    for (std::size_t at = 0; at < data.count(); ++at) {
      if (bytes) {
        octets[at] = static_cast<std::uint8_t>(random.below(3));
      } else {
        data.set(at, normal(random));
      }
    }
    const std::size_t lane_step = shares_lanes ? 0 : by_query ? 1 : kStride;
    const std::size_t unit_step = shares_units ? 0 : by_query ? kStride : 1;
    std::vector<float> expected(kUnits * lanes);
    for (std::size_t at = 0; at < expected.size(); ++at) {
      const std::size_t lane = at % lanes;
      if (lane >= rows) continue;
      const std::size_t from = at / lanes * unit_step + lane * lane_step;
      expected[at] = !bytes              ? static_cast<float>(data.value(from))
                     : octets[from] != 0 ? 0
                                         : -HUGE_VALF;
    }
    const slave::AttentionMaskArgs args{static_cast<std::uint32_t>(lanes),
                                        static_cast<std::uint32_t>(rows),
                                        shares_lanes, bytes};
    const std::size_t of_unit = element * (shares_lanes ? 1 : rows);
    Operand layout[slave::AttentionMaskOperand::count] = {};
    layout[slave::AttentionMaskOperand::mask] = {
        static_cast<std::uint32_t>(of_unit),
        static_cast<std::uint32_t>(by_query ? of_unit : element),
        kStride * element, unit_step * element, Access::in};
    for (const KernelTable& table : row_tables()) {
      SCOPED_TRACE(table.isa);
      std::vector<float> actual(expected.size() + 1, std::nanf(""));
      run_rows(table, kernel_of(F::attention_mask, {type}), &args,
               {data.data(), actual.data()}, kUnits, 0, nullptr, false, nullptr,
               nullptr, layout);
      EXPECT_TRUE(std::isnan(actual.back()));
      actual.pop_back();
      ASSERT_EQ(actual, expected);
    }
  }
}

TEST(Attention, HasTheBitsOfTheReference) {
  Random random(22);
  for (const ScalarType type : kRowTypes) {
    for (const Case& one : kCases) {
      SCOPED_TRACE(kFloatFormats[type].name + std::string(" ") + one.name);
      Head head(one, type, random);
      Data gradient = filled_rows(type, one.queries, one.value_columns, random);
      for (std::size_t i = 0; i < gradient.count(); ++i) {
        // inf and nan in one row of queries only.
        if (i / one.value_columns != 9) gradient.set(i, normal(random));
      }
      const KernelTable& reference = row_tables()[0];
      Output output = forward(reference, head, 16, nullptr);
      const Gradients gradients =
          backward(reference, head, gradient, output, 16, nullptr);
      for (const KernelTable& table : row_tables()) {
        SCOPED_TRACE(table.isa);
        for (const std::size_t lanes :
             std::initializer_list<std::size_t>{0, 1, 16, 32, 64}) {
          SCOPED_TRACE(lanes);
          Random random_pieces(lanes);
          Random* const pieces = lanes == 64 ? nullptr : &random_pieces;
          const Output out = forward(table, head, lanes, pieces);
          ASSERT_TRUE(same_bits(out.out, output.out));
          ASSERT_TRUE(same_bits(out.lse, output.lse));
          if (lanes <= 1) continue;  // forward only
          const Gradients actual =
              backward(table, head, gradient, output, lanes, pieces);
          ASSERT_TRUE(same_bits(actual.q, gradients.q));
          ASSERT_TRUE(same_bits(actual.k, gradients.k));
          ASSERT_TRUE(same_bits(actual.v, gradients.v));
        }
      }
    }
  }
}

}  // namespace
}  // namespace swamp::test
