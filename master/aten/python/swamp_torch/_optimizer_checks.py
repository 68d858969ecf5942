"""The argument checks of swamp_torch's optimizers, and of options that are words."""

import sys
from typing import Any, Dict, Iterable, List, Literal, Optional, Sequence, get_args

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# What a state has in the shape of its parameter.
_LIKE_PARAM = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer",
               "master_param", "compensation")
_PLAIN = (torch.nn.Parameter, Tensor)
ClipRule = Literal["megatron", "mindspore"]
NO_CLIPPING = " (0 or None: no clipping)"
# In PyTorch's words.
_AT_LEAST_0 = dict(lr="learning rate", eps="epsilon value",
                   momentum="momentum value", weight_decay="weight_decay value")


def index_of(name: str, value: Any, words: Sequence[Any]) -> int:
    """The number of a word.

    Raises:
        ValueError: it is none of the words.
    """
    if value not in words:
        raise ValueError(f"{name}: got {value!r}, expected one of "
                         f"{', '.join(map(repr, words))}")
    return tuple(words).index(value)


def check_numbers(group: Dict[str, Any]) -> None:
    """Raises ValueError for a number out of its range; in PyTorch's words, if
    torch.optim has the option."""
    lr = group["lr"]
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    for name, words in _AT_LEAST_0.items():
        if name in group and not 0.0 <= float(group[name]):
            raise ValueError(f"Invalid {words}: {group[name]}")
    for index, beta in enumerate(group.get("betas", ())):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
    if group.get("nesterov") and (group["momentum"] <= 0
                                  or group["dampening"] != 0):
        raise ValueError(
            "Nesterov momentum requires a momentum and zero dampening")
    check_max_norm(group.get("max_norm"), NO_CLIPPING)
    index_of("clip_rule", group.get("clip_rule", "megatron"), get_args(ClipRule))


def check_max_norm(max_norm: Any, note: str = "") -> None:
    """Raises ValueError for a max_norm that is not a number, at least 0, or None."""
    try:
        good = max_norm is None or bool(0.0 <= max_norm)
    except (TypeError, RuntimeError):  # a text; a Tensor of several elements
        good = False
    if not good:
        raise ValueError(
            f"max_norm: got {max_norm!r}, expected a number, at least 0{note}")


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


def _described(tensor: Tensor) -> str:
    kind = "a DTensor of the shape" if is_dtensor(tensor) else "the shape"
    return f"{kind} {tuple(tensor.shape)}"


def check_shapes(param: Tensor, state: Dict[str, Any], place: str) -> None:
    """Raises ValueError for a tensor in the state of a parameter that has not its
    shape, or is not a DTensor as the parameter is."""
    if is_lazy(param):
        return
    for name in _LIKE_PARAM:
        value = state.get(name)
        if value is None:
            continue
        got = (_described(value) if isinstance(value, Tensor) else repr(value))
        expected = _described(param)
        if got != expected:
            raise ValueError(f"{place}['{name}']: got {got}, expected {expected}, "
                             "that of the parameter")


def check_once(params: List[Tensor]) -> None:
    """Raises ValueError for a parameter that occurs twice in a group."""
    first: Dict[int, int] = {}
    for index, param in enumerate(params):
        other = first.setdefault(id(param), index)
        if other != index:
            raise ValueError(f"params[{index}]: got params[{other}] again, "
                             "expected every parameter once")


def is_dtensor(tensor: Any) -> bool:
    """Whether the tensor is a DTensor, of which this rank has a part."""
    if type(tensor) in _PLAIN:
        return False
    module = sys.modules.get("torch.distributed.tensor")  # slow to import
    return module is not None and isinstance(tensor, module.DTensor)


def part_of(tensor: Any) -> Any:
    """This rank's part of a DTensor, or anything else itself."""
    if not is_dtensor(tensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()


def is_wrapper(tensor: Tensor) -> bool:
    """Whether the tensor is of a class that keeps its elements in other tensors."""
    if type(tensor) in _PLAIN or is_lazy(tensor):
        return False
    if is_traceable_wrapper_subclass(tensor):
        return True
    try:
        return tensor.data_ptr() == 0 and tensor.numel() != 0
    except RuntimeError:
        return True


def is_ours(param: Any) -> bool:
    """Whether swamp steps the parameter; if not, PyTorch does."""
    if is_dtensor(param) and any(p.is_partial() for p in param.placements):
        return False
    part = part_of(param)
    return (part.dtype in _DTYPES and part.is_cpu
            and part.layout is torch.strided and not is_wrapper(part))


def check_clipped(group: Dict[str, Any], param: Any, place: str) -> None:
    """Raises ValueError for a parameter that swamp does not step."""
    if group["differentiable"]:
        raise ValueError(f"{place}: got differentiable=True, expected False with "
                         "max_norm")
    if not is_ours(param):
        placed = f", {param.placements}" if is_dtensor(param) else ""
        raise ValueError(
            f"{place}: got {param.dtype}, {param.layout}, on {param.device}{placed}, "
            "expected with max_norm torch.float32, torch.float16 or "
            "torch.bfloat16, torch.strided, on cpu, not Partial")


def first_sharded(params: Iterable[Tensor]) -> Optional[Tensor]:
    """The first parameter of which FullyShardedDataParallel may give each rank a
    part, which looks like any Tensor. With several ranks its NO_SHARD, whose
    parameters are whole, cannot be told from the others."""
    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized()
            and dist.get_world_size() > 1):
        return None
    return next((p for p in params if getattr(p, "_fsdp_flattened", False)), None)

