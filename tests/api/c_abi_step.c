/* The passes of an optimizer through the C ABI. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "c_abi.h"
#include "swamp/c_api.h"

/* Two parameters: one whose model weight is bfloat16, and its gradient too; an
   element more than a vector has. */
enum { kCount = 37, kLists = 5 };
typedef struct {
  float weight[2][kCount], m[2][kCount], v[2][kCount];
  uint16_t gradient[2][kCount], model[2][kCount];
  swamp_tensor tensors[kLists][2];
} arrays;

enum { kMasters, kGradients, kExpAvgs, kExpAvgSqs, kModel };

static void fill(arrays* a) {
  int i, k;
  memset(a, 0, sizeof *a);
  for (k = 0; k < 2; ++k) {
    for (i = 0; i < kCount; ++i) {
      a->weight[k][i] = 1.0f;
      a->gradient[k][i] = k == 0 ? 0x4080 : 0xc080; /* 4, -4 */
      a->model[k][i] = 0x1234;
    }
    a->tensors[kMasters][k].data = a->weight[k];
    a->tensors[kGradients][k].data = a->gradient[k];
    a->tensors[kExpAvgs][k].data = a->m[k];
    a->tensors[kExpAvgSqs][k].data = a->v[k];
    a->tensors[kModel][k].data = a->model[k];
    for (i = 0; i < kLists; ++i) {
      a->tensors[i][k].count = kCount;
      a->tensors[i][k].dtype =
          i == kGradients || i == kModel ? SWAMP_BFLOAT16 : SWAMP_FLOAT32;
    }
  }
}

static swamp_mixed_precision_step_options some_options(void) {
  swamp_mixed_precision_step_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.inv_scale = 0.25f;
  options.lr = 0.5;
  options.beta1 = 0.5;
  options.beta2 = 0.5;
  options.step = 1;
  options.decoupled = 1;
  return options;
}

static swamp_status take(arrays* a,
                         const swamp_mixed_precision_step_options* options,
                         int with_model, float* found_inf, double* norm) {
  return swamp_mixed_precision_step(
      NULL, options, 2, a->tensors[kMasters], a->tensors[kGradients],
      a->tensors[kExpAvgs], a->tensors[kExpAvgSqs],
      with_model ? a->tensors[kModel] : NULL, found_inf, norm);
}

/* All elements of both parameters are equal, except the sign of the step. */
static int all_are(const arrays* a, float first, float second, float m, float v,
                   uint16_t first_model, uint16_t second_model) {
  int i;
  for (i = 0; i < kCount; ++i) {
    if (a->weight[0][i] != first || a->weight[1][i] != second) return 0;
    if (a->m[0][i] != m || a->m[1][i] != -m) return 0;
    if (a->v[0][i] != v || a->v[1][i] != v) return 0;
    if (a->model[0][i] != first_model || a->model[1][i] != second_model) {
      return 0;
    }
  }
  return 1;
}

/* STEP is the step of the local variables. */
#define STEP take(&a, &options, 1, &found_inf, &norm)

int c_abi_step(void) {
  int failed = 0, i, k;
  arrays a;
  float found_inf = 0.0f;
  double norm = 0.0;
  swamp_mixed_precision_step_options options = some_options();

  /* Unscaled gradients of 1 and -1: the first step is lr. With older versions
     of the options, the bytes after them are not read. */
  for (i = 0; i < 4; ++i) {
    const size_t sizes[] = {
        sizeof options,
        offsetof(swamp_mixed_precision_step_options, block_moments),
        offsetof(swamp_mixed_precision_step_options, amsgrad),
        offsetof(swamp_mixed_precision_step_options, optimizer)};
    fill(&a);
    options = some_options();
    if (i > 0) options.float8_moments = 77;
    if (i > 1) options.amsgrad = 77;
    if (i > 2) options.optimizer = 77;
    options.struct_size = (uint32_t)sizes[i];
    OK(STEP);
    CHECK(found_inf == 0.0f && norm == sqrt(2.0 * kCount));
    CHECK(all_are(&a, 0.5f, 1.5f, 0.5f, 0.5f, 0x3f00, 0x3fc0));
  }
  options = some_options();

  /* Without the model's weights, and without a norm. */
  fill(&a);
  OK(take(&a, &options, 0, &found_inf, NULL));
  CHECK(all_are(&a, 0.5f, 1.5f, 0.5f, 0.5f, 0x1234, 0x1234));

  /* The other direction, and a largest second moment of 4 times the new one:
     half of the step. */
  {
    float largest[2][kCount];
    swamp_tensor tensors[2];
    fill(&a);
    for (k = 0; k < 2; ++k) {
      for (i = 0; i < kCount; ++i) largest[k][i] = 2.0f;
      tensors[k] = a.tensors[kMasters][k];
      tensors[k].data = largest[k];
    }
    options.amsgrad = options.maximize = 1;
    INVALID(STEP, "max_exp_avg_sqs: got null");
    options.max_exp_avg_sqs = tensors;
    OK(STEP);
    CHECK(all_are(&a, 1.25f, 0.75f, -0.5f, 0.5f, 0x3fa0, 0x3f40));
    CHECK(largest[0][0] == 2.0f && largest[1][36] == 2.0f);
    options.amsgrad = 0;
    INVALID(STEP, "max_exp_avg_sqs: got a list of 2 tensors");
    options = some_options();
  }

  /* The largest moments of a block, as codes. */
  for (k = 0; k < 2; ++k) {
    uint8_t m[2][kCount], v[2][kCount];
    float absmax[2][2];
    swamp_block_moments moments[2];
    fill(&a);
    memset(m, k == 0 ? 127 : 0, sizeof m);
    memset(v, 0, sizeof v);
    memset(absmax, 0, sizeof absmax);
    for (i = 0; i < 2; ++i) {
      moments[i].exp_avg = m[i];
      moments[i].exp_avg_sq = v[i];
      moments[i].absmax = absmax[i];
    }
    options.block_moments = moments;
    options.float8_moments = k;
    INVALID(STEP, "exp_avgs: got a list of 2 tensors");
    OK(swamp_mixed_precision_step(NULL, &options, 2, a.tensors[kMasters],
                                  a.tensors[kGradients], NULL, NULL,
                                  a.tensors[kModel], &found_inf, &norm));
    CHECK(all_are(&a, 0.5f, 1.5f, 0.0f, 0.0f, 0x3f00, 0x3fc0));
    CHECK(absmax[0][0] == 0.5f && absmax[1][1] == 0.5f);
    CHECK(m[0][36] == (k == 0 ? 255 : 0x7e));
    CHECK(m[1][36] == (k == 0 ? 0 : 0xfe));
    CHECK(v[0][36] == (k == 0 ? 255 : 0x7e) && v[1][0] == v[0][36]);
    options = some_options();
  }

  /* Clipped, as the moments show. The same with an explicit coefficient. */
  fill(&a);
  options.max_norm = sqrt(2.0 * kCount) / 4;
  OK(STEP);
  CHECK(norm == sqrt(2.0 * kCount));
  CHECK(fabsf(a.m[0][36] - 0.125f) < 1e-6f && a.m[1][36] == -a.m[0][36]);
  {
    arrays b;
    const float inv_scale = 0.25f;
    double by_hand = 0.0;
    fill(&b);
    OK(swamp_foreach_norm(NULL, b.tensors[kGradients], 2, &inv_scale,
                          &found_inf, &by_hand));
    CHECK(by_hand == norm && found_inf == 0.0f);
    options.clip_coefficient = (float)(options.max_norm / (by_hand + 1e-6));
    by_hand = -1.0;
    OK(take(&b, &options, 1, &found_inf, &by_hand));
    CHECK(by_hand == -1.0);
    CHECK(memcmp(a.weight, b.weight, sizeof a.weight) == 0);
    CHECK(memcmp(a.m, b.m, sizeof a.m) == 0);
    CHECK(memcmp(a.v, b.v, sizeof a.v) == 0);
    CHECK(memcmp(a.model, b.model, sizeof a.model) == 0);
  }
  OK(swamp_mixed_precision_step(NULL, &options, 0, NULL, NULL, NULL, NULL, NULL,
                                &found_inf, &norm));
  return failed;
}

/* Unscaled gradients are 1 and -1. */
int c_abi_step_sgd(void) {
  int failed = 0;
  arrays a;
  float found_inf = 0.0f;
  double norm = 0.0;
  swamp_mixed_precision_step_options options = some_options();
  options.optimizer = SWAMP_SGD;
  options.beta1 = 2.0; /* not of SGD */
#define TAKE(momenta)                                                \
  swamp_mixed_precision_step(NULL, &options, 2, a.tensors[kMasters], \
                             a.tensors[kGradients], momenta, NULL,   \
                             a.tensors[kModel], &found_inf, &norm)

  fill(&a);
  OK(TAKE(NULL));
  CHECK(norm == sqrt(2.0 * kCount));
  CHECK(all_are(&a, 0.5f, 1.5f, 0.0f, 0.0f, 0x3f00, 0x3fc0));

  /* The first step sets the momentum, whatever the buffer holds. */
  fill(&a);
  options.momentum = 0.5;
  a.m[0][0] = 77.0f;
  OK(TAKE(a.tensors[kExpAvgs]));
  CHECK(all_are(&a, 0.5f, 1.5f, 1.0f, 0.0f, 0x3f00, 0x3fc0));
  options.step = 2;
  OK(TAKE(a.tensors[kExpAvgs]));
  CHECK(all_are(&a, -0.25f, 2.25f, 1.5f, 0.0f, 0xbe80, 0x4010));
  options.nesterov = 1; /* m = 1.75, moved by 1 + 0.875 */
  OK(TAKE(a.tensors[kExpAvgs]));
  CHECK(all_are(&a, -1.1875f, 3.1875f, 1.75f, 0.0f, 0xbf98, 0x404c));

  a.gradient[1][3] = 0x7fc0; /* nan */
  CHECK(TAKE(a.tensors[kExpAvgs]) == SWAMP_OK && found_inf == 1.0f);
  a.gradient[1][3] = 0xc080;
  found_inf = 0.0f;
  norm = 0.0;

  options.dampening = 0.5;
  INVALID(TAKE(a.tensors[kExpAvgs]), "options.dampening: got 0.5");
  options.dampening = 0.0;
  options.nesterov = 2;
  INVALID(TAKE(a.tensors[kExpAvgs]), "options.nesterov: got 2");
  options.nesterov = 0;
  INVALID(TAKE(NULL), "exp_avgs: got null");
  options.momentum = 0.0;
  INVALID(TAKE(a.tensors[kExpAvgs]), "exp_avgs: got a list of 2 tensors");
  INVALID(STEP, "exp_avg_sqs: got a list of 2 tensors");
  options.optimizer = 2;
  INVALID(TAKE(NULL), "options.optimizer: got 2");
#undef TAKE
  CHECK(found_inf == 0.0f && norm == 0.0);
  CHECK(all_are(&a, -1.1875f, 3.1875f, 1.75f, 0.0f, 0xbf98, 0x404c));
  return failed;
}

int c_abi_step_overflow(void) {
  int failed = 0;
  int with_norm;
  swamp_mixed_precision_step_options options = some_options();
  for (with_norm = 0; with_norm < 2; ++with_norm) {
    arrays a;
    float found_inf = 0.0f;
    double norm = 0.0;
    fill(&a);
    a.gradient[1][36] = 0x7f80; /* inf */
    options.max_norm = with_norm;
    OK(take(&a, &options, 1, &found_inf, with_norm ? &norm : NULL));
    CHECK(found_inf == 1.0f);
    CHECK(all_are(&a, 1.0f, 1.0f, 0.0f, 0.0f, 0x1234, 0x1234));
    CHECK(!with_norm || !isfinite(norm));
  }
  return failed;
}

/* The first pass fits into a slave's LDM, the second does not. */
int c_abi_step_second_pass_fails(void) {
  int failed = 0;
  arrays a;
  float found_inf = 0.0f;
  const float inv_scale = 0.25f;
  double norm = -1.0;
  swamp_mixed_precision_step_options options = some_options();
  swamp_machine* machine = NULL;
  swamp_config config;
  memset(&config, 0, sizeof config);
  config.struct_size = sizeof config;
  config.transfer = "copy";
  config.ldm_bytes = 2048;
  OK(swamp_machine_create(&config, &machine));
  fill(&a);
  REFUSED(swamp_mixed_precision_step(machine, &options, 2, a.tensors[kMasters],
                                     a.tensors[kGradients], a.tensors[kExpAvgs],
                                     a.tensors[kExpAvgSqs], a.tensors[kModel],
                                     &found_inf, &norm),
          SWAMP_UNSUPPORTED, "kernel adam", "LDM");
  CHECK(found_inf == 0.0f && norm == -1.0);
  CHECK(all_are(&a, 1.0f, 1.0f, 0.0f, 0.0f, 0x1234, 0x1234));
  OK(swamp_foreach_norm(machine, a.tensors[kGradients], 2, &inv_scale,
                        &found_inf, &norm));
  CHECK(norm == sqrt(2.0 * kCount));
  swamp_machine_destroy(machine);
  return failed;
}

int c_abi_cast(void) {
  int failed = 0;
  float wide[3] = {1.0f, -2.0f, 3.0f};
  uint16_t narrow[3] = {0, 0, 0};
  swamp_tensor in, out;
  in.data = wide;
  out.data = narrow;
  in.count = out.count = 3;
  in.dtype = SWAMP_FLOAT32;
  out.dtype = SWAMP_BFLOAT16;
  OK(swamp_foreach_cast(NULL, 1, &out, &in, 2.0f));
  CHECK(narrow[0] == 0x3f00 && narrow[1] == 0xbf80 && narrow[2] == 0x3fc0);
  OK(swamp_foreach_cast(NULL, 1, &in, &out, 1.0f));
  CHECK(wide[0] == 0.5f && wide[1] == -1.0f && wide[2] == 1.5f);
  out.count = 2;
  INVALID(swamp_foreach_cast(NULL, 1, &out, &in, 1.0f), "out[0].count: got 2");
  CHECK(swamp_foreach_cast(NULL, 1, NULL, &in, 1.0f) == SWAMP_INVALID_ARGUMENT);
  CHECK(narrow[0] == 0x3f00);
  return failed;
}

int c_abi_step_errors(void) {
  int failed = 0;
  arrays a;
  float found_inf = 0.0f;
  const float inv_scale = 1.0f;
  double norm = 0.0;
  swamp_mixed_precision_step_options options = some_options();
  fill(&a);
  a.gradient[0][0] = 0x7f80; /* a bad list counts more than an overflow */

  INVALID(take(&a, NULL, 1, &found_inf, &norm), "options");
  INVALID(take(&a, &options, 1, NULL, &norm), "found_inf");
#define BAD(field, value, word)          \
  options = some_options();              \
  options.field = value;                 \
  CHECK(STEP == SWAMP_INVALID_ARGUMENT); \
  CHECK(says(word))
  BAD(struct_size, 8, "options.struct_size");
  BAD(max_norm, -1.0, "options.max_norm: got -1");
  BAD(max_norm, (double)NAN, "options.max_norm: got nan");
  BAD(lr, -0.5, "options.lr: got -0.5");
  BAD(beta1, 1.0, "options.beta1: got 1");
  BAD(beta2, -0.5, "options.beta2");
  BAD(eps, (double)INFINITY, "options.eps");
  BAD(weight_decay, (double)NAN, "options.weight_decay");
  BAD(step, 0, "options.step: got 0");
  BAD(step, (int64_t)1 << 53, "options.step: got 9007199254740992");
  BAD(step, INT64_MIN, "options.step: got -9223372036854775808");
  BAD(decoupled, 2, "options.decoupled: got 2");
  BAD(amsgrad, 2, "options.amsgrad: got 2");
  BAD(maximize, -1, "options.maximize: got -1");
  BAD(float8_moments, 2, "options.float8_moments: got 2");
  BAD(clip_coefficient, 1.5f, "options.clip_coefficient: got 1.5");
#undef BAD
  options = some_options();
  a.tensors[kExpAvgSqs][1].count = 36;
  INVALID(STEP, "exp_avg_sqs[1].count: got 36");
  a.tensors[kExpAvgSqs][1].count = kCount;
  a.tensors[kMasters][0].dtype = SWAMP_FLOAT64;
  CHECK(STEP == SWAMP_UNSUPPORTED);
  a.tensors[kMasters][0].dtype = SWAMP_FLOAT32;
  a.tensors[kModel][1].data = NULL;
  INVALID(STEP, "model_params[1].data");
  a.tensors[kModel][1].data = a.model[1];
  INVALID(
      swamp_mixed_precision_step(NULL, &options, 2, NULL, a.tensors[kGradients],
                                 a.tensors[kExpAvgs], a.tensors[kExpAvgSqs],
                                 NULL, &found_inf, &norm),
      "masters: got null");

  INVALID(swamp_foreach_norm(NULL, a.tensors[kGradients], 2, NULL, &found_inf,
                             &norm),
          "inv_scale");
  INVALID(swamp_foreach_norm(NULL, a.tensors[kGradients], 2, &inv_scale,
                             &found_inf, NULL),
          "norm");
  CHECK(swamp_foreach_norm(NULL, NULL, 2, &inv_scale, &found_inf, &norm) ==
        SWAMP_INVALID_ARGUMENT);

  CHECK(found_inf == 0.0f && norm == 0.0);
  CHECK(all_are(&a, 1.0f, 1.0f, 0.0f, 0.0f, 0x1234, 0x1234));
  return failed;
}
