"""The recipes of :mod:`swamp_torch.float8`: torchao's configuration classes, with
the further scalings of Transformer Engine, NVFP4 and HiFloat8.

A linear layer has three products, of two casts each: output = input * weight,
grad_input = grad_output * weight_for_grad_input, grad_weight =
grad_output_for_grad_weight * input_for_grad_weight. Blocks and rows lie along the
dimension that a product sums over.
"""

import dataclasses
import enum
import inspect
import json
from typing import Any, Dict, Literal, NamedTuple, Optional, Union

import torch

from ._float8_operators import (FORMATS, POLICIES, ROUNDINGS, SCALINGS, Format,
                                Rounding, ScaleManager, format_name)
from ._optimizer_checks import index_of


class ScalingType(enum.Enum):
    """When a scale is chosen."""
    DYNAMIC = "dynamic"  #: from the tensor itself
    DELAYED = "delayed"  #: from the tensors of earlier steps
    DISABLED = "disabled"  #: never: the tensor keeps its precision


class ScalingGranularity(enum.Enum):
    """What shares a scale."""
    TENSORWISE = "tensorwise"  #: the tensor
    AXISWISE = "axiswise"  #: a row
    BLOCKWISE = "blockwise"  #: a block of a row
    SQUARE = "square"  #: a block of as many rows


class Float8LinearRecipeName(enum.Enum):
    """The names that :meth:`Float8LinearConfig.from_recipe_name` takes."""
    TENSORWISE = "tensorwise"
    ROWWISE = "rowwise"
    ROWWISE_WITH_GW_HP = "rowwise_with_gw_hp"
    TE_DELAYED_HYBRID = "te_delayed_hybrid"
    TE_CURRENT = "te_current"
    TE_BLOCK = "te_block"
    MXFP8 = "mxfp8"
    NVFP4 = "nvfp4"
    HIF8 = "hif8"


RecipeName = Union[Float8LinearRecipeName, Literal[
    "tensorwise", "rowwise", "rowwise_with_gw_hp", "te_delayed_hybrid",
    "te_current", "te_block", "mxfp8", "nvfp4", "hif8"]]


@dataclasses.dataclass(frozen=True)
class CastConfig:
    """How one tensor becomes codes."""
    scaling_type: ScalingType = ScalingType.DYNAMIC
    scaling_granularity: ScalingGranularity = ScalingGranularity.TENSORWISE
    target_dtype: Optional[Format] = None  #: None: e4m3, of gradients e5m2
    #: Of a tensor or row, the name of a scale manager; of blocks, a scaling of
    #: :func:`quantize_blocks`; None: torchao's.
    scaling: Optional[str] = None
    rounding: Rounding = "nearest_even"
    #: Whether the random Hadamard transform comes first; grad_weight only.
    hadamard: bool = False


_E4M3, _E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
_ROLES = ("input", "weight", "grad_output", "input_for_grad_weight",
          "weight_for_grad_input", "grad_output_for_grad_weight")


@dataclasses.dataclass(frozen=True)
class Float8LinearConfig:
    """The casts of a linear layer, torchao's class of this name.

    ``cast_config_*_for_*`` None means: as the cast without a suffix. torchao's
    ``emulate``, ``pad_inner_dim`` and ``gemm_config_*`` choose a GPU's kernel and
    do not exist here.
    """
    cast_config_input: CastConfig = CastConfig()
    cast_config_input_for_grad_weight: Optional[CastConfig] = None
    cast_config_weight: CastConfig = CastConfig()
    cast_config_weight_for_grad_input: Optional[CastConfig] = None
    cast_config_grad_output: CastConfig = CastConfig()
    cast_config_grad_output_for_grad_weight: Optional[CastConfig] = None
    #: Of torchao's scalings, whether scales are rounded down to powers of two.
    round_scales_to_power_of_2: bool = False
    #: Options of the scale managers, by the original's names.
    options: Dict[str, Any] = dataclasses.field(default_factory=dict)
    seed: int = 0  #: of stochastic rounding
    #: Of the all-reduce of amax; None: the default group, if there is one.
    process_group: Any = None
    #: Whether an inf or nan in the input, the weight or the gradient of the output
    #: makes the gradients of weight and input nan, so that GradScaler skips the step
    #: of each optimizer. False: the gradients are products of the codes, as the
    #: originals', in which an overflow may be finite.
    propagate_nonfinite: bool = True
    #: How products are summed: "float32", one chain of fused multiply-adds over the
    #: values of the codes, with the scales applied to the sum or, if they are powers
    #: of two or NVFP4's, to the values; of blocks with other float32 scales, a chain
    #: each, which is scaled and added; "exact", within a block or row, rounded once.
    accumulation: Literal["float32", "exact"] = "float32"

    def __post_init__(self) -> None:
        index_of("accumulation", self.accumulation, ("float32", "exact"))
        self.casts()  # refuses what has no rule

    @staticmethod
    def from_recipe_name(recipe_name: RecipeName, **options: Any
                         ) -> "Float8LinearConfig":
        """The configuration of a recipe.

        Args:
            recipe_name: a :class:`Float8LinearRecipeName`, or its text:
                torchao's "tensorwise", "rowwise" and "rowwise_with_gw_hp";
                Transformer Engine's "te_delayed_hybrid", "te_current",
                "te_block", "mxfp8" and "nvfp4"; "hif8", that of torch_npu.
            options: of te_delayed_hybrid (``margin``, ``amax_history_len``,
                ``amax_compute_algo``, ``reduce_amax``) and te_current
                (``amax_epsilon``, ``use_power_2_scales``); te_block:
                ``power_2_scale``; nvfp4: ``disable_rht``,
                ``disable_stochastic_rounding``, ``disable_2d_quantization``. All
                take ``seed``, ``process_group``, ``propagate_nonfinite`` and
                ``accumulation``.

        Raises:
            ValueError: no recipe has that name, or it has not that option.
            RuntimeError: the same of an option of te_delayed_hybrid and
                te_current, or a bad value.
        """
        if isinstance(recipe_name, enum.Enum):
            recipe_name = recipe_name.value
        index_of("recipe_name", recipe_name, tuple(_RECIPES))
        common = {key: options.pop(key) for key in _COMMON if key in options}
        fields = _RECIPES[recipe_name]
        named = inspect.signature(fields).parameters.values()
        if not any(one.kind is one.VAR_KEYWORD for one in named):
            for key in options:
                index_of(f"{recipe_name}: option", key,
                         (*(one.name for one in named), *_COMMON))
        return Float8LinearConfig(**fields(**options), **common)

    def casts(self) -> Dict[str, "Cast"]:
        """The casts by the names of the fields, without ``cast_config_``."""
        casts = {role: _cast(self, role) for role in _ROLES}
        for a, b in (("input", "weight"),
                     ("grad_output", "weight_for_grad_input"),
                     ("input_for_grad_weight", "grad_output_for_grad_weight")):
            if (casts[a].kind == "none") != (casts[b].kind == "none"):
                raise ValueError(
                    f"cast_config_{a}, cast_config_{b}: got one that is DISABLED, "
                    "expected both or none, as they are multiplied")
        return casts


class Cast(NamedTuple):
    """A :class:`CastConfig` as the operators take it."""
    kind: Literal["none", "tensor", "delayed", "row", "block"]
    format: int = 0
    scaling: int = 0  #: of kinds "block" and "row"
    manager: str = ""  #: of the other kinds; a row may have one, too
    options: str = ""  #: of the manager, JSON
    backward: bool = False  #: whether the manager has the format of gradients
    rounding: int = 0
    policy: int = 0
    square: bool = False
    hadamard: bool = False
    skip_nan: bool = True  #: of amax
    needs_amax: bool = False  #: whether blocks need the tensor's amax
    block: int = 0  #: elements of a block whose scale is applied to a partial sum


def _cast(config: Any, role: str) -> Cast:
    """One cast of a Float8LinearConfig, which may be torchao's own."""
    cast = getattr(config, f"cast_config_{role}", None)
    if cast is None:
        return _cast(config, role[:role.index("_for_")])
    kind = ScalingType(cast.scaling_type.value)
    if kind is ScalingType.DISABLED:
        return Cast("none")
    is_gradient = role.startswith("grad_output")
    name = format_name(cast.target_dtype or (_E5M2 if is_gradient else _E4M3))
    number = FORMATS[name][0]
    scaling = getattr(cast, "scaling", None)
    granularity = ScalingGranularity(cast.scaling_granularity.value)
    rounding = ("nearest_away" if name == "hifloat8" else
                getattr(cast, "rounding", "nearest_even"))
    power_of_2 = config.round_scales_to_power_of_2
    options = dict(getattr(config, "options", {}))
    is_te = scaling is not None and scaling.startswith("te")
    common = dict(
        format=number, rounding=index_of("rounding", rounding, ROUNDINGS),
        policy=POLICIES.index("cuda_saturate" if is_te else "saturate"),
        backward=is_gradient if name == "hifloat8" else name == "float8_e5m2",
        skip_nan=is_te)
    if (getattr(cast, "hadamard", False)
            and not role.endswith("_for_grad_weight")):
        raise ValueError(f"cast_config_{role}.hadamard: got True, expected False "
                         "(only the casts for grad_weight)")
    if granularity is ScalingGranularity.TENSORWISE:
        if name not in ("float8_e4m3fn", "float8_e5m2"):
            raise ValueError(f"cast_config_{role}.target_dtype: got {name}, "
                             "expected float8_e4m3fn or float8_e5m2 (a scale of "
                             "the tensor)")
        if scaling is None:
            scaling = "torchao.float8.tensorwise"
            options["round_scales_to_power_of_2"] = power_of_2
        ScaleManager(scaling, 0, **options)  # refuses unknown names and options
        return Cast("delayed" if kind is ScalingType.DELAYED else "tensor",
                    manager=scaling, options=json.dumps(options), **common)
    if granularity is ScalingGranularity.AXISWISE and scaling is not None:
        ScaleManager(scaling, 0, **options)
        return Cast("row", manager=scaling, options=json.dumps(options), **common)
    if scaling is None:
        scaling = "torchao_float8_power_of_2" if power_of_2 else "torchao_float8"
    return Cast(
        "row" if granularity is ScalingGranularity.AXISWISE else "block",
        scaling=index_of("scaling", scaling, SCALINGS),
        square=granularity is ScalingGranularity.SQUARE,
        hadamard=getattr(cast, "hadamard", False),
        needs_amax="nvfp4" in scaling,
        block=128 * (scaling == "te_block"), **common)


def _all(cast: CastConfig, **others: Any) -> Dict[str, Any]:
    return {"cast_config_input": cast, "cast_config_weight": cast,
            "cast_config_grad_output": cast,
            **{f"cast_config_{role}": value for role, value in others.items()}}


def _blocks(scaling: str, format: Format = _E4M3, square: bool = False,
            **others: Any) -> CastConfig:
    return CastConfig(ScalingType.DYNAMIC,
                      ScalingGranularity.SQUARE if square else
                      ScalingGranularity.BLOCKWISE, format, scaling, **others)


def _rowwise() -> Dict[str, Any]:
    axis = CastConfig(ScalingType.DYNAMIC, ScalingGranularity.AXISWISE, _E4M3)
    return {**_all(axis), "round_scales_to_power_of_2": True}


def _rowwise_with_gw_hp() -> Dict[str, Any]:
    high = CastConfig(ScalingType.DISABLED)
    return {**_rowwise(), "cast_config_input_for_grad_weight": high,
            "cast_config_grad_output_for_grad_weight": high,
            "cast_config_weight_for_grad_input": CastConfig(target_dtype=_E4M3)}


def _tensorwise(kind: ScalingType, scaling: str, options: Dict[str, Any]
                ) -> Dict[str, Any]:
    return {**_all(CastConfig(kind, scaling=scaling)), "options": options}


def _nvfp4(disable_rht: bool = False, disable_stochastic_rounding: bool = False,
           disable_2d_quantization: bool = False) -> Dict[str, Any]:
    format = torch.float4_e2m1fn_x2
    rounding = ("nearest_even" if disable_stochastic_rounding else
                "stochastic")
    return {
        "cast_config_input": _blocks("te_nvfp4", format),
        "cast_config_input_for_grad_weight": _blocks(
            "te_nvfp4", format, hadamard=not disable_rht),
        "cast_config_weight": _blocks("te_nvfp4", format,
                                      not disable_2d_quantization),
        "cast_config_grad_output": _blocks("te_nvfp4", format,
                                           rounding=rounding),
        "cast_config_grad_output_for_grad_weight": _blocks(
            "te_nvfp4", format, rounding=rounding, hadamard=not disable_rht)}


# The options of every recipe.
_COMMON = ("seed", "process_group", "propagate_nonfinite", "accumulation")

# The fields of a Float8LinearConfig from the options of a recipe.
_RECIPES: Dict[str, Any] = {
    "tensorwise": lambda: {},
    "rowwise": _rowwise,
    "rowwise_with_gw_hp": _rowwise_with_gw_hp,
    "te_delayed_hybrid": lambda **options: _tensorwise(
        ScalingType.DELAYED, "te.DelayedScaling", options),
    "te_current": lambda **options: _tensorwise(
        ScalingType.DYNAMIC, "te.Float8CurrentScaling", options),
    "te_block": lambda power_2_scale=True: _te_block(
        "te_block_power_of_2" if power_2_scale else "te_block"),
    "mxfp8": lambda: _all(_blocks("te_mxfp8")),
    "nvfp4": _nvfp4,
    "hif8": lambda: _all(CastConfig(
        ScalingType.DYNAMIC, ScalingGranularity.AXISWISE, "hifloat8",
        "torch_npu.hifloat8")),
}


def _te_block(scaling: str) -> Dict[str, Any]:
    return _all(_blocks(scaling), weight=_blocks(scaling, square=True))
