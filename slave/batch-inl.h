// The loops over a tile, per target. A kernel has up to three parts: whole
// batches of two or four vectors, whole vectors, and a tail of fewer elements
// than a vector. Included once per target, like Highway's own -inl.h.
#if defined(SWAMP_SLAVE_BATCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_BATCH_INL_H_
#undef SWAMP_SLAVE_BATCH_INL_H_
#else
#define SWAMP_SLAVE_BATCH_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "slave/formats-inl.h"
#include "slave/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

// operand() returns operand s of a tile.
template <class Element>
HWY_INLINE Element* operand(const Tile& tile, int s) {
  assert(reinterpret_cast<std::uintptr_t>(tile.operands[s]) %
             alignof(Element) ==
         0);
  return static_cast<Element*>(tile.operands[s]);
}

template <class Partial>
HWY_INLINE Partial* partial_result(const Tile& tile) {
  assert(tile.partial != nullptr);
  return static_cast<Partial*>(tile.partial);
}

// prefetch() prefetches the lines of `count` elements that lie `ahead` bytes
// after `at`; not if `ahead` is 0. Prefetching beyond an array cannot fault.
template <class Element>
HWY_INLINE void prefetch(const Element* at, std::size_t count,
                         std::size_t ahead) {
  if (ahead == 0) return;
  const auto* next = reinterpret_cast<const std::uint8_t*>(at) + ahead;
  for (std::size_t b = 0; b < count * sizeof(Element); b += 64) {
    hwy::Prefetch(next + b);
  }
}

// ---- One operand, as bits

// Here a batch is four vectors: their tests are combined into one branch.
template <class Bits>
HWY_INLINE std::size_t batch_elements() {
  return 4 * hn::Lanes(hn::ScalableTag<Bits>());
}

// for_each_batch() calls body(i) for each whole batch and returns the index of
// the first element after them.
template <class Bits, class Body>
HWY_INLINE std::size_t for_each_batch(const Bits* data, std::size_t count,
                                      std::size_t prefetch_bytes,
                                      const Body& body) {
  const std::size_t batch = batch_elements<Bits>();
  std::size_t i = 0;
  for (; i + batch <= count; i += batch) {
    prefetch(data + i, batch, prefetch_bytes);
    body(i);
  }
  return i;
}

// flag_nonfinite() flags the elements that are inf or nan. Out of line, because
// batches without any do not get here.
template <class Bits>
HWY_NOINLINE void flag_nonfinite(const Bits* data, std::size_t count,
                                 Bits exponent, std::size_t first,
                                 Result& result) {
  std::size_t flagged = 0;
  std::size_t lowest = 0;
  for (std::size_t i = count; i-- > 0;) {
    if ((data[i] & exponent) == exponent) {
      ++flagged;
      lowest = i;
    }
  }
  if (flagged != 0) result.flag(first + lowest, flagged);
}

template <class D>
HWY_INLINE hn::Mask<D> is_nonfinite(D d, hn::Vec<D> x, hn::TFromD<D> exponent) {
  const auto all_ones = hn::Set(d, exponent);
  return hn::Eq(hn::And(x, all_ones), all_ones);
}

template <class D>
HWY_INLINE bool any_nonfinite(D d, hn::Vec<D> x, hn::TFromD<D> exponent) {
  return HWY_UNLIKELY(!hn::AllFalse(d, is_nonfinite(d, x, exponent)));
}

// batch_has_nonfinite() tests a whole batch.
template <class Bits>
HWY_INLINE bool batch_has_nonfinite(const Bits* batch, Bits exponent) {
  const hn::ScalableTag<Bits> d;
  const std::size_t lanes = hn::Lanes(d);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  // One max-reduction replaces four mask tests.
  if (sizeof(Bits) < 8) {
    const auto all_ones = hn::Set(d, exponent);
    const auto part = [&](std::size_t k) HWY_ATTR {
      return hn::And(hn::LoadU(d, batch + k * lanes), all_ones);
    };
    const auto largest =
        hn::Max(hn::Max(part(0), part(1)), hn::Max(part(2), part(3)));
    return !hn::AllFalse(d, hn::Eq(largest, all_ones));
  }
#endif
  const auto test = [&](std::size_t k) HWY_ATTR {
    return is_nonfinite(d, hn::LoadU(d, batch + k * lanes), exponent);
  };
  const auto bad = hn::Or(hn::Or(test(0), test(1)), hn::Or(test(2), test(3)));
  return !hn::AllFalse(d, bad);
}

// check_batches() flags inf and nan in the whole batches of `data`, and
// returns the index of the first element after them.
template <class Bits>
HWY_INLINE std::size_t check_batches(const Bits* data, std::size_t count,
                                     Bits exponent, std::size_t first,
                                     std::size_t prefetch_bytes,
                                     Result& result) {
  return for_each_batch(
      data, count, prefetch_bytes, [&](std::size_t i) HWY_ATTR {
        if (HWY_UNLIKELY(batch_has_nonfinite(data + i, exponent))) {
          flag_nonfinite<Bits>(data + i, batch_elements<Bits>(), exponent,
                               first + i, result);
        }
      });
}

// ---- Several operands, as vectors of float

// store_as() stores a vector in a format. A non-temporal store bypasses the
// caches and needs an aligned address. Below AVX2 Highway's Stream() would
// write beyond a narrow vector.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
inline constexpr bool kHasNonTemporalStores = true;
#else
inline constexpr bool kHasNonTemporalStores = false;
#endif
template <class Format, class NonTemporal, class DF>
HWY_INLINE void store_as(DF df, hn::Vec<DF> value, NonTemporal,
                         typename Format::Element* at) {
  const hn::Rebind<typename Format::Element, DF> d;
  if (kHasNonTemporalStores && NonTemporal::value) {
    hn::Stream(Format::narrow(df, value), d, at);
  } else {
    hn::StoreU(Format::narrow(df, value), d, at);
  }
}

// OperandData is an operand that is loaded or stored as a format.
template <class Format, Access kAccess>
class OperandData {
 public:
  using Element = typename Format::Element;
  static constexpr bool kRead = kAccess != Access::out;
  static constexpr bool kWritten = kAccess != Access::in;

  HWY_INLINE OperandData(const Tile& tile, int s)
      : data_(operand<Element>(tile, s)) {}

  HWY_INLINE Element* at(std::size_t i) const { return data_ + i; }
  HWY_INLINE void prefetch_batch(std::size_t i, std::size_t count,
                                 std::size_t ahead) const {
    if (kRead) prefetch(data_ + i, count, ahead);
  }

 private:
  Element* data_;
};
template <class Format>
using Input = OperandData<Format, Access::in>;
template <class Format>
using InOut = OperandData<Format, Access::inout>;
template <class Format>
using Output = OperandData<Format, Access::out>;

// TailCopy is a copy of fewer elements than a vector has. The other lanes hold
// the first element again, so that they raise no floating-point flags of their
// own.
template <class Data>
class TailCopy {
 public:
  using Element = typename Data::Element;

  HWY_INLINE TailCopy(Element* from, std::size_t count) : data_(from) {
    if (!Data::kRead) return;
#if HWY_TARGET == HWY_AVX3
    const D d;
    const auto first = hn::FirstN(d, count);
    hn::StoreU(hn::IfThenElse(first, hn::MaskedLoad(first, d, from),
                              hn::Set(d, from[0])),
               d, copy_);
#else
    for (Element& one : copy_) one = from[0];
    std::memcpy(copy_, from, count * sizeof(Element));
#endif
  }
  HWY_INLINE Element* at() { return copy_; }
  HWY_INLINE void put(std::size_t count) const {
    if (!Data::kWritten) return;
#if HWY_TARGET == HWY_AVX3
    const D d;
    hn::BlendedStore(hn::LoadU(d, copy_), hn::FirstN(d, count), d, data_);
#else
    std::memcpy(data_, copy_, count * sizeof(Element));
#endif
  }

 private:
  using D = hn::Rebind<Element, hn::ScalableTag<float>>;
  Element* data_;
  HWY_ALIGN Element copy_[hn::MaxLanes(hn::ScalableTag<float>())];
};

template <class Compute, class... Data>
HWY_INLINE void compute_copies(std::size_t count, const Compute& compute,
                               TailCopy<Data>&&... copies) {
  compute(std::false_type(), copies.at()...);
  (copies.put(count), ...);
}

// compute_tail() computes fewer elements than a vector has.
template <class Compute, class... Data>
HWY_INLINE void compute_tail(std::size_t i, std::size_t count,
                             const Compute& compute, Data... operands) {
  compute_copies<Compute, Data...>(count, compute,
                                   TailCopy<Data>(operands.at(i), count)...);
}

// for_each_vector_from() calls compute(non_temporal, at...) for all elements of
// the tile: it must load, compute and store one vector of each operand.
// `non_temporal` is std::true_type or std::false_type. Whole vectors begin at
// element `first`; the tail before it, and that at the end, are computed in
// copies.
template <class NonTemporal, class Compute, class... Data>
HWY_INLINE void for_each_vector_from(std::size_t first,
                                     NonTemporal non_temporal, const Tile& tile,
                                     const Compute& compute, Data... operands) {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<float>());
  const std::size_t batch = 2 * lanes;
  const std::size_t count = tile.count;
  const std::size_t ahead = tile.prefetch_bytes;
  std::size_t i = first;
  if (i != 0) compute_tail(0, i, compute, operands...);
  // Whole batches, of two vectors.
  for (; i + batch <= count; i += batch) {
    if (ahead != 0) (operands.prefetch_batch(i, batch, ahead), ...);
    compute(non_temporal, operands.at(i)...);
    compute(non_temporal, operands.at(i + lanes)...);
  }
  // Whole vectors, at most one.
  if (i + lanes <= count) {
    compute(non_temporal, operands.at(i)...);
    i += lanes;
  }
  if (i != count) compute_tail(i, count - i, compute, operands...);
}

template <class Compute, class... Data>
HWY_INLINE void for_each_vector(const Tile& tile, const Compute& compute,
                                Data... operands) {
  for_each_vector_from(0, std::false_type(), tile, compute, operands...);
}

// for_each_vector_out() is for_each_vector() with an operand `out`, the last
// one, that is only written: with non-temporal stores if the tile has that
// hint.
template <class Compute, class Out, class... Data>
HWY_INLINE void for_each_vector_out(const Tile& tile, const Compute& compute,
                                    Out out, Data... operands) {
  if (!kHasNonTemporalStores || !tile.non_temporal) {
    for_each_vector(tile, compute, operands..., out);
    return;
  }
  constexpr std::size_t kBytes = sizeof(typename Out::Element);
  const std::size_t vector_bytes = hn::Lanes(hn::ScalableTag<float>()) * kBytes;
  const auto address = reinterpret_cast<std::uintptr_t>(out.at(0));
  const std::size_t before =
      (vector_bytes - address % vector_bytes) % vector_bytes / kBytes;
  for_each_vector_from(before < tile.count ? before : tile.count,
                       std::true_type(), tile, compute, operands..., out);
  hwy::FlushStream();  // before the join
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_BATCH_INL_H_
