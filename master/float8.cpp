// Conversions to and from formats of at most 8 bits: validation, the codes that
// a policy chooses, and the launches.
#include "swamp/float8.h"

#include <cmath>
#include <limits>
#include <string>

#include "master/row_launch.h"
#include "master/text.h"
#include "slave/quantize_args.h"

namespace swamp {

using master::RowTable;
using master::Workspace;

namespace {

// The formats of codes, as bits of refuse_dtype().
constexpr std::uint32_t code_types() {
  std::uint32_t types = 0;
  for (const FloatFormat& format : kFloatFormats) {
    if (format.width <= 8) types |= 1u << format.type;
  }
  return types;
}

// elements_of() is the number of elements of a code.
constexpr std::size_t elements_of(const FloatFormat& format) {
  return 8 * format.bytes / (format.width < 5 ? 4 : 8);
}

// require_pair() checks the values and their codes.
const FloatFormat& require_pair(const Tensor& x, const Tensor& codes) {
  const std::uint32_t type = master::scalar_type_index(codes);
  if (type >= kScalarTypeCount || (code_types() >> type & 1u) == 0) {
    master::refuse_dtype("codes.dtype", type, code_types());
  }
  const FloatFormat& format = kFloatFormats[type];
  master::require_row_dtype("x", x.dtype);
  const std::size_t elements = elements_of(format);
  if (x.count / elements != codes.count || x.count % elements != 0) {
    master::refuse("codes.count", std::to_string(codes.count),
                   elements == 1
                       ? std::to_string(x.count) + ", as in 'x'"
                       : "half of x.count, " + std::to_string(x.count));
  }
  master::require_matrix("x", {x.data, x.count, 1, x.dtype});
  if (codes.count != 0 && codes.data == nullptr) {
    master::refuse(
        "codes.data", "null",
        "the address of " + std::to_string(codes.count) + " elements");
  }
  return format;
}

bool is_saturating(const FloatFormat& format, CastPolicy policy) {
  return policy == CastPolicy::saturate ||
         policy == CastPolicy::cuda_saturate ||
         (policy == CastPolicy::torch && format.type == kFloat8E4M3FN);
}

// require_policy() throws unless the policy has a rule for the format.
void require_policy(const FloatFormat& format, CastPolicy policy) {
  const char* name = nullptr;
  const Specials specials = format.specials;
  switch (policy) {
    case CastPolicy::saturate:
    case CastPolicy::overflow:
      return;
    case CastPolicy::cuda_saturate:
    case CastPolicy::cuda:
      if (specials == Specials::nan_zero || specials == Specials::tapered) {
        name = policy == CastPolicy::cuda ? "cuda" : "cuda_saturate";
      }
      break;
    case CastPolicy::torch:
      if (specials == Specials::none || specials == Specials::tapered) {
        name = "torch";
      }
      break;
    case CastPolicy::ml_dtypes:
      if (specials == Specials::tapered) name = "ml_dtypes";
      break;
    default:
      master::refuse("options.policy",
                     std::to_string(static_cast<unsigned>(policy)),
                     "0 (saturate) to 5 (ml_dtypes)");
  }
  if (name != nullptr) {
    master::refuse("options.policy", name,
                   std::string("a policy with a rule for ") + format.name,
                   SWAMP_UNSUPPORTED);
  }
}

void require_options(const FloatFormat& format,
                     const QuantizeOptions& options) {
  if (!(options.scale > 0) || std::isinf(options.scale)) {
    master::refuse("options.scale",
                   master::number_text(static_cast<double>(options.scale)),
                   "a finite number larger than 0");
  }
  if (options.rounding > Rounding::stochastic) {
    master::refuse("options.rounding",
                   std::to_string(static_cast<unsigned>(options.rounding)),
                   "0 (nearest_even), 1 (nearest_away) or 2 (stochastic)");
  }
  if (format.specials == Specials::tapered &&
      options.rounding != Rounding::nearest_away) {
    master::refuse("options.rounding",
                   options.rounding == Rounding::stochastic ? "stochastic"
                                                            : "nearest_even",
                   "nearest_away (the rounding of hifloat8)",
                   SWAMP_UNSUPPORTED);
  }
  require_policy(format, options.policy);
}

slave::QuantizeArgs arguments(const FloatFormat& format,
                              const QuantizeOptions& options) {
  const auto code = [](std::uint64_t bits) {
    return static_cast<std::uint32_t>(bits);
  };
  const std::uint32_t sign = code(format.sign());
  const CastPolicy policy = options.policy;
  const bool saturate = is_saturating(format, policy);
  const bool is_cuda =
      policy == CastPolicy::cuda || policy == CastPolicy::cuda_saturate;
  slave::QuantizeArgs args = {};
  args.scale = options.scale;
  args.mantissa_bits = format.mantissa_bits;
  args.sign = format.width - 1;
  args.largest = code(format.largest());
  args.negative_zero = sign;
  args.rounding = static_cast<std::uint32_t>(options.rounding);
  args.elements = static_cast<std::uint32_t>(elements_of(format));
  const std::uint64_t key = slave::mixed(options.seed + slave::kMixStride);
  args.key = {code(key), static_cast<std::uint32_t>(key >> 32)};
  std::uint32_t infinity = args.largest;  // the format's, or what it has
  switch (format.specials) {
    case Specials::ieee:
    case Specials::nan:
      infinity = code(format.infinity());
      args.nan = sign - 1;
      if (policy == CastPolicy::ml_dtypes &&
          format.specials == Specials::ieee) {
        args.nan = code(format.quiet_nan());
      }
      args.negative_nan = is_cuda ? args.nan : args.nan | sign;
      break;
    case Specials::nan_zero:
      args.nan = args.negative_nan = infinity = sign;
      args.negative_zero = 0;
      break;
    case Specials::none:
      args.nan = args.negative_nan = args.largest;
      if (policy == CastPolicy::ml_dtypes) {
        args.nan = sign;
        args.negative_nan = 0;
      }
      break;
    case Specials::tapered:
      args.tapered = 1;
      args.largest = 0x6e;
      infinity = 0x6f;
      args.nan = args.negative_nan = sign;
      args.negative_zero = 0;
      break;
  }
  args.overflow = saturate ? args.largest : infinity;
  // fnuz and HiFloat8 do not saturate infinity.
  const bool keeps_infinity = args.negative_zero == 0;
  args.infinity = saturate && !keeps_infinity ? args.largest : infinity;
  if (args.tapered == 0) {
    args.least_exponent = static_cast<std::uint32_t>(128 - format.bias());
  } else {
    args.largest = slave::kBeyond - 1;
  }
  return args;
}

}  // namespace

QuantizeReport quantize(const Tensor& x, const Tensor& codes,
                        const QuantizeOptions& options, Machine* machine) {
  const FloatFormat& format = require_pair(x, codes);
  require_options(format, options);
  Machine::Impl& impl = master::impl_of(machine);
  if (x.count == 0) return {};
  const slave::QuantizeArgs args = arguments(format, options);
  Operation operation(master::row_kernel<KernelFamily::quantize, 3>(x.dtype),
                      &args, args.elements);
  if (options.random == nullptr || options.rounding != Rounding::stochastic) {
    operation.remove_operand(2);
  }
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operation, 1, false, master::row_grains(1),
                 workspace.segments());
  table.add(codes.count, {x.data, codes.data, options.random});
  workspace.run(impl, table.list(), sizeof(slave::QuantizePartial));
  slave::QuantizePartial total = {};
  workspace.for_each_partial<slave::QuantizePartial>(
      table.list(), [&](std::size_t, const slave::QuantizePartial& partial) {
        total.join(partial);
      });
  return {float_from_bits(total.amax), total.saturated, total.flushed,
          total.nan_count};
}

void dequantize(const Tensor& codes, const Tensor& x, float scale,
                Machine* machine) {
  const FloatFormat& format = require_pair(x, codes);
  if (!std::isfinite(scale)) {
    master::refuse("scale", master::number_text(static_cast<double>(scale)),
                   "a finite number");
  }
  Machine::Impl& impl = master::impl_of(machine);
  if (x.count == 0) return;
  float values[256];
  for (unsigned code = 0; code < 256; ++code) {
    values[code] = code_to_float(format.type, static_cast<std::uint8_t>(code));
  }
  const slave::QuantizeArgs of_format = arguments(format, {});
  const slave::DequantizeArgs args{
      scale,
      of_format.elements,
      of_format.mantissa_bits,
      of_format.least_exponent,
      of_format.sign,
      format.specials == Specials::tapered ? 0 : of_format.largest,
      of_format.negative_zero == 0 ? 1u : 0u};
  Operation operation(master::row_kernel<KernelFamily::dequantize, 3>(x.dtype),
                      &args, args.elements);
  operation.set_unit_bytes(2, sizeof values);
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operation, 1, false, master::row_grains(1),
                 workspace.segments());
  table.add(codes.count, {x.data, codes.data, values});
  workspace.run(impl, table.list());
}

float code_to_float(ScalarType type, std::uint8_t code) {
  const std::uint32_t index = master::scalar_type_index({nullptr, 0, type});
  if (index >= kScalarTypeCount || (code_types() >> index & 1u) == 0) {
    master::refuse_dtype("format", index, code_types());
  }
  const FloatFormat& format = kFloatFormats[index];
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto sign = static_cast<unsigned>(format.sign());
  const unsigned magnitude = code & (sign - 1);
  const bool negative = (code & sign) != 0;
  const auto bits = static_cast<int>(format.mantissa_bits);
  float value = 0;
  switch (format.specials) {
    case Specials::ieee:
      if (magnitude > format.infinity()) return negative ? -kNan : kNan;
      if (magnitude == format.infinity())
        return negative ? -kInfinity : kInfinity;
      break;
    case Specials::nan:
      if (magnitude == format.infinity()) return negative ? -kNan : kNan;
      break;
    case Specials::nan_zero:
    case Specials::tapered:
      if (code == sign) return kNan;
      break;
    case Specials::none:
      break;
  }
  if (format.specials == Specials::tapered) {
    // From the highest bit: sign, the length of the exponent as a prefix code,
    // its sign, exponent without the leading 1, mantissa.
    int width = 3, exponent = 0;
    if (magnitude == 0x6f) return negative ? -kInfinity : kInfinity;
    if (magnitude < 8) {
      exponent = static_cast<int>(magnitude) - 23;
      value = magnitude == 0 ? 0.0f : std::ldexp(1.0f, exponent);
    } else {
      if (magnitude >= 32) {
        const int length = static_cast<int>(magnitude >> 5);  // 1 to 3
        width = 4 - length;
        exponent = 1 << length | static_cast<int>((magnitude & 15) >> width);
        if ((magnitude & 16) != 0) exponent = -exponent;
      } else if (magnitude >= 16) {
        exponent = (magnitude & 8) != 0 ? -1 : 1;
      }
      const unsigned mantissa = magnitude & ((1u << width) - 1);
      value = std::ldexp(static_cast<float>(mantissa | 1u << width),
                         exponent - width);
    }
  } else {
    const int exponent = static_cast<int>(magnitude >> bits);
    const unsigned mantissa = magnitude & ((1u << bits) - 1);
    value =
        exponent == 0
            ? std::ldexp(static_cast<float>(mantissa), 1 - format.bias() - bits)
            : std::ldexp(static_cast<float>(mantissa | 1u << bits),
                         exponent - format.bias() - bits);
  }
  return negative ? -value : value;
}

}  // namespace swamp
