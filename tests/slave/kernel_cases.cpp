#include "kernel_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <sstream>

#include "slave/kernel_args.h"
#include "slave/kernel_list.h"
#include "slave/reference_table.h"

namespace swamp::test {
namespace {

using namespace slave;  // the types of arguments

std::vector<KernelCase> make_kernel_cases() {
  const KernelRow* const references = reference::reference_rows();
  std::vector<KernelCase> cases;
  const auto add = [&](KernelFamily family, const ArgsFamily& args) {
    for (const KernelInfo& info : kKernels) {
      if (info.family != family) continue;
      KernelCase one{
          info.name, info.id, *references[info.id].function, args, {}};
      for (int s = 0; s < info.operand_count; ++s) {
        if (info.operands[s].access == Access::constant) continue;
        one.operands.push_back(
            {info.operands[s].access,
             &format_of(static_cast<ScalarType>(info.operands[s].type))});
      }
      cases.push_back(one);
    }
  };
#define SWAMP_ROW_FAMILY(...)
#define SWAMP_FAMILY(name, Args, ...) \
  add(KernelFamily::name, args_family<Args>());
#include "slave/kernels.inc"
#undef SWAMP_FAMILY
  return cases;
}

// different_words() names the words of two partial results that differ.
testing::AssertionResult different_words(const std::byte* actual,
                                         const std::byte* expected,
                                         std::size_t bytes) {
  std::ostringstream text;
  text << std::hex << "partial result";
  for (std::size_t at = 0; at < bytes; at += 8) {
    std::uint64_t a, e;
    std::memcpy(&a, actual + at, 8);
    std::memcpy(&e, expected + at, 8);
    if (a == e) continue;
    text << "\n  word " << at / 8 << ": " << a << ", expected " << e;
  }
  return testing::AssertionFailure() << text.str();
}

}  // namespace

const std::vector<KernelCase>& kernel_cases() {
  static const std::vector<KernelCase> cases = make_kernel_cases();
  return cases;
}

const KernelCase& case_of(KernelId id) {
  return *std::find_if(kernel_cases().begin(), kernel_cases().end(),
                       [&](const KernelCase& one) { return one.id == id; });
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

void make_nan_equal(const KernelCase& kernel, std::byte* partial_bytes) {
  if (kernel.family.partial != Partial::norm) return;
  NormPartial partial;
  std::memcpy(&partial, partial_bytes, sizeof partial);
  for (double& lane : partial.lanes) {
    if (std::isnan(lane)) lane = std::numeric_limits<double>::quiet_NaN();
  }
  std::memcpy(partial_bytes, &partial, sizeof partial);
}

KernelResult run_kernel(const KernelCase& kernel, KernelFunction function,
                        const ArgsSample& args, void* const* operands,
                        std::size_t count, std::size_t first) {
  KernelResult result;
  static_assert(sizeof(ScanPartial) <= sizeof result.partial_bytes);
  static_assert(sizeof(NormPartial) <= sizeof result.partial_bytes);
  void* all[kMaxOperands] = {};
  std::copy_n(operands, kernel.operands.size(), all);
  if (kernel.operands.size() < kMaxOperands) {
    all[kernel.operands.size()] = const_cast<RoundingKey*>(&kTestKey);
  }
  Tile tile;
  tile.operands = all;
  tile.count = count;
  tile.first = first;
  tile.partial = result.partial_bytes;
  tile.prefetch_bytes = args.prefetch_bytes;
  tile.non_temporal = args.non_temporal;
  function(args.bytes.data(), tile, result);
  make_nan_equal(kernel, result.partial_bytes);
  return result;
}

testing::AssertionResult same_result(const KernelResult& actual,
                                     const KernelResult& expected) {
  if (std::memcmp(actual.partial_bytes, expected.partial_bytes,
                  sizeof actual.partial_bytes) != 0) {
    return different_words(actual.partial_bytes, expected.partial_bytes,
                           sizeof actual.partial_bytes);
  }
  if (actual.flagged_elements == expected.flagged_elements &&
      actual.first_index == expected.first_index) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << "flagged " << actual.flagged_elements << " from "
         << actual.first_index << ", expected " << expected.flagged_elements
         << " from " << expected.first_index;
}

KernelTiles::KernelTiles(const KernelCase& kernel, std::size_t count, Fill fill,
                         Random& random)
    : kernel_(&kernel), count_(count) {
  for (const OperandCase& operand : kernel.operands) {
    operands_.emplace_back(count * operand.format->bytes);
    fill(*operand.format, operands_.back().data(), count, random);
  }
}

void KernelTiles::set(const std::vector<std::uint64_t>& bits) {
  for (std::size_t i = 0; i < bits.size(); ++i) {
    store_bits(*kernel_->operands[0].format, operand(0), i, bits[i]);
  }
}

void KernelTiles::flip_out() {
  for (std::size_t s = 0; s < operands_.size(); ++s) {
    if (kernel_->operands[s].access != Access::out) continue;
    for (std::byte& byte : operands_[s]) byte = ~byte;
  }
}

KernelResult KernelTiles::run(KernelFunction function, const ArgsSample& args,
                              std::size_t first) {
  void* tiles[kMaxOperands] = {};
  for (std::size_t s = 0; s < operands_.size(); ++s) tiles[s] = operand(s);
  return run_kernel(*kernel_, function, args, tiles, count_, first);
}

testing::AssertionResult compare_written(const KernelCase& kernel,
                                         const ArgsSample& args,
                                         void* const* tiles,
                                         const KernelTiles& expected,
                                         const KernelTiles& original) {
  for (std::size_t s = 0; s < kernel.operands.size(); ++s) {
    const OperandCase& operand = kernel.operands[s];
    const bool read_only = operand.access == Access::in;
    const testing::AssertionResult same = same_elements(
        *operand.format, tiles[s],
        read_only ? original.operand(s) : expected.operand(s), expected.count(),
        read_only || (has_nan_payload(*operand.format) && args.nan_payload));
    if (!same) {
      return testing::AssertionFailure()
             << "operand " << s << ": " << same.message();
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult run_against_reference(const KernelOnIsa& param,
                                               const ArgsSample& args,
                                               const KernelTiles& original,
                                               void* const* tiles,
                                               std::size_t first) {
  const KernelCase& kernel = *param.kernel;
  const std::size_t count = original.count();
  for (std::size_t s = 0; s < kernel.operands.size() && count != 0; ++s) {
    std::memcpy(tiles[s], original.operand(s), original.bytes(s));
  }
  KernelTiles expected = original;
  expected.flip_out();
  const KernelResult want = expected.run(kernel.reference, args, first);
  const KernelResult got =
      run_kernel(kernel, param.function(), args, tiles, count, first);
  const testing::AssertionResult same = same_result(got, want);
  if (!same) return same;
  return compare_written(kernel, args, tiles, expected, original);
}

testing::AssertionResult run_against_reference(const KernelOnIsa& param,
                                               const ArgsSample& args,
                                               const KernelTiles& original,
                                               std::size_t first) {
  KernelTiles actual = original;
  void* tiles[kMaxOperands] = {};
  for (std::size_t s = 0; s < param.kernel->operands.size(); ++s) {
    tiles[s] = actual.operand(s);
  }
  return run_against_reference(param, args, original, tiles, first);
}

}  // namespace swamp::test
