// The products of the linear layers with operands of 8 or 4 bits, by the
// recipes of Megatron-LM and Transformer Engine.
#ifndef SWAMP_MASTER_CLI_TRAIN_FLOAT8_LINEAR_H_
#define SWAMP_MASTER_CLI_TRAIN_FLOAT8_LINEAR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "master/cli/train/model.h"
#include "swamp/communicator.h"
#include "swamp/float8.h"
#include "swamp/product.h"
#include "swamp/scale_manager.h"

namespace swamp::cli {

// Float8Linear has the values of the codes of a number of linear layers.
// Matrices are float32, with values of the model's dtype.
class Float8Linear {
 public:
  // `machine` must outlive it.
  Float8Linear(const Float8Options& options, std::size_t layers,
               Machine& machine);

  // begin() must precede the products of a micro batch. `seed` decides how
  // gradients are rounded, if the recipe does so at random.
  void begin(std::uint64_t seed) { random_ = Random(seed); }

  // forward() sets out to input * weight, and keeps the values of both. A
  // weight is quantized once a step: what changes weights must call update()
  // before.
  void forward(std::size_t layer, const Matrix& input, const Matrix& weight,
               const Matrix& out);

  // backward() computes the gradients of weight and input from that of `out`.
  void backward(std::size_t layer, const Matrix& gradient,
                const Matrix& weight_gradient, const Matrix& input_gradient);

  // update() ends a step: it computes the delayed scales of the next one, and
  // forgets the weights.
  void update(Communicator& communicator);

  // state() is what update() has left, as text; empty if the recipe has none.
  // load_state() throws Error if it is not one of this recipe.
  std::string state() const;
  void load_state(const std::string& state);

 private:
  struct Recipe;
  // Values is a matrix of values of codes that owns its memory. The sum of a
  // product is multiplied by the factor.
  struct Values {
    std::vector<float> data;  // or bfloat16
    ScalarType dtype = kBFloat16;
    std::size_t rows = 0, columns = 0;
    float factor = 1;
    float amax = 0;  // NVFP4

    Matrix resized(const Matrix& like, ScalarType type);
    Matrices matrices() const;
  };
  // Operand is the values of a matrix along rows and along columns; if both are
  // the same, only those along rows.
  struct Operand {
    Values rows, columns;
    bool has_columns = false;
    const Values& along_columns() const { return has_columns ? columns : rows; }
  };
  struct Layer {
    Operand input;
    Operand weight;
    bool has_weight = false;
  };
  enum class Role { input, weight, gradient };

  void quantize(const Matrix& matrix, Role role, std::size_t layer,
                Operand& operand);
  void quantize_blocks(const Matrix& matrix, Role role, ScalarType format,
                       Operand& operand);
  void multiply(const Matrix& out, const Values& a, bool transposes_a,
                const Values& b, bool transposes_b);
  static const Recipe& find(const std::string& name);

  const Recipe& recipe_;
  bool hybrid_;
  Machine& machine_;
  std::optional<ScaleManager> scales_;  // of whole tensors
  std::vector<Layer> layers_;
  Operand gradient_;
  std::vector<float> column_amax_, wide_;
  Random random_{0};
};

}  // namespace swamp::cli

#endif  // SWAMP_MASTER_CLI_TRAIN_FLOAT8_LINEAR_H_
