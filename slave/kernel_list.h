// The list of kernels as constants, generated from kernels.inc: the families,
// and the kernels with their ids. Master and tests include it; a kernel's
// source includes kernel_table.h instead, so that it does not depend on other
// families.
#ifndef SWAMP_SLAVE_KERNEL_LIST_H_
#define SWAMP_SLAVE_KERNEL_LIST_H_

#include "slave/attention_args.h"
#include "slave/convolution_args.h"
#include "slave/kernel_args.h"
#include "slave/kernel_table.h"
#include "slave/pointwise_args.h"
#include "slave/product_args.h"
#include "slave/quantize_args.h"
#include "slave/row_args.h"

namespace swamp {

// Kernels of one family compute the same with operands of different formats.
enum class KernelFamily : std::uint8_t {
#define SWAMP_FAMILY(name, ...) name,
#include "slave/kernels.inc"
#undef SWAMP_FAMILY
  count
};

namespace slave {

struct FamilyInfo {
  const char* name = "";
  std::uint32_t args_bytes = 0;
  const Formats* formats = nullptr;  // of its kernels
  int kernel_count = 0;
  TypedOperand operands[kMaxOperands] = {};  // formats may be placeholders
  int operand_count = 0;
  RowState state = {};
};

// OneOperand stands in kernels.inc for a family whose only operand, number 0,
// needs no name.
struct OneOperand {
  enum : int { count = 1 };
};

template <class Args, class Names, int kCount, int kOperands>
constexpr FamilyInfo family_info(
    const char* name, const Formats (&formats)[kCount], const RowState& state,
    const TypedOperand (&operands)[kOperands]) noexcept {
  static_assert(Names::count == kOperands, "names of other operands");
  FamilyInfo family;
  family.name = name;
  family.args_bytes = args_bytes_of<Args>();
  family.formats = formats;
  family.kernel_count = format_count(formats);
  family.state = state;
  for (const TypedOperand& operand : operands) {
    family.operands[family.operand_count++] = operand;
  }
  return family;
}

namespace placeholder {
constexpr std::uint8_t A = 0xf0, B = 0xf1, C = 0xf2, D = 0xf3;

// Indexed by KernelFamily.
inline constexpr FamilyInfo kFamilies[] = {
#define SWAMP_STREAMED_FAMILY(name, Args, formats, state, Names, ...) \
  family_info<Args, Names>(#name, formats, RowState state, {__VA_ARGS__}),
#define SWAMP_FAMILY(name, Args, formats, Names, ...) \
  family_info<Args, Names>(#name, formats, {}, {__VA_ARGS__}),
#include "slave/kernels.inc"
#undef SWAMP_FAMILY
};
}  // namespace placeholder
using placeholder::kFamilies;

constexpr const FamilyInfo& info_of(KernelFamily family) noexcept {
  return kFamilies[static_cast<int>(family)];
}

// formats_of() is the formats of kernel `index` of a family.
constexpr Formats formats_of(KernelFamily family, int index) noexcept {
  return info_of(family).formats[index];
}

constexpr KernelId kernel_count() noexcept {
  int count = 0;
  for (const FamilyInfo& family : kFamilies) count += family.kernel_count;
  return static_cast<KernelId>(count);
}
inline constexpr KernelId kKernelCount = kernel_count();

// with_formats() replaces the placeholders of a family's operand. The result
// has no bytes if the operand does not exist.
constexpr TypedOperand with_formats(TypedOperand operand,
                                    const Formats& formats) noexcept {
  const std::uint8_t all[] = {formats.a, formats.b, formats.c, formats.d};
  if (operand.type == kNoScalarType || operand.type < placeholder::A) {
    return operand;
  }
  const std::uint8_t format = all[operand.type - placeholder::A];
  const bool is_float = format < kScalarTypeCount;
  operand.type = is_float ? format : kNoScalarType;
  operand.bytes = is_float ? static_cast<std::uint8_t>(kScalarTypeBytes[format])
                  : format == kInt32 ? std::uint8_t{4}
                  : format == kInt64 ? std::uint8_t{8}
                                     : std::uint8_t{0};
  return operand;
}

constexpr KernelInfo kernel_info(KernelFamily family, int index,
                                 KernelId id) noexcept {
  const FamilyInfo& from = info_of(family);
  const Formats& formats = from.formats[index];
  KernelInfo info;
  info.id = id;
  info.family = family;
  info.args_bytes = from.args_bytes;
  info.state = from.state;
  for (int s = 0; s < from.operand_count; ++s) {
    const TypedOperand operand = with_formats(from.operands[s], formats);
    if (operand.bytes != 0) info.operands[info.operand_count++] = operand;
  }
  int at = 0;
  const auto append = [&](const char* text) {
    while (*text != 0) info.name[at++] = *text++;
  };
  append(from.name);
  for (const std::uint8_t format :
       {formats.a, formats.b, formats.c, formats.d}) {
    if (format == kNone) continue;
    append("_");
    append(format == kInt32   ? "int32"
           : format == kInt64 ? "int64"
                              : kFloatFormats[format].name);
  }
  return info;
}

struct KernelList {
  KernelInfo kernels[kKernelCount] = {};
  KernelId first[static_cast<int>(KernelFamily::count)] = {};
};

constexpr KernelList kernel_list() noexcept {
  KernelList list;
  KernelId id = 0;
  for (int f = 0; f < static_cast<int>(KernelFamily::count); ++f) {
    const auto family = static_cast<KernelFamily>(f);
    list.first[f] = id;
    for (int i = 0; i < info_of(family).kernel_count; ++i) {
      list.kernels[id] = kernel_info(family, i, id);
      ++id;
    }
  }
  return list;
}
inline constexpr KernelList kKernelList = kernel_list();

// Indexed by KernelId.
inline constexpr const KernelInfo (&kKernels)[kKernelCount] =
    kKernelList.kernels;

// kernel_of() returns the kernel of a family with these formats, which must
// exist.
constexpr KernelId kernel_of(KernelFamily family,
                             const Formats& formats) noexcept {
  int i = 0;
  while (!(formats_of(family, i) == formats)) ++i;
  return static_cast<KernelId>(kKernelList.first[static_cast<int>(family)] + i);
}

// KernelRows is the rows of a KernelTable.
struct KernelRows {
  KernelRow rows[kKernelCount] = {};
};

// kernel_rows() takes the tables that SWAMP_KERNELS() defines, one for each
// family.
constexpr KernelRows kernel_rows(const KernelFunction* const* families) {
  KernelRows result;
  for (const KernelInfo& kernel : kKernels) {
    const int family = static_cast<int>(kernel.family);
    result.rows[kernel.id] = {
        kernel.name,
        families[family] + (kernel.id - kKernelList.first[family])};
  }
  return result;
}

// KernelGroup is the kernels of a family that have the same number of operands.
struct KernelGroup {
  int operand_count = 0;
  int count = 0;
  KernelId ids[kMaxFormats] = {};
  // fits[s][type], bit i: operand s of kernel ids[i] is of `type`.
  std::uint32_t fits[kMaxOperands][kScalarTypeCount] = {};
  // The lowest bit of fits[0][type], or kNoKernel.
  static constexpr std::uint8_t kNoKernel = 0xff;
  std::uint8_t first_fit[kScalarTypeCount] = {};

  constexpr KernelGroup() noexcept {
    for (std::uint8_t& first : first_fit) first = kNoKernel;
  }
};

constexpr KernelGroup kernel_group(KernelFamily family, int operand_count) {
  KernelGroup group;
  group.operand_count = operand_count;
  for (const KernelInfo& kernel : kKernels) {
    if (kernel.family != family || kernel.operand_count != operand_count) {
      continue;
    }
    for (int s = 0; s < operand_count; ++s) {
      if (kernel.operands[s].type == kNoScalarType) continue;
      group.fits[s][kernel.operands[s].type] |= 1u << group.count;
    }
    if (kernel.operands[0].type != kNoScalarType) {
      std::uint8_t& first = group.first_fit[kernel.operands[0].type];
      if (first == KernelGroup::kNoKernel) {
        first = static_cast<std::uint8_t>(group.count);
      }
    }
    group.ids[group.count++] = kernel.id;
  }
  return group;
}

}  // namespace slave
}  // namespace swamp

#endif  // SWAMP_SLAVE_KERNEL_LIST_H_
