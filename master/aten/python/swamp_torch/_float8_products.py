"""The product of a float8 layer and its gradients: the operands of a cast, as codes or
as values of codes, and the function of autograd."""

import json
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from ._float8_operators import SCALINGS
from ._float8_recipes import Cast
from ._float8_report import Record

_ops = torch.ops.swamp

# The places in Transformer Engine's state, whose outputs and gradients of inputs are
# never quantized.
_SLOTS = {"input": 0, "weight": 1, "grad_output": 3}


class Operand(NamedTuple):
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


def _product(a: Operand, b: Operand, dtype: torch.dtype, exact: bool,
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


class State(NamedTuple):
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


def _along_rows(x: Tensor, cast: Cast, role: str, state: State,
                seed: Optional[Tensor], of_tensor: Optional[Tensor] = None
                ) -> Tuple[Operand, Optional[Tensor]]:
    """The codes of a matrix whose rows a product sums over, and its amax, nan if
    it has a nan, if the cast finds it. `of_tensor` is the amax, if it is known."""
    if cast.kind == "none":
        return Operand(x, None, None, cast), None
    how = (cast.format, cast.rounding, cast.policy)
    if cast.kind == "delayed":
        slot = _SLOTS[role]
        codes, found, seen = _ops._quantize_by(x, state.scale[slot], *how)
        _ops._observe(state.amax, slot, found, state.most)
        return Operand(codes, state.scale_inv[slot].clone(), None, cast), seen
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
        return Operand(codes, scale_inv, None, cast), seen
    if cast.hadamard:
        x, of_tensor = _ops.hadamard_transform(x), None
    if not cast.needs_amax:
        of_tensor = None
    elif of_tensor is None:
        of_tensor = _ops.amax(x)
    codes, scales, _, _ = _ops.quantize_blocks(
        x, cast.format, cast.scaling, True, False, 0, cast.square, of_tensor,
        cast.rounding, cast.policy, False, seed)
    return Operand(codes, scales, of_tensor, cast), None


def _values(x: Tensor, cast: Cast, rows: bool, columns: bool, hadamard: bool,
            role: str, state: State, seed: Optional[Tensor]
            ) -> Tuple[Operand, Operand, Optional[Tensor]]:
    """The values of the codes of a matrix and of its transpose, if these are wanted,
    and the largest magnitude that was seen, nan if the matrix has a nan."""
    how = (cast.format, cast.rounding, cast.policy)
    if cast.kind == "none":
        first = Operand(x, None, None, cast)
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
        first = Operand(values, inverse, None, cast)
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
    return (Operand(along_rows, scales[0], amax[0], cast),
            Operand((along_rows if cast.square else along_columns).t(), scales[1],
                     amax[0] if cast.square else amax[1], cast),
            one if seen is None else seen)


def _scaled_values(x: Tensor, cast: Cast, rows: bool, columns: bool,
                   seed: Optional[Tensor]) -> Tuple[Operand, Operand]:
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
    return (Operand(found[0], found[1], None, cast),
            Operand(found[2], found[3], None, cast))


# torchao's scales of rows, as options of their manager.
_ROW_OPTIONS = {name: json.dumps({"round_scales_to_power_of_2": power})
                for name, power in (("torchao_float8", False),
                                    ("torchao_float8_power_of_2", True))}


def _seed(role: str, casts: Tuple[Cast, Cast], state: State) -> Optional[Tensor]:
    """The first of two seeds, if a cast needs them. Those of gradients are taken from
    the state."""
    if all(cast.rounding != 2 for cast in casts):
        return None
    if role != "grad_output":
        return state.seed[_SLOTS[role]]
    seed = state.seed + (state.rank << 48)
    state.seed.add_(2)
    return seed


def _quantized(x: Tensor, role: str, casts: Tuple[Cast, Cast], state: State,
               wanted: Tuple[bool, bool], record: Optional[Record]
               ) -> Tuple[Optional[Operand], Optional[Operand],
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
    first: Optional[Operand] = None
    second: Optional[Operand] = None
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
        first = Operand(found[0], found[1], of_tensor, row)
        second = Operand(found[2], found[3], of_tensor, row)
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


def _quantized_values(x: Tensor, role: str, casts: Tuple[Cast, Cast], state: State,
                      wanted: Tuple[bool, bool], record: Optional[Record]
                      ) -> Tuple[Optional[Operand], Optional[Operand],
                                 Optional[Tensor]]:
    """:func:`_quantized` with values instead of codes."""
    row, column = casts
    seed = _seed(role, casts, state)
    first: Optional[Operand] = None
    second: Optional[Operand] = None
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


class Linear(torch.autograd.Function):
    """input [rows, in] * weight [out, in]^T."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, casts: Dict[str, Cast],
                state: State, now: State, trains: bool,
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
            w = Operand(*saved[3:6], casts["weight_for_grad_input"])
            grad_input = _product(dy, w, ctx.dtypes[0], ctx.state.exact, seen)
        if needs_weight:
            x = Operand(*saved[:3], casts["input_for_grad_weight"])
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
