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


def backward(arrays, optimizer):
    """Waits for gradients that arrive one by one, checks them and adds to their norm, as
    the CPU does while a GPU computes the backward pass."""
    optimizer._checks = True
    for param in reversed(arrays.model):
        optimizer._arrived(param)
    for slot in optimizer._slots.values():
        slot.arrived()
    for chunk in optimizer._chunks:
        if chunk.running is not None:
            chunk.running.result()


def after_backward(arrays, max_norm, copies, rounds):
    """Milliseconds from step() until the last weights have arrived, after a backward
    pass: the norm is known."""
    optimizer = optimizer_of(arrays, max_norm, copies)
    best = float("inf")
    for _ in range(rounds):
        optimizer.synchronize()
        backward(arrays, optimizer)
        begin = time.perf_counter()
        optimizer.step()
        optimizer.synchronize()
        best = min(best, 1e3 * (time.perf_counter() - begin))
    return best


def measure(name, options, naive, swamp):
    """{"list/clip": {peer: milliseconds}}"""
    arrays = peers.Arrays(peers.counts_of(name, naive), torch.bfloat16)
    bytes_of_weights = sum(p.nbytes for p in arrays.model)
    results = {}
    for clip in (False, True):
        max_norm = 2 * arrays.norm if clip else 0.0
        cases = {k: v for k, v in peers.step_cases(
            arrays, clip, swamp, None).items() if k != "swamp C ABI"}
        cases["offload"] = rows.with_swamp(optimizer_of(arrays, max_norm, Done()).step)
        times = rows.least(cases, options.rounds, options.slice)
        known = after_backward(arrays, max_norm, Done(), options.rounds)
        times["offload, norm known"] = known
        # A device whose copies of all weights take as long as the step alone.
        times["with copies"] = after_backward(
            arrays, max_norm, Timed(bytes_of_weights / (known / 1e3)), options.rounds)
        results[f"{name}/{'clip' if clip else 'no clip'}"] = times
    return results


def table(results):
    names = list(dict.fromkeys(n for times in results.values() for n in times))
    return peers.table(("list", "max_norm"), names, [
        [*peers.split_key(key), *peers.cells([times], names)]
        for key, times in results.items()])
