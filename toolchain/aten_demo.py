"""Trains a small transformer under autocast float16 with GradScaler on the CPU
twice, with stock PyTorch and with swamp, and compares.

usage: aten_demo.py FOLDER TEXT [STEPS]   (the folder that holds swamp_torch)
"""

import hashlib
import os
import statistics
import sys
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before PyTorch's threads
import torch

SEED, BATCH, CONTEXT, WIDTH, LAYERS = 1, 4, 32, 256, 4


class Model(torch.nn.Module):
    """Bytes in, the next bytes out."""

    def __init__(self):
        super().__init__()
        self.bytes = torch.nn.Embedding(256, WIDTH)
        self.places = torch.nn.Embedding(CONTEXT, WIDTH)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(
                WIDTH, 4, 4 * WIDTH, dropout=0.0, activation="gelu",
                batch_first=True, norm_first=True) for _ in range(LAYERS))
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, 256)
        mask = torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1)
        self.register_buffer("mask", mask)

    def forward(self, x):
        h = self.bytes(x) + self.places.weight
        for layer in self.layers:
            h = layer(h, src_mask=self.mask)
        return self.head(self.norm(h))


def train(make_optimizer, text, steps):
    """The log, a line of (loss, scale, skipped) a step; the seconds of each
    step of the optimizer; a digest of log and weights."""
    torch.manual_seed(SEED)
    model = Model()
    optimizer = make_optimizer(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 24,
                                  growth_interval=15)
    log, seconds = [], []
    for _ in range(steps):
        starts = torch.randint(0, len(text) - CONTEXT - 1, (BATCH,))
        batch = torch.stack([text[s:s + CONTEXT + 1] for s in starts.tolist()])
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


def main(folder, path, steps):
    sys.path.insert(0, folder)
    import swamp_torch
    with open(path, "rb") as file:
        text = torch.tensor(list(file.read()))
    print(f"PyTorch {torch.__version__}, swamp_torch {swamp_torch.__version__}, "
          f"{torch.get_num_threads()} threads; {path}, {len(text)} bytes; "
          f"{sum(p.numel() for p in Model().parameters())} parameters in "
          f"{len(list(Model().parameters()))} tensors")
    hyper = dict(lr=1e-3, weight_decay=0.1)

    swamp_torch.disable()
    stock, stock_seconds, stock_digest = train(
        lambda p: torch.optim.AdamW(p, fused=True, **hyper), text, steps)
    swamp_torch.enable()
    swamp, swamp_seconds, swamp_digest = train(
        lambda p: swamp_torch.MixedPrecisionAdamW(p, **hyper), text, steps)

    rows(stock, swamp)
    skipped = sum(line[2] for line in stock)
    print(f"{steps} steps, {skipped} of them skipped for an overflow; losses and "
          f"scales are {'equal' if stock == swamp else 'NOT EQUAL'} step by step")
    print(f"digest of losses, scales and weights: stock {stock_digest}, swamp "
          f"{swamp_digest}")
    print()
    print(f"{'time of a step: scaler.step() and scaler.update()':<52} "
          f"{'min ms':>8} {'median':>8}")
    milliseconds("stock, torch.optim.AdamW(fused=True)", stock, stock_seconds)
    milliseconds("swamp, swamp_torch.MixedPrecisionAdamW", swamp, swamp_seconds)
    return 0 if stock_digest == swamp_digest else 1


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1], sys.argv[2], int((sys.argv[3:] or [40])[0])))
