"""Copies between a device and the CPU, and what is under way for each parameter of
swamp_torch.offload's optimizers; their hooks."""

import contextlib
import weakref
from concurrent.futures import Future
from typing import Any, Callable, List, Optional, Set, Tuple

import torch
from torch import Tensor

from ._operators import number
from ._optimizer_checks import is_dtensor


_LISTS = torch.classes.swamp.StepLists()  # its squares() need no list


class Copies:
    """Copies between a device and the CPU. This class does them at once, for any
    device; a subclass may do them later, and in any order."""

    def host_like(self, tensor: Tensor) -> Tensor:
        """New memory on the CPU with shape, strides and dtype of the tensor."""
        return torch.empty_like(tensor, device="cpu", requires_grad=False)

    def start(self, destination: Tensor, source: Tensor) -> Any:
        """Starts a copy, after all that the device has been told to compute.

        Returns:
            An event: of the end of the copy.
        """
        destination.copy_(source)

    def finish(self, event: Any) -> None:
        """Returns after the event. Raises an exception if it will never happen."""

    def before_use(self, event: Any) -> None:
        """Makes what the device will be told to compute wait for the event."""


class CudaCopies(Copies):
    """Copies on two streams of their own, one for each direction."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._inward = torch.cuda.Stream(device)
        self._outward = torch.cuda.Stream(device)

    def host_like(self, tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, device="cpu", requires_grad=False,
                                pin_memory=True)

    def start(self, destination: Tensor, source: Tensor) -> Any:
        inward = destination.is_cpu
        stream = self._inward if inward else self._outward
        stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(stream):
            destination.copy_(source, non_blocking=True)
        (source if inward else destination).record_stream(stream)
        return stream.record_event(torch.cuda.Event(blocking=True))

    def finish(self, event: Any) -> None:
        event.synchronize()

    def before_use(self, event: Any) -> None:
        torch.cuda.current_stream(self._device).wait_event(event)


def copies_of(device: torch.device) -> Copies:
    """The copies of a device: on streams for CUDA and ROCm, else at once."""
    return CudaCopies(device) if device.type == "cuda" else Copies()


def mark_of(tensor: Tensor) -> Tuple[int, int]:
    """Changes if something writes the tensor."""
    return tensor._version, tensor.data_ptr()


class Slot:
    """A parameter, its host parameter, and what is under way between them."""

    def __init__(self, param: Tensor, copies: Copies) -> None:
        self.param, self.copies = param, copies
        # Of a frozen parameter not pinned, and of no page until something is written.
        like = copies.host_like if param.requires_grad else Copies().host_like
        self.host = torch.nn.Parameter(like(param.detach()), param.requires_grad)
        self.grad: Optional[Tensor] = None  # on the CPU
        self.source: Tuple[Any, int] = (lambda: None), 0  # what it is a copy of
        self.arriving: Any = None  # the event of that copy
        self.chunk: Optional[Chunk] = None
        self.leaving: List[Any] = []  # events of the copies of the weights' ranges
        self.lost = False  # whether one of these copies failed
        # Of the parameter since then. Before, weights are taken in each step, because
        # a broadcast of initial weights leaves no mark.
        self.mark: Optional[Tuple[int, int]] = None

    def take_weights(self) -> None:
        """Copies the weights to the host parameter."""
        self.host.detach().copy_(self.param.detach())

    def send_weights(self, begin: int = 0, end: int = -1) -> None:
        """Starts the copy of the weights to the parameter: of all, or of the elements
        from `begin` to `end`, the next range after the last one."""
        param, host = self.param.detach(), self.host.detach()
        if end >= 0 and not param.is_contiguous():  # it has no ranges
            self.lost = True
            if end < host.numel():
                return
            begin, end = 0, -1
        if begin == 0:
            self.leaving, self.lost = [], False
        try:
            if end >= 0:
                param, host = param.view(-1)[begin:end], host.view(-1)[begin:end]
            self.leaving.append(self.copies.start(param, host))
        except BaseException:
            self.lost = True
            raise
        finally:
            self.mark = mark_of(self.param)

    def wait(self, wait: Callable[[Any], None]) -> None:
        """Waits for the weights on their way; copies them again if that failed."""
        if self.lost:
            for event in self.leaving:
                with contextlib.suppress(Exception):
                    self.copies.finish(event)
            self.send_weights()
        self.lost = bool(self.leaving)
        for event in self.leaving:
            wait(event)
        self.lost = False

    def is_copied(self, grad: Tensor) -> bool:
        return self.source[0]() is grad and self.source[1] == grad._version

    def fetch(self, grad: Tensor) -> None:
        """Starts the copy of the gradient."""
        if grad.layout is not torch.strided or is_dtensor(grad):
            raise RuntimeError(f"grad: got {type(grad).__name__} of {grad.layout}, "
                               "expected a Tensor of torch.strided")
        chunk = self.chunk
        if chunk is not None and (chunk.running or self not in chunk.missing):
            chunk.restart()  # it may be reading what is overwritten here
        if self.arriving is not None:
            with contextlib.suppress(Exception):  # one that failed writes no more
                self.copies.finish(self.arriving)
        self.source, self.arriving = ((lambda: None), 0), None
        like = self.grad
        if like is None or (like.shape, like.dtype, like.stride()) != (
                grad.shape, grad.dtype, grad.stride()):
            self.grad = self.copies.host_like(grad.detach())
        self.arriving = self.copies.start(self.grad, grad.detach())
        self.source = weakref.ref(grad), grad._version

    def arrived(self) -> Tensor:
        """Waits for the gradient; returns it."""
        try:
            self.copies.finish(self.arriving)
        except BaseException:
            self.source = (lambda: None), 0
            raise
        assert self.grad is not None
        return self.grad


class Chunk:
    """Gradients that are checked together, with the squares of their norm."""

    def __init__(self) -> None:
        self.slots: List[Slot] = []
        self.missing: Set[Slot] = set()  # since the last step
        self.inv_scale = 1.0
        self.running: "Optional[Future[Tuple[List[float], bool]]]" = None

    def restart(self) -> None:
        if self.running is not None and not self.running.cancel():
            self.running.exception()  # waits
        self.running = None
        self.missing = set(self.slots)

    def check(self, inv_scale: Tensor) -> Tuple[List[float], bool]:
        found = number(0.0)
        squares: List[float] = _LISTS.squares(
            [slot.arrived() for slot in self.slots], found, inv_scale)
        return squares, bool(found)

    def result(self, inv_scale: Tensor) -> Tuple[List[float], bool]:
        if self.running is not None and self.inv_scale == float(inv_scale):
            return self.running.result()
        return self.check(inv_scale)


class Weakly:
    """A hook: calls a method with its own arguments, or else with the hook's, as long
    as the method's object lives. Copies, also pickled ones, do nothing."""

    def __init__(self, method: Optional[Callable[..., None]] = None, *own: Any) -> None:
        self._method = None if method is None else weakref.WeakMethod(method)
        self._own = own

    def __call__(self, *args: Any) -> None:
        method = self._method and self._method()
        if method is not None:
            method(*(self._own or args))

    def __reduce__(self) -> Any:
        return Weakly, ()
