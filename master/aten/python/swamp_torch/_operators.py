"""The operators torch.ops.swamp.* as functions with types."""

import json
import warnings
from typing import Any, Dict, Iterable, List, Union

import torch

_ops = torch.ops.swamp


def enable() -> None:
    """Makes PyTorch's own two operators of mixed precision swamp's, for CPU
    tensors, in the whole process; so it is after the import.

    Any thread may call, also while operators run. It is not for functions under
    ``torch.compile``.
    """
    _ops.set_active(True)


def disable() -> None:
    """Goes back to stock PyTorch's own kernels, in the whole process.

    What is called by swamp's name (:func:`any_nonfinite`,
    :func:`grad_norm_and_check`, :func:`clip_grad_norm_`,
    :class:`MixedPrecisionAdamW`) stays swamp's. As for threads and
    ``torch.compile``, see :func:`enable`.
    """
    _ops.set_active(False)


def is_active() -> bool:
    """Whether PyTorch's own two operators are swamp's now."""
    return bool(_ops.is_active())


def info() -> Dict[str, Any]:
    """The machine that swamp runs on, as ``swamp info --json`` gives it, and
    under ``"torch"`` the PyTorch version it was built for.

    Raises:
        RuntimeError: a bad value of a variable ``SWAMP_*``.
    """
    result: Dict[str, Any] = json.loads(_ops.info())
    return result


def _list(tensors: Union[torch.Tensor, Iterable[torch.Tensor]],
          name: str) -> List[torch.Tensor]:
    """A tensor or several as a list.

    Raises:
        TypeError: one that is not a Tensor; PyTorch's own text does not say
            which, nor what it is.
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


def any_nonfinite(
        tensors: Union[torch.Tensor, Iterable[torch.Tensor]]) -> torch.Tensor:
    """Looks for inf and nan; writes nothing.

    Args:
        tensors: CPU tensors of any shapes and strides; float16, bfloat16,
            float32 or float64, which may be mixed. There may be none.

    Returns:
        A new float32 tensor without dimensions: 1 if any element is inf or nan,
        else 0.

    Raises:
        RuntimeError: a tensor that is not on the CPU.
        NotImplementedError: one of another dtype or layout.
        TypeError: an element of the list that is not a Tensor.
    """
    result: torch.Tensor = _ops.any_nonfinite(_list(tensors, "tensors"))
    return result


def check_finite(
        tensors: Union[torch.Tensor, Iterable[torch.Tensor]]) -> torch.Tensor:
    """Deprecated: :func:`any_nonfinite` by its old name, which says the opposite
    of what it returns."""
    warnings.warn("swamp_torch.check_finite() is deprecated, as it returns 1 if "
                  "an element is *not* finite; use any_nonfinite()",
                  FutureWarning, stacklevel=2)
    return any_nonfinite(tensors)


def grad_norm_and_check(
        grads: Union[torch.Tensor, Iterable[torch.Tensor]],
        found_inf: torch.Tensor,
        inv_scale: torch.Tensor) -> torch.Tensor:
    """The 2-norm of the unscaled gradients and the check for inf and nan, in one
    pass that writes no gradient. The same bits on any number of threads.

    Args:
        grads: CPU tensors; float16, bfloat16, float32 or float64, which may be
            mixed. There may be none.
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
