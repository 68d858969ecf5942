"""The CPU's half of offloaded training: from gradients in host memory to 16-bit weights
in host memory (unscale, check, clip, step, rounding), and how much of the copies to a
device is hidden: see run."""

import time

import torch

import peers
import rows
from swamp_torch import offload


class Done(offload.Copies):
    """Copies each gradient once, then nothing: the GPU would write it."""

    def __init__(self):
        self.seen = set()

    def start(self, destination, source):
        if destination.data_ptr() not in self.seen:
            self.seen.add(destination.data_ptr())
            destination.copy_(source)


class Timed(Done):
    """Copies that take time, one after another, but none of the CPU's, as a GPU's."""

    def __init__(self, bytes_per_second):
        super().__init__()
        self.speed, self.free = bytes_per_second, 0.0

    def start(self, destination, source):
        super().start(destination, source)
        self.free = (max(self.free, time.perf_counter())
                     + destination.nbytes / self.speed)
        return self.free

    def finish(self, event):
        left = event - time.perf_counter()
        if left > 0:
            time.sleep(left)

    before_use = finish


def optimizer_of(arrays, max_norm, copies):
    optimizer = offload.AdamW(
        arrays.model, lr=peers.LR, betas=peers.BETAS, eps=peers.EPS,
        weight_decay=peers.DECAY, max_norm=max_norm, copies=lambda device: copies)
    optimizer.grad_scale = torch.tensor(peers.SCALE)
    optimizer.step()  # makes states and buckets
    return optimizer


def overlap(arrays, max_norm, step, rounds):
    """Milliseconds from step() until the last weights have arrived, with a device whose
    copies of all weights take as long as a step alone."""
    bytes_of_weights = sum(p.nbytes for p in arrays.model)
    copies = Timed(bytes_of_weights / (step / 1e3))
    optimizer = optimizer_of(arrays, max_norm, copies)
    best = float("inf")
    for _ in range(rounds):
        optimizer.synchronize()
        begin = time.perf_counter()
        optimizer.step()
        optimizer.synchronize()
        best = min(best, 1e3 * (time.perf_counter() - begin))
    return best


def backward(arrays, optimizer):
    """Milliseconds of the check and the norm of gradients that arrive one by one, which
    backward hides."""
    begin = time.perf_counter()
    for param in reversed(arrays.model):
        optimizer._arrived(param)
    for chunk in optimizer._chunks:
        if chunk.running is not None:
            chunk.running.result()
    return 1e3 * (time.perf_counter() - begin)


def measure(name, options, naive, swamp):
    """{"list/clip": {peer: milliseconds}}"""
    arrays = peers.Arrays(peers.counts_of(name, naive), torch.bfloat16)
    results = {}
    for clip in (False, True):
        max_norm = 2 * arrays.norm if clip else 0.0
        cases = {k: v for k, v in peers.step_cases(
            arrays, clip, swamp, None).items() if k != "swamp C ABI"}
        optimizer = optimizer_of(arrays, max_norm, Done())

        def after_backward():
            optimizer._checks = True
            backward(arrays, optimizer)
            begin = time.perf_counter()
            optimizer.step()
            after.append(1e3 * (time.perf_counter() - begin))
        after = []
        cases["offload"] = rows.with_swamp(optimizer.step)
        times = rows.least(cases, options.rounds, options.slice)
        for _ in range(options.rounds):
            after_backward()
        times["offload, norm known"] = min(after)
        times["with copies"] = overlap(arrays, max_norm, times["offload"],
                                       options.rounds)
        results[f"{name}/{'clip' if clip else 'no clip'}"] = times
    return results


def table(results):
    names = list(dict.fromkeys(n for times in results.values() for n in times))
    return peers.table(("list", "max_norm"), names, [
        [*peers.split_key(key), *peers.cells([times], names)]
        for key, times in results.items()])
