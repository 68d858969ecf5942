// Conversions to and from formats of at most 8 bits: validation, the codes that
// a policy chooses, and the launches.
#include "swamp/float8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "master/float8.h"
#include "master/row_launch.h"
#include "master/text.h"
#include "runtime/fork_cancel.h"

namespace swamp {

using master::Checker;
using master::RowTable;
using master::Workspace;

namespace {

// Bit mask of the formats that codes may have; elements of blocks must be
// signed.
constexpr std::uint32_t code_types(bool with_sign) {
  std::uint32_t types = 0;
  for (const FloatFormat& format : kFloatFormats) {
    const bool has_sign = format.specials != Specials::exponent;
    if (format.width <= 8 && (has_sign || !with_sign)) {
      types |= 1u << format.type;
    }
  }
  return types;
}

// require_pair() checks the values and their codes.
const FloatFormat& require_pair(const Tensor& x, const Tensor& codes) {
  const FloatFormat& format =
      master::require_code_format("codes.dtype", codes, false);
  master::require_row_array("x", x);
  master::require_whole_codes("x.count", x.count, format);
  master::require_codes("codes", codes, format, x.count, "x");
  return format;
}

bool is_cuda(CastPolicy policy) {
  return policy == CastPolicy::cuda || policy == CastPolicy::cuda_saturate;
}

bool is_saturating(const FloatFormat& format, CastPolicy policy) {
  return policy == CastPolicy::saturate ||
         policy == CastPolicy::cuda_saturate ||
         (policy == CastPolicy::torch && format.type == kFloat8E4M3FN);
}

// require_policy() throws unless the policy has a rule for the format.
void require_policy(const FloatFormat& format, CastPolicy policy) {
  constexpr const char* kNames[] = {"saturate", "overflow", "cuda_saturate",
                                    "cuda",     "torch",    "ml_dtypes"};
  const auto index = static_cast<unsigned>(policy);
  if (policy > CastPolicy::ml_dtypes) {
    master::refuse("options.policy", std::to_string(index),
                   "0 (saturate) to 5 (ml_dtypes)");
  }
  const Specials specials = format.specials;
  const bool has_rule =
      policy == CastPolicy::saturate || policy == CastPolicy::overflow ||
      (specials != Specials::tapered && specials != Specials::complement &&
       specials != (is_cuda(policy)               ? Specials::nan_zero
                    : policy == CastPolicy::torch ? Specials::none
                                                  : Specials::exponent));
  if (!has_rule) {
    master::refuse("options.policy", kNames[index],
                   std::string("a policy with a rule for ") + format.name,
                   SWAMP_UNSUPPORTED);
  }
}

// tapered_value() is the value of a HiFloat8 code without its sign. From the
// highest bit: the length of the exponent as a prefix code, its sign, exponent
// without the leading 1, mantissa.
float tapered_value(unsigned code) {
  if (code == 0) return 0;
  if (code == kFloatFormats[kHiFloat8].infinity()) {
    return std::numeric_limits<float>::infinity();
  }
  if (code < 8) return std::ldexp(1.0f, static_cast<int>(code) - 23);
  int width = 3, exponent = 0;  // width of the mantissa
  if (code >= 32) {
    const int length = static_cast<int>(code >> 5);  // 1 to 3
    width = 4 - length;
    exponent = 1 << length | static_cast<int>((code & 15) >> width);
    if ((code & 16) != 0) exponent = -exponent;
  } else if (code >= 16) {
    exponent = (code & 8) != 0 ? -1 : 1;
  }
  const unsigned mantissa = (code & ((1u << width) - 1)) | 1u << width;
  return std::ldexp(static_cast<float>(mantissa), exponent - width);
}

float value_of(const FloatFormat& format, unsigned code) {
  if (format.specials == Specials::exponent) return slave::e8m0_value(code);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto sign = static_cast<unsigned>(format.sign());
  const bool complement =
      format.specials == Specials::complement && code >= sign;
  const unsigned magnitude = complement ? 2 * sign - code : code & (sign - 1);
  const bool tapered = format.specials == Specials::tapered;
  const auto bits = static_cast<int>(format.mantissa_bits);
  if (code == sign && (tapered || format.specials == Specials::nan_zero)) {
    return kNan;
  }
  float value;
  if (tapered) {
    value = tapered_value(magnitude);
  } else if (format.specials != Specials::none &&
             format.specials != Specials::complement &&
             magnitude >= format.infinity()) {
    const bool infinite =
        format.has_infinity() && magnitude == format.infinity();
    value = infinite ? std::numeric_limits<float>::infinity() : kNan;
  } else {
    const int exponent = static_cast<int>(magnitude >> bits);
    unsigned mantissa = magnitude & ((1u << bits) - 1);
    if (exponent != 0) mantissa |= 1u << bits;
    value = std::ldexp(static_cast<float>(mantissa),
                       std::max(exponent, 1) - format.bias() - bits);
  }
  return (code & sign) != 0 ? -value : value;
}

}  // namespace

namespace master {

const FloatFormat& require_code_format(const std::string& name,
                                       const Tensor& codes, bool with_sign) {
  const std::uint32_t type = scalar_type_index(codes);
  const std::uint32_t types = code_types(with_sign);
  if (type >= kScalarTypeCount || (types >> type & 1u) == 0) {
    refuse_dtype(name, type, types);
  }
  return kFloatFormats[type];
}

void require_whole_codes(const std::string& name, std::size_t elements,
                         const FloatFormat& format) {
  if (elements % code_elements(format) == 0) return;
  refuse(name, std::to_string(elements),
         "an even number, as float4_e2m1fn_x2 has two in a byte");
}

void require_codes(const std::string& name, const Tensor& codes,
                   const FloatFormat& format, std::size_t elements,
                   const std::string& of) {
  const std::size_t each = code_elements(format);
  if (elements / each != codes.count) {
    refuse(name + ".count", std::to_string(codes.count),
           std::to_string(elements / each) +
               (each == 1 ? ", as in '" : ", half of the elements of '") + of +
               "'");
  }
  if (codes.count != 0 && codes.data == nullptr) {
    refuse(name + ".data", "null",
           "the address of " + std::to_string(codes.count) + " elements");
  }
}

void require_cast(const FloatFormat& format, Rounding rounding,
                  CastPolicy policy) {
  constexpr const char* kNames[] = {"nearest_even", "nearest_away",
                                    "stochastic", "up", "down"};
  const auto index = static_cast<unsigned>(rounding);
  if (rounding > Rounding::down) {
    refuse("options.rounding", std::to_string(index),
           "0 (nearest_even) to 4 (down)");
  }
  const bool is_exponent = format.specials == Specials::exponent;
  const bool has_only_away =
      is_exponent || format.specials == Specials::tapered;
  const bool is_directed =
      rounding == Rounding::up || rounding == Rounding::down;
  if (rounding != Rounding::nearest_away &&
      (is_directed ? !is_exponent : has_only_away)) {
    refuse("options.rounding", kNames[index],
           std::string(is_exponent     ? "nearest_away, up or down"
                       : has_only_away ? "nearest_away"
                                       : "nearest_even, nearest_away or "
                                         "stochastic") +
               " (the rounding of " + format.name + ")",
           SWAMP_UNSUPPORTED);
  }
  require_policy(format, policy);
}

slave::RoundingKey rounding_key(std::uint64_t seed) {
  const std::uint64_t key = slave::mixed(seed + slave::kMixStride);
  return {static_cast<std::uint32_t>(key),
          static_cast<std::uint32_t>(key >> 32)};
}

slave::QuantizeArgs cast_args(const FloatFormat& format, Rounding rounding,
                              CastPolicy policy, std::uint64_t seed) {
  const auto code = [](std::uint64_t bits) {
    return static_cast<std::uint32_t>(bits);
  };
  const std::uint32_t sign = code(format.sign());
  const std::uint32_t largest = code(format.largest());
  slave::QuantizeArgs args = {};
  args.scale = 1;
  args.mantissa_bits = format.mantissa_bits;
  args.least_exponent = static_cast<std::uint32_t>(128 - format.bias());
  // Of a format without a sign, the bit above a byte, which is not stored.
  args.sign = format.width - (format.specials == Specials::exponent ? 0 : 1);
  args.largest = largest;
  args.negative_zero = sign;
  args.rounding = static_cast<std::uint32_t>(rounding);
  args.tapered = format.specials == Specials::tapered ? 1 : 0;
  args.elements = static_cast<std::uint32_t>(code_elements(format));
  args.key = rounding_key(seed);
  const bool saturate = is_saturating(format, policy);
  args.infinity = args.overflow = saturate ? largest : code(format.infinity());
  switch (format.specials) {
    case Specials::ieee:
    case Specials::nan:
      args.nan = sign - 1;
      if (policy == CastPolicy::ml_dtypes &&
          format.specials == Specials::ieee) {
        args.nan = code(format.quiet_nan());
      }
      args.negative_nan = is_cuda(policy) ? args.nan : args.nan | sign;
      break;
    case Specials::nan_zero:
    case Specials::tapered:
      args.nan = args.negative_nan = sign;
      args.negative_zero = 0;
      args.infinity = code(format.infinity());  // not saturated
      break;
    case Specials::exponent:
      args.nan = args.negative_nan = code(format.infinity());
      break;
    case Specials::complement:
      args.infinity = args.overflow = largest;
      args.negative_zero = 0;  // and nan is 0
      args.complement = 1;
      break;
    case Specials::none:
      args.infinity = args.overflow = largest;
      args.nan = args.negative_nan = largest;
      if (policy == CastPolicy::ml_dtypes) {
        args.nan = sign;
        args.negative_nan = 0;
      }
      break;
  }
  if (format.specials == Specials::exponent) return args;  // no values
  const std::array<float, 256>& all = code_values(format);
  args.largest_bits = float_to_bits(all[largest]);
  const auto set = [&](float* of_code, std::uint32_t magnitude) {
    of_code[0] = all[magnitude];
    of_code[1] = all[magnitude == 0         ? args.negative_zero
                     : args.complement != 0 ? 256 - magnitude
                                            : magnitude | sign];
  };
  set(args.overflow_values, args.overflow);
  set(args.infinity_values, args.infinity);
  args.nan_values[0] = all[args.nan];
  args.nan_values[1] = all[args.negative_nan];
  return args;
}

void require_values(const char* name, ScalarType dtype) {
  Checker(name).dtype(dtype, 1u << kBFloat16 | 1u << kFloat32);
}

void set_values(slave::QuantizeArgs& args, ScalarType values) {
  args.form =
      values == kFloat32 ? slave::CodeForm::float32 : slave::CodeForm::bfloat16;
  args.elements = 1;
}

slave::DequantizeArgs decoding_args(const FloatFormat& format) {
  const slave::QuantizeArgs of_format =
      cast_args(format, Rounding::nearest_even, CastPolicy::saturate, 0);
  const Specials specials = format.specials;
  const bool is_tapered = specials == Specials::tapered;
  // The code of -0 is nan.
  const bool has_nan_zero = is_tapered || specials == Specials::nan_zero;
  return {1,
          of_format.elements,
          of_format.mantissa_bits,
          of_format.least_exponent,
          of_format.sign,
          is_tapered ? 0 : of_format.largest,
          specials == Specials::exponent ? 0  // 2^-127 is subnormal
          : has_nan_zero                 ? 1u << of_format.sign
                                         : slave::kBeyond,
          of_format.complement};
}

const std::array<float, 256>& code_values(const FloatFormat& format) {
  using Tables = std::array<std::array<float, 256>, kScalarTypeCount>;
  static runtime::MadeOnce<const Tables> tables;
  return tables.get([] {
    Tables all{};
    for (const FloatFormat& one : kFloatFormats) {
      if ((code_types(false) >> one.type & 1u) == 0) continue;
      for (unsigned code = 0; code < 256; ++code) {
        all[one.type][code] = value_of(one, code);
      }
    }
    return all;
  })[format.type];
}

}  // namespace master

namespace {

// run_quantize() writes codes, or, of float types, their values.
QuantizeReport run_quantize(const Tensor& x, const FloatFormat& format,
                            const Tensor& out, const QuantizeOptions& options,
                            Machine* machine) {
  if (!(options.scale > 0) || std::isinf(options.scale)) {
    master::refuse("options.scale",
                   master::number_text(static_cast<double>(options.scale)),
                   "a finite number larger than 0");
  }
  master::require_cast(format, options.rounding, options.policy);
  Machine::Impl& impl = master::impl_of(machine);
  if (x.count == 0) return {};
  slave::QuantizeArgs args =
      master::cast_args(format, options.rounding, options.policy, options.seed);
  args.scale = options.scale;
  if (out.dtype != format.type) master::set_values(args, out.dtype);
  Operation operation(master::row_kernel<KernelFamily::quantize>(x.dtype),
                      &args, args.elements);
  operation.set_unit_bytes(slave::QuantizeOperand::codes,
                           kScalarTypeBytes[out.dtype]);
  if (options.random == nullptr || options.rounding != Rounding::stochastic) {
    operation.remove_operand(slave::QuantizeOperand::random);
  }
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operation, 1, false, master::row_grains(1),
                 workspace.segments());
  table.add(out.count, {x.data, out.data, options.random});
  workspace.run(impl, table.list(), sizeof(slave::QuantizePartial));
  slave::QuantizePartial total = {};
  workspace.for_each_partial<slave::QuantizePartial>(
      table.list(), [&](std::size_t, const slave::QuantizePartial& partial) {
        total.join(partial);
      });
  return {float_from_bits(total.amax), total.saturated, total.flushed,
          total.nan_count};
}

}  // namespace

QuantizeReport quantize(const Tensor& x, const Tensor& codes,
                        const QuantizeOptions& options, Machine* machine) {
  return run_quantize(x, require_pair(x, codes), codes, options, machine);
}

QuantizeReport quantized_values(const Tensor& x, ScalarType format,
                                const Tensor& values,
                                const QuantizeOptions& options,
                                Machine* machine) {
  const FloatFormat& to =
      master::require_code_format("format", {nullptr, 0, format});
  master::require_row_array("x", x);
  master::require_values("values", values.dtype);
  master::require_row_array("values", values);
  Checker("values").same("count", values.count, x.count, "x");
  return run_quantize(x, to, values, options, machine);
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
  const std::array<float, 256>& values = master::code_values(format);
  slave::DequantizeArgs args = master::decoding_args(format);
  args.scale = scale;
  Operation operation(master::row_kernel<KernelFamily::dequantize>(x.dtype),
                      &args, args.elements);
  operation.set_unit_bytes(slave::DequantizeOperand::values, sizeof values);
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operation, 1, false, master::row_grains(1),
                 workspace.segments());
  table.add(codes.count, {x.data, codes.data, values.data()});
  workspace.run(impl, table.list());
}

float code_to_float(ScalarType type, std::uint8_t code) {
  return master::code_values(
      master::require_code_format("format", {nullptr, 0, type}, false))[code];
}

float amax(const Tensor& x, bool skip_nan, Machine* machine) {
  master::require_row_array("x", x);
  Machine::Impl& impl = master::impl_of(machine);
  if (x.count == 0) return 0;
  const slave::AmaxArgs args;
  const Operation operation(master::row_kernel<KernelFamily::amax>(x.dtype),
                            &args);
  Workspace& workspace = Workspace::of_this_thread();
  RowTable table(operation, 1, false, master::row_grains(1),
                 workspace.segments());
  table.add(x.count, {x.data});
  workspace.run(impl, table.list(), sizeof(slave::AmaxPartial));
  slave::AmaxPartial total = {};
  workspace.for_each_partial<slave::AmaxPartial>(
      table.list(), [&](std::size_t, const slave::AmaxPartial& partial) {
        total.join(partial);
      });
  return float_from_bits(skip_nan ? total.bits : total.with_nan);
}

}  // namespace swamp
