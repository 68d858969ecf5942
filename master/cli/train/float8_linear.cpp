// A product takes two matrices of codes whose rows are multiplied, so every
// operand is quantized twice, as it is and transposed: input and weight for the
// result and the other's gradient, the gradient for both. Scales are of whole
// tensors, which a ScaleManager chooses, or of blocks, which quantize_blocks()
// chooses.
#include "master/cli/train/float8_linear.h"

#include <algorithm>
#include <iterator>

namespace swamp::cli {

// Recipe is a value of --fp8-recipe or --fp4-recipe.
struct Float8Linear::Recipe {
  const char* name;
  const char* manager;   // null: scales of blocks
  bool delayed = false;  // scales come from earlier steps
  BlockScaling scaling = {};
  ScalarType scales = kFloat32;
  std::size_t block = 0;
  bool square_weights = false;
  // Transformer Engine's NVFP4BlockScaling: the transposes of inputs and
  // gradients have a random Hadamard transform and so an amax of their own, and
  // gradients are rounded at random.
  bool nvfp4 = false;
};

// The options allow no other name.
const Float8Linear::Recipe& Float8Linear::find(const std::string& name) {
  static constexpr Recipe kRecipes[] = {
      {"delayed", "megatron.delayed", true},
      {"tensorwise", "te.Float8CurrentScaling"},
      {"mxfp8", nullptr, false, BlockScaling::te_mxfp8, kFloat8E8M0FNU, 32},
      {"blockwise", nullptr, false, BlockScaling::te_block_power_of_2, kFloat32,
       128, true},
      {"nvfp4", nullptr, false, BlockScaling::te_nvfp4, kFloat8E4M3FN, 16, true,
       true}};
  return *std::find_if(std::begin(kRecipes), std::end(kRecipes) - 1,
                       [&](const Recipe& row) { return name == row.name; });
}

Float8Linear::Float8Linear(const Float8Options& options, std::size_t layers,
                           Machine& machine)
    : recipe_(find(options.recipe)),
      hybrid_(options.format == "hybrid"),
      machine_(machine),
      layers_(layers) {
  if (recipe_.manager == nullptr) return;
  ScalerOptions chosen = {{"fp8_format", options.format}};
  if (recipe_.delayed) {
    chosen["fp8_margin"] = options.margin;
    chosen["fp8_amax_history_len"] = options.amax_history_length;
    chosen["fp8_amax_compute_algo"] = options.amax_compute_algorithm;
  }
  scales_ =
      ScaleManager::from_name(recipe_.manager, 2 * layers, layers, chosen);
}

void Float8Linear::forward(std::size_t layer, const Matrix& input,
                           const Matrix& weight, const Matrix& out) {
  Layer& own = layers_[layer];
  quantize(input, Role::input, layer, own.input);
  quantize(weight, Role::weight, layer, own.weight);
  product(out, own.input.rows.matrix, own.weight.columns.matrix, &machine_);
}

void Float8Linear::backward(std::size_t layer, const Matrix& gradient,
                            const Matrix& weight_gradient,
                            const Matrix& input_gradient) {
  const Layer& own = layers_[layer];
  quantize(gradient, Role::gradient, layer, gradient_);
  product(weight_gradient, own.input.columns.matrix, gradient_.columns.matrix,
          &machine_);
  product(input_gradient, gradient_.rows.matrix, own.weight.rows.matrix,
          &machine_);
}

void Float8Linear::quantize(const Matrix& matrix, Role role, std::size_t layer,
                            Operand& operand) {
  encode(matrix, role, layer, operand.rows);
  transposed_.resize(matrix.rows * matrix.columns);
  const auto* from = static_cast<const float*>(matrix.data);
  for (std::size_t c = 0; c < matrix.columns; ++c) {
    float* const row = &transposed_[c * matrix.rows];
    for (std::size_t r = 0; r < matrix.rows; ++r) {
      row[r] = from[r * matrix.columns + c];
    }
  }
  const Matrix turned = {transposed_.data(), matrix.columns, matrix.rows,
                         kFloat32};
  if (recipe_.nvfp4 && role != Role::weight) {
    hadamard_transform(turned, turned, &machine_);
  }
  encode(turned, role, layer, operand.columns);
}

void Float8Linear::encode(const Matrix& matrix, Role role, std::size_t layer,
                          Codes& out) {
  const std::size_t count = matrix.rows * matrix.columns;
  const Tensor tensor = {matrix.data, count, kFloat32};
  const ScalarType format = recipe_.nvfp4 ? kFloat4E2M1FNX2
                            : hybrid_ && role == Role::gradient ? kFloat8E5M2
                                                                : kFloat8E4M3FN;
  out.codes.resize(recipe_.nvfp4 ? count / 2 : count);
  const Tensor codes = {out.codes.data(), out.codes.size(), format};
  out.matrix = {codes, {}, matrix.rows, matrix.columns};
  if (scales_) {
    const std::size_t index = role == Role::gradient
                                  ? 2 * layers_.size() + layer
                                  : 2 * layer + (role == Role::weight ? 1 : 0);
    if (!recipe_.delayed) {
      scales_->observe(index, amax(tensor, true, &machine_));
    }
    QuantizeOptions options;
    options.scale = scales_->scale(index);
    options.policy = CastPolicy::cuda_saturate;
    out.scales = {scales_->scale_inv(index)};
    out.matrix.scales = {out.scales.data(), 1, kFloat32};
    const float seen = swamp::quantize(tensor, codes, options, &machine_).amax;
    // The next micro batch has current scales of its own.
    recipe_.delayed ? scales_->observe(index, seen) : scales_->update();
    return;
  }
  BlockOptions options;
  options.scaling = recipe_.scaling;
  options.block = recipe_.block;
  options.square = recipe_.square_weights && role == Role::weight;
  options.policy = CastPolicy::cuda_saturate;
  if (recipe_.nvfp4) {
    options.tensor_amax = amax(tensor, true, &machine_);
    if (role == Role::gradient) options.rounding = Rounding::stochastic;
    options.seed = random_.next();
  }
  const auto blocks = [&](std::size_t length) {
    return (length + recipe_.block - 1) / recipe_.block;
  };
  // float32 scales of square blocks are not repeated in each row.
  const bool repeats = !options.square || recipe_.scales != kFloat32;
  const std::size_t scales =
      (repeats ? matrix.rows : blocks(matrix.rows)) * blocks(matrix.columns);
  out.scales.resize(scales);
  out.matrix.scales = {out.scales.data(), scales, recipe_.scales};
  out.matrix.block = recipe_.block;
  out.matrix.square = options.square;
  out.matrix.tensor_amax = options.tensor_amax;
  const BlockCodes rows = {codes, out.matrix.scales};
  quantize_blocks(matrix, &rows, nullptr, options, &machine_);
}

void Float8Linear::update(Communicator& communicator) {
  if (!recipe_.delayed) return;
  scales_->reduce(communicator);
  scales_->update();
}

std::string Float8Linear::state() const {
  return recipe_.delayed ? scales_->state_dict() : "";
}

void Float8Linear::load_state(const std::string& state) {
  if (recipe_.delayed) scales_->load_state_dict(state);
}

}  // namespace swamp::cli
