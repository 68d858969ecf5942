// The C ABI of the row operators, of products and of 8-bit formats.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "master/c_guard.h"
#include "master/text.h"
#include "swamp/activation.h"
#include "swamp/c_api.h"
#include "swamp/channel_norm.h"
#include "swamp/float8.h"
#include "swamp/product.h"
#include "swamp/rows.h"

using swamp::guarded;
using swamp::machine_of;
using swamp::require;
using swamp::require_struct_size;

namespace {

swamp::SoftmaxOptions read(const swamp_softmax_options* options) {
  swamp::SoftmaxOptions out;
  if (options == nullptr) return out;
  require_struct_size("options", options->struct_size, sizeof *options);
  out.scale = options->scale;
  out.round_scale = options->round_scale != 0;
  out.zero_masked_rows = options->uniform_if_masked == 0;
  out.causal_rows = options->causal_rows;
  out.mask = {options->mask, options->mask_batches, options->mask_heads,
              options->mask_query_rows};
  return out;
}

// has_lse_low() returns whether options of a valid struct_size have lse_low,
// which version 0.2 has not.
bool has_lse_low(const swamp_cross_entropy_options* options) {
  constexpr std::size_t kWithout =
      offsetof(swamp_cross_entropy_options, lse_low);
  return options != nullptr && options->struct_size != kWithout;
}

float* lse_low_of(const swamp_cross_entropy_options* options) {
  return has_lse_low(options) ? options->lse_low : nullptr;
}

swamp::CrossEntropyOptions read(const swamp_cross_entropy_options* options) {
  swamp::CrossEntropyOptions out;
  if (options == nullptr) return out;
  if (has_lse_low(options)) {
    require_struct_size("options", options->struct_size, sizeof *options);
  }
  out.ignore_index = options->ignore_index;
  out.label_smoothing = options->label_smoothing;
  out.z_loss = options->z_loss;
  out.class_weights = options->class_weights;
  return out;
}

swamp::NormOptions read(const swamp_norm_options* options) {
  swamp::NormOptions out;
  if (options == nullptr) return out;
  require_struct_size("options", options->struct_size, sizeof *options);
  out.eps = options->eps;
  out.zero_centered_weight = options->zero_centered_weight != 0;
  return out;
}

const swamp_matrix& matrix(const swamp_matrix* pointer, const char* name) {
  require(pointer, name);
  return *pointer;
}

swamp_row_vector vector_or_none(const swamp_row_vector* pointer) {
  return pointer != nullptr ? *pointer
                            : swamp_row_vector{nullptr, SWAMP_FLOAT32};
}

swamp::Matrices read(const swamp_matrices* pointer, const char* name) {
  require(pointer, name);
  return {pointer->data,        pointer->batch,      pointer->rows,
          pointer->columns,     pointer->batch_step, pointer->row_step,
          pointer->column_step, pointer->dtype};
}

swamp::ChannelShape read(const swamp_channels* shape) {
  require(shape, "shape");
  return {shape->channels, shape->groups};
}

swamp_matrix matrix_or_none(const swamp_matrix* pointer) {
  return pointer != nullptr ? *pointer
                            : swamp_matrix{nullptr, 0, 0, SWAMP_FLOAT32};
}

}  // namespace

swamp_status swamp_scaled_softmax(swamp_machine* machine, const swamp_matrix* x,
                                  const swamp_matrix* y,
                                  const swamp_softmax_options* options) {
  return guarded([&] {
    swamp::scaled_softmax(matrix(x, "x"), matrix(y, "y"), read(options),
                          machine_of(machine));
  });
}

swamp_status swamp_scaled_softmax_backward(
    swamp_machine* machine, const swamp_matrix* gradient, const swamp_matrix* y,
    const swamp_matrix* dx, const swamp_softmax_options* options) {
  return guarded([&] {
    swamp::scaled_softmax_backward(matrix(gradient, "gradient"), matrix(y, "y"),
                                   matrix(dx, "dx"), read(options),
                                   machine_of(machine));
  });
}

swamp_status swamp_cross_entropy(swamp_machine* machine,
                                 const swamp_matrix* logits,
                                 const int64_t* targets, float* losses,
                                 float* lse,
                                 const swamp_cross_entropy_options* options,
                                 double total[2]) {
  return guarded([&] {
    const swamp::CrossEntropyOptions how = read(options);
    const swamp::CrossEntropyTotal sums =
        swamp::cross_entropy(matrix(logits, "logits"), targets, losses, lse,
                             lse_low_of(options), how, machine_of(machine));
    if (total == nullptr) return;
    total[0] = sums.loss;
    total[1] = sums.weight;
  });
}

swamp_status swamp_cross_entropy_backward(
    swamp_machine* machine, const swamp_matrix* logits, const int64_t* targets,
    const float* lse, const float* gradients, const swamp_matrix* dx,
    const swamp_cross_entropy_options* options) {
  return guarded([&] {
    const swamp::CrossEntropyOptions how = read(options);
    swamp::cross_entropy_backward(matrix(logits, "logits"), targets, lse,
                                  lse_low_of(options), gradients,
                                  matrix(dx, "dx"), how, machine_of(machine));
  });
}

swamp_status swamp_layer_norm(swamp_machine* machine, const swamp_matrix* x,
                              const swamp_row_vector* weight,
                              const swamp_row_vector* bias,
                              const swamp_matrix* y, float* mean, float* rstd,
                              const swamp_norm_options* options) {
  return guarded([&] {
    swamp::layer_norm(matrix(x, "x"), vector_or_none(weight),
                      vector_or_none(bias), matrix(y, "y"), mean, rstd,
                      read(options), machine_of(machine));
  });
}

swamp_status swamp_layer_norm_backward(
    swamp_machine* machine, const swamp_matrix* gradient, const swamp_matrix* x,
    const float* mean, const float* rstd, const swamp_row_vector* weight,
    const swamp_matrix* dx, float* dweight, float* dbias,
    const swamp_norm_options* options) {
  return guarded([&] {
    swamp::layer_norm_backward(matrix(gradient, "gradient"), matrix(x, "x"),
                               mean, rstd, vector_or_none(weight),
                               matrix_or_none(dx), dweight, dbias,
                               read(options), machine_of(machine));
  });
}

swamp_status swamp_rms_norm(swamp_machine* machine, const swamp_matrix* x,
                            const swamp_row_vector* weight,
                            const swamp_matrix* y, float* rstd,
                            const swamp_norm_options* options) {
  return guarded([&] {
    swamp::rms_norm(matrix(x, "x"), vector_or_none(weight), matrix(y, "y"),
                    rstd, read(options), machine_of(machine));
  });
}

swamp_status swamp_rms_norm_backward(swamp_machine* machine,
                                     const swamp_matrix* gradient,
                                     const swamp_matrix* x, const float* rstd,
                                     const swamp_row_vector* weight,
                                     const swamp_matrix* dx, float* dweight,
                                     const swamp_norm_options* options) {
  return guarded([&] {
    swamp::rms_norm_backward(matrix(gradient, "gradient"), matrix(x, "x"), rstd,
                             vector_or_none(weight), matrix_or_none(dx),
                             dweight, read(options), machine_of(machine));
  });
}

swamp_status swamp_log_softmax(swamp_machine* machine, const swamp_matrix* x,
                               const swamp_matrix* y) {
  return guarded([&] {
    swamp::log_softmax(matrix(x, "x"), matrix(y, "y"), machine_of(machine));
  });
}

swamp_status swamp_log_softmax_backward(swamp_machine* machine,
                                        const swamp_matrix* gradient,
                                        const swamp_matrix* y,
                                        const swamp_matrix* dx) {
  return guarded([&] {
    swamp::log_softmax_backward(matrix(gradient, "gradient"), matrix(y, "y"),
                                matrix(dx, "dx"), machine_of(machine));
  });
}

swamp_status swamp_sum(swamp_machine* machine, const swamp_tensor* x,
                       size_t outer, size_t terms, size_t inner,
                       const void* factor, double* sums) {
  return guarded([&] {
    require(x, "x");
    swamp::sum(*x, {outer, terms, inner}, sums, machine_of(machine), factor);
  });
}

swamp_status swamp_channel_statistics(swamp_machine* machine,
                                      const swamp_matrix* x,
                                      const swamp_channels* shape, double eps,
                                      float* mean, float* variance,
                                      float* rstd) {
  return guarded([&] {
    swamp::channel_statistics(matrix(x, "x"), read(shape), eps, mean, variance,
                              rstd, machine_of(machine));
  });
}

swamp_status swamp_channel_norm(swamp_machine* machine, const swamp_matrix* x,
                                const swamp_channels* shape, const float* mean,
                                const float* rstd, const float* weight,
                                const float* bias, const swamp_matrix* y) {
  return guarded([&] {
    swamp::channel_norm(matrix(x, "x"), read(shape), mean, rstd, weight, bias,
                        matrix(y, "y"), machine_of(machine));
  });
}

swamp_status swamp_channel_norm_backward(
    swamp_machine* machine, const swamp_matrix* gradient, const swamp_matrix* x,
    const swamp_channels* shape, const float* mean, const float* rstd,
    const float* weight, int32_t is_fixed, const swamp_matrix* dx,
    float* dweight, float* dbias) {
  return guarded([&] {
    swamp::channel_norm_backward(matrix(gradient, "gradient"), matrix(x, "x"),
                                 read(shape), mean, rstd, weight, is_fixed != 0,
                                 matrix_or_none(dx), dweight, dbias,
                                 machine_of(machine));
  });
}

swamp_status swamp_residual_add(swamp_machine* machine,
                                const swamp_matrix* residual,
                                const swamp_matrix* x,
                                const swamp_row_vector* bias) {
  return guarded([&] {
    swamp::residual_add_(matrix(residual, "residual"), matrix(x, "x"),
                         vector_or_none(bias), machine_of(machine));
  });
}

namespace {

// narrow() converts an enum of the C ABI to 8 bits. A caller may have set it to
// anything; a larger value becomes the largest one, which is refused.
template <class Enum>
std::uint8_t narrow(const Enum& value) {
  std::uint32_t bits;
  static_assert(sizeof value == sizeof bits);
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint8_t>(std::min(bits, std::uint32_t{255}));
}

swamp::ActivationOptions read(const swamp_activation_options* options) {
  require(options, "options");
  require_struct_size("options", options->struct_size, sizeof *options);
  return {static_cast<swamp::Activation>(narrow(options->function)),
          options->beta,
          options->threshold,
          options->row_step,
          options->alpha,
          options->scale};
}

swamp::BlockOptions block_options(const swamp_block_options* options) {
  swamp::BlockOptions how;
  if (options == nullptr) return how;
  require_struct_size("options", options->struct_size, sizeof *options);
  how.scaling = static_cast<swamp::BlockScaling>(narrow(options->scaling));
  how.block = options->block;
  how.square = options->square != 0;
  how.tensor_amax = options->tensor_amax;
  how.rounding = static_cast<swamp::Rounding>(narrow(options->rounding));
  how.policy = static_cast<swamp::CastPolicy>(narrow(options->policy));
  how.hadamard = options->hadamard != 0;
  how.seed = options->seed;
  how.random = options->random;
  return how;
}

swamp::BlockCodes block_codes(const swamp_block_codes* codes) {
  return codes == nullptr ? swamp::BlockCodes{}
                          : swamp::BlockCodes{codes->codes, codes->scales};
}

}  // namespace

swamp_status swamp_activation(swamp_machine* machine, const swamp_matrix* x,
                              const swamp_matrix* up, const swamp_matrix* y,
                              const swamp_activation_options* options) {
  return guarded([&] {
    if (up == nullptr) {
      swamp::activation(matrix(x, "x"), matrix(y, "y"), read(options),
                        machine_of(machine));
    } else {
      swamp::gated_activation(matrix(x, "x"), *up, matrix(y, "y"),
                              read(options), machine_of(machine));
    }
  });
}

swamp_status swamp_activation_backward(
    swamp_machine* machine, const swamp_matrix* gradient, const swamp_matrix* x,
    const swamp_matrix* up, const swamp_matrix* dx, const swamp_matrix* dup,
    const swamp_activation_options* options) {
  return guarded([&] {
    if (up == nullptr) {
      if (dup != nullptr) {
        swamp::master::refuse("dup", "a matrix", "NULL without up");
      }
      swamp::activation_backward(matrix(gradient, "gradient"), matrix(x, "x"),
                                 matrix(dx, "dx"), read(options),
                                 machine_of(machine));
    } else {
      swamp::gated_activation_backward(
          matrix(gradient, "gradient"), matrix(x, "x"), *up, matrix(dx, "dx"),
          matrix(dup, "dup"), read(options), machine_of(machine));
    }
  });
}

swamp_status swamp_quantize_blocks(swamp_machine* machine,
                                   const swamp_matrix* x,
                                   const swamp_block_codes* rows,
                                   const swamp_block_codes* columns,
                                   const swamp_block_options* options) {
  return guarded([&] {
    const swamp::BlockCodes along_rows = block_codes(rows);
    const swamp::BlockCodes along_columns = block_codes(columns);
    swamp::quantize_blocks(matrix(x, "x"),
                           rows == nullptr ? nullptr : &along_rows,
                           columns == nullptr ? nullptr : &along_columns,
                           block_options(options), machine_of(machine));
  });
}

swamp_status swamp_quantized_values(swamp_machine* machine,
                                    const swamp_matrix* x, swamp_dtype format,
                                    const swamp_matrix* rows,
                                    const swamp_matrix* columns,
                                    const swamp_block_options* options,
                                    swamp_value_report* report) {
  return guarded([&] {
    if (report != nullptr) {
      require_struct_size("report", report->struct_size, sizeof *report);
    }
    const swamp::ValueReport seen = swamp::quantized_values(
        matrix(x, "x"), swamp::ScalarType{format}, rows, columns,
        block_options(options), machine_of(machine));
    if (report == nullptr) return;
    report->amax = seen.amax;
    report->column_amax = seen.column_amax;
    report->has_nan = seen.has_nan ? 1 : 0;
    report->exact = seen.exact ? 1 : 0;
    report->saturated = seen.saturated;
    report->flushed = seen.flushed;
  });
}

swamp_status swamp_dequantize_blocks(swamp_machine* machine,
                                     const swamp_block_codes* codes,
                                     const swamp_matrix* x,
                                     const swamp_block_options* options) {
  return guarded([&] {
    require(codes, "codes");
    swamp::dequantize_blocks(block_codes(codes), matrix(x, "x"),
                             block_options(options), machine_of(machine));
  });
}

swamp_status swamp_amax(swamp_machine* machine, const swamp_tensor* x,
                        int32_t skip_nan, float* result) {
  return guarded([&] {
    require(x, "x");
    require(result, "result");
    *result = swamp::amax(*x, skip_nan != 0, machine_of(machine));
  });
}

swamp_status swamp_hadamard_transform(swamp_machine* machine,
                                      const swamp_matrix* x,
                                      const swamp_matrix* out) {
  return guarded([&] {
    swamp::hadamard_transform(matrix(x, "x"), matrix(out, "out"),
                              machine_of(machine));
  });
}

swamp_status swamp_scaled_product(swamp_machine* machine,
                                  const swamp_matrix* out,
                                  const swamp_scaled_matrix* a,
                                  const swamp_scaled_matrix* b) {
  return guarded([&] {
    const auto scaled = [](const swamp_scaled_matrix* x, const char* name) {
      require(x, name);
      require_struct_size(name, x->struct_size, sizeof *x);
      return swamp::ScaledMatrix{x->codes,      x->scales, x->rows,
                                 x->columns,    x->block,  x->square != 0,
                                 x->tensor_amax};
    };
    swamp::product(matrix(out, "out"), scaled(a, "a"), scaled(b, "b"),
                   machine_of(machine));
  });
}

swamp_status swamp_quantize(swamp_machine* machine, const swamp_tensor* x,
                            const swamp_tensor* codes,
                            const swamp_quantize_options* options,
                            swamp_quantize_report* report) {
  return guarded([&] {
    require(x, "x");
    require(codes, "codes");
    swamp::QuantizeOptions how;
    if (options != nullptr) {
      require_struct_size("options", options->struct_size, sizeof *options);
      how.scale = options->scale;
      how.rounding = static_cast<swamp::Rounding>(narrow(options->rounding));
      how.policy = static_cast<swamp::CastPolicy>(narrow(options->policy));
      how.seed = options->seed;
      how.random = options->random;
    }
    if (report != nullptr) {
      require_struct_size("report", report->struct_size, sizeof *report);
    }
    const swamp::QuantizeReport seen =
        swamp::quantize(*x, *codes, how, machine_of(machine));
    if (report == nullptr) return;
    report->amax = seen.amax;
    report->saturated = seen.saturated;
    report->flushed = seen.flushed;
    report->nan_count = seen.nan_count;
  });
}

swamp_status swamp_dequantize(swamp_machine* machine, const swamp_tensor* codes,
                              const swamp_tensor* x, float scale) {
  return guarded([&] {
    require(codes, "codes");
    require(x, "x");
    swamp::dequantize(*codes, *x, scale, machine_of(machine));
  });
}

swamp_status swamp_product(swamp_machine* machine, const swamp_matrices* out,
                           const swamp_matrices* a, const swamp_matrices* b,
                           const swamp_product_options* options) {
  return guarded([&] {
    swamp::ProductOptions how;
    swamp::Matrices self;
    swamp::Gather gather;
    if (options != nullptr) {
      require_struct_size("options", options->struct_size, sizeof *options);
      how.alpha = options->alpha;
      how.beta = options->beta;
      if (options->self != nullptr) {
        self = read(options->self, "options.self");
        how.self = &self;
      }
      if (options->gather != nullptr) {
        const auto& [rows, columns] = *options->gather;
        gather = {{rows.begins, rows.length}, {columns.begins, columns.length}};
        how.gather = &gather;
      }
    }
    swamp::product(read(out, "out"), read(a, "a"), read(b, "b"), how,
                   machine_of(machine));
  });
}
