"""swamp_torch.enable(half_precision=True): products of float16 and bfloat16 against
float64 and against PyTorch's own, and the switch."""

import copy

from support import TestCase, growth, in_threads, main, python
from half_precision import (EPS, HALF, assert_as_stock, both, error, randn, use,
                            use_reproducible, with_gradients)

import torch

import swamp_torch

F = torch.nn.functional


# batch (0: a matrix), m, k, n, layouts of the operands
SHAPES = [
    (0, 33, 65, 17, "rows", "rows"), (0, 64, 256, 48, "rows", "columns"),
    (0, 40, 31, 96, "columns", "rows"), (0, 20, 30, 40, "columns", "columns"),
    (0, 20, 30, 40, "slice", "steps"), (0, 20, 30, 40, "steps", "slice"),
    (0, 20, 30, 40, "expanded", "rows"), (0, 1, 100, 30, "rows", "columns"),
    (0, 30, 100, 1, "rows", "rows"), (0, 1, 1, 1, "rows", "rows"),
    (0, 7, 1, 5, "rows", "rows"), (1, 12, 20, 8, "rows", "rows"),
    (3, 12, 20, 8, "rows", "columns"), (5, 12, 20, 8, "slice", "rows"),
    (3, 12, 20, 8, "shared", "rows"), (3, 12, 20, 8, "columns", "shared"),
    (3, 12, 20, 40, "rows", "shared"),
]
# The shape of the sum's first operand (None: that of the result), beta, alpha.
SUMS = [(None, 1, 1), (None, 0.5, 2), (None, 0, 1), ("row", 1, 1),
        ("column", -1.5, 0.25), ("row", 2, 1), ("one", 1, 3)]


FIRST_PRODUCT = ("import swamp_torch\nswamp_torch.enable(half_precision=True)\n"
                 "torch.ones(300, 300).half() @ torch.ones(300, 300).half()")


def operands(dtype, batch, m, k, n, *layouts):
    batch = (batch,) if batch else ()
    return (randn(*batch, m, k, dtype=dtype, layout=layouts[0]),
            randn(*batch, k, n, dtype=dtype, layout=layouts[1], seed=1))


class Products(TestCase):
    def compare(self, call, exact, message, eps):
        """call() has an error that is not above that of PyTorch's own kernel."""
        stock, ours = both(call)
        self.assertEqual((ours.dtype, ours.shape, ours.stride()),
                         (stock.dtype, stock.shape, stock.stride()), message)
        # A sum in float32 may fall on the other side of a tie.
        limit = 1.01 * error(stock, exact) + 1e-5 * eps * exact.norm().item()
        self.assertLessEqual(error(ours, exact), limit, message)

    def test_shapes(self):
        for dtype in HALF:
            for shape in SHAPES:
                x, y = operands(dtype, *shape)
                exact = x.double() @ y.double()
                product = torch.bmm if x.dim() == 3 else torch.mm
                message = (dtype, shape)
                self.compare(lambda: product(x, y), exact, message, EPS[dtype])
                out = torch.empty_like(exact, dtype=dtype)
                self.compare(lambda: product(x, y, out=out).clone(), exact,
                             message, EPS[dtype])
                wide = torch.empty(*exact.shape[:-1], exact.shape[-1] + 3,
                                   dtype=dtype)[..., :exact.shape[-1]]
                self.compare(lambda: product(x, y, out=wide), exact, message,
                             EPS[dtype])
                columns = torch.empty_like(exact.mT, dtype=dtype,
                                           memory_format=torch.contiguous_format)
                self.compare(lambda: product(x, y, out=columns.mT).clone(), exact,
                             message, EPS[dtype])

    def test_sums(self):
        for dtype in HALF:
            for operand in SHAPES:
                x, y = operands(dtype, *operand)
                m, n = x.shape[-2], y.shape[-1]
                add, add_ = ((torch.baddbmm, torch.Tensor.baddbmm_) if x.dim() == 3 else
                             (torch.addmm, torch.Tensor.addmm_))
                for shape, beta, alpha in SUMS:
                    size = {None: (*x.shape[:-1], n), "row": (n,),
                            "column": (m, 1), "one": (1,)}[shape]
                    torch.manual_seed(2)
                    z = torch.randn(size).to(dtype)
                    if beta == 0:
                        z.fill_(torch.nan)
                    numbers = dict(beta=beta, alpha=alpha)
                    exact = alpha * (x.double() @ y.double())
                    if beta:
                        exact = exact + beta * z.double()
                    message = (dtype, operand, shape, beta, alpha)
                    check = lambda call: self.compare(call, exact, message,
                                                      EPS[dtype])
                    check(lambda: add(z, x, y, **numbers))
                    out = torch.full_like(exact, torch.nan, dtype=dtype)
                    check(lambda: add(z, x, y, out=out, **numbers).clone())
                    if shape is None:
                        check(lambda: add_(z.clone(), x, y, **numbers))
                        check(lambda: add(w := z.clone(), x, y, out=w, **numbers))

    def test_shared_operand(self):
        """No copy for every matrix of a batch is made of an operand that all share."""
        self.assertLess(growth(
            "x, y = torch.ones(400, 20, 256).half(), torch.ones(256, 256).half()\n"
            "out = torch.ones(400, 20, 256).half()", FIRST_PRODUCT,
            "torch.bmm(x, y.expand(400, 256, 256), out=out)"),
            16)  # 400 copies: 50

    def test_tiles(self):
        """Where oneDNN may use AMX, attention and products are PyTorch's, but for few rows
        or, of attention, one query in float16 and gradients; pointwise convolutions are
        its products. All of it is as exact as without swamp."""
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            has_tiles = " amx_bf16 " in file.read()
        for limit in ("AVX512_CORE_BF16", "avx512_core_amx_fp16", "ALL"):
            done = python("""
import torch, swamp_torch
F = torch.nn.functional
x, y = (torch.randn(1, 4, 80, 64).bfloat16() for _ in range(2))
w, labels = torch.randn(300, 64).bfloat16(), torch.arange(80)
attention = lambda: F.scaled_dot_product_attention(x, y, y)
swamp_torch.enable(half_precision=True)
ours = attention()
def few_rows():
    z = torch.arange(1.0, 20481.0).sin().half().view(1, 4, 80, 64)
    q = torch.linspace(-1, 1, 256).half().view(1, 4, 1, 64)
    return (torch.mm(x[0, 0, :2], w.t()).float(), F.scaled_dot_product_attention(q, z, z),
            torch.mm(x[0, 0, :4], w.t().contiguous()).float())
found = few_rows()
swamp_torch.enable(reproducible=True)
for one, other in zip(found, few_rows()):
    assert torch.equal(one, other)
swamp_torch.enable(half_precision=True)
loss = swamp_torch.functional.linear_cross_entropy(x[0, 0], w, labels)
large = torch.full((4, 64), 32.0).half()
weight, bias = torch.zeros(5, 64).half(), torch.zeros(5).half()
weight[0], bias[0] = 34.2, -20000  # their product alone would be inf
zero = swamp_torch.functional.linear_cross_entropy(
    large, weight, torch.zeros(4).long(), bias).item()
swamp_torch.disable()
exact = F.cross_entropy(F.linear(x[0, 0].double(), w.double()), labels)
print(torch.equal(ours, attention()), abs(loss.item() / exact.item() - 1) < 1e-3,
      zero)

def with_gradients(call, *inputs):
    inputs = [one.detach().requires_grad_() for one in inputs]
    y = call(*inputs)
    return [y.detach(), *torch.autograd.grad(y, inputs, torch.cos(y.detach()))]
def attended(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=q.size(2) == 40)
for dtype in (torch.bfloat16, torch.float16):
    for call, shapes in ((attended, [(2, 3, 40, 16)] * 3), (attended, [(1, 2, 300, 64)] * 3),
                         (F.conv2d, [(2, 20, 12, 13), (30, 20, 1, 1), (30,)]),
                         (F.conv2d, [(1, 20, 7, 5), (30, 20, 1, 1)]),
                         (F.conv2d, [(3, 1, 5, 4), (6, 1, 1, 1)]),
                         (F.conv2d, [(200, 70, 1, 1), (80, 70, 1, 1), (80,)]),
                         (F.conv2d, [(3, 300, 7, 7), (290, 300, 1, 1), (290,)]),
                         (F.conv1d, [(4, 8, 9), (5, 8, 1)]),
                         (F.conv3d, [(2, 8, 3, 4, 5), (5, 8, 1, 1, 1), (5,)])):
        inputs = [(torch.arange(1.0, 1 + torch.Size(s).numel()) * (i + 1)).sin().view(s).to(dtype)
                  for i, s in enumerate(shapes)]
        if call is F.conv2d and len(shapes) == 2:
            inputs[1] = inputs[1].to(memory_format=torch.channels_last)
        found = []
        for on in (False, True):
            swamp_torch.enable(half_precision=on)
            found.append(with_gradients(call, *inputs))
        exact = with_gradients(call, *(one.double() for one in inputs))
        for stock, one, wide in zip(*found, exact):
            assert (one.dtype, one.shape, one.stride()) == (
                stock.dtype, stock.shape, stock.stride()), (call, shapes)
            errors = [(y.double() - wide).norm().item() for y in (one, stock)]
            assert errors[0] <= 1.05 * errors[1] + 1e-3 * wide.norm().item(), (
                call, shapes, dtype, errors)
""", ONEDNN_MAX_CPU_ISA=limit)
            self.assertEqual(done.returncode, 0, done.stderr)
            is_stock = has_tiles and limit != "AVX512_CORE_BF16"
            self.assertEqual(done.stdout, f"{is_stock} True 0.0\n", limit)

    def test_blocks(self):
        """Products that are computed in parts."""
        for dtype in HALF:
            for m, k, n in ((2500, 40, 3100), (3, 2_900_000, 2), (5, 9, 900_000),
                            (300, 30_000, 200)):
                x, y = randn(m, k, dtype=dtype), randn(k, n, dtype=dtype, seed=1)
                z = randn(1, n, dtype=dtype, seed=2)
                exact = torch.addmm(z.double(), x.double(), y.double(), alpha=0.5)
                use(True)
                ours = torch.addmm(z, x, y, alpha=0.5)
                rounding = error(exact.to(dtype), exact)
                self.assertLessEqual(error(ours, exact), 1.1 * rounding,
                                     (dtype, m, k, n))

    def test_special_values(self):
        use(True)
        for dtype in HALF:
            x = torch.ones(4, 40, dtype=dtype)
            x[0, 0], x[1, 0], x[2] = torch.inf, torch.nan, 60000.0
            found = x @ torch.ones(40, 3, dtype=dtype)
            large = torch.inf if dtype is torch.float16 else 40 * x[2, 0]
            self.assertEqual(found[0].tolist(), [torch.inf] * 3)
            self.assertTrue(found[1].isnan().all())
            self.assert_same(found[2], torch.full((3,), large).to(dtype))
            self.assertEqual(found[3].tolist(), [40.0] * 3)

    def test_same_as_stock(self):
        """Errors, empty operands, resized results: exactly those
        of PyTorch, which computes or refuses them."""
        def t(*shape, dtype=torch.float16):
            return torch.ones(shape, dtype=dtype)

        def resized(*shape, dtype=torch.float16):
            out = t(*shape, dtype=dtype)
            torch.mm(t(2, 3), t(3, 4), out=out)
            return out

        calls = [
            lambda: torch.mm(t(2, 3), t(4, 5)), lambda: torch.mm(t(2, 3), t(3)),
            lambda: torch.mm(t(2, 3), t(3, 4, dtype=torch.bfloat16)),
            lambda: torch.mm(t(2, 3), t(3, 4, dtype=torch.float32)),
            lambda: torch.mm(t(2, 3), t(3, 4).to_sparse()),
            lambda: torch.bmm(t(2, 3, 4), t(3, 4, 5)),
            lambda: torch.bmm(t(2, 3), t(3, 4)),
            lambda: torch.addmm(t(7), t(2, 3), t(3, 4)),
            lambda: torch.addmm(t(4, dtype=torch.float32), t(2, 3), t(3, 4)),
            lambda: torch.addmm(t(4), t(2, 3), t(3, 4), beta=1j),
            lambda: torch.addmm(t(4), t(2, 3), t(3, 4), alpha=1e300),
            lambda: torch.addmm(t(4), t(2, 3), t(3, 4), alpha=True),
            lambda: t(1, 4).addmm_(t(2, 3), t(3, 4)),
            lambda: torch.baddbmm(t(2, 4), t(2, 3), t(3, 4)),
            lambda: torch.baddbmm(t(7), t(2, 3, 4), t(2, 4, 5)),
            lambda: t(2, 1, 5).baddbmm_(t(2, 3, 4), t(2, 4, 5)),
            lambda: resized(2, 4), lambda: resized(0), lambda: resized(9),
            lambda: resized(4, 2, dtype=torch.float32),
            lambda: torch.mm(t(2, 3), t(3, 4), out=t(1, 4).expand(2, 4)),
            lambda: t(0, 3) @ t(3, 4), lambda: t(2, 0) @ t(0, 4),
            lambda: t(2, 3) @ t(3, 0), lambda: t(0, 2, 3) @ t(0, 3, 4),
            lambda: torch.addmm(t(4), t(2, 0), t(0, 4), beta=3),
            lambda: torch.addmm(t(4), t(2, 0), t(0, 4), beta=0),
            lambda: t(2, 3) @ t(3), lambda: t(3) @ t(3),
            lambda: F.linear(t(2, 3), t(4, 5)), lambda: t(2, 3, 4) @ t(5, 6),
            lambda: F.linear(t(2, 3, 4), t(5, 3), t(5)),
            lambda: F.linear(t(2, 3, 4), t(5, 4), t(6)),
            lambda: F.linear(t(2, 3, 4), t(5, 4), t(1, 2, 3, 5)),
            lambda: F.linear(t(2, 3, 4), t(5, 4), t(5, dtype=torch.float32)),
            lambda: F.linear(t(0, 3, 4), t(5, 4), t(5)),
            lambda: F.linear(t(2, 3, 0), t(5, 0), t(5)),
            lambda: torch.addbmm(t(4), t(2, 5, 3), t(3, 3, 4)),
            lambda: torch.addbmm(t(5), t(2, 5, 3), t(2, 3, 4)),
            lambda: torch.addbmm(t(4), t(2, 5, 0), t(2, 0, 4), beta=3),
            lambda: torch.addbmm(t(4), t(0, 5, 3), t(0, 3, 4), beta=3),
            lambda: F.bilinear(t(2, 3), t(2, 4), t(5, 4, 4)),
            lambda: F.bilinear(t(2, 3), t(2, 4), t(5, 3, 4), t(4)),
            *(lambda x=x, h=h, w=w: torch.lstm(
                x, h, w, False, 1, 0.0, False, False, False)[0] for x, h, w in (
                (t(3, 2, 4), [t(1, 2, 5)], [t(20, 4), t(20, 5)]),
                (t(3, 2, 4), [t(1, 2, 5)] * 2, [t(20, 4), t(20, 6)]),
                (t(3, 2, 4), [t(1, 7, 5)] * 2, [t(20, 4), t(20, 5)]),
                (t(0, 2, 4), [t(1, 2, 5)] * 2, [t(20, 4), t(20, 5)]))),
        ]
        refused = assert_as_stock(self, dict(enumerate(calls)))
        self.assertTrue(0 < len(refused) < len(calls), refused)

    def test_writes_between_products(self):
        """A product does not depend on the operands of the previous one."""
        use(True)
        x, w = torch.ones(64, 64).half(), torch.ones(64, 64).half()
        writes = [lambda: w.fill_(2), lambda: w.data.fill_(3),
                  lambda: w[3:].zero_(), lambda: w.detach().mul_(5),
                  lambda: torch.from_dlpack(w).fill_(7)]
        for write in writes:
            torch.mm(x, w)
            with torch.no_grad():
                write()
            self.assert_same(torch.mm(x, w), (x.double() @ w.double()).half())

    def test_inference_mode(self):
        use(True)
        with torch.inference_mode():
            x = torch.ones(40, 40).half()
            self.assertEqual((x @ x)[3, 3].item(), 40)
            x.addmm_(x.clone(), x.clone())
            self.assertEqual(x[3, 3].item(), 41)

    def test_threads(self):
        use(True)
        x = randn(300, 200, dtype=torch.float16)
        expected, wrong = x @ x.t(), []

        def work(_):
            for _ in range(30):
                if not torch.equal(x @ x.t(), expected):
                    wrong.append(1)

        in_threads(work)
        self.assertEqual(wrong, [])

    def test_memory(self):
        """Only a part of an operand is packed at a time."""
        self.assertLess(growth(
            "x, w = torch.ones(2000, 256).half(), torch.ones(256, 40000).half()\n"
            "out = torch.ones(2000, 40000).half()", FIRST_PRODUCT,
            "torch.mm(x, w, out=out)"), 64)  # all: 350


# The sizes of linear()'s bias for an input of [4, 6, 64] and 48 results.
BIASES = [(48,), (1,), (), (6, 48), (4, 6, 48)]


class OneRounding(TestCase):
    """A bias is added before the result is rounded, in every layout."""

    def check(self, call, operands, message, layouts=None):
        """call(*operands) is the exact result, rounded once; it has the same bits for
        each of layouts, the same operands in other memory. Likewise the gradients."""
        dtype = operands[0].dtype
        found = with_gradients(call, *operands)
        exact = with_gradients(call, *(x.double() for x in operands), rounded=dtype)
        sums = call(*(x.double().abs() for x in operands))
        limit = EPS.get(dtype, 2.0 ** -24) * exact[0].abs() + 2.0 ** -20 * sums
        self.assertTrue(((found[0].double() - exact[0]).abs() <= limit).all(), message)
        for one, other in zip(found[1:], exact[1:], strict=True):
            eps = EPS.get(dtype, 2.0 ** -17)  # PyTorch sums a bias's gradient
            self.assertLessEqual(error(one, other), 1.01 * eps * other.norm().item(),
                                 message)
        for name, others in (layouts or {}).items():
            for x, y in zip(with_gradients(call, *others), found, strict=True):
                self.assert_same(x.contiguous(), y.contiguous(), (message, name))

    def test_linear(self):
        swamp_torch.enable(reproducible=True)
        for dtype in (*HALF, torch.float32):
            w = randn(48, 64, dtype=dtype)
            for sizes in BIASES:
                bias = (8 * randn(*sizes, seed=2)).to(dtype)
                x = randn(4, 6, 64, dtype=dtype, seed=1)
                layouts = {"transposed": x.transpose(0, 1).contiguous().transpose(0, 1),
                           "slice": torch.cat([x, x], -1)[..., :64],
                           "steps": torch.stack([x, x], -1)[..., 0],
                           "columns": x.mT.contiguous().mT}
                self.check(F.linear, [x, w, bias], (dtype, sizes),
                           {name: [x, w, bias] for name, x in layouts.items()})
                shared = x[:1].expand(4, 6, 64)
                self.check(F.linear, [shared, w, bias], (dtype, sizes, "expanded"),
                           {"contiguous": [shared.contiguous(), w, bias]})
                if len(sizes) < 2:
                    self.check(F.linear, [x[1, 2], w, bias], (dtype, sizes, "vector"))
                    self.check(F.linear, [x[None].transpose(1, 2), w, bias],
                               (dtype, sizes, "4 dimensions"))
                    self.assert_same(F.linear(x, w, bias)[1, 2],
                                     F.linear(x[1, 2], w, bias))
            call = torch.compile(F.linear, fullgraph=True, backend="aot_eager")
            y = x.transpose(0, 1)
            self.assert_same(call(y, w, bias[0, 0]), F.linear(y, w, bias[0, 0]), dtype)
            with torch.inference_mode():
                self.assert_same(F.linear(y, w, bias[0, 0]),
                                 F.linear(y.contiguous(), w, bias[0, 0]), dtype)
            # A view would refuse the write.
            for z in (x[0], y, x[None].transpose(1, 2)):
                with torch.no_grad():
                    found = F.linear(z, w, bias[0, 0])
                self.assertFalse(found._is_view())
                found += found.detach().clone().requires_grad_()

    def test_of_a_batch(self):
        """addbmm and bilinear, which PyTorch computes in several parts."""
        for dtype in HALF:
            use(True)
            x, y = randn(5, 7, 30, dtype=dtype), randn(5, 30, 40, dtype=dtype, seed=1)
            for sizes in ((7, 40), (40,), (7, 1)):
                z = (8 * randn(*sizes, seed=2)).to(dtype)
                self.check(torch.addbmm, [z, x, y], (dtype, sizes), {
                    "other": [z, x.transpose(0, 1).contiguous().transpose(0, 1),
                              y.mT.contiguous().mT]})
            self.check(torch.bmm, [x, y], dtype)
            self.check(torch.baddbmm, [(8 * randn(5, 7, 40)).to(dtype), x, y], dtype)
            z = (8 * randn(7, 40, seed=2)).to(dtype)
            expected = torch.addbmm(z, x, y, beta=0.5, alpha=2)
            out = torch.empty_like(z)
            torch.addbmm(z, x, y, beta=0.5, alpha=2, out=out)
            self.assert_same(out, expected)
            self.assert_same(z.clone().addbmm_(x, y, beta=0.5, alpha=2), expected)
            self.assert_same(torch.addbmm(torch.full_like(z, torch.nan), x, y, beta=0),
                             torch.addbmm(torch.zeros_like(z), x, y))
            x, y = randn(2, 6, 9, dtype=dtype), randn(2, 6, 11, dtype=dtype, seed=1)
            w, z = randn(5, 9, 11, dtype=dtype), (8 * randn(5, seed=2)).to(dtype)
            self.check(F.bilinear, [x, y, w, z], dtype)
            self.check(F.bilinear, [x, y, w], dtype)

    def test_lstm(self):
        """In float16 it is the float32 layer, with each result rounded once."""
        for options in ({}, {"bias": False}, {"num_layers": 2, "bidirectional": True},
                        {"batch_first": True, "dropout": 0.5, "num_layers": 2},
                        {"proj_size": 5}):
            torch.manual_seed(3)
            layer = torch.nn.LSTM(9, 12, **options).half().train("dropout" in options)
            wide = copy.deepcopy(layer).float()
            x = randn(16, 4, 9, dtype=torch.float16)
            found = []
            for one, dtype in ((layer, torch.float16), (wide, torch.float32)):
                use(dtype == torch.float16)
                torch.manual_seed(4)
                y, state = one(x.to(dtype).requires_grad_())
                loss = sum((part.float() * torch.cos(part.detach().float())).sum()
                           for part in (y, *state))
                found.append([y, *state, *torch.autograd.grad(loss, [*one.parameters()])])
            for ours, exact in zip(*found):
                if "proj_size" in options or ours is not found[0][0]:
                    torch.testing.assert_close(ours, exact.half(), rtol=4e-3, atol=4e-3)
                else:
                    self.assert_same(ours, exact.half(), options)


class Reproducible(TestCase):
    def test_order_of_the_sum(self):
        """One chain of fma() over the terms 1, 0, 3, 2, ..., here of numbers whose
        products and sums in float64 are exact."""
        swamp_torch.enable(reproducible=True)
        for dtype in HALF:
            x, y = randn(9, 37, dtype=dtype), randn(37, 40, dtype=dtype, seed=1)
            total = torch.zeros(9, 40)
            for i in range(37):
                t = i ^ 1 if i ^ 1 < 37 else i
                product = x[:, t, None].double() * y[t].double()
                total = (total.double() + product).float()
            self.assert_same(x @ y, total.to(dtype))

    def test_vectors(self):
        """Products of vectors are those of matrices of one row or column; what swamp
        does not take is PyTorch's."""
        for dtype in (torch.float32, *HALF):
            a, x, bias = (randn(33, 70, dtype=dtype), randn(70, dtype=dtype, seed=1),
                          randn(33, dtype=dtype, seed=2))
            rows = {
                "dot": (lambda: x.dot(x.flip(0)), lambda: x[None] @ x.flip(0)[:, None]),
                "vdot": (lambda: x.vdot(x), lambda: x[None] @ x[:, None]),
                "matmul": (lambda: x @ a.t(), lambda: a @ x[:, None]),
                "mv": (lambda: a.mv(x), lambda: a @ x[:, None]),
                "mv steps": (lambda: a[:, ::2].mv(x[::2]),
                             lambda: a[:, ::2] @ x[::2, None]),
                "addmv": (lambda: bias.addmv(a, x, beta=0.5, alpha=2),
                          lambda: bias[:, None].addmm(a, x[:, None], beta=0.5, alpha=2)),
                "addmv one": (lambda: bias[0].addmv(a, x),
                              lambda: bias[0].addmm(a, x[:, None])),
                "addmv_": (lambda: bias.clone().addmv_(a, x),
                           lambda: bias[:, None].addmm(a, x[:, None])),
                "out": (lambda: torch.addmv(bias, a, x, out=torch.empty(33, dtype=dtype)),
                        lambda: bias[:, None].addmm(a, x[:, None])),
            }
            swamp_torch.enable(reproducible=True)
            for name, (call, matrices) in rows.items():
                self.assert_same(call().flatten(), matrices().flatten(), (name, dtype))
            weight = a.clone().requires_grad_()
            weight.mv(x).backward(bias)
            self.assert_same(weight.grad, bias[:, None] * x)
            assert_as_stock(self, dict(enumerate((
                lambda: a.mv(x[1:]), lambda: x.dot(x[1:]), lambda: x.dot(x.double()),
                lambda: a.addmv(a, x), lambda: a[:, :0].mv(x[:0]),
                lambda: x[:0].dot(x[:0]), lambda: a.mv(x.double())))), use_reproducible)


if __name__ == "__main__":
    main()
