// Every operand has values along its rows and along its columns: input and
// weight for the result and the other's gradient, the gradient for both. Scales
// are of whole tensors, which a ScaleManager chooses, or of blocks, which
// quantized_values() chooses.
#include "master/cli/train/float8_linear.h"

#include <algorithm>
#include <iterator>

#include "swamp/float_formats.h"

namespace swamp::cli {

// Recipe is a value of --fp8-recipe or --fp4-recipe.
struct Float8Linear::Recipe {
  const char* name;
  const char* manager;   // null: scales of blocks
  bool delayed = false;  // scales come from earlier steps
  BlockScaling scaling = {};
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
      {"mxfp8", nullptr, false, BlockScaling::te_mxfp8, 32},
      {"blockwise", nullptr, false, BlockScaling::te_block_power_of_2, 128,
       true},
      {"nvfp4", nullptr, false, BlockScaling::te_nvfp4, 16, true, true}};
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
  if (!own.has_weight) quantize(weight, Role::weight, layer, own.weight);
  own.has_weight = true;
  multiply(out, own.input.rows, false, own.weight.along_columns(), false);
}

void Float8Linear::backward(std::size_t layer, const Matrix& gradient,
                            const Matrix& weight_gradient,
                            const Matrix& input_gradient) {
  const Layer& own = layers_[layer];
  quantize(gradient, Role::gradient, layer, gradient_);
  multiply(weight_gradient, own.input.along_columns(), true,
           gradient_.along_columns(), false);
  multiply(input_gradient, gradient_.rows, false, own.weight.rows, true);
}

Matrix Float8Linear::Values::resized(const Matrix& like, ScalarType type) {
  dtype = type, rows = like.rows, columns = like.columns;
  const std::size_t count = rows * columns;
  data.resize(type == kFloat32 ? count : (count + 1) / 2);
  return {data.data(), rows, columns, dtype};
}

Matrices Float8Linear::Values::matrices() const {
  return Matrices::dense(const_cast<float*>(data.data()), 1, rows, columns,
                         dtype);
}

// multiply() sets out to the product of two matrices or transposes.
void Float8Linear::multiply(const Matrix& out, const Values& a,
                            bool transposes_a, const Values& b,
                            bool transposes_b) {
  Matrices factors[] = {a.matrices(), b.matrices()};
  if (a.dtype != b.dtype) {
    Matrices& narrow = factors[a.dtype == kFloat32 ? 1 : 0];
    const std::size_t count = narrow.rows * narrow.columns;
    wide_.resize(count);
    const auto* const bits = static_cast<const std::uint16_t*>(narrow.data);
    std::transform(bits, bits + count, wide_.begin(), bfloat16_to_float);
    narrow.data = wide_.data(), narrow.dtype = kFloat32;
  }
  ProductOptions options;
  options.alpha =
      recipe_.nvfp4 ? nvfp4_factor(a.amax, b.amax) : a.factor * b.factor;
  product(Matrices::dense(out.data, 1, out.rows, out.columns, out.dtype),
          transposes_a ? factors[0].transposed() : factors[0],
          transposes_b ? factors[1].transposed() : factors[1], options,
          &machine_);
}

void Float8Linear::quantize(const Matrix& matrix, Role role, std::size_t layer,
                            Operand& operand) {
  const Tensor tensor = {matrix.data, matrix.rows * matrix.columns, kFloat32};
  const ScalarType format = recipe_.nvfp4 ? kFloat4E2M1FNX2
                            : hybrid_ && role == Role::gradient ? kFloat8E5M2
                                                                : kFloat8E4M3FN;
  if (!scales_) return quantize_blocks(matrix, role, format, operand);
  const std::size_t index = role == Role::gradient
                                ? 2 * layers_.size() + layer
                                : 2 * layer + (role == Role::weight ? 1 : 0);
  if (!recipe_.delayed) {
    scales_->observe(index, amax(tensor, true, &machine_));
  }
  QuantizeOptions options;
  options.scale = scales_->scale(index);
  options.policy = CastPolicy::cuda_saturate;
  operand.rows.factor = scales_->scale_inv(index);
  const Matrix values = operand.rows.resized(matrix, kBFloat16);
  const float seen =
      quantized_values(tensor, format, {values.data, tensor.count, kBFloat16},
                       options, &machine_)
          .amax;
  // The next micro batch has current scales of its own.
  recipe_.delayed ? scales_->observe(index, seen) : scales_->update();
}

void Float8Linear::quantize_blocks(const Matrix& matrix, Role role,
                                   ScalarType format, Operand& operand) {
  BlockOptions options;
  options.scaling = recipe_.scaling;
  options.block = recipe_.block;
  options.square = recipe_.square_weights && role == Role::weight;
  options.policy = CastPolicy::cuda_saturate;
  if (recipe_.nvfp4) {
    options.hadamard = role != Role::weight;
    options.tensor_amax = amax(
        {matrix.data, matrix.rows * matrix.columns, kFloat32}, true, &machine_);
    options.column_amax = options.tensor_amax;
    if (options.hadamard) {
      BlockOptions of_columns;
      of_columns.hadamard = true;
      column_amax_.resize(matrix.columns * ((matrix.rows + 127) / 128));
      const Tensor blocks = {column_amax_.data(), column_amax_.size(),
                             kFloat32};
      options.column_amax =
          block_amax(matrix, nullptr, &blocks, of_columns, &machine_)
              .column_amax;
    }
    if (role == Role::gradient) options.rounding = Rounding::stochastic;
    options.seed = random_.next();
  }
  operand.rows.amax = options.tensor_amax;
  operand.columns.amax = options.column_amax;
  operand.has_columns = !options.square;
  for (const ScalarType type : {kBFloat16, kFloat32}) {
    const Matrix rows = operand.rows.resized(matrix, type);
    const Matrix columns =
        operand.has_columns ? operand.columns.resized(matrix, type) : Matrix{};
    if (quantized_values(matrix, format, &rows,
                         operand.has_columns ? &columns : nullptr, options,
                         &machine_)
            .exact) {
      break;
    }
  }
}

void Float8Linear::update(Communicator& communicator) {
  for (Layer& layer : layers_) layer.has_weight = false;
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
