// The gradient of the weight of direct convolutions, compiled once per target
// by Highway.
#include "slave/convolution_args.h"
#include "slave/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "slave/convolution_weight.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "slave/convolution-inl.h"

HWY_BEFORE_NAMESPACE();
namespace swamp::slave::HWY_NAMESPACE {
namespace {

// The gradients of some positions stay in registers, because the address of a
// term's x is then computed once for all of them.
constexpr std::size_t kPositions = kTileRows < 12 ? 2 : 4;
constexpr std::size_t kMostTerms = std::min<std::size_t>(kMostSums, 24);

// weight_sums() continues kSums chains over `positions` vectors of gradients,
// `step` floats apart: each is of a term, times x at the positions' offsets. Of
// each pair of positions the second comes first.
struct Gradients {
  const std::uint32_t* begins;
  const float* gradient;
  std::size_t step, positions;
};
template <std::size_t kPosition, std::size_t kSums>
HWY_NOINLINE void weight_sums(const Gradients& of, const float* x,
                              const std::uint32_t* terms, float* sums) {
  const DF df;
  constexpr std::make_index_sequence<kSums> kAll;
  for (std::size_t i = 0; i < kWidth; i += kLanes) {
    const std::uint32_t* begins = of.begins;
    const float* gradient = of.gradient + i;
    const std::size_t step = of.step;
    const float* const from = x + (kPosition == 1 ? 0 : i);
    VF sum[kSums];
    for_constants(
        [&](auto k) HWY_ATTR { sum[k] = hn::LoadU(df, sums + k * kWidth + i); },
        kAll);
    const auto add = [&](auto count) HWY_ATTR {
      constexpr std::make_index_sequence<decltype(count)::value> kHere;
      VF g[count];
      const float* at[count];
      for_constants(
          [&](auto p) HWY_ATTR {
            constexpr std::size_t kPlace =
                decltype(count)::value == 1 ? p : p ^ 1;
            hwy::Prefetch(gradient + (kPlace + kPixelsAhead) * step);
            g[p] = hn::LoadU(df, gradient + kPlace * step);
            at[p] = from + begins[kPlace];
          },
          kHere);
      for_constants(
          [&](auto k) HWY_ATTR {
            const std::size_t term = terms[k];
            for_constants(
                [&](auto p) HWY_ATTR {
                  sum[k] = exact_fma(df, ByWindow<kPosition>::set(at[p] + term),
                                     g[p], sum[k]);
                },
                kHere);
          },
          kAll);
      begins += count;
      gradient += count * step;
    };
    std::size_t positions = of.positions;
    for (; positions >= kPositions; positions -= kPositions) {
      add(std::integral_constant<std::size_t, kPositions>());
    }
    if (positions >= 2) {
      add(std::integral_constant<std::size_t, 2>());
      positions -= 2;
    }
    if (positions != 0) add(std::integral_constant<std::size_t, 1>());
    for_constants(
        [&](auto k) HWY_ATTR { hn::StoreU(sum[k], df, sums + k * kWidth + i); },
        kAll);
  }
}

// weight_sums_of() returns weight_sums() of 1 to kMostTerms sums.
template <std::size_t kPosition, std::size_t... k>
HWY_INLINE auto weight_sums_of(std::size_t sums, std::index_sequence<k...>) {
  static constexpr decltype(&weight_sums<1, 1>) kAll[] = {
      &weight_sums<kPosition, k + 1>...};
  return kAll[sums - 1];
}

template <class Format>
struct WeightGradient : Image<Format> {
  using Image<Format>::args;
  using Image<Format>::offsets;
  using Image<Format>::x;

  std::uint32_t* begins;
  const float* gradient;
  std::size_t step;       // floats from position to position of it
  ConvolutionSums* kept;  // of the last position of the band before
  float* kept_x;
  float* sums;

  HWY_INLINE WeightGradient(const ConvolutionArgs& arguments, const Tile& tile)
      : Image<Format>(arguments, tile, true),
        begins(this->template part<std::uint32_t>(this->parts.begins)),
        gradient(this->template part<const float>(this->parts.out)),
        step(kWidth),
        kept(partial_result<ConvolutionSums>(tile)),
        kept_x(reinterpret_cast<float*>(kept + 1)),
        sums(kept_x + args.terms * kWidth) {}

  void prepare() const {
    Image<Format>::prepare();
    std::size_t t = 0;
    for (std::int32_t h = 0; h < args.rows.taps; ++h) {
      for (std::int32_t w = 0; w < args.columns.taps; ++w) {
        const std::size_t from =
            this->place(this->position(args.rows, 0, h),
                        this->position(args.columns, 0, w));
        for (std::size_t i = 0; i < args.group_terms; ++i) {
          offsets[t++] = static_cast<std::uint32_t>(from + i * this->plane);
        }
      }
    }
    std::size_t position = 0;
    for (std::size_t h = 0; h < args.rows.out_count(); ++h) {
      const std::size_t row =
          this->place(h * static_cast<std::size_t>(args.rows.in_step), 0);
      for (std::size_t w = 0; w < args.columns.out_count(); ++w) {
        begins[position++] = static_cast<std::uint32_t>(row + w * this->width);
      }
    }
    if (args.lanes == kWidth) return;
    float* const copies = this->template part<float>(this->parts.out);
    std::fill(copies, copies + args.out_pixels() * kWidth, 0.0f);
  }

  // set_gradient() copies the gradients, unless they are float32 vectors.
  HWY_INLINE void set_gradient(const Source<Format>& from) {
    if constexpr (std::is_same_v<Format, Float32>) {
      if (from.lane_step == 1 && from.lanes == kWidth) {
        gradient = from.data;
        step = static_cast<std::size_t>(from.term_step);
        return;
      }
    }
    float* const copies = this->template part<float>(this->parts.out);
    const std::size_t lanes = for_terms(
        from,
        [&](auto d, std::size_t lane, std::size_t position, auto value)
            HWY_ATTR {
              hn::StoreU(value, d, copies + position * kWidth + lane);
            },
        kPixelsAhead);
    for (std::size_t lane = lanes; lane < args.lanes; ++lane) {
      for (std::size_t p = 0; p < from.terms; ++p) {
        copies[p * kWidth + lane] = Format::widen(*from.at(lane, p));
      }
    }
  }

  // add() adds the positions of a band.
  template <std::size_t kPosition>
  HWY_INLINE void add(std::size_t odd, bool is_last) const {
    const DF df;
    const std::uint32_t* const terms = offsets + args.first_term;
    const auto x_of = [&](std::size_t t, std::size_t position,
                          std::size_t i) HWY_ATTR {
      return ByWindow<kPosition>::set(x + terms[t] + begins[position] +
                                      (kPosition == 1 ? 0 : i));
    };
    if (odd != 0) {
      for (std::size_t t = 0; t < args.terms; ++t) {
        for (std::size_t i = 0; i < kWidth; i += kLanes) {
          float* const at = sums + t * kWidth + i;
          VF sum = exact_fma(df, x_of(t, 0, i), hn::LoadU(df, gradient + i),
                             hn::LoadU(df, at));
          sum = exact_fma(df, hn::LoadU(df, kept_x + t * kWidth + i),
                          hn::LoadU(df, kept->gradient + i), sum);
          hn::StoreU(sum, df, at);
        }
      }
    }
    std::size_t positions = args.out_pixels() - odd;
    const bool keeps = positions % 2 != 0 && !is_last;
    if (keeps) --positions;
    const Gradients of{begins + odd, gradient + odd * step, step, positions};
    for_equal_parts<kMostTerms>(args.terms, [&](std::size_t t,
                                                std::size_t count) HWY_ATTR {
      weight_sums_of<kPosition>(count, std::make_index_sequence<kMostTerms>())(
          of, x, terms + t, sums + t * kWidth);
    });
    if (keeps) {
      const std::size_t last = args.out_pixels() - 1;
      for (std::size_t i = 0; i < kWidth; i += kLanes) {
        hn::StoreU(hn::LoadU(df, gradient + last * step + i), df,
                   kept->gradient + i);
        for (std::size_t t = 0; t < args.terms; ++t) {
          hn::StoreU(x_of(t, last, i), df, kept_x + t * kWidth + i);
        }
      }
    }
    if (!is_last) return;
    for (std::size_t i = 0; i < args.terms * kWidth; i += kLanes) {
      hn::StoreU(nan_to_quiet(hn::LoadU(df, sums + i)), df, sums + i);
    }
  }
};

template <class Format>
HWY_INLINE void convolution_weight(const void* arguments, const Tile& tile,
                                   Result&) {
  using At = ConvolutionWeightOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const ConvolutionArgs*>(arguments);
  const auto* x = operand<const Element>(tile, At::x);
  const auto* g = operand<const Element>(tile, At::g);
  const std::size_t rows = args.rows.out_count(),
                    columns = args.columns.out_count();
  for (std::size_t image = tile.first; image < tile.first + tile.count;
       ++image) {
    const Source<Format> all_x = matrix_of<Format>(
                             x, tile.layout[At::x], args.x_by_channel != 0,
                             args.channels, args.in_pixels()),
                         all_g = matrix_of<Format>(
                             g, tile.layout[At::g], args.out_by_channel != 0,
                             args.lanes, args.out_pixels());
    for (std::size_t row = 0; row < rows; row += args.band_rows) {
      std::size_t x_row;
      const ConvolutionArgs band = args.band(
          row, std::min<std::size_t>(args.band_rows, rows - row), x_row);
      WeightGradient<Format> weight(band, tile);
      const std::size_t odd = (image * rows + row) * columns % 2;
      // The only band of an image is that of the next one.
      const bool is_ready = image != tile.first && args.band_rows >= rows;
      if (!is_ready) weight.prepare();
      weight.copy({all_x.at(0, x_row * args.columns.in_count()),
                   all_x.lane_step, all_x.term_step, args.channels,
                   band.in_pixels()});
      weight.set_gradient({all_g.at(0, row * columns), all_g.lane_step,
                           all_g.term_step, args.lanes, band.out_pixels()});
      const bool is_last =
          image + 1 == args.images && row + args.band_rows >= rows;
      if (weight.width == 1) {
        weight.template add<1>(odd, is_last);
      } else {
        weight.template add<kWidth>(odd, is_last);
      }
    }
    x += tile.layout[At::x].unit_step / sizeof *x;
    g += tile.layout[At::g].unit_step / sizeof *g;
  }
}

}  // namespace

SWAMP_KERNELS(convolution_weight, kUpTo32, convolution_weight<A>)

}  // namespace swamp::slave::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
