"""vocab_parallel_cross_entropy over gloo with 1, 2 and 4 ranks, against float64,
Megatron-LM's formula and, with support.has_megatron(), its function."""

import inspect
import warnings

from support import TestCase, has_megatron, main, run_ranks
from half_precision import EPS, HALF

import torch
import torch.distributed as dist

from swamp_torch import functional as S

F = torch.nn.functional
ROWS, CLASSES = (3, 5), 64


def inputs(dtype):
    torch.manual_seed(3)
    target = torch.randint(0, CLASSES, ROWS)
    target[0, 0] = -100
    return (torch.randn(*ROWS, CLASSES).mul(2).to(dtype), target,
            torch.randn(ROWS))


def megatron(logits, target, g, smoothing, rank, ranks):
    """Losses and gradient of Megatron-LM's function, with its smoothing over the
    rank's classes, in the rank's own process and in float64."""
    columns = CLASSES // ranks
    first = rank * columns
    x = logits.double()
    x = x - x.amax(-1, keepdim=True)
    part = x[..., first:first + columns].exp()
    local = target - first
    outside = (local < 0) | (local >= columns)
    local = local.masked_fill(outside, 0)
    q = part / x.exp().sum(-1, keepdim=True)
    wanted = x.gather(-1, target.clamp(0).unsqueeze(-1)).squeeze(-1)
    loss = x.exp().sum(-1).log() - wanted
    s = smoothing * columns / (columns - 1)
    loss = (1 - s) * loss - s * q.log().mean(-1)
    keep = (~outside).double() * (1 - s)
    q.scatter_add_(-1, local.unsqueeze(-1), -keep.unsqueeze(-1))
    q -= s / columns
    q *= g.unsqueeze(-1)
    ignored = target == -100
    return loss.masked_fill(ignored, 0), q.masked_fill(ignored.unsqueeze(-1), 0)


def of_megatron(ranks):
    """vocab_parallel_cross_entropy(), which in some releases takes the group, and writes
    float32 logits; or None. Of two ranks only, because its import takes seconds."""
    if ranks != 2 or not has_megatron():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of apex and TransformerEngine, missing
        from megatron.core import parallel_state
        from megatron.core.tensor_parallel.cross_entropy import \
            vocab_parallel_cross_entropy as theirs
    parallel_state.initialize_model_parallel(ranks)
    groups = [dist.group.WORLD] * ("tp_group" in inspect.signature(theirs).parameters)
    return lambda logits, target, smoothing: theirs(
        logits.clone(), target, smoothing, *groups)


def check(ours, exact, limit, message):
    excess = ((ours.double() - exact).abs() - limit * exact.abs()).max()
    assert excess <= 2e-6, (message, excess)


def work(rank, ranks):
    columns = CLASSES // ranks
    mine = slice(rank * columns, (rank + 1) * columns)
    theirs = of_megatron(ranks)
    for dtype in (*HALF, torch.float32):
        logits, target, g = inputs(dtype)
        for smoothing in (0.0, 0.1):
            for quirk in (False, True):
                message = (rank, ranks, dtype, smoothing, quirk)
                x = logits[..., mine].clone().requires_grad_()
                kept = x.detach().clone()
                loss = S.vocab_parallel_cross_entropy(
                    x, target, label_smoothing=smoothing, megatron=quirk)
                assert loss.dtype == torch.float32
                loss.backward(g)
                assert torch.equal(x, kept)
                if quirk:
                    exact, dx = megatron(logits, target, g, smoothing, rank, ranks)
                    if theirs:
                        y = logits[..., mine].clone().requires_grad_()
                        kept = theirs(y, target, smoothing)
                        found = kept.detach().clone()
                        kept.backward(g)
                        counts = target != -100  # it ignores none
                        check(found[counts], exact[counts], 3e-6, message)
                        check(y.grad[counts], dx[counts],
                              2 * EPS.get(dtype, 0) + 5e-6, message)
                else:
                    wide = logits.double().requires_grad_()
                    exact = F.cross_entropy(wide.flatten(0, 1), target.flatten(),
                                            reduction="none",
                                            label_smoothing=smoothing).view(ROWS)
                    exact.backward(g.double())
                    exact, dx = exact.detach(), wide.grad[..., mine]
                    all_losses = [torch.empty_like(loss) for _ in range(ranks)]
                    dist.all_gather(all_losses, loss.detach())
                    assert all(torch.equal(a, loss) for a in all_losses), message
                check(loss, exact, 3e-7, message)
                check(x.grad, dx, EPS.get(dtype, 0) + 5e-6, message)
        bad = target.clone()
        bad[1, 1] = CLASSES
        try:
            S.vocab_parallel_cross_entropy(logits[..., mine], bad)
        except IndexError as error:
            assert str(error) == f"Target {CLASSES} is out of bounds.", error
        else:
            raise AssertionError("no IndexError")
    # Large logits: the log of the sum is not lost.
    for base in (1e8, 1e30):
        for smoothing in (0.0, 0.1):
            x = torch.full((2, 12), base)[:, rank:rank + 12 // ranks].requires_grad_()
            target = torch.tensor([0, 11])
            loss = S.vocab_parallel_cross_entropy(x, target, label_smoothing=smoothing)
            check(loss.detach(), torch.tensor(12.0).log().expand(2), 3e-7, base)
            loss.sum().backward()
            columns = torch.arange(12 // ranks) + rank * (12 // ranks)
            exact = (1 - smoothing) / 12 - (columns == target.unsqueeze(1)).double() * (
                1 - smoothing)
            check(x.grad, exact, 1e-6, base)
    # A rank of which all logits are -inf: padding of the vocabulary.
    if ranks > 1:
        x = torch.zeros(2, 4)
        if rank > 0:
            x[:] = -torch.inf
        loss = S.vocab_parallel_cross_entropy(x, torch.tensor([0, 3]))
        check(loss, torch.tensor(4.0).log().expand(2), 3e-7, "padding")


class VocabParallel(TestCase):
    def test_ranks(self):
        for ranks in (1, 2, 4):
            run_ranks(work, ranks)


if __name__ == "__main__":
    main()
