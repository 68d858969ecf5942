"""clip_grad_norm_: torch.nn.utils.clip_grad_norm_ with swamp's norm."""

from typing import Iterable, List, Optional, Union

import torch

from ._number import number

_DTYPES = frozenset((torch.float16, torch.bfloat16, torch.float32,
                     torch.float64))


def _is_ours(grad: torch.Tensor) -> bool:
    return (type(grad) is torch.Tensor and grad.is_cpu
            and grad.layout is torch.strided and grad.dtype in _DTYPES)


def _multiply(grads: List[torch.Tensor], factor: float) -> None:
    """Each gradient times the factor, in its own dtype."""
    doubles = [g for g in grads if g.dtype is torch.float64]
    others = [g for g in grads if g.dtype is not torch.float64]
    if doubles:
        torch._foreach_mul_(doubles, factor)
    if others:
        # The unscale is this product, for all of them in one job: formed in
        # float32, rounded once more for 16 bits.
        torch._amp_foreach_non_finite_check_and_unscale_(
            others, number(0.0), number(factor))


@torch.no_grad()
def clip_grad_norm_(parameters: Union[torch.Tensor, Iterable[torch.Tensor]],
                    max_norm: float,
                    norm_type: float = 2.0,
                    error_if_nonfinite: bool = False,
                    foreach: Optional[bool] = None) -> torch.Tensor:
    """Clips the norm of all gradients together, in place, as
    ``torch.nn.utils.clip_grad_norm_`` does.

    The 2-norm of gradients on the CPU is swamp's: squares and sums in float64,
    in a fixed order, so its bits do not depend on the number of threads, and
    16-bit gradients do not overflow it. Gradients are multiplied by
    ``max_norm / (norm + 1e-6)`` where that is below 1, or nan; otherwise they are
    not touched. Any other norm, device, layout or dtype is PyTorch's own.

    Args:
        parameters: a parameter or several; their ``.grad`` may be None. Without
            any gradient the answer is 0.
        max_norm: the largest norm allowed.
        norm_type: of the norm; 2 is swamp's.
        error_if_nonfinite: raise instead of clipping by inf or nan; then no
            gradient has been changed.
        foreach: for PyTorch's own; not looked at where the norm is swamp's.

    Returns:
        The norm before clipping, without dimensions: float64 if a gradient is,
        else float32, also for 16-bit gradients.

    Raises:
        RuntimeError: the norm is inf or nan and ``error_if_nonfinite`` is set.
        TypeError: ``max_norm`` is None.
    """
    if max_norm is None:
        raise TypeError("max_norm: got None, expected a number")
    parameters = ([parameters] if isinstance(parameters, torch.Tensor)
                  else list(parameters))
    grads = [p.grad for p in parameters if p.grad is not None]
    norm_type = float(norm_type)
    if not grads or norm_type != 2.0 or not all(map(_is_ours, grads)):
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
    factor = float(max_norm) / (norm.item() + 1e-6)
    if not factor >= 1.0:  # nan goes to all gradients, as in PyTorch
        _multiply(grads, factor)
    if any(g.dtype is torch.float64 for g in grads):
        return norm
    return norm.to(torch.float32)
