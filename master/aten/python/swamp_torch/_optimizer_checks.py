"""The argument checks of MixedPrecisionAdamW."""

from typing import Any, Dict, List

import torch
from torch import Tensor

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def check_numbers(group: Dict[str, Any]) -> None:
    """Raises ValueError for a number out of its range; in PyTorch's words, if
    torch.optim.AdamW has the option."""
    lr = group["lr"]
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not 0.0 <= float(lr):
        raise ValueError(f"Invalid learning rate: {lr}")
    if not 0.0 <= group["eps"]:
        raise ValueError(f"Invalid epsilon value: {group['eps']}")
    for index, beta in enumerate(group["betas"]):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
    if not 0.0 <= group["weight_decay"]:
        raise ValueError(f"Invalid weight_decay value: {group['weight_decay']}")
    max_norm = group["max_norm"]
    if max_norm is not None and not 0.0 <= max_norm:
        raise ValueError(f"max_norm: got {max_norm}, expected a number, at least "
                         "0 (0 or None: no clipping)")
    check_rules(group, "")


def check_rules(group: Dict[str, Any], place: str) -> None:
    """Raises ValueError for an option of torch.optim.AdamW that swamp lacks.

    Args:
        group: a group of this class or of torch.optim.AdamW.
        place: where the group is, for the text.
    """
    for name in ("amsgrad", "maximize", "differentiable"):
        if group.get(name):
            where = f"{place}['{name}']" if place else name
            raise ValueError(f"{where}: got {group[name]}, expected False: "
                             "MixedPrecisionAdamW has no such option")


def check_step(step: Any, place: str) -> None:
    """Raises ValueError for a step count, a Tensor or not, that is not a whole
    number from 0 to 2^53 - 1."""
    try:
        good = float(step).is_integer() and 0 <= float(step) < 2.0 ** 53
    except (TypeError, ValueError, OverflowError, RuntimeError):
        good = False
    if not good:
        raise ValueError(f"{place}: got {step}, expected a whole number from 0 to "
                         "2^53 - 1")


def check_once(params: List[Tensor]) -> None:
    """Raises ValueError for a parameter that occurs twice in a group."""
    first: Dict[int, int] = {}
    for index, param in enumerate(params):
        other = first.setdefault(id(param), index)
        if other != index:
            raise ValueError(f"params[{index}]: got params[{other}] again, "
                             "expected every parameter once")


def check_param(param: Tensor, index: int) -> None:
    """Raises ValueError for a parameter that swamp cannot step."""
    if (param.dtype in _DTYPES and param.device.type == "cpu"
            and param.layout is torch.strided):
        return
    raise ValueError(
        f"params[{index}]: got {param.dtype}, {param.layout}, on {param.device}, "
        "expected torch.float32, torch.float16 or torch.bfloat16, "
        "torch.strided, on cpu")
