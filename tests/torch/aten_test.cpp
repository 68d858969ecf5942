// The C++ API without the dispatcher, threads, and at::parallel_for.
#include "swamp/aten.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "master/aten/layout.h"

namespace swamp::aten {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// expect_error() compares the beginning of PyTorch's text.
template <class Error, class Call>
void expect_error(const std::string& text, Call call) {
  try {
    call();
    FAIL() << "expected: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(
        std::string(error.what_without_backtrace()).substr(0, text.size()),
        text);
  }
}

void unscale(const std::vector<at::Tensor>& tensors, at::Tensor found_inf,
             const at::Tensor& inv_scale) {
  amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, inv_scale);
}

TEST(AtenApi, Unscales) {
  const std::vector<at::Tensor> tensors = {
      at::full({3, 4}, 8.0), at::full({5}, 8.0, at::kHalf),
      at::full({70}, 8.0, at::kDouble).slice(0, 0, 70, 3)};
  at::Tensor found_inf = at::zeros({});
  unscale(tensors, found_inf, at::full({1, 1}, 0.25));
  for (const at::Tensor& tensor : tensors) {
    EXPECT_TRUE(tensor.eq(2.0).all().item<bool>());
  }
  EXPECT_EQ(found_inf.item<float>(), 0.0f);
  tensors[2][20] = -kInf;
  EXPECT_EQ(any_nonfinite(tensors).item<float>(), 1.0f);
  unscale(tensors, found_inf, at::ones({}));
  EXPECT_EQ(found_inf.item<float>(), 1.0f);
}

TEST(AtenApi, UpdatesTheScale) {
  at::Tensor scale = at::full({}, 4.0);
  at::Tensor tracker = at::zeros({1}, at::kInt);
  EXPECT_TRUE(amp_update_scale_(scale, tracker, at::zeros({1}), 2.0, 0.5, 1)
                  .is_same(scale));
  EXPECT_EQ(scale.item<float>(), 8.0f);
}

// Values that are not those in memory.
TEST(AtenApi, TakesLazyTensors) {
  const auto both = [](double first, double second) {
    return at::tensor({first, second}, at::kFloat);
  };
  const auto minus = [&](double first, double second) {
    return at::_neg_view(both(-first, -second));
  };
  const auto equal = [&](const at::Tensor& tensor, double first,
                         double second) {
    return at::equal(tensor.clone(), both(first, second));
  };
  const at::Tensor none = at::_efficientzerotensor({2}, at::kFloat);
  const at::Tensor one = at::ones({});
  at::Tensor found_inf = at::zeros({});

  at::Tensor x = minus(8, -2);
  unscale({x}, found_inf, at::full({}, 0.5));
  EXPECT_TRUE(equal(x, 4, -1));
  unscale({x}, found_inf, at::_neg_view(at::full({}, -0.5)));
  EXPECT_TRUE(equal(x, 2, -0.5));
  EXPECT_EQ(any_nonfinite({x, none}).item<float>(), 0.0f);
  EXPECT_EQ(any_nonfinite({minus(1, kInf)}).item<float>(), 1.0f);
  EXPECT_EQ(
      grad_norm_and_check({minus(3, 4), none}, found_inf, one).item<double>(),
      5.0);
  foreach_lerp_({x}, {minus(4, 1)}, 0.5);
  EXPECT_TRUE(equal(x, 3, 0.25));
  foreach_lerp_({x}, {none}, 0.5);
  EXPECT_TRUE(equal(x, 1.5, 0.125));

  // The parameters, the gradients and the state.
  const auto stepped = [&](bool lazy) {
    const auto make = [&](double first, double second) {
      return lazy ? minus(first, second) : both(first, second);
    };
    const at::Tensor p = make(1, 2), m = make(0.5, 0.25), v = make(1, 1);
    mixed_precision_adamw_(
        {p}, {make(3, -4)}, {m}, {v}, {}, at::zeros({}),
        lazy ? at::_efficientzerotensor({}, at::kFloat) : at::zeros({}),
        lazy ? at::_neg_view(-one) : one, {}, 0.1, 0.9, 0.99, 0.1, 1e-8, 1.0);
    return at::cat({p.clone(), m.clone(), v.clone()});
  };
  EXPECT_TRUE(at::equal(stepped(true), stepped(false)));

  at::Tensor sum = at::zeros({2, 2});
  wgrad_gemm_accum(minus(1, 2).view({1, 2}), minus(3, 4).view({1, 2}), sum);
  EXPECT_EQ(sum.sum().item<float>(), 21.0f);
  foreach_zero_({x, sum});
  EXPECT_TRUE(equal(x, 0, 0));

  expect_error<c10::Error>("one of scaled_grads was a zero tensor",
                           [&] { unscale({none}, found_inf, one); });
  for (const at::Tensor& scalar : {at::_neg_view(at::zeros({})),
                                   at::_efficientzerotensor({}, at::kFloat)}) {
    expect_error<c10::Error>("found_inf must not be a zero tensor",
                             [&] { grad_norm_and_check({x}, scalar, one); });
  }
  expect_error<c10::Error>("out[0]: got a zero tensor, expected one that can",
                           [&] { foreach_lerp_({none}, {x}, 0.5); });
}

// PyTorch unscales tensors until one is bad; swamp validates all of them first.
TEST(AtenApi, GoesBackToStock) {
  const auto first_is_written = [] {
    const std::vector<at::Tensor> tensors = {at::full({3}, 8.0),
                                             at::ones({3}, at::kInt)};
    at::Tensor found_inf = at::zeros({});
    EXPECT_THROW(at::_amp_foreach_non_finite_check_and_unscale_(
                     tensors, found_inf, at::full({}, 0.5)),
                 c10::Error);
    return tensors[0][0].item<float>() == 4.0f;
  };
  EXPECT_TRUE(is_active());
  EXPECT_FALSE(first_is_written());
  EXPECT_TRUE(set_active(false));
  EXPECT_FALSE(is_active());
  EXPECT_TRUE(first_is_written());
  EXPECT_FALSE(set_active(true));
  EXPECT_FALSE(first_is_written());
}

// A direct call can pass arguments that the dispatcher does not pass to a CPU
// kernel.
TEST(AtenApi, Errors) {
  const at::Tensor good = at::ones({3});
  const at::Tensor one = at::zeros({});
  const at::Tensor meta = at::empty({}, at::device(at::kMeta));
  const at::Tensor sparse = at::eye(3).to_sparse();
  expect_error<c10::Error>("inv_scale must be a CPU tensor.",
                           [&] { unscale({good}, meta, meta); });
  expect_error<c10::Error>("found_inf must be a CPU tensor.",
                           [&] { unscale({good}, meta, one); });
  expect_error<c10::Error>("one of scaled_grads was not a CPU tensor.", [&] {
    unscale({good, meta}, one, one);
  });
  expect_error<c10::Error>("one of scaled_grads was not a CPU tensor.", [&] {
    unscale({good, at::Tensor()}, one, one);
  });
  expect_error<c10::Error>("one of scaled_grads was not a strided tensor.",
                           [&] {
                             unscale({good, sparse}, one, one);
                           });
  expect_error<c10::Error>("one of tensors was not a strided tensor.", [&] {
    any_nonfinite({good, sparse});
  });
  expect_error<c10::NotImplementedError>(
      "\"_amp_foreach_non_finite_check_and_unscale_cpu\" not implemented for "
      "'Long'",
      [&] {
        unscale({good, at::zeros({2}, at::kLong)}, one, one);
      });
  EXPECT_TRUE(good.eq(1.0).all().item<bool>());

  at::Tensor tracker = at::zeros({}, at::kInt);
  at::Tensor scale = meta;
  expect_error<c10::Error>("current_scale must be a CPU tensor.", [&] {
    amp_update_scale_(scale, tracker, one, 2.0, 0.5, 1);
  });
  expect_error<c10::Error>("found_inf must be a CPU tensor.", [&] {
    amp_update_scale_(tracker, tracker, meta, 2.0, 0.5, 1);
  });
}

// The memory that a thread keeps for its next call is bounded.
TEST(AtenThreads, KeepsLittleMemory) {
  const auto used = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const at::Tensor one = at::ones({});
  // 32 MB with holes.
  const at::Tensor base = at::ones({500000, 33}, at::kHalf);
  const std::vector<at::Tensor> strided{base.slice(1, 0, 32)};
  const at::Tensor values = at::ones({2, 250000, 4}, at::kHalf);
  const std::vector<at::Tensor> many = values[0].unbind(0),
                                others = values[1].unbind(0);
  unscale({at::ones({3})}, at::zeros({}), one);
  const std::size_t before = used();
  unscale(strided, at::zeros({}), one);
  EXPECT_LT(used(), before + 1'000'000);
  any_nonfinite(strided);
  EXPECT_LT(used(), before + 1'000'000);
  grad_norm_and_check(many, at::zeros({}), one);
  EXPECT_LT(used(), before + 1'000'000);
  foreach_lerp_(many, others, 0.5);
  foreach_zero_(many);
  EXPECT_LT(used(), before + 1'000'000);
}

// UnscalesAtExit unscales after this thread's thread_local objects are gone.
struct UnscalesAtExit {
  ~UnscalesAtExit() {
    // Takes the memory that was freed until now, so that a use after free is
    // detected.
    std::vector<std::vector<unsigned char>> blocks;
    for (std::size_t bytes = 8; bytes < 1000; bytes += 8) {
      for (int i = 0; i < 8; ++i) blocks.emplace_back(bytes, 0xab);
    }
    const std::vector<at::Tensor> tensors(20, at::full({3}, 8.0));
    at::Tensor found_inf = at::zeros({});
    unscale(tensors, found_inf, at::full({}, 0.5));
    bool good = tensors[0][0].item<float>() == std::ldexp(8.0f, -20);
    grad_norm_and_check(tensors, found_inf, found_inf);
    for (const std::vector<unsigned char>& block : blocks) {
      good &= std::count(block.begin(), block.end(), 0xab) ==
              static_cast<std::ptrdiff_t>(block.size());
    }
    if (!good) {
      std::fputs("FAILED UnscalesAtExit\n", stderr);
      std::_Exit(1);
    }
  }
};

TEST(AtenThreads, UnscalesInStaticDestructors) {
  static const UnscalesAtExit at_exit;
  const std::vector<at::Tensor> tensors(20, at::full({3}, 8.0));
  unscale(tensors, at::zeros({}), at::full({}, 0.5));
  const at::Tensor one = at::ones({});
  grad_norm_and_check(tensors, at::zeros({}), one);
}

TEST(AtenThreads, InsideParallelFor) {
  constexpr std::int64_t kJobs = 16;
  at::set_num_threads(2);
  std::vector<at::Tensor> all;
  for (std::int64_t i = 0; i < kJobs; ++i) {
    all.push_back(at::full({200000 + i}, 8.0));
  }
  all[5][99] = kInf;
  std::atomic<int> found{0};
  at::parallel_for(0, kJobs, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const at::Tensor& tensor = all[static_cast<std::size_t>(i)];
      at::Tensor found_inf = at::zeros({});
      // The second one is copied.
      unscale({tensor, at::full({300, 200}, 8.0).slice(1, 0, 200, 2)},
              found_inf, at::full({}, 0.25));
      found += found_inf.item<float>() != 0.0f ? 1 : 0;
    }
  });
  EXPECT_EQ(found.load(), 1);
  all[5][99] = 2.0;
  for (const at::Tensor& tensor : all) {
    EXPECT_TRUE(tensor.eq(2.0).all().item<bool>());
  }
}

bool overlap(std::vector<Extent> extents) {
  std::vector<Extent> scratch;
  return any_overlap(extents, scratch);
}

// Compares every pair.
bool overlap_reference(const std::vector<Extent>& extents) {
  for (std::size_t i = 0; i < extents.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (extents[i].begin < extents[j].end &&
          extents[j].begin < extents[i].end) {
        return true;
      }
    }
  }
  return false;
}

TEST(Overlap, Small) {
  EXPECT_FALSE(overlap({}));
  EXPECT_FALSE(overlap({{5, 9}}));
  EXPECT_FALSE(overlap({{5, 9}, {9, 10}}));
  EXPECT_FALSE(overlap({{9, 10}, {5, 9}}));
  EXPECT_TRUE(overlap({{5, 9}, {8, 10}}));
  EXPECT_TRUE(overlap({{8, 10}, {5, 9}}));
  EXPECT_TRUE(overlap({{5, 9}, {5, 9}}));
  EXPECT_TRUE(overlap({{0, 100}, {200, 201}, {50, 51}}));
  EXPECT_FALSE(overlap({{0, 100}, {200, 201}, {150, 151}}));
}

TEST(Overlap, AsEveryPair) {
  std::mt19937_64 random(20261121);
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    const std::size_t count = 1 + random() % 600;
    // One heap, or two far apart, as an allocator's for small and large blocks.
    const std::uintptr_t far = round % 2 == 0 ? 0 : std::uintptr_t{1} << 46;
    const std::uintptr_t alignment = round % 3 == 0 ? 64 : 2;
    std::vector<Extent> extents;
    std::uintptr_t at = 0x10000 + random() % 100 * alignment;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uintptr_t bytes = 2 + random() % 200;
      const std::uintptr_t base = i % 2 == 0 ? 0 : far;
      extents.push_back({base + at, base + at + bytes});
      at += (bytes + alignment - 1) / alignment * alignment;
    }
    std::shuffle(extents.begin(), extents.end(), random);
    EXPECT_FALSE(overlap(extents)) << round;
    // Move one of them a little, so that it may overlap its neighbour.
    Extent& moved = extents[random() % count];
    const std::uintptr_t by = random() % 100;
    moved = {moved.begin - by, moved.end - by};
    const bool expected = overlap_reference(extents);
    EXPECT_EQ(overlap(extents), expected) << round;
    found += expected ? 1 : 0;
  }
  EXPECT_GT(found, 20);
  EXPECT_LT(found, 280);
}

TEST(Overlap, ManyAtOneAddress) {
  EXPECT_TRUE(overlap(std::vector<Extent>(1000, {64, 66})));
  std::vector<Extent> extents;
  for (std::uintptr_t i = 0; i < 1000; ++i) {
    extents.push_back({(i * 7919 % 1000) * 64, (i * 7919 % 1000) * 64 + 64});
  }
  EXPECT_FALSE(overlap(extents));
  extents.push_back(extents[500]);
  EXPECT_TRUE(overlap(extents));
}

}  // namespace
}  // namespace swamp::aten
