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
import math
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
from torch import Tensor

from . import _float8_recompute as recompute
from ._float8_operators import (FORMATS, BlockCodes, Quantized, ScaleManager, amax,
                                dequantize, dequantize_blocks, hadamard_transform,
                                quantize, quantize_blocks, quantized_values)
from ._float8_products import Linear, State
from ._float8_recipes import (CastConfig, Float8LinearConfig,
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

# The tensors of a layer in Transformer Engine's state.
_FORWARD, _BACKWARD = 3, 2

# What a layer that is replaced must have from torch.nn.Linear.
_METHODS = ("forward", "__call__", "_call_impl", "_wrapped_call_impl", "__getattr__",
            "state_dict", "load_state_dict", "_save_to_state_dict",
            "_load_from_state_dict", "get_extra_state", "set_extra_state")


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

    What the state dict has with delayed scaling or stochastic rounding (see the module)
    are neither parameters nor buffers: DistributedDataParallel would overwrite a rank's
    amax with that of the first rank.

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
        self._state = State(
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
            ValueError: as :func:`convert_to_float8_training`.
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
        output: Tensor = Linear.apply(  # type: ignore[no-untyped-call]
            rows, self.weight, self._casts, self._state, now, grad, self._record,
            None if torch.compiler.is_compiling() else self._cache)
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
