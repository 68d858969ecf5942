"""swamp_torch.functional.attention, the operators swamp::attention*, and PyTorch's
scaled_dot_product_attention with swamp's kernel, against float64 and PyTorch."""

import itertools
import math
from functools import partial

from support import TestCase, growth, main, python
from half_precision import EPS, HALF, randn, use, with_gradients

import torch

import swamp_torch
from swamp_torch import functional as S

# A step, or only its forward.
STEP = """from torch import randn
from swamp_torch import functional as S
def step(shape, mask, backward):
    b, h, kh, n, m, c, w = shape
    leaves = [randn(b, h, n, c), randn(b, kh, m, c), randn(b, kh, m, w)]
    leaves = [x.requires_grad_() for x in leaves]
    global before
    before = peak()
    out = S.attention(*leaves, mask=mask)[0]
    if backward:
        out.sum().backward()
"""

F = torch.nn.functional
ops = torch.ops.swamp
DTYPES = (*HALF, torch.float32)
LIMITS = {**EPS, torch.float32: 4e-6}


def exact(q, k, v, mask=None, causal="none", scale=None):
    """The attention by its formula, in the dtype of q: out and lse."""
    k, v = (x.repeat_interleave(q.size(1) // x.size(1), 1) for x in (k, v))
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    scores = scale * q @ k.transpose(-1, -2)
    if mask is not None:
        scores = (scores.masked_fill(~mask, -torch.inf)
                  if mask.dtype == torch.bool else scores + mask.to(q.dtype))
    if causal != "none":
        more = k.size(2) - q.size(2) if causal == "bottom_right" else 0
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + more)
        scores = scores.masked_fill(hidden, -torch.inf)
    empty = (scores == -torch.inf).all(-1, keepdim=True)
    p = scores.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0)
    lse = scores.masked_fill(empty, 0).logsumexp(-1)
    return p @ v, lse.masked_fill(empty.squeeze(-1), torch.inf)


# batch, heads, key heads, queries, keys, channels, value channels
SHAPES = ((1, 1, 1, 1, 1, 1, 1), (2, 3, 3, 67, 101, 65, 65), (1, 6, 2, 40, 50, 32, 32),
          (2, 2, 1, 90, 33, 16, 24), (1, 2, 2, 20, 30, 512, 512), (2, 2, 2, 5, 0, 8, 8))


def operands(shape, dtype):
    b, h, kh, n, m, c, w = shape
    return (randn(b, h, n, c, dtype=dtype, seed=1), randn(b, kh, m, c, dtype=dtype, seed=2),
            randn(b, kh, m, w, dtype=dtype, seed=3))


def masks(q, k, dtype):
    b, h, n, m = q.size(0), q.size(1), q.size(2), k.size(2)
    yield None
    if m:
        yield randn(n, m, dtype=torch.float32)
        yield randn(b, 1, n, m, dtype=dtype)
        yield randn(1, h, 1, m) > -0.5
        yield (randn(n, 1) > 0).expand(b, h, n, m)


class Attention(TestCase):
    def compare(self, ours, theirs, inputs, message):
        """Results and gradients of ours(), relative to those of theirs() in float64."""
        ours = with_gradients(ours, *inputs)
        theirs = with_gradients(theirs, *(x.double() for x in inputs),
                                rounded=inputs[0].dtype)
        for i, (found, expected) in enumerate(zip(ours, theirs, strict=True)):
            self.assertEqual(found.dtype, inputs[0].dtype)
            self.assertEqual(found.shape, expected.shape)
            error = (found.double() - expected).norm().item()
            # D of the backward is made of the rounded output.
            self.assertLessEqual(error, 2 * LIMITS[found.dtype] * (
                expected.norm().item() + 0.1) + 1e-6, (message, i))

    def test_formula(self):
        for dtype in DTYPES:
            for shape in SHAPES:
                q, k, v = operands(shape, dtype)
                for mask in masks(q, k, dtype):
                    for causal in ("none", "top_left", "bottom_right"):
                        options = {"mask": mask, "causal": causal}
                        message = (dtype, shape, causal,
                                   None if mask is None else mask.shape)
                        self.compare(lambda *x: S.attention(*x, **options)[0],
                                     lambda *x: exact(*x, **options)[0], (q, k, v), message)
                        lse = S.attention(q, k, v, **options)[1]
                        want = exact(q.double(), k.double(), v.double(), **options)[1]
                        self.assertEqual(lse.dtype, torch.float32)
                        self.assertTrue(torch.allclose(lse.double(), want, 1e-6, 2e-6),
                                        message)
        q, k, v = operands(SHAPES[2], torch.float32)
        self.compare(lambda *x: S.attention(*x, scale=0.7)[0],
                     lambda *x: exact(*x, scale=0.7)[0], (q, k, v), "scale")

    def test_large_scores(self):
        """Keys are equal, so that the probabilities are 1 / n, however large scores are:
        the gradient of value is the mean of the incoming rows."""
        for dtype in DTYPES:
            for big, n, heads in itertools.product((1.0, 100.0, 2000.0, 8000.0),
                                                   (3, 7, 130), (1, 2)):
                for call in (lambda *x: S.attention(*x)[0],
                             F.scaled_dot_product_attention):
                    swamp_torch.enable(attention=True)
                    x = torch.full((1, 2, n, 16), 1.0)
                    x[:, 1] = big  # the other head has small scores
                    k = x[:, :heads]
                    v = randn(1, heads, n, 16).to(dtype)
                    q, k, v = (y.to(dtype).requires_grad_() for y in (x, k, v))
                    if heads == 1 and call is F.scaled_dot_product_attention:
                        call = partial(call, enable_gqa=True)
                    g = randn(1, 2, n, 16, seed=1).to(dtype)
                    call(q, k, v).backward(g)
                    exact = g.double().sum(2, keepdim=True).expand(1, 2, n, 16) / n
                    if heads == 1:
                        exact = exact.sum(1, keepdim=True)
                    self.assertLess((v.grad.double() - exact).abs().max().item(),
                                    8 * LIMITS[dtype] * exact.abs().max().item() + 1e-6,
                                    (dtype, big, n, heads))

    def test_keys_in_blocks(self):
        """Each block of keys with the lse of all of them, as in ring attention."""
        backward = torch.ops.swamp.attention_backward
        for size in (1.0, 5.0, 10.0):  # scores of about 4, 100 and 400
            q = torch.full((1, 1, 4, 8), size)
            k, v = size + 0.05 * randn(1, 1, 8, 8), randn(1, 1, 8, 8, seed=1)
            g = randn(1, 1, 4, 8, seed=2)
            out, lse = S.attention(q, k, v, scale=0.5)
            whole = backward(g, q, k, v, out, lse, scale=0.5)
            parts = [backward(g, q, k[:, :, i:i + 4].contiguous(),
                              v[:, :, i:i + 4].contiguous(), out, lse, scale=0.5)
                     for i in (0, 4)]
            sums = [parts[0][0] + parts[1][0],
                    *(torch.cat([p[i] for p in parts], 2) for i in (1, 2))]
            for found, expected in zip(sums, whole):
                torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-4)

    def test_masked_by_finite(self):
        """A query whose keys are all hidden by a finite number sees all of them."""
        q, k, v = (x.requires_grad_() for x in operands((2, 2, 2, 70, 33, 16, 16),
                                                        torch.float32))
        mask = torch.zeros(2, 1, 70, 33)
        mask[1, 0, :5] = -1e30
        out = S.attention(q, k, v, mask=mask)[0]
        g = randn(*out.shape)
        out.backward(g)
        wide = v.detach().double().requires_grad_()
        p = (q.detach().double() @ k.detach().double().mT / 4).softmax(-1)
        p[1, :, :5] = 1 / 33
        (p @ wide).backward(g.double())
        torch.testing.assert_close(v.grad, wide.grad.float(), rtol=1e-5, atol=1e-5)

    def test_strides(self):
        q, k, v = (randn(2, 40, 3, 16, seed=i).transpose(1, 2) for i in range(3))
        self.assert_same(S.attention(q, k, v)[0],
                         S.attention(q.contiguous(), k.contiguous(), v.contiguous())[0])

    def test_errors(self):
        q, k, v = operands(SHAPES[2], torch.float32)
        wide = randn(1, 1, 2, 513)
        for kind, text, call in (
                (ValueError, "causal: got \"left\", expected \"none\"",
                 lambda: S.attention(q, k, v, causal="left")),
                (RuntimeError, "query: got 3 dimensions, expected 4",
                 lambda: S.attention(q[0], k, v)),
                (RuntimeError, "key: got BFloat16 on cpu, expected Float",
                 lambda: S.attention(q, k.bfloat16(), v)),
                (RuntimeError, "key: got 31 channels, expected 32",
                 lambda: S.attention(q, k[..., 1:], v)),
                (RuntimeError, "key: got 31 channels, expected 32",
                 lambda: S.attention(*(x.to("meta") for x in (q, k[..., 1:], v)))),
                (RuntimeError, "key: got a batch of 1, expected 0",
                 lambda: S.attention(q[:0], k, v)),
                (RuntimeError, "key: got 4 heads, expected a divisor of 6",
                 lambda: S.attention(q, randn(1, 4, 50, 32), randn(1, 4, 50, 32))),
                (RuntimeError, "mask: got 1 dimensions, expected 2 to 4",
                 lambda: S.attention(q, k, v, mask=randn(7))),
                (RuntimeError, "mask: got the shape .40, 7., expected one that broad",
                 lambda: S.attention(q, k, v, mask=randn(40, 7))),
                (RuntimeError, "mask: got the shape .7, 50., expected one that broad",
                 lambda: S.attention(q, k, v, mask=randn(1, 50).expand(7, 50))),
                (RuntimeError, "mask: got the shape .7, 1, 40, 50., expected one",
                 lambda: S.attention(q, k, v, mask=randn(40, 50).expand(7, 1, 40, 50))),
                (RuntimeError, "value: got the shape .*, expected the heads and rows",
                 lambda: S.attention(q, k, v[:, :, 1:])),
                (RuntimeError, "value: got a batch of 2, expected 1",
                 lambda: S.attention(q, k, torch.cat([v, v]))),
                (RuntimeError, "grad: got .*Double",
                 lambda: ops.attention_backward(q.double(), q, k, v, q, q[..., 0])),
                (RuntimeError, "grad: got ",
                 lambda: ops.attention_backward(q[:, :, 1:], q, k, v, q, q[..., 0])),
                (RuntimeError, "mask: got the dtype Double",
                 lambda: S.attention(q, k, v, mask=randn(40, 50).double())),
                (NotImplementedError, "mask that requires a gradient",
                 lambda: S.attention(q, k, v, mask=randn(40, 50).requires_grad_())),
                (RuntimeError, "mask: got Strided on meta, expected Strided on cpu",
                 lambda: S.attention(q, k, v, mask=randn(40, 50).to("meta"))),
                (RuntimeError, "q.columns: got 0, expected 1 to 512",
                 lambda: S.attention(q[..., :0], k[..., :0], v)),
                (RuntimeError, "v.columns: got 0, expected 1 to 512",
                 lambda: S.attention(q, k, v[..., :0])),
                (NotImplementedError, "q.columns: got 513, expected 1 to 512",
                 lambda: S.attention(wide, wide, wide)),
                (NotImplementedError, "not implemented for 'Double'",
                 lambda: S.attention(q.double(), k.double(), v.double()))):
            with self.assertRaisesRegex(kind, text):
                call()

    def test_mask_parameter(self):
        """Without gradients, a mask may be a parameter."""
        q, k, v = operands(SHAPES[2], torch.float32)
        mask = torch.nn.Parameter(randn(40, 50))
        with torch.no_grad():
            self.assert_same(S.attention(q, k, v, mask=mask)[0],
                             S.attention(q, k, v, mask=mask.detach())[0])

    def test_memory(self):
        """Neither the scores nor a broadcast mask are in main memory."""
        size = 2048
        for name, shape, mask, backward, most_mib in (
                ("padding", (4, 1, 1, size, size, 8, 8), "randn(4, 1, 1, 2048) > -2",
                 True, 32),
                ("MQA", (1, 32, 1, size, size, 8, 8), "randn(2048, 2048)", True, 72),
                ("expanded", (4, 16, 16, 1024, 1024, 8, 8),
                 "torch.zeros(1, 1, 1024, 1024).expand(4, 16, 1024, 1024)", True, 80),
                ("forward", (64, 8, 8, 512, 64, 32, 32), "None", False, 72)):
            self.assertLess(growth(
                STEP, "step((1, 2, 1, 64, 64, 8, 8), randn(64, 64), True)",
                f"step({shape}, {mask}, {backward})"), most_mib, name)


attention_on = partial(swamp_torch.enable, attention=True)


class Override(TestCase):
    def setUp(self):
        attention_on()

    def run_both(self, call, inputs, switch=attention_on):
        """out and gradients with swamp's kernel, and with PyTorch's."""
        results = []
        for set_switch in (switch, swamp_torch.enable):
            set_switch()
            results.append(with_gradients(call, *inputs))
        attention_on()
        return results

    def test_is_swamp(self):
        """The bits are those of swamp's operator, and unlike PyTorch's: of 16-bit
        tensors with either switch."""
        for dtype in DTYPES:
            q, k, v = operands((2, 4, 4, 70, 70, 64, 64), dtype)
            bias = randn(70, 70, dtype=dtype)
            for mask, causal in ((None, False), (None, True), (bias, False),
                                 (bias > 0, False)):
                call = lambda *x: F.scaled_dot_product_attention(
                    *x, attn_mask=mask, is_causal=causal)
                ours, theirs = self.run_both(call, (q, k, v))
                found = self.run_both(call, (q, k, v), partial(use, True))[0]
                for a, b in zip(found, ours if dtype in HALF else theirs):
                    self.assert_same(a, b)
                same = with_gradients(lambda *x: S.attention(
                    *x, mask=mask, causal="top_left" if causal else "none")[0], q, k, v)
                for a, b, c in zip(ours, same, theirs):
                    self.assert_same(a, b)
                    self.assertEqual(a.stride(), c.stride())
                    self.assertTrue(torch.allclose(a.float(), c.float(), 0.05, 0.05))
                self.assertFalse(all(torch.equal(a, c) for a, c in zip(ours, theirs)))

    def test_else_pytorch(self):
        """What swamp does not take is PyTorch's, bit for bit."""
        for inputs in (operands((1, 2, 2, 9, 9, 8, 8), torch.float64),
                       operands((1, 2, 2, 9, 9, 513, 513), torch.float32)):
            for a, c in zip(*self.run_both(F.scaled_dot_product_attention, inputs)):
                self.assert_same(a, c)
        q, k, v = operands((1, 2, 2, 9, 9, 8, 8), torch.float32)
        torch.manual_seed(1)
        ours = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
        with swamp_torch.disabled():
            torch.manual_seed(1)
            self.assert_same(ours, F.scaled_dot_product_attention(q, k, v, dropout_p=0.5))

    def test_else_is_reported(self):
        for dtype in DTYPES:
            q, k, v = operands((1, 2, 2, 9, 9, 513, 513), dtype)
            swamp_torch.enable(attention=True, unreproducible="raise")
            F.scaled_dot_product_attention(q, k, v)
            swamp_torch.enable(reproducible=True, unreproducible="raise")
            with self.assertRaisesRegex(RuntimeError, "got aten::_scaled_dot_product_flash_"
                                        "attention_for_cpu, which is PyTorch's"):
                F.scaled_dot_product_attention(q, k, v)
            attention_on()

    def test_small_ldm(self):
        """What needs more LDM is PyTorch's too, forward or backward."""
        result = python("""
import sys, torch, swamp_torch
F = torch.nn.functional
for channels in (64, 128, 256):
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(1)
        q, k, v = (torch.randn(1, 2, 40, channels).to(dtype) for _ in range(3))
        mask = torch.ones(40, 40, dtype=torch.bool)
        mask[3] = False  # a query that sees no key
        results = []
        for attention in (False, True):
            swamp_torch.enable(attention=attention)
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            out = F.scaled_dot_product_attention(*leaves, attn_mask=mask)
            out.sum().backward()
            results.append([out] + [x.grad for x in leaves])
        for a, b in zip(*results):
            assert b.isfinite().all(), (channels, dtype)
            assert torch.allclose(a.float(), b.float(), 0.05, 0.05), (channels, dtype)
        if channels == 256:
            assert all(torch.equal(a, b) for a, b in zip(*results))
# PyTorch's forward, swamp's backward.
swamp_torch.enable()
q, k, v = (torch.randn(1, 2, 40, 16).requires_grad_() for _ in range(3))
out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
swamp_torch.enable(attention=True)
out.sum().backward()
assert all(x.grad.isfinite().all() for x in (q, k, v))
""", SWAMP_TRANSFER="copy", SWAMP_LDM_BYTES="65536")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_compile(self):
        q, k, v = (x.requires_grad_()
                   for x in operands((1, 2, 2, 33, 33, 16, 16), torch.float32))
        def step(q, k, v):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True).sin().sum()
        eager = torch.autograd.grad(step(q, k, v), (q, k, v))
        compiled = torch.compile(step, backend="aot_eager")
        for a, b in zip(eager, torch.autograd.grad(compiled(q, k, v), (q, k, v))):
            self.assert_same(a, b)


if __name__ == "__main__":
    main()
