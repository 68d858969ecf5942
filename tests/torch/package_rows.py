"""The row operators swamp::*, swamp_torch.functional and swamp_torch.nn against
float64, PyTorch and Megatron-LM's formulas."""

import itertools
import math

from support import TestCase, caught, growth, main, on_threads
from half_precision import EPS, HALF, randn, use, with_gradients

import torch

import swamp_torch
from swamp_torch import functional as S

F = torch.nn.functional
ops = torch.ops.swamp
DTYPES = (*HALF, torch.float32)
LIMITS = {**EPS, torch.float32: 4e-6}  # relative; 16 bits: half an ulp


class Rows(TestCase):
    def assert_close(self, ours, exact, message=None, slack=1.02, tiny=1e-7):
        """ours is exact, rounded once."""
        self.assertEqual(ours.shape, exact.shape, message)
        limit = slack * LIMITS[ours.dtype] * exact.abs() + tiny
        excess = ((ours.double() - exact).abs() - limit).max() if ours.numel() else 0
        self.assertLessEqual(excess, 0, (message, ours.dtype))

    def compare(self, ours, exact, inputs, message=None, tiny=1e-7, factor=0.0):
        """ours() and exact() of the inputs, the second in float64: results, and
        gradients for a random gradient of the result. `factor` is that of the
        input, if the gradient is a difference of rounded values."""
        y, *found = with_gradients(ours, *inputs)
        z, *wide = with_gradients(exact, *(x.double() for x in inputs), rounded=y.dtype)
        self.assertTrue(y.is_contiguous(), message)
        self.assert_close(y, z, message, tiny=tiny)
        for x, g, w in zip(inputs, found, wide, strict=True):
            self.assertEqual(g.dtype, x.dtype)
            self.assertLessEqual((g.double() - w).norm().item(), 2.0 * LIMITS[x.dtype] * (
                w.norm().item() + factor) + tiny, message)


def causal(x, scale):
    mask = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
    return (x * scale).masked_fill(mask, -torch.inf).softmax(-1)


def masked(x, mask, scale, zero):
    y = (x * scale).masked_fill(mask.bool(), -10000.0).softmax(-1)
    return y.masked_fill(mask.bool().all(-1, keepdim=True), 0) if zero else y


class Softmax(Rows):
    def test_scaled(self):
        for dtype in DTYPES:
            for shape in ((7,), (2, 3, 4, 8), (3, 1, 1, 1), (5, 4097), (1, 9000)):
                for scale in (1.0, 0.125, 7.0):
                    self.compare(lambda x: S.scaled_softmax(x, scale),
                                 lambda x: (x * scale).softmax(-1),
                                 [randn(*shape, dtype=dtype)], (shape, scale),
                                 factor=scale)

    def test_causal(self):
        for dtype in DTYPES:
            for shape in ((2, 1, 1), (3, 17, 17), (2, 2, 33, 33)):
                self.compare(lambda x: S.scaled_upper_triang_masked_softmax(x, 0.5),
                             lambda x: causal(x, 0.5),
                             [randn(*shape, dtype=dtype)], shape)

    def test_masked(self):
        for dtype in DTYPES:
            for b, n, q, k, batches in ((2, 3, 5, 8, 2), (2, 3, 5, 8, 1),
                                        (1, 1, 1, 1, 1), (1, 2, 3, 4100, 1)):
                mask = randn(batches, 1, q, k) > 0.5
                mask[0, 0, 0] = True  # all is masked
                for kind in (torch.bool, torch.uint8):
                    m = mask.to(kind)
                    for zero in (True, False):
                        self.compare(
                            lambda x: S.scaled_masked_softmax(
                                x, m, 0.5, zero_masked_rows=zero),
                            lambda x: masked(x, m, 0.5, zero),
                            [randn(b, n, q, k, dtype=dtype)], (b, n, q, k, zero))

    def test_megatron(self):
        """FusedScaleMaskSoftmax against the formula of Megatron-LM's path in
        PyTorch."""
        for dtype in HALF:
            x = 3 * randn(2, 4, 24, 24, dtype=dtype)
            mask = randn(2, 1, 24, 24) > 0.5
            future = torch.ones(24, 24, dtype=torch.bool).triu(1)
            for scale in (None, 0.5):
                for kind, m, full in (("padding", mask, mask),
                                      ("causal", None, future),
                                      ("no_mask", None, future & False)):
                    exact = x.float() * (scale or 1.0)
                    exact = exact.masked_fill(full, -10000.0).softmax(-1)
                    for fused in (True, False):
                        module = swamp_torch.nn.FusedScaleMaskSoftmax(
                            dtype == torch.float16, dtype == torch.bfloat16, kind,
                            fused, lambda s, t: s.masked_fill_(t, -10000.0), True,
                            scale)
                        y = module(x.clone(), m)
                        self.assertEqual(y.dtype, dtype)
                        differing = (y != exact.to(dtype)).double().mean().item()
                        self.assertLess(differing, 1e-3, (dtype, kind, fused))

    def test_window_and_offset(self):
        x = randn(2, 3, 8, 8, dtype=torch.bfloat16)
        i = torch.arange(8)
        away = i.view(1, -1) - i.view(-1, 1)
        hidden = (away < -2) | (away > 1)
        exact = x.double().masked_fill(hidden, -10000.0)
        for fused in (True, False):
            module = swamp_torch.nn.FusedScaleMaskSoftmax(
                False, True, "causal", fused, None, True, None, (2, 1))
            self.assert_close(module(x, None), exact.softmax(-1))
            sink = torch.tensor([0.5, 1, 2])
            column = sink.view(1, 3, 1, 1).expand(2, 3, 8, 1)
            wide = torch.cat([exact, column], -1).softmax(-1)
            self.assert_close(module(x, None, sink), wide[..., :-1])

    def test_special_rows(self):
        inf, nan = torch.inf, torch.nan
        for dtype in DTYPES:
            x = torch.tensor([[inf, 1, 2], [nan, 1, 2], [-inf] * 3, [-inf, 1, 1]],
                             dtype=dtype)
            y = S.scaled_softmax(x)
            self.assertTrue(y[:3].isnan().all())
            self.assertEqual(y[3].tolist(), [0, 0.5, 0.5])

    def test_backward_is_in_place(self):
        y = randn(2, 3, 4, 8, dtype=torch.bfloat16).softmax(-1)
        for g in (randn(2, 3, 4, 8, dtype=torch.bfloat16),
                  randn(2, 3, 8, 4, dtype=torch.bfloat16).mT):
            exact = 0.5 * (g.double() * y.double())
            exact = exact - y.double() * exact.sum(-1, keepdim=True)
            version = g._version
            result = ops.scaled_softmax_backward(g, y, 0.5)
            self.assertEqual(result.data_ptr(), g.data_ptr())
            self.assertEqual(g._version, version + 1)
            self.assert_close(g, exact, tiny=1e-6, slack=1.1)


class CrossEntropy(Rows):
    def test_against_float64(self):
        for dtype in DTYPES:
            for shape, classes in (((5,), 7), ((), 9), ((6,), 9001), ((2, 3), 11)):
                sizes = (*shape[:1], classes, *shape[1:])
                x = 2 * randn(*sizes, dtype=dtype)
                torch.manual_seed(1)
                target = torch.randint(0, classes, shape)
                if shape:
                    target.view(-1)[0] = -100
                for w in (None, torch.rand(classes) + 0.5):
                    for reduction in ("none", "mean", "sum"):
                        for smoothing in (0.0, 0.1):
                            options = dict(reduction=reduction,
                                           label_smoothing=smoothing)
                            self.compare(
                                lambda x: S.cross_entropy(x, target, w, **options),
                                lambda x: F.cross_entropy(
                                    x, target, None if w is None else w.double(),
                                    **options),
                                [x], (shape, classes, options), tiny=2e-6)

    def test_z_loss(self):
        def exact(x):
            return (F.cross_entropy(x, target, reduction="none")
                    + 1e-2 * x.logsumexp(-1).square()).mean()

        target = torch.randint(0, 50, (8,))
        for dtype in DTYPES:
            self.compare(lambda x: S.cross_entropy(x, target, z_loss=1e-2), exact,
                         [randn(8, 50, dtype=dtype)])

    def test_large_logits(self):
        """The log of the sum is not lost in the largest logit."""
        torch.manual_seed(4)
        for base, classes in itertools.product(
                (0.0, 100.0, -1e4, 1e7, 1e8, 1e30), (1, 3, 1000, 9000)):
            x = torch.full((4, classes), base) + torch.arange(classes) % 5
            target, w = torch.arange(4) % classes, torch.rand(classes) + 0.5
            for options in ({}, {"label_smoothing": 0.1},
                            {"label_smoothing": 0.1, "weight": w}):
                message = (base, classes, options.keys())
                a, b = x.clone().requires_grad_(), x.double().requires_grad_()
                # Differences from the largest: float64 loses the log, too.
                found = S.cross_entropy(a, target, **options, reduction="none")
                exact = F.cross_entropy(b - b.detach().amax(1, True), target, **{
                    k: v.double() if k == "weight" else v for k, v in options.items()},
                    reduction="none")
                found.sum().backward()
                exact.sum().backward()
                self.assert_close(found, exact, message)
                self.assertLess((a.grad.double() - b.grad).abs().max(), 2e-7, message)
        # The sum of the weights exceeds float32.
        torch.testing.assert_close(
            S.cross_entropy(torch.zeros(1, 5), torch.tensor([0]),
                            torch.full((5,), 1e38), label_smoothing=0.1),
            torch.tensor(5.0).log())
        x = torch.full((1, 3), 1e8).requires_grad_()
        S.cross_entropy(x, torch.tensor([0])).backward()
        torch.testing.assert_close(x.grad, torch.tensor([[-2., 1, 1]]) / 3)
        # The gradient of the z-loss is 2 z lse p.
        x = torch.full((1, 3), 1e4).requires_grad_()
        S.cross_entropy(x, torch.tensor([0]), z_loss=1e-4).backward()
        torch.testing.assert_close(x.grad, torch.tensor([[0., 1, 1]]) * (
            1 + 2e-4 * 1e4) / 3, rtol=1e-4, atol=1e-4)

    def test_large_vocabulary(self):
        """float16 zeros: PyTorch's result is inf, unless half_precision is on."""
        use(True)
        for classes in (65520, 128256):
            x = torch.zeros(2, classes, dtype=torch.float16)
            target = torch.tensor([0, classes - 1])
            loss = S.cross_entropy(x, target)
            self.assertAlmostEqual(loss.item(), math.log(classes), delta=1e-6)
            self.assert_same(F.cross_entropy(x, target), loss.half())
            self.assertTrue(F.log_softmax(x, -1).isfinite().all())

    def test_loss_scale(self):
        """The scale does not overflow, and gradients do not underflow."""
        x = randn(64, 5000, dtype=torch.float16).requires_grad_()
        target = torch.randint(0, 5000, (64,))
        (S.cross_entropy(x, target) * 65536).backward()
        w = x.detach().double().requires_grad_()
        (F.cross_entropy(w, target) * 65536).backward()
        self.assertTrue(x.grad.isfinite().all())
        self.assertEqual((x.grad == 0).sum().item(), 0)
        self.assertLess(((x.grad - w.grad).norm() / w.grad.norm()).item(), 1e-3)

    def test_operators(self):
        x = randn(6, 20, dtype=torch.bfloat16)
        target = torch.arange(6)
        loss, lse = ops.cross_entropy(x, target, reduction=2, label_smoothing=0.1)
        self.assert_close(loss, F.cross_entropy(
            x.double(), target, reduction="sum", label_smoothing=0.1))
        self.assert_close(lse, x.double().logsumexp(-1))
        both = ops._cross_entropy(x, target, None, 2, -100, 0.1, 0.0)[1]
        self.assert_same(both[0], lse)
        exact = x.double().logsumexp(-1)
        self.assertLess((both.double().sum(0) - exact).abs().max(), 1e-6)
        # The forward with a gradient leaves the logits alone; the operator of
        # the backward writes them.
        wide = x.double().requires_grad_()
        F.cross_entropy(wide, target).backward(torch.tensor(3.0).double())
        dx = x.clone()
        result = ops.cross_entropy_backward(torch.tensor(3.0), dx, target, lse,
                                            torch.tensor(6.0), 1, -100, 0.0)
        self.assertEqual(result.data_ptr(), dx.data_ptr())
        self.assertEqual(dx._version, 1)
        self.assert_close(dx, wide.grad, slack=1.1, tiny=1e-6)
        again = ops.cross_entropy_backward(torch.tensor(3.0), x.clone(), target, both,
                                           torch.tensor(6.0), 1, -100, 0.0)
        self.assert_close(again, wide.grad, slack=1.1, tiny=1e-6)

    def test_no_rows_count(self):
        x = randn(3, 5).requires_grad_()
        loss = S.cross_entropy(x, torch.full((3,), -100))
        self.assertTrue(loss.isnan())
        self.assertTrue(S.cross_entropy(x[:0], torch.zeros(0).long()).isnan())
        self.assertEqual(S.cross_entropy(x[:0], torch.zeros(0).long(),
                                         reduction="sum").item(), 0)
        empty = x[:, :0]
        target = torch.full((3,), -100)
        for reduction in ("none", "mean", "sum"):
            loss = S.cross_entropy(empty, target, reduction=reduction)
            torch.testing.assert_close(loss, F.cross_entropy(
                empty, target, reduction=reduction), equal_nan=True)
            loss.sum().backward()
        with self.assertRaisesRegex(IndexError, "Target 0 is out of bounds."):
            S.cross_entropy(empty, torch.zeros(3).long())


class LinearCrossEntropy(Rows):
    def inputs(self, dtype, *shape, bias):
        x, w = randn(*shape, 40, dtype=dtype), randn(301, 40, dtype=dtype)
        return [x, w, *([randn(301, dtype=dtype)] if bias else [])]

    def test_against_float64(self):
        """And against cross_entropy(linear()), whose loss has the same bits."""
        swamp_torch.enable(reproducible=True)
        for dtype, shape, bias, reduction, smoothing, chunk in itertools.product(
                DTYPES, ((50,), (3, 20), ()), (True, False), ("none", "mean", "sum"),
                (0.0, 0.1), (None, 1, 17)):
            options = dict(reduction=reduction, label_smoothing=smoothing)
            message = (dtype, shape, bias, options, chunk)
            torch.manual_seed(2)
            target = torch.randint(0, 301, shape)
            if shape:
                target.view(-1)[:3] = -100
            inputs = self.inputs(dtype, *shape, bias=bias)

            def of(module):
                def call(*i):
                    y = F.linear(*i)
                    loss = module.cross_entropy(
                        y.flatten(0, -2) if shape else y,
                        target.flatten() if shape else target, **options)
                    return loss.view(shape) if reduction == "none" else loss
                return call
            ours = with_gradients(lambda x, w, *b: S.linear_cross_entropy(
                x, w, target, *b, chunk_rows=chunk, **options), *inputs)
            unfused = with_gradients(of(S), *inputs)
            exact = with_gradients(of(F), *(x.double() for x in inputs),
                                   rounded=torch.float32)
            self.assert_same(ours[0], unfused[0], message)
            for a, b, c in zip(ours[1:], unfused[1:], exact[1:]):
                self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape), message)
                self.assertLessEqual(
                    (a.double() - c).norm().item(),
                    1.2 * (b.double() - c).norm().item() + 2e-6 * c.norm().item(),
                    message)

    def test_chunks(self):
        """The loss and the input's gradient have the same bits with any chunks."""
        target = torch.arange(200)
        for dtype in DTYPES:
            inputs = self.inputs(dtype, 200, bias=True)
            self.assert_same(*(with_gradients(
                lambda x, w, b: S.linear_cross_entropy(x, w, target, b, chunk_rows=rows),
                *inputs)[:2] for rows in (64, 1000)))

    def test_small_gradients(self):
        """A float16 gradient is not rounded before the loss scale."""
        x, w = randn(4, 8, dtype=torch.float16), torch.zeros(65520, 8).half()
        x, w = x.requires_grad_(), w.requires_grad_()
        target = torch.zeros(4).long()
        (S.linear_cross_entropy(x, w, target) * 2.0 ** 20).backward()
        exact = x.detach().double().sum(0) / 4 / 65520 * 2 ** 20
        self.assertLess((w.grad[1].double() / exact - 1).abs().max(), 2e-3)

    def test_autocast_and_compile(self):
        x, w = randn(30, 40), randn(301, 40)
        target = torch.arange(30)

        def step(x, w, reduction="mean"):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return S.linear_cross_entropy(x, w, target, reduction=reduction).sum()

        for reduction, dynamic in (("mean", False), ("none", True)):
            compiled = torch.compile(step, backend="aot_eager", dynamic=dynamic,
                                     fullgraph=True)
            ours, eager = (with_gradients(lambda x, w: f(x, w, reduction), x, w)
                           for f in (compiled, step))
            self.assert_same(ours, eager)
            self.assertEqual(eager[1].dtype, torch.float32)

    def test_all_ignored(self):
        """The mean is nan, the gradients are 0, as PyTorch's."""
        for dtype, bias, reduction, smoothing, chunk in itertools.product(
                DTYPES, (True, False), ("none", "mean", "sum"), (0.0, 0.1), (None, 2)):
            inputs = [x.requires_grad_() for x in self.inputs(dtype, 5, bias=bias)]
            loss = S.linear_cross_entropy(
                *inputs[:2], torch.full((5,), -100), *inputs[2:], reduction=reduction,
                label_smoothing=smoothing, chunk_rows=chunk)
            message = (dtype, bias, reduction, smoothing, chunk)
            self.assertTrue((loss.isnan() if reduction == "mean" else loss == 0).all(),
                            message)
            for factor in (65536.0, torch.inf):  # as a sum divided by 0
                for x in inputs:
                    x.grad = None
                (loss.sum() * factor).backward(retain_graph=True)
                self.assertTrue(all((x.grad == 0).all() for x in inputs), message)

    def test_nonfinite_upstream(self):
        """Overflow reaches the gradients, also where the loss has none; rows that are
        ignored have none."""
        x = torch.zeros(3, 4)
        x[:, 0] = 200
        w, b = torch.zeros(6, 4), torch.zeros(6)
        w[2, 0] = 1  # the model is sure of class 2
        target = torch.tensor([2, -100, 2])
        for factor, reduction in itertools.product((torch.inf, torch.nan),
                                                   ("mean", "sum")):
            ours, stock = ([y.clone().requires_grad_() for y in (x, w, b)]
                           for _ in range(2))
            (S.linear_cross_entropy(ours[0], ours[1], target, ours[2],
                                    reduction=reduction) * factor).backward()
            (F.cross_entropy(F.linear(*stock), target, reduction=reduction)
             * factor).backward()
            for one, other in zip(ours, stock):
                self.assertFalse(one.grad.isfinite().all())
                self.assertEqual(other.grad.isfinite().all(), one.grad.isfinite().all())
            self.assertTrue((ours[0].grad[1] == 0).all())

    def test_no_rows(self):
        x, w = randn(0, 40).requires_grad_(), randn(301, 40).requires_grad_()
        loss = S.linear_cross_entropy(x, w, torch.zeros(0).long(), reduction="sum")
        for factor in (1, torch.inf):
            (loss * factor).backward(retain_graph=True)
            self.assertEqual((loss.item(), w.grad.norm().item()), (0, 0))
        for t in (torch.zeros(0).long(), torch.full((3,), -100)):
            self.assertTrue(S.linear_cross_entropy(randn(len(t), 40), w, t).isnan())

    def test_errors(self):
        x, w, t = randn(4, 3).half(), randn(5, 3).half(), torch.tensor([0, 1, 2, 0])
        y = x.clone().requires_grad_()
        f = S.linear_cross_entropy
        table = [
            (lambda: f(x.double(), w, t), NotImplementedError, "'Double'"),
            (lambda: f(x, w.float(), t), RuntimeError,
             "linear_weight: got the dtype Float, expected Half, as input"),
            (lambda: f(x, w[0], t), RuntimeError,
             "linear_weight: got 1 dimensions, expected 2"),
            (lambda: f(x, w[:, 1:], t), RuntimeError,
             "linear_weight: got 2 columns, expected 3, as input"),
            (lambda: f(x, w, t, x[:, 0]), RuntimeError,
             "linear_bias: got 4 elements, expected 5"),
            (lambda: f(x, w, t.int()), RuntimeError,
             "target: got the dtype Int, expected Long"),
            (lambda: f(x, w, t[1:]), ValueError, r"target: got the shape \[3\]"),
            (lambda: f(x, w, t + 3), IndexError, "Target 5 is out of bounds."),
            (lambda: f(x, w, t, label_smoothing=2), RuntimeError,
             "label_smoothing: got 2, expected a number from 0 to 1"),
            (lambda: f(x, w, t, reduction="all"), ValueError, "all is not a valid"),
            (lambda: f(x, w, t, chunk_rows=0), ValueError, "chunk_rows: got 0"),
            (lambda: torch.autograd.grad(f(y, w, t), y, create_graph=True),
             NotImplementedError, "second derivative"),
        ]
        for call, kind, text in table:
            with self.assertRaisesRegex(kind, text):
                call()

    def test_memory(self):
        """Only a chunk of the logits exists."""
        self.assertLess(growth(
            "import swamp_torch.functional as S\n"
            "x = torch.ones(2048, 16).requires_grad_()\n"
            "w = torch.ones(65536, 16).requires_grad_()\n"
            "t = torch.zeros(2048).long()",
            "S.linear_cross_entropy(x[:2], w, t[:2], chunk_rows=2).backward()",
            "S.linear_cross_entropy(x, w, t).backward()"), 128)  # the logits: 512


class Norms(Rows):
    def test_against_float64(self):
        for dtype in DTYPES:
            for shape, dims in (((6, 32), 1), ((2, 3, 4, 5), 2), ((3, 5000), 1),
                                ((4, 1), 1), ((7,), 1)):
                sizes = shape[-dims:]
                x = 2 * randn(*shape, dtype=dtype) + 1
                for kind in {dtype, torch.float32}:
                    w, b = randn(*sizes, dtype=kind), randn(*sizes, dtype=kind)
                    b = b.flip(0)
                    for vectors in ([], [w], [w, b]):
                        self.compare(
                            lambda x, *v: S.layer_norm(x, sizes, *v),
                            lambda x, *v: F.layer_norm(x, sizes, *v),
                            [x, *vectors], (shape, kind), tiny=3e-5)
                    for vectors in ([], [w]):
                        self.compare(
                            lambda x, *v: S.rms_norm(x, sizes, *v, eps=1e-3),
                            lambda x, *v: F.rms_norm(x, sizes, *v, eps=1e-3),
                            [x, *vectors], (shape, kind), tiny=3e-5)
                    self.compare(lambda x, b: S.layer_norm(x, sizes, None, b),
                                 lambda x, b: F.layer_norm(x, sizes, None, b),
                                 [x, b], tiny=3e-5)

    def test_sums_do_not_saturate(self):
        """The gradient of the bias is a sum of 8192 ones; PyTorch's is 256 on one
        thread, unless half_precision is on."""
        use(True)
        for dtype, module in itertools.product(HALF, (S, F)):
            for kind in (dtype, torch.float32):
                x = randn(8192, 16, dtype=dtype)
                w, b = (torch.ones(16, dtype=kind).requires_grad_()
                        for _ in range(2))
                on_threads(lambda: module.layer_norm(x, (16,), w, b).backward(
                    torch.ones_like(x)))
                self.assertEqual(b.grad.tolist(), [2 * 8192.0] * 16)

    def test_statistics(self):
        for dtype in HALF:
            x = randn(5, 3, 8, dtype=dtype)
            y, mean, rstd = ops.layer_norm(x, x[0, 0], None, 1e-5)
            self.assertEqual((mean.dtype, rstd.dtype), (torch.float32,) * 2)
            _, m, r = torch.native_layer_norm(x.double(), [8], None, None, 1e-5)
            self.assert_close(mean, m)
            self.assert_close(rstd, r)

    def test_zero_centered(self):
        nn = swamp_torch.nn
        x = randn(4, 8, dtype=torch.bfloat16)
        for ours, stock in ((nn.LayerNorm, torch.nn.LayerNorm),
                            (nn.RMSNorm, torch.nn.RMSNorm)):
            module = ours(8, eps=1e-5, zero_centered_weight=True)
            self.assertEqual(module.weight.tolist(), [0.0] * 8)
            y = module(x)
            y.float().sum().backward()
            self.assert_close(y.detach(), stock(8, eps=1e-5)(x.float()).detach()
                              .double(), tiny=1e-6)
            self.assertEqual(module.weight.grad.shape, (8,))

    def test_residual_add(self):
        for dtype, shape in itertools.product(DTYPES, ((3, 4, 8), (8,))):
            x, r = randn(*shape, dtype=dtype), randn(*shape)
            for b in (None, randn(8, dtype=dtype), randn(8)):
                self.compare(lambda r, x, *b: S.residual_add(r, x, *b),
                             lambda r, x, *b: r + (x + b[0] if b else x),
                             [r, x] + ([] if b is None else [b]))
                out = r.clone()
                self.assertIs(S.residual_add(out, x, b, inplace=True), out)
                self.assert_same(out, S.residual_add(r, x, b))
                self.assertEqual(out._version, 1)


class Operators(TestCase):
    def test_no_rows(self):
        for dtype in DTYPES:
            x = torch.empty(0, 3, 4, 8, dtype=dtype)
            y, w = x[:, 0, 0], torch.ones(8, dtype=dtype)
            self.assertEqual(ops.scaled_softmax(x, 1.0).shape, x.shape)
            mask = torch.zeros(1, 1, 4, 8).bool()
            self.assertEqual(ops.scaled_masked_softmax(x, mask, 1.0).shape, x.shape)
            loss, lse = ops.cross_entropy(y, torch.zeros(0).long(), reduction=0)
            self.assertEqual((loss.shape, lse.shape), ((0,), (0,)))
            self.assertEqual(ops.layer_norm(y, w, w, 1e-5)[0].shape, y.shape)
            grads = ops.layer_norm_backward(y, y, y[:, :1].float(),
                                            y[:, :1].float(), w, [True] * 3)
            self.assertEqual(grads[1].tolist(), [0.0] * 8)
            self.assertEqual(ops.residual_add_(y.float(), y).shape, y.shape)

    def test_errors(self):
        x, rows = randn(2, 3, 4, 8).half(), randn(4, 3).half()
        t = torch.tensor([0, 1, 2, 0])
        leaf = randn(4, 3).requires_grad_()
        table = [
            (lambda: ops.scaled_softmax(x[0], 1.0), RuntimeError,
             "expected 4D tensor"),
            (lambda: ops.scaled_masked_softmax(x[0], x > 0, 1.0), RuntimeError,
             "expected 4D tensor"),
            (lambda: ops.scaled_masked_softmax(x, x > 0, 1.0), RuntimeError,
             "mask: got the shape"),
            (lambda: ops.scaled_masked_softmax(x, x, 1.0), RuntimeError,
             "mask: got the dtype Half"),
            (lambda: ops.scaled_upper_triang_masked_softmax(x, 1.0), RuntimeError,
             "expected 3D tensor"),
            (lambda: ops.scaled_upper_triang_masked_softmax(x[0], 1.0),
             RuntimeError, "causal mask is only for self attention"),
            (lambda: ops.scaled_softmax(x.double(), 1.0), NotImplementedError,
             "\"scaled_softmax\" not implemented for 'Double'"),
            (lambda: ops.scaled_softmax_backward(x, x.float(), 1.0), RuntimeError,
             "y: got the dtype Float, expected Half, as grad"),
            (lambda: ops.layer_norm(rows, x[0, 0, 0], None, 1e-5), RuntimeError,
             "Given normalized_shape="),
            (lambda: ops.residual_add_(rows, rows), RuntimeError,
             "residual: got the dtype Half, expected Float"),
            (lambda: ops.residual_add_(leaf, rows), RuntimeError,
             "a leaf Variable that requires grad"),
            (lambda: S.cross_entropy(rows, t, reduction="all"), ValueError,
             "all is not a valid value for reduction"),
        ]
        for call, kind, text in table:
            with self.assertRaisesRegex(kind, text):
                call()

    def test_errors_of_pytorch(self):
        x, t = randn(4, 3), torch.tensor([0, 1, 2, 3])
        good = t % 3
        for arguments, options in (
                ((x, t), {}), ((x, -t), {}), ((x[:3], good), {}),
                ((x, good), dict(label_smoothing=1.5)),
                ((x, good, torch.ones(4)), {})):
            kept = x.clone()
            self.assertEqual(caught(lambda: S.cross_entropy(*arguments, **options)),
                             caught(lambda: F.cross_entropy(*arguments, **options)))
            self.assert_same(x, kept)
        # The text is that of PyTorch 2.13; 2.10 has another.
        mine, stock = (caught(lambda: f(x, good.int()))
                       for f in (S.cross_entropy, F.cross_entropy))
        self.assertEqual(mine[0], stock[0])
        self.assertIn("expected target dtype to be Long or Byte", mine[1])
        for shape, w in (((4,), None), ((3,), torch.ones(4)), ((2, 3), None)):
            self.assertEqual(caught(lambda: S.layer_norm(x, shape, w)),
                             caught(lambda: F.layer_norm(x, shape, w)))

    def test_second_derivative(self):
        """create_graph is PyTorch's operator; softmax has no second derivative."""
        target = torch.tensor([1, -100, 0])
        calls = [
            lambda m, x, w: m.layer_norm(x, (5,), w, w),
            lambda m, x, w: m.rms_norm(x, (5,), w, 1e-5),
            *(lambda m, x, w, reduction=reduction: m.cross_entropy(
                x, target, w.detach().exp(), label_smoothing=0.1, reduction=reduction)
              for reduction in ("mean", "sum", "none")),
            lambda m, x, w: m.cross_entropy(x, target, z_loss=0.5) if m is S else
            F.cross_entropy(x, target) + x[::2].logsumexp(1).square().sum() / 4,
        ]
        for i, call in enumerate(calls):
            found = []
            for module in (S, F):
                x, w = randn(3, 5).requires_grad_(), randn(5).requires_grad_()
                first = torch.autograd.grad(call(module, x, w).square().sum(), (x, w),
                                            create_graph=True, allow_unused=True)
                first = [g for g in first if g is not None]
                second = torch.autograd.grad(
                    sum(g.square().sum() for g in first), (x, w), allow_unused=True)
                found.append([*first, *(g for g in second if g is not None)])
            self.assertEqual(*map(len, found), i)
            for a, b in zip(*found):
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5, msg=str(i))
        x = randn(2, 5).requires_grad_()
        y, = torch.autograd.grad(S.scaled_softmax(x).square().sum(), x,
                                 create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "not implemented"):
            y.sum().backward()

    def test_compile(self):
        target = torch.arange(6)

        def step(x, w):
            y = S.layer_norm(x, 20, w, w)
            y = S.residual_add(y.float(), S.rms_norm(y, 20, w))
            y = S.scaled_softmax(y.to(x.dtype), 0.5)
            return S.cross_entropy(y, target)

        for dtype in DTYPES:
            inputs = [randn(*s, dtype=dtype) for s in ((6, 20), (20,))]
            self.assert_same(*(with_gradients(f, *inputs) for f in (
                step, torch.compile(step, backend="aot_eager"))), dtype)

    def test_memory(self):
        """Loss and gradient need the gradient, and nothing else of its size."""
        ours, stock = (growth(
            "x = torch.ones(512, 65536, dtype=torch.bfloat16).requires_grad_()\n"
            f"from {module}.functional import cross_entropy as f\n"
            "t = torch.zeros(512).long()",
            "f(x.detach()[:2].requires_grad_(), t[:2]).backward()",
            "f(x, t).backward()") for module in ("swamp_torch", "torch.nn"))
        size = 64  # MiB, of the gradient
        self.assertLess(ours, 1.3 * size)
        self.assertGreater(stock, 1.9 * size)


if __name__ == "__main__":
    main()
