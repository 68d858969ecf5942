"""Copies that stand in for those of a GPU: a thread makes them late, in any order.

From the start of a copy until its end the destination is nan, and the source is read at
the end: what reads or writes either of them too early gets other bits. A copy that starts
before the CPU has waited for the last one of the same memory there is an error. The thread
may be killed; events that it has not reached then fail.
"""

import random
import threading
import time

import torch

from swamp_torch.offload import Copies


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
            destination.data.copy_(source.data)
            event.ended.set()
        copies.kill()
