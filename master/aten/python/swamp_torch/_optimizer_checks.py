"""What MixedPrecisionAdamW refuses."""

from typing import Any, Dict

import torch
from torch import Tensor

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def check_numbers(group: Dict[str, Any]) -> None:
    """Raises ValueError, mostly in PyTorch's words, for a number out of its
    range."""
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
    if not 0.0 <= group["max_norm"]:
        raise ValueError(f"Invalid max_norm value: {group['max_norm']}; expected "
                         "a number, at least 0 (0: no clipping)")


def check_param(param: Tensor, index: int) -> None:
    """Raises ValueError for a parameter that swamp has no step for."""
    if (param.dtype in _DTYPES and param.device.type == "cpu"
            and param.layout is torch.strided):
        return
    raise ValueError(
        f"params[{index}] is {param.dtype}, {param.layout}, on {param.device}; "
        "expected torch.float32, torch.float16 or torch.bfloat16, "
        "torch.strided, on cpu")
