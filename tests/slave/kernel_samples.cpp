// The arguments that the kernels are tested with.
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "kernel_cases.h"
#include "slave/kernel_args.h"

namespace swamp::test {
namespace {

using namespace slave;  // the types of arguments

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint32_t kPrefetch = 2048;

template <class Args>
ArgsSample sample(const Args& args, const std::string& text,
                  bool nan_payload = false, std::uint32_t prefetch_bytes = 0) {
  ArgsSample one{text, std::vector<std::byte>(sizeof args), nan_payload,
                 prefetch_bytes};
  if (prefetch_bytes != 0) one.text += "prefetch ";
  std::memcpy(one.bytes.data(), &args, sizeof args);
  return one;
}

template <class... Values>
std::string text_of(Values... values) {
  std::ostringstream text;
  ((text << values << " "), ...);
  return text.str();
}

// numbers() makes samples of arguments that consist of one number.
template <class Args>
std::vector<ArgsSample> numbers(std::vector<float> values, const char* name,
                                bool nan_payload) {
  std::vector<ArgsSample> samples;
  for (const float value : values) {
    for (const std::uint32_t prefetch_bytes : {0u, kPrefetch}) {
      samples.push_back(sample(Args{value}, text_of(name, value),
                               nan_payload && !std::isnan(value),
                               prefetch_bytes));
    }
  }
  return samples;
}

// no_arguments() makes samples that differ only in the prefetch.
template <class Args>
std::vector<ArgsSample> no_arguments() {
  return {sample(Args{}, "", true), sample(Args{}, "", true, kPrefetch)};
}

// of_all() makes samples of arguments of several numbers, every second one with
// prefetch.
template <class Args>
ArgsFamily of_all(const std::vector<Args>& all) {
  ArgsFamily family{Flagged::nothing, Partial::none, {}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    family.samples.push_back(sample(all[i], text_of("sample", i), false,
                                    i % 2 == 0 ? 0 : kPrefetch));
  }
  return family;
}

// with_non_temporal() returns all samples twice, the second time with
// non-temporal stores.
ArgsFamily with_non_temporal(ArgsFamily family) {
  const std::vector<ArgsSample> samples = family.samples;
  for (ArgsSample one : samples) {
    one.non_temporal = true;
    one.text += "non-temporal ";
    family.samples.push_back(one);
  }
  return family;
}

const std::vector<float> kScales = {
    1.0f,    0.5f, 0x1p-16f, 0.7f,     1.0f / 3.0f, 1e-3f,
    65536.f, 0.0f, -0.0f,    -1.0f,    kInfinity,   1e-40f,
    3.4e38f, kNan, -0x1p-7f, 0x1p100f, 0x1p-126f};
const std::vector<float> kDivisors = {1.0f, 2.0f,   3.0f,      -7.0f,
                                      0.0f, 1e-40f, kInfinity, kNan};

}  // namespace

template <>
ArgsFamily args_family<UnscaleArgs>() {
  return {Flagged::nonfinite, Partial::none,
          numbers<UnscaleArgs>(kScales, "inv_scale", true)};
}

template <>
ArgsFamily args_family<ScanArgs>() {
  return {Flagged::nonfinite, Partial::scan, no_arguments<ScanArgs>()};
}

template <>
ArgsFamily args_family<NormArgs>() {
  return {Flagged::nonfinite, Partial::norm,
          numbers<NormArgs>(kScales, "inv_scale", true)};
}

template <>
ArgsFamily args_family<CountZerosArgs>() {
  return {Flagged::zeros, Partial::none, no_arguments<CountZerosArgs>()};
}

template <>
ArgsFamily args_family<CastArgs>() {
  return with_non_temporal({Flagged::nothing, Partial::none,
                            numbers<CastArgs>(kDivisors, "divisor", false)});
}

template <>
ArgsFamily args_family<AccumulateArgs>() {
  return {Flagged::nothing, Partial::none,
          numbers<AccumulateArgs>(kDivisors, "divisor", false)};
}

template <>
ArgsFamily args_family<NoArgs>() {
  return with_non_temporal(
      {Flagged::nothing, Partial::none, no_arguments<NoArgs>()});
}

template <>
ArgsFamily args_family<LerpArgs>() {
  ArgsFamily family{Flagged::nothing, Partial::none, {}};
  for (const float coefficient : {0.001f, 0.3f, -0.3f, 0.0f, 1e-40f, kNan}) {
    for (const std::uint32_t from_in : {0u, 1u}) {
      family.samples.push_back(
          sample(LerpArgs{coefficient, from_in},
                 text_of("coefficient", coefficient, "from_in", from_in), false,
                 from_in == 0 ? 0 : kPrefetch));
    }
  }
  return family;
}

// Every branch of the formula, with rounded factors and with exact ones.
template <>
ArgsFamily args_family<SgdArgs>() {
  return with_non_temporal(
      of_all<SgdArgs>({{1.0f, 1.0f, 0.1f, 0.9f, 1.0f, 0.0f, 0, 1},
                       {1.0f, 1.0f, 0.1f, 0.9f, 0.7f, 0.0f, 0, 0},
                       {1.0f / 3, 0.3f, 0.01f, 0.9f, 0.7f, 0.1f, 0, 0},
                       {1e-3f, 1.0f, 0.01f, 0.9f, 1.0f, 0.1f, 1, 0},
                       {0x1p-16f, 0.25f, 1.0f, 0.5f, 1.0f, 0.01f, 1, 1},
                       {1.0f, 1.0f, 3.0f, 0.0f, 1.0f, 0.0f, 0, 0},
                       {0x1p16f, 0.9f, 1e-30f, 0.3f, 1.0f, 1e-30f, 1, 0}}));
}

template <>
ArgsFamily args_family<AdamArgs>() {
  return with_non_temporal(of_all<AdamArgs>(
      {{1.0f, 1.0f, 0.1f, 0.999f, 1e-3f, 1e-3f, 0.5f, 1e-8f, 0.0f, 1.0f},
       {1.0f, 0.3f, 0.1f, 0.99f, 1e-2f, 0.3f, 0.7f, 0.1f, 0.0f, 0.99f},
       {0.7f, 0.9f, 0.6f, 0.9f, 0.1f, 0.01f, 1.0f, 1e-8f, 0.1f, 1.0f},
       {0x1p-16f, 1.0f, 0.5f, 0.5f, 0.5f, 1.0f, 0.3f, 1e-3f, 0.3f, 1.0f},
       {1e-3f, 1.0f, 0.9f, 0.95f, 0.05f, 3.0f, 0.1f, 0.0f, 0.0f, 0.9f},
       {1.0f, 1.0f, 1.0f, 0.0f, 1.0f, 1.0f, 1.0f, 1e-30f, 1e-30f, 1.0f}}));
}

}  // namespace swamp::test
