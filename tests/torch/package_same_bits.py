"""With reproducible=True, results and gradients have the same bits on every CPU and any
number of threads: the calls of other files' tables, in processes whose vectors differ.
every_cpu.py trains models."""

import hashlib
import json
import os

from support import CI, PATH, TestCase, main, on_threads, python  # first: for python()
import package_channels
import package_convolution
from half_precision import CALLS, integers

import torch

import swamp_torch
from swamp_torch import functional as S

F = torch.nn.functional
# SWAMP_ISA, and ATEN_CPU_CAPABILITY: only those with fused multiply-add are fast.
FAST = {"avx512": "avx512", "avx2": "avx2", "neon": ""}
SLOW = {"scalar": "default", "sse4": "default"}
# name, call, shapes of its inputs
ROWS = [
    *CALLS, *package_channels.CALLS,
    *((f"convolution {i}", one.call_all, [x.shape for x in one.operands])
      for i, one in enumerate(package_convolution.Operation(*row, torch.float32)
                              for row in package_convolution.rows())),
    ("product", torch.mm, [(64, 64)] * 2), ("long product", torch.mm, [(5, 300), (300, 70)]),
    ("attention", lambda *x: S.attention(*x, causal="top_left")[0],
     [(2, 3, 67, 65), (2, 3, 101, 65), (2, 3, 101, 65)]),
    ("attention of 512 channels", F.scaled_dot_product_attention, [(1, 1, 40, 512)] * 3),
    ("embedding by frequency", lambda w: F.embedding(
        torch.arange(300) * 7 % 47, w, scale_grad_by_freq=True), [(50, 64)]),
    ("linear_cross_entropy", lambda x, w, b: S.linear_cross_entropy(
        x, w, torch.arange(200), b), [(200, 40), (301, 40), (301,)]),
    ("linear_cross_entropy, chunks", lambda x, w, b: S.linear_cross_entropy(
        x, w, torch.arange(200), b, chunk_rows=64), [(200, 40), (301, 40), (301,)]),
]
LARGE = [
    ("large product", torch.mm, [(200, 900), (900, 130)]),
    *((f"images: {name}", call, [(8, 33, 27, 29)]) for name, call in (
        ("sum", torch.sum), ("mean", lambda x: x.mean((0, 2, 3))),
        ("sum 1", lambda x: x.sum(1)), ("mse_loss", lambda x: F.mse_loss(x, x * x)),
        ("batch_norm", lambda x: F.batch_norm(x, None, None, training=True)),
        ("batch_norm of rows", lambda x: F.batch_norm(
            x.view(-1, 29), None, None, training=True)),
        ("group_norm", lambda x: F.group_norm(x, 3)),
        ("instance_norm", F.instance_norm), ("softmax", lambda x: x.softmax(1)))),
]


def digests(rows):
    """name: of the result and the gradients of its inputs."""
    swamp_torch.enable(reproducible=True)
    found = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for name, call, shapes in rows:
            inputs = [(2 * integers(*shape, seed=i)).to(dtype).requires_grad_()
                      for i, shape in enumerate(shapes)]
            y = call(*inputs)
            y.backward((2 * integers(*y.shape, seed=9)).to(y.dtype))
            digest = hashlib.sha256()
            for x in (y.detach(), *(x.grad for x in inputs)):
                digest.update(x.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
            found[f"{name} {dtype}"] = digest.hexdigest()[:12]
    return found


class SameBits(TestCase):
    def test_cpus_and_threads(self):
        found = {}
        for isa in swamp_torch.info()["available"]["isa"]:
            if isa not in {**FAST, **SLOW}:
                continue
            # Outside of CI only one set of vectors has several numbers of threads.
            counts = (1, 2, 3) if CI or not found else (2,)
            rows = "t.ROWS + t.LARGE" if isa in FAST else "t.ROWS"
            done = python(
                f"import sys; sys.path[:0] = [{os.path.dirname(__file__)!r}, {PATH!r}]\n"
                "import json, package_same_bits as t\n"
                f"print(json.dumps(t.on_threads(lambda: t.digests({rows}), {counts})))",
                SWAMP_ISA=isa, ATEN_CPU_CAPABILITY={**FAST, **SLOW}[isa])
            self.assertEqual(done.returncode, 0, done.stderr)
            for threads, result in zip(counts, json.loads(done.stdout.splitlines()[-1])):
                for name, digest in result.items():
                    found.setdefault(name, {}).setdefault(digest, []).append((isa, threads))
        self.assertTrue(found)
        self.assertEqual({name: seen for name, seen in found.items() if len(seen) > 1}, {})


if __name__ == "__main__":
    main()
