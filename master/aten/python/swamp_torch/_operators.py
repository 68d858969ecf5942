"""The operators torch.ops.swamp.* as typed functions, and the switches: which kernels
PyTorch's own operators run in this process."""

import contextlib
import itertools
import json
from typing import Any, Callable, Dict, Iterable, Iterator, List, Union

import torch
import torch.optim.swa_utils

from . import _compile
from ._optimizer_checks import index_of, is_ours

_ops = torch.ops.swamp


def number(value: float) -> torch.Tensor:
    """A float32 scalar on the CPU, as swamp's operators take it, independent of
    PyTorch's default dtype and device."""
    return torch.full((), value, dtype=torch.float32, device="cpu")


# What set_unreproducible takes: an index.
_UNREPRODUCIBLE = ("ignore", "warn", "raise")


def enable(*, half_precision: bool = False, attention: bool = False,
           reproducible: bool = False, unreproducible: str = "warn") -> None:
    """Makes PyTorch's two mixed-precision operators run swamp's kernels for CPU
    tensors, in the whole process. ``enable()`` is the state after the import.

    Any thread may call, also while operators run. Do not call it in a function
    that ``torch.compile`` compiles.

    Args:
        half_precision: whether ``mm``, ``addmm``, ``bmm``, ``baddbmm``, ``addbmm``
            (so also ``linear``, ``matmul`` and their gradients) and convolutions
            of float16 and bfloat16 CPU tensors are swamp's: float32 sums in a
            fixed order, rounded once, after a bias is added, with the same bits
            in every memory layout, on any number of threads and every CPU
            (unless ``reproducible``, PyTorch's own stay in use where they are
            faster: on CPUs without fused multiply-add, for which :func:`info`
            says "emulated, slow" under ``products``; on those with AMX for the
            dtype, AMX-BF16 or AMX-FP16, except products of up to four rows; and most
            of those of bfloat16 on those with AVX512-BF16: README, Limits); and whether
            ``scaled_dot_product_attention`` (with such AMX: README, Limits), ``log_softmax``
            of the last dimension of 768 elements and more, ``cross_entropy`` of class indices (not of images), ``layer_norm``, ``rms_norm``, ``mv`` and ``addmv`` of such
            tensors are swamp's, with float32 arithmetic
            inside, under autocast too, which then does not copy the logits to
            float32. So are others whose 16-bit kernels in PyTorch are slow: ``dot`` of
            bfloat16, ``pow`` with the exponents 3 and -2, and of float16 with 2, -1 and
            -0.5 (0.5 is PyTorch's ``sqrt``), ``rsqrt``, ``group_norm`` (of bfloat16
            only with the channels last) and ``norm`` of
            order 2 over the last dimensions (so ``normalize`` and
            ``cosine_similarity``); and, of 4096 elements and more, ``gelu`` (of the
            exact one only the gradient in float16), ``exp``, ``expm1``, ``log``, ``log1p``,
            ``tanh``, ``sigmoid``, ``silu``, ``softplus``, ``elu``, ``selu``, ``celu``, ``glu``,
            ``mish`` with its gradient, sums, differences and
            products of two tensors or with a number, ``maximum``, ``minimum``,
            ``addcmul``, ``addcdiv``, ``lerp``, ``clamp``, ``prelu``, ``hardswish``;
            ``relu``, ``hardtanh``, ``leaky_relu``, ``hardsigmoid``, ``mse_loss``,
            ``huber_loss`` and ``smooth_l1_loss`` with their gradients; ``mean``,
            ``sum`` of dimensions with others between, or of a few terms in columns (so
            the gradient of ``expand``),
            ``amax`` and ``amin``, ``cumsum`` and ``index_select`` of rows, and the gradient of
            ``x[index]`` of rows. PyTorch's in float32, rounded once, are ``nll_loss``,
            and ``cross_entropy`` of class probabilities or images, because the sum of float16
            losses may be inf, and, of 4096 elements and more, ``argmax``, ``argmin``,
            ``max`` and ``min`` along a dimension, ``logsumexp``, ``var``, ``std``,
            ``binary_cross_entropy`` and its gradient, ``xlogy`` (so ``kl_div``), linear,
            bicubic and trilinear ``interpolate`` to larger sizes,
            ``grid_sample`` and its gradient, ``max_pool1d`` without one,
            ``adaptive_avg_pool3d``, and the gradients of ``unfold`` (so ``fold``), ``embedding_bag``, ``avg_pool2d``,
            ``adaptive_avg_pool2d`` and ``adaptive_avg_pool3d``; and ``softmax`` and
            ``log_softmax`` of the last dimension with ``dtype=torch.float32``, a part of the rows
            at a time. ``gather``, ``scatter`` of a
            tensor and ``flip`` are PyTorch's of the bits as integers. The results of these are
            looked up in a table of all 65536 numbers, of 128 KiB, which is made after dense
            tensors of 4096 elements and more had 262144 elements with the same arguments:
            swamp's ``tanh``, ``sigmoid``, ``silu``, ``gelu``, ``softplus``, ``elu``, ``selu``,
            ``celu``, ``mish``, ``log``, ``log1p``, ``expm1``, ``rsqrt`` and a number to the
            power of a tensor, and PyTorch's ``sin``, ``cos``, ``tan``, ``asin``, ``acos``,
            ``atan``, ``log2``, ``log10``, ``erfc``, ``erfinv``, ``logit`` and comparisons with
            a number. No bit changes.
        attention: whether ``scaled_dot_product_attention`` of float16, bfloat16
            and float32 CPU tensors, and its gradient, are swamp's: float32
            arithmetic inside and one rounding, the same bits on any number of
            threads. PyTorch's own kernel computes what swamp does not take:
            dropout, float64, more than 512 channels, or sizes that need more LDM
            than ``SWAMP_LDM_BYTES``.
        reproducible: whether all of these operators, and ``silu``, ``sigmoid``,
            ``glu``, ``mish``, ``elu`` (so also ``celu`` and ``selu``), ``logsigmoid``,
            ``exp``, ``exp2``, ``expm1``, ``log``, ``log1p``, ``rsqrt`` and ``pow`` of
            a tensor and a number, ``sqrt``, ``softmax``, ``sum`` (so also ``mean`` and most
            losses), ``batch_norm``, ``instance_norm``, ``group_norm``, ``dot``, ``mv``
            and ``addmv``, of float32, float16 and bfloat16 CPU tensors are swamp's, so
            that their bits are the same on every CPU and any number of threads; slow
            on CPUs without fused multiply-add. ``add`` and ``sub`` with ``alpha``,
            ``addcmul``, ``lerp``, products, ``abs``, ``sgn`` and ``neg`` of complex
            numbers, ``polar`` with its gradient, ``index_add`` with ``alpha``,
            ``linspace``, ``arange`` and ``uniform_`` are composed of operators that
            round each operation. Sums and the norms' statistics are computed in float64
            and rounded once (of losses of 16 bits, up to 8192 terms in float32).
            float32 activations are computed in float64 (errors: 0.501 units in the last
            place), in 0.2 to 30 times PyTorch's time. In a thread that flushes subnormal
            numbers (``torch.set_flush_denormal``), 16-bit activations of arguments beyond 87
            may be 0 or inf. Operators that swamp does not replace may still depend
            on the number of threads or on the CPU (below). So do products whose
            operands are misaligned or overlap the result.
        unreproducible: with ``reproducible``, what a call of an operator in the table
            below does for a tensor on the CPU: ``"warn"``, once for each operator;
            ``"raise"``, a ``RuntimeError``; or ``"ignore"``. Code that inductor
            generates calls no operators, so it does neither, but for sums by indices
            that have a gradient, such as ``index_add``.

    Raises:
        ValueError: another ``unreproducible``.

    **Products and convolutions.** Each element is one chain of fused multiply-adds
    in float32. A convolution is a product whose factor is gathered from the windows
    of the input: its terms are in the order of the kernel's positions, at each of
    them the channels; a weight's gradient has them in the order of the images and
    their positions. Padding is zeros that take part, so an inf in the weight gives
    nan at the border. The bits are the same in each memory format;
    ``channels_last`` saves a copy of input and result. Depthwise convolutions, with
    fewer than 16 filters in each of several groups, are PyTorch's in float32,
    rounded by swamp, unless ``reproducible``; ``bilinear`` of 16 bits and ``lstm`` of float16 are computed in
    float32 by PyTorch's composition and rounded once. For each thread that calls,
    packed operands take at most 16 MiB and sums at most 32 MiB; nothing is kept for
    the next product.

    **What stays PyTorch's.** Wrong or rare arguments (empty operands, results that
    overlap operands, complex ``alpha``, dropout inside the attention) go to its
    kernels, with its errors; ``dot`` of float16 unless ``reproducible``; the fast path of ``nn.MultiheadAttention`` and ``nn.TransformerEncoderLayer`` in
    inference, which adds the bias of its first projection to a rounded product
    (``torch.backends.mha.set_fastpath_enabled(False)`` avoids it); and the operators
    that ``torch.func``, forward-mode and second derivatives, DTensor, ``make_fx``,
    ``torch.export`` and ``torch.jit.trace`` see.

    **torch.compile** keeps swamp's operators, with the bits of eager mode. Code is
    compiled again, once for each setting of the switches, and caches on disk
    distinguish them (``torch.compiler.config.cache_key_tag`` gets a suffix). In
    transformations of ``torch.func`` and blocks of ``torch.inference_mode()`` in a
    compiled function inductor's code remains, as does that of operators that are
    PyTorch's in float32, of ``pow``, ``log``, ``log1p``, ``rsqrt`` and ``glu``, of ``sum``
    (so ``mean``, ``var``, ``norm`` and losses such as ``mse_loss``), of ``batch_norm``,
    ``instance_norm`` and ``group_norm``, of activations with
    ``out=`` and of direct calls of ``silu_backward`` and the like, and everything
    that inductor makes of other operators, so that compiled and eager training differ.
    With ``reproducible``, too, the bits of inductor's code depend on the CPU, and those
    of its sums on the number of threads. Code of
    ``cpp_wrapper=True`` calls PyTorch's kernels. With
    ``torch.compiler.nested_compile_region`` repeated layers are compiled once, with
    the same bits. With ``reproducible`` the gradients of an embedding
    and of indices, ``index_add``, ``index_put(accumulate=True)`` and ``put`` are
    PyTorch's kernels, because inductor's add by atomics; inductor's stay if the call
    has a gradient itself, with one warning.

    **Operators of PyTorch that depend on the CPU or the threads** with
    ``reproducible``, forward or backward, in PyTorch 2.13, with 1, 2, 3 and 7 threads
    and ``ATEN_CPU_CAPABILITY`` avx512, avx2 and default. "CPU" alone: only CPUs
    without AVX2, or of other makers, differ. "wide" is float32, float64 and complex
    numbers, "all" is these and 16 bits, "float64" is float64 and complex numbers::

    ==========================================  ==========  ============
    operator                                    dtypes      depends on
    ==========================================  ==========  ============
    ``erf``, ``asin``, ``acos``                 all         CPU
    ``erfc``, ``erfinv``, ``tan``, ``atan``,    wide        CPU
    ``log2``, ``log10``, ``nn.LSTM``, products
    with a sparse operand, ``cdist``, ``pdist``
    ``sinh``, ``cosh``, ``atanh``, ``atan2``,   wide        CPU, threads
    ``hypot``, ``pow`` of two tensors,
    ``logaddexp``, ``logaddexp2``, ``xlogy``
    ``softshrink``, ``special.i0e``             all         CPU, threads
    ``lgamma``, ``digamma``, ``i0``,            wide        CPU
    ``special.i1``, ``special.ndtri``,
    ``polygamma``
    other functions of ``special``: gammainc,   wide        CPU, threads
    Airy, Bessel, polynomials, entr, erfcx, ...
    ``norm``, ``linalg.vector_norm`` (so        wide        CPU
    ``normalize``), ``linalg.cross``
    ``nn.utils.weight_norm``                    all         CPU
    PyTorch's ``Adam``, ``AdamW``, ``SGD`` and  wide        CPU
    ``Adagrad`` with ``fused=True``
    fast path of ``nn.MultiheadAttention`` and  wide        CPU, threads
    ``nn.TransformerEncoderLayer``
    ``torch.fft`` (so ``stft``)                 wide        CPU, threads
    ``torch.linalg``, ``cholesky_solve`` and    wide        CPU, threads
    other functions of LAPACK
    ``addr``                                    wide        CPU, threads
    ``interpolate``: linear, bilinear,          all         CPU
    bicubic, trilinear, antialias
    ``grid_sample``                             wide        CPU
    ``normal_``, so ``randn``,                  all         CPU
    ``nn.init.*normal_``
    activations, ``exp``, ``log``, ``sin``,     float64     CPU, threads
    ``cos``, ``pow`` and other functions;
    ``softmax``, norms, attention; products and
    convolutions; ``ctc_loss``,
    ``binary_cross_entropy``
    ``embedding_bag``'s gradient                all         CPU
    quotients by complex numbers, ``addcdiv``,  complex     CPU, threads
    ``addcmul``, ``lerp``, ``angle``, ``prod``,
    ``cumprod``
    ``kaiser_window``                           all         CPU
    ==========================================  ==========  ============

    The type is the one that PyTorch promotes to; ``out=`` counts with what is computed.
    Integers count as the floats that they become.

    No difference was found in 1700 other calls: arithmetic, losses, pooling, padding,
    indexing, random numbers other than normal ones. A size that was not tried may
    differ. PyTorch's on one thread are ``put_`` and ``index_put(accumulate=True)``, the
    gradients of ``x[index]`` and ``take`` (but of rows of 16 bits, which are swamp's),
    and ``prod`` of a whole tensor, so numbers are added in the order of the indices;
    ``sum``, ``nansum``, ``mean``, ``var``, ``std`` and losses of float64 and complex numbers, and ``histogram``. ``dot``, ``mv``
    and ``addmv`` are one chain of sums for each element.
    """
    _ops.set_unreproducible(index_of("unreproducible", unreproducible, _UNREPRODUCIBLE))
    _compile.set_unreproducible(unreproducible)
    _compile.set_switches(half_precision, reproducible)
    _ops.set_attention(attention)
    _ops.set_active(True)


def disable() -> None:
    """Restores PyTorch's own kernels, in the whole process.

    The functions and classes of this package still use swamp's. For threads and
    ``torch.compile`` see :func:`enable`.
    """
    _compile.set_switches(False, False)
    _ops.set_attention(False)
    _ops.set_active(False)


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """A context in which PyTorch's own kernels run, as after :func:`disable`, in
    the whole process; at its end, also by an exception, they are as before::

        with swamp_torch.disabled():
            scaler.step(optimizer)
    """
    before = (is_active(), is_active(half_precision=True),
              is_active(attention=True), is_active(reproducible=True))
    disable()
    try:
        yield
    finally:
        _compile.set_switches(before[1], before[3])
        _ops.set_attention(before[2])
        _ops.set_active(before[0])


def is_active(*, half_precision: bool = False, attention: bool = False,
              reproducible: bool = False) -> bool:
    """Whether PyTorch's two operators run swamp's kernels now; with
    ``half_precision``, whether its 16-bit operators do; with ``attention``,
    whether its attention does; with ``reproducible``, whether those of
    :func:`enable`'s option do."""
    if reproducible:
        return bool(_ops.is_reproducible())
    if attention:
        return bool(_ops.is_attention())
    return bool(_ops.is_half_precision() if half_precision
                else _ops.is_active())


def info() -> Dict[str, Any]:
    """The machine that swamp runs on, with the keys of ``swamp info --json``, and
    ``"torch"``, the PyTorch version it was built for.

    Raises:
        RuntimeError: a bad value of a variable ``SWAMP_*``.
    """
    result: Dict[str, Any] = json.loads(_ops.info())
    return result


def _list(tensors: Union[torch.Tensor, Iterable[torch.Tensor]],
          name: str) -> List[torch.Tensor]:
    """A tensor or several as a list.

    Raises:
        TypeError: one that is not a Tensor. PyTorch's own text does not say
            which one it is, nor its type.
    """
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    if tensors is None:
        raise TypeError(f"{name}: got None, expected a Tensor or several")
    result = list(tensors)
    for index, one in enumerate(result):
        if not isinstance(one, torch.Tensor):
            got = "None" if one is None else type(one).__name__
            raise TypeError(f"{name}[{index}]: got {got}, expected a Tensor")
    return result


def unscale_(grads: Union[torch.Tensor, Iterable[torch.Tensor]],
             found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
    """``torch._amp_foreach_non_finite_check_and_unscale_`` that also takes
    float8_e4m3fn and float8_e5m2: float32(code) * inv_scale, rounded as
    ``Tensor.to()`` does.

    Args:
        grads: CPU tensors of any shapes and strides; float16, bfloat16, float32,
            float64 or the two float8, which may be mixed; written.
        found_inf: one float32 of any shape; set to 1 if an element was inf or nan
            before, else left alone.
        inv_scale: one float32 of any shape, 1 over the scale of the gradients.

    Raises:
        RuntimeError: an argument of another device, dtype, layout or count;
            nothing is written then.
        TypeError: an element of the list that is not a Tensor.
    """
    _ops.unscale_(_list(grads, "grads"), found_inf, inv_scale)


def any_nonfinite(
        tensors: Union[torch.Tensor, Iterable[torch.Tensor]],
        saturated: bool = False) -> torch.Tensor:
    """Searches for inf and nan; writes nothing.

    Args:
        tensors: CPU tensors of any shapes and strides; float16, bfloat16,
            float32, float64, float8_e4m3fn or float8_e5m2, which may be mixed.
            The list may be empty.
        saturated: +-65504 in a float16 tensor counts, too: hardware that saturates
            stores it in place of inf (Ascend's float status). It is a false alarm
            if a number has just this value, and an overflow of an intermediate
            result stays unseen.

    Returns:
        A new float32 tensor without dimensions: 1 if any element is inf or nan,
        else 0.

    Raises:
        RuntimeError: a tensor that is not on the CPU.
        NotImplementedError: one of another dtype or layout.
        TypeError: an element of the list that is not a Tensor.
    """
    result: torch.Tensor = _ops.any_nonfinite(_list(tensors, "tensors"),
                                                 saturated)
    return result


def grad_norm_and_check(
        grads: Union[torch.Tensor, Iterable[torch.Tensor]],
        found_inf: torch.Tensor,
        inv_scale: torch.Tensor) -> torch.Tensor:
    """The 2-norm of the unscaled gradients and the check for inf and nan, in one
    pass that writes no gradient. The same bits on any number of threads.

    Args:
        grads: CPU tensors; float16, bfloat16, float32, float64, float8_e4m3fn or
            float8_e5m2, which may be mixed. The list may be empty.
        found_inf: one float32 of any shape; set to 1 if any element is inf or
            nan, else left alone.
        inv_scale: one float32 of any shape, 1 over the scale of the gradients.

    Returns:
        A new float64 tensor without dimensions.

    Raises:
        RuntimeError: an argument of another device, dtype, layout or count;
            nothing is written then.
        TypeError: an element of the list that is not a Tensor.
    """
    result: torch.Tensor = _ops.grad_norm_and_check(_list(grads, "grads"),
                                                    found_inf, inv_scale)
    return result


def foreach_lerp_(out: Iterable[torch.Tensor], input: Iterable[torch.Tensor],
                  weight: float) -> None:
    """``out += weight * (input - out)`` in one pass over memory, with the bits of
    ``torch._foreach_lerp_``. Unlike there, a float32 ``out`` may have a 16-bit
    ``input``.

    Args:
        out: CPU tensors; float16, bfloat16 or float32; written.
        input: as many, of the same shapes; of the dtype of ``out``, or, if that is
            float32, of any of the three.
        weight: computed in float32.

    Raises:
        RuntimeError: a tensor of another device, dtype, layout or shape; nothing
            is written then.
        TypeError: an element of a list that is not a Tensor.
    """
    outs, inputs = _list(out, "out"), _list(input, "input")
    if outs or inputs:  # PyTorch's dispatcher refuses a call without a tensor
        _ops.foreach_lerp_(outs, inputs, weight)


def get_ema_multi_avg_fn(
        decay: float = 0.999) -> Callable[[Any, Any, Any], None]:
    """``torch.optim.swa_utils.get_ema_multi_avg_fn`` in one pass over memory, with
    the same bits: the exponential moving average of a model's parameters::

        ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))

    The average of a 16-bit model may be float32 (``ema.float()``): a 16-bit one
    stops following the parameters when a change is below half a unit in its last
    place. Tensors that swamp does not take are averaged by PyTorch.

    Args:
        decay: from 0 to 1.

    Raises:
        ValueError: another ``decay``.
    """
    stock = torch.optim.swa_utils.get_ema_multi_avg_fn(decay)

    @torch.no_grad()
    def update(averages: List[torch.Tensor], parameters: List[torch.Tensor],
               count: Any) -> None:
        if all(map(is_ours, itertools.chain(averages, parameters))):
            foreach_lerp_(averages, parameters, 1 - decay)
        else:
            stock(averages, parameters, count)

    return update
