// The reference of slave/quantize.cpp: by the values of the codes, in double,
// without the bits of a format.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "slave/kernel_list.h"
#include "slave/quantize_args.h"
#include "slave/reference.h"

namespace swamp::slave::reference {
namespace {

using namespace element;

// Number is a code without its sign, and its value.
struct Number {
  double value;
  std::uint32_t code;
};

// Returns the numbers of a format in the order of their values, and the one
// that would be next.
std::vector<Number> numbers_of(const QuantizeArgs& args) {
  std::vector<Number> numbers;
  if (args.tapered != 0) {
    // dot: exponent bits and mantissa bits by the prefix of the code.
    numbers.push_back({0, 0});
    for (std::uint32_t c = 1; c < 8; ++c) {
      numbers.push_back({std::ldexp(1.0, static_cast<int>(c) - 23), c});
    }
    for (std::uint32_t c = 8; c < 0x80; ++c) {
      const int dot = c < 16 ? 0 : c < 32 ? 1 : static_cast<int>(c >> 5) + 1;
      const int mantissa_bits = dot < 3 ? 3 : dot == 3 ? 2 : 1;
      const std::uint32_t rest = c & (dot < 2 ? 7 : 15);
      int exponent = dot == 0 ? 0 : 1 << (dot - 1);
      if (dot > 1) exponent |= static_cast<int>(rest >> mantissa_bits);
      const bool negative = dot == 1 ? (c & 8) != 0 : dot > 1 && (c & 16) != 0;
      const double fraction =
          std::ldexp(static_cast<double>(rest & ((1u << mantissa_bits) - 1)),
                     -mantissa_bits);
      numbers.push_back(
          {std::ldexp(1 + fraction, negative ? -exponent : exponent), c});
    }
  } else if (args.mantissa_bits == 0) {  // powers of two
    for (std::uint32_t c = 0; c <= args.largest + 1; ++c) {
      numbers.push_back({std::ldexp(1.0, static_cast<int>(c) - 127), c});
    }
  } else {
    const int bits = static_cast<int>(args.mantissa_bits);
    for (std::uint32_t c = 0; c <= args.largest + 1; ++c) {
      const int exponent = static_cast<int>(c >> bits);
      const double mantissa = c & ((1u << bits) - 1);
      const int least = static_cast<int>(args.least_exponent) - 127;
      numbers.push_back({exponent == 0
                             ? std::ldexp(mantissa, least - bits)
                             : std::ldexp(mantissa + (1 << bits),
                                          exponent - 1 + least - bits),
                         c});
    }
  }
  std::sort(numbers.begin(), numbers.end(),
            [](const Number& a, const Number& b) { return a.value < b.value; });
  return numbers;
}

// rounded() returns the index of the number that |v| becomes.
std::size_t rounded(const QuantizeArgs& args,
                    const std::vector<Number>& numbers, float v,
                    std::uint32_t random) {
  const auto floor_of = [&](double y) {
    std::size_t i = 0;
    while (i + 1 < numbers.size() && numbers[i + 1].value <= y) ++i;
    return i;
  };
  const double y = static_cast<double>(v);
  const std::size_t i = floor_of(y);
  if (i + 1 == numbers.size()) return i;
  const double low = numbers[i].value, high = numbers[i + 1].value;
  if (args.rounding == kStochastic && args.tapered == 0) {
    const auto step = static_cast<float>(high - low);
    const float part = static_cast<float>(random) / 256;
    return floor_of(static_cast<double>(std::fma(part, step, v)));
  }
  const double middle = (low + high) / 2;
  if (args.mantissa_bits == 0) {
    const bool up = args.rounding == kUp || i == 0 ? y > low : y >= middle;
    return up && args.rounding != kDown ? i + 1 : i;
  }
  if (args.tapered != 0) {
    // The lower neighbour gives the width of the mantissa.
    if (i == 0) return y >= high / 2 ? 1 : 0;
    return y >= middle ? i + 1 : i;
  }
  const bool even = args.rounding == kNearestEven && numbers[i].code % 2 == 0;
  return y > middle || (y == middle && !even) ? i + 1 : i;
}

// code_of() returns the code of v with the sign of x.
std::uint32_t code_of(const QuantizeArgs& args,
                      const std::vector<Number>& numbers, float x, float v,
                      std::uint32_t random) {
  const bool negative = std::signbit(x);
  if (std::isnan(v)) return negative ? args.negative_nan : args.nan;
  const std::size_t at = rounded(args, numbers, std::abs(v), random);
  std::uint32_t code = numbers[at].code;
  // HiFloat8's 6f is infinity; 3 * 2^14 is beyond the largest number.
  const std::uint32_t largest = args.tapered != 0 ? 0x6e : args.largest;
  double largest_value = 0;
  for (const Number& number : numbers) {
    if (number.code == largest) largest_value = number.value;
  }
  if (std::isinf(v)) {
    code = args.infinity;
  } else if (numbers[at].value > largest_value) {
    code = args.overflow;
  }
  if (!negative) return code;
  if (args.complement != 0 && code != 0) return 256 - code;
  return code == 0 ? args.negative_zero : code | 1u << args.sign;
}

// value_of() returns the value of a code that code_of() returned.
float value_of(const QuantizeArgs& args, const std::vector<Number>& numbers,
               std::uint32_t code) {
  if (code == args.nan) return args.nan_values[0];
  if (code == args.negative_nan) return args.nan_values[1];
  const std::uint32_t sign = 1u << args.sign;
  const bool negative = (code & sign) != 0;
  if (negative) code = args.complement != 0 ? 256 - code : code - sign;
  const std::uint32_t largest = args.tapered != 0 ? 0x6e : args.largest;
  if (code == args.infinity && code != largest) {
    return args.infinity_values[negative];
  }
  if (code == args.overflow && code != largest) {
    return args.overflow_values[negative];
  }
  const auto found =
      std::find_if(numbers.begin(), numbers.end(),
                   [&](const Number& one) { return one.code == code; });
  const auto value = static_cast<float>(found->value);
  return negative ? -value : value;
}

// put_value() writes element i of a row of values.
void put_value(const QuantizeArgs& args, std::uint8_t* values, std::size_t i,
               float value) {
  const std::uint32_t bits = float_to_bits(value);
  if (args.form == CodeForm::float32) {
    std::memcpy(values + 4 * i, &bits, 4);
  } else {
    const auto half = static_cast<std::uint16_t>(bits >> 16);
    std::memcpy(values + 2 * i, &half, 2);
  }
}

// put_code() writes the code of element i of a row, or its value times `scale`.
void put_code(const QuantizeArgs& args, const std::vector<Number>& numbers,
              std::uint8_t* codes, std::size_t i, std::uint32_t code,
              float scale = 1) {
  if (args.form != CodeForm::code) {
    put_value(args, codes, i,
              scaled_value(value_of(args, numbers, code), scale));
  } else if (args.elements == 1) {
    codes[i] = static_cast<std::uint8_t>(code);
  } else if (i % 2 == 0) {
    codes[i / 2] = static_cast<std::uint8_t>(code);
  } else {
    codes[i / 2] = static_cast<std::uint8_t>(codes[i / 2] | code << 4);
  }
}

template <class Format>
void quantize(const void* arguments, const Tile& tile, Result&) {
  using At = QuantizeOperand;
  const auto& args = *static_cast<const QuantizeArgs*>(arguments);
  const auto* x =
      static_cast<const typename Format::Element*>(tile.operands[At::x]);
  auto* codes = static_cast<std::uint8_t*>(tile.operands[At::codes]);
  const auto* bytes =
      static_cast<const std::uint8_t*>(tile.operands[At::random]);
  const std::vector<Number> numbers = numbers_of(args);
  // HiFloat8's 6f is infinity; 3 * 2^14 is beyond the largest number.
  const std::uint32_t largest = args.tapered != 0 ? 0x6e : args.largest;
  double largest_value = 0;
  for (const Number& number : numbers) {
    if (number.code == largest) largest_value = number.value;
  }
  QuantizePartial partial = {};
  for (std::size_t i = 0; i < tile.count * args.elements; ++i) {
    const float wide = Format::widen(x[i]);
    const float v = wide * args.scale;
    const std::uint32_t random =
        bytes != nullptr
            ? bytes[i]
            : rounding_bits(args.key, tile.first * args.elements + i).weight >>
                  8;
    const std::uint32_t code = code_of(args, numbers, wide, v, random);
    put_code(args, numbers, codes, i, code);
    if (std::isnan(wide)) {
      ++partial.nan_count;
      continue;
    }
    partial.amax = std::max(partial.amax, float_to_bits(std::abs(wide)));
    const std::size_t at = rounded(args, numbers, std::abs(v), random);
    if (std::isinf(v) || numbers[at].value > largest_value) {
      ++partial.saturated;
    } else if (numbers[at].value == 0 && float_to_bits(wide) << 1 != 0) {
      ++partial.flushed;
    }
  }
  static_cast<QuantizePartial*>(tile.partial)->join(partial);
}

template <class Format>
void dequantize(const void* arguments, const Tile& tile, Result&) {
  using At = DequantizeOperand;
  const auto& args = *static_cast<const DequantizeArgs*>(arguments);
  const auto* codes =
      static_cast<const std::uint8_t*>(tile.operands[At::codes]);
  const auto* values = static_cast<const float*>(tile.operands[At::values]);
  auto* x = static_cast<typename Format::Element*>(tile.operands[At::x]);
  for (std::size_t i = 0; i < tile.count * args.elements; ++i) {
    std::uint32_t code = codes[i / args.elements];
    if (args.elements == 2) code = i % 2 == 0 ? code & 15 : code >> 4;
    x[i] = Format::narrow(values[code] * args.scale);
  }
}

// Cells is a matrix whose blocks lie in rows: x, or its transpose.
struct Cells {
  std::vector<float> values;
  std::vector<std::size_t> indices;  // of the random bits
  std::vector<std::uint32_t> bytes;
  std::size_t rows, columns;
};

// put_scale() stores scale i of a row.
void put_scale(const BlockArgs& args, std::uint8_t* scales, std::size_t i,
               std::uint32_t bits) {
  if (args.scale_bytes == 1) {
    scales[i] = static_cast<std::uint8_t>(bits);
  } else {
    std::memcpy(scales + 4 * i, &bits, 4);
  }
}

// Where the codes and scales of cells are. Values of columns are not
// transposed: element (i, j) is element i of line j.
struct CellOutput {
  const Operand &code_layout, &scale_layout;
  std::uint8_t *codes, *scales;
  bool by_column;
  float tensor_scale;
};

// stored_scale() returns the value of a stored scale.
float stored_scale(const BlockArgs& args, const BlockScale& scale) {
  const std::uint32_t bits = scale.bits;
  if (args.rule == BlockRule::given) {
    return args.divides != 0 ? 1 / scale.factor : 1;
  }
  if (args.scale_bytes == 4) return float_from_bits(bits);
  return args.rule == BlockRule::te_nvfp4 ||
                 args.rule == BlockRule::torchao_nvfp4
             ? e4m3_value(bits)
             : e8m0_value(bits);
}

// quantize_cells() returns the bits of the largest amax.
std::uint32_t quantize_cells(const BlockArgs& args, const RoundingKey& key,
                             bool given, const Cells& cells,
                             const CellOutput& out, ValuePartial& partial) {
  const std::vector<Number> numbers = numbers_of(args.code);
  const bool is_given = args.rule == BlockRule::given;
  const bool has_values = args.code.form != CodeForm::code;
  // Given factors are of whole rows and columns.
  const std::size_t block =
      is_given ? std::max<std::size_t>(cells.columns, 1) : args.block;
  std::uint32_t most = 0;
  const std::size_t height = args.square != 0 ? block : 1;
  for (std::size_t r = 0; r < cells.rows; r += height) {
    for (std::size_t c = 0; c < cells.columns; c += block) {
      const std::size_t end_row = std::min(r + height, cells.rows);
      const std::size_t end = std::min(c + block, cells.columns);
      float amax = 0;
      for (std::size_t i = r; i < end_row; ++i) {
        for (std::size_t j = c; j < end; ++j) {
          const float x = std::abs(cells.values[i * cells.columns + j]);
          if (std::isnan(x) && !is_given) partial.has_nan = 1;
          if (std::isnan(x) ? args.skips_nan == 0
                            : !std::isnan(amax) && x > amax) {
            amax = x;
          }
        }
      }
      most = std::max(most, float_to_bits(amax) & 0x7fffffff);
      BlockScale scale = block_scale(args, out.tensor_scale, amax);
      if (is_given) {
        std::memcpy(
            &scale.factor,
            out.scales +
                (out.by_column ? 4 * r : r * out.scale_layout.line_step),
            4);
      }
      for (std::size_t i = r; i < end_row; ++i) {
        if (out.scales != nullptr && !is_given &&
            (args.repeats != 0 || i == r)) {
          const std::size_t row = args.repeats != 0 ? i : i / height;
          put_scale(args, out.scales + row * out.scale_layout.line_step,
                    c / block, scale.bits);
        }
        if (out.codes == nullptr) continue;
        for (std::size_t j = c; j < end; ++j) {
          const std::size_t at = i * cells.columns + j;
          const std::uint32_t random =
              given ? cells.bytes[at]
                    : rounding_bits(key, cells.indices[at]).weight >> 8;
          float v = cells.values[at] * scale.factor;
          if (args.rule == BlockRule::microxcaling &&
              args.code.rounding != kStochastic) {
            // floor(v + 1/2) of the original, of a v below the smallest number.
            const auto smallest = static_cast<float>(numbers[1].value);
            const float places = std::abs(v) / smallest;
            if (places < 0.5f && places + 0.5f >= 1) v = smallest;
          }
          const float x = cells.values[at];
          const std::uint32_t code = code_of(args.code, numbers, x, v, random);
          if (!has_values) {
            put_code(args.code, numbers,
                     out.codes + i * out.code_layout.line_step, j, code);
            continue;
          }
          const float value = scaled_value(value_of(args.code, numbers, code),
                                           stored_scale(args, scale));
          put_value(
              args.code,
              out.codes + (out.by_column ? j : i) * out.code_layout.line_step,
              out.by_column ? i : j, value);
          partial.wide |= (float_to_bits(value) & 0xffff) != 0 ? 1 : 0;
          if (std::isnan(x) || x == 0) continue;
          if (std::isnan(v)) {  // a factor that is nan, or inf * 0
            ++partial.saturated;
            continue;
          }
          const double rounded_value =
              numbers[rounded(args.code, numbers, std::abs(v), random)].value;
          if (std::isinf(v) ||
              rounded_value > static_cast<double>(
                                  float_from_bits(args.code.largest_bits))) {
            ++partial.saturated;
          } else if (rounded_value == 0) {
            ++partial.flushed;
          }
        }
      }
    }
  }
  return most;
}

template <class Format>
void quantize_blocks(const void* arguments, const Tile& tile, Result&) {
  using At = BlockOperand;
  using Element = typename Format::Element;
  const auto& args = *static_cast<const BlockArgs*>(arguments);
  ValuePartial partial = {};
  for (std::size_t u = 0; u < tile.count; ++u) {
    const std::size_t first = (tile.first + u) * args.stripe_rows;
    // Line r of this unit of operand s.
    const auto line = [&](int s, std::size_t r) {
      return static_cast<std::uint8_t*>(tile.operands[s]) +
             u * tile.layout[s].unit_step + r * tile.layout[s].line_step;
    };
    const bool given = tile.operands[At::random] != nullptr;
    Cells cells{{},
                {},
                {},
                std::min<std::size_t>(args.stripe_rows, args.rows - first),
                args.columns};
    for (std::size_t r = 0; r < cells.rows; ++r) {
      const auto* x = reinterpret_cast<const Element*>(line(At::x, r));
      for (std::size_t c = 0; c < cells.columns; ++c) {
        cells.values.push_back(Format::widen(x[c]));
        cells.indices.push_back((first + r) * args.index_step + c +
                                args.first_index);
        cells.bytes.push_back(given ? line(At::random, r)[c] : 0);
      }
    }
    const auto output = [&](int codes, int scales, bool by_column) {
      const auto begin = [&](int s) {
        return tile.operands[s] == nullptr ? nullptr : line(s, 0);
      };
      return CellOutput{tile.layout[codes],
                        tile.layout[scales],
                        begin(codes),
                        by_column && args.rule == BlockRule::given
                            ? static_cast<std::uint8_t*>(tile.operands[scales])
                            : begin(scales),
                        by_column,
                        codes == At::column_codes && args.square == 0
                            ? args.column_tensor_scale
                            : args.tensor_scale};
    };
    const CellOutput rows = output(At::codes, At::scales, false);
    if (rows.codes != nullptr || rows.scales != nullptr) {
      partial.amax = std::max(
          partial.amax,
          quantize_cells(args, args.code.key, given, cells, rows, partial));
    }
    const CellOutput columns = output(
        At::column_codes, At::column_scales,
        args.code.form != CodeForm::code || args.rule == BlockRule::given);
    if (columns.codes == nullptr && columns.scales == nullptr) continue;
    Cells turned{{}, {}, {}, cells.columns, cells.rows};
    for (std::size_t c = 0; c < cells.columns; ++c) {
      for (std::size_t r = 0; r < cells.rows; ++r) {
        const std::size_t at = r * cells.columns + c;
        turned.values.push_back(cells.values[at]);
        turned.indices.push_back(cells.indices[at]);
        turned.bytes.push_back(cells.bytes[at]);
      }
    }
    for (std::size_t i = 0; args.hadamard != 0 && i < turned.values.size();
         i += kHadamard) {
      double wide[kHadamard];
      std::copy_n(turned.values.begin() + static_cast<std::ptrdiff_t>(i),
                  kHadamard, wide);
      hadamard_transform(wide, 1);
      for (std::size_t j = 0; j < kHadamard; ++j) {
        turned.values[i + j] =
            Format::widen(Format::narrow(static_cast<float>(wide[j])));
      }
    }
    // Square blocks are computed with the rows, with the rows' random bits.
    partial.column_amax = std::max(
        partial.column_amax,
        quantize_cells(args, args.square != 0 ? args.code.key : args.column_key,
                       given, turned, columns, partial));
  }
  if (args.rule == BlockRule::given) partial.amax = partial.column_amax = 0;
  if (tile.partial != nullptr) {
    partial.canonicalize();
    static_cast<ValuePartial*>(tile.partial)->join(partial);
  }
}

template <class Format>
void dequantize_blocks(const void* arguments, const Tile& tile, Result&) {
  using At = DequantizeBlockOperand;
  const auto& args = *static_cast<const DequantizeBlockArgs*>(arguments);
  const auto* codes =
      static_cast<const std::uint8_t*>(tile.operands[At::codes]);
  const auto* scales =
      static_cast<const std::uint8_t*>(tile.operands[At::scales]);
  const auto* values = static_cast<const float*>(tile.operands[At::values]);
  auto* x = static_cast<typename Format::Element*>(tile.operands[At::x]);
  const std::size_t blocks = (args.columns + args.block - 1) / args.block;
  const std::size_t elements = args.code.elements;
  for (std::size_t i = 0; i < tile.count * args.columns; ++i) {
    const std::size_t at =
        i / args.columns * blocks + i % args.columns / args.block;
    std::uint32_t bits = scales[at];
    if (args.scales == ScaleKind::float32) {
      std::memcpy(&bits, scales + 4 * at, 4);
    }
    std::uint32_t code = codes[i / elements];
    if (elements == 2) code = i % 2 == 0 ? code & 15 : code >> 4;
    x[i] = Format::narrow(
        scaled_value(values[code], dequantize_factor(args, bits)));
  }
}

template <class Format>
void amax(const void*, const Tile& tile, Result&) {
  const auto* x =
      static_cast<const typename Format::Element*>(tile.operands[0]);
  AmaxPartial found = {};
  for (std::size_t i = 0; i < tile.count; ++i) {
    const std::uint32_t bits = float_to_bits(Format::widen(x[i])) & 0x7fffffff;
    found.join({bits > 0x7f800000 ? 0 : bits, bits});
  }
  static_cast<AmaxPartial*>(tile.partial)->join(found);
}

template <class Format>
void hadamard(const void*, const Tile& tile, Result&) {
  const auto* x = static_cast<const typename Format::Element*>(
      tile.operands[HadamardOperand::x]);
  auto* out = static_cast<typename Format::Element*>(
      tile.operands[HadamardOperand::out]);
  for (std::size_t u = 0; u < tile.count; ++u) {
    double values[kHadamard];
    for (std::size_t i = 0; i < kHadamard; ++i) {
      values[i] = static_cast<double>(Format::widen(x[u * kHadamard + i]));
    }
    hadamard_transform(values, 1);
    for (std::size_t i = 0; i < kHadamard; ++i) {
      out[u * kHadamard + i] = Format::narrow(static_cast<float>(values[i]));
    }
  }
}

}  // namespace

SWAMP_KERNELS(quantize, kUpTo32, quantize<A>)
SWAMP_KERNELS(dequantize, kUpTo32, dequantize<A>)
SWAMP_KERNELS(quantize_blocks, kUpTo32, quantize_blocks<A>)
SWAMP_KERNELS(dequantize_blocks, kUpTo32, dequantize_blocks<A>)
SWAMP_KERNELS(amax, kUpTo32, amax<A>)
SWAMP_KERNELS(hadamard, kUpTo32, hadamard<A>)

}  // namespace swamp::slave::reference
