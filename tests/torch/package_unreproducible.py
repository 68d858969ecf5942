"""PyTorch's operators in front of which swamp has a kernel. With reproducible=True those
whose bits depend on the threads or the CPU: index_put, the gradient of x[index] and prod
run on one thread; the others warn once, or raise, and have the same results. With
half_precision=True some of 16 bits are computed in float32. Sums with a factor, complex
products and the like are composed of operators that have the same bits everywhere."""

import itertools
import threading
import warnings

from support import TestCase, caught, main, on_threads, same
from half_precision import (HALF, assert_as_stock, both, integers, randn,
                            use_reproducible)

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import swamp_torch


def sampled(x):
    return F.grid_sample(x.reshape(1, 2, 4, 8), x.reshape(1, 4, 8, 2),
                         align_corners=False)


def resized(mode, size, dimensions=2, **more):
    return lambda x: F.interpolate(x.reshape(1, 2, *([4, 8], [32], [4, 2, 4])[
        (2, 1, 3).index(dimensions)]), size=size, mode=mode, **more)


def backward(call):
    """The gradient of a call."""
    def gradient(x):
        x = x.clone().requires_grad_()
        y = call(x)
        return torch.autograd.grad(y, x, y.detach())[0]
    return gradient


def direct(name, *more):
    """A call of an operator with the tensor x, and `more`, which may have x and y."""
    modules = (getattr(torch._C, one) for one in ("_VariableFunctions", "_nn", "_special",
                                                  "_linalg"))
    found = next(getattr(one, name) for one in modules if hasattr(one, name))
    return lambda x: found(x, *(x if one == "x" else 1 - x if one == "y" else one
                                for one in more))


def positive(x):
    """A matrix that is positive definite."""
    return x + x.mT + 20 * torch.eye(8)


def images(x):
    return x.reshape(1, 2, 4, 8)


def fused(name, lists, lr, *states, **more):
    """A step of one of PyTorch's fused optimizers."""
    def call(x):
        found = [[x.clone()] for _ in range(lists)]
        getattr(torch, name)(*found, *states, lr=lr, weight_decay=0.1, maximize=False, **more)
        return found[0][0]
    return call


LR = torch.tensor(0.1, dtype=torch.float64)
STEP = [torch.tensor(1.0)]
ADAM = dict(beta1=0.9, beta2=0.99, eps=1e-8, amsgrad=False)
SGD = dict(momentum=0.9, dampening=0.0, nesterov=False, is_first_step=False)
ADAGRAD = dict(lr_decay=0.1, eps=1e-8)


def attention_of(x):
    """The last arguments of PyTorch's attention with projections."""
    return 8, 2, x.repeat(3, 1), x.flatten()[:24], x, x[0]


# operator: a call with a tensor [8, 8] of numbers from 0.1 to 0.9, and a dtype in which
# it depends on the CPU
CALLS = {
    "erf": (torch.erf, torch.bfloat16),
    "erfc": (torch.erfc, torch.float32),
    "erfinv": (torch.erfinv, torch.float32),
    "log2": (torch.log2, torch.float32),
    "log10": (torch.log10, torch.float32),
    "tan": (torch.tan, torch.float32),
    "atan": (torch.atan, torch.float32),
    "igamma": (lambda x: torch.special.gammainc(x, 1 - x), torch.float32),
    "igammac": (lambda x: torch.special.gammaincc(x, 1 - x), torch.float32),
    "asin": (torch.asin, torch.bfloat16),
    "acos": (torch.acos, torch.float16),
    "sinh": (torch.sinh, torch.float32),
    "cosh": (torch.cosh, torch.float32),
    "atanh": (torch.atanh, torch.float32),
    "atan2": (lambda x: torch.atan2(x, 1 - x), torch.float32),
    "lgamma": (torch.lgamma, torch.float32),
    "digamma": (torch.digamma, torch.float32),
    "i0": (torch.i0, torch.float32),
    "special_i0e": (torch.special.i0e, torch.float16),
    "special_i1": (torch.special.i1, torch.float32),
    "special_ndtri": (torch.special.ndtri, torch.float32),
    "logaddexp": (lambda x: torch.logaddexp(x, 1 - x), torch.float32),
    "logaddexp2": (lambda x: torch.logaddexp2(x, 1 - x), torch.float32),
    "softshrink": (F.softshrink, torch.bfloat16),
    "pow.Tensor_Tensor": (lambda x: x ** x, torch.float32),
    "pow_.Tensor": (lambda x: x.clone().pow_(x), torch.float32),
    "linalg_vector_norm": (lambda x: x.norm(dim=-1), torch.float32),
    "_weight_norm_interface": (lambda x: torch._weight_norm(x, x[:, :1]), torch.bfloat16),
    "linalg_cross": (lambda x: torch.linalg.cross(x[:, :3], x[:, 3:6]), torch.float32),
    "polygamma": (lambda x: torch.polygamma(1, x), torch.float32),
    "mkldnn_rnn_layer": (lambda x: torch.lstm(
        x[:, None], [x.new_zeros(1, 1, 2)] * 2, [x, x[:, :2].contiguous()], False, 1, 0.0,
        False, False, False)[0], torch.float32),
    "_fft_r2c": (torch.fft.rfft, torch.float32),
    "_fft_c2r": (lambda x: torch.fft.irfft(x + 0j, norm="forward"), torch.float32),
    "_fft_c2c": (lambda x: torch.fft.fft(x + 0j), torch.float32),
    "linalg_qr": (lambda x: torch.linalg.qr(x)[1], torch.float32),
    "_linalg_svd": (torch.linalg.svdvals, torch.float32),
    "addr": (lambda x: x.addr(x[0], x[1]), torch.float32),
    "upsample_linear1d": (resized("linear", 9, 1), torch.float32),
    "upsample_bilinear2d": (resized("bilinear", (5, 7)), torch.float32),
    "upsample_trilinear3d": (resized("trilinear", (5, 3, 3), 3), torch.float16),
    "upsample_bicubic2d": (resized("bicubic", (5, 7)), torch.float16),
    "_upsample_bilinear2d_aa": (resized("bilinear", (3, 5), antialias=True),
                                torch.float32),
    "_upsample_bicubic2d_aa": (resized("bicubic", (3, 5), antialias=True), torch.float32),
    "upsample_linear1d_backward": (backward(resized("linear", 9, 1)), torch.float32),
    "upsample_bilinear2d_backward": (backward(resized("bilinear", (5, 7))),
                                     torch.bfloat16),
    "upsample_trilinear3d_backward": (backward(resized("trilinear", (5, 3, 3), 3)),
                                      torch.bfloat16),
    "grid_sampler_2d": (sampled, torch.float32),
    "grid_sampler_2d_backward": (backward(sampled), torch.float32),
    "normal_": (lambda x: torch.manual_seed(0) and x.clone().normal_(), torch.float32),
    "_embedding_bag_dense_backward": (backward(lambda x: F.embedding_bag(
        torch.tensor([[0, 1], [2, 2]]), x)), torch.bfloat16),
    "_native_batch_norm_legit": (lambda x: torch._native_batch_norm_legit(
        x, None, None, x[0].clone(), x[1].clone(), True, 0.1, 1e-5), torch.float32),
    "_native_batch_norm_legit.no_stats": (direct(
        "_native_batch_norm_legit", None, None, True, 0.1, 1e-5), torch.float32),
    "hypot": (direct("hypot", "y"), torch.float32),
    "xlogy.Tensor": (direct("xlogy", "y"), torch.float32),
    "xlogy.OutTensor": (lambda x: torch.xlogy(x, 1 - x, out=torch.empty_like(x)),
                        torch.float32),
    "_linalg_det": (direct("_linalg_det"), torch.float32),
    "_linalg_eigh": (direct("_linalg_eigh"), torch.float32),
    "_linalg_eigvals": (direct("_linalg_eigvals"), torch.float64),
    "_linalg_slogdet": (direct("_linalg_slogdet"), torch.float32),
    "_linalg_solve_ex": (direct("_linalg_solve_ex", "y"), torch.float32),
    "_cholesky_solve_helper": (lambda x: torch.cholesky_solve(x, x), torch.float32),
    "cholesky": (lambda x: torch.cholesky(positive(x)), torch.float32),
    "cholesky_inverse": (direct("cholesky_inverse"), torch.float32),
    "geqrf": (direct("geqrf"), torch.float32),
    "linalg_cholesky_ex": (lambda x: torch.linalg.cholesky_ex(positive(x)),
                           torch.float32),
    "linalg_eig": (direct("linalg_eig"), torch.float32),
    "linalg_householder_product": (lambda x: torch.linalg.householder_product(x, x[0]),
                                   torch.float32),
    "linalg_inv_ex": (direct("linalg_inv_ex"), torch.float32),
    "linalg_ldl_factor_ex": (direct("linalg_ldl_factor_ex"), torch.float32),
    "linalg_ldl_solve": (lambda x: torch.linalg.ldl_solve(x, torch.arange(1, 9).int(), x),
                         torch.float32),
    "linalg_lstsq": (direct("linalg_lstsq", "y"), torch.float32),
    "linalg_lu": (direct("linalg_lu"), torch.float32),
    "linalg_lu_factor_ex": (direct("linalg_lu_factor_ex"), torch.float32),
    "linalg_lu_solve": (lambda x: torch.linalg.lu_solve(x, torch.arange(1, 9).int(), x),
                        torch.float32),
    "linalg_solve_triangular": (lambda x: torch.linalg.solve_triangular(x, x, upper=True),
                                torch.float32),
    "ormqr": (lambda x: torch.ormqr(x, x[0], x), torch.float32),
    "triangular_solve": (direct("triangular_solve", "y"), torch.float32),
    "_transformer_encoder_layer_fwd": (lambda x: torch._transformer_encoder_layer_fwd(
        x[None], *attention_of(x), False, False, 1e-5, *[x[0]] * 4, x, x[0], x, x[0]),
        torch.float32),
    "_native_multi_head_attention": (lambda x: torch._native_multi_head_attention(
        *[x[None]] * 3, *attention_of(x)), torch.float32),
    "_cdist_forward": (lambda x: torch.cdist(x, 1 - x), torch.float32),
    "_cdist_backward": (backward(lambda x: torch.cdist(x, 1 - x)), torch.float32),
    "_pdist_forward": (F.pdist, torch.float32),
    "_pdist_backward": (backward(F.pdist), torch.float32),
    "_upsample_bilinear2d_aa_backward": (
        backward(resized("bilinear", (3, 5), antialias=True)), torch.float32),
    "_upsample_bicubic2d_aa_backward": (
        backward(resized("bicubic", (3, 5), antialias=True)), torch.float32),
    "_weight_norm_interface_backward": (
        backward(lambda x: torch._weight_norm(x, x[:, :1])), torch.bfloat16),
    "mv": (lambda x: x.to_sparse().mv(x[0]), torch.float32),
    "kaiser_window": (lambda x: torch.kaiser_window(8, dtype=x.dtype), torch.float16),
    "kaiser_window.periodic": (lambda x: torch.kaiser_window(8, False, dtype=x.dtype),
                               torch.float32),
    "kaiser_window.beta": (lambda x: torch.kaiser_window(8, False, 9.0, dtype=x.dtype),
                           torch.float64),
}
for name, lists, states, more in (
        ("adam", 4, ([], STEP), ADAM), ("adamw", 4, ([], STEP), ADAM),
        ("sgd", 3, (), SGD), ("adagrad", 3, (STEP,), ADAGRAD)):
    for form, lr in (("", 0.1), (".tensor_lr", LR)):
        CALLS[f"_fused_{name}_{form}"] = (
            fused(f"_fused_{name}_", lists, lr, *states, **more), torch.float32)
CALLS.update({f"special_{name}": (direct(f"special_{name}"), torch.float32) for name in (
    "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 entr erfcx i1e log_ndtr "
    "modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 "
    "scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0").split()})
CALLS.update({f"special_{name}": (direct(f"special_{name}", "y"), torch.float32)
              for name in (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v "
    "chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he "
    "laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t "
    "shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
    "shifted_chebyshev_polynomial_w xlog1py zeta").split()})
# The same of those that depend on it in float64 only, not in float32.
WIDE = {name: direct(name) for name in (
    "exp exp2 expm1 log log1p sin cos tanh asinh acosh sigmoid sinc rsqrt logit silu mish "
    "gelu elu softplus glu").split()}
WIDE.update({name: direct(name, "y") for name in "mm vdot binary_cross_entropy".split()})
WIDE.update({
    "log_sigmoid_forward": F.logsigmoid,
    "vdot": lambda x: torch.vdot(x[0], x[1]),
    "pow.Tensor_Scalar": direct("pow", 1.7),
    "pow_.Scalar": lambda x: x.clone().pow_(1.7),
    "pow.Scalar": lambda x: 1.7 ** x,
    "_softmax": lambda x: x.softmax(1),
    "_log_softmax": lambda x: x.log_softmax(1),
    "_safe_softmax": direct("_safe_softmax", 1),
    "logcumsumexp": direct("logcumsumexp", 1),
    "native_layer_norm": lambda x: F.layer_norm(x, [8]),
    "native_group_norm": lambda x: F.group_norm(x, 2),
    "native_batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "_scaled_dot_product_flash_attention_for_cpu":
        lambda x: F.scaled_dot_product_attention(*[images(x)] * 3),
    "addmm": direct("addmm", "x", "y"),
    "bmm": lambda x: torch.bmm(x[None], x[None]),
    "baddbmm": lambda x: torch.baddbmm(*[x[None]] * 3),
    "addbmm": lambda x: torch.addbmm(x, x[None], x[None]),
    "addmv": lambda x: torch.addmv(x[0], x, x[1]),
    "dot": lambda x: torch.dot(x[0], x[1]),
    "convolution": lambda x: F.conv2d(images(x), x[:, :2].reshape(1, 2, 2, 4)),
})
for name in ("logit sigmoid tanh silu mish gelu elu softplus glu native_layer_norm "
             "native_group_norm native_batch_norm convolution "
             "_scaled_dot_product_flash_attention_for_cpu").split():
    WIDE[name + "_backward"] = backward(WIDE[name])
WIDE["log_sigmoid_backward"] = backward(F.logsigmoid)
WIDE["_ctc_loss"] = lambda x: F.ctc_loss(x[:, None], torch.tensor([[1, 2]]), [8], [2])
WIDE["_ctc_loss_backward"] = backward(WIDE["_ctc_loss"])
for name in ("_softmax", "_log_softmax"):
    WIDE[name + "_backward_data"] = backward(WIDE[name])
# Of these, in any dtype, only exported programs have calls, from which warnings do not reach Python.
EXPORTED = {
    "_batch_norm_with_update": lambda x: torch.ops.aten._batch_norm_with_update(
        x, None, None, x[0].clone(), x[1].clone(), 0.1, 1e-5),
    "batch_norm_backward": lambda x: torch.ops.aten.batch_norm_backward(
        x, 1 - x, x[0], x[0], x[1], x[0], x[1], True, 1e-5, [True, False, False],
        torch.empty(0, dtype=torch.uint8)),
}
# And of those that depend on it with complex numbers only.
OF_COMPLEX = {
    **{name: direct(name) for name in ("reciprocal", "angle")},
    "div.Tensor": direct("div", "y"),
    "addcmul": direct("addcmul", "x", "y"),
    "addcdiv": direct("addcdiv", "x", "y"),
    "lerp.Scalar": direct("lerp", "y", 0.3),
    "lerp.Tensor": direct("lerp", "y", "x"),
    "cumprod": direct("cumprod", 0),
    "prod.dim_int": lambda x: x.prod(0),
    "prod.int_out": lambda x: torch.prod(x, 0, out=torch.empty(8, dtype=x.dtype)),
}
IDS = torch.arange(300) % 50
PAIR = [3, 3], [1, 1], [1, 1], [1, 1]


def unit(dtype, **how):
    """Numbers from 0 to 1."""
    return randn(65, 70, **how).sigmoid().to(dtype)


# operator: numbers after its tensor. Its results of 16 bits are looked up.
TABLES = {**{name: [()] for name in (
    "erfc", "erfinv", "log2", "log10", "tan", "atan", "asin", "acos", "sin", "cos")},
          "logit": [(None,), (1e-3,), (0.25,)]}
PLACES = torch.arange(65 * 40).view(65, 40) * 3 % 70  # different ones in each row
# operator: its arguments; tuples are the shapes of tensors. Those of 16 bits are computed
# in float32, or move bits.
WIDENED = {
    "amax": [(65, 70), [-1]],
    "amin": [(65, 7, 10), [0, 2], True],
    "argmax": [(65, 70), -1],
    "argmin": [(65, 70)],
    "max.dim": [(65, 70), -1],
    "min.dim": [(65, 7, 10), 0, True],
    "logsumexp": [(65, 7, 10), [0, 2]],
    **{name + ".correction": [(65, 7, 10), [1]]
       for name in ("std", "var_mean", "std_mean")},
    "var.correction": [(65, 70), None],
    "upsample_linear1d": [(3, 20, 70), [140], False],
    "xlogy.Tensor": [(65, 70), unit],
    "upsample_bicubic2d": [(2, 3, 31, 32), [40, 32], False],
    "upsample_trilinear3d": [(2, 3, 9, 10, 11), [9, 15, 20], True],
    "_adaptive_avg_pool3d": [(2, 3, 9, 10, 11), [3, 2, 4]],
    "avg_pool2d_backward": [(6, 2, 10, 21), (6, 2, 20, 42), [2, 2], [2, 2], [0, 0], False,
                            True, None],
    "_adaptive_avg_pool2d_backward": [(6, 2, 8, 9), (6, 2, 21, 40)],
    "_adaptive_avg_pool3d_backward": [(2, 3, 4, 5, 6), (2, 3, 9, 10, 11)],
    "gather": [(65, 70), 1, PLACES],
    "flip": [(6, 50, 20), [1, 2]],
    "scatter.src": [(65, 70), 1, PLACES, (65, 70)],
    "binary_cross_entropy": [unit, unit],
    "binary_cross_entropy_backward": [(), unit, unit],
    "col2im": [(2, 27, 81), [9, 9], *PAIR],
    "_embedding_bag_dense_backward": [
        (60, 90), IDS, torch.arange(300) // 5, torch.full((60,), 5),
        torch.empty(0, dtype=torch.long), 50, False, 1, None],
    "grid_sampler_2d": [(2, 5, 21, 20), (2, 8, 9, 2), 0, 0, False],
    "grid_sampler_2d_backward": [(2, 5, 8, 9), (2, 5, 21, 20), (2, 8, 9, 2), 0, 1, True,
                                 [True, True]],
    "grid_sampler_3d": [(2, 3, 9, 10, 11), (2, 4, 5, 6, 3), 0, 0, False],
    "grid_sampler_3d_backward": [(2, 3, 4, 5, 6), (2, 3, 9, 10, 11), (2, 4, 5, 6, 3), 0, 1,
                                 True, [True, False]],
}
# The same of tensors that are computed slice by slice.
SLICED = [
    ("argmax", [(3, 700, 520), 2]),
    ("argmax", [(700, 1600), 0]),
    ("argmin", [(3, 700, 520), -3, True]),
    ("max.dim", [(700, 1600), 0]),
    ("min.dim", [(3, 700, 520), 1, True]),
    ("col2im", [(7, 27, 6561), [81, 81], *PAIR]),
    ("avg_pool2d_backward", [(7, 30, 20, 30), (7, 30, 40, 60), [2, 2], [2, 2], [0, 0],
                             False, True, None]),
]


def far(x, y, weight):
    """The formula of lerp() for weights of at least 0.5."""
    return y - (y - x) * (1 - weight)


def product(x, y):
    """The formula of complex products."""
    return torch.complex(x.real * y.real - x.imag * y.imag,
                         x.real * y.imag + x.imag * y.real)


def size(x):
    """The formula of absolute values of complex numbers."""
    a, b = (part.double().abs() for part in (x.real, x.imag))
    most = torch.fmax(a, b)
    ratio = torch.fmin(a, b) / most
    return (most * (ratio * ratio + 1).sqrt()).to(x.real.dtype)


THIRD, MOST = (torch.tensor(x, dtype=torch.float32) for x in (0.3, 0.7))
STEP_SIZE = torch.tensor(77 / 256)
# name: a call with two tensors, and its formula in the dtype that it is computed in
COMPOSED = {
    "add": (lambda x, y: torch.add(x, y, alpha=0.3), lambda x, y: x + y * THIRD),
    "sub": (lambda x, y: torch.sub(x, y, alpha=3), lambda x, y: x - y * 3),
    "rsub": (lambda x, y: torch.rsub(x, y, alpha=0.3), lambda x, y: y - x * THIRD),
    "row": (lambda x, y: torch.add(x, y[0], alpha=0.3), lambda x, y: x + y[0] * THIRD),
    "number": (lambda x, y: torch.add(x, 2.7, alpha=0.3),
               lambda x, y: x + torch.tensor(2.7, dtype=x.dtype) * THIRD),
    "from a number": (lambda x, y: torch.rsub(x, 2.7, alpha=0.3),
                      lambda x, y: torch.tensor(2.7, dtype=x.dtype) - x * THIRD),
    "list": (lambda x, y: torch._foreach_add([x], [y], alpha=0.3)[0],
             lambda x, y: x + y * THIRD),
    "addcmul": (lambda x, y: torch.addcmul(x, x, y, value=0.3),
                lambda x, y: x + x * THIRD * y),
    "addcmul 1": (lambda x, y: torch.addcmul(x, x, y), lambda x, y: x + x * y),
    "addcmul float32": (  # as in torch.optim.ASGD
        lambda x, y: x.clone().addcmul_(y, STEP_SIZE, value=-1),
        lambda x, y: x - y * STEP_SIZE.item()),
    "sqrt": (lambda x, y: x.abs().sqrt(), lambda x, y: x.abs().double().sqrt().to(x.dtype)),
    "pow 0.5": (lambda x, y: torch.where(x > 0, x, -0.0) ** 0.5,
                lambda x, y: torch.where(x > 0, x, -0.0).double().sqrt().to(x.dtype)),
    "lerp": (lambda x, y: x.lerp(y, 0.3), lambda x, y: x + (y - x) * THIRD),
    "lerp far": (lambda x, y: x.lerp(y, 0.7), lambda x, y: far(x, y, MOST)),
    "lerp tensor": (lambda x, y: x.lerp(y, y), lambda x, y: torch.where(
        y.abs() < 0.5, x + (y - x) * y, far(x, y, y))),
}
COMPLEX = {
    "mul": (lambda x, y: x * y, product),
    "row": (lambda x, y: x * y[:1], lambda x, y: product(x, y[:1])),
    "real": (lambda x, y: x * y.real, lambda x, y: product(x, y.real + 0j)),
    "number": (lambda x, y: x * (1 + 2j), lambda x, y: product(x, torch.tensor(1 + 2j))),
    "conj": (lambda x, y: x * y.conj(), lambda x, y: product(x, y.conj().resolve_conj())),
    "add": (lambda x, y: torch.add(x, y, alpha=0.3 + 1j),
            lambda x, y: x + product(y, torch.tensor(0.3 + 1j))),
    "abs": (lambda x, y: x.abs(), lambda x, y: size(x)),
    "sgn": (lambda x, y: x.sgn(), lambda x, y: torch.complex(
        x.real / size(x), x.imag / size(x))),
    "neg": (lambda x, y: -x, lambda x, y: torch.complex(-x.real, -x.imag)),
    "polar": (lambda x, y: torch.polar(x.real, y.real), lambda x, y: torch.complex(
        x.real * y.real.cos(), x.real * y.real.sin())),
    "rotary": (lambda x, y: torch.view_as_real(x * torch.polar(
        torch.ones_like(y.real), y.real)), lambda x, y: torch.view_as_real(product(
            x, torch.complex(y.real.cos(), y.real.sin())))),
}


def composed_results():
    """Results and gradients of COMPOSED and COMPLEX, linspace() and uniform_()."""
    found = [torch.linspace(-0.3, 7, 1001, dtype=dtype)
             for dtype in (*HALF, torch.float32, torch.float64)]
    found.append(torch.linspace(-0.3 + 1j, 7 - 2j, 1001))
    torch.manual_seed(3)
    found += [torch.empty(1001).uniform_(-0.3, 0.7), torch.nn.Linear(65, 33).weight]
    for calls, dtypes in ((COMPOSED, (*HALF, torch.float32, torch.float64)),
                          (COMPLEX, (torch.complex64, torch.complex128))):
        for name, (call, _) in calls.items():
            for dtype in dtypes:
                # MKL's float64 sine depends on the CPU if that is Intel's.
                if name in ("polar", "rotary") and dtype == torch.complex128:
                    continue
                x, y = pair(dtype)
                result = call(x, y)
                found.append(result)
                # The gradients of roots are nan at 0, of any sign.
                if name not in ("sqrt", "pow 0.5"):
                    found += torch.autograd.grad(result, (x, y), result.detach(),
                                                 allow_unused=True)
    return found


def pair(dtype):
    """Two tensors [63, 129]."""
    values = integers(4, 63, 129)
    if dtype.is_complex:
        return [torch.complex(*values[i:i + 2]).to(dtype).requires_grad_()
                for i in (0, 2)]
    return [x.to(dtype).requires_grad_() for x in values[:2]]


# Operators that run on one thread.
ALONE = {"_index_put_impl_", "put_", "prod", "sum.dim_IntList", "sum.IntList_out", "nansum",
         "var.correction", "std.correction", "var_mean.correction", "std_mean.correction",
         "histogram.bin_ct", "histogram.bins_tensor", "_histogramdd_from_bin_cts",
         "_histogramdd_from_bin_tensors"}
# Those of float64 and, the first ones, of complex numbers, by two tensors.
SUMS = {name: lambda x, y, call=getattr(torch, name): call(x)
        for name in ("sum", "mean", "var", "std", "var_mean", "std_mean")}
SUMS["column"] = lambda x, y: x.view(-1, 1).sum(0)
SUMS["mean out"] = lambda x, y: torch.mean(x.flatten(), 0, out=torch.empty((), dtype=x.dtype))
REAL_SUMS = {
    **{name: lambda x, y, call=getattr(F, name): call(x, y)
       for name in ("mse_loss", "l1_loss", "huber_loss")},
    "nansum": lambda x, y: x.nansum(),
    "integers": lambda x, y: (x * 2.0 ** 60).long().sum(dtype=torch.float64),
    "histogram": lambda x, y: torch.histogram(x, 9, weight=y)[0],
    "histogram of bins": lambda x, y: torch.histogram(
        x, torch.linspace(-2, 2, 9, dtype=x.dtype), weight=y)[0],
    "histogramdd": lambda x, y: torch.histogramdd(x.view(-1, 1), [9], weight=y.flatten())[0],
    "histogramdd of bins": lambda x, y: torch.histogramdd(
        x.view(-1, 1), [torch.linspace(-2, 2, 9, dtype=x.dtype)], weight=y.flatten())[0],
}


def numbers(dtype=torch.float32):
    return ((torch.arange(64) * 7919 % 101 + 13) / 126).view(8, 8).to(dtype)


def messages(call):
    """The warnings of swamp_torch that a call gives."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in found if "reproducible" in str(one.message)]


def tensors_of(arguments, dtype, layout="rows", rows=None):
    """The arguments of a row of WIDENED; with `rows`, that many of the tensors."""
    return [one(dtype=dtype, layout=layout, seed=i)[:rows] if callable(one)
            else one if not isinstance(one, tuple)
            else randn(dtype=dtype) if not one
            else randn(*one, dtype=dtype, layout=layout, seed=i)[:rows]
            for i, one in enumerate(arguments)]


def results(name, arguments, **switches):
    """What an operator returns, or its error."""
    swamp_torch.enable(unreproducible="ignore", **switches)
    found = caught(lambda: getattr(torch.ops.aten, name.split(".")[0])(*arguments))
    return [found] if isinstance(found, torch.Tensor) else list(found)


class Widened(TestCase):
    def assert_results(self, ours, theirs, message):
        for a, b in zip(ours, theirs, strict=True):
            if isinstance(b, torch.Tensor):
                self.assert_same(a, b, message)
                self.assertEqual(a.stride(), b.stride(), message)
            else:
                self.assertEqual(a, b, message)

    def test_rounded_once(self):
        """Of any layout the results are float32's, rounded, with PyTorch's strides."""
        for name, row in (*WIDENED.items(), *SLICED):
            for dtype in HALF:
                for layout in ("rows", "columns", "slice", "steps", "expanded"):
                    ours = tensors_of(row, dtype, layout)
                    stock = results(name, ours)
                    expected = [x if x is None else torch.empty_like(x).copy_(y)
                                for x, y in zip(stock, results(name, [
                                    x.float() if isinstance(x, torch.Tensor)
                                    and x.dtype == dtype else x for x in ours]))]
                    for switch in ("half_precision", "reproducible"):
                        depends = switch == "reproducible" and (  # on the CPU
                            "2d" in name or "1d" in name or "bag" in name
                            or "tri" in name or "xlogy" in name) and "pool" not in name
                        self.assert_results(results(name, ours, **{switch: True}),
                                            stock if depends else expected,
                                            (name, dtype, layout, switch))

    def test_tables(self):
        """Every number has PyTorch's bits, in the first call and after a table is made,
        whatever the arguments were before; so has it in a thread that flushes subnormal
        numbers."""
        all_of_them = torch.arange(-2 ** 15, 2 ** 15).to(torch.int16)
        for (name, numbers), dtype in itertools.product(TABLES.items(), HALF):
            x = all_of_them.view(dtype).repeat(4).view(256, 8, 128)
            for more in (*numbers, numbers[0]):
                for one in (x, x, x.mT, x.permute(2, 1, 0), x[:, :, ::2], x[:, 1], x[:9, 0]):
                    self.assert_results(results(name, (one, *more), half_precision=True),
                                        results(name, (one, *more)), (name, dtype, more))
            if torch.set_flush_denormal(True):
                ours = results(name, (x, *more), half_precision=True)
                stock = results(name, (x, *more))
                torch.set_flush_denormal(False)
                self.assert_results(ours, stock, (name, dtype))

    def test_order_of_numbers(self):
        """amax and amin of numbers of one sign, subnormals, zeros, inf, and nan of both
        signs, which are float32's."""
        x = randn(10, 64, 80, dtype=torch.float32)
        for i, change in enumerate((
                torch.abs, lambda x: -x.abs(), lambda x: x.abs() * 0,
                lambda x: -0.0 * x.abs(), lambda x: x * 1e-6, lambda x: -1e-6 * x.abs(),
                lambda x: x / (x < 2), lambda x: x / (x > -2))):
            x[i] = change(x[i])
        for dtype in HALF:
            for last in (0.5, float("nan"), -float("nan")):
                y = x.to(dtype)
                y[9, 7, 3] = last
                for one in (y, y.mT, y[:, ::2, ::2]):
                    for name in ("amax", "amin"):
                        for dims in ([-1], [0, 2], [1, -1], []):
                            ours = results(name, [one, dims], half_precision=True)
                            wide = results(name, [one.float(), dims])
                            self.assertTrue(same(ours[0].float(), wide[0], any_nan=True),
                                            (name, dims, dtype, last))

    def test_anything_else_is_stock(self):
        """Small and empty tensors, other dtypes, and two of them."""
        for name, row in WIDENED.items():
            rows = (None,) if "bag" in name else (None, 0, 1)
            calls = [tensors_of(row, dtype, rows=k) for k in rows
                     for dtype in (*HALF, torch.float32, torch.float64)
                     if k is not None or dtype not in HALF]
            ours = tensors_of(row, torch.float16)
            last = max(i for i, x in enumerate(ours) if isinstance(x, torch.Tensor)
                       and x.is_floating_point())
            ours[last] = ours[last].double()
            for arguments in (*calls, ours):
                self.assert_results(results(name, arguments, half_precision=True),
                                    results(name, arguments), name)


class Composed(TestCase):
    def test_formulas(self):
        """Each operation is rounded once, and so is the result of 16 bits; the dtype and
        strides are PyTorch's."""
        for calls, dtypes in ((COMPOSED, (*HALF, torch.float32)),
                              (COMPLEX, (torch.complex64,))):
            for name, (call, formula) in calls.items():
                for dtype in dtypes:
                    x, y = (one.detach() for one in pair(dtype))
                    for x, y in ((x, y), (x.mT, y.mT), (x[:, ::2], y[:, ::2]),
                                 (x[:1, :1], y[:1, :1])):
                        swamp_torch.enable()
                        stock = call(x, y)
                        wide = [one if dtype.is_complex else one.float() for one in (x, y)]
                        expected = formula(*wide).to(stock.dtype)
                        swamp_torch.enable(reproducible=True, unreproducible="raise")
                        ours = call(x, y)
                        self.assert_same(ours, expected, (name, dtype))
                        self.assertEqual((ours.shape, ours.stride()),
                                         (stock.shape, stock.stride()), (name, dtype))

    def test_integers_and_other_outputs(self):
        """Operators of floats take integers as float32, and their `out` may have another
        dtype: the bits are those of float32."""
        functions = {name: getattr(torch, name) for name in (
            "sqrt", "exp", "exp2", "expm1", "log", "log1p", "rsqrt", "sigmoid", "tanh")}
        functions.update({
            f"pow {n}": lambda x, n=n, **out: torch.pow(x, n, **out)
            for n in (0.5, 1.5, -0.5, -1.3, 2.0, 3.0)})
        functions["base"] = lambda x, **out: torch.pow(2.5, x, **out)
        integers = torch.arange(1, 300).view(13, 23)
        for name, call in functions.items():
            for x in (integers, integers.to(torch.uint8), integers > 5, integers.float()):
                with self.subTest(name, x=x.dtype):
                    swamp_torch.enable(reproducible=True, unreproducible="raise")
                    expected = call(x.float())
                    self.assert_same(call(x), expected)
                    for dtype in (torch.float32, torch.float64, torch.float16,
                                  torch.complex64):
                        out = torch.empty(0, dtype=dtype)
                        self.assertIs(call(x, out=out), out)
                        self.assert_same(out, expected.to(dtype))
                    errors = both(lambda: call(x, out=torch.empty(0, dtype=torch.int32)),
                                  use_reproducible)
                    self.assertEqual(*errors)
                    self.assertIn("can't be cast", errors[0][1])
        swamp_torch.enable(reproducible=True, unreproducible="raise")
        for call in (lambda x: x ** 2, lambda x: 2 ** x, lambda x: x ** True):
            self.assertEqual(call(integers % 9).dtype, torch.int64)
        for call in (torch.erf, torch.log2, torch.atan, torch.Tensor.sinh):
            with self.assertRaisesRegex(RuntimeError, "reproducible: got aten::"):
                call(integers)
        with self.assertRaisesRegex(RuntimeError, "reproducible: got aten::erf,"):
            torch.erf(integers.float(), out=torch.empty(0, dtype=torch.float64))
        codes = torch.ones(3).to(torch.float8_e4m3fn)
        with self.assertRaisesRegex(NotImplementedError, "\"pow\" not implemented"):
            codes ** 0.5

    def test_forms(self):
        """Results in place and in other tensors have the same bits, and wrong arguments
        PyTorch's errors."""
        numbers, points = ([one.detach() for one in pair(dtype)]
                           for dtype in (torch.bfloat16, torch.complex64))
        for name, (x, y), more in (
                ("add", numbers, dict(alpha=0.3)), ("sub", numbers, dict(alpha=0.3)),
                ("addcmul", numbers, {}),
                ("lerp", numbers, dict(weight=0.3)),
                ("lerp", numbers, dict(weight=numbers[1])), ("mul", points, {}),
                ("sqrt", numbers, {}), ("sgn", points, {}), ("neg", points, {})):
            def call(function, x, y, **out):
                others = dict(addcmul=(y, numbers[1]), sqrt=(), sgn=(), neg=()).get(
                    name, (y,))
                return function(x, *others, **more, **out)
            function, in_place = getattr(torch, name), getattr(torch.Tensor, name + "_")
            swamp_torch.enable(reproducible=True)
            expected = call(function, x, y)
            for out in (torch.empty(0, dtype=x.dtype), torch.empty_like(x.mT).mT, x.clone()):
                self.assertIs(call(function, x, y, out=out), out)
                self.assert_same(out, expected, name)
            z = x.clone()
            self.assertIs(call(in_place, z, y), z)
            self.assert_same(z, expected, name)
            for kind, wrong in (("rows", (x, y[:2])), ("row", (x[:1].clone(), y)),
                                ("meta", (x, y.to("meta"))), ("list", (x, [1]))):
                for form in (function, in_place):
                    errors = both(lambda: call(form, *wrong), use_reproducible)
                    if isinstance(errors[0], tuple):
                        self.assertEqual(*errors, (name, kind, form))
        whole = torch.arange(6)
        assert_as_stock(self, dict(enumerate((
            lambda: torch.add(whole, whole, alpha=0.3),
            lambda: torch.add(whole, whole, alpha=2),
            lambda: torch.add(whole > 2, whole > 1, alpha=True),
            lambda: torch.add(numbers[0], numbers[1], alpha=1j),
            lambda: torch.sub(numbers[0], numbers[0] > 0, alpha=3),
            lambda: whole.clone().add_(numbers[0][0, :6], alpha=0.3),
            lambda: numbers[0].clone().mul_(1j),
            lambda: torch.lerp(numbers[0], numbers[1].float(), 0.3),
            lambda: torch.addcmul(whole, whole, whole, value=2),
            lambda: torch.linspace(0, 5, -1), lambda: torch.linspace(1, 5, 1),
            lambda: torch.linspace(1, 7, 3, dtype=torch.int32),
            lambda: torch.polar(numbers[0], numbers[1])))), use_reproducible)

    def test_uniform(self):
        """Numbers are multiplied and added after each other."""
        for dtype in (torch.float32, torch.float64):
            found = []
            for switch, bounds in ((False, (0, 1)), (True, (0, 1)), (False, (-0.3, 7)),
                                   (True, (-0.3, 7))):
                swamp_torch.enable(reproducible=switch)
                torch.manual_seed(3)
                found.append(torch.empty(99, 11, dtype=dtype).uniform_(*bounds))
            first, same, stock, ours = found
            self.assert_same(same, first)
            low, high = torch.tensor([-0.3, 7], dtype=dtype)
            self.assert_same(ours, first * (high - low) + low)
            torch.testing.assert_close(ours, stock)
        assert_as_stock(self, {bounds: lambda bounds=bounds: torch.empty(3).uniform_(*bounds)
                               for bounds in ((1, 0), (0, float("inf")),
                                              (float("nan"), 1))}, use_reproducible)

    def test_not_finite(self):
        """Absolute values, signs and gradients are nan, inf and 0 as in PyTorch."""
        inf, nan = float("inf"), float("nan")
        for dtype in (torch.float32, torch.float64):
            parts = torch.tensor([0.0, -0.0, 1.0, -2.5, inf, -inf, nan], dtype=dtype)
            x = torch.complex(*(one.reshape(-1) for one in torch.meshgrid(
                parts, parts, indexing="ij"))).repeat(16)  # whole vectors
            swamp_torch.enable()
            size = x.abs()
            swamp_torch.enable(reproducible=True, unreproducible="raise")
            z = x.clone().requires_grad_()
            z.abs().backward(torch.ones_like(size))
            torch.testing.assert_close(x.abs(), size, equal_nan=True)
            self.assert_same(z.grad.isnan(), x.sgn().isnan())
            for part, of_x in ((x.sgn().real, x.real), (x.sgn().imag, x.imag)):
                torch.testing.assert_close(part, (of_x / size).masked_fill(size == 0, 0),
                                           equal_nan=True)

    def test_index_add(self):
        """The product with `alpha` is rounded before the sum."""
        index = torch.arange(129) * 7 % 63
        for dtype in (*HALF, torch.float32, torch.float64):
            x, y = (one.detach() for one in pair(dtype))
            for a, b, dim in ((x[:, 0], y[0], 0), (x, y, 0), (x, y, 1), (x.mT, y.mT, 1)):
                i = index[:b.shape[dim]]
                swamp_torch.enable(reproducible=True, unreproducible="raise")
                expected = torch.index_add(a, dim, i, b * 0.3)
                self.assert_same(torch.index_add(a, dim, i, b, alpha=0.3), expected)
                self.assert_same(a.clone().index_add_(dim, i, b, alpha=0.3), expected)
                out = torch.empty_like(a)
                self.assertIs(torch.index_add(a, dim, i, b, alpha=0.3, out=out), out)
                self.assert_same(out, expected)
        whole = torch.arange(6)
        assert_as_stock(self, dict(enumerate((
            lambda: whole.index_add(0, whole, whole, alpha=2),
            lambda: whole.index_add(0, whole, whole, alpha=0.3),
            lambda: (whole > 2).index_add(0, whole, whole > 1, alpha=True),
            lambda: torch.ones(6).index_add(0, whole, torch.ones(6), alpha=True),
            lambda: torch.ones(6).index_add(0, whole, torch.ones(6), alpha=1j),
            lambda: torch.ones(6).index_add(0, whole, torch.ones(5), alpha=0.3),
            lambda: torch.ones(6).index_add(0, whole, torch.ones(6).double(), alpha=0.3),
            lambda: torch.ones(6).index_add(0, whole + 1, torch.ones(6), alpha=0.3),
        ))), use_reproducible)

    def test_arange(self):
        """Numbers are products and sums of float64; whole ones and errors PyTorch's."""
        swamp_torch.enable(reproducible=True, unreproducible="raise")
        for dtype in (*HALF, torch.float32, torch.float64):
            n = torch.arange(5916, dtype=torch.float64)
            expected = (n * 0.013 + 0.1).to(dtype)
            self.assert_same(torch.arange(0.1, 77, 0.013, dtype=dtype), expected)
            out = torch.empty(2, 2958, dtype=dtype).mT
            self.assert_same(torch.arange(0.1, 77, 0.013, out=out), expected.view(2958, 2))
        assert_as_stock(self, dict(enumerate((
            lambda: torch.arange(0.5, 0.1), lambda: torch.arange(0.1, 0.1),
            lambda: torch.arange(0.1, 5, 0), lambda: torch.arange(0.1, float("inf")),
            lambda: torch.arange(7, dtype=torch.float64), lambda: torch.arange(9.0, 1, -1),
            lambda: torch.arange(0.5, 7, 2, dtype=torch.int32)))), use_reproducible)

    def test_linspace(self):
        swamp_torch.enable(reproducible=True)
        for dtype in (*HALF, torch.float32, torch.float64):
            for steps in (2, 3, 100, 1001):
                x = torch.linspace(-0.3, 7, steps, dtype=dtype)
                n = torch.arange(steps, dtype=torch.float64)
                exact = -0.3 + n * (7.3 / (steps - 1))
                error = (x.double() - exact).abs() - exact.abs() * torch.finfo(dtype).eps
                self.assertLessEqual(error.max(), 1e-15, dtype)
                ends = torch.tensor([-0.3, 7], dtype=torch.float64)
                self.assert_same(x[[0, -1]], ends.to(dtype))


class Unreproducible(TestCase):
    def test_table(self):
        """CALLS, ALONE and WIDENED have all operators that swamp registers, but for those
        that write their result in place or to `out`."""
        registered = {
            name[len("aten::"):] for name in
            torch._C._dispatch_get_registrations_for_dispatch_key("BackendSelect")
            if "unreproducible" in torch._C._dispatch_dump(name)}
        known = {*CALLS, *WIDE, *EXPORTED, *OF_COMPLEX, *ALONE, *WIDENED}
        writing = {other for name in known for other in (
            ("_.".join(name.split(".")), name + "_out", name.split(".")[0] + ".out")
            if "." in name else (name + "_", name + ".out", name + ".grad_input", name + ".output"))}
        self.assertEqual(registered - (writing - known), known)
        self.assertLessEqual({"sinh_", "erf_", "erf.out", "pow.Tensor_Tensor_out"},
                             registered)

    def test_actions(self):
        calls = [(name, *row) for name, row in CALLS.items()]
        calls += [(name, call, torch.float64) for name, call in WIDE.items()]
        calls += [(name, call, torch.complex64) for name, call in OF_COMPLEX.items()]
        for name, call, dtype in calls:
            x = numbers(dtype)

            def call(x, all_of_them=call):
                found = all_of_them(x)
                return found if isinstance(found, torch.Tensor) else found[0]
            with self.subTest(name):
                swamp_torch.enable()
                stock = call(x)
                self.assertEqual(messages(lambda: call(x)), [])
                swamp_torch.enable(reproducible=True)
                ours = []
                found = messages(lambda: ours.append(call(x)))
                # These call products.
                if name not in ("linalg_lstsq", "_transformer_encoder_layer_fwd",
                                "_native_multi_head_attention"):
                    self.assert_same(ours[0], stock)
                short = name.split(".")[0]
                self.assertIn(sum(f"aten::{short} " in text for text in found),
                              (1, 2) if short == "pow" else (1,), found)
                self.assertEqual(messages(lambda: call(x)), [])  # once
                swamp_torch.enable(reproducible=True)
                self.assertEqual(messages(lambda: call(x)), found)
                swamp_torch.enable(reproducible=True, unreproducible="ignore")
                self.assertEqual(messages(lambda: call(x)), [])
                swamp_torch.enable(reproducible=True, unreproducible="raise")
                short = short.split("_backward")[0]
                with self.assertRaisesRegex(RuntimeError,
                                            f"got aten::{short}[a-z_]*,.*CPU"):
                    call(x)
                if name not in CALLS:
                    call(x.real.float())
        for call in (*WIDE.values(), *EXPORTED.values(),
                     *(row[0] for row in CALLS.values())):
            with self.assertRaisesRegex(RuntimeError, "reproducible: got aten::"):
                call(numbers(torch.float64))
        for exponent in (0.5, 0, 1, 2, 3, -1, -2):  # products
            numbers(torch.float64) ** exponent
        x = torch.complex(numbers(), 1 - numbers())
        for call in (torch.exp, torch.log, lambda x: x ** 2, lambda x: x @ x, torch.prod):
            with self.assertRaisesRegex(RuntimeError, "reproducible: got aten::"):
                call(x)
        y = numbers()
        for call in (lambda: x.sum() / x, lambda: 1 / x, lambda: y / 1j, lambda: y ** 1j,
                     lambda: torch.xlogy(y, 2.0), lambda: y.to_sparse() @ y,
                     lambda: torch.sparse.mm(y.to_sparse(), y),
                     lambda: y.half() ** y.double()):
            with self.assertRaisesRegex(RuntimeError, "reproducible: got aten::"):
                call()
        torch.set_default_dtype(torch.float64)
        try:
            whole = torch.arange(1, 9)
            for call in (torch.exp, torch.erf, lambda x: x ** 2.5, lambda x: 2.5 ** x):
                with self.assertRaisesRegex(RuntimeError, "reproducible: got aten::"):
                    call(whole)
            for call in (lambda x: x ** 5, lambda x: 2 ** x, lambda x: x.clone().pow_(5),
                         lambda x: (x > 3) ** 4, lambda x: x ** x,
                         lambda x: torch.pow(x, 5, out=torch.empty_like(x))):
                self.assertEqual(call(whole).dtype, torch.int64)
        finally:
            torch.set_default_dtype(torch.float32)
        torch.exp(torch.arange(3))
        with self.assertRaisesRegex(RuntimeError, "got aten::sinh_,"):
            torch.ones(3).sinh_()
        with self.assertRaisesRegex(ValueError, "unreproducible: got 'error', expected"):
            swamp_torch.enable(reproducible=True, unreproducible="error")

    def test_types_are_promoted(self):
        """Numbers and tensors without dimensions don't change the type of others, and the
        quotients of complex and real numbers are the same everywhere."""
        swamp_torch.enable(reproducible=True, unreproducible="raise")
        for dtype in HALF:
            x = numbers(dtype)
            for call in (torch.xlogy, torch.pow, torch.special.xlog1py):
                call(x, 2.5)
                call(2.5, x)
            for scalar in (torch.float32, torch.float64):
                for call in (torch.pow, torch.xlogy, torch.hypot, torch.logaddexp) + (
                        (torch.atan2,) if dtype == torch.bfloat16 else ()):
                    call(x, torch.tensor(2.5, dtype=scalar))
        x = torch.complex(numbers(), 1 - numbers())
        for call in (lambda: x / 3.7, lambda: x / x.real, lambda: x.mean(), lambda: x.mean(0),
                     lambda: x.clone().div_(3)):
            call()

    def test_only_cpu_tensors_that_compute(self):
        swamp_torch.enable(reproducible=True, unreproducible="raise")
        torch.sinh(numbers().to("meta"))
        with FakeTensorMode():
            torch.sinh(torch.ones(3, 3))
        swamp_torch.enable(reproducible=True)
        x = numbers().requires_grad_()

        def batched():
            self.assert_same(torch.vmap(torch.sinh)(x), torch.sinh(x))
            self.assert_same(torch.func.grad(lambda y: torch.sinh(y).sum())(x.detach()),
                             torch.autograd.grad(torch.sinh(x).sum(), x)[0])
        found = messages(batched)
        self.assertEqual(len(found), 2, found)  # sinh and cosh
        compiled = torch.compile(lambda y: y.index_put((torch.tensor([1, 1]),),
                                                       y[:2], accumulate=True).sinh(),
                                 backend="aot_eager")
        self.assert_same(compiled(x), x.index_put((torch.tensor([1, 1]),), x[:2],
                                                  accumulate=True).sinh())

    def test_compiled_sums(self):
        """A sum by indices is PyTorch's in compiled code, too; if it has a gradient, it
        is inductor's, which adds by atomics."""
        index = torch.tensor([1, 5, 1])
        calls = {"index_add": lambda x, y: x.clone().index_add_(0, index, y, alpha=0.5),
                 "index_put": lambda x, y: x.index_put((index,), y, accumulate=True),
                 "put": lambda x, y: x.clone().put_(index, y[0, :3], accumulate=True)}
        for name, call in calls.items():
            for action, needs_grad in (("raise", False), ("warn", True), ("raise", True),
                                       ("ignore", True)):
                torch._dynamo.reset()
                swamp_torch.enable(reproducible=True, unreproducible=action)
                x = numbers().requires_grad_(needs_grad)
                compiled = torch.compile(call, backend="aot_eager")

                def check():
                    self.assert_same(compiled(x, x[:3].detach()), call(x, x[:3].detach()))
                with self.subTest((name, action, needs_grad)):
                    if needs_grad and action == "raise":
                        with self.assertRaisesRegex(RuntimeError, "with atomics"):
                            check()
                    else:
                        self.assertEqual(len(messages(check)),
                                         needs_grad and action == "warn")

    def test_one_thread(self):
        """Sums of float32 by index, and products of all elements, have the bits that
        one thread gives; 16-bit sums of rows are those of float32, rounded once."""
        rows = torch.arange(5000) * 7919 % 31
        values = ((torch.arange(5000 * 65) * 7919 % 200003) / 50000 - 2).view(5000, 65)
        for dtype in (torch.float32, torch.bfloat16):
            x = values.to(dtype)

            def sums(x=x):
                weight = x[:31].clone().requires_grad_()
                return [x[:31].index_put((rows,), x, accumulate=True),
                        torch.autograd.grad(weight[rows], weight, x)[0],
                        torch.autograd.grad(weight[rows, rows], weight, x[:, 0])[0],
                        x[0].put(rows[:, None].expand(-1, 65) % 7, x, accumulate=True),
                        torch.autograd.grad(weight.take(rows), weight, x[:, 0])[0],
                        (1 + x / 1000).prod()]
            swamp_torch.enable(reproducible=True, unreproducible="raise")
            one, *others = on_threads(sums, (1, 2, 3, 7, 2, 2))
            for other in others:
                self.assert_same(other, one)
            swamp_torch.enable()
            expected = on_threads(sums, (1,))[0]
            expected[:2] = [y.to(dtype) for y in on_threads(
                lambda: sums(x.float()), (1,))[0][:2]]
            self.assert_same(expected, one)

    def test_wide_sums(self):
        """Sums of float64 and complex numbers have the bits that one thread gives."""
        torch.manual_seed(1)  # all differ in PyTorch but variances of complex64
        x, y = torch.rand(2, 300, 300, dtype=torch.float64)
        for dtype, calls in ((torch.float64, {**SUMS, **REAL_SUMS}),
                             (torch.complex64, SUMS), (torch.complex128, SUMS)):
            a, b = (torch.complex(x, y).to(dtype) if dtype.is_complex else one
                    for one in (x, y))
            for name, call in calls.items():
                swamp_torch.enable(reproducible=True, unreproducible="raise")
                one, *others = on_threads(lambda: caught(lambda: call(a, b)), (1, 2, 3, 7))
                for other in others:
                    for found, expected in zip(*(
                            [x] if isinstance(x, torch.Tensor) else x for x in (other, one)),
                            strict=True):
                        self.assert_same(found, expected, (name, dtype))

    def test_threads_stay(self):
        """Neither this nor another thread keeps one thread."""
        swamp_torch.enable(reproducible=True)
        counts = []

        def work():
            torch.zeros(3).index_put_((torch.tensor([1]),), torch.ones(1), True)
            counts.append(torch.get_num_threads())

        def check(expected):
            work()
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            with self.assertRaises(IndexError):
                torch.zeros(3).index_put_((torch.tensor([9]),), torch.ones(1), True)
            self.assertEqual(counts[-2:] + [torch.get_num_threads()], [expected] * 3)
        for count in (3, 1):
            on_threads(lambda: check(count), (count,))


if __name__ == "__main__":
    main()
