"""swamp_torch.enable(reproducible=True): PyTorch's sum, mean, softmax, batch norm and
group norm."""

from support import TestCase, main
from half_precision import (EPS as HALF_EPS, assert_as_stock, both, randn,
                            use_reproducible as use, with_gradients)

import torch

F = torch.nn.functional
EPS = {**HALF_EPS, torch.float32: 2.0 ** -22}
LAST = torch.channels_last


def running(x, w, b):
    """Running statistics of x's channels."""
    k = torch.arange(w.numel(), dtype=w.dtype)
    return k / 8 - 1, k / 4 + 0.5


def batch(x, w, b):
    return F.batch_norm(x, None, None, w, b, True)


def evaluated(x, w, b):
    return F.batch_norm(x, *running(x, w, b), w, b, False)


# name, call, shapes of its inputs
CALLS = [
    ("sum", lambda x: x.sum(), [(3, 70, 1001)]),
    ("sum 0", lambda x: x.sum(0), [(1000, 37)]),
    ("sum 1", lambda x: x.sum(1, keepdim=True), [(3, 300, 11)]),
    ("sum -1", lambda x: x.sum(-1), [(5, 3, 9000)]),
    ("sum 0 2", lambda x: x.sum((0, -2)), [(7, 4, 30, 5)]),
    ("sum 0 2 4", lambda x: x.sum((0, 2, 4)), [(3, 2, 4, 3, 5)]),
    ("sum transposed", lambda x: x.t().sum(0), [(300, 21)]),
    ("sum expanded", lambda x: x.expand(40, 300).sum(1), [(40, 1)]),
    ("softmax", lambda x: x.softmax(-1), [(6, 1000)]),
    ("softmax 1", lambda x: x.softmax(1), [(2, 300, 5)]),
    ("softmax 0", lambda x: x.softmax(0), [(4, 5)]),
    ("mean", lambda x: x.mean((0, 1)), [(30, 17, 12)]),
    ("mse_loss", lambda x, y: F.mse_loss(x, y), [(300, 1000)] * 2),
    ("batch_norm", batch, [(4, 5, 6, 7), (5,), (5,)]),
    ("batch_norm 2", batch, [(40, 9), (9,), (9,)]),
    ("batch_norm 3", batch, [(4, 3, 50), (3,), (3,)]),
    ("batch_norm last", lambda x, w, b: batch(x.to(memory_format=LAST), w, b),
     [(4, 5, 6, 7), (5,), (5,)]),
    ("batch_norm evaluated", evaluated, [(4, 5, 6, 7), (5,), (5,)]),
    ("batch_norm plain", lambda x: F.batch_norm(x, None, None, None, None, True),
     [(4, 5, 6, 7)]),
    ("instance_norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
     [(2, 4, 50), (4,), (4,)]),
    ("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b),
     [(3, 6, 5, 7), (6,), (6,)]),
    ("group_norm plain", lambda x: F.group_norm(x, 3), [(3, 6, 35)]),
    ("group_norm 2", lambda x, w, b: F.group_norm(x, 2, w, b), [(3, 8), (8,), (8,)]),
]


class Channels(TestCase):
    def test_as_good_as_stock(self):
        """Results and gradients are at least as near to float64's as PyTorch's, or
        within a rounding."""
        for dtype in EPS:
            for name, call, shapes in CALLS:
                inputs = [randn(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes)]
                exact = with_gradients(call, *(x.double() for x in inputs))
                stock, ours = both(lambda: with_gradients(call, *inputs), use)
                for i, (a, b, e) in enumerate(zip(ours, stock, exact, strict=True)):
                    message = (name, dtype, i)
                    self.assertEqual((a.dtype, a.shape, a.stride()),
                                     (b.dtype, b.shape, b.stride()), message)
                    here, there = ((x.double() - e).norm() for x in (a, b))
                    self.assertLessEqual(
                        here, max(1.1 * there, 2 * EPS[dtype] * e.norm()), message)

    def test_running_statistics(self):
        for dtype in EPS:
            for own in {dtype, torch.float32}:
                def statistics():
                    layer = torch.nn.BatchNorm2d(5).to(own)
                    for seed in range(3):
                        layer(randn(4, 5, 6, 7, dtype=dtype, seed=seed))
                    return layer.state_dict()

                stock, ours = both(statistics, use)
                for key, value in stock.items():
                    self.assertTrue(torch.allclose(
                        ours[key].double(), value.double(), rtol=2 * EPS[own],
                        atol=2 * EPS[own]), (dtype, own, key))

    def test_memory_formats(self):
        use(True)
        for dtype in EPS:
            x, w, b = (randn(*s, dtype=dtype) for s in ((4, 5, 6, 7), (5,), (5,)))
            for name, call in (("batch", batch), ("evaluated", evaluated),
                               ("group", lambda x, w, b: F.group_norm(x, 5, w, b)),
                               ("sum", lambda x, w, b: x.sum((0, 2, 3)) + w + b)):
                self.assert_same(with_gradients(call, x.to(memory_format=LAST), w, b),
                                 with_gradients(call, x, w, b), (name, dtype))

    def test_stock(self):
        """What swamp does not take has PyTorch's results and errors."""
        x = randn(4, 6, 5)
        calls = {
            "int": lambda: torch.arange(100).sum(),
            "bool": lambda: (x > 0).sum(),
            "float64": lambda: x.double().sum(1),
            "complex": lambda: torch.complex(x, x).sum(),
            "empty": lambda: x[:0].sum(0),
            "ones": lambda: x[:1].sum(0),
            "scalar": lambda: x[0, 0, 0].sum(),
            "narrower": lambda: x.sum(0, dtype=torch.float16),
            "out": lambda: torch.sum(x.double(), 0, out=torch.empty(6, 5).double()),
            "twice": lambda: x.sum((0, 0)),
            "beyond": lambda: x.sum(3),
            "other out": lambda: torch.sum(x, 0, out=torch.empty(6, 5).int()),
            "short weight": lambda: F.batch_norm(x, None, None, x[0, 0], None, True),
            "one value": lambda: F.batch_norm(x[:1, :, :1], None, None, training=True),
            "groups": lambda: F.group_norm(x, 4),
            "softmax of a scalar": lambda: x[0, 0, 0].softmax(0),
            "softmax of nothing": lambda: x[:0].softmax(1),
            "softmax beyond": lambda: x.softmax(3),
            "softmax in float64": lambda: x.softmax(1, dtype=torch.float64),
        }
        assert_as_stock(self, calls, use)

    def test_softmax(self):
        """A masked row is nan, or 0 by _safe_softmax, and compiled code has the bits of
        eager mode."""
        use(True)
        x = randn(4, 6, 5).requires_grad_()
        for dtype in EPS:
            rows = x.detach().to(dtype).masked_fill(torch.eye(6, 5).bool(), -torch.inf)
            rows[1, 2] = -torch.inf
            self.assertEqual(rows.softmax(-1).isnan().any(-1).nonzero().tolist(),
                             [[1, 2]])
            safe = torch._safe_softmax(rows, -1)
            self.assertEqual(safe[1, 2].tolist(), [0] * 5)
            self.assert_same(safe[0], rows.softmax(-1)[0])
        call = lambda x: sum((2 * x).softmax(dim) for dim in (0, 1, -1))
        self.assert_same(with_gradients(torch.compile(call, backend="aot_eager"), x),
                         with_gradients(call, x))

    def test_results(self):
        """out=, dtype=, nan, inf, and graphs of second order."""
        use(True)
        x = randn(30, 40)
        out = torch.empty(0)
        torch.sum(x, 1, out=out)
        self.assertTrue(torch.equal(out, x.sum(1)))
        self.assertTrue(torch.equal(torch.sum(x, 1, dtype=torch.float64),
                                    x.double().sum(1)))
        self.assertTrue(torch.equal(x.half().sum(0, dtype=torch.float32),
                                    x.half().float().sum(0)))
        x[3, 4], x[5, 6], x[7, 7], x[7, 8] = float("nan"), float("inf"), float(
            "inf"), -float("inf")
        sums = x.sum(1)
        self.assertEqual([i for i in range(30) if sums[i].isnan()], [3, 7])
        self.assertEqual(sums[5], float("inf"))
        self.assertTrue(torch.autograd.gradgradcheck(
            lambda x: F.batch_norm(x, None, None, training=True),
            randn(3, 2, 4).double().requires_grad_()))
        y = randn(3, 2, 4).requires_grad_()
        g, = torch.autograd.grad(F.batch_norm(y, None, None, training=True)[0].sum(),
                                 y, create_graph=True)
        g.square().sum().backward()
        self.assertTrue(y.grad.isfinite().all())


if __name__ == "__main__":
    main()
