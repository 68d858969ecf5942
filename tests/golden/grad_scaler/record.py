#!/usr/bin/env python3
"""Writes protocol.jsonl: random calls, many of them in the wrong order, and those of
SCENARIOS, on torch.amp.GradScaler("cpu"), and what came of each.

usage: record.py > protocol.jsonl

The first line lists all exceptions as [type, text]. Every other line is one
scaler: `options` are its arguments; `ops` its calls, [name and index] or [name
and index, number], see Player.call(); `rows` what was seen after each:
[exception's index or -1, scale, growth tracker, steps of each optimizer, low 32
bits of Player.digest()]. The optimizers' gradients are float32[4]; bfloat16[3]
and float64[2]; float16[2].
"""

import json
import random
import struct
import sys

import torch

SEQUENCES = 70
CALLS = 24
SEED = 20260801


class Boom(Exception):
    """What an optimizer's step() raises when it is told to."""


class Optimizer:
    def __init__(self, dtypes, counts):
        self.params = [torch.nn.Parameter(torch.zeros(count, dtype=dtype))
                       for dtype, count in zip(dtypes, counts)]
        self.param_groups = [{"params": self.params}]
        self.steps = 0
        self.throws = False

    def fill(self, kind):
        self.param_groups[0]["params"] = [] if kind == 3 else self.params
        for t, param in enumerate(self.params):
            param.grad = torch.tensor([1.25 * (i + 1) - t for i in range(len(param))],
                                      dtype=param.dtype)
        if kind == 1:
            self.params[0].grad[0] = float("inf")
        if kind == 2:
            self.params[-1].grad[-1] = float("nan")

    def step(self):
        if self.throws:
            self.throws = False
            raise Boom("boom")
        self.steps += 1


class Player:
    def __init__(self, options):
        self.options = options
        self.scaler = self.make()
        self.optimizers = [Optimizer([torch.float32], [4]),
                           Optimizer([torch.bfloat16, torch.float64], [3, 2]),
                           Optimizer([torch.float16], [2])]
        for optimizer in self.optimizers:
            optimizer.fill(0)
        self.loss = [torch.tensor(0.0), torch.tensor(0.0, dtype=torch.float64)]
        self.outputs = [torch.zeros(2, dtype=dtype) for dtype in
                        (torch.float16, torch.bfloat16, torch.float32, torch.float64)]

    def make(self):
        scale, growth, backoff, interval, enabled = self.options
        return torch.amp.GradScaler("cpu", scale, growth, backoff, interval, enabled)

    def call(self, op, number):
        name, index = op[0], op[1:]
        if name == "s":
            self.loss = [self.scaler.scale(torch.tensor(number, dtype=torch.float32)),
                         self.scaler.scale(torch.tensor(number, dtype=torch.float64))]
        elif name == "v":
            self.outputs = self.scaler.scale(
                [torch.tensor([number, 1.5], dtype=output.dtype) for output in self.outputs])
        elif name == "g":
            self.optimizers[int(index)].fill(int(number))
        elif name == "t":
            self.optimizers[int(index)].throws = True
        elif name == "u":
            self.scaler.unscale_(self.optimizers[int(index)])
        elif name == "p":
            self.scaler.step(self.optimizers[int(index)])
        elif name == "U":
            self.scaler.update()
        elif name == "N":
            self.scaler.update(number)
        elif name == "G":
            self.scaler.set_growth_factor(number)
        elif name == "B":
            self.scaler.set_backoff_factor(number)
        elif name == "I":
            self.scaler.set_growth_interval(int(number))
        elif name == "E":
            self.scaler.load_state_dict({})
        elif name == "L":
            fresh = self.make()
            fresh.load_state_dict(self.scaler.state_dict())
            self.scaler = fresh
        elif name == "K":
            state = self.scaler.state_dict()
            state["scale"] = number
            self.scaler.load_state_dict(state)

    def digest(self):
        """FNV-1a-64 over the doubles of all that can be seen; a nan is 0x7ff8..."""
        tensors = list(self.loss) + list(self.outputs)
        for optimizer in self.optimizers:
            tensors += [param.grad for param in optimizer.params]
        value = 0xCBF29CE484222325
        for tensor in tensors:
            for number in tensor.reshape(-1).tolist():
                bits = struct.pack("<d", number)
                if number != number:
                    bits = struct.pack("<Q", 0x7FF8000000000000)
                for byte in bits:
                    value = ((value ^ byte) * 0x100000001B3) % 2**64
        return value


def random_op(rng):
    which = rng.choice("001112" if rng.random() < 0.2 else "01")
    kind = rng.random()
    if kind < 0.16:
        return "s", rng.choice([1.0, 0.1, -3.0])
    if kind < 0.19:
        return "v", rng.choice([0.001, 3.0])
    if kind < 0.35:
        return "g" + which, rng.choice([0, 0, 0, 1, 2, 3])
    if kind < 0.38:
        return "t" + which, 0
    if kind < 0.52:
        return "u" + which, 0
    if kind < 0.75:
        return "p" + which, 0
    if kind < 0.90:
        return "U", 0
    return rng.choice([("N", 8.0), ("N", 0.1), ("N", 1e39), ("G", 3.3), ("B", 0.7), ("I", 1),
                       ("I", 3), ("E", 0), ("L", 0), ("K", 0.3), ("K", 96.0), ("K", 1e39)])


# Arguments of the constructor, and calls: "g0=1" is call("g0", 1).
SCENARIOS = (
    # The scale stays finite.
    ((1e38, 16.0, 0.5, 1, True), "s=1 p0 U"),
    # One of two optimizers overflows, in either order, or both: one backoff.
    ((128.0, 2.0, 0.5, 1, True), "s=1 g1=1 u0 p0 p1 U g0=1 g1=0 p0 p1 U g1=2 p0 p1 U"),
    # An overflow after unscale_() is not seen.
    ((128.0, 2.0, 0.5, 1, True), "s=1 u0 g0=1 p0 U"),
    # Setters are not checked.
    ((65536.0, 2.0, 0.5, 2000, True), "s=1 G=0.25 B=3 I=1 p0 U g0=2 p0 U"),
    # A tracker that is above the interval never equals it.
    ((4.0, 2.0, 0.5, 10, True), "s=1" + 5 * " p0 U" + " I=3" + 7 * " p0 U"),
    # A loaded state replaces the constructor's numbers and the tracker.
    ((65536.0, 2.0, 0.5, 2000, True),
     "s=1 G=4 B=0.25 I=2 p0 U L s=1 p0 U g0=1 p0 U"),
    # step() may be called again after the optimizer's raised an exception.
    ((65536.0, 2.0, 0.5, 1, True), "s=1 t0 p0 p0 U"),
    # 1 / scale is inf, then the scale is 0, unnoticed.
    ((1e-44, 2.0, 0.5, 2000, True), "s=1" + 4 * " g0=1 p0 U" + " g0=0 p0 U"),
    # A disabled scaler does nothing, in any order.
    ((65536.0, 2.0, 0.5, 2000, False), "p0 u0 p0 g0=1 p0 U N=3 s=3.5 v=2 G=3 E L"),
)


def play(rng, errors):
    options = rng.choice([(65536.0, 2.0, 0.5, 2), (0.1, 1.7, 0.3, 1), (1e38, 16.0, 0.5, 1),
                          (128.0, 2.0, 0.5, 2000), (1e39, 2.0, 0.5, 1)])
    return observe(options + (rng.random() > 0.05,),
                   (random_op(rng) for _ in range(CALLS)), errors)


def observe(options, calls, errors):
    player = Player(options)
    ops, rows = [], []
    for op, number in calls:
        outcome = -1
        try:
            player.call(op, number)
        except Exception as error:  # every kind is recorded
            said = [type(error).__name__, str(error)]
            # A disabled scaler has no settings to save: Python's own words.
            if said[0] == "KeyError":
                continue
            if said not in errors:
                errors.append(said)
            outcome = errors.index(said)
        ops.append([op, number] if number else [op])
        rows.append([outcome, player.scaler.get_scale(), player.scaler._get_growth_tracker(),
                     [optimizer.steps for optimizer in player.optimizers],
                     format(player.digest() % 2**32, "x")])
    return {"options": player.options, "ops": ops, "rows": rows}


def compact(record):
    return json.dumps(record, separators=(",", ":"), allow_nan=False)


def main():
    rng = random.Random(SEED)
    errors = []
    records = [play(rng, errors) for _ in range(SEQUENCES)]
    for options, text in SCENARIOS:
        calls = [(op, float(number or 0)) for op, _, number in
                 (call.partition("=") for call in text.split())]
        records.append(observe(options, calls, errors))
    print(compact({"torch": torch.__version__, "errors": errors}))
    for record in records:
        print(compact(record))


if __name__ == "__main__":
    sys.exit(main())
