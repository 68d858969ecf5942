// The first call of a class of sizes runs each way of its race on a small and
// then on a full example, in alternation, and keeps the one of the shortest
// time. The scratch memory is one block, which a call takes and returns with an
// atomic exchange.
#include "master/aten/half_precision.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <string>
#include <utility>

#include "master/aten/checks.h"
#include "master/aten/tensor.h"
#include "swamp/foreach.h"

namespace swamp::aten {
namespace {

std::atomic<bool> active{false};

std::atomic<Way> setting{Way::kMeasure};

Way read_setting() {
  constexpr const char* kNames[] = {"measure", "native", "float32", "onednn"};
  const char* text = std::getenv("SWAMP_HALF_PRECISION");
  if (text == nullptr || *text == '\0') return Way::kMeasure;
  const auto* found =
      std::find(std::begin(kNames), std::end(kNames), std::string(text));
  TORCH_CHECK(found != std::end(kNames), "swamp: SWAMP_HALF_PRECISION: got ",
              '"', text, "\", expected measure, native, float32 or onednn");
  return static_cast<Way>(found - std::begin(kNames));
}

std::atomic<float*> kept{nullptr};

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  return taken.count();
}

// fastest() compares the shortest times of alternating repetitions. It begins
// with small operands: if PyTorch's own kernel is much slower on them, it is
// not run on the large ones. If it is faster on them, that proves nothing,
// because float32 needs more launches. PyTorch's kernel must be clearly faster:
// float32 sums are more accurate, and a noisy moment must not decide between
// near equals.
Way fastest(const std::function<Race(bool small)>& prepare) {
  constexpr double kMuch = 4, kLong = 0.02, kNever = 1e9, kClearly = 0.9;
  bool with_native = true;
  std::array<double, 3> least;
  for (const bool small : {true, false}) {
    const Race race = prepare(small);
    const int repetitions = small ? 2 : 3;  // and one before them, to warm up
    least.fill(kNever);
    for (int i = 0; i <= repetitions; ++i) {
      for (std::size_t way = with_native ? 0 : 1; way < race.size(); ++way) {
        if (!race[way]) continue;
        const double seconds = seconds_of(race[way]);
        if (i > 0) least[way] = std::min(least[way], seconds);
      }
      const double much = kMuch * std::min(least[1], least[2]);
      if (with_native && least[0] < kNever &&
          least[0] > (i < repetitions ? std::max(much, kLong) : much)) {
        with_native = false;
        least[0] = kNever;
      }
    }
  }
  if (least[0] < kClearly * std::min(least[1], least[2])) return Way::kNative;
  return least[2] < least[1] ? Way::kOneDnn : Way::kFloat32;
}

}  // namespace

bool set_half_precision(bool value) {
  if (value) setting.store(read_setting());
  const bool before = active.exchange(value);
  if (!value) Scratch::free_kept();
  return before;
}

bool is_half_precision() { return active.load(std::memory_order_relaxed); }

bool is_plain(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.defined() && tensor.scalar_type() == type && tensor.is_cpu() &&
         tensor.layout() == at::kStrided;
}

void convert(const at::Tensor& to, const at::Tensor& from) {
  const auto to_type = scalar_type(to.scalar_type());
  const auto from_type = scalar_type(from.scalar_type());
  const bool same_order = (to.is_contiguous() && from.is_contiguous()) ||
                          (to.strides() == from.strides() && is_dense(from));
  if (!same_order || to_type == from_type) {
    to.copy_(from);
    return;
  }
  void* out = mutable_data(to);
  const void* in = const_data(from);
  if (!is_aligned(out, element_bytes(*to_type)) ||
      !is_aligned(in, element_bytes(*from_type))) {
    to.copy_(from);
    return;
  }
  const auto count = static_cast<std::size_t>(from.numel());
  const Tensor target{out, count, *to_type};
  const Tensor source{const_cast<void*>(in), count, *from_type};  // only read
  translated([&] { foreach_cast_({&target, 1}, {&source, 1}); });
}

Scratch::Scratch() : data_(kept.exchange(nullptr)) {
  if (data_ == nullptr) {
    data_ = static_cast<float*>(c10::alloc_cpu(
        static_cast<std::size_t>(kScratchFloats) * sizeof(float)));
  }
}

Scratch::~Scratch() {
  float* none = nullptr;
  if (!is_half_precision() || !kept.compare_exchange_strong(none, data_)) {
    c10::free_cpu(data_);
  }
}

void Scratch::free_kept() { c10::free_cpu(kept.exchange(nullptr)); }

at::Tensor Scratch::like(const at::Tensor& tensor) {
  constexpr std::int64_t kLine = 16;  // floats
  const auto strides =
      at::infer_dense_strides(tensor.sizes(), tensor.strides());
  const auto options = tensor.options().dtype(at::kFloat);
  const std::int64_t count = tensor.numel();
  if (count > kScratchFloats - used_) {
    return at::empty_strided(tensor.sizes(), strides, options);
  }
  float* data = data_ + used_;
  used_ = std::min(kScratchFloats, used_ + (count + kLine - 1) / kLine * kLine);
  return at::from_blob(data, tensor.sizes(), strides, options);
}

at::Tensor Scratch::widened(const at::Tensor& tensor) {
  at::Tensor result = like(tensor);
  convert(result, tensor);
  return result;
}

Way choose(Choice& choice, const std::function<Race(bool small)>& prepare) {
  const Way set = setting.load(std::memory_order_relaxed);
  if (set != Way::kMeasure) return set;
  Way known = choice.load(std::memory_order_relaxed);
  if (known == Way::kMeasure) {
    const Way measured = fastest(prepare);
    if (choice.compare_exchange_strong(known, measured)) known = measured;
  }
  return known;
}

int size_level(std::int64_t count) noexcept {
  return count <= 4 ? 0 : count <= 32 ? 1 : count <= 256 ? 2 : 3;
}

std::int64_t size_of_level(int level, bool small) noexcept {
  constexpr std::int64_t kSizes[kSizeLevels] = {1, 16, 128, 512};
  constexpr std::int64_t kSmall = 64;
  return small ? std::min(kSizes[level], kSmall) : kSizes[level];
}

}  // namespace swamp::aten
