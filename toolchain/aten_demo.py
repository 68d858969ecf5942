"""Trains small transformers in 16 bits on the CPU, with stock PyTorch and with
swamp, and compares: first the optimizer's step, then the whole training.

usage: aten_demo.py FOLDER TEXT [STEPS]

FOLDER holds swamp_torch; TEXT is the file to train on. STEPS is the number of
steps of the first part; with it, the second part is a short test.
"""

import copy
import hashlib
import math
import os
import statistics
import sys
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before PyTorch's threads
os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # no messages of the profiler
import torch

SEED, BATCH, CONTEXT, WIDTH, LAYERS = 1, 4, 32, 256, 4


class Model(torch.nn.Module):
    """Bytes in, the next bytes out."""

    def __init__(self, context=CONTEXT, width=WIDTH, layers=LAYERS,
                 classes=256):
        super().__init__()
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

    def forward(self, x):
        h = self.bytes(x) + self.places.weight
        for layer in self.layers:
            h = layer(h, src_mask=self.mask)
        return self.head(self.norm(h))


def sample(text, batch, context):
    starts = torch.randint(0, len(text) - context - 1, (batch,))
    return torch.stack([text[s:s + context + 1] for s in starts.tolist()])


def train(make_optimizer, text, steps):
    """The log, one line of (loss, scale, skipped) per step; the seconds of each
    step of the optimizer; a digest of log and weights."""
    torch.manual_seed(SEED)
    model = Model()
    optimizer = make_optimizer(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 24,
                                  growth_interval=15)
    log, seconds = [], []
    for _ in range(steps):
        batch = sample(text, BATCH, CONTEXT)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), batch[:, 1:].flatten())
        scaler.scale(loss).backward()
        scale = scaler.get_scale()
        start = time.perf_counter()
        scaler.step(optimizer)
        scaler.update()
        seconds.append(time.perf_counter() - start)
        log.append((loss.item(), scale, scaler.get_scale() < scale))
        print(".", end="", flush=True)
    print()
    digest = hashlib.sha256(repr(log).encode())
    for p in model.parameters():
        digest.update(p.detach().numpy().tobytes())
    return log, seconds, digest.hexdigest()[:16]


def rows(log, other):
    print(f"{'step':>4}  {'loss, stock':>12}  {'loss, swamp':>12}  "
          f"{'scale, stock':>12}  {'scale, swamp':>12}")
    shown = set(range(0, 3)) | set(range(9, len(log), 10))
    for step, (a, b) in enumerate(zip(log, other)):
        if step not in shown and a == b:
            continue
        end = "" if a == b else "  DIFFERS"
        if a[2]:
            end += "  overflow: skipped"
        print(f"{step + 1:>4}  {a[0]:>12.7f}  {b[0]:>12.7f}  {a[1]:>12g}  "
              f"{b[1]:>12g}{end}")


def milliseconds(name, log, seconds):
    taken = [s for s, (_, _, skipped) in zip(seconds, log) if not skipped]
    print(f"{name:<52} {min(taken) * 1e3:>8.2f} "
          f"{statistics.median(taken) * 1e3:>8.2f}")


# The second part: name, dtype, whether under autocast.
MODES = (("float32", torch.float32, False),
         ("float16, autocast", torch.float16, True),
         ("float16, .half()", torch.float16, False),
         ("bfloat16, autocast", torch.bfloat16, True),
         ("bfloat16, .bfloat16()", torch.bfloat16, False))


def loss_of(model, batch):
    return torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1),
                                             batch[:, 1:].flatten())


# Which parameters are one row of the table of gradients: part of the name.
GROUPS = (("norm weight", "LayerNorm weights"), ("norm bias", "LayerNorm biases"),
          ("self_attn weight", "attention weights"),
          ("linear weight", "MLP weights"), ("head weight", "head weights"),
          ("bias", "other biases"), ("", "embeddings"))


def group_of(name):
    kind = "bias" if name.endswith("bias") else "weight"
    return next(group for text, group in GROUPS if all(
        part in name or part == kind for part in text.split()))


def relative_error(mine, true):
    return ((mine - true).norm() / true.norm()).item()


class HalfRun:
    """A training in 16 bits with GradScaler and clipping. Without autocast the
    weights are 16-bit, and the optimizer has float32 copies of them."""

    def __init__(self, model, dtype, autocast, lr):
        self.model = copy.deepcopy(model)
        if not autocast:
            self.model.to(dtype)
        self.autocast = torch.autocast("cpu", dtype, enabled=autocast)
        self.weights = list(self.model.parameters())
        self.masters = [w if w.dtype == torch.float32 else
                        torch.nn.Parameter(w.detach().float())
                        for w in self.weights]
        self.optimizer = torch.optim.AdamW(self.masters, lr=lr, fused=True)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 12)
        self.losses, self.seconds, self.error, self.operators = [], [], None, {}
        self.errors = {}  # by group

    def step(self, batch):
        exact = None
        if self.error is None:  # the first step: the same one in float64
            exact = copy.deepcopy(self.model).double()
            loss_of(exact, batch).backward()
        start = time.perf_counter()
        self.model.zero_grad()
        with self.autocast:
            loss = loss_of(self.model, batch)
        self.scaler.scale(loss).backward()
        for master, weight in zip(self.masters, self.weights):
            master.grad = weight.grad.float()
        self.scaler.unscale_(self.optimizer)
        if exact is not None:
            groups = {}
            for (name, p), mine in zip(exact.named_parameters(), self.masters):
                for key in ("", group_of(name)):
                    pair = groups.setdefault(key, ([], []))
                    pair[0].append(mine.grad.flatten())
                    pair[1].append(p.grad.flatten())
            self.errors = {key: relative_error(torch.cat(mine), torch.cat(true))
                           for key, (mine, true) in groups.items()}
            self.error = self.errors.pop("")
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        with torch.no_grad():
            torch._foreach_copy_(self.weights, self.masters)
        self.losses.append(loss.item())
        self.seconds.append(time.perf_counter() - start)

    def profiled_step(self, batch):
        with torch.profiler.profile() as profile:
            self.step(batch)
        self.seconds.pop()
        for event in profile.key_averages():
            name = event.key.replace("aten::", "").replace(
                "_scaled_dot_product_flash_attention_for_cpu", "attention")
            self.operators[name] = event.self_cpu_time_total / 1e3


def compare(swamp_torch, model, mode, text, steps, batch, context, lr=1e-3):
    """The runs of one mode with stock PyTorch's kernels and with swamp's, step by
    step in turn; only the first for float32."""
    name, dtype, autocast = mode
    print(f"{name} ", end="", flush=True)
    runs = [HalfRun(model, dtype, autocast, lr)
            for _ in range(1 if dtype == torch.float32 else 2)]
    for step in range(steps):
        x = sample(text, batch, context)
        for run, swamp in zip(runs, (False, True)):
            swamp_torch.disable()
            if swamp:
                swamp_torch.enable(half_precision=True)
            (run.step if step < steps - 1 else run.profiled_step)(x)
        print(".", end="", flush=True)
    print()
    return runs


def half_table(results, tokens):
    print(f"{'':<21} {'':<5} {'first':>8} {'last':>8} {'error of':>9} "
          f"{'tokens':>9}")
    print(f"{'training':<21} {'':<5} {'loss':>8} {'loss':>8} {'gradients':>9} "
          f"{'a second':>9} {'ratio':>8}")
    for (name, _, _), runs in results:
        for kind, run in zip(("stock", "swamp"), runs):
            best = min(run.seconds[1:])
            ratio = min(runs[0].seconds[1:]) / best
            print(f"{name if kind == 'stock' else '':<21} {kind:<5} "
                  f"{run.losses[0]:>8.4f} {run.losses[-1]:>8.4f} "
                  f"{run.error:>9.1e} {tokens / best:>9.1f} {ratio:>8.2f}")


def heads(results, text, width):
    """Three lines of column heads: for each mode stock and swamp."""
    for part in (0, 1):
        print(f"{'':<{width}}" + "".join(
            f"{mode[0].split(', ')[part]:>14}" for mode, _ in results))
    print(f"{text:<{width}}" + f"{'stock':>7}{'swamp':>7}" * len(results))


def loss_table(results):
    """The loss curves; float32's is the first."""
    print("loss")
    heads(results[1:], f"{'step':<6}{'float32':>8}", 14)
    for step, loss in enumerate(results[0][1][0].losses):
        print(f"{step + 1:<6}{loss:>8.4f}" + "".join(
            f"{run.losses[step]:>7.3f}" for _, runs in results[1:] for run in runs))


def gradient_table(results):
    heads(results, "error of gradients", 22)
    for _, group in GROUPS:
        print(f"{group:<22}" + "".join(
            f"{run.errors[group]:>7.0e}" for _, runs in results for run in runs))


def operator_table(results, count=3):
    """The operators that are among the first of any run."""
    runs = [run for _, both in results for run in both]
    top = set()
    for run in runs:
        top.update(sorted(run.operators, key=run.operators.get)[-count:])
    names = sorted(top, key=lambda n: -max(r.operators.get(n, 0) for r in runs))
    lines = [(n[:22], [r.operators.get(n, 0) for r in runs]) for n in names]
    lines.append(("all others", [sum(t for n, t in r.operators.items()
                                     if n not in top) for r in runs]))
    heads(results, "ms of one step", 22)
    for name, times in lines:
        print(f"{name:<22}" + "".join(f"{t:>7.0f}" for t in times))


def half_precision(swamp_torch, text, short):
    """The second part; returns whether swamp's runs are right."""
    steps, batch, context, width, layers = (
        (3, 2, 16, 32, 1) if short else (12, 4, 64, WIDTH, LAYERS))
    torch.manual_seed(SEED)
    model = Model(context, width, layers)
    print(f"Training in 16 bits: {steps} steps of {batch} x {context} tokens, "
          f"width {width}, {layers} layers;\nGradScaler, clipping, AdamW with "
          "float32 masters. Few steps, because stock\nPyTorch's float16 products "
          "are slow on most CPUs.")
    results = [(mode, compare(swamp_torch, model, mode, text, steps, batch,
                              context)) for mode in MODES]
    print()
    loss_table(results)
    print()
    half_table(results, batch * context)
    print("gradients: of the first step, |g - g64| / |g64|, g64 those of a float64 "
          "run\n")
    gradient_table(results[1:])
    print()
    operator_table(results[1:])

    classes = 128256
    print(f"\n{classes} classes, width 32, 1 layer, 64 tokens, GPT-2's initial "
          "head weights:")
    model = Model(32, 32, 1, classes)
    torch.nn.init.normal_(model.head.weight, std=0.02)
    torch.nn.init.zeros_(model.head.bias)
    large = [(MODES[2], compare(swamp_torch, model, MODES[2], text,
                                6, 2, 32, lr=3e-3))]
    half_table(large, 64)
    swamp_torch.disable()
    swamp_torch.enable()
    pairs = [runs for _, runs in results[1:] + large]
    right = (large[0][1][1].losses[-1] < large[0][1][1].losses[0]
             and all(math.isfinite(swamp.losses[-1])
                     and swamp.error < 1.25 * stock.error
                     for stock, swamp in pairs))
    print("swamp's losses and gradients are "
          f"{'not worse than' if right else 'WORSE THAN'} stock PyTorch's")
    return right


def main(folder, path, steps, short):
    sys.path.insert(0, folder)
    import swamp_torch
    with open(path, "rb") as file:
        text = torch.tensor(list(file.read()))
    print(f"PyTorch {torch.__version__}, swamp_torch {swamp_torch.__version__}, "
          f"{torch.get_num_threads()} threads\n{path}, {len(text)} bytes; "
          f"{sum(p.numel() for p in Model().parameters())} parameters in "
          f"{len(list(Model().parameters()))} tensors")
    hyper = dict(lr=1e-3, weight_decay=0.1)

    swamp_torch.disable()
    stock, stock_seconds, stock_digest = train(
        lambda p: torch.optim.AdamW(p, fused=True, **hyper), text, steps)
    swamp_torch.enable()
    swamp, swamp_seconds, swamp_digest = train(
        lambda p: swamp_torch.AdamW(p, **hyper), text, steps)

    rows(stock, swamp)
    skipped = sum(line[2] for line in stock)
    print(f"{steps} steps, {skipped} of them skipped for an overflow; losses and "
          f"scales are {'equal' if stock == swamp else 'NOT EQUAL'}")
    print(f"digest of losses, scales and weights:\nstock {stock_digest}, swamp "
          f"{swamp_digest}")
    print()
    print(f"{'time of a step: scaler.step() and scaler.update()':<52} "
          f"{'min ms':>8} {'median':>8}")
    milliseconds("stock, torch.optim.AdamW(fused=True)", stock, stock_seconds)
    milliseconds("swamp, swamp_torch.AdamW", swamp, swamp_seconds)
    print()
    right = half_precision(swamp_torch, text, short)
    return 0 if right and stock_digest == swamp_digest else 1


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1], sys.argv[2], int((sys.argv[3:] or [40])[0]),
                  len(sys.argv) == 4))
