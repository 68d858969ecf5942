// The operators of PyTorch that unreproducible.cpp is in front of.
#ifndef SWAMP_MASTER_ATEN_UNREPRODUCIBLE_TABLE_H_
#define SWAMP_MASTER_ATEN_UNREPRODUCIBLE_TABLE_H_

namespace swamp::aten::unreproducible {

constexpr unsigned kFloat = 1, kHalf = 2, kBfloat16 = 4, kDouble = 8,
                   kComplex = 16, kInteger = 32, kOther = 64,
                   kSparse = 128;  // floats in a sparse layout
// swamp has no kernels of kWide; integers become floats in kNumbers.
constexpr unsigned k16Bits = kHalf | kBfloat16, kWide = kDouble | kComplex,
                   kFloats = kFloat | kWide, kAll = kFloats | k16Bits,
                   kNumbers = kFloats | kInteger;

enum class Depends {
  kThreads,      // one thread has the same bits on every CPU
  kRealThreads,  // the same, but complex numbers depend on the CPU
  kCpu,
  kCpuAndThreads
};

// Copies is what is computed in float32 at a time, if anything.
enum class Copies {
  kWhole,
  kLarger,   // the same if images become larger: of others PyTorch reads a part
  kReduced,  // slices of a dimension that the second argument does not name, as
             // it has that of a reduction; otherwise whole tensors, but large
             // ones stay PyTorch's, which is faster
  kImages,   // the same of slices of the first of three dimensions
  kImageGradients,  // slices of contiguous images of a gradient; of the second
                    // argument only the sizes are read
  kLargest,         // nothing: extremum() computes the result
  kSmallest,
  kBits,  // nothing: the operator only moves elements, so it moves integers
  kTable  // nothing: results of the operator's own are looked up
};

// Exact is which calls have the same bits everywhere, although others of the
// operator do not.
enum class Exact {
  kNone,
  kProducts,     // powers of real numbers that are products and the like
  kRealDivisor,  // complex numbers over real ones
};

struct Row {
  const char* name;  // also of the operators that write it in place or to `out`
  unsigned types;    // whose bits depend on
  Depends depends;
  unsigned widened = 0;  // types that are computed in float32
  Copies copies = Copies::kWhole;
  Exact exact = Exact::kNone;
};

constexpr Row unless(Exact exact, const char* name, unsigned types,
                     Depends depends) {
  return {name, types, depends, 0, Copies::kWhole, exact};
}

constexpr Row widened(const char* name, unsigned types,
                      Copies copies = Copies::kWhole) {
  return {name, 0, Depends::kCpu, types, copies};
}

// tests/torch/package_unreproducible.py has a call of each.
constexpr Row kRows[] = {
    {"_index_put_impl_", kFloats, Depends::kThreads},
    {"put_", kFloats, Depends::kThreads},
    {"prod", kAll, Depends::kRealThreads},
    {"sum.dim_IntList", kWide, Depends::kThreads},
    {"sum.IntList_out", kWide, Depends::kThreads},  // mean() calls it
    {"nansum", kDouble, Depends::kThreads},
    {"var.correction", kWide, Depends::kThreads, k16Bits},
    {"std.correction", kWide, Depends::kThreads, k16Bits},
    {"var_mean.correction", kWide, Depends::kThreads, k16Bits},
    {"std_mean.correction", kWide, Depends::kThreads, k16Bits},
    {"histogram.bin_ct", kAll, Depends::kThreads},
    {"histogram.bins_tensor", kAll, Depends::kThreads},
    {"_histogramdd_from_bin_cts", kAll, Depends::kThreads},
    {"_histogramdd_from_bin_tensors", kAll, Depends::kThreads},
    {"prod.dim_int", kComplex, Depends::kCpu},
    {"prod.int_out", kComplex, Depends::kCpu},
    unless(Exact::kProducts, "pow.Tensor_Scalar", kWide,
           Depends::kCpuAndThreads),
    unless(Exact::kProducts, "pow_.Scalar", kWide, Depends::kCpuAndThreads),
    unless(Exact::kRealDivisor, "div.Tensor", kComplex,
           Depends::kCpuAndThreads),
    {"_fused_adam_", kFloat | kDouble, Depends::kCpu},
    {"_fused_adam_.tensor_lr", kFloat | kDouble, Depends::kCpu},
    {"_fused_adamw_", kFloat | kDouble, Depends::kCpu},
    {"_fused_adamw_.tensor_lr", kFloat | kDouble, Depends::kCpu},
    {"_fused_sgd_", kFloat | kDouble, Depends::kCpu},
    {"_fused_sgd_.tensor_lr", kFloat | kDouble, Depends::kCpu},
    {"_fused_adagrad_", kFloat | kDouble, Depends::kCpu},
    {"_fused_adagrad_.tensor_lr", kFloat | kDouble, Depends::kCpu},
    {"_transformer_encoder_layer_fwd", kFloats, Depends::kCpuAndThreads},
    {"_native_multi_head_attention", kFloats, Depends::kCpuAndThreads},
    {"_cdist_forward", kFloats, Depends::kCpu},
    {"_cdist_backward", kFloats, Depends::kCpu},
    {"_pdist_forward", kFloats, Depends::kCpu},
    {"_pdist_backward", kFloats, Depends::kCpu},
    {"mm", kWide | kSparse, Depends::kCpuAndThreads},
    {"addmm", kWide | kSparse, Depends::kCpuAndThreads},
    {"bmm", kWide | kSparse, Depends::kCpuAndThreads},
    {"addmv", kWide | kSparse, Depends::kCpuAndThreads},
    {"mv", kSparse, Depends::kCpuAndThreads},
    {"erf", kAll | kInteger, Depends::kCpu},
    {"erfc", kNumbers, Depends::kCpu, k16Bits, Copies::kTable},
    {"erfinv", kNumbers, Depends::kCpu, k16Bits, Copies::kTable},
    {"log2", kNumbers, Depends::kCpu, k16Bits, Copies::kTable},
    {"log10", kNumbers, Depends::kCpu, k16Bits, Copies::kTable},
    {"tan", kNumbers, Depends::kCpu, k16Bits, Copies::kTable},
    {"atan", kNumbers, Depends::kCpu, k16Bits, Copies::kTable},
    {"asin", kAll | kInteger, Depends::kCpu, k16Bits, Copies::kTable},
    {"acos", kAll | kInteger, Depends::kCpu, k16Bits, Copies::kTable},
    {"sin", kWide | kInteger, Depends::kCpuAndThreads, k16Bits, Copies::kTable},
    {"cos", kWide | kInteger, Depends::kCpuAndThreads, k16Bits, Copies::kTable},
    {"logit", kWide | kInteger, Depends::kCpuAndThreads, k16Bits,
     Copies::kTable},
    {"xlogy.Tensor", kNumbers, Depends::kCpuAndThreads, k16Bits},
    {"igamma", kFloats, Depends::kCpuAndThreads},
    {"igammac", kFloats, Depends::kCpuAndThreads},
    {"sinh", kNumbers, Depends::kCpuAndThreads},
    {"cosh", kNumbers, Depends::kCpuAndThreads},
    {"atanh", kNumbers, Depends::kCpuAndThreads},
    {"atan2", kNumbers | kHalf, Depends::kCpuAndThreads},
    {"lgamma", kNumbers | kHalf, Depends::kCpu},
    {"digamma", kNumbers, Depends::kCpu},
    {"i0", kNumbers, Depends::kCpu},
    {"special_i0e", kAll | kInteger, Depends::kCpuAndThreads},
    {"special_i1", kNumbers | kHalf, Depends::kCpu},
    {"special_ndtri", kNumbers, Depends::kCpu},
    {"logaddexp", kFloats, Depends::kCpuAndThreads},
    {"logaddexp2", kFloats, Depends::kCpuAndThreads},
    {"softshrink", kAll, Depends::kCpuAndThreads},
    {"pow.Tensor_Tensor", kFloats, Depends::kCpuAndThreads},
    {"pow_.Tensor", kFloats, Depends::kCpuAndThreads},
    {"linalg_vector_norm", kFloats, Depends::kCpu},
    {"_weight_norm_interface", kAll, Depends::kCpu},
    {"_weight_norm_interface_backward", kAll, Depends::kCpu},
    {"linalg_cross", kFloats, Depends::kCpu},
    {"polygamma", kNumbers, Depends::kCpu},
    {"mkldnn_rnn_layer", kFloats, Depends::kCpu},
    {"_fft_r2c", kFloats, Depends::kCpuAndThreads},
    {"_fft_c2r", kComplex, Depends::kCpuAndThreads},
    {"_fft_c2c", kComplex, Depends::kCpuAndThreads},
    {"addr", kFloats, Depends::kCpuAndThreads},
    {"upsample_linear1d", kFloats, Depends::kCpu, k16Bits, Copies::kLarger},
    {"upsample_linear1d_backward", kAll, Depends::kCpu},
    {"upsample_bilinear2d", kAll, Depends::kCpu},
    {"upsample_bilinear2d_backward", kAll, Depends::kCpu},
    {"upsample_trilinear3d", kFloats | kHalf, Depends::kCpu, k16Bits,
     Copies::kLarger},
    {"upsample_trilinear3d_backward", kAll, Depends::kCpu},
    {"upsample_bicubic2d", kAll, Depends::kCpu, k16Bits, Copies::kLarger},
    {"_upsample_bilinear2d_aa", kFloats, Depends::kCpu},
    {"_upsample_bilinear2d_aa_backward", kFloats, Depends::kCpu},
    {"_upsample_bicubic2d_aa", kFloats, Depends::kCpu},
    {"_upsample_bicubic2d_aa_backward", kFloats, Depends::kCpu},
    {"grid_sampler_2d", kFloats, Depends::kCpu, k16Bits},
    {"grid_sampler_2d_backward", kFloats, Depends::kCpu, k16Bits},
    {"normal_", kAll, Depends::kCpu},
    widened("amax", k16Bits, Copies::kLargest),
    widened("amin", k16Bits, Copies::kSmallest),
    widened("argmax", k16Bits, Copies::kReduced),
    widened("argmin", k16Bits, Copies::kReduced),
    widened("max.dim", k16Bits, Copies::kReduced),
    widened("min.dim", k16Bits, Copies::kReduced),
    widened("logsumexp", k16Bits),
    widened("_adaptive_avg_pool3d", k16Bits),
    widened("avg_pool2d_backward", k16Bits, Copies::kImageGradients),
    widened("_adaptive_avg_pool2d_backward", k16Bits, Copies::kImageGradients),
    widened("_adaptive_avg_pool3d_backward", k16Bits, Copies::kImageGradients),
    widened("gather", k16Bits, Copies::kBits),
    widened("flip", k16Bits, Copies::kBits),
    widened("scatter_.src", k16Bits, Copies::kBits),
    widened("scatter.src", k16Bits, Copies::kBits),
    {"binary_cross_entropy", kWide, Depends::kCpuAndThreads, k16Bits},
    widened("binary_cross_entropy_backward", k16Bits),
    widened("col2im", k16Bits, Copies::kImages),  // the gradient of unfold()
    {"_embedding_bag_dense_backward", kAll, Depends::kCpu, k16Bits},
    widened("grid_sampler_3d", k16Bits),
    widened("grid_sampler_3d_backward", k16Bits),
};

// Names has more operators whose bits depend on the CPU and the threads. Those
// of kWide are swamp's in other types, or have the same float32 bits
// everywhere.
struct Names {
  unsigned types;
  const char* names;
};
constexpr Names kNames[] = {
    {kNumbers,
     "hypot special_airy_ai special_bessel_j0 special_bessel_j1 "
     "special_bessel_y0 special_bessel_y1 special_chebyshev_polynomial_t "
     "special_chebyshev_polynomial_u special_chebyshev_polynomial_v "
     "special_chebyshev_polynomial_w special_entr special_erfcx "
     "special_hermite_polynomial_h special_hermite_polynomial_he "
     "special_i1e special_laguerre_polynomial_l "
     "special_legendre_polynomial_p special_log_ndtr "
     "special_modified_bessel_i0 special_modified_bessel_i1 "
     "special_modified_bessel_k0 special_modified_bessel_k1 "
     "special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 "
     "special_shifted_chebyshev_polynomial_t "
     "special_shifted_chebyshev_polynomial_u "
     "special_shifted_chebyshev_polynomial_v "
     "special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0 "
     "special_xlog1py special_zeta xlogy.OutTensor"},
    {kFloats,  // LAPACK's
     "_linalg_det _linalg_eigh _linalg_eigvals _linalg_slogdet "
     "_linalg_solve_ex _linalg_svd _cholesky_solve_helper cholesky "
     "cholesky_inverse geqrf linalg_cholesky_ex linalg_eig "
     "linalg_householder_product linalg_inv_ex linalg_ldl_factor_ex "
     "linalg_ldl_solve linalg_lstsq linalg_lu linalg_lu_factor_ex "
     "linalg_lu_solve linalg_qr linalg_solve_triangular "
     "ormqr triangular_solve"},
    {kWide | kInteger,
     "exp exp2 expm1 log log1p tanh asinh acosh sigmoid sinc rsqrt"},
    {kAll,  // of exported programs
     "_native_batch_norm_legit _native_batch_norm_legit.no_stats "
     "_batch_norm_with_update batch_norm_backward"},
    {kWide,
     "pow.Scalar logit_backward sigmoid_backward tanh_backward silu "
     "silu_backward mish mish_backward gelu gelu_backward elu elu_backward "
     "softplus softplus_backward log_sigmoid_forward log_sigmoid_backward glu "
     "glu_backward _softmax _softmax_backward_data _log_softmax "
     "_log_softmax_backward_data _safe_softmax logcumsumexp native_layer_norm "
     "native_layer_norm_backward native_group_norm native_group_norm_backward "
     "native_batch_norm native_batch_norm_backward "
     "_scaled_dot_product_flash_attention_for_cpu "
     "_scaled_dot_product_flash_attention_for_cpu_backward baddbmm addbmm dot "
     "vdot convolution convolution_backward _ctc_loss _ctc_loss_backward"},
    {kComplex,
     "reciprocal addcmul lerp.Scalar lerp.Tensor addcdiv angle cumprod"},
};

}  // namespace swamp::aten::unreproducible

#endif
