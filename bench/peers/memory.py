"""AdamW with less memory: bytes, time of the step and final loss of a small GPT.

usage: memory.py [--text FILE] [--steps N] [--seeds N] [--rounds N] [--part step|loss]

Prints a table in Markdown and the CPU; it is an error if other processes used more
than 0.05 of a core meanwhile. PYTHONPATH is the folder that holds swamp_torch.
- Step: tensors of the shapes of GPT-2 small, but with a quarter of the words and
  half of the layers. Each variant, float32 masters and torch.optim.AdamW(fused=True)
  of float32 parameters take a step in turn, on one thread: the least processor time
  of each, and ratios of times of the same run.
- Loss: a GPT on bytes, all weights and gradients bfloat16, the same batches for
  all; the mean of the last tenth of the steps, over the seeds.
"""
import argparse
import math
import pathlib
import statistics
import sys
import time

sys.dont_write_bytecode = True  # the source tree may be read-only
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
import torch.nn.functional as F

import machine
import swamp_torch

STOCHASTIC = {"master_weights": False}
KAHAN = {"master_weights": False, "rounding": "kahan"}
VARIANTS = (  # name, options, bytes of a parameter with its gradient
    ("float32 masters, float32 moments", {}, 16),
    ("float32 masters, bfloat16 moments", {"moments": "bfloat16"}, 12),
    ("float32 masters, 8-bit moments", {"moments": "8bit"}, 10),
    ("Kahan, bfloat16 moments", {**KAHAN, "moments": "bfloat16"}, 10),
    ("Kahan, 8-bit moments", {**KAHAN, "moments": "8bit"}, 8),
    ("stochastic, float32 moments", STOCHASTIC, 12),
    ("stochastic, bfloat16 moments", {**STOCHASTIC, "moments": "bfloat16"}, 8),
    ("stochastic, 8-bit moments", {**STOCHASTIC, "moments": "8bit"}, 6))


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
    for name, options, _ in VARIANTS:
        own = optimizer_of(swamp_torch.AdamW, torch.bfloat16, **options)
        turns = (own, masters, stock)
        times = [[], [], []]
        for _ in range(rounds + 1):
            for optimizer, taken in zip(turns, times):
                taken.append(seconds(optimizer))
        result[name] = [min(taken[1:]) * 1e3 for taken in times]
        print(name, *(f"{t:.1f}" for t in result[name]), file=sys.stderr)
    return result


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in
                   self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(torch.nn.Module):
    def __init__(self, context, width=128, layers=3, heads=4):
        super().__init__()
        self.bytes = torch.nn.Embedding(256, width)
        self.places = torch.nn.Embedding(context, width)
        self.blocks = torch.nn.Sequential(*(Block(width, heads)
                                            for _ in range(layers)))
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, 256, bias=False)

    def forward(self, x):
        x = self.bytes(x) + self.places.weight[:x.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def final_loss(make, text, steps, seed, batch=8, context=64, lr=1e-3):
    torch.manual_seed(seed)
    model = Gpt(context).bfloat16()
    optimizer = make(model.parameters(), lr=lr, weight_decay=0.1)
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / 20) * (
                0.55 + 0.45 * math.cos(math.pi * step / steps))
        starts = torch.randint(len(text) - context - 1, (batch,)).tolist()
        rows = torch.stack([text[s:s + context + 1] for s in starts]).long()
        logits = model(rows[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return statistics.mean(losses[-max(1, steps // 10):])


def losses(text, steps, seeds):
    cases = [(name, lambda p, o=options, **k: swamp_torch.AdamW(p, **k, **o))
             for name, options, _ in VARIANTS]
    cases.append(("stock", lambda p, **k: torch.optim.AdamW(p, fused=True, **k)))
    result = {}
    for name, make in cases:
        result[name] = [final_loss(make, text, steps, seed)
                        for seed in range(1, seeds + 1)]
        print(name, *(f"{loss:.4f}" for loss in result[name]), file=sys.stderr)
    return result


def main():
    parser = argparse.ArgumentParser(prog="memory.py")
    parser.add_argument("--text", default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--part", choices=("step", "loss"))
    options = parser.parse_args()
    others = machine.Others()
    with open(options.text, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    times = step_times(options.rounds) if options.part != "loss" else {}
    loss = (losses(text, options.steps, options.seeds)
            if options.part != "step" else {})

    def of_loss(name):
        if name not in loss:
            return "|"
        values = loss[name]
        return (f"{statistics.mean(values):.3f} | "
                + ", ".join(f"{v:.3f}" for v in values))

    print("| weights, moments | bytes a parameter | step | masters | stock | "
          "final loss | by seed |\n|---|---|---|---|---|---|---|")
    for name, _, size in VARIANTS:
        step = "| |"
        if name in times:
            own, masters, stock = times[name]
            step = (f"{own:.1f} ms | {masters / own:.2f} times | "
                    f"{stock / own:.2f} times")
        print(f"| {name} | {size} | {step} | {of_loss(name)} |")
    print(f"| torch.optim.AdamW, bfloat16 throughout | 8 | | | | "
          f"{of_loss('stock')} |\n\n{machine.cpu()}")
    machine.require_alone("memory.py", others.share())


if __name__ == "__main__":
    main()
