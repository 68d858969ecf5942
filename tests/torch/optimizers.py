"""What the tests of swamp_torch's optimizers share."""

import itertools

import torch


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
