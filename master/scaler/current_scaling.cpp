// Recipes without state: the scale of a tensor, row or block depends on its own
// amax only. The rules are in slave/scale_rules.h.
#include <algorithm>

#include "master/scaler/scale_manager.h"
#include "slave/scale_rules.h"

namespace swamp::scaler {
namespace {

BlockScale inverse_of(float scale) { return {scale, 1 / scale}; }

BlockScale e8m0(std::uint32_t code) {
  return {slave::e8m0_factor(code), slave::e8m0_value(code),
          static_cast<std::uint8_t>(code)};
}

BlockScale te(const RecipeOptions& o, const ScaledTensor& t, float amax) {
  return inverse_of(slave::te_scale(
      amax, t.elements.largest, static_cast<float>(o.input_largest),
      o.power_of_2 != 0, static_cast<float>(o.eps)));
}

BlockScale torchao(const RecipeOptions& o, const ScaledTensor& t, float amax) {
  return inverse_of(
      slave::torchao_scale(amax, t.elements.largest, o.power_of_2 != 0));
}

BlockScale mx(const RecipeOptions& o, const ScaledTensor& t, float amax) {
  return e8m0(slave::mx_code(static_cast<slave::MxRule>(o.rule), amax,
                             t.elements.largest, t.elements.mantissa_bits));
}

// The scale of a block of NVFP4 is a float8_e4m3fn, relative to its tensor's
// scale.
BlockScale nvfp4(const slave::Nvfp4Scale& block, float tensor_inv) {
  return {block.factor, slave::e4m3_value(block.code) * tensor_inv,
          static_cast<std::uint8_t>(block.code)};
}

BlockScale te_nvfp4(const RecipeOptions&, const ScaledTensor&, float amax) {
  return inverse_of(slave::te_nvfp4_tensor_scale(amax));
}

BlockScale te_nvfp4_block(const RecipeOptions&, const ScaledTensor& t,
                          float amax) {
  return nvfp4(slave::te_nvfp4_scale(amax, t.scale.scale), t.scale.scale_inv);
}

BlockScale torchao_nvfp4(const RecipeOptions& o, const ScaledTensor&,
                         float amax) {
  if (o.per_tensor == 0) return {};
  const float inverse = slave::torchao_nvfp4_tensor_scale(amax);
  return {1 / inverse, inverse};
}

BlockScale torchao_nvfp4_block(const RecipeOptions&, const ScaledTensor& t,
                               float amax) {
  return nvfp4(slave::torchao_nvfp4_scale(amax, t.scale.scale_inv),
               t.scale.scale_inv);
}

BlockScale modelopt(const RecipeOptions&, const ScaledTensor&, float amax) {
  return inverse_of(slave::modelopt_scale(amax));
}

BlockScale modelopt_mx(const RecipeOptions&, const ScaledTensor& t,
                       float amax) {
  return e8m0(slave::modelopt_mx_code(amax, t.elements.largest));
}

// stored() returns a scale that is stored as max(amax, eps) / largest: HiFloat8
// of torch_npu, and float8 states of optimizers.
BlockScale stored(const RecipeOptions& o, const ScaledTensor& t, float amax) {
  const auto eps = static_cast<float>(o.eps);
  const float inverse = (amax < eps ? eps : amax) / t.elements.largest;
  return {1 / inverse, inverse};
}

// Transformer Engine's FusedAdam has the factor 0 for a float16 state of zeros.
BlockScale te_state(const RecipeOptions& o, const ScaledTensor& t, float amax) {
  BlockScale scale = stored(o, t, amax);
  if (o.formats == double{kHalfOfHalf} && !(scale.scale_inv > 0))
    scale.scale = 0;
  return scale;
}

// recipe() returns a recipe of a rule, which blocks have, too, if `of_blocks`.
Recipe recipe(const char* name, CurrentRule rule, bool of_blocks,
              Formats formats, std::vector<RecipeOption> options) {
  RecipeOptions defaults;
  defaults.formats = formats;
  return {name,
          rule,
          nullptr,
          nullptr,
          of_blocks ? rule : nullptr,
          defaults,
          std::move(options)};
}

Recipe mx_recipe(const char* name, slave::MxRule rule, Formats formats,
                 std::vector<RecipeOption> options) {
  Recipe row = recipe(name, mx, true, formats, std::move(options));
  row.defaults.rule = static_cast<double>(rule);
  return row;
}

// Rows of torchao.float8 have powers of two by default.
Recipe torchao_recipe(const char* name, bool of_rows) {
  Recipe row = recipe(
      name, torchao, of_rows, of_rows ? kE4M3 : kHybrid,
      {{"round_scales_to_power_of_2", &RecipeOptions::power_of_2, {}, true}});
  row.defaults.power_of_2 = of_rows ? 1 : 0;
  return row;
}

Recipe with_eps(Recipe row, double eps) {
  row.defaults.eps = eps;
  return row;
}

Recipe with_blocks(Recipe row, CurrentRule block) {
  row.block = block;
  return row;
}

double word(slave::MxRule rule) { return static_cast<double>(rule); }

}  // namespace

std::vector<Recipe> current_recipes() {
  using slave::MxRule;
  const RecipeOption format = {"fp8_format",
                               &RecipeOptions::formats,
                               {{"E4M3", kE4M3}, {"HYBRID", kHybrid}}};
  const RecipeOption eps = {
      "amax_epsilon",  &RecipeOptions::eps, {}, false, false, 0,
      slave::kFloatMax};
  Recipe te_block = recipe(
      "te.Float8BlockScaling", te, true, kE4M3,
      {format,
       eps,
       {"power_2_scale", &RecipeOptions::power_of_2, {}, true},
       // An infinite scale becomes the largest number of the input's dtype.
       {"input_dtype",
        &RecipeOptions::input_largest,
        {{"float32", slave::kFloatMax},
         {"bfloat16", 0x1.fep127},
         {"float16", 65504}}}});
  te_block.defaults.power_of_2 = 1;
  return {
      recipe("te.Float8CurrentScaling", te, false, kHybrid,
             {format,
              eps,
              {"use_power_2_scales", &RecipeOptions::power_of_2, {}, true}}),
      std::move(te_block),
      mx_recipe("te.MXFP8BlockScaling", MxRule::te, kE4M3, {format}),
      with_blocks(
          recipe("te.NVFP4BlockScaling", te_nvfp4, false, kE2M1,
                 {{"fp4_format", &RecipeOptions::formats, {{"E2M1", kE2M1}}}}),
          te_nvfp4_block),
      torchao_recipe("torchao.float8.tensorwise", false),
      torchao_recipe("torchao.float8.rowwise", true),
      torchao_recipe("torchao.float8.rowwise_with_gw_hp", true),
      mx_recipe("torchao.mx", MxRule::floor, kE4M3,
                {{"elem_dtype",
                  &RecipeOptions::formats,
                  {{"float8_e4m3fn", kE4M3},
                   {"float8_e5m2", kE5M2},
                   {"float6_e2m3", kE2M3},
                   {"float6_e3m2", kE3M2},
                   {"float4_e2m1fn_x2", kE2M1}}},
                 {"scaling_mode",
                  &RecipeOptions::rule,
                  {{"floor", word(MxRule::floor)},
                   {"ceil", word(MxRule::ceil)},
                   {"even", word(MxRule::even)},
                   {"rceil", word(MxRule::rceil)}}}}),
      with_blocks(
          recipe(
              "torchao.nvfp4", torchao_nvfp4, false, kE2M1,
              {{"use_per_tensor_scale", &RecipeOptions::per_tensor, {}, true}}),
          torchao_nvfp4_block),
      mx_recipe("microxcaling", MxRule::microxcaling, kE4M3,
                {{"elem_format",
                  &RecipeOptions::formats,
                  {{"fp8_e4m3", kE4M3},
                   {"fp8_e5m2", kE5M2},
                   {"fp6_e3m2", kE3M2},
                   {"fp6_e2m3", kE2M3},
                   {"fp4_e2m1", kE2M1},
                   {"int8", kInt8}}}}),
      // A row of a matrix.
      with_eps(recipe("torch_npu.hifloat8", stored, true, kHiFloat8, {}),
               1e-12),
      recipe("modelopt.fp8", modelopt, false, kE4M3, {}),
      recipe("modelopt.mxfp8", modelopt_mx, true, kE4M3, {}),
      recipe("te.FusedAdam", te_state, false, kE4M3,
             {{"exp_avg_dtype",
               &RecipeOptions::formats,
               {{"uint8", kE4M3}, {"float16", kHalfOfHalf}}}}),
      with_eps(recipe("torchao.AdamWFp8", stored, true, kE4M3, {}), 1e-12)};
}

}  // namespace swamp::scaler
