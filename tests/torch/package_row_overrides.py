"""swamp_torch.enable(half_precision=True): PyTorch's log_softmax, cross_entropy,
layer_norm and rms_norm of 16-bit tensors; and the activations."""

import math
from itertools import product

from support import CI, TestCase, a_fifth, main, same
from half_precision import (CALLS, EPS, HALF, REPRODUCIBLE, assert_as_stock, both, randn,
                            use, use_reproducible, with_gradients)

import torch
import torch._inductor.utils
from torch._dynamo.testing import AotEagerAndRecordGraphs

import swamp_torch

F = torch.nn.functional


# Of these calls all inputs after the first may be float32.
MIXED = {name for name, _, shapes in CALLS if "_norm" in name and len(shapes) > 1}
NAMES = {name for name, *_ in REPRODUCIBLE}
TARGET = torch.arange(6)


def use_for(name):
    """Returns what switches the operators of a row of CALLS."""
    return lambda ours: swamp_torch.enable(
        half_precision=ours, reproducible=ours and name in NAMES)


class Overrides(TestCase):
    def test_no_worse_than_stock(self):
        """Results are rounded once; gradients are at least as good as PyTorch's."""
        for dtype in HALF:
            for name, call, shapes in CALLS:
                for kind in (dtype, torch.float32) if name in MIXED else (dtype,):
                    inputs = [randn(*s, dtype=dtype if i == 0 else kind)
                              for i, s in enumerate(shapes)]
                    exact = with_gradients(call, *(x.double() for x in inputs))
                    stock, ours = both(lambda: with_gradients(call, *inputs),
                                       use_for(name))
                    message = (name, dtype, kind)
                    self.assertEqual([(x.dtype, x.shape, x.stride()) for x in ours],
                                     [(x.dtype, x.shape, x.stride()) for x in stock],
                                     message)
                    # PyTorch's gelu has an error of 1e-5 where it is small.
                    self.assertLessEqual(
                        ((ours[0] - exact[0]).abs()
                         - 1.01 * EPS[dtype] * exact[0].abs()).max(),
                        1e-5 if name == "gelu" else 1e-7, message)
                    # The incoming gradients are those of a rounded result.
                    for i, (a, b, c) in enumerate(zip(ours, stock, exact)):
                        self.assertLessEqual(
                            (a.double() - c).norm().item(),
                            1.02 * (b.double() - c).norm().item()
                            + 1e-3 * EPS[dtype] * c.norm().item() + 1e-6,
                            (message, i))

    def test_bytes_as_classes(self):
        """As a byte -100, the default of ignore_index, is 156."""
        use(True)
        classes = torch.arange(156, 162)
        for dtype, reduction in product(HALF, ("mean", "sum", "none")):
            x = randn(6, 1000, dtype=dtype)
            self.assert_same(F.nll_loss(x, classes.byte(), reduction=reduction),
                             F.nll_loss(x, classes, reduction=reduction))

    def test_large_numbers(self):
        """log_softmax and its gradient keep the log of the sum."""
        swamp_torch.enable(reproducible=True)
        for dtype in (*HALF, torch.float32):
            eps = EPS.get(dtype, 2.0 ** -22)
            largest = torch.finfo(dtype).max
            for base in (0.0, 100.0, -1e4, 6e4, 1e7, 1e30, largest):
                for shape, dim in (((4, 3), 1), ((4, 3), 0), ((2, 5, 9), 1), ((5,), 0),
                                   ((3, 1), 1), ((2, 5000), -1)):
                    if base > largest:
                        continue
                    x = torch.full(shape, base, dtype=dtype)
                    if base < largest:
                        x = (x.float() + torch.arange(x.numel()).view(shape) % 3).to(dtype)
                    x.requires_grad_()
                    wide = (x.detach().double() - x.detach().double().amax(dim, True))
                    wide.requires_grad_()
                    g = randn(*shape, dtype=dtype)
                    y, exact = x.log_softmax(dim), wide.log_softmax(dim)
                    y.backward(g)
                    exact.backward(g.double())
                    message = (dtype, base, shape, dim)
                    self.assertTrue(
                        ((y - exact).abs() <= 1.02 * eps * exact.abs() + 1.5e-7).all(),
                        message)
                    # The gradient is made of the rounded result.
                    error = (x.grad.double() - wide.grad).abs()
                    size = 1 + exact.abs().max() * g.double().sum(dim, True).abs()
                    self.assertTrue((error <= 3 * eps * (wide.grad.abs() + size)).all(),
                                    message)
        x = torch.full((3,), 1e7).log_softmax(0)
        torch.testing.assert_close(x, torch.full((3,), -math.log(3)))

    def test_wide_softmax(self):
        """softmax(dtype=torch.float32) and its gradient have PyTorch's bits; it has a
        second one."""
        for dtype, call, (shape, dim), turned in product(
                HALF, (F.softmax, F.log_softmax),
                (((150, 1000), -1), ((3, 70, 640), 2), ((5, 70000), 1), ((140000,), 0),
                 ((150, 1000), 0), ((0, 9), 1)), (False, True)):
            x = randn(*shape, dtype=dtype)
            x = x.mT if turned and x.dim() > 1 else x

            def gradients():
                y = x.detach().requires_grad_()
                z = call(y, dim, dtype=torch.float32)
                first, = torch.autograd.grad(z, y, torch.linspace(
                    -1, 1, z.numel()).view(z.shape), create_graph=True)
                second, = torch.autograd.grad(first.float().square().sum(), y)
                return [z.detach(), first.detach(), second]
            stock, ours = both(gradients)
            for i, (a, b) in enumerate(zip(ours, stock, strict=True)):
                message = (dtype, call, shape, dim, turned, i)
                self.assertEqual((a.dtype, a.stride()), (b.dtype, b.stride()), message)
                if i < 2:
                    self.assert_same(a, b, message)
                else:
                    torch.testing.assert_close(a, b, rtol=0.05, atol=1e-4)

    def test_sums_of_losses(self):
        """The mean of float16 losses whose sum exceeds 65504."""
        use(True)
        for dtype in HALF:
            for shape in ((16384, 100), (20, 100, 1025)):
                x, p = randn(*shape, dtype=dtype), randn(*shape, seed=1).softmax(1).to(dtype)
                target = torch.arange(x.numel() // 100).view(shape[:1] + shape[2:]) % 100
                w = randn(100).exp().to(dtype)
                for name, call, inputs in (
                        ("probabilities", F.cross_entropy, (x, p)),
                        ("smoothed", lambda x, p: F.cross_entropy(
                            x, p, w.to(x.dtype), label_smoothing=0.1), (x, p)),
                        ("nll", lambda x: F.nll_loss(x, target, w.to(x.dtype)), (x,)),
                        ("sum", lambda x: F.nll_loss(x, target, ignore_index=3,
                                                     reduction="sum") / 1024, (x,))):
                    exact = with_gradients(call, *(i.double() for i in inputs))
                    ours = with_gradients(call, *inputs)
                    for a, b in zip(ours, exact):
                        self.assertEqual(a.dtype, dtype)
                        if name == "sum" and a.dim() == 0 and dtype == torch.float16:
                            continue  # the sum itself is beyond float16
                        self.assertLessEqual(
                            ((a.double() - b).abs() - 2 * EPS[dtype] * b.abs()).max(),
                            1e-7, (name, dtype, shape))

    def test_anything_else_is_stock(self):
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        small = [
            lambda t: F.cross_entropy(t(4, 3), torch.tensor([0, 1, 2, 3])),
            lambda t: F.cross_entropy(t(4, 3), t(4, 3).softmax(-1)),
            lambda t: F.cross_entropy(t(4, 3), torch.zeros(3).long()),
            lambda t: F.cross_entropy(t(4, 3), torch.zeros(4).int()),
            lambda t: F.cross_entropy(t(0, 3), torch.zeros(0).long()),
            lambda t: F.log_softmax(t(4, 0), 1), lambda t: F.log_softmax(t(4), 3),
            lambda t: F.layer_norm(t(4, 3), (4,)),
            lambda t: F.layer_norm(t(4, 3), (3,), torch.ones(3).double()),
            lambda t: F.layer_norm(t(0, 3), (3,)), lambda t: F.rms_norm(t(0, 3), (3,)),
            lambda t: F.rms_norm(t(4, 3), (4,)),
            lambda t: F.rms_norm(t(4, 3), (3,), torch.ones(2)),
            lambda t: F.max_pool1d(t(2, 3, 9), 3, 2, 1), lambda t: F.max_pool1d(t(3, 4), 5),
            lambda t: t(0, 3).norm(), lambda t: t(3, 4).norm(dim=3), lambda t: t(3).norm(3),
            lambda t: torch.dot(t(3), t(4)), lambda t: torch.dot(t(0), t(0)),
            lambda t: torch.mv(t(3, 4), t(3)), lambda t: torch.mv(t(3, 0), t(0)),
            lambda t: F.group_norm(t(2, 3, 4), 2), lambda t: t(0).pow(2),
            *(lambda t, more=more: flash(*[t(2, 4, 33, 16)] * 3, **more) for more in (
                dict(dropout_p=0.5), dict(attn_mask=torch.ones(33)),
                dict(attn_mask=torch.ones(33, 33).bool()))),
            lambda t: flash(t(2, 4, 33, 16), t(2, 4, 33, 16).int(), t(2, 4, 33, 16)),
            lambda t: flash(t(2, 4, 33, 16), t(2, 4, 33, 8), t(2, 4, 33, 16)),
            lambda t: flash(*[t(4, 33, 16)] * 3),
        ]
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            def make(*shape):
                return randn(*shape, dtype=dtype)

            calls = {i: (lambda c=c: c(make)) for i, c in enumerate(small)}
            if dtype is torch.bfloat16:
                del calls[1]  # which PyTorch computes, and swamp not
            else:
                calls |= {name: lambda call=call, shapes=shapes: with_gradients(
                    call, *map(lambda s: make(*s), shapes))
                    for name, call, shapes in CALLS}
            self.assertIn(0, assert_as_stock(self, calls))

    def test_switch_between_directions(self):
        """Off in the backward after on in the forward, and the opposite."""
        for dtype in HALF:
            for name, call, shapes in CALLS:
                for first, second in ((True, False), (False, True)):
                    inputs = [randn(*s, dtype=dtype) for s in shapes]
                    exact = with_gradients(call, *(x.double() for x in inputs))
                    inputs = [x.requires_grad_() for x in inputs]
                    use_for(name)(first)
                    y = call(*inputs)
                    use_for(name)(second)
                    y.backward(randn(*y.shape, dtype=y.dtype, seed=1))
                    for x, e in zip(inputs, exact[1:]):
                        self.assertLessEqual((x.grad.double() - e).norm(),
                                             20 * EPS[dtype] * e.norm(), name)

    def test_round_trip(self):
        for dtype in HALF:
            for name, call, shapes in CALLS:
                inputs = [randn(*s, dtype=dtype) for s in shapes]
                found = []
                for way in (False, True, False, True, None):
                    swamp_torch.disable() if way is None else use_for(name)(way)
                    found.append(with_gradients(call, *inputs))
                for i, j in ((0, 2), (1, 3), (0, 4)):
                    self.assert_same(found[i], found[j], name)


def step(x, w, b):
    y = F.rms_norm(F.layer_norm(x, (40,), w, b), (40,), w)
    return F.cross_entropy(y, TARGET) + F.log_softmax(y, -1)[:, 0].sum()


def autocast(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.cross_entropy(F.linear(x, w), TARGET)


def activations(x, w):
    y = F.silu(x @ w, inplace=True) * torch.exp(-F.softplus(x)) + F.gelu(x)
    return F.mish(y) + F.elu(x, 1.5) * F.logsigmoid(x)


@torch.compiler.nested_compile_region
def layer(x, w):
    return x + F.rms_norm(F.layer_norm(x, (40,), w), (40,), w)


def layers(x, w):
    for one in w.unbind():
        x = layer(x, one)
    return x.sum()


# The operators of step(), forward and backward.
OURS = ["_cross_entropy", "_cross_entropy_backward", "_log_softmax",
        "_log_softmax_backward", "layer_norm", "layer_norm_backward", "rms_norm",
        "rms_norm_backward"]
NORMS = ["layer_norm", "layer_norm_backward", "rms_norm", "rms_norm_backward"]
# name, function, shapes and dtypes of the inputs, swamp's operators in the graphs
# with half_precision, and with reproducible
VECTORS = ((6, 40), (40,), (40,))
GRAPHS = [
    *((f"step {dtype}", step, VECTORS, dtype, OURS, OURS) for dtype in HALF),
    ("float32", step, VECTORS, torch.float32, [], OURS),
    ("float64", step, VECTORS, torch.float64, [], []),
    ("2 dimensions", lambda x: F.layer_norm(x, (5, 8)), ((6, 5, 8),), torch.float16,
     NORMS[:2], NORMS[:2]),
    ("images", lambda x: F.cross_entropy(x, TARGET.view(2, 3)), ((2, 50, 3),),
     torch.bfloat16, [], OURS[:2]),
    ("probabilities", lambda x: F.cross_entropy(x, x.detach().softmax(-1)),
     ((6, 40),), torch.float16, [], [*OURS[2:4], "scaled_softmax"]),
    ("softmax", lambda x: x.softmax(1), ((3, 40, 5),), torch.float32, [],
     ["_scaled_softmax_backward", "scaled_softmax"]),
    ("activations", activations, ((6, 40), (40, 40)), torch.float32, [],
     7 * ["activation"] + 7 * ["activation_backward"]),
    ("nll_loss", lambda x: F.nll_loss(x, TARGET), ((6, 40),), torch.float16, [], []),
    ("to float32", lambda x: F.log_softmax(x, -1, dtype=torch.float32), ((6, 40),),
     torch.float16, [], []),
    ("autocast", autocast, ((6, 40), (50, 40)), torch.float32, OURS[:2], OURS[:2]),
    ("embedding", lambda w: F.embedding(TARGET % 3, w), ((6, 40),), torch.float32, [],
     ["_embedding_dense_backward"]),
    *((name, call, ((6, 40),), torch.float32, [], ["_index_put_sum"])
      for name, call in (("index", lambda w: w[TARGET % 3]),
                         ("index_select", lambda w: w.index_select(0, TARGET % 3)),
                         ("take", lambda w: w.take(TARGET % 3)))),
    ("vmap", lambda x: torch.func.vmap(lambda y: F.layer_norm(y, (40,)))(x),
     ((6, 40),), torch.float16, [], []),
    # A region is compiled once, however many layers there are; and once more for the
    # last layer, whose gradient has other strides. PyTorch 2.10 compiles it more often.
    *((f"{count} layers", layers, ((6, 40), (count, 40)), torch.float16,
       *[sorted(2 * NORMS)] * 2) for count in (4, 8)
      if torch.torch_version.TorchVersion(torch.__version__) >= "2.13"),
]


class Activations(TestCase):
    """PyTorch's activations with swamp's kernels."""

    def test_forms(self):
        """Results, in place and into other tensors, have the bits and the order in
        memory of PyTorch's, or are the same error."""
        def grid():
            return randn(4, 6, 10).transpose(0, 2)

        calls = {}
        for name in ("silu", "gelu", "tanh", "sigmoid", "exp", "softplus", "mish", "elu",
                     "exp2", "expm1"):
            op = getattr(torch.ops.aten, name)
            for kind, x in (("permuted", grid()), ("strided", grid()[:, ::2]),
                            ("expanded", randn(1, 6).expand(4, 6)), ("scalar", grid()[0, 0, 0]),
                            ("empty", randn(0, 3)), ("float64", randn(5).double()),
                            ("integers", torch.arange(5)), ("complex", randn(5) * 1j)):
                calls[name, kind] = op, x
        for (name, kind), (op, x) in calls.items():
            with self.subTest((name, kind)):
                stock, ours = both(lambda: op(x), use_reproducible)
                if not isinstance(stock, torch.Tensor):
                    self.assertEqual(ours, stock)
                    continue
                self.assertEqual((ours.dtype, ours.shape, ours.stride()),
                                 (stock.dtype, stock.shape, stock.stride()))
                # PyTorch's gelu has an error of 1e-5 where it is small.
                torch.testing.assert_close(ours, stock, rtol=1e-6, atol=5e-7)
                out = torch.empty(0, dtype=ours.dtype)
                self.assertIs(op.out(x, out=out), out)
                self.assert_same(out, ours)
                if name != "softplus" and x.is_floating_point() and kind != "expanded":
                    y = x.clone(memory_format=torch.preserve_format)
                    self.assertIs(getattr(torch.ops.aten, name + "_")(y), y)
                    self.assert_same(y, ours)

    def test_every_number(self):
        """exp and log of every 16-bit number are rounded correctly, but for one each."""
        swamp_torch.enable(half_precision=True)
        for dtype in HALF:
            x = torch.arange(-2 ** 15, 2 ** 15).to(torch.int16).view(dtype)
            for call, most in ((torch.exp, 1), (torch.log, 0)):
                y, expected = call(x), call(x.double()).to(dtype)
                wrong = (y.view(torch.int16) != expected.view(torch.int16)) & ~y.isnan()
                self.assertLessEqual(wrong.sum().item(), most, (call, dtype))
                self.assertTrue(torch.equal(y.isnan(), expected.isnan()))
                # Whole vectors, and what is left.
                parts = [call(part) for part in x.split(4096 + 77)[:-1]]
                self.assert_same(torch.cat(parts), y[:sum(map(len, parts))])

    def test_tables(self):
        """Results that are looked up have the bits of computed ones."""
        names = ("log", "log1p", "expm1", "tanh", "sigmoid", "silu", "mish", "gelu", "rsqrt")
        calls = {name: getattr(torch.ops.aten, name) for name in names}
        calls["gelu_tanh"] = lambda x: F.gelu(x, approximate="tanh")
        for k in (1.0, 0.3):
            calls |= {f"softplus {k}": lambda x, k=k: F.softplus(x, 1 + k, 9 * k),
                      f"elu {k}": lambda x, k=k: F.elu(x, k),
                      f"celu {k}": lambda x, k=k: F.celu(x, k)}
        calls["selu"] = F.selu
        for dtype, (name, call) in product(HALF, calls.items()):
            swamp_torch.enable(reproducible=True)
            x = torch.arange(-2 ** 15, 2 ** 15).to(torch.int16).view(dtype).view(64, 16, 64)
            expected = torch.cat([call(part) for part in x.split(2)])  # too few
            for one in (*5 * (x,), x, x.transpose(0, 2), x[:, ::2]):
                self.assert_same(call(one), expected.as_strided(
                    one.shape, one.stride()).clone(), (name, dtype))
            if name in names:
                self.assert_same(getattr(torch.ops.aten, name + "_")(x), expected)

    def test_sums_of_zeros(self):
        for dtype, call in product(HALF, (torch.sum, torch.mean)):
            stock, ours = both(lambda: call(-torch.zeros(4, 8192, dtype=dtype), 0))
            self.assert_same(ours, stock, (dtype, call))

    def test_comparisons(self):
        """Every number compares with another as in PyTorch."""
        for dtype, name in product(HALF, ("eq", "ne", "lt", "le", "gt", "ge")):
            x = torch.arange(-2 ** 15, 2 ** 15).to(torch.int16).view(dtype)
            x = x.repeat(4).view(64, 64, 64)
            call = getattr(torch.Tensor, name)
            even = 2 ** 62 + 2 ** 54 + 2 ** 38  # PyTorch rounds it and the next in other ways
            for number in (0, -0.0, 0.1, True, even, even + 1, 1e39, float("nan"), 1j, 0):
                for one in (x, x, x.transpose(0, 2), x[:, ::2], x[:3]):
                    stock, ours = both(lambda: call(one, number))
                    if isinstance(stock, torch.Tensor):
                        self.assert_same(ours, stock, (name, dtype, number))
                        self.assertEqual(ours.stride(), stock.stride())
                    else:
                        self.assertEqual(ours, stock)

    def test_functional(self):
        """Gates of two tensors and of the halves of one, and second derivatives."""
        f = swamp_torch.functional
        for dtype in (*HALF, torch.float32):
            x = randn(3, 5, 14, dtype=dtype)
            gate, up = x.chunk(2, -1)
            for name, call in (("silu", F.silu), ("gelu", F.gelu), ("sigmoid", torch.sigmoid),
                               ("relu_squared", lambda x: F.relu(x).square())):
                ours = with_gradients(lambda x: f.gated_activation(x, function=name), x)
                self.assert_same(ours[:1], with_gradients(
                    lambda a, b: f.gated_activation(a, b, name), gate, up)[:1])
                exact = with_gradients(lambda x: call(x[..., :7]) * x[..., 7:], x.double())
                for one, other in zip(ours, exact):
                    torch.testing.assert_close(one.double(), other, rtol=2 * EPS.get(
                        dtype, 2.0 ** -24), atol=1e-7)
        x = randn(3, 8).double()
        for name in ("silu", "tanh", "softplus", "exp", "log", "log1p", "expm1", "rsqrt",
                     "mish", "elu", "pow", "pow_base"):
            y = (x.abs() if name in ("log", "rsqrt", "pow") else x).float()
            y.clamp_(-0.9).requires_grad_()  # for log1p
            first, = torch.autograd.grad(f.activation(y, name, beta=1.5).sum(), y,
                                         create_graph=True)
            second, = torch.autograd.grad(first.square().sum(), y)
            self.assertTrue(second.isfinite().all() and second.abs().sum() > 0, name)
        for call, text in (
                (lambda: f.activation(x.float(), "relu6"), "function: got 'relu6', expected one of silu, "),
                (lambda: f.gated_activation(randn(2, 3)), "expected an even number without up"),
                (lambda: f.gated_activation(randn(2, 4), randn(2, 3)), "up: got"),
                (lambda: f.activation(x), "activation")):
            with self.assertRaisesRegex((RuntimeError, ValueError, NotImplementedError), text):
                call()


class Pointwise(TestCase):
    """Sums, products, limits and sums by indices, of which PyTorch's results of 16 bits
    are float32's, too, or rounded more often."""

    UNARY = {
        "clamp": lambda x: x.clamp(-0.3, 1), "clamp 0": lambda x: x.clamp(0),
        "clamp 2 to 1": lambda x: x.clamp(2, 1), "clamp_max": lambda x: x.clamp_max(-0.0),
        "clamp_": lambda x: x.clamp_(-1, 0.3), "clamp_min_": lambda x: x.clamp_min_(0.3),
        "clamp inf": lambda x: x.clamp(float("-inf"), float("inf")),
        "clamp nan": lambda x: x.clamp(float("nan"), 1), "clamp none": torch.clamp,
        "clamp 1e39": lambda x: x.clamp(-1e39, 1e39), "clamp whole": lambda x: x.clamp(-1, 1),
        "hardtanh": F.hardtanh, "relu6_": lambda x: F.relu6(x, inplace=True),
        "relu": F.relu, "relu_": lambda x: x.relu_(),
        "hardswish": F.hardswish, "hardswish_": lambda x: F.hardswish(x, inplace=True),
        "add a number": lambda x: x + 0.3, "add_ a number": lambda x: x.add_(-3),
        "from a number": lambda x: 0.3 - x, "number": lambda x: x - 7,
        "twice": lambda x: 2 * x, "mul_ a number": lambda x: x.mul_(-0.3),
        "zero": lambda x: x * 0, "minus zero": lambda x: x * -0.0, "from 0": lambda x: 0 - x,
        "truth": lambda x: x * True, "nan": lambda x: x + float("nan"),
        "inf": lambda x: x * float("-inf"), "1e39": lambda x: x * 1e39,
        "2^60": lambda x: x + 2 ** 60, "complex": lambda x: x * 1j, "half": lambda x: x * torch.tensor(0.3, dtype=x.dtype),
        "double": lambda x: x * torch.tensor(0.3, dtype=torch.float64),
        "double first": lambda x: torch.tensor(0.3, dtype=torch.float64) * x,
        "large first": lambda x: torch.tensor(1e5) * x, "add truth": lambda x: x + True,
        "minus truth": lambda x: x - True, "from truth": lambda x: torch.tensor(True) - x,
        "sub_ truth": lambda x: x.sub_(True), "complex alpha": lambda x: x.add(1, alpha=1 + 0j),
        "alpha": lambda x: x.add(3, alpha=0.25), "true alpha": lambda x: x.add(3, alpha=True),
        "large alpha": lambda x: x.add(3, alpha=1e39),
        "alpha of float32": lambda x: x.add_(x.clone(), alpha=3.4e38), "sub alpha": lambda x: x.sub_(1, alpha=-0.5),
        "flip": lambda x: x.flip(-1), "flip 0": lambda x: x.flip(0), "flip both": lambda x: x.flip(0, 1),
        "cumsum": lambda x: x.cumsum(-1), "cumsum_": lambda x: x.cumsum_(1),
        "cumsum 0": lambda x: x.cumsum(0), "wide cumsum": lambda x: x.cumsum(1, dtype=torch.double),
        "amax 2": lambda x: x.amax(2), "mean 2": lambda x: x.mean(2), "mean twice": lambda x: x.mean((1, -1)),
        "wide mean": lambda x: x.mean(1, dtype=torch.double), "wide sum": lambda x: x.sum(dtype=torch.float),
        "one of itself": lambda x: x.mul_(x[0, 0]),
        "hardsigmoid": F.hardsigmoid, "leaky_relu": lambda x: F.leaky_relu(x, 0.01),
        "leaky_relu_": lambda x: F.leaky_relu(x, -2, inplace=True)}
    BINARY = {
        "add": torch.add, "sub": torch.sub, "mul": torch.mul,
        "add_": lambda x, y: x.add_(y), "sub_": lambda x, y: x.sub_(y),
        "mul_": lambda x, y: x.mul_(y), "twice": lambda x, y: x.add_(x),
        "alpha": lambda x, y: x.add(y, alpha=2), "reverse": lambda x, y: y - x,
        "prelu": lambda x, y: torch._prelu_kernel(x, y), "part": lambda x, y: x.view(-1)[1:].add_(
            x.view(-1)[:-1]), "itself": lambda x, y: x.mul_(x[:1]),
        "maximum": torch.maximum, "minimum": torch.minimum, "maximum of two": lambda x, y: torch.maximum(y, x),
        "lerp 1": lambda x, y: x.lerp(y, True), "lerp complex": lambda x, y: x.lerp(y, 1j),
        "sub alpha": lambda x, y: x.sub(y, alpha=True)}
    # PyTorch's of these are fused, so that they are rounded less often.
    FUSED = {
        "alpha": lambda x, y, z: x.add(y, alpha=0.3), "sub alpha": lambda x, y, z: x.sub_(y, alpha=0.3),
        "addcmul": lambda x, y, z: x.addcmul(y, z, value=0.3), "addcmul_": lambda x, y, z: x.addcmul_(y, z),
        "addcmul of itself": lambda x, y, z: x.addcmul_(x, x, value=-2),
        "addcmul true": lambda x, y, z: x.addcmul(y, z, value=True),
        "addcdiv": lambda x, y, z: x.addcdiv(y, z, value=0.3), "addcdiv_": lambda x, y, z: x.addcdiv_(y, z),
        "lerp": lambda x, y, z: x.lerp(y, 0.3), "lerp_": lambda x, y, z: x.lerp_(y, -0.7),
        "lerp tensor": lambda x, y, z: x.lerp(y, z), "lerp_ tensor": lambda x, y, z: x.lerp_(y, z)}
    REFUSED = {
        "complex": lambda x, y, z: x.addcmul(y, z, value=1j), "wide": lambda x, y, z: x.addcdiv(y.double(), z),
        "large": lambda x, y, z: x.addcmul(y, z, value=1e39), "lerp": lambda x, y, z: x.lerp(y.double(), 0.3),
        "lerp weight": lambda x, y, z: x.lerp(y, z.double()),
        "part": lambda x, y, z: x.view(-1)[1:].addcmul_(x.view(-1)[:-1], x.view(-1)[:-1]),
        "part of lerp": lambda x, y, z: x.view(-1)[1:].lerp_(x.view(-1)[:-1], x.view(-1)[:-1]),
        "size": lambda x, y, z: x.addcmul(y[:3], z), "out": lambda x, y, z: torch.addcmul(x, y, z, out=z.clone())}

    def special(self, dtype, shape, layout="rows", seed=0):
        x = 2 * randn(*shape, dtype=dtype, layout=layout, seed=seed)
        if layout not in ("expanded", "steps"):
            one = x.view(-1) if layout == "rows" else x[0]
            inf, tiny = float("inf"), torch.finfo(dtype).tiny
            few = torch.tensor([0.0, -0.0, inf, -inf, float("nan"), tiny, -tiny / 8, 3, -3, 6,
                                torch.finfo(dtype).max], dtype=dtype)
            one[:11] = few if one.shape[:1] != (11,) else few
        return x

    def compare(self, calls, make):
        for name, call in calls.items():
            stock, ours = both(lambda: call(*make()))
            if not isinstance(stock, torch.Tensor):
                self.assertEqual(ours, stock, name)
                continue
            self.assertTrue(same(ours.float(), stock.float(), any_nan=True), name)
            self.assertEqual((ours.dtype, ours.stride()), (stock.dtype, stock.stride()), name)

    def test_bits(self):
        """Of any layout, and of operands that are rows, columns or channels."""
        for dtype in HALF:
            for layout in ("rows", "columns", "slice", "steps", "expanded"):
                self.compare(self.UNARY, lambda: [self.special(dtype, (67, 101), layout)])
                for other in ((67, 101), (101,), (1, 101), (67, 1), (1, 1), (), (2, 67, 101)):
                    self.compare(self.BINARY, lambda: [
                        self.special(dtype, (67, 101), layout), randn(*other, dtype=dtype)])
            for shape, other in (((2, 5, 20, 30), (5, 1, 1)), ((2, 5, 20, 30), (2, 1, 20, 30)),
                                 ((2, 5, 20, 30), (2, 5, 1, 1)), ((3, 40, 50), (1, 40, 50)),
                                 ((3, 40, 50), (3, 1, 50)), ((400, 12), (12,))):
                self.compare(self.BINARY, lambda: [
                    self.special(dtype, shape), randn(*other, dtype=dtype)])
            image = randn(2, 8, 20, 30, dtype=dtype).to(memory_format=torch.channels_last)
            for other in (image.flip(0), image.contiguous(), image[:, :, :1, :1], image.float()):
                self.compare(self.BINARY, lambda: [image.clone(), other])
            # Dimensions of one element with other strides than those of a new tensor.
            for x in (*(torch.randn(shape).to(dtype, memory_format=torch.channels_last)
                        for shape in ((8, 1, 20, 30), (8, 1024, 1, 1))),
                      randn(2, 100, 1, 64, dtype=dtype).transpose(1, 2)):
                self.compare(self.UNARY, lambda: [x.clone()])
                for other in (x.flip(0), x[:, :, :1, :1], x[:1], x[0, 0, 0]):
                    self.compare(self.BINARY, lambda: [x.clone(), other])
                for name in self.LOSSES:
                    stock, ours = both(lambda: getattr(F, name)(x, x.flip(0), reduction="none"))
                    self.assertEqual(ours.stride(), stock.stride(), name)

    def test_fused(self):
        """Each operation is rounded to float32, the result to the dtype; nan, inf and
        strides are PyTorch's."""
        for dtype, (layout, other), (name, call) in product(
                HALF, (("rows", "rows"), ("columns", "columns"), ("slice", "slice"),
                       ("steps", "rows"), ("columns", "rows"), ("rows", "expanded")),
                self.FUSED.items()):
            inputs = [self.special(dtype, (67, 101), each, seed) for seed, each in
                      enumerate((layout, other, other))]
            inputs[2] = inputs[2].roll(3, -1)  # special numbers meet others
            stock, ours = both(lambda: call(inputs[0].clone(), *inputs[1:]))
            message = (name, dtype, layout, other)
            self.assertEqual((ours.dtype, ours.stride()), (stock.dtype, stock.stride()), message)
            self.assertTrue(stock.isnan().equal(ours.isnan()), message)
            x, y, z = (i.double() for i in inputs)
            exact = call(x.clone(), y, z)
            size = exact.abs() + x.abs() + y.abs() + (exact - x).abs()
            at = exact.to(dtype).isfinite() & (size < 1e38)
            near = ((ours.double() - exact).abs() <= 1.01 * EPS[dtype] * exact.abs()
                    + 2.0 ** -21 * size + 1e-7)
            # Of several layouts it is PyTorch's, which rounds some numbers first.
            self.assertTrue((near | (ours == stock if layout != other else near))[at].all(),
                            message)
            at = ~size.isfinite()
            self.assertTrue(same(ours[at].float(), stock[at].float(), any_nan=True), message)
        for dtype in HALF:
            x, y, z = (randn(67, 101, dtype=dtype, seed=i) for i in range(3))
            assert_as_stock(self, {name: lambda call=call: call(x.clone(), y, z)
                                   for name, call in self.REFUSED.items()})

    GRADIENTS = {
        "threshold_backward": [(0,), (-0.3,)], "hardtanh_backward": [(-1, 1), (0, 6)],
        "hardsigmoid_backward": [()], "leaky_relu_backward": [(0.01, False), (0.3, True),
                                                           (-0.1, True), (-0.1, False)]}

    def test_gradients(self):
        """Of any layout, also of another one than the incoming gradient's, they have
        PyTorch's bits; at nan those of limits are 0, PyTorch's depend on where it is."""
        for dtype in HALF:
            for layout in ("rows", "columns", "slice", "steps", "expanded"):
                for name, rows in self.GRADIENTS.items():
                    for numbers in rows:
                        def gradient(x, grad):
                            x = x.nan_to_num(2) if "hardtanh" in name else x
                            return getattr(torch.ops.aten, name)(grad, x, *numbers)
                        for other in (layout, "columns"):
                            self.compare({name: gradient}, lambda: [
                                self.special(dtype, (67, 101), layout),
                                randn(67, 101, dtype=dtype, layout=other, seed=1)])
            nan = torch.full((4096,), float("nan"), dtype=dtype)
            use(True)
            self.assertFalse(torch.ops.aten.hardtanh_backward(nan, nan, -1, 1).any())

    LOSSES = {"mse_loss": [()], "huber_loss": [(1.0,), (0.7,)],
              "smooth_l1_loss": [(1.0,), (0.3,)]}

    def test_losses(self):
        """They and their gradients are float32's, rounded once."""
        for dtype in HALF:
            for name, rows in self.LOSSES.items():
                for more, reduction, layout in product(rows, range(3), ("rows", "columns")):
                    x, y = (randn(60, 170, dtype=dtype, layout=layout, seed=i)
                            for i in (1, 2))
                    grads = [randn(dtype=dtype)] if reduction else [
                        randn(60, 170, dtype=dtype, layout=layout),
                        randn(dtype=dtype).expand(60, 170)]
                    for part, *inputs in (("", x, y), *(("_backward", g, x, y) for g in grads)):
                        call = getattr(torch.ops.aten, name + part)
                        stock, ours = both(lambda: call(*inputs, reduction, *more))
                        if part and layout == "columns":
                            self.assert_same(ours, stock)  # PyTorch's
                            continue
                        use(False)
                        wide = call(*(i.double() for i in inputs), reduction, *more)
                        self.assertEqual((ours.dtype, ours.shape, ours.stride()),
                                         (stock.dtype, stock.shape, stock.stride()))
                        # In its first 22 bits float32 is the double result.
                        near = 2.0 ** -21 * wide.abs() + 1e-30
                        low, high = ((wide + s * near).to(dtype) for s in (-1, 1))
                        self.assertTrue(((low <= ours) & (ours <= high)).all(),
                                        (name, part, dtype, reduction, more, layout))
            x = torch.full((4096,), float("inf"), dtype=dtype)
            use(True)
            for name in self.LOSSES:
                for reduction in range(3):
                    found = getattr(torch.ops.aten, name)(x, -x, reduction)
                    self.assertTrue((found == float("inf")).all())
            small = randn(3, 4, dtype=dtype)
            for name in self.LOSSES:
                call, more = getattr(F, name), self.LOSSES[name][0]
                assert_as_stock(self, {
                    "small": lambda: call(small, small.flip(0)),
                    "wrong": lambda: call(x, x.double()[:3]),
                    "reduction": lambda: getattr(torch.ops.aten, name)(x, -x, 3),
                    "gradient": lambda: getattr(torch.ops.aten, name + "_backward")(
                        small[0, 0].expand(4), x, -x, 1, *more),
                    "empty": lambda: call(small[:0], small[:0])})

    def test_sums_by_indices(self):
        """Sums are float32, in the order of the rows, and rounded once."""
        for dtype in HALF:
            for n, count, more in ((8, 100, (100,)), (50, 60, (10, 9)), (3, 3, (2000,))):
                index = torch.arange(count) * 7919 % 101 % n
                x, y = randn(n, *more, dtype=dtype), randn(count, *more, dtype=dtype)
                wide = index.view(-1, *[1] * len(more)).expand(y.shape)
                use(False)
                expected = x.float().index_add(0, index, y.float()).to(dtype)
                use(True)
                for found in (x.index_add(0, index, y), x.clone().index_add_(0, index, y),
                              torch.index_add(x, 0, index, y, out=torch.empty_like(x)),
                              x.scatter_add(0, wide, y), x.clone().scatter_add_(0, wide, y),
                              torch.scatter_add(x, 0, wide, y, out=torch.empty_like(x))):
                    self.assert_same(found, expected, (dtype, n))
            x, y = randn(50, 100, dtype=dtype), randn(60, 100, dtype=dtype)
            index = torch.arange(60) % 50
            calls = {
                "columns": lambda: x.mT.index_add(1, index, y.mT),
                "below": lambda: x.index_add(0, index - 1, y),
                "beyond": lambda: x.index_add(0, index + 1, y),
                "int32": lambda: x.index_add(0, index.int() % 7 * 7, y[:60]),
                "shape": lambda: x.index_add(0, index, y[:, :99]),
                "itself": lambda: x.clone().index_add_(0, index[:50], x),
                "alpha": lambda: x.index_add(0, index, y, alpha=0.5),
                "scatter columns": lambda: x.scatter_add(1, index.expand(50, 60), y.mT[:50]),
                "scatter few": lambda: x.scatter_add(0, index[:40, None].expand(40, 100), y)}
            del calls["itself"], calls["int32"]
            assert_as_stock(self, calls)


class Compiled(TestCase):
    """torch.compile keeps swamp's operators, which have the bits of eager mode."""

    def tearDown(self):
        super().tearDown()
        torch._dynamo.reset()

    def test_graphs(self):
        # PyTorch 2.13 cannot compile a region with dynamic shapes.
        for (name, call, shapes, dtype, *expected), option, dynamic in a_fifth([
                (graph, option, dynamic) for graph in GRAPHS
                for option in ("half_precision", "reproducible")
                for dynamic in ((False, True) if graph[1] is not layers else (False,))]):
            inputs = [randn(*s, dtype=dtype) for s in shapes]
            message = (name, option, dynamic)
            torch._dynamo.reset()
            swamp_torch.enable(**{option: True})
            backend = AotEagerAndRecordGraphs()
            found = with_gradients(torch.compile(
                call, backend=backend, dynamic=dynamic, fullgraph=True), *inputs)
            self.assert_same(found, with_gradients(call, *inputs), message)
            names = [node.target.__name__.split(".")[0]
                     for graph in (*backend.fw_graphs, *backend.bw_graphs)
                     for module in graph.modules() for node in module.graph.nodes
                     if str(node.target).startswith("swamp.")]
            self.assertEqual(sorted(names), expected[option == "reproducible"], message)

    def test_result_is_saved(self):
        """tanh, sigmoid and exp need only their result for the gradient."""
        swamp_torch.enable(reproducible=True)
        for f in (torch.tanh, torch.sigmoid, torch.exp):
            def call(x):
                h = x * 2
                y = f(h)
                h.mul_(2)
                return y + h
            self.assert_same(with_gradients(torch.compile(call, backend="aot_eager"),
                                            randn(9)), with_gradients(call, randn(9)))
        with self.assertRaisesRegex(Exception, "approximate"):
            torch.compile(lambda x: F.gelu(x, approximate="foo"), backend="aot_eager")(
                randn(3))

    def test_switch(self):
        """A graph serves the switches that it was made with, each of them once."""
        x = randn(6, 40, dtype=torch.float16)
        backend = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(lambda x: F.layer_norm(x, (40,)), backend=backend)
        found = []
        for ours in (False, True, False, True):
            use(ours)
            found.append(compiled(x))
            self.assert_same(found[-1], F.layer_norm(x, (40,)))
            with swamp_torch.disabled():
                self.assert_same(compiled(x), found[0])
        self.assertEqual(backend.frame_count, 2)

    def test_cache(self):
        """So do the caches on disk."""
        calls = [(lambda x: F.cross_entropy(x, TARGET, reduction="none"), True),
                 (lambda w: F.embedding(TARGET % 3, w), True),
                 (lambda x: x.sin(), False)]
        # With kernels of inductor's, for which a compiler of C++ takes seconds, only the
        # first call, in CI.
        name = "fallback_by_default"
        for number, (call, is_ours) in enumerate(calls):
            options = {name: bool(number) or not CI}
            if not hasattr(torch._inductor.config, name):
                options = {}
            with torch._inductor.utils.fresh_cache(), torch._inductor.config.patch(options):
                found, hits = [], []
                for ours in (False, True, False, True):
                    torch._dynamo.reset()
                    torch._dynamo.utils.counters.clear()
                    swamp_torch.enable(reproducible=ours)
                    found.append(with_gradients(torch.compile(call), randn(6, 1000)))
                    if ours and is_ours:
                        self.assert_same(found[-1], with_gradients(call, randn(6, 1000)))
                    counter = torch._dynamo.utils.counters["aot_autograd"]
                    hits.append(counter["autograd_cache_hit"])
                self.assertEqual(hits, [0, 0 if is_ours else 1, 1, 1])
                self.assert_same(found[0], found[2])
                self.assert_same(found[1], found[3])

    def test_other_pytorch(self):
        """Without a private name of PyTorch, its own kernels are compiled."""
        x = randn(6, 40, dtype=torch.float16)
        call = lambda x: F.layer_norm(x, (40,))
        use(True)
        install = torch._dynamo.guards.install_guard
        del torch._dynamo.guards.install_guard
        try:
            backend = AotEagerAndRecordGraphs()
            with self.assertWarnsRegex(UserWarning, "uses PyTorch's operators of rows"):
                torch.compile(call, backend=backend)(x)
        finally:
            torch._dynamo.guards.install_guard = install
        self.assertNotIn("swamp", str(backend.fw_graphs))

    def test_export(self):
        """An exported program runs without swamp."""
        class Model(torch.nn.Module):
            def forward(self, x):
                return F.layer_norm(x, (40,)).log_softmax(-1)

        use(True)
        for strict in (False, True):
            program = torch.export.export(
                Model(), (randn(6, 40, dtype=torch.float16),), strict=strict)
            self.assertNotIn("swamp", str(program.run_decompositions().graph))


if __name__ == "__main__":
    main()
