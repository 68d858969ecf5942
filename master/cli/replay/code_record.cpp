// Records of blocks, casts and products: a table says, for each recipe, how the
// fields become options, and in which field the scales are. Results that the
// data leave open are taken from the record: the payload of a nan, the sign of
// a zero that was rounded, and the codes of torchao's blocks of nan.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "master/cli/command.h"
#include "master/cli/json.h"
#include "master/cli/replay/code_fields.h"
#include "master/cli/replay/code_result.h"
#include "master/cli/replay/float8_record.h"
#include "master/cli/text.h"
#include "swamp/float8.h"
#include "swamp/float_formats.h"
#include "swamp/scale_manager.h"

namespace swamp::cli {
namespace {

constexpr ScalarType kCodes = kFloat8E4M3FN;  // any of two digits

struct BlockSource {
  const char* recipe;
  const char* field;  // that selects the rule by its value; null: none
  Json value;
  BlockScaling scaling;
  const char* scales;  // the field
  CastPolicy policy = CastPolicy::cuda_saturate;
};

const std::vector<BlockSource>& block_sources() {
  using S = BlockScaling;
  constexpr CastPolicy kSaturate = CastPolicy::saturate;
  static const std::vector<BlockSource> table = {
      {"te.MXFP8BlockScaling", nullptr, {}, S::te_mxfp8, "scales"},
      {"te.NVFP4BlockScaling", nullptr, {}, S::te_nvfp4, "scales"},
      {"te.Float8BlockScaling", "pow2", false, S::te_block, "scale_inv"},
      {"te.Float8BlockScaling", "pow2", true, S::te_block_power_of_2,
       "scale_inv"},
      {"torchao.rowwise",
       nullptr,
       {},
       S::torchao_float8_power_of_2,
       "scale",
       kSaturate},
      {"torchao.mx", "mode", "floor", S::mx_floor, "scales", kSaturate},
      {"torchao.mx", "mode", "ceil", S::mx_ceil, "scales", kSaturate},
      {"torchao.mx", "mode", "even", S::mx_even, "scales", kSaturate},
      {"torchao.mx", "mode", "rceil", S::mx_rceil, "scales", kSaturate},
      {"microxcaling", nullptr, {}, S::microxcaling, nullptr, kSaturate}};
  return table;
}

std::size_t code_count(ScalarType format, std::size_t elements) {
  return format == kFloat4E2M1FNX2 ? elements / 2 : elements;
}

bool is_zero(std::uint32_t bits) { return bits << 1 == 0; }
bool is_nan(std::uint32_t bits) { return bits << 1 > 0xff000000u; }

// Codes is a matrix of codes with scales, and its memory.
struct Codes {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> narrow_scales;
  std::vector<float> wide_scales;

  Tensor code_tensor(ScalarType format) {
    return {codes.data(), codes.size(), format};
  }
  Tensor scale_tensor(ScalarType type) {
    return type == kFloat32
               ? Tensor{wide_scales.data(), wide_scales.size(), type}
               : Tensor{narrow_scales.data(), narrow_scales.size(), type};
  }
};

std::vector<std::uint8_t> bytes_of(const Words& words) {
  return {words.begin(), words.end()};
}
Words words_of(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}
Words words_of(const std::vector<float>& values) {
  Words words;
  for (const float value : values) words.push_back(float_to_bits(value));
  return words;
}

// block_length() returns how many neighbours share a scale.
std::size_t block_length(BlockScaling scaling, std::size_t columns) {
  return scaling <= BlockScaling::microxcaling ? 32
         : scaling == BlockScaling::te_nvfp4   ? 16
         : scaling <= BlockScaling::te_block_power_of_2
             ? 128
             : std::max<std::size_t>(1, columns);
}

// CodePlayer sets the results in a record.
class CodePlayer {
 public:
  CodePlayer(Json& record, bool check, CodeInputs& inputs, Machine& machine)
      : record_(record),
        results_(record, check),
        inputs_(inputs),
        machine_(machine) {}

  // play() returns the name of what the record is of.
  std::string play() {
    if (record_.contains("codes_a")) return product_of("a", "b");
    if (record_.contains("codes_x")) return product_of("x", "w");
    const CodeInput& input = inputs_.of(record_);
    if (record_.contains("cast")) {
      cast(input);
      return "cast";
    }
    if (!record_.contains("recipe")) {
      hadamard(input);
      return "Hadamard transform";
    }
    const std::string recipe = json_text(record_, "recipe");
    if (recipe == "te.Float8CurrentScaling" || recipe == "torchao.tensorwise") {
      tensor(input, recipe == "torchao.tensorwise");
      return recipe;
    }
    blocks(input, source_of(recipe));
    return recipe;
  }

  const std::string& difference() const { return results_.difference(); }

 private:
  float float_field(const char* name) const {
    return read_float(name, json_member(record_, name));
  }

  const BlockSource& source_of(const std::string& recipe) const {
    std::string known;
    for (const BlockSource& source : block_sources()) {
      if (recipe != source.recipe) continue;
      if (source.field == nullptr) return source;
      const Json& value = json_member(record_, source.field);
      if (value == source.value) return source;
      known = source.field;
    }
    if (known.empty()) {
      refuse_json("recipe", record_["recipe"], "a recipe of blocks");
    }
    refuse_json(known.c_str(), record_[known], "one of the recipe");
  }

  // option_field() returns the index of the record's word, 0 if it has none.
  template <class Enum, std::size_t kCount>
  Enum option_field(const char* name,
                    const char* const (&words)[kCount]) const {
    if (!record_.contains(name)) return Enum{};
    const auto found =
        std::find(std::begin(words), std::end(words), json_text(record_, name));
    if (found == std::end(words)) {
      refuse_json(name, record_[name],
                  "one of " + joined({std::begin(words), std::end(words)}));
    }
    return static_cast<Enum>(found - std::begin(words));
  }

  // random_field() returns the random bits of stochastic rounding.
  std::vector<std::uint8_t> random_field(const CodeInput& input) const {
    const std::vector<std::uint8_t> random =
        bytes_of(words_field(record_, "random_octets", kCodes));
    if (random.size() != input.rows * input.columns) {
      refuse_json("random_octets", random.size(), "one of each element");
    }
    return random;
  }

  void cast(const CodeInput& input) {
    constexpr const char* kRoundings[] = {"nearest_even", "nearest_away",
                                          "stochastic", "up", "down"};
    constexpr const char* kPolicies[] = {
        "saturate", "overflow", "cuda_saturate", "cuda", "torch", "ml_dtypes"};
    const ScalarType format = format_field(record_, "cast");
    QuantizeOptions options;
    options.rounding = option_field<Rounding>("rounding", kRoundings);
    options.policy = option_field<CastPolicy>("policy", kPolicies);
    if (record_.contains("scale")) options.scale = float_field("scale");
    std::vector<std::uint8_t> random;
    if (options.rounding == Rounding::stochastic) {
      random = random_field(input);
      options.random = random.data();
    }
    results_.set("codes", format, quantized(input, format, options),
                 CodeResults::never, Layout{input}.places(format));
  }

  Words quantized(const CodeInput& input, ScalarType format,
                  const QuantizeOptions& options) {
    std::vector<std::uint8_t> codes(
        code_count(format, input.rows * input.columns));
    quantize(input.tensor(), {codes.data(), codes.size(), format}, options,
             &machine_);
    return words_of(codes);
  }

  void hadamard(const CodeInput& input) {
    const std::size_t rows = input.columns, columns = input.rows;
    const Layout layout{input, true};
    std::vector<float> turned;
    for (std::size_t i = 0; i < rows * columns; ++i) {
      const std::uint32_t bits = layout.bits(i / columns, i % columns);
      turned.push_back(
          float_from_bits(input.type == kFloat32 ? bits : bits << 16));
    }
    hadamard_transform({turned.data(), rows, columns, kFloat32},
                       {turned.data(), rows, columns, kFloat32}, &machine_);
    Words ours;
    for (const float value : turned) ours.push_back(bfloat16_from_float(value));
    // The sign of a zero depends on the order of the sum.
    results_.set(
        "bf16", kBFloat16, ours,
        [](std::size_t, std::uint32_t a, std::uint32_t b) {
          return (is_zero(a << 16) && is_zero(b << 16)) ||
                 (is_nan(a << 16) && is_nan(b << 16));
        },
        layout.places(kBFloat16));
  }

  void tensor(const CodeInput& input, bool torchao) {
    const ScalarType format = format_field(record_, "fmt");
    const std::size_t at = format == kFloat8E5M2 ? 1 : 0;
    ScalerOptions options;
    if (!torchao) {
      const Json& pow2 = json_member(record_, "pow2");
      if (!pow2.is_boolean()) refuse_json("pow2", pow2, "true or false");
      options["use_power_2_scales"] = pow2.get<bool>();
    }
    ScaleManager manager = ScaleManager::from_name(
        torchao ? "torchao.float8.tensorwise" : "te.Float8CurrentScaling", 1, 1,
        options);
    manager.observe(at, amax(input.tensor(), !torchao, &machine_));
    manager.update();
    QuantizeOptions cast;
    cast.scale = manager.scale(at);
    if (!torchao) cast.policy = CastPolicy::cuda_saturate;
    results_.set("scale", cast.scale);
    if (!torchao) results_.set("scale_inv", manager.scale_inv(at));
    results_.set("codes", format, quantized(input, format, cast),
                 CodeResults::never, Layout{input}.places(format));
  }

  void blocks(const CodeInput& input, const BlockSource& source) {
    const bool nvfp4 = source.scaling == BlockScaling::te_nvfp4;
    const ScalarType format =
        nvfp4 ? kFloat4E2M1FNX2 : format_field(record_, "fmt");
    BlockOptions options;
    options.scaling = source.scaling;
    options.policy = source.policy;
    const std::string tile =
        record_.contains("tile") ? json_text(record_, "tile") : "";
    options.square = tile == "128x128" || tile == "16x16";
    const bool by_column =
        record_.contains("dir") && json_text(record_, "dir") == "col";
    if (nvfp4) {
      options.tensor_amax = amax(input.tensor(), true, &machine_);
      results_.set("global_amax", options.tensor_amax);
    }
    const Matrix x = input.matrix();
    if (source.scaling == BlockScaling::microxcaling) {
      return fake_quantize(input, format, options);
    }
    Layout layout{input, by_column};
    const std::size_t columns = layout.columns();
    layout.block = block_length(source.scaling, columns);
    Codes out;
    const auto codes_of = [&] {
      const BlockCodes view =
          make(out, by_column ? x.columns : x.rows, columns, format, options);
      quantize_blocks(x, by_column ? nullptr : &view,
                      by_column ? &view : nullptr, options, &machine_);
      return words_of(out.codes);
    };
    const Words codes = codes_of();
    // The scales of torchao are the factors.
    if (source.scaling == BlockScaling::torchao_float8_power_of_2) {
      for (float& scale : out.wide_scales) scale = 1 / scale;
    }
    const std::size_t in_row = (columns + layout.block - 1) / layout.block;
    const bool is_narrow = !out.narrow_scales.empty();
    const Words scales =
        is_narrow ? words_of(out.narrow_scales) : words_of(out.wide_scales);
    const ScalarType scale_type = !is_narrow ? kFloat32
                                  : nvfp4    ? kFloat8E4M3FN
                                             : kFloat8E8M0FNU;
    // Float32 scales of squares are those of as many rows.
    const std::size_t rows_of_scale =
        options.square && !is_narrow ? layout.block : 1;
    results_.set(source.scales, scale_type, scales, CodeResults::both_nan,
                 [&](std::size_t i) {
                   Place place =
                       layout.place(i / in_row * rows_of_scale * columns +
                                    i % in_row * layout.block);
                   place.count = 0;
                   return place;
                 });
    const auto place_of = [&](std::size_t i) {
      Place place = layout.places(format)(i);
      const std::size_t element = i * (format == kFloat4E2M1FNX2 ? 2 : 1);
      place.more +=
          ", scale " +
          number_text(scales[element / columns / rows_of_scale * in_row +
                             element % columns / layout.block],
                      scale_type);
      return place;
    };
    const bool is_torchao = source.policy == CastPolicy::saturate;
    results_.set(
        "codes", format, codes,
        [&](std::size_t i, std::uint32_t, std::uint32_t) {
          return is_torchao && is_narrow &&
                 scales[i * scales.size() / codes.size()] == 0xff;
        },
        place_of);
    if (!record_.contains("random_octets")) return;
    const std::vector<std::uint8_t> random = random_field(input);
    options.rounding = Rounding::stochastic;
    options.random = random.data();
    results_.set("codes_stochastic", format, codes_of(), CodeResults::never,
                 place_of);
  }

  static BlockCodes make(Codes& out, std::size_t rows, std::size_t columns,
                         ScalarType format, const BlockOptions& options) {
    const bool e8m0 = options.scaling <= BlockScaling::microxcaling;
    const bool e4m3 = options.scaling == BlockScaling::te_nvfp4;
    const std::size_t block = block_length(options.scaling, columns);
    const bool is_narrow = e8m0 || e4m3;
    const std::size_t scale_rows =
        options.square && !is_narrow ? (rows + block - 1) / block : rows;
    const std::size_t scales = scale_rows * ((columns + block - 1) / block);
    out.codes.assign(code_count(format, rows * columns), 0);
    out.narrow_scales.assign(is_narrow ? scales : 0, 0);
    out.wide_scales.assign(is_narrow ? 0 : scales, 0);
    return {out.code_tensor(format), out.scale_tensor(e8m0   ? kFloat8E8M0FNU
                                                      : e4m3 ? kFloat8E4M3FN
                                                             : kFloat32)};
  }

  // fake_quantize() sets the values of the codes of some rows.
  void fake_quantize(const CodeInput& input, ScalarType format,
                     BlockOptions options) {
    const std::string round = json_text(record_, "round");
    if (round != "away" && round != "even") {
      refuse_json("round", round, "away or even");
    }
    if (round == "away") options.rounding = Rounding::nearest_away;
    const std::size_t first = size_field(record_, "first_row");
    const std::size_t rows = size_field(record_, "rows");
    Matrix x = input.matrix();
    if (first + rows > x.rows) refuse_json("rows", rows, "rows of the input");
    x.data = static_cast<std::uint8_t*>(x.data) +
             first * x.columns * kFloatFormats[input.type].bytes;
    x.rows = rows;
    Codes out;
    const BlockCodes view = make(out, rows, x.columns, format, options);
    quantize_blocks(x, &view, nullptr, options, &machine_);
    std::vector<float> values(rows * x.columns);
    dequantize_blocks(view, {values.data(), rows, x.columns, kFloat32}, options,
                      &machine_);
    const Layout layout{input, false, block_length(options.scaling, x.columns)};
    // There an exact -0 loses its sign; codes of MXINT8 have no -0.
    results_.set(
        "values", kFloat32, words_of(values),
        [](std::size_t i, std::uint32_t a, std::uint32_t b) {
          return (is_zero(a) && is_zero(b)) || CodeResults::both_nan(i, a, b);
        },
        [&](std::size_t i) {
          Place place = layout.place(first * x.columns + i);
          place.first -= first * x.columns;
          return place;
        });
  }

  // product_of() is of codes with float32 scales, of MX blocks, or of NVFP4.
  std::string product_of(const char* first, const char* second) {
    const std::size_t m = size_field(record_, "M"),
                      n = size_field(record_, "N"),
                      k = size_field(record_, "K");
    Codes memory[2];
    ScaledMatrix operands[2];
    const std::string names[] = {first, second};
    const bool has_blocks = record_.contains("scales_" + names[0]);
    const bool nvfp4 = record_.contains("amax_" + names[0]);
    const auto field = [&](const char* what, std::size_t i) {
      return what + names[i];
    };
    for (std::size_t i = 0; i < 2; ++i) {
      ScaledMatrix& one = operands[i];
      const ScalarType format =
          nvfp4 ? kFloat4E2M1FNX2 : format_field(record_, names[i].c_str());
      const auto bytes = [&](const char* what) {
        return bytes_of(words_field(record_, field(what, i).c_str(), kCodes));
      };
      memory[i].codes = bytes("codes_");
      memory[i].wide_scales = {1};
      if (has_blocks) {
        memory[i].narrow_scales = bytes("scales_");
        one.block = nvfp4 ? 16 : 32;
      }
      if (nvfp4) one.tensor_amax = float_field(field("amax_", i).c_str());
      one.codes = memory[i].code_tensor(format);
      one.scales = memory[i].scale_tensor(!has_blocks ? kFloat32
                                          : nvfp4     ? kFloat8E4M3FN
                                                      : kFloat8E8M0FNU);
      one.rows = i == 0 ? m : n;
      one.columns = k;
    }
    const auto set_product = [&](const char* result) {
      std::vector<float> out(m * n);
      product({out.data(), m, n, kFloat32}, operands[0], operands[1],
              &machine_);
      results_.set(
          result, kFloat32, words_of(out), CodeResults::both_nan,
          [&](std::size_t at) {
            Place place{fmt::format("row {}, column {}", at / n, at % n), ""};
            for (std::size_t i = 0; i < 2 && k <= kMaxShown; ++i) {
              const std::size_t length =
                  memory[i].codes.size() / operands[i].rows;
              place.more += fmt::format("; codes of {} ", names[i]);
              for (std::size_t c = 0; c < length; ++c) {
                place.more += hex(
                    memory[i].codes[(i == 0 ? at / n : at % n) * length + c],
                    kCodes);
              }
            }
            return place;
          });
    };
    if (!has_blocks) {
      set_product("sums");
      for (std::size_t i = 0; i < 2; ++i) {
        memory[i].wide_scales[0] = float_field(field("scale_inv_", i).c_str());
      }
    }
    set_product("out");
    return nvfp4        ? "product of NVFP4"
           : has_blocks ? "product of MX"
                        : "product";
  }

  Json& record_;
  CodeResults results_;
  CodeInputs& inputs_;
  Machine& machine_;
};

}  // namespace

std::optional<RecordReplay> replay_codes(const std::string& line, bool check,
                                         CodeInputs& inputs, Machine& machine) {
  // Most lines are of loss scalers, and long.
  if (line.find("\"input\"") == std::string::npos &&
      line.find("\"codes_") == std::string::npos) {
    return std::nullopt;
  }
  Json ours = parse_json(line, kMaxRecordDepth);
  // The input of a scale manager is a dtype, and has an amax.
  if (!ours.is_object() || ours.contains("amax") ||
      !(ours.contains("input") || ours.contains("codes_a") ||
        ours.contains("codes_x"))) {
    return std::nullopt;
  }
  try {
    CodePlayer player(ours, check, inputs, machine);
    const std::string name = player.play();
    return RecordReplay{name, json_line(ours), player.difference()};
  } catch (const Error& error) {
    throw Failure(error.what());
  }
}

}  // namespace swamp::cli
