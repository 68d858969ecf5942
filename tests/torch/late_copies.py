"""Copies that stand in for those of a GPU: a thread makes them late, in any order.

From the start of a copy until its end the destination is nan, and the source is read at
the end: what reads or writes either of them too early gets other bits. The thread may be
killed; events that it has not reached then fail.
"""

import random
import threading
import time

import torch

from swamp_torch.offload import Copies


class Event:
    def __init__(self):
        self.ended = threading.Event()
        self.failed = False


class LateCopies(Copies):
    def __init__(self, seed=0, delay=0.0, bytes_per_second=None, deadly=0.0):
        """
        Args:
            delay: the longest time before a copy, in seconds.
            bytes_per_second: the speed of each direction; then in order.
            deadly: how probable it is that the thread ends at a copy.
        """
        self.random = random.Random(seed)
        self.delay, self.speed, self.deadly = delay, bytes_per_second, deadly
        self.bytes, self.most = 0, 0  # copied; waiting at once
        self.hosts = set()  # addresses of memory on the CPU
        self.alive = False
        self.revive()

    def revive(self):
        if self.alive:
            return
        self.alive = True
        # A thread for each direction if they have a speed.
        self.queues = [Queue(self) for _ in range(1 if self.speed is None else 2)]

    def kill(self):
        self.alive = False
        for queue in self.queues:
            queue.kill()

    def host_like(self, tensor):
        made = super().host_like(tensor)
        self.hosts.add(made.data_ptr())
        return made

    def start(self, destination, source):
        if not self.alive:
            raise RuntimeError("copies: got a thread that has ended")
        torch.autograd.graph.increment_version(destination)
        if self.speed is None:
            destination.data.fill_(float("nan"))
        event = Event()
        inward = destination.data_ptr() in self.hosts
        self.queues[-1 if inward else 0].add((destination, source, event))
        return event

    def copy(self, destination, source):
        destination.data.copy_(source.data)

    def finish(self, event):
        event.ended.wait()
        if event.failed:
            raise RuntimeError("copies: got a thread that ended before its copies")

    before_use = finish


class Queue:
    def __init__(self, copies):
        self.copies, self.items = copies, []
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def add(self, item):
        with self.changed:
            if not self.copies.alive:
                raise RuntimeError("copies: got a thread that has ended")
            self.items.append(item)
            self.copies.most = max(self.copies.most, len(self.items))
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
                if not copies.alive or self not in copies.queues:
                    return
                if copies.random.random() < copies.deadly:
                    break
                index = 0 if copies.speed else copies.random.randrange(len(self.items))
                destination, source, event = self.items.pop(index)
            if copies.delay:
                time.sleep(copies.random.random() * copies.delay)
            begin = time.perf_counter()
            copies.copy(destination, source)
            copies.bytes += destination.nbytes
            if copies.speed:
                left = destination.nbytes / copies.speed - (time.perf_counter() - begin)
                time.sleep(max(0.0, left))
            event.ended.set()
        copies.kill()
