"""Training in formats of at most 8 bits on CPUs: linear layers whose products have
operands in float8, MXFP8, NVFP4 or HiFloat8, with the scales and codes that
torchao, Transformer Engine and torch_npu define::

    import swamp_torch.float8 as float8

    config = float8.Float8LinearConfig.from_recipe_name("te_delayed_hybrid")
    float8.convert_to_float8_training(model, config=config)

Forward, gradient of the input and gradient of the weight are products of the values
of codes, which bfloat16 has exactly (or float32, if an exponent is too small), so a
step takes little longer than one in bfloat16.
``accumulation`` chooses the sums: "float32" in the order of every other product, or
"exact" within a block or row, rounded once, several times slower. Both have the same
bits on any number of threads and every CPU. Casts have the bits of the originals; the
sums of a GPU have no documented order.

The module also has the casts themselves (:func:`quantize`, :func:`quantize_blocks`
and their inverses), scale managers (:class:`ScaleManager`), and :func:`report`.

The recipes, with the formats of inputs and weights, and of gradients:

==================  ========  ========  ==============================================
tensorwise          e4m3      e5m2      torchao's scales, of a tensor
rowwise             e4m3      e4m3      torchao's, of a row, powers of two
rowwise_with_gw_hp  e4m3      e4m3      the same; weight gradient in high precision
te_delayed_hybrid   e4m3      e5m2      Transformer Engine's delayed scaling
te_current          e4m3      e5m2      Transformer Engine's, of a tensor
te_block            e4m3      e4m3      of 1x128, of weights 128x128
mxfp8               e4m3      e4m3      e8m0, of 1x32
nvfp4               e2m1      e2m1      e4m3, of 1x16, of weights 16x16; gradients are
                                        rounded stochastically, and a random Hadamard
                                        transform precedes the weight gradient; tokens
                                        and channels are multiples of 16
hif8                HiFloat8  HiFloat8  torch_npu's, of a row
==================  ========  ========  ==============================================

torch.utils.checkpoint, nested, selective and of both kinds, gives the bits of a run
without it, also around a function that torch.compile compiles. So does a
torch.autograd.Function whose backward() repeats its forward(), with the passes of a
layer in the same order. A checkpoint inside a compiled function is a RuntimeError with
delayed scaling or stochastic rounding of inputs and weights; so is any other forward
pass during a backward pass if it may be a repetition.

An overflow must reach GradScaler, which looks at gradients, but the originals' casts
turn inf, and nvfp4's also nan, into finite codes. So an inf or nan in the input, the
weight or the gradient of the output makes the gradients of weight and input nan;
if neither is wanted, nothing shows it. ``propagate_nonfinite=False`` has the originals'
gradients.

State dicts have Transformer Engine's ``scale_fwd``, ``amax_history_fwd``,
``scale_bwd`` and ``amax_history_bwd``, and ``rounding_seed``: a resumed run has the
same bits. ``torch.compile(fullgraph=True)`` sees one graph of a model; inductor adds
the bias before the output is rounded to 16 bits, ``aot_eager`` and layers without a
bias have the bits of eager mode. There is no float8 all-gather of FSDP2.
"""

import contextlib
import itertools
import json
import math
import weakref
from typing import (Any, Callable, Dict, Iterator, List, NamedTuple, Optional,
                    Sequence, Tuple)

import torch
from torch import Tensor

from . import _float8_recompute as recompute
from ._float8_operators import (FORMATS, SCALINGS, BlockCodes, Quantized, ScaleManager, amax,
                                dequantize, dequantize_blocks,
                                hadamard_transform, quantize, quantize_blocks,
                                quantized_values)
from ._float8_recipes import (Cast, CastConfig, Float8LinearConfig,
                              Float8LinearRecipeName, ScalingGranularity,
                              ScalingType)
from ._float8_report import Record, recording, report

__all__ = [
    "BlockCodes", "CastConfig", "Float8Linear", "Float8LinearConfig",
    "Float8LinearRecipeName", "Quantized", "ScaleManager",
    "ScalingGranularity", "ScalingType", "amax", "cached_weights",
    "convert_to_float8_training",
    "dequantize", "dequantize_blocks", "hadamard_transform", "quantize",
    "quantize_blocks", "quantized_values", "recording", "report", "update_scales",
]

_ops = torch.ops.swamp
_keys = itertools.count()

# The tensors of a layer in Transformer Engine's state. The outputs and the
# gradients of the inputs are never quantized.
_FORWARD, _BACKWARD = 3, 2
_SLOTS = {"input": 0, "weight": 1, "grad_output": 3}

# What a layer that is replaced must have from torch.nn.Linear.
_METHODS = ("forward", "__call__", "_call_impl", "_wrapped_call_impl", "__getattr__",
            "state_dict", "load_state_dict", "_save_to_state_dict",
            "_load_from_state_dict", "get_extra_state", "set_extra_state")


class _Operand(NamedTuple):
    """A matrix [rows, sums] of a product."""
    codes: Tensor  # or their values; of kind "none", the matrix itself
    # Of blocks; or the factor of the tensor or of rows. Values have factors, and
    # scales of blocks if these are applied to sums: Cast.block.
    scales: Optional[Tensor]
    amax: Optional[Tensor]  # of the tensor, if blocks need it
    cast: Cast

    def whole(self, dtype: torch.dtype) -> Tensor:
        """The matrix."""
        cast = self.cast
        if cast.kind == "none":
            return self.codes.to(dtype)
        if cast.kind == "block":
            result: Tensor = _ops.dequantize_blocks(
                self.codes, self.scales, cast.format, cast.scaling, dtype, 0,
                cast.square, self.amax)
            return result
        values: Tensor = _ops.dequantize(self.codes, cast.format, torch.float32)
        return (values * self.scales).to(dtype)

    def arguments(self) -> Any:
        """What the operator of a product takes."""
        cast = self.cast
        return (self.codes, self.scales, cast.format,
                cast.scaling if cast.kind == "block" else -1, cast.square,
                self.amax)


def _product(a: _Operand, b: _Operand, dtype: torch.dtype, exact: bool,
             seen: Sequence[Optional[Tensor]] = ()) -> Tensor:
    """a * b^T, or nan if an amax that was seen is not finite. Operands in high
    precision are multiplied by PyTorch."""
    found = [amax for amax in seen if amax is not None]
    result: Tensor
    if a.cast.kind != "none":
        if exact:
            result = _ops._scaled_product(*a.arguments(), *b.arguments(), dtype,
                                          found)
        else:
            result = _ops._value_product(a.codes, b.codes, a.scales, b.scales,
                                         a.amax, b.amax, dtype, found,
                                         max(a.cast.block, b.cast.block))
        return result
    result = torch.mm(a.codes, b.codes.t()).to(dtype)
    for amax in found:
        result = result * (1 + 0 * amax).to(dtype)  # 1 or nan
    return result


class _State(NamedTuple):
    """What the casts of a layer read and write, tensors on the CPU."""
    scale: Tensor  # of delayed scaling, [5]
    scale_inv: Tensor
    amax: Tensor  # observed since the last update
    seed: Tensor  # of the next stochastic rounding; of a pass, of input and weight
    most: Tensor  # that is observed: inf, or 0 to observe nothing
    key: Tensor  # the layer's number, a tensor because torch.compile guards an int
    rank: int  # of the process; changes the random bits
    propagates: bool  # an inf or nan, to a gradient
    exact: bool  # whether products have exact sums


def _along_rows(x: Tensor, cast: Cast, role: str, state: _State,
                seed: Optional[Tensor], of_tensor: Optional[Tensor] = None
                ) -> Tuple[_Operand, Optional[Tensor]]:
    """The codes of a matrix whose rows a product sums over, and its amax, nan if
    it has a nan, if the cast finds it. `of_tensor` is the amax, if it is known."""
    if cast.kind == "none":
        return _Operand(x, None, None, cast), None
    how = (cast.format, cast.rounding, cast.policy)
    if cast.kind == "delayed":
        slot = _SLOTS[role]
        codes, found, seen = _ops._quantize_by(x, state.scale[slot], *how)
        _ops._observe(state.amax, slot, found, state.most)
        return _Operand(codes, state.scale_inv[slot].clone(), None, cast), seen
    if cast.kind == "tensor" or cast.manager:
        if cast.kind == "tensor":
            found = _ops.amax(x, cast.skip_nan)
        elif x.size(1):
            found = x.abs().amax(1, keepdim=True).float()
        else:
            found = x.new_zeros((x.size(0), 1), dtype=torch.float32)
        scale, scale_inv = _ops._current_scale(found, cast.manager, cast.options,
                                               cast.backward)
        codes, _, seen = _ops._quantize_by(x, scale, *how)
        return _Operand(codes, scale_inv, None, cast), seen
    if cast.hadamard:
        x, of_tensor = _ops.hadamard_transform(x), None
    if not cast.needs_amax:
        of_tensor = None
    elif of_tensor is None:
        of_tensor = _ops.amax(x)
    codes, scales, _, _ = _ops.quantize_blocks(
        x, cast.format, cast.scaling, True, False, 0, cast.square, of_tensor,
        cast.rounding, cast.policy, False, seed)
    return _Operand(codes, scales, of_tensor, cast), None


def _values(x: Tensor, cast: Cast, rows: bool, columns: bool, hadamard: bool,
            role: str, state: _State, seed: Optional[Tensor]
            ) -> Tuple[_Operand, _Operand, Optional[Tensor]]:
    """The values of the codes of a matrix and of its transpose, if these are wanted,
    and the largest magnitude that was seen, nan if the matrix has a nan."""
    how = (cast.format, cast.rounding, cast.policy)
    if cast.kind == "none":
        first = _Operand(x, None, None, cast)
        return first, first._replace(codes=x.t()), None
    if cast.kind in ("tensor", "delayed"):
        if cast.kind == "delayed":
            slot = _SLOTS[role]
            scale, inverse = state.scale[slot], state.scale_inv[slot].clone()
        else:
            scale, inverse = _ops._current_scale(
                _ops.amax(x, cast.skip_nan), cast.manager, cast.options,
                cast.backward)
        values, found, seen = _ops._values_by(x, scale, *how)
        if cast.kind == "delayed":
            _ops._observe(state.amax, slot, found, state.most)
        first = _Operand(values, inverse, None, cast)
        return first, first._replace(codes=values.t()), seen
    amax: List[Optional[Tensor]] = [None, None]
    factors: List[Optional[Tensor]] = [None, None]
    scales: List[Optional[Tensor]] = [None, None]
    seen = None
    if cast.kind == "row":
        *of_lines, _, seen = _ops._block_amax(x, rows, columns, hadamard)
        for i in [i for i, wanted in enumerate((rows, columns)) if wanted]:
            factors[i], inverse = _ops._current_scale(
                of_lines[i], cast.manager or "torchao.float8.rowwise",
                cast.options or _ROW_OPTIONS[SCALINGS[cast.scaling]],
                cast.backward)
            if cast.manager:
                scales[i] = inverse
    if cast.block:
        if state.propagates:
            _, seen = _ops._amax_and_seen(x)
        return (*_scaled_values(x, cast, rows, columns, seed), seen)
    if cast.needs_amax:
        if rows or not hadamard:
            amax[0], seen = _ops._amax_and_seen(x)
        amax[1] = _ops._block_amax(x, False, True, True)[2][1] if (
            columns and hadamard) else amax[0]
    along_rows, along_columns, _, one, _ = _ops.quantized_values(
        x, cast.format, cast.scaling, rows=rows or cast.square, columns=columns,
        square=cast.square, rounding=cast.rounding, policy=cast.policy,
        hadamard=hadamard, seed=seed,
        tensor_amax=amax[0] if rows or cast.square else amax[1],
        column_amax=amax[1], row_factors=factors[0], column_factors=factors[1],
        divide=not cast.manager)
    return (_Operand(along_rows, scales[0], amax[0], cast),
            _Operand((along_rows if cast.square else along_columns).t(), scales[1],
                     amax[0] if cast.square else amax[1], cast),
            one if seen is None else seen)


def _scaled_values(x: Tensor, cast: Cast, rows: bool, columns: bool,
                   seed: Optional[Tensor]) -> Tuple[_Operand, _Operand]:
    """The values of codes without their scales, and these, along rows and along
    columns."""
    square = cast.square
    found: List[Any] = list(_ops.quantize_blocks(
        x, cast.format, cast.scaling, rows or square, columns and not square, 0,
        square, None, cast.rounding, cast.policy, False, seed))
    for i in (0, 2):
        found[i] = _ops.dequantize(found[i], cast.format, torch.bfloat16)
    if square:
        def repeated(scales: Tensor, count: int) -> Tensor:
            return scales.unsqueeze(1).expand(-1, cast.block, -1).flatten(
                0, 1)[:count]

        found[2:] = found[0].t(), repeated(found[1].t(), x.size(1))
        found[1] = repeated(found[1], x.size(0))
    return (_Operand(found[0], found[1], None, cast),
            _Operand(found[2], found[3], None, cast))


# torchao's scales of rows, as options of their manager.
_ROW_OPTIONS = {name: json.dumps({"round_scales_to_power_of_2": power})
                for name, power in (("torchao_float8", False),
                                    ("torchao_float8_power_of_2", True))}


def _seed(role: str, casts: Tuple[Cast, Cast], state: _State) -> Optional[Tensor]:
    """The first of two seeds, if a cast needs them. Those of gradients are taken from
    the state."""
    if all(cast.rounding != 2 for cast in casts):
        return None
    if role != "grad_output":
        return state.seed[_SLOTS[role]]
    seed = state.seed + (state.rank << 48)
    state.seed.add_(2)
    return seed


def _quantized(x: Tensor, role: str, casts: Tuple[Cast, Cast], state: _State,
               wanted: Tuple[bool, bool], record: Optional[Record]
               ) -> Tuple[Optional[_Operand], Optional[_Operand],
                          Optional[Tensor]]:
    """The operands of a matrix and of its transpose, if they are wanted, and what
    its largest magnitude is, nan if it has a nan, if that must propagate."""
    row, column = casts
    if not state.exact:
        return _quantized_values(x, role, casts, state, wanted, record)
    of_tensor: Optional[Tensor] = None
    seen: Optional[Tensor] = None
    if state.propagates and any(
            use and cast.kind in ("row", "block") and not cast.manager
            for use, cast in zip(wanted, casts)):
        of_tensor, seen = _ops._amax_and_seen(x)
    seed = _seed(role, casts, state)
    seeds: List[Optional[Tensor]] = (
        [None, None] if seed is None else [seed, seed + 1])
    first: Optional[_Operand] = None
    second: Optional[_Operand] = None
    if all(wanted) and row == column and row.kind in ("tensor", "delayed"):
        first, seen = _along_rows(x, row, role, state, None)
        second = first._replace(codes=first.codes.t())
    elif all(wanted) and row == column and row.kind == "block":
        if not row.needs_amax:
            of_tensor = None
        elif of_tensor is None:
            of_tensor = _ops.amax(x)
        found = _ops.quantize_blocks(
            x, row.format, row.scaling, True, True, 0, row.square, of_tensor,
            row.rounding, row.policy, False, seeds[0])
        first = _Operand(found[0], found[1], of_tensor, row)
        second = _Operand(found[2], found[3], of_tensor, row)
    else:
        if wanted[0]:
            first, one = _along_rows(x, row, role, state, seeds[0], of_tensor)
            seen = one if seen is None else seen
        if wanted[1]:
            second, one = _along_rows(x.t(), column, role, state, seeds[1],
                                      of_tensor)
            seen = one if seen is None else seen
    if record is not None:
        if first is not None:
            record.operand(role, x, first)
        elif second is not None:
            record.operand(role, x.t(), second)
    return first, second, seen if state.propagates else None


def _quantized_values(x: Tensor, role: str, casts: Tuple[Cast, Cast], state: _State,
                      wanted: Tuple[bool, bool], record: Optional[Record]
                      ) -> Tuple[Optional[_Operand], Optional[_Operand],
                                 Optional[Tensor]]:
    """:func:`_quantized` with values instead of codes."""
    row, column = casts
    seed = _seed(role, casts, state)
    first: Optional[_Operand] = None
    second: Optional[_Operand] = None
    seen: Optional[Tensor] = None
    if all(wanted) and row._replace(hadamard=column.hadamard) == column:
        first, second, seen = _values(x, column, True, True, column.hadamard, role,
                                      state, seed)
        first = first._replace(cast=row)
    else:
        if wanted[0]:
            first, _, seen = _values(x, row, True, False, False, role, state, seed)
        if wanted[1]:
            _, second, one = _values(x, column, False, True, column.hadamard, role,
                                     state, seed)
            seen = one if seen is None else seen
    if record is not None and any(wanted):
        # From the codes, which have the scales of blocks.
        cast = casts[not wanted[0]]
        matrix = x if wanted[0] else x.t()
        record.operand(role, matrix, _along_rows(
            matrix, cast, role, state._replace(most=torch.zeros_like(state.most)),
            seed)[0])
    return first, second, seen if state.propagates else None


class _Linear(torch.autograd.Function):
    """input [rows, in] * weight [out, in]^T."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, casts: Dict[str, Cast],
                state: _State, now: _State, trains: bool,
                record: Optional[Record], cache: Optional[Dict[str, Any]]) -> Tensor:
        """`now` is the state of this forward pass; `trains` whether a backward pass
        may follow; `cache` has the operands of the weight."""
        needs_input, needs_weight = (trains and needs
                                     for needs in ctx.needs_input_grad[:2])
        x, x_for_grad, x_seen = _quantized(
            input, "input", (casts["input"], casts["input_for_grad_weight"]),
            now, (True, needs_weight), record)
        key = None if cache is None else (weight.data_ptr(), weight._version,
                                          weight.dtype)
        if cache and cache["key"] == key and (cache["both"] or not needs_input):
            w, w_for_grad, w_seen = cache["operands"]
        else:
            w, w_for_grad, w_seen = _quantized(
                weight, "weight", (casts["weight"], casts["weight_for_grad_input"]),
                now, (True, needs_input), record)
            if cache is not None:
                cache.update(key=key, both=needs_input,
                             operands=(w, w_for_grad, w_seen))
        ctx.casts, ctx.state, ctx.record = casts, state, record
        ctx.dtypes = input.dtype, weight.dtype
        saved = [one and one[:3] or (None,) * 3 for one in (x_for_grad, w_for_grad)]
        ctx.save_for_backward(*saved[0], *saved[1], x_seen, w_seen,
                              *((input, weight) if record else ()))
        output = _product(x, w, input.dtype, state.exact)
        if record is not None:
            record.result("output", output, torch.mm(
                input.float(), weight.float().t()))
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        casts, record = ctx.casts, ctx.record
        needs_input, needs_weight = ctx.needs_input_grad[:2]
        saved = ctx.saved_tensors
        dy, dy_for_grad, dy_seen = _quantized(
            grad, "grad_output",
            (casts["grad_output"], casts["grad_output_for_grad_weight"]),
            ctx.state, (needs_input, needs_weight), record)
        grad_input = grad_weight = None
        seen = (*saved[6:8], dy_seen)
        if needs_input:
            w = _Operand(*saved[3:6], casts["weight_for_grad_input"])
            grad_input = _product(dy, w, ctx.dtypes[0], ctx.state.exact, seen)
        if needs_weight:
            x = _Operand(*saved[:3], casts["input_for_grad_weight"])
            grad_weight = _product(dy_for_grad, x, ctx.dtypes[1], ctx.state.exact,
                                   seen)
        if record is not None:
            wide = grad.float()
            if grad_input is not None:
                record.result("grad_input", grad_input,
                              torch.mm(wide, saved[9].float()))
            if grad_weight is not None:
                record.result("grad_weight", grad_weight,
                              torch.mm(wide.t(), saved[8].float()))
        return grad_input, grad_weight, None, None, None, None, None, None


def _entry(key: str) -> property:
    """An entry of the state dict as an attribute, which
    torch.distributed.checkpoint looks for."""
    def get(self: "Float8Linear") -> Tensor:
        extra = self._extra()
        if key not in extra:
            raise AttributeError(key)
        return extra[key]

    return property(get)


class Float8Linear(torch.nn.Linear):
    """A linear layer whose three products have operands of a recipe.

    With delayed scaling or stochastic rounding the state dict also has
    Transformer Engine's ``scale_fwd``, ``amax_history_fwd``, ``scale_bwd`` and
    ``amax_history_bwd``, and ``rounding_seed``, so that a resumed run has the same
    bits. These are neither parameters nor buffers: DistributedDataParallel would
    overwrite a rank's amax with that of the first rank.

    Args:
        config: a :class:`Float8LinearConfig`, or torchao's.
        The others are those of :class:`torch.nn.Linear`.
    """

    scale_fwd, amax_history_fwd = _entry("scale_fwd"), _entry("amax_history_fwd")
    scale_bwd, amax_history_bwd = _entry("scale_bwd"), _entry("amax_history_bwd")
    rounding_seed = _entry("rounding_seed")

    def __init__(self, *args: Any, config: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._set_up(config)

    def _set_up(self, config: Any, name: str = "Float8Linear") -> None:
        self.config, self._name = config, name
        self._casts = Float8LinearConfig.casts(config)
        kinds = {cast.kind: cast for cast in self._casts.values()}
        self._manager: Optional[ScaleManager] = None
        if "delayed" in kinds:
            self._manager = ScaleManager(kinds["delayed"].manager, _FORWARD,
                                         _BACKWARD, **config.options)
        ones = torch.ones(_FORWARD + _BACKWARD, dtype=torch.float32, device="cpu")
        self._state = _State(
            ones, ones.clone(), torch.zeros_like(ones),
            torch.tensor(getattr(config, "seed", 0), device="cpu"),
            torch.tensor(math.inf, device="cpu"), torch.zeros(0, device="cpu"),
            _rank(), getattr(config, "propagate_nonfinite", True),
            getattr(config, "accumulation", "float32") == "exact")
        self._cache: Optional[Dict[str, Any]] = None
        self._record: Optional[Record] = None
        # How many seeds a forward pass takes for the input, and for the weight.
        self._seeds = [2 * any(
            cast.rounding == 2 for role, cast in self._casts.items()
            if role in roles) for roles in (
                ("input", "input_for_grad_weight"),
                ("weight", "weight_for_grad_input"))]
        # Whether a forward pass depends on more than its input and parameters.
        self._has_state = self._manager is not None or any(self._seeds)
        # What a number of tokens must be a multiple of, and of channels.
        four_bits = any(FORMATS["float4_e2m1fn_x2"][0] == cast.format
                        for cast in self._casts.values() if cast.kind != "none")
        self._multiple = 16 if any(
            cast.hadamard for cast in self._casts.values()) else 1 + four_bits
        for size in ("in_features", "out_features"):
            if four_bits and getattr(self, size) % 2:
                raise ValueError(f"{name}.{size}: got {getattr(self, size)}, "
                                 "expected a multiple of 16 (float4)")
        self._register()

    def _register(self) -> None:
        key = next(_keys)
        self._state = self._state._replace(key=torch.tensor(key, device="cpu"))
        _layers[key] = self

    def __setstate__(self, state: Any) -> None:  # of a copy, too
        super().__setstate__(state)
        self._register()

    @classmethod
    def from_float(cls, module: torch.nn.Linear, config: Any = None,
                   name: str = "Float8Linear") -> "Float8Linear":
        """A layer with the parameters, hooks and other attributes of a linear layer.

        Raises:
            ValueError: the layer, whose name the text has, has a forward(), a state
                dict or another method of its own that would be lost, is parametrized
                or lazy, or has sizes without a rule.
        """
        new = cls._of(module, config, name)
        _rebind(new)
        return new

    @classmethod
    def _of(cls, module: torch.nn.Linear, config: Any, name: str) -> "Float8Linear":
        """from_float() without _rebind()."""
        parametrize = torch.nn.utils.parametrize
        kind = type(module)
        own = [key for key in _METHODS if key in module.__dict__
               or getattr(kind, key) is not getattr(torch.nn.Linear, key)]
        what = None
        if parametrize.is_parametrized(module):  # type: ignore[no-untyped-call]
            what = "parametrizations, which can be registered after the conversion"
        elif torch.nn.parameter.is_lazy(module.weight):
            what = "no sizes before its first forward pass"
        elif own:
            what = f"a {own[0]}() of its own"
        elif hasattr(kind, "weight") or hasattr(kind, "bias"):
            what = "a weight or bias that its class computes"
        if what is not None:
            raise ValueError(
                f"{name}: got {kind.__name__} with {what}, expected a "
                "torch.nn.Linear (module_filter_fn can leave a layer out)")
        new = cls.__new__(cls)
        new.__dict__.update(module.__getstate__())  # no compiled code
        for key in ("_parameters", "_buffers", "_modules"):
            new.__dict__[key] = new.__dict__[key].copy()
        new._set_up(Float8LinearConfig() if config is None else config, name)
        return new

    def forward(self, input: Tensor) -> Tensor:
        if torch.is_autocast_enabled("cpu"):
            input = input.to(torch.get_autocast_dtype("cpu"))
        rows = input.reshape(input.shape[:-1].numel(), input.size(-1))
        grad = torch.is_grad_enabled()
        if (self._multiple > 1 and rows.size(0) % self._multiple
                and self.weight.requires_grad
                and (grad or (not torch.compiler.is_compiling()
                              and recompute.in_function()))):
            raise ValueError(f"{self._name}: got {rows.size(0)} tokens, expected a "
                             f"multiple of {self._multiple} (float4)")
        now = self._state
        if self._has_state:
            scale, scale_inv, seed, most = _ops._begin_pass(
                now.scale, now.scale_inv, now.seed, now.key, now.rank, self._seeds,
                self.training, grad)
            now = now._replace(scale=scale, scale_inv=scale_inv, seed=seed, most=most)
        output: Tensor = _Linear.apply(  # type: ignore[no-untyped-call]
            rows, self.weight, self._casts, self._state, now, grad, self._record,
            None if torch.compiler.is_compiling() else self._cache)
        if self.bias is not None:
            output.add_(self.bias.to(output.dtype))
        return output.reshape(*input.shape[:-1], output.size(-1))

    def _extra(self) -> Dict[str, Tensor]:
        """The entries of the state dict beside the parameters."""
        extra: Dict[str, Tensor] = {}
        if self._manager is not None:
            self._manager.observe_all(self._state.amax)
            state = self._manager.state_dict()
            extra = {key: value for key, value in state.items()
                     if isinstance(value, Tensor)}
        if any(cast.rounding == 2 for cast in self._casts.values()):
            extra["rounding_seed"] = self._state.seed.clone()
        return extra

    def _save_to_state_dict(self, destination: Any, prefix: str,
                            keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for key, value in self._extra().items():
            destination[prefix + key] = value

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any,
                              strict: bool, missing: List[str],
                              unexpected: List[str], errors: List[str]) -> None:
        super()._load_from_state_dict(  # type: ignore[no-untyped-call]
            state_dict, prefix, metadata, strict, missing, unexpected, errors)
        keys = list(self._extra())
        absent = [prefix + key for key in keys if prefix + key not in state_dict]
        missing += absent
        unexpected[:] = [key for key in unexpected
                         if key.removeprefix(prefix) not in keys]
        if absent or not keys:
            return
        values = {key: state_dict[prefix + key] for key in keys}
        seed = values.pop("rounding_seed", None)
        if seed is not None and (not isinstance(seed, Tensor) or seed.numel() != 1
                                 or seed.dtype != torch.int64):
            errors.append(f"{prefix}rounding_seed: got {seed}, expected a tensor of "
                          "one element, torch.int64")
            return
        if self._manager is not None:
            try:
                self._manager.load_state_dict(values)
            except RuntimeError as error:
                errors.append(f"{prefix}: {error}")
                return
            for mine, new in zip(self._state, self._manager.scales()):
                mine.copy_(new)
            self._state.amax.copy_(self._manager.amax().clamp(min=0))
        if seed is not None:
            self._state.seed.copy_(seed.reshape(()))


def _rebind(layer: torch.nn.Module) -> None:
    """Gives the hooks before load_state_dict() that take their module a new layer
    instead of the one that it replaces."""
    if isinstance(layer, Float8Linear):
        for hook in layer._load_state_dict_pre_hooks.values():
            if getattr(hook, "with_module", False):
                hook.module = weakref.ref(layer)


@contextlib.contextmanager
def cached_weights(model: torch.nn.Module) -> Iterator[None]:
    """A context in which the layers of a converted model quantize their weights once:
    for the micro batches of a step, or in evaluation. A weight that an operator has
    changed in place is quantized again, one whose ``.data`` was changed is not, so the
    context should end before the optimizer's step. Weights with delayed scaling or
    stochastic rounding are quantized each time; so are all in compiled code.
    """
    layers = [module for module in model.modules()
              if isinstance(module, Float8Linear)
              and not any(cast.kind == "delayed" or cast.rounding == 2
                          for role, cast in module._casts.items()
                          if role.startswith("weight"))]
    before = [layer._cache for layer in layers]
    for layer in layers:
        layer._cache = {} if layer._cache is None else layer._cache
    try:
        yield
    finally:
        for layer, cache in zip(layers, before):
            layer._cache = cache


def update_scales(model: torch.nn.Module) -> None:
    """Ends a step of delayed scaling: the scales of all layers follow from the amax
    that were observed, after one MAX all-reduce over the ranks if there are
    several. Nothing changes without an observed amax. Every rank must call it; a
    forward pass of a converted model in training mode does.
    """
    _update_all(model, False, True)


def _update_all(model: torch.nn.Module, begins: bool, grad: bool) -> None:
    layers = [module for module in model.modules()
              if isinstance(module, Float8Linear) and module._manager is not None]
    if layers:
        _ops._update_scales(
            [tensor for layer in layers for tensor in layer._state[:3]],
            [layer._state.key for layer in layers], begins, grad)


# Operators, so that torch.compile does not look into them; it may pass copies of a
# layer's tensors, and write them back.
def _begin_pass(scale: Tensor, scale_inv: Tensor, seed: Tensor, key: Tensor, rank: int,
                seeds: List[int], training: bool, grad: bool
                ) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """The scales of a forward pass, its seeds for input and weight, and the largest
    amax that it may observe; `grad`: whether gradients are enabled."""
    first = recompute.begin(
        int(key), _layers[int(key)]._name, grad, lambda: recompute.Values(
            scale.tolist(), scale_inv.tolist(), int(seed)))
    if first is None:
        observes = training and (grad or recompute.in_function())
        scale, scale_inv, begin = scale.clone(), scale_inv.clone(), int(seed)
        seed.add_(sum(seeds))
    else:
        observes = False
        scale, scale_inv = scale.new_tensor(first.scale), scale.new_tensor(
            first.scale_inv)
        begin = first.seed
    own = seed.new_tensor([begin, begin + seeds[0]]) + (rank << 48)
    return scale, scale_inv, own, scale.new_tensor(math.inf if observes else 0.0)


def _begin_shapes(scale: Tensor, scale_inv: Tensor, seed: Tensor, *others: Any
                  ) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    return (torch.empty_like(scale), torch.empty_like(scale),
            seed.new_empty(2), scale.new_empty(()))


def _observe(amax: Tensor, slot: int, found: Tensor, most: Tensor) -> None:
    """Adds an amax that was found, unless `most` is 0."""
    amax[slot] = torch.maximum(amax[slot], torch.minimum(found, most))


def _update_scales(states: List[Tensor], keys: List[Tensor], begins: bool, grad: bool
                   ) -> None:
    """:func:`update_scales`; before a forward pass, if that begins, only of training
    and not if it is a repetition. `grad`: whether gradients are enabled, which compiled
    code may change."""
    layers = [_layers[int(key)] for key in keys]
    if begins and (recompute.in_backward()
                   or not (grad or recompute.in_function())):
        return
    observed = torch.cat(states[2::3])
    config = layers[0].config
    group = config.process_group
    if (config.options.get("reduce_amax", True)
            and torch.distributed.is_available()
            and torch.distributed.is_initialized()):
        torch.distributed.all_reduce(
            observed, torch.distributed.ReduceOp.MAX, group)
    parts = observed.split(_FORWARD + _BACKWARD)
    for i, (layer, part) in enumerate(zip(layers, parts)):
        assert layer._manager is not None
        layer._manager.observe_all(part)
        layer._manager.update()
        for mine, new in zip(states[3 * i:], layer._manager.scales()):
            mine.copy_(new)
        states[3 * i + 2].zero_()


# The layers by their keys.
_layers: "weakref.WeakValueDictionary[int, Float8Linear]" = (
    weakref.WeakValueDictionary())
_library = torch.library.Library("swamp", "FRAGMENT")
for _schema, _call, _shapes in (
        ("_begin_pass(Tensor scale, Tensor scale_inv, Tensor(a!) seed, Tensor key, "
         "int rank, int[] seeds, bool training, bool grad) "
         "-> (Tensor, Tensor, Tensor, Tensor)", _begin_pass, _begin_shapes),
        ("_observe(Tensor(a!) amax, int slot, Tensor found, Tensor most) -> ()",
         _observe, lambda *_: None),
        ("_update_scales(Tensor(a!)[] states, Tensor[] keys, bool begins, bool grad) "
         "-> ()", _update_scales, lambda *_: None)):
    _library.define(_schema)
    _library.impl(_call.__name__, _call, "CPU")
    _library.impl(_call.__name__, _shapes, "Meta")


def _update_before_forward(model: torch.nn.Module, inputs: Any) -> None:
    if model.training:
        _update_all(model, True, torch.is_grad_enabled())


def convert_to_float8_training(
        module: torch.nn.Module, *,
        module_filter_fn: Optional[Callable[[torch.nn.Module, str], bool]] = None,
        config: Any = None) -> torch.nn.Module:
    """Replaces the linear layers of a model by :class:`Float8Linear`, with the same
    parameters, hooks and other attributes. Do this before DistributedDataParallel,
    FSDP and torch.compile. An error changes nothing.

    Args:
        module: changed; if it is itself a linear layer, a new one is returned.
        module_filter_fn: called with a layer and its name; whether to replace it.
        config: a :class:`Float8LinearConfig`, or torchao's; None: tensorwise.

    Returns:
        The model. Layers whose weight another module reads, without a call of the
        layer, stay in high precision: ``out_proj`` of torch.nn.MultiheadAttention,
        which is not replaced, and those of torch.nn.TransformerEncoderLayer in
        evaluation (see ``torch.backends.mha.set_fastpath_enabled``). With delayed
        scaling each of its forward passes in training mode
        first calls :func:`update_scales`, under torch.no_grad() only in a reentrant
        checkpoint, which cannot be told from training.

    Raises:
        ValueError: a layer, which the text names, cannot be replaced: its class or
            itself has a forward(), a state dict or another method of its own that
            would be lost, it is parametrized
            (``weight_norm`` and others can be applied after the conversion), lazy,
            or, of nvfp4, its sizes are odd.
    """
    if config is None:
        config = Float8LinearConfig()
    if not hasattr(config, "cast_config_input"):
        raise ValueError(f"config: got {config!r}, expected a Float8LinearConfig, "
                         "for example Float8LinearConfig.from_recipe_name('mxfp8')")
    number = 0

    def converted(linear: torch.nn.Module, name: str) -> torch.nn.Module:
        nonlocal number
        if (not isinstance(linear, torch.nn.Linear)
                or isinstance(linear, Float8Linear)
                or not (module_filter_fn is None
                        or module_filter_fn(linear, name))):
            return linear
        new = Float8Linear._of(linear, config, name or "(root)")
        new._state.seed.add_(number << 32)  # layers round differently
        number += 1
        return new

    attention = torch.nn.MultiheadAttention
    done: Dict[torch.nn.Module, torch.nn.Module] = {}  # shared layers stay shared
    places = []
    for name, parent in module.named_modules():
        for child, linear in parent._modules.items():
            if linear is None or (
                    child == "out_proj" and isinstance(parent, attention)
                    and type(parent).forward is attention.forward):
                continue
            if linear not in done:
                done[linear] = converted(linear,
                                         f"{name}.{child}" if name else child)
            if done[linear] is not linear:
                places.append((parent, child, done[linear]))
    module = done[module] = converted(module, "")
    for parent, child, new in places:
        setattr(parent, child, new)
    for new in done.values():
        _rebind(new)
    if (any(isinstance(layer, Float8Linear) and layer._manager is not None
            for layer in module.modules())
            and _update_before_forward not in module._forward_pre_hooks.values()):
        module.register_forward_pre_hook(_update_before_forward)
    return module


def _rank() -> int:
    distributed = torch.distributed
    return (distributed.get_rank() if distributed.is_available()
            and distributed.is_initialized() else 0)
