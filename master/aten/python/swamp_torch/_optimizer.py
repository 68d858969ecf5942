"""AdamW, Adam and SGD: torch.optim's, by swamp's kernels, in one pass over memory.

A class derives from torch.optim's, which has the arguments, the groups and the hooks. At
the first step the tensors are collected in buckets, each of which is one call of the
kernels; they are collected again when a group, a state or the set of gradients changed.
Parameters that swamp does not take are stepped by PyTorch's own step.
"""

import copy
import inspect
import warnings
from typing import (Any, Callable, Dict, Iterable, Optional, Sequence, Tuple,
                    Union, get_args, overload)

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from ._operators import number
from ._optimizer_checks import (NO_CLIPPING, ClipRule, check_clipped, check_max_norm,
                                check_numbers, check_once, index_of, is_ours, part_of)
from ._optimizer_memory import (COMPENSATION, DEFAULT, MASTER, OPTIONS,
                                Moments, Rounding, check_storage, has_float32,
                                storage_of)
from ._optimizer_state import (STEP, Bucket, Collected, keep_as_it_is,
                               own_steps, restore)

__all__ = ["Adam", "AdamW", "SGD"]

Params = Union[Iterable[Tensor], Iterable[Dict[str, Any]],
               Iterable[Tuple[str, Tensor]]]

# The options of all rules that are one number or flag.
_NUMBERS = ("lr", "momentum", "dampening", "eps", "weight_decay",
            "decoupled_weight_decay", "amsgrad", "nesterov", "maximize", "max_norm")
# The options of groups that torch.optim's classes lack.
_OWN = ("max_norm", "clip_rule", *OPTIONS, "seed")


class _Optimizer(torch.optim.Optimizer):
    """What the optimizers share. A class derives from this one and then from
    torch.optim's, whose arguments, checks and groups it has."""

    # torch.amp.GradScaler reads this; a class attribute, so that copies have it.
    _step_supports_amp_scaling = True
    _rule: str  # of the kernels
    _counts_steps = False  # whether the state of a parameter has a step count

    skipped: bool = False
    grad_norm: Optional[Tensor] = None
    process_group: Optional[Any] = None
    unscale_grads: bool = False
    _collected: Optional[Collected] = None
    _bucket_elements = 0  # of a bucket, about; 0: no limit
    _told = False  # of parameters that something else wrote

    def _names_of(self, group: Dict[str, Any]) -> Sequence[Any]:
        """The names of the tensors that a parameter of the group has in its state,
        in the order of the rule; or a Storage, if it depends on the parameter."""
        raise NotImplementedError

    def _make(self, given: Dict[str, Any]) -> None:
        """Makes the optimizer from the local variables of __init__(): torch.optim's
        arguments, options of groups, and what this class has itself."""
        own = {name: given.pop(name) for name in _OWN if name in given}
        self.process_group = given.pop("process_group")
        self.unscale_grads = given.pop("unscale_grads")
        del given["self"]
        super().__init__(**given)
        self.defaults.update(own)
        for group in self.param_groups:
            for name, value in own.items():
                group.setdefault(name, value)
            check_numbers(group)
            check_storage(group)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Adds a group, as ``torch.optim.Optimizer.add_param_group``.

        Raises:
            ValueError: as the class; the group is not added then.
        """
        super().add_param_group(param_group)
        try:
            check_numbers(self.param_groups[-1])
            check_storage(self.param_groups[-1])
            check_once(self.param_groups[-1]["params"])
        except (ValueError, RuntimeError):
            self.param_groups.pop()
            raise

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As ``torch.optim.Optimizer.zero_grad``; with ``set_to_none=False``, the
        gradients are set to zero in one pass."""
        if set_to_none:
            super().zero_grad(set_to_none=True)
            return
        ours = []
        for group in self.param_groups:
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                if is_ours(grad):
                    ours.append(part_of(grad))
                else:
                    grad.zero_()
        if ours:
            torch.ops.swamp.foreach_zero_(ours)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self,
             closure: Optional[Callable[[], float]] = None) -> Optional[float]:
        """Takes a step. Parameters without a gradient are not changed.

        Args:
            closure: called first, with gradients enabled; evaluates the model
                again and returns the loss.

        Returns:
            The closure's loss, or None.

        Raises:
            RuntimeError: a gradient of a dtype or layout that the optimizer does
                not take. The groups before its own may have been stepped.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # Set by GradScaler, for this call only.
        found_inf = getattr(self, "found_inf", None)
        self.skipped = found_inf is not None and float(found_inf) != 0.0
        if not self.skipped:
            self._step(getattr(self, "grad_scale", None))
        return loss

    def _collect(self) -> Collected:
        for group in self.param_groups:
            _refuse_rules(group)
        now = self._collected
        if now is None or not now.is_current(self.param_groups, self.state,
                                             self._names_of):
            now = Collected(self.param_groups, self.state, self._names_of,
                            self._counts_steps, now, self._bucket_elements)
            self._collected = now
        return now

    def _norm_of(self, now: Collected, inv_scale: Tensor) -> Tensor:
        return now.grad_norm(inv_scale, self.process_group)

    def _after(self, bucket: Bucket, begin: int, end: int) -> None:
        """Called after the step of each of a bucket's ranges()."""

    def _step(self, scale: Optional[Tensor]) -> None:
        now = self._collect()
        self.grad_norm = None
        clips = any(group["max_norm"] for group in self.param_groups)
        if clips and now.sharded is not None and self.process_group is None:
            raise ValueError(
                f"{self._place_of(now.sharded)}: got a parameter of "
                "FullyShardedDataParallel, of which each rank has a part, expected "
                "with max_norm also process_group=module.process_group, over which "
                "the norm is computed")
        if now.others:
            self._step_others(now.others, clips, scale is not None)
        self._follow_others(now)
        inv_scale = _inverse(scale)
        if clips and (now.buckets or now.is_split):
            self.grad_norm = self._norm_of(now, inv_scale)
        for index, bucket in enumerate(now.buckets):
            numbers = _numbers_of(bucket)
            if numbers != bucket.numbers:
                now.lists.set_options(index, self._rule, numbers)
                bucket.numbers = numbers
            for begin, end in bucket.ranges(self._bucket_elements):
                now.lists.step(index, inv_scale, self.grad_norm, begin, end)
                if end in (-1, bucket.elements):
                    bucket.store_fresh()
                self._after(bucket, begin, end)
        if self.unscale_grads and scale is not None:
            now.unscale_grads(inv_scale)
        now.release()
        # After all steps, because views of one buffer share their version.
        now.lists.mark()

    def _step_others(self, groups: "list[Dict[str, Any]]", clips: bool,
                     scaled: bool) -> None:
        """Takes PyTorch's own step for the parameters that swamp does not take."""
        for group in groups:
            for param in group["params"] if clips else ():
                check_clipped(group, param, self._place_of(param))
            if scaled:
                group["fused"] = True  # the others do not read the scale
        own, self.param_groups = self.param_groups, groups
        try:
            with torch.set_grad_enabled(self.defaults["differentiable"]):
                inspect.unwrap(super().step)(self)
        finally:
            self.param_groups = own

    def _place_of(self, wanted: Tensor) -> str:
        return next(f"param_groups[{g}]['params'][{p}]"
                    for g, group in enumerate(self.param_groups)
                    for p, param in enumerate(group["params"])
                    if param is wanted)

    def _follow_others(self, now: Collected) -> None:
        written = now.take_written()
        if written is None or self._told:
            return
        self._told = True
        warnings.warn(
            f"{self._place_of(written)}: was written since the last step, not by "
            f"this {type(self).__name__}; its float32 master takes the new value "
            "(warned once)", stacklevel=6)

    @torch.no_grad()
    def reload_model_params(self) -> None:
        """Copies the 16-bit parameters to their masters, without a warning, and sets
        their compensations to 0. Call it if something else wrote them, also
        through ``param.data``. Moments and steps are not changed.
        """
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state.get(param, {})
                if MASTER in state:
                    state[MASTER].copy_(param)
                if COMPENSATION in state:
                    state[COMPENSATION].zero_()

    def state_dict(self) -> Dict[str, Any]:
        """As ``torch.optim.Optimizer.state_dict``, but step counts are copies, and
        groups are ``fused``, so that PyTorch's optimizers can read the scale of
        GradScaler.
        """
        result = super().state_dict()
        states = result["state"] = dict(result["state"])
        for group in result["param_groups"]:
            for index in group["params"]:
                if STEP in states.get(index, ()):
                    states[index] = {**states[index],
                                     STEP: states[index][STEP].clone()}
        for own, group in zip(self.param_groups, result["param_groups"]):
            group["fused"] = not (own["differentiable"]
                                  or any(p.is_complex() for p in own["params"]))
        return result

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Loads a state dict of this class or of torch.optim's, as
        ``torch.optim.Optimizer.load_state_dict``, but float32 stays float32, and
        tensors are copied.

        Raises:
            ValueError: other groups than this optimizer has, a step count that is
                not a whole number below 2^53, or a tensor of another shape than its
                parameter's; nothing is changed then.
        """
        hook = self.register_load_state_dict_pre_hook(keep_as_it_is)
        try:
            super().load_state_dict(state_dict)
        finally:
            hook.remove()

    def __getstate__(self) -> Dict[str, Any]:
        return {**super().__getstate__(), "skipped": self.skipped,
                "grad_norm": self.grad_norm, "unscale_grads": self.unscale_grads}

    def __deepcopy__(self, memo: Dict[int, Any]) -> "_Optimizer":
        result = memo[id(self)] = type(self).__new__(type(self))
        result.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        result.process_group = self.process_group  # has no copy, nor a pickle
        return result

    def __setstate__(self, state: Dict[str, Any]) -> None:
        if "state" in state:
            restore(state["state"])
        super().__setstate__(state)
        for group in self.param_groups:
            for name, default in (("max_norm", 0.0), ("clip_rule", "megatron")):
                group.setdefault(name, self.defaults.get(name, default))
        self._collected = None
        self._told = False
        own_steps(self.state)


class _Adam(_Optimizer):
    """The rule of Adam and AdamW."""

    _rule = "adam"
    _counts_steps = True

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, default in {**OPTIONS, "seed": 0}.items():
                group.setdefault(name, self.defaults.get(name, default))
            storage = DEFAULT if group["amsgrad"] else storage_of(group)
            for param in group["params"]:
                own = self.state.get(param, {})
                if ("exp_avg" in own and is_ours(param)
                        and not is_lazy(param)):
                    storage.fit(param, own)

    def _names_of(self, group: Dict[str, Any]) -> Sequence[Any]:
        if not has_float32(group):
            return storage_of(group)
        return (("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"]
                else ("exp_avg", "exp_avg_sq"))


class Adam(_Adam, torch.optim.Adam):
    """``torch.optim.Adam`` by swamp's kernel: see :class:`AdamW`. ``weight_decay``
    is an L2 penalty, unless ``decoupled_weight_decay``."""

    def __init__(self, params: Params, lr: Union[float, Tensor] = 1e-3,
                 betas: Tuple[Union[float, Tensor], Union[float, Tensor]] =
                 (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0,
                 amsgrad: bool = False, *, foreach: Optional[bool] = None,
                 maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False, fused: Optional[bool] = None,
                 decoupled_weight_decay: bool = False,
                 max_norm: Optional[float] = 0.0, clip_rule: ClipRule = "megatron",
                 master_weights: bool = True,
                 rounding: Rounding = "stochastic", moments: Moments = "float32",
                 seed: int = 0,
                 process_group: Optional[Any] = None,
                 unscale_grads: bool = False) -> None:
        self._make(locals())


class AdamW(_Adam, torch.optim.AdamW):
    """``torch.optim.AdamW`` by swamp's kernel, with float32 masters of 16-bit
    parameters, in one pass over memory.

    It takes the arguments of ``torch.optim.AdamW`` and is a subclass of it.
    Float32, float16 and bfloat16 parameters on the CPU are stepped by swamp;
    PyTorch steps others (float64, complex, other devices, sparse gradients, DTensors
    with Partial placements, and groups that are ``differentiable``). Of a DTensor each rank steps its part, and the state
    is DTensors, too.

    A 16-bit parameter has a float32 copy, its master, in the optimizer's state:
    the step is taken on the master and rounded to the parameter. A float32
    parameter is its own master. The moments are float32. ``master_weights`` and
    ``moments`` store less.

    A step reads the gradients once: it widens them to float32, unscales and, if
    ``max_norm`` is set, clips them, without rounding them to 16 bits again.
    Gradients are not written, unless ``unscale_grads``; they may have any strides,
    a lazy minus sign (``is_neg()``), or be zero tensors. A float32 parameter gets
    the bits of ``torch.optim.AdamW(fused=True)`` in the elements that PyTorch's
    kernel computes with vectors (all but the last few of a tensor), without
    ``max_norm`` and if the scale is a power of two, as GradScaler's is.

    It works with or without ``torch.amp.GradScaler``, as PyTorch's fused
    optimizers do: ``scaler.step(optimizer)`` passes it scale and found_inf, and
    if found_inf is not 0 the step does nothing. ``scaler.unscale_()`` refuses
    float16 gradients; to clip, set ``max_norm`` instead. Without a scaler the
    gradients are not checked for inf and nan, as in PyTorch.

    Args:
        params: parameters or dicts of groups, as for every optimizer. A group may
            have its own values of the other arguments.
        lr: the learning rate, as a float or as a Tensor of one element on the
            CPU, which is read at each step.
        betas: decay rates of the two moments, each at least 0 and below 1.
        eps: added to the square root.
        weight_decay: decoupled weight decay.
        amsgrad: divides by the largest second moments so far.
        maximize: takes the step with the gradients' negative.
        foreach: no effect on the parameters that swamp steps.
        capturable: as in PyTorch, refused for the CPU unless ``fused``.
        differentiable: as in PyTorch, which takes these steps.
        fused: no effect on the parameters that swamp steps: they always are.
        max_norm: if above 0, the group's gradients are multiplied by
            ``max_norm / (norm + 1e-6)`` if that is below 1; the norm is that of
            the unscaled gradients of all groups. 0 or None: no clipping.
        clip_rule: "mindspore": the factor is ``max_norm / norm``, as that of
            ``mindspore.ops.clip_by_global_norm``, which rounds once more.
        master_weights: False: 16-bit parameters have no float32 masters. Not with
            amsgrad, as other ``moments`` than float32.
        rounding: how they are rounded then. "stochastic": up or down at random,
            so that the mean is exact. "kahan": to nearest, and what is lost is
            kept in ``compensation``, a tensor like the parameter; refused with masters.
        moments: "float32", "bfloat16", rounded stochastically, "8bit", as in
            bitsandbytes, or "float8", as in torchao's AdamWFp8. The last two have
            codes of one byte, and for each block of 256 elements and moment its
            largest absolute value (``absmax``), for tensors of at least 4096
            elements, of which ranks have whole blocks; others have float32 moments.
            Also of float32 parameters. A gradient that is inf or nan makes all
            moments of its block nan. Codes of "float8" are float8_e4m3fn, scaled by
            ``max(absmax, 1e-12) / 448``; a second moment below 2.2e-6 of the
            largest of its block becomes 0, as in torchao: updates may then be
            large. With ``master_weights=False`` or moments other than "float32", a
            gradient has the dtype of its parameter.
        seed: for the random bits, from 0 to 2^63 - 1. They are a function of it,
            of the step, of the parameter's place in the optimizer and of the
            element: the same on any number of threads, and after a resume; and on
            ranks that split a parameter by rows.
        process_group: with ``max_norm``, the ranks over which
            FullyShardedDataParallel splits the parameters: its ``process_group``.
            DTensors (``fully_shard``, tensor parallelism) know theirs. A pickled
            optimizer has none.
        unscale_grads: a step with GradScaler leaves unscaled gradients, as
            PyTorch's fused optimizers do; another pass over the gradients. With
            ``max_norm``, they are not clipped.

    Attributes:
        skipped: whether the last step was skipped for found_inf.
        grad_norm: the norm before clipping, a float64 Tensor without dimensions,
            of the last step that was not skipped and had a ``max_norm``; else
            None.

    The state of a parameter, from its first step with a gradient, is that of
    ``torch.optim.AdamW`` in float32, and ``master_param`` of a 16-bit one. A
    ``step`` that is set by hand may have any dtype; it becomes float32. State
    dicts of ``torch.optim.AdamW`` can be loaded, and it loads those of this class,
    but not with moments that are codes; if a state dict lacks masters, they are
    copied from the parameters. Loaded tensors are copied. ``master_weights``,
    ``rounding`` and ``moments`` stay as the optimizer has them, and the loaded state
    is converted.

    If a 16-bit parameter was written by anything else since the last step
    (``load_state_dict`` of the model, weights swapped for their average, a merged
    adapter), the written values stay: they are copied to the master, with a
    UserWarning the first time; with ``rounding="kahan"`` their compensations become
    0, without a warning. The optimizer detects this by the parameter's
    version and address. Writing in place through ``param.data`` changes neither;
    call :meth:`reload_model_params` after it.

    Raises:
        ValueError: a number out of its range; a parameter given twice; in a step
            a ``step`` that is not a whole number below 2^53; in a step with
            ``max_norm``, a parameter that swamp does not step, or one of
            FullyShardedDataParallel on several ranks without ``process_group``.
    """

    def __init__(self, params: Params, lr: Union[float, Tensor] = 1e-3,
                 betas: Tuple[Union[float, Tensor], Union[float, Tensor]] =
                 (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2,
                 amsgrad: bool = False, *, maximize: bool = False,
                 foreach: Optional[bool] = None, capturable: bool = False,
                 differentiable: bool = False, fused: Optional[bool] = None,
                 max_norm: Optional[float] = 0.0, clip_rule: ClipRule = "megatron",
                 master_weights: bool = True,
                 rounding: Rounding = "stochastic", moments: Moments = "float32",
                 seed: int = 0,
                 process_group: Optional[Any] = None,
                 unscale_grads: bool = False) -> None:
        self._make(locals())


class SGD(_Optimizer, torch.optim.SGD):
    """``torch.optim.SGD`` by swamp's kernel, with the bits of both its forms: see
    :class:`AdamW`. The state has ``momentum_buffer``, if there is a momentum."""

    _rule = "sgd"

    def __init__(self, params: Params, lr: Union[float, Tensor] = 1e-3,
                 momentum: float = 0, dampening: float = 0,
                 weight_decay: Union[float, Tensor] = 0, nesterov: bool = False,
                 *, maximize: bool = False, foreach: Optional[bool] = None,
                 differentiable: bool = False, fused: Optional[bool] = None,
                 max_norm: Optional[float] = 0.0, clip_rule: ClipRule = "megatron",
                 process_group: Optional[Any] = None,
                 unscale_grads: bool = False) -> None:
        self._make(locals())

    def _names_of(self, group: Dict[str, Any]) -> Sequence[str]:
        return ("momentum_buffer",) if group["momentum"] != 0 else ()


def _numbers_of(bucket: Bucket) -> Dict[str, Any]:
    """The options of a bucket's step, with beta1 and beta2 for betas."""
    group = bucket.group
    numbers = {name: float(group[name] or 0) for name in _NUMBERS if name in group}
    beta1, beta2 = group.get("betas", (0, 0))
    return {**numbers, "beta1": float(beta1), "beta2": float(beta2),
            "seed": int(group.get("seed", 0)), "first": bucket.fresh,
            "mindspore": group["clip_rule"] == "mindspore"}


def _refuse_rules(group: Dict[str, Any]) -> None:
    """Refuses, in PyTorch's words, what a group was changed to after it was made."""
    check_storage(group)
    check_max_norm(group.get("max_norm"), NO_CLIPPING)
    index_of("clip_rule", group["clip_rule"], get_args(ClipRule))
    if group.get("capturable") and not group["fused"]:
        from torch.optim.optimizer import _get_capturable_supported_devices
        devices = _get_capturable_supported_devices()
        raise AssertionError(
            "If capturable=True, params and state_steps must be on supported "
            f"devices: {devices}.")


def _inverse(scale: Optional[Tensor]) -> Tensor:
    """1 / scale, computed as by GradScaler.unscale_(), as float32."""
    if scale is None:
        return number(1.0)
    return scale.double().reciprocal().float()
