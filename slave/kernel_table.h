// What a kernel's source needs to define its kernels: the combinations of
// formats that families have, and SWAMP_KERNELS(), which makes a table of a
// family's kernels. A source includes this header and its own arguments;
// slave/dispatch.cpp collects the tables of all families.
#ifndef SWAMP_SLAVE_KERNEL_TABLE_H_
#define SWAMP_SLAVE_KERNEL_TABLE_H_

#include "slave/formats.h"
#include "slave/kernel.h"

namespace swamp::slave {

// Formats are A to D of one kernel: each a ScalarType, kInt32, kInt64 or kNone.
struct Formats {
  std::uint8_t a, b, c, d;

  constexpr Formats(int a_type = kNone, int b_type = kNone, int c_type = kNone,
                    int d_type = kNone) noexcept
      : a(static_cast<std::uint8_t>(a_type)),
        b(static_cast<std::uint8_t>(b_type)),
        c(static_cast<std::uint8_t>(c_type)),
        d(static_cast<std::uint8_t>(d_type)) {}
  constexpr bool operator==(const Formats& other) const noexcept {
    return a == other.a && b == other.b && c == other.c && d == other.d;
  }
};

inline constexpr Formats kNoFormat[] = {{}};
inline constexpr Formats kIntegers[] = {{kInt32}, {kInt64}};
inline constexpr Formats kHalf[] = {{kFloat16}, {kBFloat16}};
inline constexpr Formats kUpTo32[] = {{kFloat16}, {kBFloat16}, {kFloat32}};
inline constexpr Formats kUpTo64[] = {
    {kFloat16}, {kBFloat16}, {kFloat32}, {kFloat64}};
inline constexpr Formats kSums[] = {{kFloat16, kFloat64},
                                    {kBFloat16, kFloat64},
                                    {kFloat32, kFloat64},
                                    {kFloat64, kFloat64},
                                    {kFloat64, kFloat32}};
inline constexpr Formats kGradients[] = {{kFloat16},      {kBFloat16},
                                         {kFloat32},      {kFloat64},
                                         {kFloat8E4M3FN}, {kFloat8E5M2}};
inline constexpr Formats kCasts[] = {{kFloat16, kFloat32},
                                     {kBFloat16, kFloat32},
                                     {kFloat32, kFloat32},
                                     {kFloat32, kFloat16},
                                     {kFloat32, kBFloat16}};
inline constexpr Formats kSameOrWide[] = {{kFloat16, kFloat16},
                                          {kFloat16, kFloat32},
                                          {kBFloat16, kBFloat16},
                                          {kBFloat16, kFloat32},
                                          {kFloat32, kFloat32}};
inline constexpr Formats kSteps[] = {
    {kFloat16},  {kFloat16, kFloat16},  {kFloat16, kBFloat16},
    {kBFloat16}, {kBFloat16, kFloat16}, {kBFloat16, kBFloat16},
    {kFloat32},  {kFloat32, kFloat16},  {kFloat32, kBFloat16}};
inline constexpr Formats kStochasticSteps[] = {
    {kFloat16, kFloat16, kFloat32},
    {kFloat16, kFloat16, kBFloat16},
    {kBFloat16, kBFloat16, kFloat32},
    {kBFloat16, kBFloat16, kBFloat16},
    {kFloat32, kFloat32, kBFloat16},
    {kFloat16, kFloat32, kBFloat16, kFloat16},
    {kBFloat16, kFloat32, kBFloat16, kBFloat16}};
inline constexpr Formats kKahanSteps[] = {{kFloat16, kFloat32},
                                          {kFloat16, kBFloat16},
                                          {kBFloat16, kFloat32},
                                          {kBFloat16, kBFloat16}};
inline constexpr Formats kBlockSteps[] = {
    {kFloat32}, {kFloat16, kFloat16}, {kBFloat16, kBFloat16}};

inline constexpr int kMaxFormats = 9;  // of a family

template <int kCount>
constexpr int format_count(const Formats (&)[kCount]) noexcept {
  static_assert(kCount <= kMaxFormats);
  return kCount;
}

// SWAMP_KERNEL_TABLE(family, formats) is the name of the table of a family's
// kernels, in the order of `formats`. It contains the name of the formats, so
// that a source that names other ones than slave/kernels.inc is not linked. On
// Sunway, master and slaves are linked into one program, in which functions of
// slaves get other names, but not data.
#ifdef __sw_slave__
#define SWAMP_KERNEL_TABLE(family, formats) \
  family##_##formats##_kernels_of_slaves
#else
#define SWAMP_KERNEL_TABLE(family, formats) family##_##formats##_kernels
#endif

// SWAMP_KERNELS(family, formats, function) defines the kernels of a family and
// their table; `formats` are the same as in slave/kernels.inc. `function` is
// called with the arguments of KernelFunction; it is usually an instance of a
// template, and may name the formats A to D, which are FormatOf<> of the
// namespace.
#define SWAMP_KERNELS(family, formats, ...)                                  \
  template <int kIndex>                                                      \
  void family##_kernel(const void* args, const Tile& tile, Result& result) { \
    using A [[maybe_unused]] = FormatOf<formats[kIndex].a>;                  \
    using B [[maybe_unused]] = FormatOf<formats[kIndex].b>;                  \
    using C [[maybe_unused]] = FormatOf<formats[kIndex].c>;                  \
    using D [[maybe_unused]] = FormatOf<formats[kIndex].d>;                  \
    __VA_ARGS__(args, tile, result);                                         \
  }                                                                          \
  template <int kIndex>                                                      \
  constexpr KernelFunction family##_at() {                                   \
    if constexpr (kIndex < format_count(formats)) {                          \
      return &family##_kernel<kIndex>;                                       \
    } else {                                                                 \
      return nullptr;                                                        \
    }                                                                        \
  }                                                                          \
  extern const KernelFunction SWAMP_KERNEL_TABLE(family,                     \
                                                 formats)[kMaxFormats];      \
  const KernelFunction SWAMP_KERNEL_TABLE(family, formats)[kMaxFormats] = {  \
      family##_at<0>(), family##_at<1>(), family##_at<2>(),                  \
      family##_at<3>(), family##_at<4>(), family##_at<5>(),                  \
      family##_at<6>(), family##_at<7>(), family##_at<8>()};

}  // namespace swamp::slave

#endif  // SWAMP_SLAVE_KERNEL_TABLE_H_
