"""The state of MixedPrecisionAdamW: which parameters are stepped together, and
how state is loaded."""

from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

import torch
from torch import Tensor

from ._operators import number
from ._optimizer_checks import check_rules, check_step

STEP, EXP_AVG, EXP_AVG_SQ = "step", "exp_avg", "exp_avg_sq"
MASTER = "master_param"

State = Dict[Tensor, Dict[str, Any]]

# The options of a group that are not numbers: torch.optim.AdamW and GradScaler
# expect them in a state dict.
RULES: Dict[str, Any] = dict(
    amsgrad=False, maximize=False, foreach=None, capturable=False,
    differentiable=False, fused=True, decoupled_weight_decay=True)


class Bucket:
    """Parameters of one group that share a step count: one call of the operator."""

    __slots__ = ("group", "step", "states", "masters", "grads", "exp_avgs",
                 "exp_avg_sqs", "model_params")

    def __init__(self, group: Dict[str, Any], step: Tensor) -> None:
        self.group = group
        self.step = step
        self.states: List[Dict[str, Any]] = []
        self.masters: List[Tensor] = []
        self.grads: List[Tensor] = []
        self.exp_avgs: List[Tensor] = []
        self.exp_avg_sqs: List[Tensor] = []
        self.model_params: List[Tensor] = []  # empty, or 16-bit

    def own_step(self) -> None:
        """Gives the bucket a step count that no other parameter shares."""
        self.step = self.step.clone()
        for state in self.states:
            state[STEP] = self.step


def _begin(param: Tensor, step: Tensor) -> Dict[str, Any]:
    def zeros() -> Tensor:
        return torch.zeros_like(param, dtype=torch.float32,
                                memory_format=torch.preserve_format)

    return {STEP: step, EXP_AVG: zeros(), EXP_AVG_SQ: zeros()}


def collect(groups: Iterable[Dict[str, Any]], all_states: State) -> List[Bucket]:
    """The buckets of a step. Parameters get their state with their first gradient.
    If some parameters that share a step count have no gradient, the others get a
    count of their own."""
    buckets: List[Bucket] = []
    absent: Set[int] = set()  # steps of parameters without a gradient
    for group in groups:
        first: Dict[bool, Tensor] = {}  # the step of new parameters
        by_step: Dict[Tuple[int, bool], Bucket] = {}
        last_step, last_single, bucket = None, None, None
        for param in group["params"]:
            grad = param.grad
            if grad is None:
                state = all_states.get(param)
                if state:
                    absent.add(id(state[STEP]))
                continue
            if grad.layout is not torch.strided:
                raise RuntimeError(
                    "MixedPrecisionAdamW does not support sparse gradients")
            single = param.dtype is torch.float32
            state = all_states[param]
            if not state:
                if single not in first:
                    first[single] = number(0.0)
                state.update(_begin(param, first[single]))
            step = state[STEP]
            if (bucket is None or step is not last_step
                    or single is not last_single):
                last_step, last_single = step, single
                bucket = by_step.get((id(step), single))
                if bucket is None:
                    bucket = Bucket(group, step)
                    by_step[id(step), single] = bucket
                    buckets.append(bucket)
            bucket.states.append(state)
            bucket.grads.append(grad)
            bucket.exp_avgs.append(state[EXP_AVG])
            bucket.exp_avg_sqs.append(state[EXP_AVG_SQ])
            if single:
                bucket.masters.append(param)
            else:
                master = state.get(MASTER)
                if master is None:
                    master = param.detach().to(torch.float32)
                    state[MASTER] = master
                bucket.masters.append(master)
                bucket.model_params.append(param)
    taken = absent
    for bucket in buckets:
        if id(bucket.step) in taken:
            bucket.own_step()
        taken.add(id(bucket.step))
    return buckets


class Writes:
    """Finds 16-bit parameters that were written by anything but the optimizer."""

    def __init__(self) -> None:
        self._marks: Dict[int, Tuple[int, int]] = {}  # by id(parameter)
        self._told = False

    @staticmethod
    def _mark(param: Tensor) -> Tuple[int, int]:
        # Tensors of torch.inference_mode() have no version.
        version = 0 if param.is_inference() else param._version
        return version, param.data_ptr()

    def note(self, params: Iterable[Tensor]) -> None:
        """Records that the optimizer itself wrote the parameters."""
        for param in params:
            self._marks[id(param)] = self._mark(param)

    def take(self, buckets: Iterable[Bucket]) -> Optional[Tensor]:
        """Copies the elements of parameters that were written since the last step
        to their masters: those which differ from the rounded master.

        Returns:
            The first such parameter, the first time; else None.
        """
        told = None
        for bucket in buckets:
            for param, master in zip(bucket.model_params, bucket.masters):
                if self._marks.get(id(param)) == self._mark(param):
                    continue
                changed = (master.to(param.dtype) != param) & ~(
                    master.isnan() & param.isnan())
                if bool(changed.any()):
                    master.copy_(torch.where(changed, param.float(), master))
                    told = param if told is None else told
        if self._told:
            return None
        self._told = told is not None
        return told


def share_steps(groups: Iterable[Dict[str, Any]], all_states: State) -> None:
    """Makes the parameters of a group with equal step counts share one Tensor for
    it, and so one bucket."""
    for group in groups:
        shared: Dict[Tuple[float, bool], Tensor] = {}
        for param in group["params"]:
            state = all_states.get(param)
            if state:
                step = state[STEP]
                key = float(step), param.dtype is torch.float32
                if key not in shared:
                    shared[key] = number(key[0])
                state[STEP] = shared[key]


class _Kept:
    """Hides a Tensor from torch.optim.Optimizer, which would cast it to the dtype
    of its parameter."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


def keep_as_it_is(_: torch.optim.Optimizer,
                  state_dict: Dict[str, Any]) -> Dict[str, Any]:
    """The hook that runs before a state dict is loaded."""
    for index, group in enumerate(state_dict["param_groups"]):
        check_rules(group, f"param_groups[{index}]")
    for index, state in state_dict["state"].items():
        if STEP in state:
            check_step(state[STEP], f"state[{index}]['{STEP}']")

    def keep(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: keep(one) for name, one in value.items()}
        return _Kept(value) if isinstance(value, Tensor) else value

    return {**state_dict, "state": keep(state_dict["state"])}


def restore(all_states: State) -> None:
    """Unpacks the tensors that keep_as_it_is() has hidden, as float32 copies."""
    for state in all_states.values():
        for name, value in list(state.items()):
            if isinstance(value, _Kept):
                state[name] = value.value.detach().to(
                    device="cpu", dtype=torch.float32, copy=True)
