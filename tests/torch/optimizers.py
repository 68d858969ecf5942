"""What the tests of swamp_torch's optimizers share."""

import itertools
from functools import partial

import support  # noqa: F401 finds the package

import torch

from swamp_torch import SGD, Adam, AdamW

# Each class with every option of its rule.
CASES = [
    ("AdamW", {}),
    ("AdamW", dict(amsgrad=True)),
    ("AdamW", dict(maximize=True, betas=(0.4, 0.9))),
    ("AdamW", dict(amsgrad=True, maximize=True, weight_decay=0.3)),
    ("Adam", {}),
    ("Adam", dict(weight_decay=0.1, amsgrad=True)),
    ("Adam", dict(weight_decay=0.1, maximize=True)),
    ("Adam", dict(weight_decay=0.1, decoupled_weight_decay=True)),
    ("SGD", {}),
    ("SGD", dict(weight_decay=0.1, maximize=True)),
    ("SGD", dict(momentum=0.9)),
    ("SGD", dict(momentum=0.9, dampening=0.3, weight_decay=0.1)),
    ("SGD", dict(momentum=0.9, nesterov=True, maximize=True)),
]
NAMES = list(dict.fromkeys(name for name, _ in CASES))
# The rules with each storage.
OPTIMIZERS = {
    "SGD": partial(SGD, lr=0.1),
    "SGD, momentum": partial(SGD, lr=0.1, momentum=0.9, weight_decay=0.1),
    "Adam": partial(Adam, weight_decay=0.1),
    "AdamW, amsgrad": partial(AdamW, amsgrad=True),
    "AdamW, bfloat16": partial(AdamW, moments="bfloat16", master_weights=False),
    "AdamW, kahan": partial(AdamW, master_weights=False, rounding="kahan"),
    "AdamW, 8bit": partial(AdamW, moments="8bit"),
    "AdamW, float8": partial(AdamW, moments="float8", master_weights=False),
}


def params(shapes, dtypes=(torch.float32,), seed=1):
    torch.manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(s).to(d))
            for s, d in zip(shapes, itertools.cycle(dtypes))]


def all_params(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def give_grads(some, seed, factor=1.0):
    """Random gradients for parameters, or for those of an optimizer."""
    torch.manual_seed(seed)
    for p in some if isinstance(some, list) else all_params(some):
        p.grad = (torch.randn(p.shape, dtype=torch.float32) * factor).to(p.dtype)


def run(optimizer, first=0, count=3):
    for step in range(first, first + count):
        give_grads(optimizer, 100 + step)
        optimizer.step()
    return optimizer


def scaled(optimizer, first=0, count=4, unscale=False):
    """Steps under GradScaler; the second has an inf."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.ones(()))
    for step in range(first, first + count):
        give_grads(optimizer, step, scaler.get_scale())
        if step == first + 1:
            all_params(optimizer)[0].grad[5] = float("inf")
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert getattr(optimizer, "skipped", step == first + 1) == (step == first + 1)
    return optimizer


def tensors(optimizer):
    """Copies of the state of each parameter, and of the parameter."""
    return [t.detach().clone() for p in all_params(optimizer) for t in (
        *(t for _, t in sorted(optimizer.state.get(p, {}).items())), p)]
