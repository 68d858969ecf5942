"""Forward passes that torch.utils.checkpoint, or what works like it, repeats during
the backward pass.

A repeated pass must have the scales and the random bits of the first one, although
later passes may have changed both. So a checkpoint's first run keeps them by layer,
and the n-th pass of a layer in a repetition has those of its n-th pass in the first
run. A checkpoint is

- without ``use_reentrant`` the frame to which its hooks for saved tensors refer; it
  is repeated under the hooks of a recomputation;
- with ``use_reentrant`` the context of a torch.autograd.Function whose forward() runs
  the layer; it is repeated by its backward(). Megatron-LM and DeepSpeed have such
  functions, too.

A pass belongs to every checkpoint that runs, for nested ones. The kept values are
freed with the frame or context, which is with the graph.
"""

import inspect
import sys
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch


class Values(NamedTuple):
    """What a pass takes from its layer; floats are smaller than tensors."""
    scale: List[float]
    scale_inv: List[float]
    seed: int


class Passes:
    """The passes of a checkpoint's first run."""

    def __init__(self) -> None:
        self.values: Dict[int, List[Values]] = {}  # by layer, the first pass first
        self.repeated: Dict[Tuple[Any, int], int] = {}  # by repetition and layer


_passes: "weakref.WeakKeyDictionary[Any, Passes]" = weakref.WeakKeyDictionary()


def _hooks() -> List[Any]:
    """The pairs of hooks for saved tensors, the innermost first."""
    autograd = torch._C._autograd
    top = autograd._top_saved_tensors_default_hooks(True)
    if top is None or not autograd._saved_tensors_hooks_is_enabled():
        return [] if top is None else [top]
    autograd._pop_saved_tensors_default_hooks()
    try:
        return [top, *_hooks()]
    finally:
        autograd._push_saved_tensors_default_hooks(*top)


def _frame(hooks: Any) -> Tuple[Any, Any]:
    """The frame of the checkpoint that set the hooks, or None, and what repeats it:
    the number of a backward pass, a group of them, or None."""
    pack = inspect.unwrap(hooks[0])
    names = pack.__code__.co_freevars if inspect.isfunction(pack) else ()
    values = {name: cell.cell_contents for name, cell in zip(
        names, getattr(pack, "__closure__", None) or ())}
    if "target_frame_ref" in values:  # a recomputation
        return values["target_frame_ref"](), values["gid"]
    frame = values.get("frame")
    return (frame if type(frame).__name__ == "_CheckpointFrame" else None), None


def _functions() -> List[Any]:
    """The contexts of the autograd functions whose forward() runs; what a backward()
    in them runs does not count."""
    found = []
    frame = sys._getframe() if in_function() else None
    while frame is not None:
        code = frame.f_code
        if (code.co_name in ("forward", "backward") and code.co_argcount
                and code.co_varnames[0] != "self"):
            context = frame.f_locals.get(code.co_varnames[0])
            if isinstance(context, torch.autograd.function.FunctionCtx):
                if code.co_name == "backward":
                    break
                found.append(context)
        frame = frame.f_back
    return found


def in_function() -> bool:
    """Whether a forward() of torch.autograd.Function runs, which disables gradients
    of the forward mode."""
    return not (torch._C._is_fwd_grad_enabled()
                or torch.is_inference_mode_enabled())


def in_backward() -> bool:
    """Whether a backward pass runs."""
    return bool(torch._C._current_graph_task_id() != -1)


def begin(layer: int, name: str, grad: bool, current: Callable[[], Values]
          ) -> Optional[Values]:
    """Called before a forward pass: the values of the pass that it repeats, or None
    for a first one, which has the current values. `grad`: whether gradients are
    enabled.

    Raises:
        RuntimeError: it repeats a checkpoint, in which there was no such pass or
            which was compiled; or it may be another repetition.
    """
    running = _functions()
    repeated: List[Tuple[Any, Any]] = []  # checkpoints, and their repetitions
    task = torch._C._current_graph_task_id()
    is_of_node = True
    for hooks in _hooks():
        frame, by = _frame(hooks)
        if by is None:
            running += [] if frame is None else [frame]
            continue
        repeated.append((frame, hooks[0]))
        # Otherwise the node unpacks its saved tensors, and does not repeat itself.
        is_of_node = isinstance(by, int) and by != task
        break  # other hooks were set before this backward pass
    node = torch._C._current_autograd_node() if task != -1 else None
    if is_of_node and type(node).__name__ == "CompiledFunctionBackward":
        # It would have the arguments of the first run, or what they became since.
        raise RuntimeError(
            f"{name}: got a checkpoint in a function that torch.compile compiles, "
            "expected one around the function: scales and random bits of the first "
            "run are not known in the compiled backward pass")
    if is_of_node and node in _passes:
        repeated.append((node, task))
    values: Optional[Values] = None
    for checkpoint, repetition in repeated:
        passes = _passes.get(checkpoint, Passes())
        number = passes.repeated.get((repetition, layer), 0)
        passes.repeated[repetition, layer] = number + 1
        known = passes.values.get(layer, [])
        if number >= len(known):
            raise RuntimeError(
                f"{name}: got {number + 1} forward passes in the repetition of a "
                f"checkpoint, expected {len(known)} as in its first run, whose scales "
                "and random bits they need")
        values = known[number]
    if (task != -1 and grad and not repeated
            and any(layer in passes.values for passes in list(_passes.values()))):
        raise RuntimeError(
            f"{name}: got a forward pass during a backward pass, expected it in "
            "torch.utils.checkpoint or in the backward() of a torch.autograd.Function "
            "whose forward() ran the layer: it may repeat a pass, whose scales and "
            "random bits it would need")
    for checkpoint in running:
        _passes.setdefault(checkpoint, Passes()).values.setdefault(
            layer, []).append(current() if values is None else values)
    return values
