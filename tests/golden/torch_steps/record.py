#!/usr/bin/env python3
"""Writes steps.inc: what torch's own optimizers make of a few numbers.

usage: record.py > steps.inc

torch.optim.Adam and AdamW with fused=True, torch.optim.SGD with foreach=False,
on a CPU with AVX2 or AVX-512 (without fused multiply-add torch's bits differ).
"""

import itertools
import sys

import numpy as np
import torch

COUNT = 32  # two vectors of AVX-512: no element is left to torch's scalar tail


def draw(count):
    """Random numbers of magnitudes 1e-8 to 1e4."""
    exponent = torch.rand(count, dtype=torch.float64) * 12 - 8
    sign = torch.where(torch.rand(count) < 0.5, -1.0, 1.0).double()
    return (sign * 10**exponent).float()


def bits(values):
    words = np.asarray(values, dtype=np.float32).view(np.uint32)
    return "{" + ",".join(f"0x{word:x}" for word in words) + "}"


def step(optimizer, gradient, weight, state):
    parameter = torch.nn.Parameter(weight.clone())
    parameter.grad = gradient.clone()
    optimizer = optimizer([parameter])
    if state:
        optimizer.state[parameter] = {k: v.clone() for k, v in state.items()}
    optimizer.step()
    return parameter.detach(), optimizer.state[parameter]


def adam_cases():
    yield from itertools.product(("AdamW", "Adam"), (0.9, 0.4), (0.0, 0.1),
                                 (1, 2, 3, 1000), ("",))
    yield from itertools.product(("AdamW", "Adam"), (0.9,), (0.0, 0.1), (1, 3),
                                 ("maximize", "amsgrad", "amsgrad maximize"))


def adam_rows(gradient, weight, m, v, x):
    lr, beta2, eps = 1e-3, 0.999, 1e-8
    for name, beta1, decay, number, flags in adam_cases():
        factor = 0.0 if number == 1 else 1.0
        start = {"step": torch.tensor(float(number - 1)), "exp_avg": m * factor,
                 "exp_avg_sq": v * factor}
        if "amsgrad" in flags:
            start["max_exp_avg_sq"] = x * factor
        new_weight, state = step(
            lambda p: getattr(torch.optim, name)(
                p, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay,
                fused=True, amsgrad="amsgrad" in flags,
                maximize="maximize" in flags),
            gradient, weight, start)
        args = [1 - beta1, beta2, 1 - beta2, lr / (1 - beta1**number),
                (1 - beta2**number)**0.5, eps,
                decay if name == "Adam" else 0.0,
                1 - lr * decay if name == "AdamW" else 1.0]
        text = f"{name} beta1 {beta1} weight_decay {decay} step {number}"
        kind = "adam_amsgrad" if "amsgrad" in flags else "adam"
        moments = [state[key] for key in start if key != "step"]
        yield (f"{text} {flags}".rstrip(), kind, number == 1,
               "maximize" in flags, args, [new_weight] + moments)


def sgd_rows(gradient, weight, buffer):
    lr = 0.01
    for momentum, nesterov, dampening, decay, number, maximize in itertools.product(
            (0.0, 0.9), (False, True), (0.0, 0.3), (0.0, 0.1), (1, 2),
            (False, True)):
        if nesterov and (momentum == 0 or dampening != 0):
            continue
        if momentum == 0 and (dampening != 0 or number != 1):
            continue
        new_weight, state = step(
            lambda p: torch.optim.SGD(
                p, lr=lr, momentum=momentum, dampening=dampening,
                weight_decay=decay, nesterov=nesterov, maximize=maximize,
                foreach=False),
            gradient, weight,
            {"momentum_buffer": buffer} if number > 1 else {})
        args = [lr, momentum, 1 - dampening, decay, float(nesterov),
                float(number == 1)]
        text = (f"SGD momentum {momentum} nesterov {nesterov} "
                f"dampening {dampening} weight_decay {decay} step {number}"
                f"{' maximize' if maximize else ''}")
        kind = "sgd_momentum" if momentum else "sgd"
        out = [new_weight] + ([state["momentum_buffer"]] if momentum else [])
        yield text, kind, False, maximize, args, out


def main():
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    torch.manual_seed(20)
    torch.set_num_threads(1)
    gradient, weight, m = draw(COUNT), draw(COUNT), draw(COUNT)
    v, x = draw(COUNT).abs(), draw(COUNT).abs()
    print(f"// Made by record.py with torch {torch.__version__}, "
          f"{torch.backends.cpu.get_cpu_capability()}. Floats as their bits.")
    for name, values in (("kGradient", gradient), ("kWeight", weight),
                         ("kFirst", m), ("kSecond", v), ("kLargest", x)):
        print(f"constexpr std::uint32_t {name}[] = {bits(values)};")
    print("constexpr TorchStep kTorchSteps[] = {")
    rows = itertools.chain(adam_rows(gradient, weight, m, v, x),
                           sgd_rows(gradient, weight, m))
    for text, kind, fresh, maximize, args, out in rows:
        flags = f"{fresh},{maximize}".lower()
        print(f'{{"{text}",Step::{kind},{flags},{bits(args)},')
        print("{" + ",\n".join(bits(one) for one in out) + "}},")
    print("};")


if __name__ == "__main__":
    main()
