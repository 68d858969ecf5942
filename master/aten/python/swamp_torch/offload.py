"""AdamW, Adam and SGD whose state and step are on the CPU, for a model on a GPU.

Gradients are copied to pinned memory as backward makes them, and are checked and their
squares added by a thread while backward goes on. A step waits for the last of them, then
steps one bucket after another; the weights of a bucket start back while the next one is
stepped. What the GPU computes next waits for the weights that it uses.

    optimizer = swamp_torch.offload.AdamW(model.parameters(), lr=1e-4, max_norm=1.0,
                                          module=model)

The optimizers of swamp_torch do the work, on a host parameter for each parameter:
pinned memory of the same shape and dtype. So weights, moments, masters and state dicts
have the bits of ``swamp_torch.AdamW`` with the same gradients. All copies go through
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
                              copies_of, mark_of)
from ._operators import number
from ._optimizer import Params
from ._optimizer_checks import is_dtensor
from ._optimizer_state import Bucket, Collected

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# Elements of a bucket: enough for a launch to take long, few enough that the first
# bucket's weights leave early.
_BUCKET = 1 << 20
_BLOCK = 8192  # a list may be divided before a tensor of as many elements: foreach.h


class _Host(_optimizer._Optimizer):
    """The optimizer of the host parameters."""

    owner: "_Offloaded"
    _bucket_elements = _BUCKET

    def _norm_of(self, now: Collected, inv_scale: Tensor) -> Tensor:
        return self.owner._check(now, inv_scale)[1]

    def _after(self, bucket: Bucket) -> None:
        self.owner._send(bucket.params)


class _Offloaded(_optimizer._Optimizer):
    """What the classes share. They take the arguments of swamp_torch's, and these:

    Args:
        threads: of the CPU's part; None: as many as the caller has.
        module: the model. Then step() does not wait for the weights: before each
            forward pass of an element of a ModuleList, ModuleDict or Sequential, the
            device waits for the weights in it, and before that of the model for all
            others. A checkpoint of the model waits, too. Call :meth:`synchronize`
            before anything else reads or writes weights. Leave it out if the model is
            compiled.
        overlap: whether gradients are copied during backward. None: unless ranks are
            connected, because DistributedDataParallel adds gradients later.
        copies: a function that returns the :class:`Copies` of a device.

    Parameters are float32, float16 or bfloat16, and not divided over ranks: for FSDP
    use its own offload (``CPUOffloadPolicy``) and ``swamp_torch.AdamW``. Gradients stay on the device until
    they are set to None; those of several backward passes are added there.
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
        self._mirrored: Optional[Collected] = None
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
        for index, param in enumerate(group["params"]):
            if (param.dtype in _DTYPES and param.layout is torch.strided
                    and not is_dtensor(param) and not group["differentiable"]
                    and not getattr(param, "_fsdp_flattened", False)):
                continue
            self.param_groups.pop()
            raise ValueError(
                f"params[{index}]: got a {type(param).__name__} of {param.dtype} and "
                f"{param.layout}, differentiable {group['differentiable']}, expected a "
                "Tensor of float32, float16 or bfloat16, strided, not divided over "
                "ranks, and False")
        for param in group["params"]:
            if param.device not in self._copies:
                self._copies[param.device] = self._make_copies(param.device)
            slot = Slot(param, self._copies[param.device])
            self._slots[param] = self._of_host[slot.host] = slot
            if param.requires_grad:
                param.register_post_accumulate_grad_hook(
                    _weakly(weakref.WeakMethod(self._arrived)))
        if self._host is not None:
            self._host.add_param_group(self._host_group(group))

    def _host_group(self, group: Dict[str, Any]) -> Dict[str, Any]:
        hosts = [self._slots[param].host for param in group["params"]]
        if "param_names" in group:
            hosts = list(zip(group["param_names"], hosts))
        return {**{k: v for k, v in group.items() if k != "param_names"},
                "params": hosts}

    def _sync_groups(self) -> "_Host":
        """Gives the host's groups the options of these."""
        host = self._host
        assert host is not None
        for own, group in zip(self.param_groups, host.param_groups):
            group.update((k, v) for k, v in own.items() if k != "params")
        return host

    def _watch(self, module: torch.nn.Module) -> "Set[Slot]":
        """Adds the hooks that wait for weights; returns the parameters that they
        wait for."""
        waited: Set[Slot] = set()

        def watch(one: torch.nn.Module) -> None:
            own = {self._slots[p] for p in one.parameters() if p in self._slots}
            own -= waited if one is module else set()
            waited.update(own)
            params = [slot.param for slot in own]
            wait = _weakly(weakref.WeakMethod(self._wait_for))
            one.register_forward_pre_hook(lambda *_: wait(params))

        def visit(one: torch.nn.Module) -> None:
            for child in one.children():
                if isinstance(one, (torch.nn.ModuleList, torch.nn.ModuleDict,
                                    torch.nn.Sequential)):
                    watch(child)
                else:
                    visit(child)
        visit(module)
        watch(module)
        everything = _weakly(weakref.WeakMethod(self.synchronize))
        module.register_state_dict_pre_hook(lambda *_: everything())
        return waited

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
        """Waits until the host parameters have the gradients, all of which are copied
        if `again`, else those that no hook has copied."""
        for slot in self._slots.values():
            grad = slot.param.grad
            if grad is not None and (again or not slot.is_copied(grad)):
                slot.fetch(grad)
        for slot in self._slots.values():
            slot.host.grad = None if slot.param.grad is None else slot.arrived()

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
            return self._check(host._collect(), number(inv_scale))

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
        for slot in self._slots.values():
            slot.wait(slot.copies.finish)  # the step overwrites what is copied
            if slot.mark != mark_of(slot.param):
                slot.take_weights()
        self._failure: Optional[BaseException] = None
        with self._counted():
            host._step(None if scale is None else scale.cpu())
        self.grad_norm = host.grad_norm
        for chunk in self._chunks:
            chunk.restart()
        self._mirror()
        try:
            if self._failure is not None:
                raise self._failure
            self._wait(slot for slot in self._slots.values()
                       if slot not in self._waited)
        except Exception as error:
            raise RuntimeError("the step was taken, but not all weights were copied; "
                               "synchronize() copies them again") from error

    def _send(self, hosts: Iterable[Tensor]) -> None:
        for host in hosts:
            try:
                self._of_host[host].send_weights()
            except Exception as error:  # after the step, which would be torn
                self._failure = error

    # ---- State

    def _mirror(self) -> None:
        """Gives the parameters the states of the host parameters."""
        host = self._host
        assert host is not None
        if self._mirrored is host._collected and self.state:
            return
        self._mirrored = host._collected
        self.state.clear()
        for param, slot in self._slots.items():
            if slot.host in host.state:
                self.state[param] = host.state[slot.host]

    def reload_model_params(self) -> None:
        """As :meth:`swamp_torch.AdamW.reload_model_params`."""
        self.synchronize()
        for slot in self._slots.values():
            slot.take_weights()
        if self._host is not None:
            self._host.reload_model_params()

    def state_dict(self) -> Dict[str, Any]:
        """As that of the class without offload, which can load it."""
        return self._sync_groups().state_dict()

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Loads a state dict of this class or of one without offload.

        Raises:
            ValueError: as the class without offload.
        """
        host = self._sync_groups()
        host.load_state_dict(state_dict)
        for own, group in zip(self.param_groups, host.param_groups):
            own.update((k, v) for k, v in group.items() if k != "params")
        self._mirrored = None
        self.state.clear()
        self._mirror()

    def __getstate__(self) -> Dict[str, Any]:
        raise TypeError(f"{type(self).__name__}: an optimizer with offload cannot be "
                        "copied or pickled; save its state_dict()")

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        return self.__getstate__()


def _weakly(method: "weakref.WeakMethod[Any]") -> Callable[..., Any]:
    """Calls the method as long as its object lives."""
    def call(*args: Any) -> Any:
        bound = method()
        return None if bound is None else bound(*args)
    return call


class AdamW(_Offloaded, _optimizer.AdamW):
    """:class:`swamp_torch.AdamW` with its state and step on the CPU."""


class Adam(_Offloaded, _optimizer.Adam):
    """:class:`swamp_torch.Adam` with its state and step on the CPU."""


class SGD(_Offloaded, _optimizer.SGD):
    """:class:`swamp_torch.SGD` with its state and step on the CPU."""
