/* The row operators: results of small rows, and what is refused. */
#include <math.h>
#include <stddef.h>

#include "c_abi.h"
#include "swamp/c_api.h"

static int near(float got, double expected) {
  return fabs((double)got - expected) <= 2e-6 * (fabs(expected) + 1);
}

int c_abi_rows(void) {
  int failed = 0;
  float x[] = {0, 1, 2, 3, 4, 5}; /* 2 rows */
  float y[6], dx[6], losses[2], lse[2], mean[2], rstd[2], dweight[3], dbias[3];
  float gradients[] = {1, 1}, weights[] = {1, 2, 3}, residual[6] = {0};
  double total[2];
  const int64_t targets[] = {2, 0};
  swamp_matrix mx = {x, 2, 3, SWAMP_FLOAT32};
  swamp_matrix my = {y, 2, 3, SWAMP_FLOAT32};
  swamp_matrix mdx = {dx, 2, 3, SWAMP_FLOAT32};
  swamp_matrix mr = {residual, 2, 3, SWAMP_FLOAT32};
  swamp_row_vector weight = {weights, SWAMP_FLOAT32};
  swamp_softmax_options softmax;
  swamp_cross_entropy_options entropy;
  swamp_norm_options norm;
  const double e = exp(1.0), sum = 1 + e + e * e;
  int i;
  memset(&softmax, 0, sizeof softmax);
  softmax.struct_size = sizeof softmax;
  softmax.scale = 1;
  softmax.causal_rows = 2;
  memset(&entropy, 0, sizeof entropy);
  entropy.struct_size = sizeof entropy;
  entropy.ignore_index = -100;
  memset(&norm, 0, sizeof norm);
  norm.struct_size = sizeof norm;
  norm.eps = 1e-5;

  OK(swamp_scaled_softmax(NULL, &mx, &my, NULL));
  CHECK(near(y[0], 1 / sum) && near(y[1], e / sum) && near(y[5], e * e / sum));
  OK(swamp_scaled_softmax(NULL, &mx, &my, &softmax));
  CHECK(y[0] == 1 && y[1] == 0 && near(y[4], e / (1 + e)) && y[5] == 0);
  OK(swamp_scaled_softmax_backward(NULL, &mx, &my, &mdx, &softmax));
  CHECK(near(dx[4], e / (1 + e) / (1 + e)) && dx[5] == 0);

  OK(swamp_cross_entropy(NULL, &mx, targets, losses, lse, NULL, total));
  CHECK(near(losses[0], log(sum) - 2) && near(losses[1], log(sum)));
  CHECK(near(lse[1], log(sum) + 3) && total[1] == 2);
  CHECK(total[0] == (double)losses[0] + (double)losses[1]);
  OK(swamp_cross_entropy_backward(NULL, &mx, targets, lse, gradients, &mdx,
                                  &entropy));
  CHECK(near(dx[2], e * e / sum - 1) && near(dx[3], 1 / sum - 1));
  {
    /* What lse of large logits lost. Options of version 0.2 end before it. */
    float big[] = {1e8f, 1e8f, 1e8f}, low[1];
    const int64_t first[] = {0};
    swamp_matrix mb = {big, 1, 3, SWAMP_FLOAT32};
    swamp_matrix mg = {dx, 1, 3, SWAMP_FLOAT32};
    entropy.lse_low = low;
    OK(swamp_cross_entropy(NULL, &mb, first, losses, lse, &entropy, NULL));
    CHECK(near(losses[0], log(3.0)) && near(low[0], log(3.0)));
    OK(swamp_cross_entropy_backward(NULL, &mb, first, lse, gradients, &mg,
                                    &entropy));
    CHECK(near(dx[0], -2.0 / 3) && near(dx[1], 1.0 / 3));
    entropy.struct_size = offsetof(swamp_cross_entropy_options, lse_low);
    OK(swamp_cross_entropy_backward(NULL, &mb, first, lse, gradients, &mg,
                                    &entropy));
    CHECK(dx[0] == 0 && dx[1] == 1);
    entropy.struct_size -= 1;
    INVALID(swamp_cross_entropy(NULL, &mb, first, losses, lse, &entropy, NULL),
            "options.struct_size");
    OK(swamp_log_softmax(NULL, &mb, &mg));
    CHECK(near(dx[1], -log(3.0)));
  }

  OK(swamp_layer_norm(NULL, &mx, &weight, NULL, &my, mean, rstd, NULL));
  CHECK(mean[1] == 4 && near(rstd[0], 1 / sqrt(2.0 / 3 + 1e-5)));
  CHECK(near(y[2], 3 / sqrt(2.0 / 3 + 1e-5)));
  OK(swamp_layer_norm_backward(NULL, &mx, &mx, mean, rstd, &weight, NULL,
                               dweight, dbias, &norm));
  CHECK(dbias[0] == 3 && dbias[2] == 7 && near(dweight[1], 0));
  OK(swamp_rms_norm(NULL, &mx, NULL, &my, rstd, &norm));
  CHECK(near(y[2], 2 / sqrt(5.0 / 3 + 1e-5)));
  OK(swamp_rms_norm_backward(NULL, &mx, &mx, rstd, NULL, &mdx, NULL, NULL));
  for (i = 0; i < 6; ++i) CHECK(fabs((double)dx[i]) < 1e-4);
  OK(swamp_log_softmax(NULL, &mx, &my));
  CHECK(near(y[2], 2 - log(sum)) && near(y[3], -log(sum)));
  OK(swamp_log_softmax_backward(NULL, &mx, &my, &mdx));
  CHECK(near(dx[1], 1 - 3 * e / sum) && near(dx[3], 3 - 12 / sum));
  OK(swamp_residual_add(NULL, &mr, &mx, &weight));
  CHECK(residual[0] == 1 && residual[5] == 8);
  {
    /* One image of 2 channels; the groups of GroupNorm are the channels. */
    const swamp_channels batch = {2, 0}, groups = {2, 2}, bad = {4, 0};
    const swamp_tensor all = {x, 6, SWAMP_FLOAT32};
    double sums[3];
    float variance[2];
    OK(swamp_sum(NULL, &all, 2, 3, 1, NULL, sums));
    CHECK(sums[0] == 3 && sums[1] == 12);
    OK(swamp_sum(NULL, &all, 2, 3, 1, x, sums));
    CHECK(sums[0] == 5 && sums[1] == 50);
    OK(swamp_sum(NULL, &all, 1, 2, 3, NULL, sums));
    CHECK(sums[0] == 3 && sums[2] == 7);
    OK(swamp_channel_statistics(NULL, &mx, &batch, 1, mean, variance, rstd));
    CHECK(mean[1] == 4 && near(variance[1], 2.0 / 3));
    CHECK(near(rstd[0], 1 / sqrt(5.0 / 3)));
    OK(swamp_channel_statistics(NULL, &mx, &groups, 1, mean, NULL, rstd));
    OK(swamp_channel_norm(NULL, &mx, &groups, mean, rstd, weights, gradients,
                          &my));
    CHECK(near(y[0], 1 - sqrt(0.6)) && near(y[5], 1 + 2 * sqrt(0.6)));
    OK(swamp_channel_norm_backward(NULL, &mx, &mx, &batch, mean, rstd, weights,
                                   1, &mdx, dweight, dbias));
    CHECK(near(dx[5], 10 * sqrt(0.6)) && dbias[1] == 12);
    CHECK(near(dweight[0], 2 * sqrt(0.6)));
    OK(swamp_channel_norm_backward(NULL, &mx, &mx, &batch, mean, rstd, NULL, 0,
                                   &mdx, NULL, NULL));
    CHECK(near(dx[0], -0.6 * sqrt(0.6)));
    INVALID(swamp_sum(NULL, &all, 2, 2, 1, NULL, sums), "x.count: got 6");
    INVALID(swamp_sum(NULL, &all, 1, 2, 3, x, sums), "shape.inner: got 3");
    INVALID(swamp_sum(NULL, &all, 2, 3, 1, NULL, NULL), "sums");
    INVALID(swamp_sum(NULL, NULL, 2, 3, 1, NULL, sums), "x");
    INVALID(swamp_channel_norm(NULL, &mx, NULL, mean, rstd, NULL, NULL, &my),
            "shape");
    INVALID(swamp_channel_norm(NULL, &mx, &bad, mean, rstd, NULL, NULL, &my),
            "shape.channels: got 4");
    INVALID(swamp_channel_norm_backward(NULL, &mx, &mx, &batch, NULL, rstd,
                                        NULL, 0, &mdx, NULL, NULL),
            "mean");
    CHECK(sums[0] == 3 && near(y[0], 1 - sqrt(0.6)));
  }
  {
    float both[] = {1, -1, 3, 4}, out[2], halves[4];
    swamp_matrix gate = {both, 1, 2, SWAMP_FLOAT32}, up = gate, to = gate;
    swamp_matrix dgate = gate, dup = gate;
    swamp_activation_options relu = {sizeof relu, SWAMP_RELU, 1, 20, 4, 1, 1};
    up.data = both + 2;
    to.data = out;
    dgate.data = halves;
    dup.data = halves + 2;
    INVALID(swamp_activation(NULL, &gate, NULL, &to, &relu),
            "options.row_step: got 4, expected 0 without a gate");
    relu.row_step = 0;
    OK(swamp_activation(NULL, &gate, NULL, &to, &relu));
    CHECK(out[0] == 1 && out[1] == 0);
    relu.row_step = 4;
    OK(swamp_activation(NULL, &gate, &up, &to, &relu));
    CHECK(out[0] == 3 && out[1] == 0);
    relu.row_step = 0;
    OK(swamp_activation_backward(NULL, &up, &gate, NULL, &to, NULL, &relu));
    CHECK(out[0] == 3 && out[1] == 0);
    relu.row_step = 4;
    OK(swamp_activation_backward(NULL, &to, &gate, &up, &dgate, &dup, &relu));
    CHECK(halves[0] == 9 && halves[1] == 0 && halves[2] == 3);
    INVALID(swamp_activation(NULL, &gate, NULL, &to, NULL), "options");
    INVALID(
        swamp_activation_backward(NULL, &to, &gate, NULL, &dgate, &dup, &relu),
        "dup: got a matrix, expected NULL without up");
    relu.row_step = 1;
    INVALID(swamp_activation(NULL, &gate, &up, &to, &relu),
            "options.row_step: got 1, expected 0, or from 2 to 536870912");
    relu.function = (swamp_activation_function)17;
    INVALID(swamp_activation(NULL, &gate, NULL, &to, &relu),
            "options.function: got 17");
  }
  {
    float a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 2}, out[] = {1, 1, 1};
    swamp_matrices ma = {a, 1, 3, 2, 6, 2, 1, SWAMP_FLOAT32};
    swamp_matrices mb = {b, 1, 2, 1, 2, 1, 1, SWAMP_FLOAT32};
    swamp_matrices mo = {out, 1, 3, 1, 3, 1, 1, SWAMP_FLOAT32};
    swamp_product_options product = {sizeof product, 2, 3, &mo, NULL};
    OK(swamp_product(NULL, &mo, &ma, &mb, NULL));
    CHECK(out[0] == 5 && out[1] == 11 && out[2] == 17);
    OK(swamp_product(NULL, &mo, &ma, &mb, &product));
    CHECK(out[0] == 25 && out[2] == 85);
    mb.rows = 1;
    INVALID(swamp_product(NULL, &mo, &ma, &mb, NULL),
            "b.rows: got 1, expected 2");
    INVALID(swamp_product(NULL, &mo, NULL, &mb, NULL), "a");
    product.struct_size = 1;
    INVALID(swamp_product(NULL, &mo, &ma, &mb, &product), "struct_size");
  }
  {
    float from[] = {1, -500, 0.0001f, 0}, to[4];
    uint8_t code[4];
    const swamp_tensor x8 = {from, 4, SWAMP_FLOAT32},
                       y8 = {to, 4, SWAMP_FLOAT32};
    swamp_tensor codes = {code, 4, SWAMP_FLOAT8_E4M3FN};
    swamp_quantize_options how = {sizeof how,      2, SWAMP_NEAREST_AWAY,
                                  SWAMP_CAST_CUDA, 0, NULL};
    swamp_quantize_report report = {sizeof report, 0, 0, 0, 0};
    OK(swamp_quantize(NULL, &x8, &codes, &how, &report));
    CHECK(code[0] == 0x40 && code[1] == 0xff && code[2] == 0 && code[3] == 0);
    CHECK(report.amax == 500 && report.saturated == 1 && report.flushed == 1);
    OK(swamp_quantize(NULL, &x8, &codes, NULL, NULL));
    CHECK(code[0] == 0x38 && code[1] == 0xfe);
    OK(swamp_dequantize(NULL, &codes, &y8, 0.5f));
    CHECK(to[0] == 0.5f && to[1] == -224 && to[2] == 0);
    codes.dtype = SWAMP_MXINT8;
    OK(swamp_quantize(NULL, &x8, &codes, NULL, NULL));
    CHECK(code[0] == 64 && code[1] == 0x81 && code[2] == 0);
    codes.dtype = SWAMP_FLOAT8_E8M0FNU;
    how.rounding = SWAMP_ROUND_UP;
    how.policy = SWAMP_CAST_SATURATE;
    OK(swamp_quantize(NULL, &x8, &codes, &how, NULL));
    CHECK(code[0] == 128 && code[1] == 127 + 10 && code[3] == 0);
    OK(swamp_dequantize(NULL, &codes, &y8, 1));
    CHECK(to[0] == 2 && to[1] == 1024);
    codes.dtype = SWAMP_FLOAT8_E4M3FN;
    OK(swamp_quantize(NULL, &x8, &codes, NULL, NULL));
    OK(swamp_dequantize(NULL, &codes, &y8, 0.5f));
    how.rounding = (swamp_rounding)1000;
    INVALID(swamp_quantize(NULL, &x8, &codes, &how, NULL),
            "options.rounding: got 255");
    report.struct_size = 1;
    INVALID(swamp_quantize(NULL, &x8, &codes, NULL, &report), "struct_size");
    INVALID(swamp_quantize(NULL, NULL, &codes, NULL, NULL), "x");
    INVALID(swamp_dequantize(NULL, &codes, NULL, 1), "x");
    CHECK(code[0] == 0x38 && to[0] == 0.5f);
  }
  {
    float from[32], to[32], largest = 0;
    uint8_t code[32], turned[32], scale[1] = {9}, turned_scale[32];
    const swamp_matrix x8 = {from, 1, 32, SWAMP_FLOAT32},
                       y8 = {to, 1, 32, SWAMP_FLOAT32};
    const swamp_tensor all = {from, 32, SWAMP_FLOAT32};
    const swamp_block_codes rows = {{code, 32, SWAMP_FLOAT8_E4M3FN},
                                    {scale, 1, SWAMP_FLOAT8_E8M0FNU}};
    const swamp_block_codes columns = {
        {turned, 32, SWAMP_FLOAT8_E4M3FN},
        {turned_scale, 32, SWAMP_FLOAT8_E8M0FNU}};
    swamp_block_options how = {
        sizeof how,         SWAMP_BLOCK_MX_FLOOR, 0, 0, 0,
        SWAMP_NEAREST_EVEN, SWAMP_CAST_SATURATE,  0, 0, NULL};
    for (i = 0; i < 32; ++i) from[i] = (float)(i - 16);
    OK(swamp_amax(NULL, &all, 1, &largest));
    CHECK(largest == 16);
    OK(swamp_quantize_blocks(NULL, &x8, &rows, &columns, &how));
    CHECK(scale[0] == 127 + 4 - 8 && code[0] == 0xf8);
    CHECK(turned_scale[0] == 127 + 4 - 8 && turned[0] == 0xf8);
    CHECK(turned_scale[16] == 0 && turned[16] == 0);
    OK(swamp_dequantize_blocks(NULL, &rows, &y8, &how));
    for (i = 0; i < 32; ++i) CHECK(to[i] == from[i]);
    {
      swamp_value_report report = {sizeof report, 0, 0, 0, 0, 0, 0};
      OK(swamp_quantized_values(NULL, &x8, SWAMP_FLOAT8_E4M3FN, &y8, NULL, &how,
                                &report));
      for (i = 0; i < 32; ++i) CHECK(to[i] == from[i]);
      CHECK(report.amax == 16 && report.exact == 1 && report.has_nan == 0);
      CHECK(report.saturated == 0 && report.flushed == 0);
      INVALID(swamp_quantized_values(NULL, &x8, SWAMP_FLOAT8_E4M3FN, NULL, NULL,
                                     &how, NULL),
              "rows");
      report.struct_size = 1;
      INVALID(swamp_quantized_values(NULL, &x8, SWAMP_FLOAT8_E4M3FN, &y8, NULL,
                                     &how, &report),
              "struct_size");
    }
    OK(swamp_hadamard_transform(NULL, &x8, &y8));
    CHECK(to[1] != from[1]);
    {
      swamp_scaled_matrix a = {sizeof a, rows.codes, rows.scales, 1,
                               32,       32,         0,           0};
      float product = 0;
      const swamp_matrix result = {&product, 1, 1, SWAMP_FLOAT32};
      OK(swamp_scaled_product(NULL, &result, &a, &a));
      CHECK(product == 2736); /* the sum of the squares */
      INVALID(swamp_scaled_product(NULL, &result, &a, NULL), "b");
      a.struct_size = 1;
      INVALID(swamp_scaled_product(NULL, &result, &a, &a), "struct_size");
    }
    INVALID(swamp_quantize_blocks(NULL, &x8, NULL, NULL, &how), "rows");
    INVALID(swamp_dequantize_blocks(NULL, NULL, &y8, &how), "codes");
    INVALID(swamp_amax(NULL, &all, 1, NULL), "result");
    how.scaling = (swamp_block_scaling)1000;
    INVALID(swamp_quantize_blocks(NULL, &x8, &rows, NULL, &how),
            "options.scaling: got 255");
    how.struct_size = 1;
    INVALID(swamp_quantize_blocks(NULL, &x8, &rows, NULL, &how), "struct_size");
  }
  return failed;
}

int c_abi_rows_errors(void) {
  int failed = 0;
  float x[4] = {1, 2, 3, 4}, losses[2] = {7, 7}, lse[2];
  int64_t targets[] = {0, 2};
  swamp_matrix m = {x, 2, 2, SWAMP_FLOAT32};
  swamp_matrix other = {x, 2, 1, SWAMP_FLOAT32};
  swamp_softmax_options options;
  memset(&options, 0, sizeof options);
  INVALID(swamp_scaled_softmax(NULL, NULL, &m, NULL), "x");
  INVALID(swamp_scaled_softmax(NULL, &m, &other, NULL),
          "y.columns: got 1, expected 2");
  INVALID(swamp_scaled_softmax(NULL, &m, &m, &options), "options",
          "struct_size");
  INVALID(swamp_cross_entropy(NULL, &m, targets, losses, lse, NULL, NULL),
          "targets[1]: got 2");
  CHECK(losses[0] == 7 && losses[1] == 7);
  m.dtype = SWAMP_FLOAT64;
  REFUSED(swamp_rms_norm(NULL, &m, NULL, &m, lse, NULL), SWAMP_UNSUPPORTED,
          "x.dtype: got 3 (float64)");
  return failed;
}
