"""Training in formats of at most 8 bits on CPUs: linear layers whose products have
operands in float8, MXFP8, NVFP4 or HiFloat8, with the scales and codes that
torchao, Transformer Engine and torch_npu define::

    import swamp_torch.float8 as float8

    config = float8.Float8LinearConfig.from_recipe_name("te_delayed_hybrid")
    float8.convert_to_float8_training(model, config=config)

Forward, gradient of the input and gradient of the weight are products of codes,
whose sums are exact within a block or row and rounded once: the same bits on any
number of threads. Casts have the bits of the originals; the sums of a GPU have no
documented order.

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

State dicts have Transformer Engine's ``scale_fwd``, ``amax_history_fwd``,
``scale_bwd`` and ``amax_history_bwd``, and ``rounding_seed``: a resumed run has the
same bits. ``torch.compile(fullgraph=True)`` sees one graph of a layer; inductor adds
the bias before the output is rounded to 16 bits, ``aot_eager`` and layers without a
bias have the bits of eager mode. There is no float8 all-gather of FSDP2 and no cache
of the weight's codes between micro-batches.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from ._float8_operators import (BlockCodes, Quantized, ScaleManager, amax,
                                dequantize, dequantize_blocks,
                                hadamard_transform, quantize, quantize_blocks)
from ._float8_recipes import (Cast, CastConfig, Float8LinearConfig,
                              Float8LinearRecipeName, ScalingGranularity,
                              ScalingType)
from ._float8_report import Record, recording, report

__all__ = [
    "BlockCodes", "CastConfig", "Float8Linear", "Float8LinearConfig",
    "Float8LinearRecipeName", "Quantized", "ScaleManager",
    "ScalingGranularity", "ScalingType", "amax", "convert_to_float8_training",
    "dequantize", "dequantize_blocks", "hadamard_transform", "quantize",
    "quantize_blocks", "recording", "report", "update_scales",
]

_ops = torch.ops.swamp

# The tensors of a layer in Transformer Engine's state, of which the outputs and
# the gradients of the inputs are never quantized.
_FORWARD, _BACKWARD = 3, 2
_SLOTS = {"input": 0, "weight": 1, "grad_output": 3}

class _Operand(NamedTuple):
    """A matrix [rows, sums] of a product."""
    codes: Tensor  # of kind "none", the matrix itself
    scales: Optional[Tensor]  # of blocks; or the factor of the tensor or of rows
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


def _product(a: _Operand, b: _Operand, dtype: torch.dtype) -> Tensor:
    """a * b^T. Operands in high precision are multiplied by PyTorch."""
    if a.cast.kind == "none":
        return torch.mm(a.codes, b.codes.t()).to(dtype)
    result: Tensor = _ops._scaled_product(*a.arguments(), *b.arguments(), dtype)
    return result


class _State(NamedTuple):
    """What the casts of a layer read and write, tensors on the CPU."""
    scale: Tensor  # of delayed scaling, [5]
    scale_inv: Tensor
    amax: Tensor  # observed since the last update
    seed: Tensor  # of the next stochastic rounding
    rank: int  # that of the process, which changes the random bits
    observes: bool = False  # whether amax counts, in the forward pass


def _along_rows(x: Tensor, cast: Cast, role: str, state: _State,
                seed: Optional[Tensor]) -> _Operand:
    """The codes of a matrix whose rows a product sums over."""
    if cast.kind == "none":
        return _Operand(x, None, None, cast)
    how = (cast.format, cast.rounding, cast.policy)
    if cast.kind == "delayed":
        slot = _SLOTS[role]
        codes, seen = _ops._quantize_by(x, state.scale[slot], *how)
        if state.observes or role == "grad_output":
            state.amax[slot].copy_(torch.maximum(state.amax[slot], seen))
        return _Operand(codes, state.scale_inv[slot].clone(), None, cast)
    if cast.kind == "tensor":
        scale, scale_inv = _ops._current_scale(
            _ops.amax(x, cast.skip_nan), cast.manager, cast.options,
            cast.backward)
        codes, _ = _ops._quantize_by(x, scale, *how)
        return _Operand(codes, scale_inv, None, cast)
    if cast.manager:  # rows
        scale, scale_inv = _ops._current_scale(
            x.abs().amax(1, keepdim=True).float(), cast.manager, cast.options,
            cast.backward)
        codes, _ = _ops._quantize_by(x, scale, *how)
        return _Operand(codes, scale_inv, None, cast)
    if cast.hadamard:
        x = _ops.hadamard_transform(x)
    of_tensor = _ops.amax(x) if cast.needs_amax else None
    codes, scales, _, _ = _ops.quantize_blocks(
        x, cast.format, cast.scaling, True, False, 0, cast.square, of_tensor,
        cast.rounding, cast.policy, False, seed)
    return _Operand(codes, scales, of_tensor, cast)


def _quantized(x: Tensor, role: str, casts: Tuple[Cast, Cast], state: _State,
               wanted: Tuple[bool, bool], record: Optional[Record]
               ) -> Tuple[Optional[_Operand], Optional[_Operand]]:
    """The operands of a matrix and of its transpose, if they are wanted."""
    row, column = casts
    seeds: List[Optional[Tensor]] = [None, None]
    if row.rounding == 2 or column.rounding == 2:
        first_seed = state.seed + (state.rank << 48)
        seeds = [first_seed, first_seed + 1]
        state.seed.add_(2)
    first: Optional[_Operand] = None
    second: Optional[_Operand] = None
    if all(wanted) and row == column and row.kind in ("tensor", "delayed"):
        first = _along_rows(x, row, role, state, None)
        second = first._replace(codes=first.codes.t())
    elif all(wanted) and row == column and row.kind == "block":
        of_tensor = _ops.amax(x) if row.needs_amax else None
        found = _ops.quantize_blocks(
            x, row.format, row.scaling, True, True, 0, row.square, of_tensor,
            row.rounding, row.policy, False, seeds[0])
        first = _Operand(found[0], found[1], of_tensor, row)
        second = _Operand(found[2], found[3], of_tensor, row)
    else:
        if wanted[0]:
            first = _along_rows(x, row, role, state, seeds[0])
        if wanted[1]:
            second = _along_rows(x.t(), column, role, state, seeds[1])
    if record is not None:
        if first is not None:
            record.operand(role, x, first)
        elif second is not None:
            record.operand(role, x.t(), second)
    return first, second


class _Linear(torch.autograd.Function):
    """input [rows, in] * weight [out, in]^T."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, casts: Dict[str, Cast],
                state: _State, record: Optional[Record]) -> Tensor:
        needs_input, needs_weight = ctx.needs_input_grad[:2]
        x, x_for_grad = _quantized(
            input, "input", (casts["input"], casts["input_for_grad_weight"]),
            state, (True, needs_weight), record)
        w, w_for_grad = _quantized(
            weight, "weight", (casts["weight"], casts["weight_for_grad_input"]),
            state, (True, needs_input), record)
        ctx.casts, ctx.state, ctx.record = casts, state, record
        ctx.dtypes = input.dtype, weight.dtype
        saved = [one and one[:3] or (None,) * 3 for one in (x_for_grad, w_for_grad)]
        ctx.save_for_backward(*saved[0], *saved[1],
                              *((input, weight) if record else ()))
        output = _product(x, w, input.dtype)
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
        dy, dy_for_grad = _quantized(
            grad, "grad_output",
            (casts["grad_output"], casts["grad_output_for_grad_weight"]),
            ctx.state, (needs_input, needs_weight), record)
        grad_input = grad_weight = None
        if needs_input:
            w = _Operand(*saved[3:6], casts["weight_for_grad_input"])
            grad_input = _product(dy, w, ctx.dtypes[0])
        if needs_weight:
            x = _Operand(*saved[:3], casts["input_for_grad_weight"])
            grad_weight = _product(dy_for_grad, x, ctx.dtypes[1])
        if record is not None:
            wide = grad.float()
            if grad_input is not None:
                record.result("grad_input", grad_input,
                              torch.mm(wide, saved[7].float()))
            if grad_weight is not None:
                record.result("grad_weight", grad_weight,
                              torch.mm(wide.t(), saved[6].float()))
        return grad_input, grad_weight, None, None, None


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
        self.config = config
        self._casts = Float8LinearConfig.casts(config)
        kinds = {cast.kind: cast for cast in self._casts.values()}
        self._manager: Optional[ScaleManager] = None
        if "delayed" in kinds:
            self._manager = ScaleManager(kinds["delayed"].manager, _FORWARD,
                                         _BACKWARD, **config.options)
        ones = torch.ones(_FORWARD + _BACKWARD, dtype=torch.float32, device="cpu")
        self._state = _State(
            ones, ones.clone(), torch.zeros_like(ones),
            torch.tensor(getattr(config, "seed", 0), device="cpu"), _rank())
        self._record: Optional[Record] = None

    @classmethod
    def from_float(cls, module: torch.nn.Linear, config: Any = None
                   ) -> "Float8Linear":
        """A layer with the parameters of a linear layer."""
        with torch.device("meta"):
            new = cls(module.in_features, module.out_features, bias=False,
                      config=Float8LinearConfig() if config is None else config)
        new.weight, new.bias = module.weight, module.bias
        return new.train(module.training)

    def forward(self, input: Tensor) -> Tensor:
        if torch.is_autocast_enabled("cpu"):
            input = input.to(torch.get_autocast_dtype("cpu"))
        rows = input.reshape(-1, input.size(-1))
        output: Tensor = _Linear.apply(  # type: ignore[no-untyped-call]
            rows, self.weight, self._casts, self._state._replace(
                observes=self.training and torch.is_grad_enabled()),
            self._record)
        output = output.reshape(*input.shape[:-1], output.size(-1))
        return output if self.bias is None else (
            output + self.bias.to(output.dtype))

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
        if self._manager is not None:
            try:
                self._manager.load_state_dict(values)
            except RuntimeError as error:
                errors.append(f"{prefix}: {error}")
                return
            self._take_scales()
            self._state.amax.copy_(self._manager.amax().clamp(min=0))
        if seed is not None:
            self._state.seed.copy_(seed)

    def _take_scales(self) -> None:
        assert self._manager is not None
        for mine, new in zip(self._state, self._manager.scales()):
            mine.copy_(new)


def update_scales(model: torch.nn.Module) -> None:
    """Ends a step of delayed scaling: the scales of all layers follow from the amax
    that were observed, after one MAX all-reduce over the ranks if there are
    several. Nothing changes without an observed amax. Every rank must call it; a
    forward pass of a converted model in training mode does.
    """
    # Not a decorator: disable() imports torch._dynamo, which takes a second.
    torch.compiler.disable(_update_scales)(model)


@torch.no_grad()
def _update_scales(model: torch.nn.Module) -> None:
    layers = [module for module in model.modules()
              if isinstance(module, Float8Linear) and module._manager is not None]
    if not layers:
        return
    observed = torch.cat([layer._state.amax for layer in layers])
    config = layers[0].config
    group = config.process_group
    if (config.options.get("reduce_amax", True)
            and torch.distributed.is_available()
            and torch.distributed.is_initialized()):
        torch.distributed.all_reduce(
            observed, torch.distributed.ReduceOp.MAX, group)
    parts = observed.split(_FORWARD + _BACKWARD)
    for layer, part in zip(layers, parts):
        assert layer._manager is not None
        layer._manager.observe_all(part)
        layer._manager.update()
        layer._take_scales()
        layer._state.amax.zero_()


def _update_before_forward(model: torch.nn.Module, inputs: Any) -> None:
    if model.training and torch.is_grad_enabled():
        update_scales(model)


def convert_to_float8_training(
        module: torch.nn.Module, *,
        module_filter_fn: Optional[Callable[[torch.nn.Module, str], bool]] = None,
        config: Any = None) -> torch.nn.Module:
    """Replaces the linear layers of a model by :class:`Float8Linear`, with the same
    parameters. Do this before DistributedDataParallel, FSDP and torch.compile.

    Args:
        module: changed; if it is itself a linear layer, a new one is returned.
        module_filter_fn: called with a layer and its name; whether to replace it.
        config: a :class:`Float8LinearConfig`, or torchao's; None: tensorwise.

    Returns:
        The model. With delayed scaling each of its forward passes in training mode
        first calls :func:`update_scales`.
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
        new = Float8Linear.from_float(linear, config)
        new._state.seed.add_(number << 32)  # layers round differently
        number += 1
        return new

    done: Dict[torch.nn.Module, torch.nn.Module] = {}  # shared layers stay shared
    for name, parent in list(module.named_modules()):
        for child, linear in list(parent._modules.items()):
            if linear is None:
                continue
            if linear not in done:
                done[linear] = converted(linear,
                                         f"{name}.{child}" if name else child)
            if done[linear] is not linear:
                setattr(parent, child, done[linear])
    module = converted(module, "")
    if any(isinstance(layer, Float8Linear) and layer._manager is not None
           for layer in module.modules()):
        module.register_forward_pre_hook(_update_before_forward)
    return module


def _rank() -> int:
    distributed = torch.distributed
    return (distributed.get_rank() if distributed.is_available()
            and distributed.is_initialized() else 0)
