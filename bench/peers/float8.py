#!/usr/bin/env python3
"""Trains GPTs on a text with the recipes of swamp_torch.float8, or with optimizers of
less memory, and compares their losses with bfloat16's.

The models of a study are trained side by side, a step each in turn, with the same
initial weights, batches and optimizer: float32 weights, AdamW, clipping, a constant
learning rate after a warmup, and, but for float32, bfloat16 activations (autocast).
The linear layers of the blocks have the recipe's casts; embedding and head do not.
In the study `memory` weights and gradients are bfloat16.
Every step's losses are written at once, so a run may be stopped at any time, and
may be one of several processes with parts of a study:

    export PYTHONPATH=build/release/python
    python3 bench/peers/float8.py --losses all.jsonl
    python3 bench/peers/float8.py --draw all.jsonl

The text is vim's documentation, 9.5 MB of English and code: apt-get install
vim-runtime, or --text.

Studies:
  recipes  10.7 million parameters, every recipe, parts of nvfp4
  sums     0.8 million parameters, sums in float32 and exact ones, three seeds
  memory   0.8 million parameters, swamp_torch.AdamW's options and PyTorch's, three seeds
"""
import argparse
import json
import math
import pathlib
import sys
import time
from typing import Any, Dict, NamedTuple, Optional

sys.dont_write_bytecode = True  # the source tree may be read-only
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import plot  # noqa: E402


class Run(NamedTuple):
    name: str
    recipe: str = ""  # of swamp_torch.float8, if any
    options: Dict[str, Any] = {}
    last: int = 0  # blocks of layers at the end without casts
    seed: int = 1
    half: bool = False  # whether weights are bfloat16
    adamw: Optional[Dict[str, Any]] = {}  # options; None: PyTorch's


class Study(NamedTuple):
    model: Dict[str, int]  # arguments of rows.Gpt
    batch: int
    runs: Dict[str, Run]


NEAREST, NO_HADAMARD = {"disable_stochastic_rounding": True}, {"disable_rht": True}
NVFP4 = [
    Run("nvfp4", "nvfp4"),
    Run("nvfp4, last block bfloat16", "nvfp4", last=1),
    Run("nvfp4, to nearest", "nvfp4", NEAREST),
    Run("nvfp4, no Hadamard", "nvfp4", NO_HADAMARD),
    Run("nvfp4, to nearest, no Hadamard", "nvfp4", {**NEAREST, **NO_HADAMARD}),
]
# te_current has the scales, and so the losses, of tensorwise.
RECIPES = [
    Run("bfloat16"), Run("float32"),
    *(Run(name, name) for name in (
        "tensorwise", "rowwise", "rowwise_with_gw_hp", "te_delayed_hybrid",
        "te_block", "mxfp8", "hif8")), *NVFP4]
SUMS = [Run(f"{name}{', ' + sums if sums else ''}, seed {seed}", recipe,
            {"accumulation": sums, "seed": seed} if sums else {}, seed=seed)
        for seed in (1, 2, 3)
        for name, recipe, sums in [("bfloat16", "", "")] + [
            (recipe, recipe, sums) for recipe in ("mxfp8", "nvfp4")
            for sums in ("float32", "exact")]]
STOCHASTIC = {"master_weights": False}
KAHAN = {"master_weights": False, "rounding": "kahan"}
ADAMW = (  # name, options, bytes of a bfloat16 parameter with its gradient
    ("float32 masters, float32 moments", {}, 16),
    ("float32 masters, bfloat16 moments", {"moments": "bfloat16"}, 12),
    ("float32 masters, 8-bit moments", {"moments": "8bit"}, 10),
    ("Kahan, bfloat16 moments", {**KAHAN, "moments": "bfloat16"}, 10),
    ("Kahan, 8-bit moments", {**KAHAN, "moments": "8bit"}, 8),
    ("stochastic, float32 moments", STOCHASTIC, 12),
    ("stochastic, bfloat16 moments", {**STOCHASTIC, "moments": "bfloat16"}, 8),
    ("stochastic, 8-bit moments", {**STOCHASTIC, "moments": "8bit"}, 6))
MEMORY = [Run(f"{name}, seed {seed}", seed=seed, half=True, adamw=options)
          for seed in (1, 2, 3)
          for name, options, _ in (*ADAMW, ("torch.optim.AdamW", None, 8))]
STUDIES = {
    "recipes": Study(dict(width=384, layers=6, heads=6, context=128), 4,
                     {run.name: run for run in RECIPES}),
    **{name: Study(dict(width=128, layers=4, heads=4, context=128), 4,
                   {run.name: run for run in runs})
       for name, runs in (("sums", SUMS), ("memory", MEMORY))},
}
RATE, WARMUP = 6e-4, 100
WINDOW = 50  # steps of a point of the picture


def trainer(run, study, text):
    """A function that makes a step and returns its loss."""
    import torch
    import rows
    import swamp_torch
    from swamp_torch import float8
    torch.manual_seed(run.seed)
    rows.CLASSES = 256
    model = rows.Gpt(**study.model)
    if run.recipe:
        kept = tuple(f"layers.{study.model['layers'] - 1 - i}."
                     for i in range(run.last))
        float8.convert_to_float8_training(
            model, module_filter_fn=lambda _, name: not name.startswith(kept),
            config=float8.Float8LinearConfig.from_recipe_name(run.recipe,
                                                              **run.options))
    if run.half:
        model.bfloat16()
    options = dict(lr=RATE, betas=(0.9, 0.95))
    optimizer = (torch.optim.AdamW(model.parameters(), fused=True, **options)
                 if run.adamw is None else
                 swamp_torch.AdamW(model.parameters(), max_norm=0.0 if run.half else 1.0,
                                   **options, **run.adamw))
    context = study.model["context"]

    def step(number):
        generator = torch.Generator().manual_seed(run.seed << 32 | number)
        starts = torch.randint(0, len(text) - context - 1, (study.batch,),
                               generator=generator)
        ids = torch.stack([text[s:s + context + 1] for s in starts.tolist()]).long()
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (number + 1) / WARMUP)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=run.name != "float32"):
            logits = model(ids[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def train(study, names, files, steps, out):
    import torch
    import swamp_torch
    swamp_torch.enable(half_precision=True)
    text = torch.frombuffer(bytearray(b"".join(
        path.read_bytes() for path in files)), dtype=torch.uint8)
    trainers = {name: trainer(study.runs[name], study, text) for name in names}
    spent, start = dict.fromkeys(names, 0.0), time.monotonic()
    with out.open("x") as file:
        for number in range(steps):
            losses = {}
            for name, step in trainers.items():
                began = time.process_time()
                losses[name] = step(number)
                spent[name] += time.process_time() - began
            print(json.dumps({"step": number, "losses": losses}), file=file,
                  flush=True)
            if number % 50 == 49 or number == steps - 1:
                print(f"{number + 1} steps, {time.monotonic() - start:.0f} s; ms of "
                      "processors a step: " + ", ".join(
                          f"{name} {value / (number + 1) * 1e3:.0f}"
                          for name, value in spent.items()), flush=True)


def read(files):
    """{run: its losses}, each as long as the shortest."""
    found = {}
    for path in files:
        for line in path.read_text().splitlines():
            for name, loss in json.loads(line)["losses"].items():
                found.setdefault(name, []).append(loss)
    steps = min(map(len, found.values()), default=0)
    return {name: losses[:steps] for name, losses in found.items()}


def means(losses):
    """The means of WINDOW steps each, with their middle steps."""
    return [(i + WINDOW / 2, sum(losses[i:i + WINDOW]) / WINDOW)
            for i in range(0, len(losses) - WINDOW + 1, WINDOW)]


def baseline(name, found):
    """The first run with the same seed."""
    return next(one for one in found
                if one.partition(", seed")[2] == name.partition(", seed")[2])


def print_table(found):
    steps = len(next(iter(found.values())))
    count = max(1, steps // 4)
    print(f"| after {steps} steps, the last {count} | loss | - the first row's |")
    print("|---|---|---|")
    for name, losses in found.items():
        rest = [a - b for a, b in zip(losses, found[baseline(name, found)])][-count:]
        print(f"| {name} | {math.fsum(losses[-count:]) / count:.4f} | "
              f"{math.fsum(rest) / count:+.4f} |")


def draw(found, out):
    """Two panels of losses minus bfloat16's: recipes, and parts of nvfp4."""
    parts = [run.name for run in NVFP4]
    drawn = plot.figure(10.2, 4.6)
    for axes, title, names in zip(
            drawn.subplots(1, 2), ("8 bits", "NVFP4"),
            ([name for name in found if name not in parts], parts)):
        tails = []
        for name in names:
            if name in found and name != "bfloat16":
                curve = means([a - b for a, b in zip(found[name],
                                                     found["bfloat16"])])
                axes.plot(*zip(*curve), label=name)
                # The first steps would hide the rest.
                tails += [y for _, y in curve[len(curve) // 8:]]
        axes.axhline(0, color="black", linewidth=0.8)
        if tails:
            margin = 0.05 * (max(tails) - min(tails))
            axes.set_ylim(min(*tails, 0) - margin, max(*tails, 0) + margin)
        axes.set(title=title, xlabel="step", ylabel="loss - bfloat16's loss")
        axes.grid(True, linestyle=":")
        axes.legend(fontsize="small")
    plot.write(drawn, out)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=STUDIES, default="recipes")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--run", action="append", metavar="NAME",
                        help="default: all of the study")
    parser.add_argument("--text", type=pathlib.Path, action="append",
                        help="default: /usr/share/vim/*/doc/*.txt")
    parser.add_argument("--losses", metavar="FILE.jsonl", type=pathlib.Path,
                        help="a new file, with a line a step")
    parser.add_argument("--draw", metavar="FILE.jsonl", type=pathlib.Path, nargs="+",
                        help="prints the table of such files and draws them")
    parser.add_argument("--out", metavar="FILE.svg", type=pathlib.Path,
                        default=ROOT / "bench/peers/float8.svg")
    options = parser.parse_args()
    if options.draw:
        found = read(options.draw)
        if not found or len(next(iter(found.values()))) < WINDOW:
            parser.error(f"--draw: got less than {WINDOW} steps, expected more")
        print_table(found)
        if "bfloat16" in found:
            draw(found, options.out)
        return
    study = STUDIES[options.study]
    for name in options.run or ():
        if name not in study.runs:
            parser.error(f"--run: got {name}, expected one of: "
                         + "; ".join(study.runs))
    files = options.text or sorted(pathlib.Path("/usr/share/vim").glob("*/doc/*.txt"))
    if not files:
        parser.error("--text: got no text, expected vim-runtime to be installed")
    if options.losses is None:
        parser.error("--losses: got nothing, expected a new file")
    sys.path.insert(0, str(ROOT / "bench/peers"))
    train(study, options.run or list(study.runs), files, options.steps,
          options.losses)


if __name__ == "__main__":
    main()
