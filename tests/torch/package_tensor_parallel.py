"""swamp_torch.tensor_parallel over gloo with 2 and 4 ranks: a small LLaMA of DTensors
has the bits of one process, forward, gradients and weights, for 20 steps (5 outside of
CI)."""

import math

from support import CI, TestCase, caught, main, run_ranks

import torch
import torch.distributed as dist
from torch.distributed.tensor.parallel import parallelize_module

import swamp_torch
from swamp_torch import tensor_parallel

F = torch.nn.functional
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
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


def every_dtype(rank, ranks, work):
    """Starting processes for each dtype would take longer than the work."""
    return [work(rank, ranks, dtype) for dtype in DTYPES]


class TensorParallel(TestCase):
    def compare(self, work, *worlds):
        alone = every_dtype(0, 1, work)
        for ranks in worlds:
            for rank, results in enumerate(run_ranks(every_dtype, ranks, work)):
                for dtype, result, one in zip(DTYPES, results, alone, strict=True):
                    for i, (a, b) in enumerate(zip(result, one, strict=True)):
                        self.assert_same(a, b, (dtype, ranks, rank, i))
        return alone

    def test_training(self):
        for one in self.compare(trained, 2, 4):
            self.assertTrue(math.isfinite(one[-1].sum()))

    def test_products(self):
        self.compare(products, 2, 3)

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
