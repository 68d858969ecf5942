// Per-target operands of an operation: how the elements of a format become
// vectors of float and come back, and the loop over the vectors of several
// tiles. Re-included once per target, as Highway's own -inl.h.
#if defined(SWAMP_SLAVE_OPERANDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SWAMP_SLAVE_OPERANDS_INL_H_
#undef SWAMP_SLAVE_OPERANDS_INL_H_
#else
#define SWAMP_SLAVE_OPERANDS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "slave/float_formats-inl.h"
#include "slave/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {

// A format loads and stores as many elements as `df` has lanes; narrow() is
// what it stores, round() gives a float the precision of the format.
struct Float32Stream {
  using Element = float;
  template <class DF>
  static HWY_INLINE hn::Vec<DF> load(DF df, const Element* at) {
    return hn::LoadU(df, at);
  }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> narrow(DF, hn::Vec<DF> value) {
    return value;
  }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> round(DF, hn::Vec<DF> value) {
    return value;
  }
};

struct Float16Stream {
  using Element = std::uint16_t;
  template <class DF>
  static HWY_INLINE hn::Vec<DF> load(DF df, const Element* at) {
    return widen_float16(df, hn::LoadU(hn::Rebind<Element, DF>(), at));
  }
  template <class DF>
  static HWY_INLINE hn::Vec<hn::Rebind<Element, DF>> narrow(DF df,
                                                            hn::Vec<DF> value) {
    return narrow_float16(df, value);
  }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> round(DF df, hn::Vec<DF> value) {
    return widen_float16(df, narrow_float16(df, value));
  }
};

struct BFloat16Stream {
  using Element = std::uint16_t;
  template <class DF>
  static HWY_INLINE hn::Vec<DF> load(DF df, const Element* at) {
    const hn::RebindToUnsigned<DF> du;
    const auto bits = hn::LoadU(hn::Rebind<Element, DF>(), at);
    return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
  }
  template <class DF>
  static HWY_INLINE hn::Vec<hn::Rebind<Element, DF>> narrow(DF df,
                                                            hn::Vec<DF> value) {
    const auto upper = hn::ShiftRight<16>(round_bfloat16(df, value));
    return hn::TruncateTo(hn::Rebind<Element, DF>(), upper);
  }
  template <class DF>
  static HWY_INLINE hn::Vec<DF> round(DF df, hn::Vec<DF> value) {
    const hn::RebindToUnsigned<DF> du;
    return hn::BitCast(
        df, hn::And(round_bfloat16(df, value), hn::Set(du, 0xffff0000u)));
  }
};

// store_as() stores a vector in a format; with kNonTemporal past the caches,
// which needs an aligned address. Below AVX2 Highway's Stream() would write
// beyond a narrow vector.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
inline constexpr bool kCanStoreNonTemporal = true;
#else
inline constexpr bool kCanStoreNonTemporal = false;
#endif
template <class Format, bool kNonTemporal = false, class DF>
HWY_INLINE void store_as(DF df, hn::Vec<DF> value,
                         typename Format::Element* at) {
  const hn::Rebind<typename Format::Element, DF> d;
  if (kNonTemporal && kCanStoreNonTemporal) {
    hn::Stream(Format::narrow(df, value), d, at);
  } else {
    hn::StoreU(Format::narrow(df, value), d, at);
  }
}

// OperandData is the elements of one operand of a tile.
template <class Format, Access kAccess>
class OperandData {
 public:
  using Element = typename Format::Element;
  static constexpr bool kRead = kAccess != Access::out;
  static constexpr bool kWritten = kAccess != Access::in;

  explicit OperandData(void* data) : data_(static_cast<Element*>(data)) {}

  HWY_INLINE Element* at(std::size_t i) const { return data_ + i; }

  // Prefetching beyond the array is harmless: it cannot fault.
  HWY_INLINE void prefetch(std::size_t i, std::size_t count,
                           std::size_t ahead) const {
    if (!kRead) return;
    const auto* next = reinterpret_cast<const std::uint8_t*>(data_ + i) + ahead;
    for (std::size_t b = 0; b < count * sizeof(Element); b += 64) {
      hwy::Prefetch(next + b);
    }
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

// TailCopy is a copy of a tile's last elements, fewer than a vector. The other
// lanes hold the first of them again, so that they raise no flag of their own.
template <class Data>
class TailCopy {
 public:
  using Element = typename Data::Element;

  HWY_INLINE TailCopy(Element* from, std::size_t count) : data_(from) {
    if (!Data::kRead) return;
    for (Element& one : copy_) one = from[0];
    std::memcpy(copy_, from, count * sizeof(Element));
  }
  HWY_INLINE Element* at() { return copy_; }
  HWY_INLINE void put(std::size_t count) const {
    if (Data::kWritten) std::memcpy(data_, copy_, count * sizeof(Element));
  }

 private:
  Element* data_;
  HWY_ALIGN Element copy_[hn::MaxLanes(hn::ScalableTag<float>())];
};

template <class Compute, class... Data>
HWY_INLINE void compute_tail(std::size_t count, const Compute& compute,
                             TailCopy<Data>&&... copies) {
  compute(copies.at()...);
  (copies.put(count), ...);
}

// for_each_whole() calls compute for the whole vectors of [i, count) and
// returns the element behind them.
template <class Compute, class... Data>
HWY_INLINE std::size_t for_each_whole(std::size_t i, std::size_t count,
                                      std::size_t prefetch_bytes,
                                      const Compute& compute,
                                      Data... operands) {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<float>());
  const std::size_t block = 2 * lanes;
  for (; i + block <= count; i += block) {
    if (prefetch_bytes != 0) (operands.prefetch(i, block, prefetch_bytes), ...);
    compute(operands.at(i)...);
    compute(operands.at(i + lanes)...);
  }
  if (i + lanes <= count) {
    compute(operands.at(i)...);
    i += lanes;
  }
  return i;
}

// compute_some() calls compute for fewer elements than a vector has.
template <class Compute, class... Data>
HWY_INLINE void compute_some(std::size_t i, std::size_t count,
                             const Compute& compute, Data... operands) {
  if (count == 0) return;
  compute_tail<Compute, Data...>(count, compute,
                                 TailCopy<Data>(operands.at(i), count)...);
}

// for_each_vector() calls compute(at0, at1, ...), which loads, computes and
// stores one vector of each operand, for all elements of the tile.
template <class Compute, class... Data>
HWY_INLINE void for_each_vector(const Tile& tile, const Compute& compute,
                                Data... operands) {
  const std::size_t i =
      for_each_whole(0, tile.count, tile.prefetch_bytes, compute, operands...);
  compute_some(i, tile.count - i, compute, operands...);
}

// for_each_vector_non_temporal() does the same. The whole vectors of `out` are
// computed by `non_temporal`, which stores them past the caches; the elements
// before and after them by `compute`.
template <class Compute, class NonTemporal, class Out, class... Data>
HWY_INLINE void for_each_vector_non_temporal(const Tile& tile,
                                             const Compute& compute,
                                             const NonTemporal& non_temporal,
                                             Out out, Data... operands) {
  constexpr std::size_t kBytes = sizeof(typename Out::Element);
  const std::size_t vector_bytes = hn::Lanes(hn::ScalableTag<float>()) * kBytes;
  const auto address = reinterpret_cast<std::uintptr_t>(out.at(0));
  const std::size_t before =
      (vector_bytes - address % vector_bytes) % vector_bytes / kBytes;
  const std::size_t head = before < tile.count ? before : tile.count;
  compute_some(0, head, compute, operands...);
  const std::size_t i = for_each_whole(head, tile.count, tile.prefetch_bytes,
                                       non_temporal, operands...);
  compute_some(i, tile.count - i, compute, operands...);
  hwy::FlushStream();  // before another thread is told that all is written
}

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SWAMP_SLAVE_OPERANDS_INL_H_
