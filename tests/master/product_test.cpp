// Matrix products: the bits of a scalar loop of fma() in the order of
// slave/product_args.h, on every machine, for all dtypes, layouts and kinds of
// numbers; and the errors.
#include "swamp/product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "machines.h"
#include "row_values.h"
#include "runtime/backend.h"
#include "support/errors.h"
#include "swamp/convolution.h"

namespace swamp::test {
namespace {

// Of `gathered` the columns lie in runs, of `runs_of_rows` the rows. The rows
// of `images` are Gather::b_rows.
enum class Layout {
  rows,
  columns,
  gaps,
  shared,
  images,
  gathered,
  runs_of_rows
};
// `tiny` products are subnormal; `any` has all bit patterns. Of `cancelling`
// only differences of products are subnormal; `continued` begin with tiny sums,
// to which products of the least exponent that the instruction for pairs takes
// are added.
enum class Numbers { ordinary, tiny, any, cancelling, continued };

// Array is matrices, and their memory.
struct Array {
  Bytes memory;
  Matrices matrices;
  std::vector<std::size_t> row_begins, column_begins, b_row_begins;
  Gather gather;

  Array(std::size_t batch, std::size_t rows, std::size_t columns,
        ScalarType type, Layout layout)
      : matrices(Matrices::dense(nullptr, batch, rows, columns, type)) {
    std::size_t elements = batch * rows * columns;
    switch (layout) {
      case Layout::rows:
        break;
      case Layout::columns:
        matrices.row_step = 1;
        matrices.column_step = rows;
        break;
      case Layout::gaps:
        matrices.column_step = 2;
        matrices.row_step = 2 * columns + 3;
        matrices.batch_step = rows * matrices.row_step + 1;
        elements = batch * matrices.batch_step;
        break;
      case Layout::shared:
        matrices.batch_step = 0;
        break;
      case Layout::images:
        // Several are a part of the terms, parts are of one, or a block of LDM
        // is longer than one and shorter than two.
        gather.b_rows.length = rows == 500 ? 400 : rows < 4000 ? 14 : 2600;
        matrices.row_step = 1;
        matrices.column_step = gather.b_rows.length;
        elements = 0;
        for (std::size_t r = 0; r < rows; r += gather.b_rows.length) {
          b_row_begins.push_back(elements);
          elements += gather.b_rows.length * columns + 2;
        }
        matrices.batch_step = elements;
        elements *= batch;
        break;
      case Layout::gathered:
        // Terms in runs of even length stay in memory, and pairs of bfloat16 in
        // those of a multiple of 4.
        gather.columns.length = columns % 2 == 0 ? 36 : 7;
        break;
      case Layout::runs_of_rows:
        // float32 rows in long runs stay in memory.
        gather.rows.length = rows % 2 == 0 ? 29 : 5;
        break;
    }
    if (layout >= Layout::gathered) {
      // Windows of an array of the batch; they overlap.
      for (std::size_t i = 0; i * gather.rows.length < rows; ++i) {
        row_begins.push_back(i * 37 % 64);
      }
      for (std::size_t i = 0; i * gather.columns.length < columns; ++i) {
        column_begins.push_back(i * 29 % 128);
      }
      matrices.batch_step = 3;
      elements = 256 + 3 * batch;
    }
    memory.resize(elements * format_of(type).bytes + 8);
    matrices.data = memory.data();
  }
  Array(const Array& other)
      : memory(other.memory),
        matrices(other.matrices),
        row_begins(other.row_begins),
        column_begins(other.column_begins),
        b_row_begins(other.b_row_begins),
        gather(other.gather) {
    matrices.data = memory.data();
  }
  // gathered() is null if the elements are at steps.
  const Gather* gathered() {
    gather.rows.begins = row_begins.data();
    gather.columns.begins = column_begins.data();
    return row_begins.empty() && column_begins.empty() ? nullptr : &gather;
  }
  void fill(Numbers numbers, Random& random, bool is_left = false) {
    const Format& format = format_of(matrices.dtype);
    const std::size_t count = (memory.size() - 8) / format.bytes;
    if (numbers == Numbers::any) {
      fill_any(format, memory.data(), count, random);
      return;
    }
    fill_ordinary(format, memory.data(), count, random);
    for (std::size_t i = 0; numbers != Numbers::ordinary && i < count; ++i) {
      float value = 0x1p-66f * widen(matrices.dtype, memory.data(), i);
      if (numbers != Numbers::tiny) {  // two mantissas, so that sums cancel
        value = 1 + static_cast<float>(random.below(2)) / 128;
        if (random.below(2) == 0) value = -value;
        value *= numbers == Numbers::cancelling ? 0x1p-59f
                 : is_left && i < count / 5     ? 0x1p-75f
                                                : 0x1p-56f;
      } else if (random.below(4) == 0) {
        value = 0;
      }
      store_value(matrices.dtype, memory.data(), i, value);
    }
  }
  std::size_t index(std::size_t i, std::size_t r, std::size_t c) const {
    if (!row_begins.empty()) {
      return i * matrices.batch_step + row_begins[r / gather.rows.length] +
             r % gather.rows.length + column_begins[c / gather.columns.length] +
             c % gather.columns.length;
    }
    const std::size_t run = gather.b_rows.length;
    const std::size_t row = b_row_begins.empty()
                                ? r * matrices.row_step
                                : b_row_begins[r / run] + r % run;
    return i * matrices.batch_step + row + c * matrices.column_step;
  }
  float operator()(std::size_t i, std::size_t r, std::size_t c) const {
    return widen(matrices.dtype, memory.data(), index(i, r, c));
  }
};

struct Case {
  std::size_t batch, rows, columns, terms;
  Layout a = Layout::rows, b = Layout::rows, out = Layout::rows;
  int scale_terms = -1;  // of a block; 0: all; -1: no scales
};

// expected_value() is an element of the result before it is rounded.
float expected_value(const Array& a, const Array& b, const Array* self,
                     const ProductOptions& options, std::size_t i,
                     std::size_t r, std::size_t c) {
  const std::size_t terms = a.matrices.columns;
  const ProductScales* const scales = options.scales;
  const bool divided = scales != nullptr && scales->terms != 0;
  const std::size_t block =
      std::max<std::size_t>(1, divided ? scales->terms : terms);
  float sum = 0;
  for (std::size_t first = 0, step = 0; first < terms; first += block, ++step) {
    float chain = 0;
    for (std::size_t t = first; t < std::min(first + block, terms); ++t) {
      const std::size_t term = (t ^ 1) < terms ? t ^ 1 : t;
      chain = std::fma(a(i, r, term), b(i, term, c), chain);
    }
    if (scales != nullptr) {
      const std::size_t steps = (terms + block - 1) / block;
      const float factor = scales->a[r * steps + step] *
                           scales->b[step * b.matrices.columns + c];
      chain = divided ? sum + factor * chain : factor * chain;
    }
    sum = chain;
  }
  float value = options.alpha * sum;
  if (self != nullptr && options.beta != 0) {
    value = std::fma(options.beta, (*self)(i, r, c), value);
  }
  return value;
}

struct Problem {
  Array a, b, self, out;
  ProductOptions options;
  bool in_place = false;
  std::vector<float> a_scales, b_scales;
  ProductScales scales;

  Problem(const Problem&) = delete;
  Problem(const Case& one, ScalarType type, ScalarType out_type,
          Numbers numbers, Random& random)
      : a(one.batch, one.rows, one.terms, type, one.a),
        b(one.batch, one.terms, one.columns, type, one.b),
        self(one.batch, one.rows, one.columns, out_type, one.out),
        out(self) {
    a.fill(numbers, random, true);
    b.fill(numbers, random);
    self.fill(numbers == Numbers::any ? numbers : Numbers::ordinary, random);
    out.fill(Numbers::ordinary, random);
    a.gather.b_rows = {b.b_row_begins.empty() ? nullptr : b.b_row_begins.data(),
                       b.gather.b_rows.length};
    options.gather = a.gathered();
    if (one.scale_terms >= 0) {
      const auto block = static_cast<std::size_t>(one.scale_terms);
      const std::size_t steps =
          block == 0 ? 1 : (one.terms + block - 1) / block;
      a_scales.resize(one.rows * steps);
      b_scales.resize(one.columns * steps);
      for (std::vector<float>* factors : {&a_scales, &b_scales}) {
        for (float& x : *factors) {
          x = 0.1f + static_cast<float>(random.below(999));
        }
      }
      scales = {a_scales.data(), b_scales.data(), block};
      options.scales = &scales;
    }
    if (one.rows == 1) out.matrices.row_step = 0;  // it means nothing
    switch (random.below(4)) {
      case 0:
        break;
      case 1:
        options.self = &self.matrices;
        break;
      case 2:  // a bias
        self.matrices.row_step = 0;
        self.matrices.batch_step = 0;
        options.self = &self.matrices;
        options.alpha = 0.3f;
        break;
      case 3:
        in_place = true;
        options.self = &out.matrices;
        options.alpha = -1.5f;
        options.beta = random.below(4) == 0 ? 0 : 0.7f;
        break;
    }
  }

  // run() returns the memory of the result.
  Bytes run(Machine& machine) const {
    Array result = out;
    ProductOptions how = options;
    if (in_place) how.self = &result.matrices;
    product(result.matrices, a.matrices, b.matrices, how, &machine);
    return result.memory;
  }
  bool has_partial_sums() const {
    return out.matrices.batch == 1 && options.gather == nullptr &&
           options.scales == nullptr;
  }
  // run_parts() is run() by calls that have two, six, ten, ... of the terms.
  Bytes run_parts(Machine& machine) const {
    Array result = out;
    ProductOptions how = options;
    if (in_place) how.self = &result.matrices;
    std::vector<float> values(
        product_sums_count(out.matrices.rows, out.matrices.columns), NAN);
    PartialSums sums{values.data(), true, false};
    how.sums = &sums;
    const auto from = [](const Matrices& x, std::size_t step) {
      Matrices rest = x;
      rest.data =
          static_cast<std::byte*>(x.data) + step * format_of(x.dtype).bytes;
      return rest;
    };
    const std::size_t terms = a.matrices.columns;
    for (std::size_t t = 0, count = 2; !sums.ends; t += count, count += 4) {
      sums.ends = terms - t <= count;
      Matrices x = from(a.matrices, t * a.matrices.column_step),
               y = from(b.matrices, t * b.matrices.row_step);
      x.columns = y.rows = sums.ends ? terms - t : count;
      product(result.matrices, x, y, how, &machine);
      sums.begins = false;
    }
    return result.memory;
  }
  // check() compares the elements of a result, or `sample` of them.
  void check(const Bytes& result, std::size_t sample = 0) const {
    const Matrices& shape = out.matrices;
    const Format& format = format_of(shape.dtype);
    const Array* add = options.self == nullptr ? nullptr
                       : in_place              ? &out
                                               : &self;
    Bytes expected = sample == 0 ? out.memory : Bytes();
    Random random(3);
    const std::size_t count = shape.batch * shape.rows * shape.columns;
    for (std::size_t n = 0; n < (sample == 0 ? count : sample); ++n) {
      const std::size_t at = sample == 0 ? n : random.below(count);
      const std::size_t c = at % shape.columns,
                        r = at / shape.columns % shape.rows,
                        i = at / shape.columns / shape.rows;
      const float value = expected_value(a, b, add, options, i, r, c);
      const std::uint64_t bits =
          value != value ? format.quiet_nan() : bits_of(format, value);
      const std::size_t place = out.index(i, r, c);
      if (sample == 0) {
        store_bits(format, expected.data(), place, bits);
      }
      const std::uint64_t actual = load_bits(format, result.data(), place);
      ASSERT_EQ(actual, bits) << "[" << i << ", " << r << ", " << c << "]";
    }
    if (sample == 0) {
      EXPECT_TRUE(result == expected);  // also what is between elements
    }
  }
};

struct Types {
  ScalarType in, out;
};
constexpr Types kTypes[] = {{kFloat32, kFloat32},
                            {kBFloat16, kBFloat16},
                            {kBFloat16, kFloat32},
                            {kFloat16, kFloat16},
                            {kFloat16, kFloat32}};

void check_on_machines(const Case& one, Random& random, bool all_isas) {
  for (const Types& types : kTypes) {
    // Packing float32 takes more than 64 KiB of LDM.
    if (one.scale_terms == 128 && types.in == kFloat32) continue;
    for (const Numbers numbers :
         {Numbers::ordinary, Numbers::tiny, Numbers::any, Numbers::cancelling,
          Numbers::continued}) {
      if (numbers > Numbers::any && types.in != kBFloat16) break;
      SCOPED_TRACE(testing::Message()
                   << format_of(types.in).name << " -> "
                   << format_of(types.out).name << ", " << one.batch << " x "
                   << one.rows << " x " << one.columns << " x " << one.terms
                   << ", layouts " << static_cast<int>(one.a)
                   << static_cast<int>(one.b) << static_cast<int>(one.out)
                   << ", numbers " << static_cast<int>(numbers));
      const Problem problem(one, types.in, types.out, numbers, random);
      const Bytes result = problem.run(plain_machine());
      problem.check(result);
      if (testing::Test::HasFailure()) return;
      static std::size_t next = 0;
      const std::size_t reports = runtime::report_count();
      on_machines({kRowShapes[next++ % 3]}, all_isas, [&](Machine& machine) {
        EXPECT_TRUE(problem.run(machine) == result);
        if (!problem.has_partial_sums()) return;
        EXPECT_TRUE(problem.run_parts(machine) == result);
      });
      EXPECT_EQ(runtime::report_count(), reports);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(Product, BitsOfScalarLoop) {
  const Layout rows = Layout::rows, columns = Layout::columns,
               gaps = Layout::gaps, shared = Layout::shared;
  const Case cases[] = {
      {1, 1, 1, 1},
      {1, 3, 2, 0},
      {2, 5, 40, 3, columns, columns, rows},
      {1, 12, 32, 64},
      {2, 29, 70, 31, rows, columns, rows},
      {3, 13, 33, 17, columns, rows, gaps},
      {1, 24, 64, 259, gaps, gaps, columns},
      {2, 8, 100, 50, rows, shared, rows},
      {3, 20, 40, 50, rows, shared, rows},
      {1, 14, 40, 0, gaps, gaps, rows},
      {2, 40, 3, 20, shared, columns, rows},
      {1, 1, 130, 300, rows, columns, rows},
      {1, 1, 32, 2500},
      {1, 2, 65, 70, rows, rows, rows},
      {1, 150, 1, 65, rows, rows, rows},
      // More rows than one panel of a has, with columns for all slaves.
      {1, 20, 300, 131},
      {1, 64, 130, 70, columns, rows, rows},
      {2, 9, 160, 33, gaps, rows, gaps},
      {1, 27, 300, 70, columns, columns, rows},
      {2, 32, 140, 37, rows, gaps, rows},
      {1, 50, 40, 20},
      // Few columns, by the transposes.
      {1, 200, 20, 70},
      {2, 130, 24, 33, columns, columns, rows},
      {1, 140, 9, 66, gaps, rows, gaps},
      // A unit of one term, which LDM has with other steps.
      {2, 8, 70, 1, rows, gaps, rows},
      {1, 30, 40, 60, Layout::gathered},
      {2, 15, 70, 302, Layout::gathered, columns, gaps},
      {2, 27, 200, 256, rows, columns},
      {2, 5, 33, 21, Layout::gathered, columns},
      {3, 23, 35, 40, Layout::runs_of_rows, rows, gaps},
      {2, 70, 35, 41, Layout::runs_of_rows},
      {2, 23, 70, 53, Layout::gathered, Layout::images},
      {1, 15, 33, 84, Layout::runs_of_rows, Layout::images, gaps},
      {1, 20, 24, 500, Layout::runs_of_rows, Layout::images},
      {1, 20, 24, 0, Layout::runs_of_rows, Layout::images},
      {3, 40, 53, 262, shared, rows, rows},
      {1, 29, 70, 131, rows, columns, rows, 32},
      {1, 13, 33, 700, columns, rows, gaps, 128},
      {1, 1, 64, 16, gaps, rows, columns, 2},
      {1, 40, 3, 50, rows, rows, rows, 10},
      {1, 3, 5, 0, rows, rows, rows, 16},
      {1, 30, 70, 41, columns, rows, rows, 0},
      {1, 5, 70, 600, rows, columns, rows, 0},
      {1, 90, 4, 50, rows, rows, columns, 0},
  };
  Random random(71);
  for (const Case& one : cases) {
    check_on_machines(one, random, true);
    if (HasFailure()) return;
  }
}

TEST(Product, RandomShapes) {
  Random random(72);
  const auto layout = [&] { return static_cast<Layout>(random.below(3)); };
  for (int i = 0; i < 10; ++i) {
    const Case one{1 + random.below(3),
                   1 + random.below(60),
                   1 + random.below(90),
                   random.below(80),
                   layout(),
                   layout(),
                   layout()};
    check_on_machines(one, random, false);
    if (HasFailure()) return;
  }
}

// Parts of the terms, of the columns, of the batch and, in the last case, of
// the rows, which would take minutes without fused multiply-add.
TEST(Product, Parts) {
  const Case cases[] = {
      {1, 14, 40, 4200},
      {1, 9, 2400, 4103, Layout::columns, Layout::columns},
      {1, 21, 2400, 4111, Layout::gathered},
      {2, 21, 70, 3140, Layout::gathered},
      {1, 15, 2400, 4200, Layout::runs_of_rows},
      {2, 21, 70, 7000, Layout::gathered, Layout::images},
      {1, 13, 40, 3997, Layout::runs_of_rows, Layout::images},
      {300, 20, 96, 100},
      {70, 30, 96, 1600},
      {1, 203, 70, 4200, Layout::rows, Layout::columns, Layout::rows, 128},
      {1, 14, 2400, 5000, Layout::columns, Layout::rows, Layout::rows, 48},
      {3, 150, 40, 4111, Layout::gathered},
      {1, 202, 70, 5001, Layout::runs_of_rows},
      {1, 1600, 5400, 1540}};
  Random random(73);
  for (const Case& one : cases) {
    const bool large = one.rows > 1000;
    if (large && !is_product_fast()) continue;
    for (const Types& types : kTypes) {
      if (large && types.in == kFloat16) continue;
      const Problem problem(one, types.in, types.out, Numbers::ordinary,
                            random);
      SCOPED_TRACE(one.terms);
      const Bytes result = problem.run(plain_machine());
      problem.check(result, 300);
      if (problem.has_partial_sums() && !large) {
        EXPECT_TRUE(problem.run_parts(plain_machine()) == result);
      }
      if (HasFailure()) return;
    }
  }
}

// ManySlaves runs slaves in turn and adds up the flops of each launch.
class ManySlaves final : public runtime::Backend {
 public:
  void run(const runtime::Launch& launch) override {
    double all = 0, most = 0;
    for (int i = 0; i < launch.slaves; ++i) {
      const runtime::SlaveRange& range = launch.ranges[i];
      double flops = 0;
      for (std::size_t s = range.begin_segment; s <= range.end_segment; ++s) {
        if (s == launch.table.count) break;
        const Segment& segment = launch.table[s];
        const std::size_t end =
            s == range.end_segment ? range.end_unit : segment.count;
        const std::size_t begin =
            s == range.begin_segment ? range.begin_unit : 0;
        flops += static_cast<double>(end - begin) *
                 flops_of(segment.operation->kernel, segment.operation->args);
      }
      all += flops;
      most = std::max(most, flops);
    }
    ++launches;
    if (all != 0) balance = std::min(balance, all / (most * kSlaves));
    runtime::run_slaves(launch, 0, launch.slaves, 0);
  }
  int worker_count() const noexcept override { return 1; }

  static constexpr int kSlaves = 64;
  std::size_t launches = 0;
  double balance = 1;  // flops of all / (slaves * most of a slave)
};

// Many slaves have nearly equal work in few launches.
TEST(Product, ManySlaves) {
  const struct {
    Case shape;
    ScalarType type;
    std::size_t launches;
    double balance;
  } cases[] = {
      // Rows of a layer: a slave has less than two tiles of 12.
      {{1, 1024, 96, 64}, kBFloat16, 2, 1},
      // Gradients of weights: all terms at once, rows packed by a launch.
      {{1, 203, 300, 8200, Layout::columns}, kBFloat16, 2, 0.8},
      {{1, 64, 576, 4500, Layout::columns}, kFloat32, 2, 0.8},
      // Parts of the terms, because the packed rows and columns of all do not
      // stay in the caches of 64 slaves.
      {{1, 203, 2400, 9000, Layout::columns}, kFloat32, 6, 0.8},
      {{1, 2100, 64, 8200, Layout::columns}, kFloat32, 6, 0.8},
      // Too much for the caches of 64 slaves.
      {{1, 12, 40, 170000, Layout::columns}, kFloat32, 4, 0.05},
  };
  MachineConfig config;
  config.backend = "serial";
  config.transfer = "view";
  config.core_groups = 1;
  config.slaves_per_group = ManySlaves::kSlaves;
  const auto machine = make_machine(config);
  Random random(74);
  for (const auto& one : cases) {
    if (one.shape.terms > 100000 && !is_product_fast()) continue;
    SCOPED_TRACE(one.shape.terms);
    const Problem problem(one.shape, one.type, one.type, Numbers::ordinary,
                          random);
    auto backend = std::make_unique<ManySlaves>();
    ManySlaves& seen = *backend;
    machine->impl().backend = std::move(backend);
    problem.check(problem.run(*machine), 300);
    EXPECT_EQ(seen.launches, one.launches);
    EXPECT_GE(seen.balance, one.balance);
  }
}

TEST(Product, Errors) {
  Array out(2, 3, 5, kFloat16, Layout::rows),
      a(2, 3, 4, kFloat16, Layout::rows), b(2, 4, 5, kFloat16, Layout::rows);
  struct Call {
    Matrices out, a, b, self;
    Gather gather;
    bool gathers = false, has_sums = false;
    PartialSums sums{};
    bool has_scales = false;
    ProductScales scales{};

    void without_batch() {
      for (Matrices* x : {&out, &a, &b, &self}) x->batch = 1;
    }
  };
  const std::vector<Refusal<Call>> rows = {
      {[](Call& c) { c.has_sums = true; },
       "options.sums: got partial sums, expected null with a batch or a "
       "gather"},
      {[](Call& c) { c.has_sums = true, c.without_batch(); },
       "options.sums.data: got null"},
      {[](Call& c) { c.has_scales = true; },
       "options.scales: got scales, expected null with a batch, a gather or "
       "partial sums"},
      {[](Call& c) {
         c.has_scales = true, c.scales.terms = 3, c.without_batch();
       },
       "options.scales.terms: got 3, expected an even number, at most 128"},
      {[](Call& c) { c.has_scales = true, c.without_batch(); },
       "options.scales.a: got null"},
      {[](Call& c) { c.a.data = nullptr; }, "a.data: got null, expected"},
      {[](Call& c) { c.out.dtype = kFloat64; },
       "out.dtype: got 3 (float64), expected", SWAMP_UNSUPPORTED},
      {[](Call& c) { c.b.dtype = kFloat32; },
       "b.dtype: got float32, expected float16 (as 'a' has)"},
      {[](Call& c) { c.out.dtype = kBFloat16; },
       "out.dtype: got bfloat16, expected float16 (as 'a' has) or float32"},
      {[](Call& c) { c.b.rows = 3; },
       "b.rows: got 3, expected 4 (as 'a' has columns)"},
      {[](Call& c) { c.b.batch = 1; },
       "b.batch: got 1, expected 2 (as 'a' has)"},
      {[](Call& c) { c.out.rows = 2; },
       "out.rows: got 2, expected 3 (as 'a' has)"},
      {[](Call& c) { c.out.columns = 6; },
       "out.columns: got 6, expected 5 (as 'b' has)"},
      {[](Call& c) { c.out.row_step = 4; },
       "out.row_step: got 4, expected at least 5, the extent"},
      {[](Call& c) { c.out.batch_step = 0; },
       "out.batch_step: got 0, expected at least 1, the extent"},
      {[](Call& c) { c.a.row_step = ~std::size_t{0}; },
       "a.row_step: got 18446744073709551615, expected at most"},
      {[](Call& c) { c.a.batch_step = ~std::size_t{0}; },
       "a.batch_step: got 18446744073709551615, expected a step with which"},
      {[](Call& c) { c.b.data = static_cast<std::byte*>(c.b.data) + 1; },
       "b.data: got an address that is not a multiple of 2"},
      {[](Call& c) { c.self.columns = 4; },
       "self.columns: got 4, expected 5 (as 'out' has)"},
      {[](Call& c) { c.self.dtype = kFloat32; },
       "self.dtype: got float32, expected float16 (as 'out' has)"},
      {[](Call& c) {
         c.gathers = true;
         c.gather.rows.length = 0;
       },
       "gather.rows.length: got 0, expected at least 1"},
      {[](Call& c) {
         static constexpr std::size_t kBegins[4] = {};
         c.gathers = true;
         c.gather = {{kBegins, 1}, {kBegins, 1}, {kBegins, 3}};
       },
       "gather.b_rows.length: got 3, expected an even number, at least 2"},
      {[](Call& c) { c.gathers = true; },
       "gather.rows.begins: got null, expected an array of places"},
  };
  const Bytes before = out.memory;
  expect_refusals({out.matrices, a.matrices, b.matrices, out.matrices, {}},
                  rows, [](Call& call) {
                    ProductOptions options;
                    options.self = &call.self;
                    if (call.gathers) options.gather = &call.gather;
                    if (call.has_sums) options.sums = &call.sums;
                    if (call.has_scales) options.scales = &call.scales;
                    product(call.out, call.a, call.b, options);
                  });
  EXPECT_TRUE(out.memory == before);
}

TEST(Convolution, Errors) {
  std::vector<float> x(64, 1), weight(64, 1), out(64, 7);
  struct Call {
    Convolution of;
    const void* x;
    bool is_weight = false;
  };
  const ConvolutionDimension axis{4, 3, 2, 1, 1, 0, 1};
  const std::vector<Refusal<Call>> rows = {
      {[](Call& c) { c.x = nullptr; }, "x: got null, expected"},
      {[](Call& c) { c.x = static_cast<const char*>(c.x) + 1; },
       "x: got a misaligned address, expected"},
      {[](Call& c) { c.of.dtype = kFloat64; },
       "of.dtype: got 3 (float64), expected", SWAMP_UNSUPPORTED},
      {[](Call& c) { c.of.groups = 0; }, "of.channels: got 2, expected"},
      {[](Call& c) { c.of.filters = 3; }, "of.filters: got 3, expected"},
      {[](Call& c) { c.of.height.out = 0; },
       "of.height.out: got 0, expected 1"},
      {[](Call& c) { c.of.width.divisor = 0; },
       "of.width.divisor: got 0, expected 1"},
      {[](Call& c) {
         c.is_weight = true;
         c.of.width.divisor = 2;
       },
       "of.width.divisor: got 2, expected 1 to 1", SWAMP_UNSUPPORTED},
      {[](Call& c) { c.of.width.in_step = (1L << 28) + 1; },
       "of.width.in_step: got 268435457, expected 1 to 268435456",
       SWAMP_UNSUPPORTED},
      {[](Call& c) { c.of.width.kernel_step = 1L << 27; },
       "of.width.in_step: got 1, expected windows of at most",
       SWAMP_UNSUPPORTED},
      {[](Call& c) { c.of.images = std::size_t{1} << 60; },
       "of.images: got 1152921504606846976, expected images that fit"},
  };
  const std::vector<float> before = out;
  expect_refusals({{1, 2, 2, 2, axis, axis}, x.data()}, rows, [&](Call& call) {
    if (call.is_weight) {
      convolve_weight(call.of, call.x, weight.data(), out.data());
    } else {
      convolve(call.of, call.x, weight.data(), nullptr, out.data());
    }
  });
  EXPECT_EQ(out, before);
}

}  // namespace
}  // namespace swamp::test
