"""``python -m swamp_torch TEXT``: trains small transformers in 16 bits with stock
PyTorch's kernels and with swamp's, step by step in turn, and compares."""

import copy
import hashlib
import math
import statistics
import time
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import torch
from torch import Tensor

from . import AdamW, disabled, enable

# Of the second part: dtype, and whether autocast computes in it, or the weights are it.
_MODES = [(torch.float32, "weights"), (torch.float16, "autocast"),
          (torch.float16, "weights"), (torch.bfloat16, "autocast"),
          (torch.bfloat16, "weights")]
# Rows of the table of gradients, and parts of the names of their parameters.
_GROUPS = [("LayerNorm weights", "norm", "weight"), ("LayerNorm biases", "norm", "bias"),
           ("attention weights", "self_attn", "weight"),
           ("MLP weights", "linear", "weight"), ("head weights", "head", "weight"),
           ("other biases", "", "bias"), ("embeddings", "", "")]


class Model(torch.nn.Module):
    """Bytes in, the next bytes out."""

    def __init__(self, context: int = 32, width: int = 256, layers: int = 4,
                 classes: int = 256) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.bytes = torch.nn.Embedding(classes, width)
        self.places = torch.nn.Embedding(context, width)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(
                width, 4, 4 * width, dropout=0.0, activation="gelu",
                batch_first=True, norm_first=True) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, classes)
        mask = torch.full((context, context), float("-inf")).triu(1)
        self.register_buffer("mask", mask)

    def loss(self, batch: Tensor) -> Tensor:
        """The cross entropy of the last bytes of each row of `batch`."""
        h = self.bytes(batch[:, :-1]) + self.places.weight
        for layer in self.layers:
            h = layer(h, src_mask=self.mask)
        return torch.nn.functional.cross_entropy(
            self.head(self.norm(h)).flatten(0, 1), batch[:, 1:].flatten())


class Run:
    """A training with GradScaler. The optimizer steps float32 copies of 16-bit weights.
    With `errors` the gradients are clipped, and those of the first step are compared
    with float64."""

    def __init__(self, model: Model, mode: Tuple[torch.dtype, str],
                 make_optimizer: Callable[[List[Tensor]], torch.optim.Optimizer],
                 initial_scale: float, errors: bool) -> None:
        dtype, kind = mode
        self.model = copy.deepcopy(model)
        if kind == "weights":
            self.model.to(dtype)
        self.autocast = torch.autocast("cpu", dtype, enabled=kind == "autocast")
        self.weights = list(self.model.parameters())
        self.masters = [w if w.dtype == torch.float32 else
                        torch.nn.Parameter(w.detach().float()) for w in self.weights]
        self.optimizer = make_optimizer(self.masters)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=initial_scale,
                                           growth_interval=15)
        self.clip = self.wants_errors = errors
        self.errors: Dict[str, float] = {}  # by group; "": of all
        self.log: List[Tuple[float, float, bool]] = []  # loss, scale, skipped
        # Of a step, and of its scaler.step() and update().
        self.seconds: List[float] = []
        self.optimizer_seconds: List[float] = []

    def step(self, batch: Tensor) -> None:
        exact = copy.deepcopy(self.model).double() if self.wants_errors else None
        start = time.perf_counter()
        self.model.zero_grad()
        with self.autocast:
            loss = self.model.loss(batch)
        self.scaler.scale(loss).backward()
        for master, weight in zip(self.masters, self.weights):
            if master is not weight and weight.grad is not None:
                master.grad = weight.grad.float()
        if self.clip:
            self.scaler.unscale_(self.optimizer)
            if exact is not None:
                self._compare(exact, batch)
            torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        scale, middle = self.scaler.get_scale(), time.perf_counter()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        end = time.perf_counter()
        with torch.no_grad():
            if self.masters[0] is not self.weights[0]:
                torch._foreach_copy_(self.weights, self.masters)
        self.log.append((loss.item(), scale, self.scaler.get_scale() < scale))
        self.seconds.append(time.perf_counter() - start)
        self.optimizer_seconds.append(end - middle)

    def _compare(self, exact: Model, batch: Tensor) -> None:
        """Fills `errors` with |g - g64| / |g64|."""
        self.wants_errors = False
        exact.loss(batch).backward()
        pairs: Dict[str, List[Tuple[Any, Any]]] = {}
        for (name, p), mine in zip(exact.named_parameters(), self.masters):
            group = next(g for g, part, end in _GROUPS
                         if part in name and name.endswith(end))
            for key in ("", group):
                pairs.setdefault(key, []).append((mine.grad, p.grad))
        for key, some in pairs.items():
            ours, true = (torch.cat([x.flatten() for x in side]) for side in zip(*some))
            self.errors[key] = ((ours - true).norm() / true.norm()).item()

    def digest(self) -> str:
        """A digest of the log and the weights."""
        digest = hashlib.sha256(repr(self.log).encode())
        for p in self.weights:
            digest.update(p.detach().numpy().tobytes())
        return digest.hexdigest()[:16]


def _batches(text: Tensor, rows: int, context: int) -> Iterator[Tensor]:
    torch.manual_seed(1)
    while True:
        starts = torch.randint(0, len(text) - context - 1, (rows,)).tolist()
        yield torch.stack([text[s:s + context + 1] for s in starts])


def _train(title: str, runs: List[Run], steps: int, batches: Iterator[Tensor],
           half_precision: bool) -> List[Run]:
    """Steps the runs in turn with the same batches, the first with stock PyTorch."""
    print(title, end=" ", flush=True)
    for _ in range(steps):
        batch = next(batches)
        for i, run in enumerate(runs):
            with disabled():
                if i:
                    enable(half_precision=half_precision)
                run.step(batch)
        print(".", end="", flush=True)
    print()
    return runs


def _table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows)]
    for first, *others in rows:
        print(" ".join([first.ljust(widths[0]), *(
            cell.rjust(width) for cell, width in zip(others, widths[1:]))]).rstrip())
    print()


def _optimizer_steps(text: Tensor, steps: int) -> bool:
    """The first part: under autocast. Returns whether all bits are equal."""
    options: Dict[str, Any] = dict(lr=1e-3, weight_decay=0.1)
    stock, swamp = runs = _train("float16, autocast", [
        Run(Model(), _MODES[1], make, 2.0 ** 24, False) for make in (
            lambda p: torch.optim.AdamW(p, fused=True, **options),
            lambda p: AdamW(p, **options))], steps, _batches(text, 4, 32), False)
    rows = [["step", "loss, stock", "loss, swamp", "scale, stock", "scale, swamp", ""]]
    for step, (a, b) in enumerate(zip(stock.log, swamp.log), 1):
        if step <= 3 or step % 10 == 0 or a != b or a[2]:
            rows.append([str(step), f"{a[0]:.7f}", f"{b[0]:.7f}", f"{a[1]:g}",
                         f"{b[1]:g}", " DIFFERS" * (a != b) + " skipped" * a[2]])
    _table(rows)
    equal = stock.digest() == swamp.digest()
    print(f"{steps} steps, {sum(line[2] for line in stock.log)} of them skipped for an "
          f"overflow; losses and scales are "
          f"{'equal' if stock.log == swamp.log else 'NOT EQUAL'}\n"
          f"digest of losses, scales and weights: stock {stock.digest()}, swamp "
          f"{swamp.digest()}\n")
    rows = [["time of a step: scaler.step() and scaler.update()", "min ms", "median"]]
    for name, run in zip(("stock, torch.optim.AdamW(fused=True)",
                          "swamp, swamp_torch.AdamW"), runs):
        taken = [1e3 * s for s, (_, _, skipped) in zip(run.optimizer_seconds, run.log)
                 if not skipped]
        rows.append([name, *(f"{f(taken):.2f}" if taken else "-"  # all were skipped
                             for f in (min, statistics.median))])
    _table(rows)
    return equal


_Results = List[Tuple[Tuple[torch.dtype, str], List[Run]]]


def _summary(results: _Results, tokens: int) -> None:
    rows = [["training", "", "first loss", "last loss", "error of gradients",
             "tokens/s", "ratio"]]
    for (dtype, kind), runs in results:
        for name, run in zip(("stock", "swamp"), runs):
            best = min(run.seconds[1:])
            rows.append([f"{str(dtype)[6:]}, {kind}", name, f"{run.log[0][0]:.4f}",
                         f"{run.log[-1][0]:.4f}", f"{run.errors['']:.1e}",
                         f"{tokens / best:.1f}", f"{min(runs[0].seconds[1:]) / best:.2f}"])
    _table(rows)


def _by_mode(results: _Results, title: str, names: Sequence[str],
             cells: Callable[[str, Run], str]) -> None:
    """A table with a row for each name and two columns for each mode."""
    runs = [run for _, both in results for run in both]
    _table([["", *(x for (dtype, _), _ in results for x in (str(dtype)[6:], ""))],
            ["", *(x for (_, kind), _ in results for x in (kind, ""))],
            [title, *["stock", "swamp"] * len(results)],
            *([name, *(cells(name, run) for run in runs)] for name in names)])


def _half_precision(text: Tensor, short: bool) -> bool:
    """The second part; returns whether swamp's runs are right."""
    steps, rows, context, width, layers = (
        (3, 2, 16, 32, 1) if short else (12, 4, 64, 256, 4))
    print(f"Training in 16 bits: {steps} steps of {rows} x {context} tokens, width "
          f"{width}, {layers} layers;\nGradScaler, clipping, AdamW with float32 masters."
          " Few steps, because stock\nPyTorch's float16 products are slow on most CPUs.")

    def run(mode: Tuple[torch.dtype, str], model: Model, steps: int, rows: int,
            context: int, lr: float) -> List[Run]:
        make = [Run(model, mode, lambda p: torch.optim.AdamW(p, lr=lr, fused=True),
                    2.0 ** 12, True) for _ in range(1 + (mode[0] != torch.float32))]
        return _train(f"{str(mode[0])[6:]}, {mode[1]}", make, steps,
                      _batches(text, rows, context), True)

    model = Model(context, width, layers)
    results = [(mode, run(mode, model, steps, rows, context, 1e-3)) for mode in _MODES]
    print()
    halves = results[1:]
    losses = [line[0] for line in results[0][1][0].log]
    _by_mode(halves, "loss, float32", [f"{i + 1:<4} {x:.3f}" for i, x in
                                       enumerate(losses)],
             lambda name, run: f"{run.log[int(name.split()[0]) - 1][0]:.3f}")
    _summary(results, rows * context)
    print("gradients: of the first step, |g - g64| / |g64|, g64 from a float64 run\n")
    _by_mode(halves, "error of gradients", [group for group, _, _ in _GROUPS],
             lambda group, run: f"{run.errors[group]:.0e}")
    classes = 128256
    print(f"{classes} classes, width 32, 1 layer, 64 tokens, GPT-2's initial head "
          "weights:")
    model = Model(32, 32, 1, classes)
    torch.nn.init.normal_(model.head.weight, std=0.02)
    torch.nn.init.zeros_(model.head.bias)
    large = [(_MODES[2], run(_MODES[2], model, 4 if short else 6, 2, 32, 3e-3))]
    _summary(large, 64)
    log = large[0][1][1].log
    right = log[-1][0] < log[0][0] and all(
        math.isfinite(swamp.log[-1][0]) and swamp.errors[""] < 1.25 * stock.errors[""]
        for _, (stock, swamp) in halves + large)
    print("swamp's losses and gradients are "
          f"{'not worse than' if right else 'WORSE THAN'} stock PyTorch's")
    return right


def read(path: str) -> Tensor:
    """The bytes of a file.

    Raises:
        OSError: a file that cannot be read.
        ValueError: one that is too short for a batch.
    """
    with open(path, "rb") as file:
        text = torch.tensor(list(file.read()))
    if len(text) < 66:  # the longest context, the next byte, and another place
        raise ValueError(f"{path}: got {len(text)} bytes, expected at least 66")
    return text


def main(path: str, text: Tensor, steps: int, short: bool) -> bool:
    """Runs both parts on a text, the second one short if `short`. Returns whether the
    bits of the first are equal, and whether swamp's results of the second are not
    worse."""
    parameters = list(Model().parameters())
    print(f"{path}, {len(text)} bytes; {sum(p.numel() for p in parameters)} parameters "
          f"in {len(parameters)} tensors")
    equal = _optimizer_steps(text, steps)
    return _half_precision(text, short) and equal
