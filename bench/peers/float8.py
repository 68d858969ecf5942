#!/usr/bin/env python3
"""Trains a small GPT on the bytes of a text with the recipes of swamp_torch.float8,
and draws the losses.

All recipes have the same initial weights, batches and optimizer: float32 weights,
AdamW, and, but for float32, bfloat16 activations (autocast). The linear layers of
the blocks have the recipe's casts; embedding and head do not.

    PYTHONPATH=build/release/python python3 bench/peers/float8.py --steps 1000
"""
import argparse
import json
import math
import pathlib
import sys
import time

sys.dont_write_bytecode = True  # the source tree may be read-only
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import torch  # noqa: E402

import plot  # noqa: E402
import rows  # noqa: E402
import swamp_torch  # noqa: E402
from swamp_torch import float8  # noqa: E402

# Name, recipe of swamp_torch.float8 (None: no casts), its options.
RECIPES = [
    ("float32", None, {}),
    ("bfloat16", None, {}),
    ("te_delayed_hybrid", "te_delayed_hybrid", {}),
    ("te_current", "te_current", {}),
    ("mxfp8", "mxfp8", {}),
    ("nvfp4", "nvfp4", {}),
    ("nvfp4 to nearest", "nvfp4", {"disable_stochastic_rounding": True}),
]
BATCH, CONTEXT = 8, 128
SMOOTH = 20  # steps of a point of the picture


def batch_of(text, step):
    generator = torch.Generator().manual_seed(step)
    starts = torch.randint(0, len(text) - CONTEXT - 1, (BATCH,),
                           generator=generator)
    ids = torch.stack([text[s:s + CONTEXT + 1] for s in starts.tolist()])
    return ids[:, :-1], ids[:, 1:]


def train(name, recipe, options, text, steps, report):
    """The loss of each step."""
    torch.manual_seed(1)
    rows.CLASSES = 256
    model = rows.Gpt(width=128, layers=4, heads=4, context=CONTEXT)
    if recipe is not None:
        float8.convert_to_float8_training(
            model,
            config=float8.Float8LinearConfig.from_recipe_name(recipe, **options))
    optimizer = swamp_torch.AdamW(model.parameters(), lr=1e-3,
                                  betas=(0.9, 0.95), max_norm=1.0)
    losses, start = [], time.monotonic()

    def backward(step):
        ids, targets = batch_of(text, step)
        with torch.autocast("cpu", torch.bfloat16, enabled=name != "float32"):
            logits = model(ids)
        loss = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), targets.flatten())
        loss.backward()
        return loss.item()

    for step in range(steps):
        for group in optimizer.param_groups:  # warmup, then a cosine
            group["lr"] = 1e-3 * min(1, (step + 1) / 50) * (
                0.55 + 0.45 * math.cos(math.pi * step / steps))
        optimizer.zero_grad()
        losses.append(backward(step))
        optimizer.step()
        if step % 50 == 49 or step == steps - 1:
            print(f"{name}: step {step + 1}, loss {losses[-1]:.4f}, "
                  f"{(time.monotonic() - start) / (step + 1) * 1e3:.0f} ms a step",
                  flush=True)
    if recipe is not None and report:
        optimizer.zero_grad()
        with float8.recording(model):
            backward(steps)
        float8.report(model, plot=f"{report}-{name.replace(' ', '-')}.svg")
    return losses


def means(losses):
    """The means of so many steps each, with their middle steps."""
    return [(i + SMOOTH / 2, sum(losses[i:i + SMOOTH]) / SMOOTH)
            for i in range(0, len(losses) - SMOOTH + 1, SMOOTH)]


def draw(results, out):
    """Two panels: the losses, and how far they are above those of float32."""
    curves = {name: means(losses) for name, losses in results.items()}
    drawn = plot.figure(10.2, 4.2)
    losses, above = drawn.subplots(1, 2)
    for name, curve in curves.items():
        losses.plot(*zip(*curve), label=name)
        above.plot([x for x, _ in curve],
                   [y - b for (_, y), (_, b) in zip(curve, curves["float32"])])
    # The first steps would hide the rest.
    tails = [y for line in above.lines for y in line.get_ydata()[len(curve) // 5:]]
    above.set_ylim(min(tails), max(tails) + 0.05 * (max(tails) - min(tails) or 1))
    for axes, title in ((losses, "loss"), (above, "loss above that of float32")):
        axes.set(xlabel="step", ylabel=title)
        axes.grid(True, linestyle=":")
    losses.legend(fontsize="small")
    plot.write(drawn, out)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--text", type=pathlib.Path, action="append",
                        help="default: the C++ sources in master and slave")
    parser.add_argument("--recipe", action="append",
                        choices=[name for name, _, _ in RECIPES])
    parser.add_argument("--out", metavar="FILE.svg", type=pathlib.Path,
                        default=ROOT / "bench/peers/float8.svg")
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path,
                        help="keeps the losses; what it has is not trained again")
    parser.add_argument("--report", metavar="PREFIX",
                        help="report() of each recipe, and PREFIX-RECIPE.svg")
    options = parser.parse_args()
    if options.steps < 2 * SMOOTH:
        parser.error(f"--steps: got {options.steps}, expected at least "
                     f"{2 * SMOOTH}")
    files = options.text or sorted(
        path for folder in ("master", "slave")
        for path in (ROOT / folder).rglob("*.cpp"))
    text = torch.frombuffer(bytearray(b"".join(
        path.read_bytes() for path in files)), dtype=torch.uint8).long()
    results = (json.loads(options.json.read_text())
               if options.json and options.json.exists() else {})
    swamp_torch.enable(half_precision=True)
    for name, recipe, recipe_options in RECIPES:
        if options.recipe and name not in (*options.recipe, "float32"):
            continue
        if len(results.get(name, [])) != options.steps:
            results[name] = train(name, recipe, recipe_options, text,
                                  options.steps, options.report)
            if options.json:
                options.json.write_text(json.dumps(results))
    for name, losses in results.items():
        last = losses[-max(1, len(losses) // 10):]
        print(f"{name:18} loss of the last {len(last)} steps "
              f"{sum(last) / len(last):.4f}")
    draw(results, options.out)


if __name__ == "__main__":
    main()
