"""The hooks that check gradients during backward, while they are in cache."""

import weakref
from typing import Any, Dict, Iterable, Tuple

import torch
from torch import Tensor

from ._optimizer_checks import is_ours

# Smaller tensors are not worth a hook, and their sums may be shared: a block.
_LEAST = 8192


class _Hook:
    """The hook of one parameter. If a step has several backward passes, it checks in
    the last, according to their number before the last step.

    It has no reference to the optimizer, so that the parameter does not keep it."""

    __slots__ = ("_optimizer", "_calls", "_expected")

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._calls = 0
        self._expected = 1

    def __call__(self, param: Tensor) -> None:
        self._calls += 1
        if self._calls < self._expected:
            return
        # Collectives write gradients without increasing their version.
        if torch.compiler.is_compiling() or (
                torch.distributed.is_available()
                and torch.distributed.is_initialized()):
            return
        optimizer = self._optimizer()
        if optimizer is not None and param.grad is not None:
            optimizer._check(param.grad)

    def next_step(self) -> None:
        self._expected = self._calls or self._expected
        self._calls = 0


class Hooks:
    """The hooks of an optimizer's parameters, as long as this object lives."""

    def __init__(self) -> None:
        self._hooks: Dict[Tensor, Tuple[_Hook, Any]] = {}

    def set(self, optimizer: Any, params: Iterable[Tensor]) -> None:
        """Sets the parameters, of which the large ones get hooks."""
        before, self._hooks = self._hooks, {}
        for param in params:
            if param in before:
                self._hooks[param] = before.pop(param)
            elif (param.requires_grad and param.is_leaf and is_ours(param)
                  and param.numel() >= _LEAST):
                hook = _Hook(optimizer)
                self._hooks[param] = (
                    hook, param.register_post_accumulate_grad_hook(hook))
        for _, handle in before.values():
            handle.remove()

    def next_step(self) -> None:
        """Begins to count the backward passes of the next step."""
        for hook, _ in self._hooks.values():
            hook.next_step()

    def __del__(self) -> None:
        for _, handle in self._hooks.values():
            handle.remove()
