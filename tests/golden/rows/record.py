#!/usr/bin/env python3
"""Writes softmax.jsonl, cross_entropy.jsonl and moe.jsonl: what Megatron-LM's own
functions and PyTorch give on a CPU, and the admissible words of an oracle of 60
digits.

usage: record.py MEGATRON [NAME]

NAME is one of the three; by default all are written.

MEGATRON is a checkout of github.com/NVIDIA/Megatron-LM (without git, set
MEGATRON_COMMIT); python needs PyTorch, mpmath, packaging and triton (which is
imported only). Takes a minute. Words are the bits of
float16 or bfloat16 (4 hex digits) or float32 (8), without spaces.

The first line of softmax.jsonl has the sources and `scores`, 1021 words by dtype
and kind. Every other line is a call on a matrix of `rows` x `columns`, of which
element (i, j) is word (389 i + j) mod 1021:
  mask      none; some: those with (7 i + 13 j) mod 5 == 0; row: the same, and
            all of row 1; causal
  scale     float32 word
  apex      the scale is first rounded to the dtype, and fully masked rows are 0;
            else they are uniform. Not run: apex's kernels need a GPU
  kept, step  the rows that are recorded, and every step-th column of them
  words     for each row kept, the correctly rounded results; "nan" for a row
  other     [row kept, column kept, word]: also admissible, because the exact
            value is within 2^-18 of the middle of two words
  megatron  [row kept, column kept, word] of FusedScaleMaskSoftmax without its
            fused kernel that are not in `words`; missing if it was not run
  grads     kind of `scores` that is the gradient of the result: then `gradient`
            has Megatron's words for the gradient of all scores, and no `words`

The first line of cross_entropy.jsonl has `logits` by dtype, [rows, classes],
`targets`, and float32 `grads` of the losses. A line is vocab_parallel_cross_entropy
of so many `ranks` (gloo): `losses` and `gradient` of each rank; ranks 0 is PyTorch's
cross_entropy in float32. A line with `zeros` is the oracle's, for so many float16
logits of 0: the loss, and the gradients of the target's and of another logit if
that of the loss is `grad`.

A line of moe.jsonl, after the first one, is a router's float32 logits [tokens,
experts], whose probabilities are all different:
  routes      [arguments of topk_routing_with_score_function, experts of each token
              in ascending order]; the first has softmax before the choice:
  probs       float32 words, those of its choices
  counts      its tokens by expert
  indices     its sorted_indices of permute
  capacities  [factor, min_capacity, get_capacity]
  drops       apply_router_token_dropping with a factor and a capacity: `probs` has
              1 for each choice that is kept; `position` how many each expert keeps,
              because torch.topk leaves open which; `padded` the sorted_indices of
              permute with drop_and_pad, of the map that pad_to_capacity and the
              policy probs give (empty if the capacity is above the tokens)
"""

import json
import os
import struct
import subprocess
import sys
import tempfile

import mpmath
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
HALF = ("f16", "bf16")
COLUMNS = (17, 32, 129, 1000, 1024, 4095, 4096, 4097, 16384)
SCALES = (1.0, 96 ** -0.5, 7.0)
CHUNK = 4096
LOWEST = -87.3  # below, the exponential is 0
PERIOD = 1021
ROWS, CLASSES = 6, 64


def words(tensor):
    """The bits of a tensor's elements as text."""
    flat = tensor.detach().contiguous().flatten()
    if flat.element_size() == 2:
        return "".join(f"{v & 0xffff:04x}" for v in flat.view(torch.int16).tolist())
    return "".join(f"{v & 0xffffffff:08x}" for v in flat.view(torch.int32).tolist())


def float_word(value):
    return struct.pack(">f", value).hex()


# ---- The oracle

class Format:
    """Rounding of exact numbers to a 16-bit format."""

    def __init__(self, name):
        self.fraction, self.least = (10, -14) if name == "f16" else (7, -126)

    def unit(self, exact):
        exponent = max(int(mpmath.floor(mpmath.log(exact, 2))), self.least)
        return mpmath.mpf(2) ** (exponent - self.fraction)

    def candidates(self, exact):
        """The nearest number, and the other one if it is nearly as near."""
        if exact == 0:
            return [0.0]
        unit = self.unit(exact)
        below = mpmath.floor(exact / unit)
        rest = exact / unit - below
        near = [below, below + 1]
        if rest > 0.5 or (rest == 0.5 and below % 2):
            near.reverse()
        close = abs(rest - mpmath.mpf(0.5)) * unit <= exact * mpmath.mpf(2) ** -18
        return [float(n * unit) for n in near[:2 if close else 1]]


def scores_of(base, rows, columns):
    i, j = np.arange(rows)[:, None], np.arange(columns)
    return base[torch.from_numpy((389 * i + j) % PERIOD)]


def mask_of(kind, rows, columns):
    i, j = np.arange(rows)[:, None], np.arange(columns)
    if kind == "causal":
        return torch.from_numpy(j > i)
    mask = torch.from_numpy((7 * i + 13 * j) % 5 == 0)
    if kind == "row":
        mask[1] = True
    return mask if kind != "none" else torch.zeros_like(mask)


def oracle_row(x, mask, causal, scale, apex, kept, form):
    """Candidates of the kept columns of a row of float32 numbers; None: nan."""
    zero = [0.0]
    count = int((~mask).sum()) if causal else len(x)
    e = (x * np.float32(scale)).astype(np.float32)
    if not causal:
        e[mask] = np.float32(-10000)
    e = e[:count]
    if np.isnan(e).any() or e.max() == np.inf or e.max() == -np.inf:
        return None
    largest = e.max()
    if apex and largest == -10000 and mask.all():
        return [zero for _ in kept]
    known, parts, weights, total = {}, [], [], mpmath.mpf(0)

    def exp(t):
        if t not in known:
            known[t] = mpmath.exp(mpmath.mpf(float(t)))
        return known[t]

    with np.errstate(invalid="ignore"):
        for begin in range(0, count, CHUNK):
            chunk = e[begin:begin + CHUNK]
            top = chunk.max()
            d = (chunk - top).astype(np.float32)
            weight = exp(np.float32(top - largest)) if top != -np.inf else mpmath.mpf(0)
            parts.append(d)
            weights.append(weight)
            numbers, counts = np.unique(d[~np.isnan(d)], return_counts=True)
            total += weight * mpmath.fsum(
                exp(t) * int(n) for t, n in zip(numbers, counts))
    result = []
    for j in kept:
        if j >= count:
            result.append(zero)
            continue
        d = parts[j // CHUNK][j % CHUNK]
        if np.isnan(d) or d == -np.inf:
            result.append(zero)
            continue
        found = form.candidates(exp(d) * weights[j // CHUNK] / total)
        result.append(found if d >= LOWEST or found[0] == 0 else [0.0, found[0]])
    return result


# ---- Megatron-LM's softmax

def megatron_softmax(name, mask_type, scale):
    from megatron.core.fusions.fused_softmax import FusedScaleMaskSoftmax
    from megatron.core.transformer.utils import attention_mask_func
    return FusedScaleMaskSoftmax(name == "f16", name == "bf16", mask_type, False,
                                 attention_mask_func, True, scale)


def softmax_record(name, kind, base, columns, scale, mask_kind, apex):
    from megatron.core.transformer.enums import AttnMaskType
    causal = mask_kind == "causal"
    rows = columns if causal else 4 if kind == "special" else 2
    kept = sorted({0, 1, columns // 2, columns - 1}) if causal else list(range(rows))
    step = 1 if columns <= 129 else columns // 48 | 1
    x = scores_of(base, rows, columns)
    mask = mask_of(mask_kind, rows, columns)
    number = torch.tensor(scale)
    if apex:
        number = number.to(DTYPES[name]).float()
    number = number.item()
    form = Format(name)
    record = {"dtype": name, "scores": kind, "rows": rows, "columns": columns,
              "mask": mask_kind, "scale": float_word(scale), "apex": apex,
              "kept": kept, "step": step, "words": [], "other": []}
    best = []
    for r, row in enumerate(kept):
        found = oracle_row(x[row].float().numpy(), mask[row].numpy(), causal, number,
                           apex, range(0, columns, step), form)
        best.append(found)
        if found is None:
            record["words"].append("nan")
            continue
        record["words"].append(words(torch.tensor(
            [one[0] for one in found]).to(DTYPES[name])))
        for c, one in enumerate(found):
            if len(one) > 1:
                record["other"].append(
                    [r, c, words(torch.tensor(one[1]).to(DTYPES[name]))])
    if apex:
        return record
    y = megatron_softmax(name, AttnMaskType.causal if causal else AttnMaskType.padding,
                         number)(x[None, None],
                                 None if mask_kind == "none" else mask[None, None])
    y = y[0, 0][kept][:, ::step]
    record["megatron"] = []
    for r, found in enumerate(best):
        if found is None:
            assert y[r].isnan().all()
            continue
        for c, one in enumerate(found):
            value = y[r, c].item()
            if value != one[0]:
                # Where there is one admissible word, Megatron's is that one;
                # beyond a chunk PyTorch rounds x - max differently.
                assert value in one or columns > CHUNK, (record, r, c, value, one)
                record["megatron"].append([r, c, words(y[r, c])])
    return record


def backward_record(name, base, gradients, columns, scale, mask_kind):
    from megatron.core.transformer.enums import AttnMaskType
    causal = mask_kind == "causal"
    rows = columns if causal else 2
    x = scores_of(base, rows, columns).requires_grad_()
    g = scores_of(gradients, rows, columns)
    mask = mask_of(mask_kind, rows, columns)
    y = megatron_softmax(name, AttnMaskType.causal if causal else AttnMaskType.padding,
                         torch.tensor(scale).item())(
        x[None, None], None if mask_kind == "none" else mask[None, None])
    y.backward(g[None, None])
    return {"dtype": name, "scores": "ordinary", "grads": "other", "rows": rows,
            "columns": columns, "mask": mask_kind, "scale": float_word(scale),
            "apex": False, "gradient": words(x.grad)}


def softmax_lines(commit):
    generator = torch.Generator().manual_seed(20260801)

    def draw(size, name):
        return (torch.randn(PERIOD, generator=generator) * size).to(DTYPES[name])
    scores = {name: {"ordinary": draw(2, name), "other": draw(1, name)}
              for name in HALF}
    for name in HALF:
        special = scores[name]["special"] = draw(2, name)
        special[5:389:11] = -torch.inf     # in row 0
        special[389 + 3] = torch.nan       # in row 1
        special[2 * 389 + 2] = torch.inf   # in row 2
        special[146:146 + 33] = -torch.inf  # all of row 3, of 33 columns
    yield {"torch": torch.__version__, "megatron": commit,
           "scores": {n: {k: words(v) for k, v in kinds.items()}
                      for n, kinds in scores.items()}}
    for name in HALF:
        base = scores[name]["ordinary"]
        for columns in COLUMNS:
            for mask in ("none", "some", "row", "causal"):
                if mask == "causal" and columns > 1024:
                    continue
                for scale in SCALES:
                    yield softmax_record(name, "ordinary", base, columns, scale, mask,
                                         False)
                if mask in ("none", "row"):
                    yield softmax_record(name, "ordinary", base, columns, SCALES[1],
                                         mask, True)
        yield softmax_record(name, "special", scores[name]["special"], 33, 1.0, "none",
                             False)
        for columns, mask in ((129, "none"), (129, "some"), (32, "causal")):
            yield backward_record(name, base, scores[name]["other"], columns,
                                  SCALES[1], mask)


# ---- Cross entropy

def cross_entropy_inputs():
    generator = torch.Generator().manual_seed(20260802)
    logits = torch.randn(ROWS, CLASSES, generator=generator) * 3
    return ({n: logits.to(d) for n, d in DTYPES.items()},
            torch.randint(0, CLASSES, (ROWS,), generator=generator),
            torch.randn(ROWS, generator=generator) * 100)


def rank_work(rank, ranks, folder):
    from megatron.core.tensor_parallel.cross_entropy import \
        vocab_parallel_cross_entropy
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank,
                            world_size=ranks)
    logits, targets, grads = cross_entropy_inputs()
    columns = CLASSES // ranks
    results = {}
    for name in DTYPES:
        for smoothing in (0.0, 0.1):
            x = logits[name][:, rank * columns:(rank + 1) * columns].contiguous()
            x.requires_grad_()
            # Megatron's function overwrites float32 logits.
            loss = vocab_parallel_cross_entropy(x.clone(), targets, smoothing,
                                                dist.group.WORLD)
            kept = words(loss)
            loss.backward(grads)
            results[f"{name}/{smoothing}"] = [kept, words(x.grad)]
    with open(f"{folder}/{rank}", "w") as file:
        json.dump(results, file)
    dist.destroy_process_group()


def cross_entropy_lines(commit):
    logits, targets, grads = cross_entropy_inputs()
    yield {"torch": torch.__version__, "megatron": commit, "rows": ROWS,
           "classes": CLASSES, "logits": {n: words(x) for n, x in logits.items()},
           "targets": targets.tolist(), "grads": words(grads)}
    for ranks in (1, 2, 4):
        with tempfile.TemporaryDirectory() as folder:
            mp.start_processes(rank_work, (ranks, folder), ranks, start_method="spawn")
            found = []
            for rank in range(ranks):
                with open(f"{folder}/{rank}") as file:
                    found.append(json.load(file))
        for key in found[0]:
            name, smoothing = key.split("/")
            yield {"ranks": ranks, "dtype": name, "smoothing": float(smoothing),
                   "losses": [one[key][0] for one in found],
                   "gradient": [one[key][1] for one in found]}
    for name in DTYPES:
        for smoothing in (0.0, 0.1):
            x = logits[name].clone().requires_grad_()
            loss = torch.nn.functional.cross_entropy(
                x.float(), targets, reduction="none", label_smoothing=smoothing)
            loss.backward(grads)
            yield {"ranks": 0, "dtype": name, "smoothing": smoothing,
                   "losses": [words(loss)], "gradient": [words(x.grad)]}
    for classes in (65504, 65520, 128256):
        for grad in (1.0, 65536.0):
            exact = mpmath.mpf(grad) / classes
            yield {"zeros": classes, "grad": grad,
                   "loss": float_word(float(mpmath.log(classes))),
                   "gradient": [words(torch.tensor([float(exact) - grad, float(exact)],
                                                   dtype=torch.float64).half())]}


# ---- Mixtures of experts

def moe_lines(commit):
    from megatron.core.transformer.moe import moe_utils
    yield {"torch": torch.__version__, "megatron": commit}
    generator = torch.Generator().manual_seed(20260803)
    for tokens, experts, topk in ((5, 4, 1), (64, 8, 2), (40, 16, 4), (24, 64, 8)):
        logits = torch.randn(tokens, experts, generator=generator)
        bias = [e % 3 - 1.0 for e in range(experts)]
        variants = [dict(use_pre_softmax=True), dict()]
        for function in ("sigmoid", "sqrtsoftplus"):
            variants += [dict(score_function=function),
                         dict(score_function=function, expert_bias=bias)]
        for groups, group_topk in ((4, 1), (4, 2), (8, 3)):
            if group_topk <= topk <= group_topk * (experts // groups):
                variants += [dict(one, num_groups=groups, group_topk=group_topk)
                             for one in variants[:6:2]]
        routes = []
        for arguments in variants:
            named = dict(arguments)
            if "expert_bias" in named:
                named["expert_bias"] = torch.tensor(bias)
            p, m = moe_utils.topk_routing_with_score_function(logits, topk, **named)
            routes.append([arguments, m.nonzero()[:, 1].tolist()])
            if not routes[1:]:
                probs, routing_map = p, m
        record = {"tokens": tokens, "experts": experts, "topk": topk,
                  "logits": words(logits), "routes": routes,
                  "probs": words(probs[routing_map]),
                  "counts": routing_map.sum(dim=0).tolist(),
                  "indices": moe_utils.permute(
                      logits, routing_map, num_out_tokens=tokens * topk)[2].tolist(),
                  "capacities": [], "drops": []}
        for factor in (0.5, 1.0, 1.25, 4.0):
            for least in (None, 9):
                record["capacities"].append([factor, least, moe_utils.get_capacity(
                    tokens * topk, experts, factor, least)])
            capacity = record["capacities"][-2][2]

            def dropped(policy, pad):
                return moe_utils.apply_router_token_dropping(
                    probs, routing_map, topk, factor, policy, pad)[1]
            drop = {"factor": factor, "capacity": capacity,
                    "probs": "".join(str(int(kept)) for kept in
                                     dropped("probs", False)[routing_map]),
                    "position": dropped("position", False).sum(dim=0).tolist(),
                    "padded": []}
            if capacity <= tokens:
                drop["padded"] = moe_utils.permute(
                    logits, dropped("probs", True), drop_and_pad=True,
                    num_out_tokens=capacity * experts)[2].tolist()
            record["drops"].append(drop)
        yield record


def main():
    makers = {"cross_entropy": cross_entropy_lines, "softmax": softmax_lines,
              "moe": moe_lines}
    names = sys.argv[2:] or list(makers)
    if not 2 <= len(sys.argv) <= 3 or sys.argv[1].startswith("-") or (
            names[0] not in makers):
        sys.exit(__doc__)
    megatron = os.path.abspath(sys.argv[1])
    if not os.path.isdir(f"{megatron}/megatron/core"):
        sys.exit(f"record: {megatron}: got no folder megatron/core, expected a "
                 "checkout of Megatron-LM")
    os.environ["PYTHONPATH"] = f"{megatron}:{os.environ.get('PYTHONPATH', '')}"
    sys.path.insert(0, megatron)
    commit = os.environ.get("MEGATRON_COMMIT") or subprocess.run(
        ["git", "-C", megatron, "rev-parse", "HEAD"], text=True,
        capture_output=True).stdout.strip()
    mpmath.mp.dps = 60
    folder = os.path.dirname(os.path.abspath(__file__))
    for name in names:
        with open(f"{folder}/{name}.jsonl", "w") as file:
            for line in makers[name](commit):
                file.write(json.dumps(line, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
