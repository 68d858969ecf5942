"""How Adam stores weights and moments in less memory: the options of a group, and
the state of a parameter that they ask for.

``exp_avg`` and ``exp_avg_sq`` have the dtype that they are stored in. 8-bit ones are
``uint8`` codes of bitsandbytes' ``create_dynamic_map(True)`` and ``(False)``, with
``absmax`` of shape [blocks, 2], the first column for ``exp_avg``: contiguous, with
blocks in the order of the indices, so that its ``dequantize_blockwise`` reads them (a
parameter in another order of memory, as channels_last, is copied for its step). A
second moment above 0 has at least the code 1, so that no step divides by eps alone.

float8 ones are ``float8_e4m3fn``, with the codes and scales of torchao's
``quantize_fp8`` for the same moments; torchao computes the second moment with one
rounding more, so that one code in some thousands is the neighbour. Unlike there, the
last block of a tensor may be shorter. ``torch.save`` stores them; ``pickle`` does not,
because PyTorch 2.13 cannot unpickle float8. MS-AMP's scale of a whole tensor is not
offered: it needs a pass over all new moments before the first can be stored.

Kahan's ``compensation`` and the weight add up to the number that the step continues
with. State dicts of each storage, and of torch.optim's classes, can be loaded into
any other; ``torch.optim`` does not understand codes: load them into an optimizer with
``moments="float32"`` first.
"""

from typing import (Any, Dict, Literal, NamedTuple, Optional, Tuple,
                    get_args)

import torch
from torch import Tensor

from ._optimizer_checks import index_of, is_dtensor, is_ours, part_of

MASTER, COMPENSATION, ABSMAX = "master_param", "compensation", "absmax"
MOMENTS = ("exp_avg", "exp_avg_sq")
# The options, which a state dict does not change, and their defaults.
OPTIONS = {"master_weights": True, "rounding": "stochastic",
           "moments": "float32"}
BLOCK = 256  # elements
MIN_8BIT = 4096  # smaller tensors have float32 moments, as in bitsandbytes

Rounding = Literal["stochastic", "kahan"]
Moments = Literal["float32", "bfloat16", "8bit", "float8"]
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16,
           "8bit": torch.uint8, "float8": torch.float8_e4m3fn}
_CODES = (torch.uint8, torch.float8_e4m3fn)
_CHOICES = {"master_weights": (True, False),
            "rounding": get_args(Rounding), "moments": get_args(Moments)}


class Kind(NamedTuple):
    """What the kernels need to know of a bucket.

    Attributes:
        compact: whether a weight or moment is not float32, or rounded.
        kahan: whether there are compensations.
        codes: the dtype of moments that are codes, or None.
        masters: whether 16-bit parameters have float32 masters.
        names: of the tensors in the state, in the order of the kernels.
    """
    compact: bool
    kahan: bool
    codes: Optional[torch.dtype]
    masters: bool
    names: Tuple[str, ...]


class Storage(NamedTuple):
    """The options of a group."""
    masters: bool
    kahan: bool
    moments: Moments

    def kind_of(self, param: Tensor) -> Kind:
        """How the state of a parameter is stored."""
        half = param.dtype is not torch.float32
        masters = half and self.masters
        kahan = half and not masters and self.kahan
        codes: Optional[torch.dtype] = _DTYPES[self.moments]
        if codes not in _CODES or not _has_blocks(param):
            codes = None
        names = (MOMENTS + (() if codes is None else (ABSMAX,))
                 + ((COMPENSATION,) if kahan else ()))
        compact = (half and not masters or codes is not None
                   or self.moments == "bfloat16")
        return Kind(compact, kahan, codes, masters, names)

    def fit(self, param: Tensor, state: Dict[str, Any]) -> Kind:
        """Makes the tensors that the state lacks, and converts those that are
        stored in another way."""
        kind = self.kind_of(param)
        dtype = kind.codes or _DTYPES[self.moments]
        if kind.codes is None and dtype in _CODES:
            dtype = torch.float32
        if not all(name in state and state[name].dtype is dtype
                   for name in kind.names[:2]):
            self._fit_moments(param, state, dtype)
        if kind.kahan and COMPENSATION not in state:
            master = state.get(MASTER)
            state[COMPENSATION] = (
                torch.zeros_like(param, requires_grad=False) if master is None
                else (master - param.detach().float()).to(param.dtype))
        if not kind.kahan and COMPENSATION in state:
            compensation = state.pop(COMPENSATION)
            if kind.masters and MASTER not in state:
                state[MASTER] = _sum(param.detach(), compensation)
        if not kind.masters:
            state.pop(MASTER, None)
        return kind

    @staticmethod
    def _fit_moments(param: Tensor, state: Dict[str, Any],
                     dtype: torch.dtype) -> None:
        absmax = part_of(state.pop(ABSMAX, None))
        part = part_of(param)
        new = torch.zeros(_blocks(part), 2, dtype=torch.float32, device="cpu")
        for index, name in enumerate(MOMENTS):
            old = part_of(state.get(name))
            signed = index == 0
            if old is not None and old.dtype in _CODES:
                old = _decode(old, absmax[:, index], signed)
            if dtype not in _CODES:
                made = torch.zeros_like(part, dtype=dtype, requires_grad=False)
                made = made if old is None else made.copy_(old)
            elif old is None:
                zero = 127 if signed and dtype is torch.uint8 else 0
                made = torch.full(part.shape, zero, dtype=dtype, device="cpu")
            else:
                made, new[:, index] = _encode(old, dtype, signed)
            state[name] = _placed_as(param, made, param.shape)
        if dtype in _CODES:
            state[ABSMAX] = _placed_as(param, new, torch.Size((_blocks(param), 2)))


def _has_blocks(param: Any) -> bool:
    """Whether moments can be codes: the parameter is large enough, and ranks have
    whole blocks of it, so that the blocks do not depend on the number of ranks."""
    if param.numel() < MIN_8BIT:
        return False
    if not is_dtensor(param):
        return True
    parts = 1
    for dim, placement in enumerate(param.placements):
        if placement.is_shard(0):
            parts *= param.device_mesh.size(dim)
        elif not placement.is_replicate():
            return False
    return bool(param.shape[0] % parts == 0
                and param.numel() // parts % BLOCK == 0)


def _placed_as(param: Any, part: Tensor, shape: torch.Size) -> Tensor:
    """A tensor of which ranks have parts as they have of the parameter."""
    if not is_dtensor(param):
        return part
    strides = (shape[1], 1) if shape != param.shape else param.stride()
    return type(param).from_local(part, param.device_mesh, param.placements,
                                  run_check=False, shape=shape, stride=strides)


def storage_of(group: Dict[str, Any]) -> Storage:
    """The options of a group, with defaults for those that it lacks."""
    values = {name: group.get(name, default)
              for name, default in OPTIONS.items()}
    return Storage(bool(values["master_weights"]), values["rounding"] == "kahan",
                   values["moments"])


DEFAULT = storage_of({})


def check_storage(group: Dict[str, Any]) -> None:
    """Raises ValueError for an option that is not one of its choices, or that others
    contradict."""
    for name, choices in _CHOICES.items():
        index_of(name, group.get(name, OPTIONS[name]), choices)
    if group.get("rounding") == "kahan" and group.get("master_weights"):
        raise ValueError("rounding: got 'kahan' with master_weights=True, expected "
                         "master_weights=False: masters are not rounded")
    seed = group.get("seed", 0)
    if type(seed) is not int or not 0 <= seed < 2 ** 63:
        raise ValueError(f"seed: got {seed!r}, expected a whole number from 0 to "
                         "2^63 - 1")
    if group.get("amsgrad") and not has_float32(group):
        raise ValueError("amsgrad: got True, expected False with "
                         "master_weights=False or moments other than 'float32'")


def check_gradient(storage: Storage, param: Tensor, place: str) -> None:
    """Raises RuntimeError for a gradient of another dtype than its parameter, which
    the kernels of less memory do not take."""
    grad = param.grad
    if (grad is None or not is_ours(param) or grad.dtype is param.dtype
            or not storage.kind_of(param).compact):
        return
    raise RuntimeError(f"{place}.grad: got {grad.dtype}, expected {param.dtype}, "
                       "the dtype of the parameter, with master_weights=False or "
                       "moments other than 'float32'")


def has_float32(group: Dict[str, Any]) -> bool:
    """Whether moments and masters are float32, as the defaults have it."""
    storage = storage_of(group)
    return storage.masters and storage.moments == "float32"


def check_codes(states: Dict[Any, Dict[str, Any]]) -> None:
    """Raises ValueError for 8-bit moments without the absmax of their blocks."""
    for index, state in states.items():
        for name in MOMENTS:
            codes = state.get(name)
            if not isinstance(codes, Tensor) or codes.dtype not in _CODES:
                continue
            absmax = state.get(ABSMAX)
            shape = (_blocks(codes), 2)
            if (not isinstance(absmax, Tensor) or tuple(absmax.shape) != shape
                    or absmax.dtype is not torch.float32):
                got = (None if not isinstance(absmax, Tensor)
                       else f"{absmax.dtype} of the shape {tuple(absmax.shape)}")
                raise ValueError(
                    f"state[{index}]['{ABSMAX}']: got {got}, expected "
                    f"torch.float32 of the shape {shape}, because {name} is "
                    f"{codes.dtype}")


# Of a compensation that is half of the distance between neighbours: the sum with
# its parameter would be rounded to either of them.
_LESS = 1 - 2.0 ** -7


def _sum(param: Tensor, compensation: Tensor) -> Tensor:
    """A float32 master, which is rounded to the parameter."""
    both = param.float() + compensation.float()
    return torch.where(both.to(param.dtype) == param, both,
                       param.float() + compensation.float() * _LESS)


def is_written(param: Tensor, compensation: Tensor) -> Tensor:
    """The elements that something else wrote: a compensation is at most half of
    the distance between neighbours."""
    total = param.double() + compensation.double() * _LESS
    return (total.to(param.dtype) != param) & ~param.isnan()


# ---- Codes: float8_e4m3fn, or bitsandbytes' create_dynamic_map, in ascending
# order. Blocks are counted in the order of the indices, whatever the strides.

def _map(signed: bool) -> Tensor:
    values = [0.0, 1.0]
    for decade in range(7):
        count = 2 ** (decade if signed else decade + 1)
        for part in range(count):
            value = 10.0 ** (decade - 6) * (0.1 + 0.9 * (part + 0.5) / count)
            values += [value, -value] if signed else [value]
    return torch.tensor(sorted(values), dtype=torch.float32, device="cpu")


def _blocks(tensor: Tensor) -> int:
    return (tensor.numel() + BLOCK - 1) // BLOCK


def _decode(codes: Tensor, absmax: Tensor, signed: bool) -> Tensor:
    flat = codes.reshape(-1)
    if codes.dtype is torch.uint8:
        values, factors = _map(signed)[flat.long()], absmax
    else:
        values, factors = flat.float(), _float8_scale(absmax)
    values *= factors.repeat_interleave(BLOCK)[:values.numel()]
    return values.view(codes.shape)


def _float8_scale(absmax: Tensor) -> Tensor:
    return absmax.clamp(min=1e-12) / 448


def _encode(values: Tensor, dtype: torch.dtype,
            signed: bool) -> Tuple[Tensor, Tensor]:
    flat = values.reshape(-1).float()
    blocks = torch.nn.functional.pad(flat, (0, -flat.numel() % BLOCK))
    blocks = blocks.view(-1, BLOCK)
    absmax = blocks.abs().amax(1)
    if dtype is torch.float8_e4m3fn:
        codes = (blocks / _float8_scale(absmax)[:, None]).to(dtype)
        return codes.view(-1)[:flat.numel()].view(values.shape), absmax
    ratio = blocks / absmax.masked_fill(absmax == 0, 1.0)[:, None]
    table = _map(signed)
    codes = torch.bucketize(ratio, (table[1:] + table[:-1]) / 2)
    if not signed:
        # A v above 0 does not become 0: a step would divide m by eps alone.
        codes = torch.where(blocks != 0, codes.clamp(min=1), codes)
    codes = codes.view(-1)[:flat.numel()].to(torch.uint8)
    return codes.view(values.shape), absmax
