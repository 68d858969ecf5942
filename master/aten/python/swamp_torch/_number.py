"""One number in a Tensor, as swamp's operators take it."""

import torch
from torch import Tensor


def number(value: float) -> Tensor:
    """A float32 on the CPU without dimensions, whatever PyTorch's default dtype
    and device are."""
    return torch.full((), value, dtype=torch.float32, device="cpu")
