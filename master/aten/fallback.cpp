// A TensorIterator visits the elements, and one template for each format does
// what PyTorch's kernel does with them: the test on the value before, the
// product in float32 or float64, one rounding.
#include "master/aten/fallback.h"

#include <ATen/TensorIterator.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "master/aten/layout.h"
#include "master/aten/tensor.h"
#include "runtime/float_environment.h"
#include "slave/formats.h"

namespace swamp::aten {
namespace {

using namespace slave::element;

template <class Format>
typename Format::Element scaled(typename Format::Element x,
                                float inv_scale) noexcept {
  return Format::narrow(Format::widen(x) * inv_scale);
}

template <class Format>
bool finite(typename Format::Element x) noexcept {
  return std::isfinite(Format::widen(x));
}

// with_format() calls `run` with the format of a validated tensor's dtype.
template <class Run>
void with_format(at::ScalarType type, Run run) {
  switch (type) {
    case at::ScalarType::Half:
      return run(Float16{});
    case at::ScalarType::BFloat16:
      return run(BFloat16{});
    case at::ScalarType::Float:
      return run(Float32{});
    case at::ScalarType::Float8_e4m3fn:
      return run(Float8E4M3FN{});
    case at::ScalarType::Float8_e5m2:
      return run(Float8E5M2{});
    default:
      return run(Float64{});
  }
}

template <class Format>
bool unscale_run(char* data, std::int64_t stride, std::int64_t count,
                 float inv_scale) noexcept {
  using Stored = typename Format::Element;
  bool dirty = false;
  for (std::int64_t i = 0; i < count; ++i, data += stride) {
    const auto x = load<Stored>(data);
    dirty |= !finite<Format>(x);
    if (inv_scale != 1.0f) store<Stored>(data, scaled<Format>(x, inv_scale));
  }
  return dirty;
}

// Aliased unscales elements whose memory may contain found_inf and inv_scale.
template <class Format>
struct Aliased {
  using Stored = typename Format::Element;
  static constexpr std::int64_t kBytes = sizeof(Stored);
  static constexpr std::int64_t kVector = 32 / kBytes;

  void* found_inf;
  const void* inv_scale;

  // compute() works on copies of the elements: found_inf, which it writes, may
  // be one of them, and PyTorch reads a whole vector before it writes any.
  void compute(Stored* values, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) {
      if (!finite<Format>(values[i])) store<float>(found_inf, 1.0f);
    }
    const auto factor = load<float>(inv_scale);
    if (factor == 1.0f) return;
    for (std::int64_t i = 0; i < count; ++i) {
      values[i] = scaled<Format>(values[i], factor);
    }
  }

  void run(char* data, std::int64_t stride, std::int64_t count) const {
    std::int64_t i = 0;
    if (stride == kBytes) {
      for (; i + 2 * kVector <= count; i += 2 * kVector) {
        char* at = data + i * kBytes;
        Stored values[2 * kVector];
        std::memcpy(values, at, sizeof values);
        compute(values, kVector);
        compute(values + kVector, kVector);
        std::memcpy(at, values, sizeof values);
      }
    }
    for (; i < count; ++i) {
      auto value = load<Stored>(data + i * stride);
      compute(&value, 1);
      store<Stored>(data + i * stride, value);
    }
  }
};

// in_place() iterates over one tensor. Its overlap check is off: tensors that
// are written have passed it already, and ones that are only read need not.
at::TensorIterator in_place(const at::Tensor& tensor) {
  return at::TensorIteratorConfig()
      .set_check_mem_overlap(false)
      .add_output(tensor)
      .add_input(tensor)
      .build();
}

// outer_stride() returns the outer stride of the first of two operands, which
// follows the inner strides of both.
std::int64_t outer_stride(const std::int64_t* strides) noexcept {
  return strides[2];
}

}  // namespace

bool unscale_elements(const at::Tensor& tensor, float inv_scale) {
  std::atomic<bool> dirty{false};
  at::TensorIterator iterator = in_place(tensor);
  const std::uint64_t environment = runtime::read_float_environment();
  with_format(tensor.scalar_type(), [&](auto format) {
    const auto loop = [&](char** data, const std::int64_t* strides,
                          std::int64_t count, std::int64_t rows) {
      // ATen's workers have a float environment of their own.
      const runtime::FloatEnvironmentScope scope(environment);
      bool found = false;
      for (std::int64_t row = 0; row < rows; ++row) {
        found |=
            unscale_run<decltype(format)>(data[0] + row * outer_stride(strides),
                                          strides[0], count, inv_scale);
      }
      if (found) dirty.store(true, std::memory_order_relaxed);
    };
    if (Layout(tensor).disjoint) {
      iterator.for_each(loop);
    } else {
      iterator.serial_for_each(loop, {0, iterator.numel()});
    }
  });
  return dirty.load(std::memory_order_relaxed);
}

void unscale_aliased(const at::Tensor& tensor, void* found_inf,
                     const void* inv_scale) {
  if (tensor.numel() == 0) return;
  at::TensorIterator iterator = in_place(tensor);
  with_format(tensor.scalar_type(), [&](auto format) {
    const Aliased<decltype(format)> aliased{found_inf, inv_scale};
    const auto loop = [&](char** data, const std::int64_t* strides,
                          std::int64_t count, std::int64_t rows) {
      for (std::int64_t row = 0; row < rows; ++row) {
        aliased.run(data[0] + row * outer_stride(strides), strides[0], count);
      }
    };
    iterator.serial_for_each(loop, {0, iterator.numel()});
  });
}

}  // namespace swamp::aten
