"""AdamW, Adam and SGD whose state and step are on the CPU, for a model on a GPU.

Gradients are copied to pinned memory as backward makes them, and are checked and their
squares added by a thread while backward goes on. A step waits for the last of them, then
steps one bucket after another, a large parameter in several ranges; the weights of a
bucket or range start back while the next one is stepped. What the GPU computes next waits
for the weights that it uses. An exception in a step (a KeyboardInterrupt) leaves some
parameters stepped, and a large one in part.

    optimizer = swamp_torch.offload.AdamW(model.parameters(), lr=1e-4, max_norm=1.0,
                                          module=model)

The optimizers of swamp_torch do the work, on a host parameter for each parameter:
pinned memory of the same shape and dtype. So weights, moments, masters and state dicts
have the bits of ``swamp_torch.AdamW`` with the same gradients; from 2^27 elements on,
the norm may differ in its last bits. All copies that do not wait go through
:class:`Copies`.
"""

import contextlib
import math
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

import torch
from torch import Tensor

from . import _optimizer
from ._offload_copies import (Chunk, Copies as Copies, CudaCopies as CudaCopies, Slot,
                              Weakly, copies_of, mark_of)
from ._operators import number
from ._optimizer import Params
from ._optimizer_checks import is_dtensor
from ._optimizer_state import Bucket, Collected

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Elements of a bucket: enough for a launch to take long, few enough that the first
# bucket's weights leave early.
_BUCKET = 1 << 20
_LISTS = (torch.nn.ModuleList, torch.nn.ModuleDict)
_BLOCK = 8192  # a list may be divided before a tensor of as many elements: foreach.h


class _Host(_optimizer._Optimizer):
    """The optimizer of the host parameters."""

    owner: "_Offloaded"
    _bucket_elements = _BUCKET

    def _norm_of(self, now: Collected, inv_scale: Tensor) -> Tensor:
        return self.owner._check(now, inv_scale)[1]

    def _after(self, bucket: Bucket, begin: int, end: int) -> None:
        for host in bucket.params:
            with contextlib.suppress(Exception):  # wait() sends them again
                self.owner._of_host[host].send_weights(begin, end)


class _Offloaded(_optimizer._Optimizer):
    """What the classes share. They take the arguments of swamp_torch's, and these:

    Args:
        threads: of the CPU's part; None: as many as the caller has.
        module: the model. Then step() does not wait for the weights: before each
            forward pass of an element of a ModuleList, ModuleDict or Sequential, the
            device waits for the weights in it, and before that of the model for all
            others. Saving and loading state dicts wait, too. An element that is not
            called itself waits for nothing. Call :meth:`synchronize`
            before anything else reads or writes weights. Leave it out if the model is
            compiled.
        overlap: whether gradients are copied during backward. None: unless ranks are
            connected, because DistributedDataParallel adds gradients later.
        copies: a function that returns the :class:`Copies` of a device.

    Parameters are float32, float16 or bfloat16, and not divided over ranks: for FSDP
    use its own offload (``CPUOffloadPolicy``) and ``swamp_torch.AdamW``. Gradients stay
    on the device until they are set to None; those of several backward passes are added
    there.
    """

    def __init__(self, params: Params, *args: Any, threads: Optional[int] = None,
                 module: Optional[torch.nn.Module] = None,
                 overlap: Optional[bool] = None,
                 copies: Callable[[torch.device], Copies] = copies_of,
                 **options: Any) -> None:
        if threads is not None and not (isinstance(threads, int) and threads > 0):
            raise ValueError(f"threads: got {threads!r}, expected a whole number, at "
                             "least 1, or None")
        if options.get("unscale_grads"):
            raise ValueError("unscale_grads: got True, expected False: gradients on "
                             "the device are not written")
        self.threads = threads
        self._make_copies = copies
        self._copies: Dict[torch.device, Copies] = {}
        self._slots: Dict[Tensor, Slot] = {}  # by parameter
        self._of_host: Dict[Tensor, Slot] = {}
        self._chunks: List[Chunk] = []
        self._chunked: Optional[Collected] = None
        self._lock = threading.RLock()  # hooks run on a thread for each device
        self._checks = False  # whether there was a check before
        self._inv_scale = number(1.0)  # its
        self._host: Optional[_Host] = None
        super().__init__(params, *args, **options)
        self._paused = overlap is False or overlap is None and (
            torch.distributed.is_available() and torch.distributed.is_initialized()
            and torch.distributed.get_world_size() > 1)
        base = next(cls for cls in type(self).__mro__ if cls.__module__
                    == _optimizer.__name__ and not cls.__name__.startswith("_"))
        self._host = type(base.__name__, (_Host, base), {})(
            [self._host_group(group) for group in self.param_groups], *args, **options)
        self._host.owner = weakref.proxy(self)
        self._pool = ThreadPoolExecutor(1, "swamp_offload")
        if threads is not None:
            with self._counted():
                self._pool.submit(torch.get_num_threads).result()  # the first call sets it
                self._pool.submit(torch.set_num_threads, threads).result()
        self._waited: Set[Slot] = set() if module is None else self._watch(module)

    # ---- Parameters

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Adds a group, as ``torch.optim.Optimizer.add_param_group``.

        Raises:
            ValueError: as the class; the group is not added then.
        """
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            slots = [self._slot_of(index, param, group)
                     for index, param in enumerate(group["params"])]
        except BaseException:
            self.param_groups.pop()
            raise
        for slot in slots:
            self._slots[slot.param] = self._of_host[slot.host] = slot
            if slot.param.requires_grad:
                slot.param.register_post_accumulate_grad_hook(Weakly(self._arrived))
        if self._host is not None:
            self._host.add_param_group(self._host_group(group))

    def _slot_of(self, index: int, param: Tensor, group: Dict[str, Any]) -> Slot:
        if (param.dtype not in _DTYPES or param.layout is not torch.strided
                or is_dtensor(param) or group["differentiable"]
                or getattr(param, "_fsdp_flattened", False)):
            raise ValueError(
                f"params[{index}]: got a {type(param).__name__} of {param.dtype} and "
                f"{param.layout}, differentiable {group['differentiable']}, expected a "
                "Tensor of float32, float16 or bfloat16, strided, not divided over "
                "ranks, and False")
        if param.device not in self._copies:
            self._copies[param.device] = self._make_copies(param.device)
        return Slot(param, self._copies[param.device])

    def _host_group(self, group: Dict[str, Any]) -> Dict[str, Any]:
        hosts = [self._slots[param].host for param in group["params"]]
        if "param_names" in group:
            hosts = list(zip(group["param_names"], hosts))
        return {**{k: v for k, v in group.items() if k != "param_names"},
                "params": hosts}

    def _sync_groups(self) -> "_Host":
        """Gives the host's groups the options of these, and its parameters the states."""
        host = self._host
        assert host is not None
        count = sum(len(group["params"]) for group in self.param_groups)
        if count != len(self._slots):
            raise ValueError(f"param_groups: got {count} parameters, expected "
                             f"{len(self._slots)}: add them by add_param_group()")
        for param, slot in self._slots.items():
            if param in self.state:
                host.state[slot.host] = self.state[param]
            else:
                host.state.pop(slot.host, None)
        for own, group in zip(self.param_groups, host.param_groups):
            group.update((k, v) for k, v in own.items() if k != "params")
        return host

    def _watch(self, module: torch.nn.Module) -> "Set[Slot]":
        """Adds the hooks that wait for weights; returns the parameters that they
        wait for."""
        outside: Set[Tensor] = set()  # of elements, or also there

        def wait_for(params: Iterable[Tensor]) -> "Weakly":
            return Weakly(self._wait_for, [p for p in params if p in self._slots])

        def visit(one: torch.nn.Module) -> None:
            outside.update(one.parameters(recurse=False))
            for child in one.children():
                if (isinstance(one, _LISTS + (torch.nn.Sequential,))
                        and not isinstance(child, _LISTS)):  # which are never called
                    child.register_forward_pre_hook(wait_for(child.parameters()))
                else:
                    visit(child)
        visit(module)
        module.register_forward_pre_hook(wait_for(outside))
        for one in module.modules():
            wait = wait_for(one.parameters())
            one.register_state_dict_pre_hook(wait)
            one._register_load_state_dict_pre_hook(wait)
        return {self._slots[p] for p in module.parameters() if p in self._slots}

    def _wait(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            slot.wait(slot.copies.before_use)

    def _wait_for(self, params: Iterable[Tensor]) -> None:
        self._wait(self._slots[param] for param in params)

    def synchronize(self) -> None:
        """Makes what the device computes next wait for all weights."""
        self._wait(self._slots.values())

    # ---- Gradients

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside only add to the gradients, which are not copied:
        for all micro batches of a step but the last. Without it they are copied
        again each time, with the same result."""
        paused, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = paused

    def _arrived(self, param: Tensor) -> None:
        """The hook that runs after backward has added to a gradient."""
        slot = self._slots[param]
        if self._paused or param.grad is None:
            return
        with self._lock:
            slot.fetch(param.grad)
            chunk = slot.chunk
            if chunk is None:
                return
            chunk.missing.discard(slot)
            if not chunk.missing and self._checks:
                chunk.inv_scale = float(self._inv_scale)
                chunk.running = self._pool.submit(chunk.check, self._inv_scale)

    def _take_gradients(self, again: bool) -> None:
        """Copies the gradients that no hook has copied, or all if `again`, and waits
        until the host parameters have them."""
        for slot in self._slots.values():
            param, host, grad = slot.param, slot.host, slot.param.grad
            if ((param.dtype, param.shape) != (host.dtype, host.shape)
                    or self._copies.get(param.device) is not slot.copies):
                raise RuntimeError(
                    f"params: got {param.dtype} of the shape {tuple(param.shape)} on "
                    f"{param.device}, expected {host.dtype} of {tuple(host.shape)} on "
                    "the device as before: make the optimizer after model.to()")
            if grad is not None and (again or not slot.is_copied(grad)):
                slot.fetch(grad)
        for slot in self._slots.values():
            slot.host.grad = None if slot.param.grad is None else slot.arrived()
        self._take_weights()

    def _check(self, now: Collected, inv_scale: Tensor) -> Tuple[bool, Tensor]:
        """Whether there is inf or nan, and the norm, which adds the same numbers in
        the same order as that of an optimizer without offload."""
        if now is not self._chunked:
            self._divide(now)
        self._checks, self._inv_scale = True, inv_scale
        total, any_found = 0.0, False
        for chunk in self._chunks:
            squares, found = chunk.result(inv_scale)
            any_found = any_found or found
            for one in squares:
                total += one
        norm = math.sqrt(total) if total >= 0 else total  # nan
        return any_found, torch.tensor(norm, dtype=torch.float64)

    def _divide(self, now: Collected) -> None:
        for slot in self._slots.values():
            slot.chunk = None
        self._chunks, self._chunked, count = [Chunk()], now, 0
        for slot in (self._of_host[p] for b in now.buckets for p in b.params):
            if count >= _BUCKET and slot.host.numel() >= _BLOCK:
                self._chunks.append(Chunk())
                count = 0
            self._chunks[-1].slots.append(slot)
            slot.chunk = self._chunks[-1]
            count += slot.host.numel()

    def check_gradients(self, inv_scale: float = 1.0) -> Tuple[bool, Tensor]:
        """For programs with a loss scaler of their own.

        Args:
            inv_scale: 1 over the scale of the gradients.

        Returns:
            Whether a gradient has inf or nan, and the norm of the unscaled ones, a
            float64 Tensor.
        """
        host = self._sync_groups()
        with self._counted(), torch.no_grad():
            self._take_gradients(False)
            now = host._collect()
            self._mirror()
            return self._check(now, number(inv_scale))

    # ---- The step

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Runs with the optimizer's number of threads."""
        before = torch.get_num_threads()
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            if self.threads is not None:
                torch.set_num_threads(before)

    def _step(self, scale: Optional[Tensor]) -> None:
        host = self._sync_groups()
        # PyTorch's unscale_() on a GPU does not count as a write.
        self._take_gradients(again=scale is None and hasattr(self, "found_inf"))
        try:
            with self._counted():
                host._step(None if scale is None else scale.cpu())
            self.grad_norm = host.grad_norm
        finally:
            for chunk in self._chunks:
                chunk.restart()
            self._mirror()
            try:
                self._wait(slot for slot in self._slots.values()
                           if slot not in self._waited)
            except Exception as error:
                raise RuntimeError(
                    "the step was taken, but not all weights were copied; "
                    "synchronize() copies them again") from error

    def _take_weights(self) -> None:
        """Copies weights that others wrote, before masters are made or compared."""
        for slot in self._slots.values():
            slot.wait(slot.copies.finish)  # the step overwrites what is copied
            if slot.mark != mark_of(slot.param) and (
                    slot.param.requires_grad or slot.host.grad is not None
                    or slot.param in self.state):
                slot.take_weights()

    # ---- State

    def _mirror(self) -> None:
        """Gives the parameters the states of the host parameters."""
        host = self._host
        assert host is not None
        for param, slot in self._slots.items():
            if slot.host in host.state:
                self.state[param] = host.state[slot.host]

    def reload_model_params(self) -> None:
        """As :meth:`swamp_torch.AdamW.reload_model_params`."""
        self.synchronize()
        for slot in self._slots.values():
            if slot.param in self.state:
                slot.take_weights()
        if self._host is not None:
            self._host.reload_model_params()

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Loads a state dict of this class or of one without offload. Hooks of
        load_state_dict() do not run.

        Raises:
            ValueError: as the class without offload.
        """
        host = self._sync_groups()
        self._take_weights()
        host.load_state_dict(state_dict)
        for own, group in zip(self.param_groups, host.param_groups):
            own.update((k, v) for k, v in group.items() if k != "params")
        self.state.clear()
        self._mirror()

    def __getstate__(self) -> Dict[str, Any]:
        raise TypeError(f"{type(self).__name__}: an optimizer with offload cannot be "
                        "copied or pickled; save its state_dict()")

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        return self.__getstate__()


class AdamW(_Offloaded, _optimizer.AdamW):
    """:class:`swamp_torch.AdamW` with its state and step on the CPU."""


class Adam(_Offloaded, _optimizer.Adam):
    """:class:`swamp_torch.Adam` with its state and step on the CPU."""


class SGD(_Offloaded, _optimizer.SGD):
    """:class:`swamp_torch.SGD` with its state and step on the CPU."""
