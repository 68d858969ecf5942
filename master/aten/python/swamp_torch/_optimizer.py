"""MixedPrecisionAdamW: AdamW with float32 masters, in one pass over memory."""

import warnings
from typing import (Any, Callable, Dict, Iterable, List, Optional, Tuple,
                    Union, overload)

import torch
from torch import Tensor

from ._operators import number
from ._optimizer_checks import check_numbers, check_once, check_param
from ._optimizer_state import (MASTER, RULES, STEP, Bucket, Writes,
                               collect, keep_as_it_is, restore, share_steps)


class MixedPrecisionAdamW(torch.optim.Optimizer):
    """AdamW for parameters in float32, float16 and bfloat16 on the CPU.

    A 16-bit parameter has a float32 copy, its master, in the optimizer's state:
    the step is taken on the master and rounded to the parameter. A float32
    parameter is its own master. Both moments are float32 always.

    A step reads the gradients once: it widens them to float32, unscales and, if
    ``max_norm`` is set, clips them, without rounding them to 16 bits again.
    Gradients are not written. A float32 parameter gets the bits of
    ``torch.optim.AdamW(fused=True)`` in the elements that PyTorch's kernel
    computes with vectors (all but the last few of a tensor), without ``max_norm``
    and if the scale is a power of two, as GradScaler's is.

    It works with or without ``torch.amp.GradScaler``, as PyTorch's fused
    optimizers do: ``scaler.step(optimizer)`` passes it scale and found_inf, and
    if found_inf is not 0 the step does nothing. ``scaler.unscale_()`` refuses
    float16 gradients; to clip, set ``max_norm`` instead. Without a scaler the
    gradients are not checked for inf and nan, as in PyTorch.

    Args:
        params: parameters or dicts of groups, as for every optimizer; strided,
            on the CPU. A group may have its own values of the other arguments.
        lr: the learning rate, as a float or as a Tensor of one element on the
            CPU, which is read at each step.
        betas: decay rates of the two moments, each at least 0 and below 1.
        eps: added to the square root.
        weight_decay: decoupled weight decay.
        max_norm: if above 0, the group's gradients are multiplied by
            ``max_norm / (norm + 1e-6)`` if that is below 1; the norm is that of
            the unscaled gradients of all groups. 0 or None: no clipping.

    Attributes:
        skipped: whether the last step was skipped for found_inf.
        grad_norm: the norm before clipping, a float64 Tensor without dimensions,
            of the last step that was not skipped and had a ``max_norm``; else
            None.

    The state of a parameter, from its first step with a gradient: ``step`` (a
    float32 Tensor; parameters with the same history share it), ``exp_avg`` and
    ``exp_avg_sq`` (float32, of its shape), and ``master_param`` of a 16-bit one.
    State dicts of ``torch.optim.AdamW`` can be loaded, and AdamW loads those of
    this class; if a state dict lacks masters, they are copied from the parameters.
    Loaded tensors are copied.

    If a 16-bit parameter was written by anything else since the last step
    (``load_state_dict`` of the model, weights swapped for their average, a merged
    adapter), the written values stay: they are copied to the master, with a
    UserWarning the first time. The optimizer detects this by the parameter's
    version and address. Writing in place through ``param.data`` changes neither;
    call :meth:`reload_model_params` after it.

    Raises:
        ValueError: a number out of its range; a parameter of another dtype,
            device or layout, or given twice; a group or a state dict with
            ``amsgrad``, ``maximize`` or ``differentiable``.
    """

    # torch.amp.GradScaler reads this; a class attribute, so that copies have it.
    _step_supports_amp_scaling = True

    skipped: bool = False
    grad_norm: Optional[Tensor] = None

    def __init__(self,
                 params: Union[Iterable[Tensor], Iterable[Dict[str, Any]],
                               Iterable[Tuple[str, Tensor]]],
                 lr: Union[float, Tensor] = 1e-3,
                 betas: Tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8,
                 weight_decay: float = 1e-2,
                 *,
                 max_norm: Optional[float] = 0.0) -> None:
        defaults = dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                        max_norm=max_norm, **RULES)
        check_numbers(defaults)
        self._writes = Writes()
        super().__init__(params, defaults)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Adds a group, as ``torch.optim.Optimizer.add_param_group``.

        Raises:
            ValueError: as the class; the group is not added then.
        """
        super().add_param_group(param_group)
        try:
            group = self.param_groups[-1]
            check_numbers(group)
            check_once(group["params"])
            for index, param in enumerate(group["params"]):
                check_param(param, index)
        except ValueError:
            self.param_groups.pop()
            raise

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
            RuntimeError: a gradient that is sparse or of a dtype that swamp does
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
            self._step(_inverse(getattr(self, "grad_scale", None)))
        return loss

    def _step(self, inv_scale: Tensor) -> None:
        buckets = collect(self.param_groups, self.state)
        self.grad_norm = None
        self._follow_others(buckets)
        # The caller has decided to step: found_inf of the norm is ignored.
        clean = number(0.0)
        if any(bucket.group["max_norm"] for bucket in buckets):
            grads = [g for bucket in buckets for g in bucket.grads]
            self.grad_norm = torch.ops.swamp.grad_norm_and_check(
                grads, number(0.0), inv_scale)
        for bucket in buckets:
            group = bucket.group
            beta1, beta2 = map(float, group["betas"])
            torch.ops.swamp.mixed_precision_adamw_(
                bucket.masters, bucket.grads, bucket.exp_avgs,
                bucket.exp_avg_sqs, bucket.model_params, bucket.step, clean,
                inv_scale, self.grad_norm, lr=float(group["lr"]), beta1=beta1,
                beta2=beta2, weight_decay=group["weight_decay"],
                eps=group["eps"], max_norm=group["max_norm"] or 0.0)
        # After all steps, because views of one buffer share their version.
        for bucket in buckets:
            self._writes.note(bucket.model_params)

    def _follow_others(self, buckets: List[Bucket]) -> None:
        written = self._writes.take(buckets)
        if written is None:
            return
        place = next(f"param_groups[{g}]['params'][{p}]"
                     for g, group in enumerate(self.param_groups)
                     for p, param in enumerate(group["params"])
                     if param is written)
        warnings.warn(
            f"{place}: was written since the last step, not by this "
            "MixedPrecisionAdamW; its float32 master takes the new value (warned "
            "once)", stacklevel=6)

    @torch.no_grad()
    def reload_model_params(self) -> None:
        """Copies the 16-bit parameters to their masters, without a warning. Call it
        if something else wrote them, also through ``param.data``. Moments and
        steps are not changed.
        """
        for group in self.param_groups:
            for param in group["params"]:
                master = self.state.get(param, {}).get(MASTER)
                if master is not None:
                    master.copy_(param)

    def state_dict(self) -> Dict[str, Any]:
        """As ``torch.optim.Optimizer.state_dict``, but each parameter has its own
        copy of its step count, because PyTorch's optimizers increase each.
        """
        result = super().state_dict()
        result["state"] = {
            index: {**state, STEP: state[STEP].clone()} if STEP in state else state
            for index, state in result["state"].items()}
        return result

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Loads a state dict of this class or of ``torch.optim.AdamW``, as
        ``torch.optim.Optimizer.load_state_dict``, but float32 stays float32, and
        tensors are copied.

        Raises:
            ValueError: other groups than this optimizer has, a group with
                ``amsgrad``, ``maximize`` or ``differentiable``, or a step count
                that is not a whole number below 2^53; nothing is changed then.
        """
        hook = self.register_load_state_dict_pre_hook(keep_as_it_is)
        try:
            super().load_state_dict(state_dict)
        finally:
            hook.remove()

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("max_norm", self.defaults["max_norm"])
            group.update(RULES)
        self._writes = Writes()
        restore(self.state)
        share_steps(self.param_groups, self.state)


def _inverse(scale: Optional[Tensor]) -> Tensor:
    """1 / scale, computed as by GradScaler.unscale_(), as float32."""
    if scale is None:
        return number(1.0)
    return scale.double().reciprocal().float()
