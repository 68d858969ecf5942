"""MixedPrecisionAdamW: AdamW with float32 masters, in one pass of swamp."""

import warnings
from typing import (Any, Callable, Dict, Iterable, List, Optional, Tuple,
                    Union, overload)

import torch
from torch import Tensor

from ._number import number
from ._optimizer_checks import check_numbers, check_once, check_param
from ._optimizer_state import (MASTER, RULES, STEP, Bucket, Writes,
                               collect, keep_as_it_is, restore, share_steps)


class MixedPrecisionAdamW(torch.optim.Optimizer):
    """AdamW for parameters in float32, float16 and bfloat16 on the CPU.

    A 16-bit parameter has a float32 copy, its master, in the optimizer's state:
    the step is taken on the master and rounded to the parameter. A float32
    parameter is its own master. Both moments are float32 always.

    A step reads the gradients once: unscaled, clipped if asked for, widened to
    float32, never rounded again. Gradients are not written. A float32 parameter
    gets the bits of ``torch.optim.AdamW(fused=True)`` where PyTorch's kernel
    takes its vector body (up to the last few elements of a tensor), without
    ``max_norm`` and for a scale that is a power of two, as GradScaler's.

    It works alone, and under ``torch.amp.GradScaler`` as PyTorch's fused
    optimizers do: ``scaler.step(optimizer)`` hands it scale and found_inf, and
    with any found_inf but 0 nothing at all is done. 16-bit parameters must not
    go through ``scaler.unscale_()``, which refuses float16 gradients; they need
    not: use ``max_norm``. Alone nothing is checked, as in PyTorch.

    Args:
        params: parameters, or dicts of groups, as every optimizer's; strided,
            on the CPU. A group may have its own value of all that follows.
        lr: the learning rate, as a float or as a Tensor of one element on the
            CPU, which is read at each step.
        betas: of the two moments, each at least 0 and below 1.
        eps: added to the root.
        weight_decay: decoupled.
        max_norm: above 0: the group's gradients are multiplied by
            ``max_norm / (norm + 1e-6)`` where that is below 1; the norm is that
            of the unscaled gradients of all groups. 0 or None: no clipping.

    Attributes:
        skipped: whether the last step was skipped for found_inf.
        grad_norm: the norm before clipping, a float64 Tensor without dimensions,
            of the last step that was not skipped and had a ``max_norm``; else
            None.

    The state of a parameter, from its first step with a gradient: ``step`` (a
    float32 Tensor; parameters with the same history share it), ``exp_avg`` and
    ``exp_avg_sq`` (float32, of its shape), and ``master_param`` of a 16-bit one.
    State dicts of ``torch.optim.AdamW`` can be loaded, and AdamW loads those of
    this class; masters that a state dict lacks are made of the parameters. Loaded
    tensors are copied.

    A 16-bit parameter that something else has written since the last step
    (``load_state_dict`` of the model, weights swapped for their average, a merged
    adapter) keeps what was written: its master takes the elements that differ,
    and the first time a UserWarning says so. It is noticed by the parameter's
    version and address; writing through ``param.data`` in place changes neither:
    call :meth:`reload_model_params` after it.

    Raises:
        ValueError: a number out of its range; a parameter of another dtype,
            device or layout, or given twice; a group or a state dict with
            ``amsgrad``, ``maximize`` or ``differentiable``.
    """

    # What torch.amp.GradScaler asks for; on the class, so that a copy has it.
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
        """Takes a step with the gradients there are; a parameter without one is
        left alone.

        Args:
            closure: called first, with gradients enabled: it evaluates the model
                again and returns the loss.

        Returns:
            The closure's loss, or None.

        Raises:
            RuntimeError: a gradient that is sparse or of a dtype that swamp does
                not take. Groups before its own may have been stepped.
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
        # The caller's found_inf is not for the norm: nothing is checked here.
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
        # After all: views of one buffer share their version.
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
            "MixedPrecisionAdamW; its float32 master takes the new value (this is "
            "said once)", stacklevel=6)

    @torch.no_grad()
    def reload_model_params(self) -> None:
        """Makes the masters of 16-bit parameters anew of the parameters, without
        a warning: for parameters that something else wrote, also through
        ``param.data``. Moments and steps stay.
        """
        for group in self.param_groups:
            for param in group["params"]:
                master = self.state.get(param, {}).get(MASTER)
                if master is not None:
                    master.copy_(param)

    def state_dict(self) -> Dict[str, Any]:
        """As ``torch.optim.Optimizer.state_dict``, but step counts are copies, of
        each parameter its own: PyTorch's optimizers add to each.
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
    """1 / scale as GradScaler.unscale_() forms it, a float32."""
    if scale is None:
        return number(1.0)
    return scale.double().reciprocal().float()
