// Records of blocks, casts and products: a table says, for each recipe, how the
// fields become options, and in which field the scales are. Results that the
// data leave open are taken from the record: the payload of a nan, the sign of
// a zero that was rounded, and the codes of torchao's blocks of nan.
#include <fmt/core.h>

#include <cmath>
#include <fstream>

#include "master/cli/command.h"
#include "master/cli/json.h"
#include "master/cli/replay/float8_record.h"
#include "master/cli/text.h"
#include "swamp/float8.h"
#include "swamp/float_formats.h"
#include "swamp/scale_manager.h"

namespace swamp::cli {
namespace {

using Words = std::vector<std::uint32_t>;

constexpr int kMaxRecordDepth = 16;
constexpr std::size_t kMaxSize = 8192;  // rows or columns of a matrix

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

std::string text_field(const Json& record, const char* name) {
  const Json& value = json_member(record, name);
  if (!value.is_string()) refuse_json(name, value, "a text");
  return value;
}

std::size_t size_field(const Json& record, const char* name) {
  const Json& value = json_member(record, name);
  if (!value.is_number_unsigned() || value > kMaxSize) {
    refuse_json(name, value, fmt::format("an integer, at most {}", kMaxSize));
  }
  return value;
}

// words_field() reads numbers of `digits` hexadecimal digits each.
Words words_field(const Json& record, const char* name, std::size_t digits) {
  const std::string text = text_field(record, name);
  if (text.size() % digits != 0 ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    refuse_json(name, json_member(record, name),
                fmt::format("hexadecimal numbers of {} digits", digits));
  }
  Words words;
  for (std::size_t i = 0; i < text.size(); i += digits) {
    words.push_back(static_cast<std::uint32_t>(
        std::stoul(text.substr(i, digits), nullptr, 16)));
  }
  return words;
}

// A field of several floats may be a list of them.
Words floats_field(const Json& record, const char* name) {
  const Json& value = json_member(record, name);
  if (!value.is_array()) return words_field(record, name, 8);
  std::string all;
  for (const Json& one : value) {
    if (!one.is_string()) refuse_json(name, value, "texts");
    all += one.get<std::string>();
  }
  return words_field(Json{{name, all}}, name, 8);
}

ScalarType format_field(const Json& record, const char* name) {
  constexpr struct {
    const char* name;
    ScalarType type;
  } kShort[] = {{"e4m3", kFloat8E4M3FN}, {"e5m2", kFloat8E5M2},
                {"e2m3", kFloat6E2M3FN}, {"e3m2", kFloat6E3M2FN},
                {"int8", kMxInt8},       {"e2m1", kFloat4E2M1FNX2}};
  const std::string format = text_field(record, name);
  for (const auto& one : kShort) {
    if (format == one.name || format == kFloatFormats[one.type].name) {
      return one.type;
    }
  }
  refuse_json(name, record[name], "a format of at most 8 bits");
}

std::size_t code_count(ScalarType format, std::size_t elements) {
  return format == kFloat4E2M1FNX2 ? elements / 2 : elements;
}

bool is_zero(std::uint32_t bits) { return bits << 1 == 0; }
bool is_nan_bits(std::uint32_t bits) { return bits << 1 > 0xff000000u; }

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

// CodePlayer sets the results in a record.
class CodePlayer {
 public:
  CodePlayer(Json& record, bool check, CodeInputs& inputs, Machine& machine)
      : record_(record), check_(check), inputs_(inputs), machine_(machine) {}

  // play() returns the name of what the record is of.
  std::string play() {
    if (record_.contains("codes_a")) {
      exact_product();
      return "product";
    }
    if (record_.contains("codes_x")) {
      nvfp4_product();
      return "product of NVFP4";
    }
    const CodeInputs::Input& input = inputs_.at(text_field(record_, "input"));
    if (!record_.contains("recipe")) {
      hadamard(input);
      return "Hadamard transform";
    }
    const std::string recipe = text_field(record_, "recipe");
    if (recipe == "te.Float8CurrentScaling" || recipe == "torchao.tensorwise") {
      tensor(input, recipe == "torchao.tensorwise");
      return recipe;
    }
    blocks(input, source_of(recipe));
    return recipe;
  }

 private:
  // set() sets a result, numbers of `digits` digits. The file's stays where
  // alike(i, ours, theirs).
  template <class Alike>
  void set(const char* field, std::size_t digits, Words ours, Alike alike) {
    if (check_) json_member(record_, field);
    if (record_.contains(field)) {
      const Words theirs = digits == 8 ? floats_field(record_, field)
                                       : words_field(record_, field, digits);
      for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
        if (alike(i, ours[i], theirs[i])) ours[i] = theirs[i];
      }
      if (record_[field].is_array()) {
        Json list = Json::array();
        for (const std::uint32_t word : ours) list.push_back(hex(word, digits));
        record_[field] = list;
        return;
      }
    }
    std::string text;
    for (const std::uint32_t word : ours) text += hex(word, digits);
    record_[field] = text;
  }
  void set(const char* field, const std::vector<std::uint8_t>& ours) {
    set(field, 2, words_of(ours),
        [](std::size_t, std::uint32_t, std::uint32_t) { return false; });
  }
  void set(const char* field, const std::vector<float>& ours) {
    set(field, 8, words_of(ours),
        [](std::size_t, std::uint32_t a, std::uint32_t b) {
          return is_nan_bits(a) && is_nan_bits(b);
        });
  }
  static std::string hex(std::uint32_t word, std::size_t digits) {
    return fmt::format("{:0{}x}", word, digits);
  }

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

  static Matrix matrix_of(const CodeInputs::Input& input) {
    return {const_cast<std::uint16_t*>(input.bits.data()), input.rows,
            input.columns, kBFloat16};
  }
  static Tensor tensor_of(const CodeInputs::Input& input) {
    return {const_cast<std::uint16_t*>(input.bits.data()), input.bits.size(),
            kBFloat16};
  }

  void hadamard(const CodeInputs::Input& input) {
    std::vector<std::uint16_t> turned, out(input.bits.size());
    for (std::size_t c = 0; c < input.columns; ++c) {
      for (std::size_t r = 0; r < input.rows; ++r) {
        turned.push_back(input.bits[r * input.columns + c]);
      }
    }
    hadamard_transform({turned.data(), input.columns, input.rows, kBFloat16},
                       {out.data(), input.columns, input.rows, kBFloat16},
                       &machine_);
    // The sign of a zero depends on the order of the sum.
    set("bf16", 4, Words(out.begin(), out.end()),
        [](std::size_t, std::uint32_t a, std::uint32_t b) {
          return (is_zero(a << 16) && is_zero(b << 16)) ||
                 (is_nan_bits(a << 16) && is_nan_bits(b << 16));
        });
  }

  void tensor(const CodeInputs::Input& input, bool torchao) {
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
    manager.observe(at, amax(tensor_of(input), !torchao, &machine_));
    manager.update();
    QuantizeOptions cast;
    cast.scale = manager.scale(at);
    if (!torchao) cast.policy = CastPolicy::cuda_saturate;
    std::vector<std::uint8_t> codes(code_count(format, input.bits.size()));
    quantize(tensor_of(input), {codes.data(), codes.size(), format}, cast,
             &machine_);
    set("scale", std::vector<float>{cast.scale});
    if (!torchao) {
      set("scale_inv", std::vector<float>{manager.scale_inv(at)});
    }
    set("codes", codes);
  }

  void blocks(const CodeInputs::Input& input, const BlockSource& source) {
    const bool nvfp4 = source.scaling == BlockScaling::te_nvfp4;
    const ScalarType format =
        nvfp4 ? kFloat4E2M1FNX2 : format_field(record_, "fmt");
    BlockOptions options;
    options.scaling = source.scaling;
    options.policy = source.policy;
    const std::string tile =
        record_.contains("tile") ? text_field(record_, "tile") : "";
    options.square = tile == "128x128" || tile == "16x16";
    const bool by_column =
        record_.contains("dir") && text_field(record_, "dir") == "col";
    if (nvfp4) {
      options.tensor_amax = amax(tensor_of(input), true, &machine_);
      set("global_amax", std::vector<float>{options.tensor_amax});
    }
    Matrix x = matrix_of(input);
    if (source.scaling == BlockScaling::microxcaling) {
      return fake_quantize(x, format, options);
    }
    Codes out;
    const auto quantized = [&]() -> const std::vector<std::uint8_t>& {
      const std::size_t rows = by_column ? x.columns : x.rows;
      const std::size_t columns = by_column ? x.rows : x.columns;
      const BlockCodes view = make(out, rows, columns, format, options);
      quantize_blocks(x, by_column ? nullptr : &view,
                      by_column ? &view : nullptr, options, &machine_);
      return out.codes;
    };
    const std::vector<std::uint8_t> codes = quantized();
    const std::vector<std::uint8_t>& scales = out.narrow_scales;
    if (!scales.empty()) {
      set(source.scales, scales);
    } else {
      // The scales of torchao are the factors.
      if (source.scaling == BlockScaling::torchao_float8_power_of_2) {
        for (float& scale : out.wide_scales) scale = 1 / scale;
      }
      set(source.scales, out.wide_scales);
    }
    const bool is_torchao = source.policy == CastPolicy::saturate;
    set("codes", 2, words_of(codes),
        [&](std::size_t i, std::uint32_t, std::uint32_t) {
          return is_torchao && !scales.empty() &&
                 scales[i * scales.size() / codes.size()] == 0xff;
        });
    if (!record_.contains("random_octets")) return;
    const std::vector<std::uint8_t> random =
        bytes_of(words_field(record_, "random_octets", 2));
    if (random.size() != input.bits.size()) {
      refuse_json("random_octets", random.size(), "one of each element");
    }
    options.rounding = Rounding::stochastic;
    options.random = random.data();
    set("codes_stochastic", quantized());
  }

  static BlockCodes make(Codes& out, std::size_t rows, std::size_t columns,
                         ScalarType format, const BlockOptions& options) {
    const bool e8m0 = options.scaling <= BlockScaling::microxcaling;
    const bool e4m3 = options.scaling == BlockScaling::te_nvfp4;
    const std::size_t block =
        e8m0   ? 32
        : e4m3 ? 16
        : options.scaling <= BlockScaling::te_block_power_of_2
            ? 128
            : std::max<std::size_t>(1, columns);
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
  void fake_quantize(Matrix x, ScalarType format, BlockOptions options) {
    const std::string round = text_field(record_, "round");
    if (round != "away" && round != "even") {
      refuse_json("round", round, "away or even");
    }
    if (round == "away") options.rounding = Rounding::nearest_away;
    const std::size_t first = size_field(record_, "first_row");
    const std::size_t rows = size_field(record_, "rows");
    if (first + rows > x.rows) refuse_json("rows", rows, "rows of the input");
    x.data = static_cast<std::uint16_t*>(x.data) + first * x.columns;
    x.rows = rows;
    Codes out;
    const BlockCodes view = make(out, rows, x.columns, format, options);
    quantize_blocks(x, &view, nullptr, options, &machine_);
    std::vector<float> values(rows * x.columns);
    dequantize_blocks(view, {values.data(), rows, x.columns, kFloat32}, options,
                      &machine_);
    // There an exact -0 loses its sign; codes of MXINT8 have no -0.
    set("values", 8, words_of(values),
        [](std::size_t, std::uint32_t a, std::uint32_t b) {
          return (is_zero(a) && is_zero(b)) ||
                 (is_nan_bits(a) && is_nan_bits(b));
        });
  }

  void exact_product() {
    const std::size_t m = size_field(record_, "M"),
                      n = size_field(record_, "N"),
                      k = size_field(record_, "K");
    Codes a, b;
    a.codes = bytes_of(words_field(record_, "codes_a", 2));
    b.codes = bytes_of(words_field(record_, "codes_b", 2));
    const ScalarType a_type = format_field(record_, "a"),
                     b_type = format_field(record_, "b");
    const auto result = [&](float a_scale, float b_scale) {
      a.wide_scales = {a_scale};
      b.wide_scales = {b_scale};
      return product_of(m, n, k,
                        {a.code_tensor(a_type), a.scale_tensor(kFloat32)},
                        {b.code_tensor(b_type), b.scale_tensor(kFloat32)});
    };
    set("sums", result(1, 1));
    set("out", result(float_field("scale_inv_a"), float_field("scale_inv_b")));
  }

  void nvfp4_product() {
    const std::size_t m = size_field(record_, "M"),
                      n = size_field(record_, "N"),
                      k = size_field(record_, "K");
    Codes x, w;
    const auto operand = [&](Codes& memory, const char* codes,
                             const char* scales, const char* amax) {
      memory.codes = bytes_of(words_field(record_, codes, 2));
      memory.narrow_scales = bytes_of(words_field(record_, scales, 2));
      ScaledMatrix matrix;
      matrix.codes = memory.code_tensor(kFloat4E2M1FNX2);
      matrix.scales = memory.scale_tensor(kFloat8E4M3FN);
      matrix.block = 16;
      matrix.tensor_amax = float_field(amax);
      return matrix;
    };
    set("out", product_of(m, n, k, operand(x, "codes_x", "scales_x", "amax_x"),
                          operand(w, "codes_w", "scales_w", "amax_w")));
  }

  std::vector<float> product_of(std::size_t m, std::size_t n, std::size_t k,
                                ScaledMatrix a, ScaledMatrix b) {
    a.rows = m;
    b.rows = n;
    a.columns = b.columns = k;
    std::vector<float> out(m * n);
    product({out.data(), m, n, kFloat32}, a, b, &machine_);
    return out;
  }

  Json& record_;
  bool check_;
  CodeInputs& inputs_;
  Machine& machine_;
};

}  // namespace

const CodeInputs::Input& CodeInputs::at(const std::string& name) {
  if (inputs_.empty()) {
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
      const Json record = parse_json(line, kMaxRecordDepth);
      Input input{size_field(record, "rows"), size_field(record, "cols"), {}};
      for (const std::uint32_t word : words_field(record, "bf16", 4)) {
        input.bits.push_back(static_cast<std::uint16_t>(word));
      }
      if (input.bits.size() != input.rows * input.columns) {
        throw Failure(fmt::format("{}: bf16: got {} numbers, expected {} x {}",
                                  path_, input.bits.size(), input.rows,
                                  input.columns));
      }
      inputs_[text_field(record, "name")] = std::move(input);
    }
  }
  const auto found = inputs_.find(name);
  if (found == inputs_.end()) {
    throw Failure(fmt::format("input: got {}, expected a name of {}",
                              in_quotes(name), path_));
  }
  return found->second;
}

std::optional<RecordReplay> replay_codes(const std::string& line, bool check,
                                         CodeInputs& inputs, Machine& machine) {
  // Most lines are of loss scalers, and long.
  if (line.find("\"input\"") == std::string::npos &&
      line.find("\"codes_") == std::string::npos) {
    return std::nullopt;
  }
  const Json theirs = parse_json(line, kMaxRecordDepth);
  // The input of a scale manager is a dtype, and has an amax.
  if (!theirs.is_object() || theirs.contains("amax") ||
      !(theirs.contains("input") || theirs.contains("codes_a") ||
        theirs.contains("codes_x"))) {
    return std::nullopt;
  }
  Json ours = theirs;
  try {
    const std::string name = CodePlayer(ours, check, inputs, machine).play();
    return RecordReplay{name, json_line(ours),
                        check ? record_difference("", ours, theirs) : ""};
  } catch (const Error& error) {
    throw Failure(error.what());
  }
}

}  // namespace swamp::cli
