"""swamp_torch.tensor_parallel over gloo with 2 and 4 ranks: a small LLaMA of DTensors
has the bits of one process, forward, gradients and weights, for 20 steps (5 outside of
CI). vocab_parallel_cross_entropy() against float64, Megatron-LM's formula and, with
support.has_megatron(), its function."""

import inspect
import math
import warnings

from support import CI, TestCase, caught, has_megatron, main, run_ranks
from half_precision import EPS, HALF

import torch
import torch.distributed as dist
from torch.distributed.tensor.parallel import parallelize_module

import swamp_torch
from swamp_torch import functional as S, tensor_parallel

F = torch.nn.functional
DTYPES = (*HALF, torch.float32)
WIDTH, HEAD, INNER, CLASSES, TOKENS, STEPS = 64, 16, 96, 101, 70, 20 if CI else 5
COLUMNS, ROWS = tensor_parallel.ColwiseParallel(), tensor_parallel.RowwiseParallel()
PLAN = {"q": COLUMNS, "k": COLUMNS, "v": COLUMNS, "o": ROWS, "gate": COLUMNS,
        "up": COLUMNS, "down": ROWS}


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        sizes = {"q": (WIDTH, WIDTH), "k": (WIDTH, WIDTH), "v": (WIDTH, WIDTH),
                 "o": (WIDTH, WIDTH), "gate": (WIDTH, INNER), "up": (WIDTH, INNER),
                 "down": (INNER, WIDTH)}
        for name, (inputs, outputs) in sizes.items():
            # Both kinds have a layer with a bias.
            setattr(self, name, torch.nn.Linear(inputs, outputs,
                                                bias=name in ("q", "o")))
        self.first, self.second = torch.nn.RMSNorm(WIDTH), torch.nn.RMSNorm(WIDTH)

    def forward(self, x):
        y = self.first(x)
        q, k, v = (one(y).unflatten(-1, (-1, HEAD)).transpose(1, 2)
                   for one in (self.q, self.k, self.v))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(heads.transpose(1, 2).flatten(2))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(CLASSES, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.head = torch.nn.Linear(WIDTH, CLASSES, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def trained(rank, ranks, dtype):
    """The logits, losses, first gradients and last weights of a training."""
    swamp_torch.enable(half_precision=True, reproducible=True)
    torch.manual_seed(3)
    model = Model().to(dtype)
    if ranks > 1:
        mesh = dist.init_device_mesh("cpu", (ranks,))
        for block in model.blocks:
            parallelize_module(block, mesh, PLAN)
    optimizer = swamp_torch.AdamW(model.parameters(), lr=1e-2)
    seen = []
    for step in range(STEPS):
        tokens = torch.arange(3 * TOKENS).view(3, TOKENS) * 7 % (CLASSES - step)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            seen += [logits.detach()]
            seen += [whole(p.grad).detach() for p in model.parameters()]
        seen.append(loss.detach())
        optimizer.step()
    return seen + [whole(p).detach() for p in model.parameters()]


def products(rank, ranks, dtype):
    """chained_product() with uneven numbers of terms, and rows of several groups."""
    swamp_torch.enable(half_precision=True, reproducible=True)
    torch.manual_seed(5)
    results = []
    for rows, terms, columns in ((1, 10, 1), (5, 48, 33), (300, 1000, 70),
                                 (129, 9001, 5)):
        x, y = torch.randn(rows, terms).to(dtype), torch.randn(terms, columns).to(dtype)
        bias = torch.randn(columns).to(dtype)
        part = terms // ranks // 2 * 2
        mine = slice(rank * part, terms if rank + 1 == ranks else (rank + 1) * part)
        for add in (None, bias):
            result = tensor_parallel.chained_product(
                x[:, mine], y[mine], dist.group.WORLD, add) if ranks > 1 else (
                    x @ y if add is None else torch.addmm(add, x, y))
            results.append(result)
    return results


# Of the vocabulary.
SIZES, VOCABULARY = (3, 5), 64


def inputs(dtype):
    torch.manual_seed(3)
    target = torch.randint(0, VOCABULARY, SIZES)
    target[0, 0] = -100
    return (torch.randn(*SIZES, VOCABULARY).mul(2).to(dtype), target,
            torch.randn(SIZES))


def megatron(logits, target, g, smoothing, rank, ranks):
    """Losses and gradient of Megatron-LM's function, with its smoothing over the
    rank's classes, in the rank's own process and in float64."""
    columns = VOCABULARY // ranks
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


def vocabulary(rank, ranks):
    """vocab_parallel_cross_entropy() against float64 and Megatron-LM."""
    columns = VOCABULARY // ranks
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
                                            label_smoothing=smoothing).view(SIZES)
                    exact.backward(g.double())
                    exact, dx = exact.detach(), wide.grad[..., mine]
                    all_losses = [torch.empty_like(loss) for _ in range(ranks)]
                    dist.all_gather(all_losses, loss.detach())
                    assert all(torch.equal(a, loss) for a in all_losses), message
                check(loss, exact, 3e-7, message)
                check(x.grad, dx, EPS.get(dtype, 0) + 5e-6, message)
        bad = target.clone()
        bad[1, 1] = VOCABULARY
        try:
            S.vocab_parallel_cross_entropy(logits[..., mine], bad)
        except IndexError as error:
            assert str(error) == f"Target {VOCABULARY} is out of bounds.", error
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
    # All logits of a rank are -inf: padding of the vocabulary.
    if ranks > 1:
        x = torch.zeros(2, 4)
        if rank > 0:
            x[:] = -torch.inf
        loss = S.vocab_parallel_cross_entropy(x, torch.tensor([0, 3]))
        check(loss, torch.tensor(4.0).log().expand(2), 3e-7, "padding")
    # It calls nothing whose bits depend on the CPU.
    logits, target, g = inputs(torch.float32)
    x = logits[..., mine].clone().requires_grad_()
    swamp_torch.enable(reproducible=True, unreproducible="raise")
    S.vocab_parallel_cross_entropy(x, target, label_smoothing=0.1).backward(g)
    swamp_torch.disable()


# What is compared with one process, and the numbers of ranks: outside of CI up to 3.
COMPARED = {trained: (2, 4), products: (2, 3)}


def work(rank, ranks):
    """All that `ranks` ranks do, because starting them takes longer."""
    if ranks != 3:
        vocabulary(rank, ranks)
    return {call.__name__: [call(rank, ranks, dtype) for dtype in DTYPES]
            for call, worlds in COMPARED.items() if ranks in worlds}


class TensorParallel(TestCase):
    def test_ranks(self):
        alone = {call.__name__: [call(0, 1, dtype) for dtype in DTYPES]
                 for call in COMPARED}
        for one in alone["trained"]:
            self.assertTrue(math.isfinite(one[-1].sum()))
        for ranks in (1, 2, 3, 4)[:3 + CI]:
            for rank, seen in enumerate(run_ranks(work, ranks)):
                for name, results in seen.items():
                    for dtype, result, one in zip(DTYPES, results, alone[name], strict=True):
                        for i, (a, b) in enumerate(zip(result, one, strict=True)):
                            self.assert_same(a, b, (name, dtype, ranks, rank, i))

    def test_refused(self):
        part = torch.ops.swamp._product_part
        x, y, sums = torch.randn(3, 7), torch.randn(7, 5), torch.zeros(96)
        for call, text in (
                (lambda: part(x, y, sums, True, False), "a.columns: got 7, expected an "
                 "even number"),
                (lambda: part(x, y, sums[:5], True, True), "sums: got the shape"),
                (lambda: part(x, y, sums.double(), True, True), "sums: got the shape"),
                (lambda: part(x, y[:3], sums, True, True), "x, y: got the shapes"),
                (lambda: part(x, y, sums, True, True, x[0]), "bias: expected 5"),
                (lambda: COLUMNS._apply(torch.nn.ReLU(), None), "got ReLU, expected")):
            self.assertIn(text, str(caught(call)))


if __name__ == "__main__":
    main()
