"""Forward passes that torch.utils.checkpoint, or what works like it, repeats during
the backward pass.

A repeated pass must have the scales and the random bits of the first one, although
later passes may have changed both. So a layer keeps them for each pass that may be
repeated: one under hooks for saved tensors (``use_reentrant=False``), or in the
forward() of a torch.autograd.Function (True). A pass that runs while a backward
pass runs is a repetition of a kept pass whose input has the same bits. If several
have, for example of ``layer(x) + layer(x)``, the checkpoint or, if it is hidden by a
nested one or is reentrant, the node that is differentiated now and the order of the
passes decide. A repetition that may itself be repeated is kept as well, for nested
checkpoints.

A kept pass is forgotten with its node of the graph. One without a node, which is
every pass under a reentrant checkpoint, is forgotten once it was repeated, or is a
repetition, and another forward pass begins.
"""

import inspect
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

# Of passes without a node that no backward pass has repeated, for example because
# of an exception.
_MOST_KEPT = 1 << 12


class Values(NamedTuple):
    """What a pass takes from its layer; floats are smaller than tensors."""
    scale: List[float]
    scale_inv: List[float]
    seed: int


class Pass:
    """A forward pass that may be repeated."""

    def __init__(self, key: Any, values: Values, is_repeated: bool) -> None:
        self.key, self.values, self.is_repeated = key, values, is_repeated
        self.order: int = torch.autograd._get_sequence_nr()
        region = _region()[0]
        self.region = None if region is None else weakref.ref(region)
        self.node: Optional[Callable[[], Any]] = None  # a weak reference

    def may_repeat_now(self) -> bool:
        return self.node is None or self.node() is not None


class Passes:
    """The passes of a layer, the oldest first."""

    def __init__(self) -> None:
        self.kept: List[Pass] = []
        # The numbers of repetitions by keys, at a place of a backward pass.
        self.turn: Tuple[Any, Dict[Any, int]] = (None, {})
        self.is_clean = True

    def first_of(self, key: Any) -> Optional[Pass]:
        """The pass that is repeated now."""
        equal = [one for one in self.kept
                 if one.key == key and one.may_repeat_now()]
        node = torch._C._current_autograd_node()
        now = -1 if node is None else node._sequence_nr()
        region, is_repeated = _region()
        of_region = [one for one in equal if is_repeated
                     and one.region is not None and one.region() is region]
        # Nodes of the graph are numbered in the order of the forward pass. The node
        # of a reentrant checkpoint precedes its passes; without use_reentrant, a
        # node of the checkpoint itself is differentiated.
        before = [one for one in equal
                  if one.node is not None and one.order <= now]
        found = (of_region or
                 [one for one in before if one.region == before[-1].region] or
                 [one for one in equal if one.node is None and one.order > now]
                 or equal[-1:])
        if not found:
            return None
        place = torch._C._current_graph_task_id(), now, id(region)
        if self.turn[0] != place:
            self.turn = place, {}
        number = self.turn[1].get(key, 0)
        self.turn[1][key] = number + 1
        self.is_clean = False
        one = found[number % len(found)]
        one.is_repeated = True
        return one

    def forget(self) -> None:
        """Forgets the passes that cannot be repeated any more."""
        if self.is_clean and len(self.kept) <= _MOST_KEPT:
            return
        self.kept = [one for one in self.kept if one.may_repeat_now()
                     and not (one.node is None and one.is_repeated)]
        del self.kept[:-_MOST_KEPT]
        self.is_clean = True


_passes: "weakref.WeakKeyDictionary[torch.nn.Module, Passes]" = (
    weakref.WeakKeyDictionary())


def _hooks() -> Any:
    """The hooks for saved tensors, or None."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


def _region() -> Tuple[Any, bool]:
    """What identifies the innermost checkpoint that runs, if it is not reentrant, and
    whether it runs again: its frame, which the hooks of the first pass refer to, and
    those of repetitions by a weak reference."""
    hooks = _hooks()
    if hooks is None:
        return None, False
    hook = inspect.unwrap(hooks[0])
    for cell in getattr(hook, "__closure__", None) or ():
        value = cell.cell_contents
        is_repeated = isinstance(value, weakref.ref)
        frame = value() if is_repeated else value
        if type(frame).__name__ == "_CheckpointFrame":
            return frame, is_repeated
    return hook, False


def in_function() -> bool:
    """Whether a forward() of torch.autograd.Function runs, which disables gradients
    also of the forward mode."""
    return not (torch.is_grad_enabled() or torch._C._is_fwd_grad_enabled()
                or torch.is_inference_mode_enabled())


def in_backward() -> bool:
    """Whether a backward pass runs."""
    return bool(torch._C._current_graph_task_id() != -1)


def _key(x: Tensor) -> Any:
    """The shape and the sum of the bits of the elements."""
    bits = torch.int32 if x.element_size() == 4 else torch.int16
    return tuple(x.shape), int(x.detach().resolve_neg().view(bits).sum())


def begin(layer: torch.nn.Module, x: Tensor, values: Callable[[], Values]
          ) -> Tuple[Optional[Values], Optional[Pass]]:
    """Called before a forward pass: the values of the first pass, if this one
    repeats it, and what :func:`end` takes."""
    repeats = in_backward()
    may = in_function() or _hooks() is not None  # be repeated
    if not (repeats or may):
        return None, None
    passes = _passes.setdefault(layer, Passes())
    if not repeats:
        passes.forget()
    elif not (passes.kept or may):
        return None, None
    key = _key(x)
    first = passes.first_of(key) if repeats else None
    found = None if first is None else first.values
    return found, Pass(key, found or values(), first is not None) if may else None


def end(layer: torch.nn.Module, one: Pass, output: Tensor) -> None:
    """Keeps a forward pass, which had no error."""
    if output.grad_fn is not None:
        one.node = weakref.ref(output.grad_fn)
    _passes[layer].kept.append(one)
