"""Row operators of mixed-precision models, for CPU tensors.

float16, bfloat16 and float32 inputs, float32 arithmetic inside and one rounding
at the end; sums of gradients are float64. Results have the same bits on any number of
threads. (PyTorch's bfloat16 gradient of LayerNorm's bias, of 8192 rows of ones, is 256
on one thread and 512 on two, and its float16 cross entropy of 65,505 or more classes
is inf.) All functions have gradients and work under ``torch.compile``. Second
derivatives are implemented for ``layer_norm``, ``rms_norm``, ``cross_entropy`` and
activations, with PyTorch's operators in float32; the others raise an error. Autograd overwrites neither a gradient nor the
logits; the operators ``torch.ops.swamp.scaled_softmax_backward`` and
``cross_entropy_backward`` write into their argument.
"""

import math
from typing import (Any, Callable, List, Literal, Optional, Protocol, Sequence, Tuple,
                    Union)

import torch
from torch import Tensor


class _Operators(Protocol):
    """torch.ops.swamp for type checkers, which know none of its names."""

    def __getattr__(self, name: str) -> Callable[..., Tensor]: ...


_ops: _Operators = torch.ops.swamp
Causal = Literal["none", "top_left", "bottom_right"]
Reduction = Literal["none", "mean", "sum"]
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def scaled_softmax(x: Tensor, scale: float = 1.0) -> Tensor:
    """softmax(scale * x) over the last dimension.

    Args:
        x: of any shape with at least one dimension.
        scale: a float32 factor.
    """
    rows = x.reshape(1, 1, -1, x.size(-1)) if x.numel() else x.reshape(
        1, 1, 1, 0)
    return _ops.scaled_softmax(rows, scale).view(x.shape)


def scaled_masked_softmax(x: Tensor, mask: Tensor, scale: float = 1.0, *,
                          zero_masked_rows: bool = True) -> Tensor:
    """Megatron-LM's softmax of masked scores: masked scores become -10000 after
    the scale.

    Args:
        x: [b, np, sq, sk].
        mask: [b or 1, 1, sq, sk], bool or uint8; not 0: masked.
        scale: a float32 factor.
        zero_masked_rows: whether a row that is masked entirely becomes 0, as in
            apex; otherwise it is uniform, as in Megatron-LM without apex.
    """
    return _ops.scaled_masked_softmax(x, mask, scale, zero_masked_rows=zero_masked_rows)


def scaled_upper_triang_masked_softmax(x: Tensor, scale: float = 1.0) -> Tensor:
    """The softmax of causal attention: column j of row i counts if j <= i, and
    the others are 0.

    Args:
        x: [..., sq, sq], at least 3 dimensions.
        scale: a float32 factor.
    """
    scores = x if x.dim() <= 3 else x.reshape(-1, x.size(-2), x.size(-1))
    return _ops.scaled_upper_triang_masked_softmax(scores, scale).view(x.shape)


def attention(query: Tensor, key: Tensor, value: Tensor, *,
              mask: Optional[Tensor] = None, causal: Causal = "none",
              scale: Optional[float] = None) -> Tuple[Tensor, Tensor]:
    """softmax(scale * query @ key^T + mask) @ value without the matrix of
    scores, as flash attention computes it.

    Args:
        query: [batch, heads, queries, channels], at most 512 channels.
        key: [batch, key heads, keys, channels]; key heads divide the heads
            (grouped-query attention).
        value: [batch, key heads, keys, value channels].
        mask: broadcasts to [batch, heads, queries, keys]; bool (False: hidden),
            or float32 or the dtype of query, added to the scores. It gets no
            gradient: with gradients enabled, it must not require one.
        causal: "none"; "top_left": query i sees the keys up to i, as with
            PyTorch's is_causal; "bottom_right": the last query sees all keys,
            as in FlashAttention 2.1 and later.
        scale: the default is 1 / sqrt(channels).

    Returns:
        out, [batch, heads, queries, value channels], and lse, float32, [batch,
        heads, queries]: the log of the sum of the exponentials of the scores.
        A query that sees no key has out 0 and lse inf.

    The gradient is divided among batch times key heads: with one of both it uses
    one thread.

    Float32 lse has lost the log of the sum if scores are large. The backward pass
    computes it again for queries with abs(lse) >= 64 (16-bit types: 1024), which
    takes the time of their forward pass; so do queries all of whose keys a mask hides
    by finite values, such as -1e9. Hide keys with -inf or a bool mask.

    Raises:
        ValueError: a bad value of causal.
        RuntimeError: dtypes or shapes that do not fit.
        NotImplementedError: another dtype, more than 512 channels, or more
            LDM needed than there is (``SWAMP_LDM_BYTES``).
    """
    out, lse = _ops.attention(query, key, value, mask=mask, causal=causal, scale=scale)
    return out, lse


def cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None,
                  *, ignore_index: int = -100, reduction: Reduction = "mean",
                  label_smoothing: float = 0.0, z_loss: float = 0.0) -> Tensor:
    """:func:`torch.nn.functional.cross_entropy` of class indices. The loss is
    float32. Its gradient stays float32 until it has been multiplied by that of
    each logit, so that a loss scale does not overflow.

    Args:
        input: the logits, [C], [N, C] or [N, C, d1, ...].
        target: int64, of the shape of input without C.
        weight: one for each class.
        ignore_index: a target that does not count.
        reduction: "none", "mean" or "sum".
        label_smoothing: from 0 to 1.
        z_loss: adds z_loss * log(sum(exp(logits)))^2 to the loss of each row.

    Raises:
        IndexError: a target that is not a class.
        ValueError: sizes that do not fit, or a bad reduction.
        RuntimeError: a bad dtype or number of dimensions.
        NotImplementedError: logits of another dtype.
    """
    if reduction not in _REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    rows = input.movedim(1, -1) if input.dim() > 2 else input
    return _ops._cross_entropy(rows, target, weight,
                               _REDUCTIONS[reduction], ignore_index,
                               label_smoothing, z_loss)[0]


def linear_cross_entropy(input: Tensor, linear_weight: Tensor, target: Tensor,
                         linear_bias: Optional[Tensor] = None, *,
                         ignore_index: int = -100, reduction: Reduction = "mean",
                         label_smoothing: float = 0.0,
                         chunk_rows: Optional[int] = None) -> Tensor:
    """``cross_entropy(linear(input, linear_weight, linear_bias), target)`` without
    the logits: a chunk of rows at a time, as Liger-Kernel's
    ``LigerFusedLinearCrossEntropyLoss`` and PyTorch 2.13's function of this name.

    The loss is float32, with the bits of :func:`cross_entropy` of swamp's product, or,
    on CPUs with AMX and unless ``reproducible``, of PyTorch's, which is faster there.
    The forward pass computes the gradients too, if they are needed, and keeps them
    in float32 until the backward pass has multiplied them by the gradient of the
    loss; so float16 needs a loss scale only for what comes before this layer. With
    the reduction "none" the backward pass computes the logits again. If no target
    counts, the mean is nan and the gradients are 0, as PyTorch's.

    All bits are the same on any number of threads. Those of the loss and of the
    gradient of ``input`` do not depend on ``chunk_rows``; those of ``linear_weight``
    and ``linear_bias`` do, because they are sums over chunks.

    Under autocast, the three tensors are converted to autocast's dtype.

    Args:
        input: [..., H]; float16, bfloat16 or float32.
        linear_weight: [C, H], of the same dtype.
        target: int64, of the shape of input without H.
        linear_bias: [C], of the same dtype.
        ignore_index: a target that does not count.
        reduction: "none", "mean" or "sum".
        label_smoothing: from 0 to 1.
        chunk_rows: rows of a chunk; None: max(64, 2**24 // C).

    Raises:
        IndexError: a target that is not a class.
        ValueError: sizes that do not fit, or a bad reduction or chunk_rows.
        RuntimeError: a bad dtype or number of dimensions.
        NotImplementedError: input of another dtype; a second derivative.
    """
    if reduction not in _REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if chunk_rows is not None and chunk_rows < 1:
        raise ValueError(f"chunk_rows: got {chunk_rows}, expected None or a "
                         "positive number")
    tensors = [input, linear_weight, linear_bias]
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        tensors = [None if t is None else t.to(dtype) for t in tensors]
    return _ops._linear_cross_entropy(
        *tensors, target, None, _REDUCTIONS[reduction], ignore_index,
        label_smoothing, [False] * 3, chunk_rows or 0)[0]


_LN2 = math.log(2)
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # times an exponent: exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")


def _exp(x: Tensor) -> Tensor:
    """exp() of float64 numbers up to 700, by operations whose bits no CPU changes."""
    x = x.clamp(min=-700.0)
    exponent = (x / _LN2).round()
    x = (x - exponent * _LN2_HIGH) - exponent * _LN2_LOW
    series = torch.ones_like(x)
    for i in range(14, 0, -1):
        series = series * x / i + 1
    return series * ((exponent.long() + 1023) << 52).view(torch.float64)


def _log(x: Tensor) -> Tensor:
    """log() of finite float64 numbers from 1 on, and of nan; see _exp()."""
    exponent = (x.view(torch.int64) >> 52) - 1023
    x = x * ((1023 - exponent) << 52).view(torch.float64)  # 1 <= x < 2
    is_large = x > 1.4
    x = x.where(~is_large, x / 2)
    exponent = (exponent + is_large).double()
    x = (x - 1) / (x + 1)
    square, series = x * x, torch.zeros_like(x)
    for i in range(21, 0, -2):
        series = series * square + 1 / i
    return exponent * _LN2_HIGH + (2 * x * series + exponent * _LN2_LOW)


class _VocabParallelCrossEntropy(torch.autograd.Function):
    """The losses of all rows, from the logits of this rank's classes."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, group: Any,
                ignore_index: int, label_smoothing: float,
                megatron: bool) -> Tensor:
        import torch.distributed as dist
        ranks = dist.get_world_size(group)
        columns = logits.size(-1)
        first = dist.get_rank(group) * columns
        classes = ranks * columns
        wrong = (target != ignore_index) & ((target < 0) | (target >= classes))
        if wrong.any():
            raise IndexError(
                f"Target {int(target[wrong][0])} is out of bounds.")
        # The loss of class 0 with full smoothing is lse - mean(logits).
        losses, lse, _ = _ops._cross_entropy(
            logits, torch.zeros_like(target), None, 0, -100,
            1.0 if label_smoothing else 0.0, 0.0)
        if lse.isnan().any():  # a rank whose logits are all -inf adds nothing
            some = logits.amax(-1) != -torch.inf
            lse = torch.stack([lse[0].where(some, -torch.inf), lse[1].where(some, 0)])
        local = target - first
        inside = (local >= 0) & (local < columns)
        x = logits.gather(-1, local.where(inside, 0).unsqueeze(-1)).squeeze(-1)
        largest = lse[0].double()
        dist.all_reduce(largest, dist.ReduceOp.MAX, group)
        # Differences from the largest, so that large logits lose nothing.
        mine = (lse[0].double() - largest) + lse[1].double()
        mean = mine - losses.double() if label_smoothing else None
        sums = [_exp(mine), (x.double() - largest).where(inside, 0)]
        if mean is not None and not megatron:
            sums.append(mean)
        total = torch.stack(sums)
        dist.all_reduce(total, dist.ReduceOp.SUM, group)
        whole = _log(total[0])
        smoothing = label_smoothing
        loss = whole - total[1]
        if mean is not None:
            if megatron:  # a larger factor, and the mean of this rank's classes
                smoothing *= columns / (columns - 1)
            else:
                mean = total[2] / ranks
            loss = (1 - smoothing) * loss + smoothing * (whole - mean)
        high = (largest + whole).float()
        low = ((largest - high.double()) + whole).float()
        ctx.save_for_backward(logits, target, torch.stack([high, low]))
        ctx.numbers = (ignore_index, label_smoothing, first, classes, megatron)
        return loss.where(target != ignore_index, 0).float()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tuple[Optional[Tensor], ...]:
        logits, target, lse = ctx.saved_tensors
        ignore_index, label_smoothing, first, classes, megatron = ctx.numbers
        dx = _ops._cross_entropy_backward(
            grads[0], logits, target, lse, lse.new_ones(()), 0, ignore_index,
            label_smoothing, None, 0.0, first, classes, megatron)
        return dx, None, None, None, None, None


def vocab_parallel_cross_entropy(
        logits: Tensor, target: Tensor, group: Any = None, *,
        ignore_index: int = -100, label_smoothing: float = 0.0,
        megatron: bool = False) -> Tensor:
    """The cross entropy of classes that are divided between the ranks of a group:
    Megatron-LM's ``vocab_parallel_cross_entropy``. Collective: one all-reduce
    MAX and one SUM.

    Args:
        logits: [..., C / ranks], the logits of this rank's classes: rank r has
            the classes from r * C / ranks.
        target: [...], int64, classes of all ranks; the same on every rank.
        group: of torch.distributed; None: the default one.
        ignore_index: a target that does not count.
        label_smoothing: from 0 to 1.
        megatron: whether to smooth as Megatron-LM does, over the K classes of
            each rank alone and by label_smoothing * K / (K - 1); the losses
            then differ between ranks.

    Returns:
        [...], float32: the loss of each row, the same bits on every rank.

    Raises:
        IndexError: a target that is not a class; on every rank.
    """
    loss: Tensor = _VocabParallelCrossEntropy.apply(  # type: ignore
        logits, target, group, ignore_index, label_smoothing, megatron)
    return loss


def _rows(input: Tensor, normalized_shape: Union[int, Sequence[int]],
          *vectors: Optional[Tensor]) -> Tuple[Tensor, List[Optional[Tensor]]]:
    """The input with one normalized dimension."""
    shape = ([normalized_shape] if isinstance(normalized_shape, int)
             else list(normalized_shape))
    count = len(shape)
    if not shape or list(input.shape[-count:]) != shape:
        stars = ", ".join(["*", *map(str, shape)])
        raise RuntimeError(
            f"Given normalized_shape={shape}, expected input with shape "
            f"[{stars}], but got input of size{list(input.shape)}")
    for name, vector in zip(("weight", "bias"), vectors):
        if vector is not None and list(vector.shape) != shape:
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but "
                f"got {name} of shape {list(vector.shape)} and "
                f"normalized_shape = {shape}")
    if count == 1:
        return input, list(vectors)
    return (input.flatten(-count),
            [None if v is None else v.flatten() for v in vectors])


def layer_norm(input: Tensor, normalized_shape: Union[int, Sequence[int]],
               weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
               eps: float = 1e-5) -> Tensor:
    """:func:`torch.nn.functional.layer_norm`, with float32 statistics; the
    gradients of weight and bias are summed in float64 and rounded once.

    Args:
        input: [..., normalized_shape].
        normalized_shape: the last dimensions.
        weight: float32 or of the input's dtype.
        bias: float32 or of the input's dtype.
        eps: added to the variance.
    """
    x, (w, b) = _rows(input, normalized_shape, weight, bias)
    return _ops.layer_norm(x, w, b, eps)[0].view(input.shape)


def rms_norm(input: Tensor, normalized_shape: Union[int, Sequence[int]],
             weight: Optional[Tensor] = None,
             eps: Optional[float] = None) -> Tensor:
    """:func:`torch.nn.functional.rms_norm`; see :func:`layer_norm`.

    Args:
        input: [..., normalized_shape].
        normalized_shape: the last dimensions.
        weight: float32 or of the input's dtype.
        eps: added to the mean square; None: that of float32.
    """
    x, (w,) = _rows(input, normalized_shape, weight)
    if eps is None:
        eps = torch.finfo(torch.float32).eps
    return _ops.rms_norm(x, w, eps)[0].view(input.shape)


def residual_add(residual: Tensor, x: Tensor, bias: Optional[Tensor] = None, *,
                 inplace: bool = False) -> Tensor:
    """residual + (x + bias) in float32: Megatron-LM's fp32 residual connection.

    Args:
        residual: float32.
        x: float16, bfloat16 or float32, of the same shape.
        bias: one for each column.
        inplace: whether to write into residual, in one pass over the memory.
    """
    return _ops.residual_add_(residual if inplace else residual.clone(), x, bias)


Function = Literal["silu", "gelu", "gelu_tanh", "tanh", "sigmoid", "relu",
                   "relu_squared", "softplus", "exp", "log", "log1p", "expm1",
                   "rsqrt", "mish", "elu", "pow", "pow_base"]


def activation(x: Tensor, function: Function = "silu", *, beta: float = 1.0,
               threshold: float = 20.0, alpha: float = 1.0,
               scale: float = 1.0) -> Tensor:
    """An activation with the same bits on every CPU and any number of threads.
    float32 is computed in float64: the error is at most 0.501 units in the last
    place, and 0.6 of the derivative (of tanh, sigmoid, exp, expm1 and rsqrt: at the
    saved result, as in PyTorch).

    Args:
        x: of any shape.
        function: ``"gelu_tanh"`` is PyTorch's ``gelu(approximate="tanh")``,
            ``"relu_squared"`` the square of relu, ``"pow"`` x ** beta and
            ``"pow_base"`` beta ** x.
        beta: of ``"softplus"``, ``"pow"``, ``"pow_base"``, and of ``"elu"``, where
            PyTorch calls it input_scale.
        threshold: of ``"softplus"``.
        alpha: of ``"elu"``.
        scale: of ``"elu"``.
    """
    return _ops.activation(x, function, beta, threshold, alpha, scale)


def gated_activation(gate: Tensor, up: Optional[Tensor] = None,
                     function: Function = "silu") -> Tensor:
    """function(gate) * up, in one pass and rounded once: SwiGLU with ``"silu"``,
    GeGLU with ``"gelu"``, GLU with ``"sigmoid"``. See :func:`activation`.

    Args:
        gate: of any shape; without ``up`` both halves of one projection, whose last
            dimension is twice that of the result. Neither they nor their gradients
            are copied.
        up: of the shape and dtype of ``gate``.
        function: of the gate.
    """
    return _ops.gated_activation(gate, up, function)
