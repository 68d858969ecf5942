#include "kernel_cases.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>

#include "slave/kernel_id.h"
#include "slave/reference.h"
#include "slave/scan.h"
#include "slave/unscale.h"

namespace swamp::test {
namespace {

using slave::ScanArgs;
using slave::UnscaleArgs;

constexpr std::uint64_t kSegment = 5;

template <class Args>
std::vector<ArgsSample> sample_args();

template <>
std::vector<ArgsSample> sample_args<UnscaleArgs>() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const float scales[] = {1.0f,      0.5f,    0x1p-16f, 0.7f,  1.0f / 3.0f,
                          1e-3f,     65536.f, 0.0f,     -0.0f, -1.0f,
                          kInfinity, 1e-40f,  3.4e38f,  kNan};
  std::vector<ArgsSample> samples;
  for (const float scale : scales) {
    for (const std::uint32_t prefetch_bytes : {0u, 2048u}) {
      const UnscaleArgs args{scale, prefetch_bytes};
      ArgsSample sample;
      sample.text = "inv_scale " + std::to_string(scale) + " prefetch " +
                    std::to_string(prefetch_bytes);
      sample.bytes.resize(sizeof args);
      std::memcpy(sample.bytes.data(), &args, sizeof args);
      sample.nan_payload = !std::isnan(scale);
      samples.push_back(sample);
    }
  }
  return samples;
}

template <>
std::vector<ArgsSample> sample_args<ScanArgs>() {
  std::vector<ArgsSample> samples;
  for (const std::uint32_t prefetch_bytes : {0u, 2048u}) {
    const ScanArgs args{prefetch_bytes};
    ArgsSample sample;
    sample.text = "prefetch " + std::to_string(prefetch_bytes);
    sample.bytes.resize(sizeof args);
    std::memcpy(sample.bytes.data(), &args, sizeof args);
    sample.nan_payload = true;  // nothing is written
    samples.push_back(sample);
  }
  return samples;
}

std::vector<KernelCase> make_kernel_cases() {
  return {
#define SWAMP_KERNEL(name, args_type, access, element)              \
  {#name,          slave::kernel_id::name, &slave::reference::name, \
   Access::access, &k##element##Format,    sample_args<args_type>()},
#include "slave/kernels.inc"
#undef SWAMP_KERNEL
  };
}

}  // namespace

const std::vector<KernelCase>& kernel_cases() {
  static const std::vector<KernelCase> cases = make_kernel_cases();
  return cases;
}

std::vector<const KernelTable*> runnable_tables() {
  std::vector<const KernelTable*> runnable;
  const KernelTables tables = kernel_tables();
  for (std::size_t i = 0; i < tables.count; ++i) {
    if (tables.tables[i].runnable) runnable.push_back(&tables.tables[i]);
  }
  return runnable;
}

std::vector<KernelOnIsa> kernels_on_isas() {
  std::vector<KernelOnIsa> all;
  for (const KernelCase& kernel : kernel_cases()) {
    for (const KernelTable* table : runnable_tables()) {
      all.push_back({&kernel, table});
    }
  }
  return all;
}

std::string kernel_on_isa_name(
    const testing::TestParamInfo<KernelOnIsa>& info) {
  return std::string(info.param.kernel->name) + "_" + info.param.table->isa;
}

void PrintTo(const KernelOnIsa& value, std::ostream* out) {
  *out << value.kernel->name << " on " << value.table->isa;
}

KernelResult run_kernel(KernelFunction function, const ArgsSample& args,
                        void* data, std::size_t count, std::size_t first) {
  KernelResult result;
  static_assert(sizeof(slave::ScanPartial) <= sizeof result.partial_bytes);
  result.partial = result.partial_bytes;
  result.segment = kSegment;
  void* const tiles[kMaxStreams] = {data};
  function(args.bytes.data(), tiles, count, first, result);
  result.partial = nullptr;
  return result;
}

testing::AssertionResult same_result(const KernelResult& actual,
                                     const KernelResult& expected) {
  if (std::memcmp(actual.partial_bytes, expected.partial_bytes,
                  sizeof actual.partial_bytes) != 0) {
    slave::ScanPartial a, e;  // the only kind so far
    std::memcpy(&a, actual.partial_bytes, sizeof a);
    std::memcpy(&e, expected.partial_bytes, sizeof e);
    return testing::AssertionFailure()
           << "partial result: inf " << a.inf_count << " nan " << a.nan_count
           << " first " << a.first_nonfinite << " finite " << a.finite_count
           << " keys " << a.min_key << " " << a.max_key << ", expected inf "
           << e.inf_count << " nan " << e.nan_count << " first "
           << e.first_nonfinite << " finite " << e.finite_count << " keys "
           << e.min_key << " " << e.max_key;
  }
  if (actual.flagged_elements == expected.flagged_elements &&
      actual.flagged_segments == expected.flagged_segments &&
      actual.first_segment == expected.first_segment &&
      actual.first_index == expected.first_index &&
      actual.last_segment == expected.last_segment) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << "flagged " << actual.flagged_elements << " from "
         << actual.first_index << ", expected " << expected.flagged_elements
         << " from " << expected.first_index;
}

}  // namespace swamp::test
