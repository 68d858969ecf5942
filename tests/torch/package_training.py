"""swamp_torch.enable(half_precision=True): gradients, autocast, torch.compile, and
attention, against float64 and PyTorch's own."""

import os
import shutil
import sysconfig
import unittest

from support import TestCase, main
from half_precision import EPS, HALF, assert_as_stock, error, randn, use

import torch

F = torch.nn.functional


def tearDownModule():
    use(False)


class Training(TestCase):
    def gradients(self, model, loss_of, *inputs):
        inputs = [x.clone().requires_grad_() for x in inputs]
        model.zero_grad()
        out = loss_of(model, *inputs)
        out.float().square().mean().backward()
        return [out.detach()] + [t.grad.clone()
                                 for t in [*inputs, *model.parameters()]]

    def check(self, make, loss_of, dtype, *shapes):
        """No tensor has a larger error than with PyTorch's kernels."""
        torch.manual_seed(0)
        model, inputs = make(), [torch.randn(s).to(dtype) for s in shapes]
        seen = {}
        for way in (False, True):
            use(way)
            seen[way] = self.gradients(model.to(dtype), loss_of, *inputs)
        exact = self.gradients(model.double(), loss_of,
                               *[x.double() for x in inputs])
        for i, (a, b, e) in enumerate(zip(seen[True], seen[False], exact)):
            self.assertIs(a.dtype, dtype)
            self.assertLessEqual(error(a, e), 1.1 * error(b, e) + 1e-9, (dtype, i))

    def test_modules(self):
        def mlp():
            return torch.nn.Sequential(torch.nn.Linear(48, 96), torch.nn.ReLU(),
                                       torch.nn.Linear(96, 32, bias=False))

        for dtype in HALF:
            self.check(mlp, lambda m, x: m(x), dtype, (50, 48))
            self.check(mlp, lambda m, x: m(x), dtype, (5, 10, 48))
            self.check(torch.nn.Identity, lambda m, x, y: x @ y, dtype,
                       (3, 20, 30), (3, 30, 10))
            self.check(torch.nn.Identity,
                       lambda m, x, y, z: torch.baddbmm(z, x, y, beta=0.5), dtype,
                       (3, 20, 30), (3, 30, 10), (3, 20, 10))

    def test_autocast(self):
        model = torch.nn.Linear(64, 32)
        x = torch.randn(20, 64)
        for dtype in HALF:
            seen = []
            for way in (False, True):
                use(way)
                model.zero_grad()
                with torch.autocast("cpu", dtype=dtype):
                    out = model(x)
                    attention = F.scaled_dot_product_attention(
                        *[x.view(1, 4, 20, 16)] * 3)
                out.float().square().sum().backward()
                self.assertIs(model.weight.grad.dtype, torch.float32)
                seen.append([out, attention, model.weight.grad.clone()])
            for stock, ours in zip(*seen):
                self.assertIs(ours.dtype, stock.dtype)
                torch.testing.assert_close(ours, stock, rtol=4 * EPS[dtype],
                                           atol=4 * EPS[dtype])

    @unittest.skipUnless(
        shutil.which("g++") and os.path.exists(
            os.path.join(sysconfig.get_paths()["include"], "Python.h")),
        "torch.compile needs g++ and Python.h")
    def test_compile(self):
        model = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.GELU(),
                                    torch.nn.Linear(48, 64))

        def run(model, x):
            y = model(x).view(1, 4, 20, 16)
            y = F.scaled_dot_product_attention(y, y, y, is_causal=True)
            return y.reshape(20, 64) @ x.t()

        for dtype in HALF:
            x = randn(20, 64, dtype=dtype).requires_grad_()
            model.to(dtype)
            use(True)
            results = []
            for function in (run, torch.compile(run)):
                model.zero_grad()
                x.grad = None
                out = function(model, x)
                out.float().square().mean().backward()
                results.append([out, x.grad] +
                               [p.grad.clone() for p in model.parameters()])
            for eager, compiled in zip(*results):
                scale = eager.abs().max().item()
                torch.testing.assert_close(compiled, eager, rtol=0,
                                           atol=16 * EPS[dtype] * scale)


# query, key: batch, heads, rows, channels; options
ATTENTION = [
    ((2, 4, 33, 16), (2, 4, 33, 16), {}),
    ((2, 4, 33, 16), (2, 4, 33, 16), {"is_causal": True}),
    ((2, 4, 40, 16), (2, 4, 70, 16), {"scale": 0.3}),
    ((2, 4, 300, 8), (2, 2, 200, 8), {"is_causal": True}),
    ((2, 4, 33, 16), (2, 1, 33, 16), {"mask": (33, 33)}),
    ((2, 4, 33, 16), (2, 4, 20, 16), {"mask": (1, 20)}),
    ((2, 4, 33, 16), (2, 4, 20, 16), {"mask": (2, 1, 33, 20)}),
    ((2, 4, 33, 16), (2, 4, 20, 16), {"mask": (1, 4, 33, 20)}),
    ((2, 4, 33, 16), (2, 4, 20, 16), {"mask": (2, 4, 1, 20), "wide": True}),
]


class Attention(TestCase):
    def run_one(self, q, k, v, grad, mask, **options):
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, attn_mask=mask, **options)
        causal = options.pop("is_causal", False)
        grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, lse, 0.0, causal, attn_mask=mask, **options)
        return [out, lse, *grads]

    def test_against_stock(self):
        for dtype in HALF:
            for q_shape, k_shape, options in ATTENTION:
                for swapped in (False, True):
                    options = dict(options)
                    mask_shape = options.pop("mask", None)
                    wide = options.pop("wide", False)

                    def tensor(shape, seed):
                        torch.manual_seed(seed)
                        b, h, s, d = shape
                        if swapped:
                            return torch.randn(b, s, h, d).to(dtype).transpose(1, 2)
                        return torch.randn(shape).to(dtype)

                    q, k, v = (tensor(q_shape, 0), tensor(k_shape, 1),
                               tensor(k_shape, 2))
                    grad, mask = tensor(q_shape, 3), None
                    if mask_shape:
                        mask = torch.randn(mask_shape)
                        mask = mask if wide else mask.to(dtype)
                    seen = {}
                    for way in (False, True):
                        use(way)
                        seen[way] = self.run_one(q, k, v, grad, mask, **options)
                    exact = self.run_one(*[x.double() for x in (q, k, v, grad)],
                                         None if mask is None else mask.double(),
                                         **options)
                    for i, (a, b, e) in enumerate(
                            zip(seen[True], seen[False], exact)):
                        message = (dtype, q_shape, options, swapped, i)
                        self.assertEqual((a.dtype, a.shape, a.stride()),
                                         (b.dtype, b.shape, b.stride()), message)
                        self.assertLessEqual(
                            error(a, e), 1.02 * error(b, e) + 1e-5 * e.norm().item(),
                            message)

    def test_errors(self):
        op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        q = torch.ones(2, 4, 33, 16).half()
        calls = [
            lambda: op(q, q, q, 0.5), lambda: op(q, q.float(), q),
            lambda: op(q, q[..., :8], q), lambda: op(q[0], q[0], q[0]),
            lambda: op(q, q, q, attn_mask=torch.ones(33, 33).double()),
            lambda: op(q, q, q, attn_mask=torch.ones(33).half()),
            lambda: op(q, q, q, attn_mask=torch.ones(33, 33).bool()),
        ]
        refused = assert_as_stock(self, dict(enumerate(calls)))
        self.assertEqual(len(refused), len(calls))


if __name__ == "__main__":
    main()
