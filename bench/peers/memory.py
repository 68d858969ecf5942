"""AdamW with less memory: bytes and time of the step (float8.py --study memory has the
losses).

usage: memory.py [--rounds N]

Prints a table in Markdown and the CPU; it is an error if other processes used more
than 0.05 of a core meanwhile. PYTHONPATH is the folder that holds swamp_torch.
Tensors have the shapes of GPT-2 small, but with a quarter of the words and half of the
layers. Each variant, float32 masters and torch.optim.AdamW(fused=True) of float32
parameters take a step in turn, on one thread: the least processor time of each, and
ratios of times of the same run.
"""
import argparse
import pathlib
import sys
import time

sys.dont_write_bytecode = True  # the source tree may be read-only
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch

import machine
import swamp_torch
from float8 import ADAMW


def shapes():
    yield (12564, 768)
    yield (1024, 768)
    for _ in range(6):
        yield from ((768,), (768,), (2304, 768), (2304,), (768, 768), (768,), (768,),
                    (768,), (3072, 768), (3072,), (768, 3072), (768,))
    yield from ((768,), (768,))


def optimizer_of(kind, dtype, **options):
    params = [torch.nn.Parameter((torch.randn(s) * 0.02).to(dtype))
              for s in shapes()]
    for p in params:
        p.grad = (torch.randn(p.shape) * 0.001).to(dtype)
    return kind(params, lr=1e-5, **options)


def seconds(optimizer):
    start = time.thread_time()
    optimizer.step()
    return time.thread_time() - start


def step_times(rounds):
    """Milliseconds of the variant, of masters and of stock, of the same run."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    stock = optimizer_of(torch.optim.AdamW, torch.float32, fused=True)
    masters = optimizer_of(swamp_torch.AdamW, torch.bfloat16)
    result = {}
    for name, options, _ in ADAMW:
        own = optimizer_of(swamp_torch.AdamW, torch.bfloat16, **options)
        turns = (own, masters, stock)
        times = [[], [], []]
        for _ in range(rounds + 1):
            for optimizer, taken in zip(turns, times):
                taken.append(seconds(optimizer))
        result[name] = [min(taken[1:]) * 1e3 for taken in times]
        print(name, *(f"{t:.1f}" for t in result[name]), file=sys.stderr)
    return result


def main():
    parser = argparse.ArgumentParser(prog="memory.py")
    parser.add_argument("--rounds", type=int, default=9)
    others = machine.Others()
    times = step_times(parser.parse_args().rounds)
    print("| weights, moments | bytes a parameter | step | masters | stock |\n"
          "|---|---|---|---|---|")
    for name, _, size in ADAMW:
        own, masters, stock = times[name]
        print(f"| {name} | {size} | {own:.1f} ms | {masters / own:.2f} times | "
              f"{stock / own:.2f} times |")
    print(f"\n{machine.cpu()}")
    machine.require_alone("memory.py", others.share())


if __name__ == "__main__":
    main()
