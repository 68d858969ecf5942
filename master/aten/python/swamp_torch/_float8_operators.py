"""The operators and the scale managers of :mod:`swamp_torch.float8`, with names
instead of the C++ API's numbers."""

import json
from typing import (Any, Dict, Literal, NamedTuple, Optional, Tuple,
                    Union, get_args)

import torch
from torch import Tensor

from ._optimizer_checks import index_of
from .functional import _ops

FormatName = Literal["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
                     "float8_e5m2fnuz", "float6_e3m2fn", "float6_e2m3fn",
                     "float4_e2m1fn_x2", "hifloat8", "float8_e8m0fnu", "mxint8"]
Format = Union[torch.dtype, FormatName]

# By their numbers in the C++ API, with the dtype of codes, uint8 if PyTorch has none.
FORMATS: Dict[str, Tuple[int, torch.dtype]] = {
    name: (number, getattr(torch, name, torch.int8 if name == "mxint8" else torch.uint8))
    for number, name in enumerate(get_args(FormatName), 4)}
Rounding = Literal["nearest_even", "nearest_away", "stochastic", "up", "down"]
Policy = Literal["saturate", "overflow", "cuda_saturate", "cuda", "torch",
                 "ml_dtypes"]
Scaling = Literal["mx_floor", "mx_ceil", "mx_even", "mx_rceil", "te_mxfp8",
                  "microxcaling", "te_nvfp4", "torchao_nvfp4", "te_block",
                  "te_block_power_of_2", "torchao_float8",
                  "torchao_float8_power_of_2"]
ROUNDINGS, POLICIES, SCALINGS = map(get_args, (Rounding, Policy, Scaling))


def format_name(format: Format) -> str:
    """The name of a format that is given as a name or as PyTorch's dtype."""
    name = str(format).removeprefix("torch.")
    index_of("format", name, tuple(FORMATS))
    return name


def _number(format: Format) -> int:
    return FORMATS[format_name(format)][0]


def _number_of_codes(codes: Tensor, format: Optional[Format]) -> int:
    if format is None and codes.dtype in (torch.uint8, torch.int8):
        raise ValueError("format: got None, expected the name of a format, "
                         f"because the codes are {codes.dtype}")
    return _number(codes.dtype if format is None else format)


def _rounding(rounding: Optional[Rounding], format: Format) -> int:
    if rounding is None:
        away = format_name(format) in ("hifloat8", "float8_e8m0fnu")
        rounding = "nearest_away" if away else "nearest_even"
    return index_of("rounding", rounding, ROUNDINGS)


class Quantized(NamedTuple):
    """What :func:`quantize` returns; all but the codes have one element."""
    codes: Tensor  #: of the format's dtype, or uint8
    amax: Tensor  #: the largest abs(x), float32; nan does not count
    saturated: Tensor  #: elements beyond the largest number, int64
    flushed: Tensor  #: elements that became 0, but were not, int64
    nan_count: Tensor  #: elements that were nan, int64


class BlockCodes(NamedTuple):
    """The codes of a matrix, and the scales of its blocks."""
    codes: Tensor  #: as in :class:`Quantized`
    scales: Tensor  #: float8_e8m0fnu, float8_e4m3fn or float32


def quantize(x: Tensor, format: Format, scale: float = 1.0, *,
             rounding: Optional[Rounding] = None, policy: Policy = "saturate",
             seed: int = 0, random: Optional[Tensor] = None) -> Quantized:
    """round(float32(x) * scale) in a format of at most 8 bits, in one pass.

    Args:
        x: float16, bfloat16 or float32. For float4 the last dimension must be
            even; that of the codes has half as many elements.
        format: a float8 or float4 dtype of PyTorch, or a name: also
            "float6_e3m2fn", "float6_e2m3fn" and "hifloat8", with uint8 codes,
            and "mxint8", with int8 codes.
        scale: finite and above 0.
        rounding: "nearest_even", the default; "nearest_away", the default of
            HiFloat8 and float8_e8m0fnu; "stochastic"; or, of float8_e8m0fnu
            only, "up" and "down".
        policy: what becomes of nan, inf and of numbers beyond the largest one:
            "saturate", "overflow", "cuda_saturate", "cuda", "torch" or
            "ml_dtypes"; see CastPolicy in include/swamp/float8.h.
        seed: of the random bits, which depend on the seed and the index only.
        random: uint8, like x: random bits instead of those of the seed.
    """
    codes, amax, counts = _ops.quantize(
        x, _number(format), scale, _rounding(rounding, format),
        index_of("policy", policy, POLICIES), seed, random)
    return Quantized(codes, amax, *counts)


def dequantize(codes: Tensor, dtype: torch.dtype = torch.float32,
               scale: float = 1.0, *, format: Optional[Format] = None
               ) -> Tensor:
    """round(float32(code) * scale); the inverse of a scale is usually passed.

    Args:
        codes: as :func:`quantize` returns them.
        dtype: float16, bfloat16 or float32.
        scale: finite.
        format: of the codes; needed if they are uint8.
    """
    return _ops.dequantize(codes, _number_of_codes(codes, format), dtype, scale)


def quantize_blocks(
        x: Tensor, format: Format, scaling: Scaling, *, rows: bool = True,
        columns: bool = False, block: int = 0, square: bool = False,
        tensor_amax: Optional[Tensor] = None,
        rounding: Optional[Rounding] = None, policy: Policy = "saturate",
        hadamard: bool = False, seed: int = 0, random: Optional[Tensor] = None
) -> Tuple[Optional[BlockCodes], Optional[BlockCodes]]:
    """The codes of a matrix, of which the elements of a block, neighbours in a
    row, share a scale; and those of its transpose, from the same pass.

    Args:
        x: [rows, columns], float16, bfloat16 or float32.
        format: as of :func:`quantize`.
        scaling: the rule: "mx_floor", "mx_ceil", "mx_even", "mx_rceil",
            "te_mxfp8" or "microxcaling" (blocks of 32, float8_e8m0fnu scales);
            "te_nvfp4" or "torchao_nvfp4" (16, float8_e4m3fn); "te_block" or
            "te_block_power_of_2" (128, float32); "torchao_float8" or
            "torchao_float8_power_of_2" (rows, float32).
        rows, columns: which codes to compute; the others are None.
        block: elements of a block, 0 for those above.
        square: whether a block has as many rows.
        tensor_amax: of NVFP4, which needs it, :func:`amax` of the tensor.
        rounding, policy, seed, random: as of :func:`quantize`.
        hadamard: whether the columns are first multiplied by the random Hadamard
            transform.
    """
    found = _ops.quantize_blocks(
        x, _number(format), index_of("scaling", scaling, SCALINGS), rows,
        columns, block, square, tensor_amax, _rounding(rounding, format),
        index_of("policy", policy, POLICIES), hadamard,
        torch.tensor(seed, device="cpu"), random)
    return (BlockCodes(*found[:2]) if rows else None,
            BlockCodes(*found[2:]) if columns else None)


class Values(NamedTuple):
    """What :func:`quantized_values` returns."""
    rows: Optional[Tensor]  #: along rows, like x
    columns: Optional[Tensor]  #: along columns, like x
    #: The largest abs(x), float32; nan if x has a nan that the scaling does not skip.
    amax: Tensor
    saturated: Tensor  #: values beyond the largest number, int64
    flushed: Tensor  #: values that became 0, but were not, int64


def quantized_values(
        x: Tensor, format: Format, scaling: Scaling, *, rows: bool = True,
        columns: bool = False, block: int = 0, square: bool = False,
        tensor_amax: Optional[Tensor] = None,
        rounding: Optional[Rounding] = None, policy: Policy = "saturate",
        hadamard: bool = False, seed: int = 0, random: Optional[Tensor] = None,
        column_amax: Optional[Tensor] = None) -> Values:
    """The values of the codes that :func:`quantize_blocks` makes, times their scales,
    in one pass: bfloat16, but float32 of "te_block" and "torchao_float8", whose scales
    are not powers of two, and, after a second pass, if the exponents of some are too
    small for bfloat16. Those along columns are not transposed. NVFP4's are without the
    factor of the tensor, its amax / 2688. Square blocks have the same values along rows
    and along columns.

    Args:
        column_amax: of NVFP4: tensor_amax of the columns, if theirs is another one.
        The others are those of :func:`quantize_blocks`.
    """
    along_rows, along_columns, amax, _, counts = _ops.quantized_values(
        x, _number(format), index_of("scaling", scaling, SCALINGS),
        rows=rows or (square and columns), columns=columns, block=block,
        square=square, tensor_amax=tensor_amax,
        rounding=_rounding(rounding, format),
        policy=index_of("policy", policy, POLICIES), hadamard=hadamard,
        seed=torch.tensor(seed, device="cpu"), random=random,
        column_amax=column_amax)
    return Values(along_rows if rows else None,
                  (along_rows if square else along_columns) if columns else None,
                  amax.max() if rows or square else amax[1], *counts)


def dequantize_blocks(codes: BlockCodes, scaling: Scaling,
                      dtype: torch.dtype = torch.float32, *, block: int = 0,
                      square: bool = False,
                      tensor_amax: Optional[Tensor] = None,
                      format: Optional[Format] = None) -> Tensor:
    """round(code * scale), the inverse of :func:`quantize_blocks` along rows, with
    its arguments."""
    return _ops.dequantize_blocks(
        codes.codes, codes.scales, _number_of_codes(codes.codes, format),
        index_of("scaling", scaling, SCALINGS), dtype, block, square,
        tensor_amax)


def hadamard_transform(x: Tensor) -> Tensor:
    """The random Hadamard transform of each 16 neighbours of the last dimension,
    with Transformer Engine's fixed signs; exact sums, rounded to x's dtype."""
    return _ops.hadamard_transform(x)


def amax(x: Tensor, skip_nan: bool = True) -> Tensor:
    """The largest abs(x), float32, in one pass. With skip_nan nan does not count,
    as in Transformer Engine; else it is the result, as in PyTorch."""
    return _ops.amax(x, skip_nan)


class ScaleManager:
    """The scales of a number of tensors, and the rule of a recipe that updates
    them, bit for bit as the original; see include/swamp/scale_manager.h. It can be
    copied and pickled.

    Args:
        name: for example "te.DelayedScaling" or "torchao.mx"; the error for
            another one lists all.
        forward: the number of tensors of the forward pass, which come first.
        backward: the number of gradients, which may have another format.
        options: the original's, by their names.
    """

    def __init__(self, name: str, forward: int, backward: int = 0,
                 **options: Any) -> None:
        self._manager = torch.classes.swamp.ScaleManager(
            name, forward, backward, json.dumps(options) if options else "")

    def observe_all(self, amax: Tensor) -> None:
        """Records the amax of every tensor, -1 for one that was not seen."""
        self._manager.observe_all(amax)

    def amax(self) -> Tensor:
        """What was observed since the last update, -1 for nothing."""
        result: Tensor = self._manager.amax()
        return result

    def update(self) -> None:
        """Ends a step."""
        self._manager.update()

    def scales(self) -> Tuple[Tensor, Tensor]:
        """The factors of the elements of each tensor, and those of its codes."""
        scale, scale_inv = self._manager.scales()
        return scale, scale_inv

    def block_scales(self, index: int, amax: Tensor
                     ) -> Tuple[Tensor, Tensor, Tensor]:
        """The scales of blocks with these amax, their inverses, and the scales as
        they are stored, uint8."""
        scale, scale_inv, codes = self._manager.block_scales(index, amax)
        return scale, scale_inv, codes

    def state_dict(self) -> Dict[str, Any]:
        """The state with the original's keys; lists of floats are tensors."""
        result: Dict[str, Any] = _with_tensors(
            json.loads(self._manager.state_dict()))
        return result

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Loads the result of :meth:`state_dict`, or the original's state.

        Raises:
            RuntimeError: it lacks a key, or is that of another recipe; nothing is
                changed then.
        """
        self._manager.load_state_dict(json.dumps(_without_tensors(state)))


def _with_tensors(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_tensors(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return torch.tensor(_floats(value), dtype=torch.float32)
    return value


def _floats(value: Any) -> Any:
    return ([_floats(entry) for entry in value] if isinstance(value, list)
            else float(value))  # "inf" and "nan" are texts


def _without_tensors(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_tensors(entry) for key, entry in value.items()}
    if isinstance(value, Tensor):
        return _without_tensors(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_without_tensors(entry) for entry in value]
    if isinstance(value, float) and value - value != 0:
        return str(value)  # "inf" and "nan"
    return value
