"""The state of swamp_torch's optimizers: what a step reads and writes, collected once,
and how state is loaded."""

from dataclasses import dataclass, field
from typing import (Any, Callable, Dict, Iterable, List, Optional, Sequence,
                    Set, Tuple)

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from ._operators import number
from ._optimizer_checks import (check_shapes, check_step, first_sharded,
                                is_dtensor, is_ours, is_wrapper, part_of)
from ._optimizer_memory import (COMPENSATION, DEFAULT, MASTER, MOMENTS, OPTIONS,
                                Kind, Storage, check_codes, check_gradient,
                                check_storage, is_written)

STEP = "step"
# Length of a range of a large parameter, in limits of a bucket: longer ranges delay the
# last copy, shorter ones slow the step.
_RANGE = 4

State = Dict[Tensor, Dict[str, Any]]
Group = Dict[str, Any]


def zeros(params: Iterable[Tensor]) -> List[Tensor]:
    """Float32 zeros for each parameter. The threads that step them write them
    first: the system puts a page of memory on the NUMA node of the first writer."""
    made = [torch.empty_like(p, dtype=torch.float32, requires_grad=False,
                             memory_format=torch.preserve_format) for p in params]
    if made:
        torch.ops.swamp.foreach_zero_([part_of(t) for t in made])
    return made


@dataclass(eq=False, slots=True)
class Bucket:
    """Parameters of one group that are stepped by one call."""

    group: Group
    names: Sequence[str]
    fresh: bool  # whether the rule's tensors are new: store_fresh() stores them
    rule: Sequence[Any]  # the names of the group, or its storage
    kind: Optional[Kind]  # how Adam stores the states; None: float32
    params: List[Tensor] = field(default_factory=list)
    elements: int = 0  # of all parameters
    states: List[Dict[str, Any]] = field(default_factory=list)
    # Step counts, which are equal; empty without them.
    steps: List[Tensor] = field(default_factory=list)
    # What was taken from the states, by name.
    fields: Dict[str, List[Tensor]] = field(default_factory=dict)
    numbers: Dict[str, Any] = field(default_factory=dict)  # options of its last step
    _new: List[List[Tensor]] = field(default_factory=list)

    def finish(self, single: bool) -> List[List[Tensor]]:
        """Collects the tensors of the states: masters, then what the rule needs."""
        masters = [] if single else self._tensors_of(MASTER)
        if self.fresh:
            tensors = self._new = [zeros(self.params) for _ in self.names]
        else:
            tensors = [self._tensors_of(name) for name in self.names]
            self.fields.update(zip(self.names, tensors))
        if masters:
            self.fields[MASTER] = masters
        if self.steps:
            self.fields[STEP] = self.steps
        return [masters, *tensors]

    def _tensors_of(self, name: str) -> List[Tensor]:
        """The tensors of the states with this name. Those that are missing are made:
        masters are copies of the parameters, moments are 0."""
        absent = [(p, s) for p, s in zip(self.params, self.states)
                  if s.get(name) is None]
        for tensor, (param, state) in zip(zeros(p for p, _ in absent), absent):
            state[name] = tensor if name != MASTER else tensor.copy_(param.detach())
        return [s[name] for s in self.states]

    def store_fresh(self) -> None:
        """Stores new tensors after their first step."""
        for name, tensors in zip(self.names, self._new):
            for state, tensor in zip(self.states, tensors):
                state[name] = tensor

    def ranges(self, limit: int) -> List[Tuple[int, int]]:
        """Ranges of elements that are stepped one after another: several of a large
        contiguous parameter, otherwise (0, -1), which is all."""
        part = _RANGE * limit  # whole blocks of 8-bit moments
        if len(self.params) != 1 or not 0 < 2 * part <= self.elements:
            return [(0, -1)]
        used = [self.params, [self.params[0].grad], *self.fields.values(), *self._new]
        if not all(tensor.is_contiguous() for tensor, in used):
            return [(0, -1)]
        return [(begin, min(begin + part, self.elements))
                for begin in range(0, self.elements, part)]

    def is_current(self) -> bool:
        """Whether the states hold the tensors that were collected."""
        try:
            for name, tensors in self.fields.items():
                for state, tensor in zip(self.states, tensors):
                    if state[name] is not tensor:
                        return False
        except KeyError:
            return False
        return True


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    # Loops are faster here than map(operator.is_).
    if len(some) != len(others):
        return False
    for one, other in zip(some, others):
        if one is not other:
            return False
    return True


def _count_of(state: Dict[str, Any]) -> Tensor:
    """The step count of a state as the kernels take it, a float32 on the CPU. One
    that the user's code has set otherwise is replaced.

    Raises:
        ValueError: it is not a whole number below 2^53.
    """
    step = state[STEP]
    if not (isinstance(step, Tensor) and step.dtype is torch.float32
            and step.is_cpu and step.layout is torch.strided
            and step.numel() == 1 and not step.is_neg()
            and not step._is_zerotensor() and not is_wrapper(step)):
        check_step(step, f"state[param]['{STEP}']")
        step = state[STEP] = number(float(step))
    return step


def _grad_of(param: Any) -> Optional[Tensor]:
    """This rank's part of the gradient of a DTensor, placed as the DTensor is."""
    grad = param.grad
    if grad is not None and grad.placements != param.placements:
        grad = grad.redistribute(param.device_mesh, param.placements)
    return None if grad is None else part_of(grad)


def _first_element(param: Any) -> int:
    """The index of the first element of this rank's part, which has whole rows of
    the parameter; 0 if it is another part."""
    split = [] if not is_dtensor(param) else [
        dim for dim, p in enumerate(param.placements) if not p.is_replicate()]
    if len(split) != 1 or not param.placements[split[0]].is_shard(0):
        return 0
    rows, mesh = param.shape[0], param.device_mesh
    chunk = -(-rows // mesh.size(split[0]))  # as torch.chunk()
    first = min(rows, chunk * mesh.get_local_rank(split[0]))
    return int(first * (param.numel() // max(1, rows)))


class Collected:
    """The parameters with gradients and their state, in the form that the kernels
    take. It is used as long as is_current()."""

    def __init__(self, groups: List[Group], all_states: State,
                 names_of: Callable[[Group], Sequence[str]], counts: bool,
                 before: "Optional[Collected]", limit: int = 0) -> None:
        """Parameters get their state with their first gradient.

        Args:
            names_of: the names of the tensors in the state of a group.
            counts: whether a state has a step count.
            before: the object that this one replaces.
            limit: if not 0, a bucket of as many elements is not enlarged, and a
                parameter with ranges has a bucket of its own.
        """
        self.lists = torch.classes.swamp.StepLists()
        self.buckets: List[Bucket] = []
        self.others: List[Group] = []  # with what PyTorch steps
        # Of each DTensor a view of this rank's part, which has a gradient only
        # during a step.
        self._parts: Dict[int, Tuple[Tensor, Tensor]] = {}
        absent: List[Tensor] = []
        for place, group in enumerate(groups):  # before any state is converted
            storage = names_of(group)
            if isinstance(storage, Storage):
                for index, param in enumerate(group["params"]):
                    check_gradient(storage, param,
                                   f"param_groups[{place}]['params'][{index}]")
        for group in groups:
            others: List[Tensor] = []
            present: List[Tensor] = []
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    absent.append(param)
                elif (is_ours(param) and grad.layout is torch.strided
                      and (is_dtensor(grad) or not is_wrapper(grad))
                      and not group["differentiable"]):
                    present.append(param)
                else:
                    others.append(param)
            if others:
                self.others.append({**group, "params": others})
            self._collect(group, present, all_states, names_of(group), counts, limit)
        positions: Dict[int, int] = {}
        for index, bucket in enumerate(self.buckets):
            kind = bucket.kind
            single = (bucket.params[0].dtype is torch.float32 if kind is None
                      else not kind.masters)
            masters, *tensors = [[part_of(t) for t in some]
                                 for some in bucket.finish(single)]
            self.lists.add([self._part(p) for p in bucket.params], masters, tensors,
                           bucket.steps)
            if kind is not None and kind.compact:
                if not positions:
                    positions = {id(p): i for i, p in enumerate(
                        p for group in groups for p in group["params"])}
                self.lists.set_storage(index, kind.kahan, kind.codes is not None,
                                       kind.codes is torch.float8_e4m3fn,
                                       [positions[id(p)] for p in bucket.params],
                                       [_first_element(p) for p in bucket.params])
        # A lazy module's parameter has no shape before its first forward().
        self._has_lazy = any(map(is_lazy, absent))
        self.lists.set_absent([self._part(p) for p in absent if not is_lazy(p)])
        # Of all parameters: a rank may have a gradient for none of its parts.
        self.sharded = first_sharded(p for g in groups for p in g["params"])
        self._groups = [(group, list(group["params"])) for group in groups]
        # Parameters without a gradient count, too, so that ranks agree.
        self._split: Dict[Tuple[Any, ...], List[Tensor]] = {}
        for param in (p for g in groups for p in g["params"]) if self.is_split else ():
            self._split.setdefault(self._groups_of(param), []).append(
                self._parts.get(id(param), (param, param))[1])
        self._states = list(all_states.values())
        marks = before.marks() if before is not None else {}
        for index, bucket in enumerate(self.buckets):
            if _follows(bucket):
                self.lists.set_marks(index, [
                    m for p in bucket.params for m in marks.get(id(p), (-1, 0))])

    def _collect(self, group: Group, params: List[Tensor], all_states: State,
                 rule: Sequence[Any], counts: bool, limit: int) -> None:
        buckets: Dict[Tuple[float, bool, Optional[Kind]], List[Bucket]] = {}
        storage = rule if isinstance(rule, Storage) else None
        names: Sequence[str] = rule
        kind: Optional[Kind] = None
        for param in params:
            single = param.dtype is torch.float32
            if storage is not None:
                kind = storage.fit(param, all_states[param])
                names = kind.names
            elif "exp_avg" in all_states.get(param, ()):
                DEFAULT.fit(param, all_states[param])
            step: Optional[Tensor] = None
            fresh = False
            if counts:
                state = all_states[param]
                if STEP not in state:
                    state[STEP] = number(0.0)
                step = _count_of(state)
            else:
                state = all_states[param] if names or not single else {}
                for name in names:
                    fresh = fresh or state.get(name) is None
            key = float(fresh if step is None else step), single, kind
            same = buckets.setdefault(key, [])
            if not same or 0 < limit <= max(same[-1].elements,
                                            param.numel() // (2 * _RANGE)):
                same.append(Bucket(group, names, fresh, rule, kind))
            bucket = same[-1]
            bucket.params.append(param)
            bucket.elements += param.numel()
            bucket.states.append(state)
            if step is not None:
                bucket.steps.append(step)
        # A limit does not change the order of the parameters, which the norm has.
        self.buckets += [bucket for same in buckets.values() for bucket in same]

    def _part(self, param: Tensor) -> Tensor:
        if not is_dtensor(param):
            return param
        part = part_of(param).detach()
        part.grad = _grad_of(param)
        self._parts[id(param)] = param, part
        return part

    @property
    def is_split(self) -> bool:
        """Whether ranks have parts of parameters."""
        return bool(self._parts) or self.sharded is not None

    def bind(self) -> bool:
        """Gives the parts of DTensors their gradients.

        Returns:
            Whether they lie where they were collected.
        """
        for param, part in self._parts.values():
            now = part_of(param)
            if now.data_ptr() != part.data_ptr() or now.shape != part.shape:
                return False
            part.grad = _grad_of(param)
        return True

    def release(self) -> None:
        """Takes the gradients from the parts of DTensors, and counts the writes."""
        for param, part in self._parts.values():
            if part.grad is not None:
                part.grad = None
                torch.autograd.graph.increment_version(param)

    def grad_norm(self, inv_scale: Tensor, process_group: Any) -> Tensor:
        """The norm of all gradients, of which ranks may have parts.

        Args:
            process_group: over which FullyShardedDataParallel splits parameters.
        """
        if not self.is_split:
            return self.lists.grad_norm(inv_scale)
        total = torch.zeros((), dtype=torch.float64, device="cpu")
        for groups, params in self._split.items():
            grads = [p.grad for p in params if p.grad is not None]
            squares = total.new_zeros(())
            if grads:
                norm = torch.ops.swamp.grad_norm_and_check(grads, number(0.0),
                                                           inv_scale)
                squares = norm.double().square()
            for one in groups:
                torch.distributed.all_reduce(
                    squares, group=process_group if one is None else one)
            total += squares
        return total.sqrt()

    def unscale_grads(self, inv_scale: Tensor) -> None:
        """Multiplies the gradients that were used, one of several parameters once."""
        used = {id(p.grad): p.grad for bucket in self.buckets for p in (
            self._parts.get(id(p), (p, p))[1] for p in bucket.params)}
        # A zero tensor cannot be written, and need not be.
        torch.ops.swamp.unscale_(
            [grad for grad in used.values() if not grad._is_zerotensor()],
            number(0.0), inv_scale)

    def _groups_of(self, param: Any) -> Tuple[Any, ...]:
        """The groups over which squares are added; None: FSDP1's, which the parameter
        does not know."""
        if id(param) in self._parts:
            mesh = param.device_mesh
            return tuple(mesh.get_group(dim) for dim, placement
                         in enumerate(param.placements)
                         if not placement.is_replicate())
        return (None,) if getattr(param, "_fsdp_flattened", False) else ()

    def is_current(self, groups: List[Group], all_states: State,
                   names_of: Callable[[Group], Sequence[str]]) -> bool:
        """Whether a step would collect the same again."""
        return (_same(groups, [group for group, _ in self._groups])
                and all(_same(group["params"], params)
                        for group, params in self._groups)
                and _same(list(all_states.values()), self._states)
                and not self.others and not self._has_lazy and self.bind()
                and all(not bucket.fresh
                        and names_of(bucket.group) == bucket.rule
                        and bucket.is_current() for bucket in self.buckets)
                and self.lists.same_steps() and self.lists.same_grads())

    def marks(self) -> Dict[int, Tuple[int, int]]:
        """The marks of 16-bit parameters, by id."""
        result: Dict[int, Tuple[int, int]] = {}
        for index, bucket in enumerate(self.buckets):
            if _follows(bucket):
                flat = self.lists.marks(index)
                result.update(zip(map(id, bucket.params),
                                  zip(flat[::2], flat[1::2])))
        return result

    def take_written(self) -> Optional[Tensor]:
        """Copies the elements of 16-bit parameters that something else wrote since
        the last step to their masters: those which differ from the rounded master.
        Compensations of such elements become 0.

        Returns:
            The first such parameter, if there is one.
        """
        told: Optional[Tensor] = None
        for index, bucket in enumerate(self.buckets):
            if not _follows(bucket):
                continue
            for i in self.lists.written(index):
                whole = bucket.params[i]
                param = part_of(whole)
                if COMPENSATION in bucket.fields:
                    compensation = part_of(bucket.fields[COMPENSATION][i])
                    compensation.masked_fill_(is_written(param, compensation), 0)
                    continue
                master = part_of(bucket.fields[MASTER][i])
                changed = (master.to(param.dtype) != param) & ~(
                    master.isnan() & param.isnan())
                if bool(changed.any()):
                    master.copy_(torch.where(changed, param.float(), master))
                    told = whole if told is None else told
        return told


def _follows(bucket: Bucket) -> bool:
    """Whether the state depends on the value of 16-bit parameters."""
    return MASTER in bucket.fields or COMPENSATION in bucket.fields


def own_steps(all_states: State) -> None:
    """Gives each parameter a step count of its own, which those of optimizers that
    were pickled by earlier versions share."""
    seen: Set[int] = set()
    for param, state in all_states.items():
        step = state.get(STEP) if isinstance(param, Tensor) else None
        if isinstance(step, Tensor):
            if id(step) in seen:
                step = state[STEP] = step.clone()
            seen.add(id(step))


class _Kept:
    """Hides a Tensor from torch.optim.Optimizer, which would cast it to the dtype
    of its parameter."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


def keep_as_it_is(optimizer: torch.optim.Optimizer,
                  state_dict: Dict[str, Any]) -> Dict[str, Any]:
    """The hook that runs before a state dict is loaded. How a group stores its
    state stays as it is; the state is converted."""
    groups = list(state_dict["param_groups"])
    for index, (own, group) in enumerate(zip(optimizer.param_groups, groups)):
        kept = {name: own[name] for name in OPTIONS if name in own}
        groups[index] = {**{name: own[name] for name in ("seed",) if name in own},
                         **group, **kept}
        check_storage(groups[index])
    of_params = {index for group in groups for index in group["params"]}
    states = {index: state for index, state in state_dict["state"].items()
              if index in of_params}  # the others are the user's
    check_codes(states)
    for own, group in zip(optimizer.param_groups, groups):
        for param, index in zip(own["params"], group["params"]):
            if is_ours(param):
                check_shapes(param, states.get(index, {}), f"state[{index}]")
    for index, state in states.items():
        if STEP in state:
            check_step(state[STEP], f"state[{index}]['{STEP}']")

    def keep(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: keep(one) for name, one in value.items()}
        return _Kept(value) if isinstance(value, Tensor) else value

    return {**state_dict, "state": {**state_dict["state"], **keep(states)},
            "param_groups": groups}


def restore(all_states: State) -> None:
    """Unpacks the tensors that keep_as_it_is() has hidden, as copies: float32,
    moments of Adam as they were, or, for parameters that PyTorch steps, as PyTorch
    loads them."""
    for param, state in all_states.items():
        if not isinstance(param, Tensor):  # the user's
            continue
        ours = is_ours(param)
        for name, value in list(state.items()):
            if not isinstance(value, _Kept):
                continue
            device, dtype = torch.device("cpu"), torch.float32
            if not ours and name != STEP:
                device, dtype = param.device, value.value.dtype
                if param.is_floating_point():
                    dtype = param.dtype
            elif name in MOMENTS or name == COMPENSATION:
                dtype = value.value.dtype  # converted by Storage.fit()
            state[name] = value.value.detach().to(device=device, dtype=dtype,
                                                  copy=True)
