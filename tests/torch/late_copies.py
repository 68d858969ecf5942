"""Copies that stand in for those of a GPU: a thread makes them late, in any order.

From the start of a copy until its end the destination is nan, and the source is read at
the end: what reads or writes either of them too early gets other bits. A copy that starts
before the CPU has waited for the last one of the same memory there is an error. The thread
may be killed; events that it has not reached then fail.

The thread sanitizer sees libswamp_aten, libswamp and the C library. It does not see the
kernels (therefore SWAMP_TRANSFER=copy), PyTorch's copies (therefore late_copy.c), what
the model computes, and races whose two sides Python's lock orders by chance. It
found the races of a `finish()` that does not wait. One report in thousands of orders is
right and harmless: after a lost thread the test zeroes, in place, a gradient that
a copy still reads; that copy is not used, because it is of an older version. From the
top folder:

    cmake --preset tsan -DSWAMP_WITH_TORCH=ON -DSWAMP_TORCH_PYTHON=$(which python)
    cmake --build --preset tsan --target swamp_aten
    gcc -fsanitize=thread -O1 -g -shared -fPIC tests/torch/late_copy.c -o build/late_copy.so
    LATE_COPY=$PWD/build/late_copy.so SWAMP_TRANSFER=copy ORDERS=1000 OMP_NUM_THREADS=2 \
        PYTHONPATH=build/tsan/python:tests/torch setarch -R env \
        TSAN_OPTIONS=suppressions=$PWD/tests/torch/tsan.txt \
        LD_PRELOAD=$(gcc -print-file-name=libtsan.so) \
        python -m unittest package_offload.Offload.test_hostile
"""

import ctypes
import os
import random
import threading
import time

import torch

from swamp_torch.offload import Copies


_LATE_COPY = os.environ.get("LATE_COPY")
_LIBRARY = ctypes.CDLL(_LATE_COPY) if _LATE_COPY else None


def copy(destination, source):
    if _LIBRARY and destination.is_contiguous() and source.is_contiguous():
        assert destination.dtype == source.dtype
        _LIBRARY.late_copy(ctypes.c_void_p(destination.data_ptr()),
                           ctypes.c_void_p(source.data_ptr()),
                           ctypes.c_size_t(source.nbytes), random.randrange(300))
    else:
        destination.copy_(source)


class Event:
    def __init__(self):
        self.ended = threading.Event()
        self.failed = self.finished = False


class Early(BaseException):
    """No Exception, which might be tried again."""


class LateCopies(Copies):
    def __init__(self, seed=0, delay=0.0):
        """
        Args:
            delay: the longest time before a copy, in seconds.
        """
        self.random = random.Random(seed)
        self.delay = delay
        self.deadly = 0.0  # how probable it is that the thread ends at a copy
        self.alive = False
        # Of memory on the CPU, by its address: the ranges of copies, and their events.
        self.under_way = {}
        self.revive()

    def revive(self):
        if not self.alive:
            self.alive = True
            self.queue = Queue(self)

    def kill(self):
        self.alive = False
        self.queue.kill()

    def host_like(self, tensor):
        result = super().host_like(tensor)
        self.under_way[result.data_ptr()] = []
        return result

    def start(self, destination, source):
        event = Event()
        for tensor in (destination, source):
            begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
            copies = self.under_way.get(tensor.untyped_storage().data_ptr(), [])
            copies[:] = [one for one in copies if not (one[2].finished or one[2].failed)]
            if any(b < end and begin < e for b, e, _ in copies):
                raise Early("the CPU did not wait for the last copy of this memory")
            copies.append((begin, end, event))
        torch.autograd.graph.increment_version(destination)
        destination.data.fill_(float("nan"))
        self.queue.add(destination, source, event)
        return event

    def before_use(self, event):
        event.ended.wait()
        if event.failed:
            raise RuntimeError("copies: got a thread that ended before its copies")

    def finish(self, event):
        self.before_use(event)
        event.finished = True


class Queue:
    """The copies that have not ended, and the thread that makes them."""

    def __init__(self, copies):
        self.copies, self.items = copies, []
        self.changed = threading.Condition()
        threading.Thread(target=self.run, daemon=True).start()

    def add(self, destination, source, event):
        with self.changed:
            event.failed = not self.copies.alive
            if event.failed:
                raise RuntimeError("copies: got a thread that has ended")
            self.items.append((destination, source, event))
            self.changed.notify()

    def kill(self):
        with self.changed:
            for _, _, event in self.items:
                event.failed = True
                event.ended.set()
            self.items.clear()
            self.changed.notify()

    def run(self):
        copies = self.copies
        while True:
            with self.changed:
                while not self.items and copies.alive:
                    self.changed.wait()
                if not self.items:
                    return
                if copies.random.random() < copies.deadly:
                    break
                index = copies.random.randrange(len(self.items))
                destination, source, event = self.items.pop(index)
            if copies.delay:
                time.sleep(copies.random.random() * copies.delay)
            copy(destination.data, source.data)
            event.ended.set()
        copies.kill()
