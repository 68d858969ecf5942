"""clip_grad_norm_: torch.nn.utils.clip_grad_norm_ with swamp's norm."""

import math
from typing import Iterable, List, Optional, Union, get_args

import torch

from ._operators import number
from ._optimizer_checks import ClipRule, check_max_norm, index_of

_DTYPES = frozenset((torch.float16, torch.bfloat16, torch.float32,
                     torch.float64))


def _is_ours(grad: torch.Tensor) -> bool:
    return (type(grad) is torch.Tensor and grad.is_cpu
            and grad.layout is torch.strided and grad.dtype in _DTYPES)


def _multiply(grads: List[torch.Tensor], factor: float) -> None:
    """Multiplies each gradient by the factor, in its own dtype."""
    others = []
    for grad in grads:
        if grad.dtype is torch.float64:
            grad.mul_(factor)
        else:
            others.append(grad)
    if others:
        # The unscale is this product, for the whole list in one launch: computed
        # in float32, then rounded to the gradient's dtype.
        torch.ops.swamp.unscale_(others, number(0.0), number(factor))


@torch.no_grad()
def clip_grad_norm_(parameters: Union[torch.Tensor, Iterable[torch.Tensor]],
                    max_norm: float,
                    norm_type: float = 2.0,
                    error_if_nonfinite: bool = False,
                    foreach: Optional[bool] = None, *,
                    clip_rule: ClipRule = "megatron") -> torch.Tensor:
    """Clips the norm of all gradients together, in place, as
    ``torch.nn.utils.clip_grad_norm_`` does.

    swamp computes the 2-norm of gradients on the CPU, with squares and sums in
    float64 and in a fixed order, so that its bits do not depend on the number of
    threads and 16-bit gradients do not overflow it. Gradients are multiplied by
    ``max_norm / (norm + 1e-6)`` if that is below 1, or nan; otherwise they are
    not written. For any other norm, device, layout or dtype this calls PyTorch's
    function, for norms of infinite or negative order without the gradients that
    have no elements.

    Args:
        parameters: a parameter or several; their ``.grad`` may be None. Without
            any gradient the norm is 0.
        max_norm: the largest norm allowed, at least 0; 0 makes all gradients 0.
        norm_type: the order of the norm; swamp computes the norm if it is 2.
        error_if_nonfinite: raise an error, before any gradient is written, if the
            norm is inf or nan.
        foreach: passed to PyTorch's function; ignored if swamp computes the norm.
        clip_rule: "mindspore": the factor is ``max_norm / norm``; only for norms
            that swamp computes.

    Returns:
        The norm before clipping, a tensor without dimensions: float64 if any
        gradient is float64, else float32, also for 16-bit gradients.

    Raises:
        RuntimeError: the norm is inf or nan and ``error_if_nonfinite`` is set.
        TypeError: ``max_norm`` is None.
        ValueError: ``max_norm`` is negative or nan, with which PyTorch's function
            turns the gradients round or makes them nan. ``clip_rule`` is unknown,
            or "mindspore" for a norm that PyTorch computes.
    """
    if max_norm is None:
        raise TypeError("max_norm: got None, expected a number")
    check_max_norm(max_norm)
    index_of("clip_rule", clip_rule, get_args(ClipRule))
    parameters = ([parameters] if isinstance(parameters, torch.Tensor)
                  else list(parameters))
    grads = [p.grad for p in parameters if p.grad is not None]
    norm_type = float(norm_type)
    if norm_type < 0.0 or norm_type == math.inf:
        # PyTorch refuses gradients without elements, which have no such norm.
        parameters = [p for p in parameters
                      if p.grad is not None and p.grad.numel() != 0]
    if not grads or norm_type != 2.0 or not all(map(_is_ours, grads)):
        if grads and clip_rule != "megatron":
            raise ValueError(f"clip_rule: got {clip_rule!r} for gradients or a norm "
                             "that swamp does not compute, expected 'megatron'")
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type,
                                              error_if_nonfinite, foreach)
    norm: torch.Tensor = torch.ops.swamp.grad_norm_and_check(
        grads, number(0.0), number(1.0))
    if error_if_nonfinite and not bool(torch.isfinite(norm)):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from "
            "`parameters` is non-finite, so it cannot be clipped. To disable "
            "this error and scale the gradients by the non-finite norm anyway, "
            "set `error_if_nonfinite=False`")
    divisor = norm.item() + (1e-6 if clip_rule == "megatron" else 0.0)
    factor = float(max_norm) / divisor if divisor else 1.0
    if not factor >= 1.0:  # nan is passed to all gradients, as in PyTorch
        _multiply(grads, factor)
    if any(g.dtype is torch.float64 for g in grads):
        return norm
    return norm.to(torch.float32)
