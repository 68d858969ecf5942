#!/usr/bin/env python3
"""Writes exact.jsonl: exact results of norms, attention and mixtures of experts.

usage: exact.py

Needs numpy; computes in float64, from inputs that every dtype holds exactly:
element i of input `seed` is ((7 i^2 + 37 i + 101 seed) mod 257 - 128) / 64. A
line is a call: `operation`, its `numbers`, and for each of its `results`
[step, exact values, magnitudes], of every step-th element. A magnitude is the sum
of those of the terms that make the element: rounding errors are relative to it.
A value of 1e308 stands for inf.
"""

import json
import os

import numpy as np

SAMPLES = 80
EPS = 1e-5


def values(seed, *shape):
    i = np.arange(int(np.prod(shape)), dtype=np.int64)
    return (((7 * i * i + 37 * i + 101 * seed) % 257 - 128) / 64).reshape(shape)


def sampled(exact, size):
    exact, size = np.asarray(exact).ravel(), np.asarray(size).ravel()
    step = max(1, len(exact) // SAMPLES) | 1
    return [step, [float(f"{x:.9g}") for x in np.minimum(exact[::step], 1e308)],
            [float(f"{x:.4g}") for x in size[::step]]]


def record(operation, numbers, **results):
    return {"operation": operation, "numbers": numbers,
            "results": {name: sampled(*both) for name, both in results.items()}}


def norm(rows, columns, weight, bias, zero_centered, mean):
    x, g = values(1, rows, columns), values(2, rows, columns)
    w = values(3, columns) + zero_centered if weight else np.ones(columns)
    b = values(4, columns) if bias and mean else np.zeros(columns)
    average = x.mean(1, keepdims=True) * mean
    rstd = 1 / np.sqrt(((x - average)**2).mean(1, keepdims=True) + EPS)
    xhat, h = (x - average) * rstd, g * w
    dx = rstd * (h - h.mean(1, keepdims=True) * mean
                 - xhat * (h * xhat).mean(1, keepdims=True))
    size = rstd * (abs(h) + abs(h).mean(1, keepdims=True)
                   + abs(xhat) * abs(h * xhat).mean(1, keepdims=True))
    numbers = dict(rows=rows, columns=columns, weight=weight, bias=bias,
                   zero_centered=zero_centered, mean=mean)
    return record("norm", numbers, y=(xhat * w + b, abs(xhat * w) + abs(b)),
                  mean=(average, abs(x).mean(1)), rstd=(rstd, rstd), dx=(dx, size),
                  dweight=((g * xhat).sum(0), abs(g * xhat).sum(0)),
                  dbias=(g.sum(0) * mean, abs(g).sum(0)))


def attention(batch, heads, key_heads, queries, keys, columns, value_columns,
              causal="none", mask="none"):
    q, k, v = (values(1, batch, heads, queries, columns),
               values(2, batch, key_heads, keys, columns),
               values(3, batch, key_heads, keys, value_columns))
    g = values(4, batch, heads, queries, value_columns)
    shape = {"none": (1, 1, 1, 1), "float": (1, heads, queries, keys),
             "dtype": (1, 1, queries, keys), "bool": (1, 1, queries, keys),
             "key": (batch, 1, 1, keys)}[mask]
    i = np.arange(int(np.prod(shape)))
    add = values(5, *shape) if mask in ("float", "dtype") else np.zeros(shape)
    hidden = (13 * i * i + 5 * i) % 7 < 2
    if mask in ("float", "dtype", "bool"):
        hidden |= i // keys % queries == 3
    if mask != "none":
        add = np.where(hidden.reshape(shape), -np.inf, add)
    group = heads // key_heads
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scale = 1 / np.sqrt(columns)
    score = np.einsum("bhic,bhjc->bhij", q, k) * scale + add
    visible = np.arange(queries)[:, None] + 1
    visible = {"none": keys, "top_left": visible,
               "bottom_right": visible + keys - queries}[causal]
    score = np.where(np.arange(keys) < visible, score, -np.inf)
    top = score.max(3, keepdims=True)
    p = np.exp(score - np.where(top == -np.inf, 0, top))
    total = p.sum(3, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.where(total == 0, np.inf, top + np.log(total))
    p = p / np.where(total == 0, 1, total)
    out = p @ v
    dot, dots = (g * out).sum(3, keepdims=True), abs(g * out).sum(3, keepdims=True)
    product = np.einsum("bhic,bhjc->bhij", g, v)
    products = np.einsum("bhic,bhjc->bhij", abs(g), abs(v))
    s, size = scale * p * (product - dot), scale * p * (products + dots)

    def grouped(x):
        return x.reshape(batch, key_heads, group, keys, -1).sum(2)
    t = (0, 1, 3, 2)
    numbers = dict(batch=batch, heads=heads, key_heads=key_heads, queries=queries,
                   keys=keys, columns=columns, value_columns=value_columns,
                   causal=["none", "top_left", "bottom_right"].index(causal),
                   mask=["none", "float", "dtype", "bool", "key"].index(mask))
    return record(
        "attention", numbers, out=(out, p @ abs(v)),
        lse=(lse, np.where(total == 0, 0, abs(top) + 1)),
        dq=(s @ k, size @ abs(k)),
        dk=(grouped(s.transpose(t) @ q), grouped(size.transpose(t) @ abs(q))),
        dv=(grouped(p.transpose(t) @ g), grouped(p.transpose(t) @ abs(g))))


def permutation(tokens, choices, columns, probs):
    rows = tokens * choices
    x, y = values(1, tokens, columns), values(2, rows, columns)
    token_of = (np.arange(rows) * 7 + 3) % rows % tokens
    factor = abs(values(3, rows)) if probs else np.ones(rows)
    used = np.arange(rows) != 7
    copies = np.where(used[:, None], x[token_of] * factor[:, None], 0)
    sums, sizes = np.zeros((tokens, columns)), np.zeros((tokens, columns))
    np.add.at(sums, token_of[used], (y * factor[:, None])[used])
    np.add.at(sizes, token_of[used], abs(y * factor[:, None])[used])
    products = np.where(used[:, None], x[token_of] * y, 0)
    return record("permutation", dict(tokens=tokens, choices=choices,
                                      columns=columns, probs=probs),
                  copies=(copies, abs(copies)), sums=(sums, sizes),
                  dots=(products.sum(1), abs(products).sum(1)))


def losses(tokens, experts):
    x = values(1, tokens, experts)
    counts = np.arange(experts) * 7919 % 100
    factor = experts * 0.01 / (2 * (2 * tokens)**2)
    lse = np.log(np.exp(x).sum(1, keepdims=True))
    p = np.exp(x - lse)
    aux = x * counts * factor
    z = 0.5 * lse**2 / tokens
    dz = 3 * 0.5 * 2 * lse * p / tokens
    daux = np.broadcast_to(1024 * factor * counts, x.shape)
    return record("losses", dict(tokens=tokens, experts=experts),
                  aux=(aux.sum(), abs(aux).sum()), z=(z.sum(), z.sum()),
                  daux=(daux, daux), dz=(dz, abs(dz)))


def lines():
    for mean in (1, 0):
        for case in ((1, 1, 1, 1, 0), (65, 33, 0, 0, 0), (129, 129, 1, 1, 1),
                     (5001, 16, 1, 0, 0), (70, 1025, 1, 1, 0), (5, 9000, 1, 1, 0)):
            yield norm(*case, mean)
    yield attention(1, 1, 1, 1, 1, 1, 1)
    yield attention(2, 3, 3, 67, 101, 65, 65)
    yield attention(1, 2, 2, 128, 128, 64, 64)
    yield attention(2, 2, 2, 130, 130, 64, 64, "top_left")
    yield attention(1, 2, 2, 90, 33, 16, 16, "top_left")
    yield attention(1, 2, 2, 90, 33, 16, 16, "bottom_right")
    yield attention(1, 2, 2, 33, 90, 16, 16, "bottom_right")
    yield attention(2, 6, 2, 40, 50, 32, 32, "bottom_right")
    for mask in ("float", "dtype"):
        yield attention(2, 2, 2, 50, 70, 32, 32, mask=mask)
    yield attention(2, 4, 2, 50, 70, 32, 32, mask="bool")
    yield attention(2, 4, 4, 50, 70, 32, 32, "top_left", "key")
    yield attention(1, 2, 2, 30, 40, 96, 96)
    yield attention(1, 2, 2, 30, 40, 24, 40)
    # Gradients of more terms than one launch adds.
    yield attention(1, 2, 2, 70, 1300, 8, 8)
    yield attention(1, 2, 1, 800, 1090, 8, 8, "top_left")
    yield attention(1, 9, 1, 540, 90, 8, 8, "bottom_right")
    yield attention(1, 12, 2, 40, 150, 8, 8, "bottom_right")
    for case in ((1, 1, 1), (50, 1, 17), (301, 2, 64), (40, 8, 1000), (9, 4, 5000)):
        for probs in (0, 1):
            yield permutation(*case, probs)
    for case in ((1, 1), (77, 8), (4000, 64), (11, 5000)):
        yield losses(*case)


if __name__ == "__main__":
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(f"{folder}/exact.jsonl", "w") as file:
        for line in lines():
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
