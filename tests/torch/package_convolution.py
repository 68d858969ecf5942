"""Convolutions of swamp_torch.enable(half_precision=True) and enable(reproducible=True):
against float64 and PyTorch's own, and their bits."""

from support import TestCase, main
from half_precision import EPS, HALF, assert_as_stock, error, randn, use, with_gradients

import torch

import swamp_torch

F = torch.nn.functional
LAST = {3: torch.contiguous_format, 4: torch.channels_last, 5: torch.channels_last_3d}


# images, channels, filters, input, kernel, then what is not the default
SHAPES = [
    (2, 5, 7, (9,), (3,), {}), (2, 4, 6, (20,), (5,), dict(stride=3, padding=4)),
    (2, 3, 8, (7, 71), (7, 7), dict(stride=2, padding=3)),
    (2, 16, 24, (6, 7), (1, 1), {}), (3, 8, 8, (6, 7), (1, 1), dict(stride=2)),
    (2, 8, 40, (8, 8), (3, 3), dict(padding=1)),
    (3, 6, 40, (12, 13), (3, 3), dict(padding=1)), (3, 260, 20, (7, 7), (1, 1), {}),
    (1, 12, 9, (8, 13), (3, 2), dict(padding=(2, 0), dilation=(2, 3), stride=(1, 2))),
    (2, 8, 12, (7, 6), (3, 3), dict(groups=4, padding=1)),
    (2, 6, 6, (9, 8), (3, 3), dict(groups=6, padding=1, stride=2)),
    (3, 18, 36, (7, 7), (3, 3), dict(groups=18, padding=1)),
    (3, 40, 40, (7, 9), (5, 3), dict(groups=40, padding=(3, 1), stride=(1, 2))),
    (1, 32, 32, (25, 70), (3, 3), dict(groups=32, padding=2, dilation=2)),
    (3, 20, 20, (31,), (4,), dict(groups=20, padding=3)),
    (3, 32, 32, (9, 7), (3, 3), dict(groups=8, padding=1)),
    (1, 40, 24, (6, 9), (3, 3), dict(groups=2, stride=2, padding=1)),
    (1, 2, 8, (7, 1), (7, 1), dict(groups=2, padding=(6, 0))),
    (2, 6, 4, (5, 5), (1, 1), dict(groups=2)), (1, 4, 4, (5, 5), (2, 2), dict(stride=3)),
    (1, 3, 5, (4, 5, 6), (3, 2, 3), dict(padding=1)),
    (2, 16, 20, (4, 5, 9), (3, 3, 3), dict(padding=1, stride=(1, 2, 1))),
    (2, 4, 4, (5, 4, 6), (2, 2, 2), dict(stride=2, groups=2)),
    (1, 1, 1, (1, 1), (1, 1), {}), (1, 2, 3, (3, 3), (3, 3), dict(padding=5)),
    (2, 6, 6, (1, 5, 6), (1, 3, 3), dict(groups=6, padding=(0, 1, 1))),
]
TRANSPOSED = [
    (2, 5, 7, (9,), (3,), {}), (2, 4, 6, (5,), (5,), dict(stride=3, padding=1, output_padding=2)),
    (2, 6, 8, (5, 6), (3, 3), dict(stride=2, padding=1, output_padding=1)),
    (3, 17, 17, (5, 7), (3, 4), dict(stride=(3, 2), groups=17, output_padding=(2, 1))),
    (2, 8, 8, (5, 4), (1, 1), {}), (2, 8, 6, (4, 5), (4, 4), dict(stride=2, padding=1, groups=2)),
    (1, 3, 2, (5, 6), (2, 3), dict(dilation=3, padding=2)),
    (1, 4, 2, (3, 2, 4), (2, 3, 2), dict(stride=2)),
    (1, 4, 4, (3, 3), (2, 2), dict(stride=4)),  # some results have no term
    (3, 4, 4, (3,), (1,), dict(dilation=2, output_padding=1)),  # nor has the last
    (3, 8, 4, (3,), (1,), dict(dilation=2, output_padding=1, groups=2)),
    (2, 6, 20, (4, 3), (1, 1), dict(dilation=(1, 3), output_padding=(0, 2))),
    (1, 4, 2, (2, 3, 2), (1, 1, 1), dict(dilation=2, output_padding=(0, 1, 0))),
]


class Operation:
    """One row of the tables, with its operands."""

    def __init__(self, row, transposed, dtype, last=False, bias=True):
        images, channels, filters, size, kernel, self.options = row
        groups = self.options.get("groups", 1)
        self.call = getattr(F, f"conv{'_transpose' if transposed else ''}{len(size)}d")
        torch.manual_seed(len(kernel) + channels)
        shape = ((channels, filters // groups) if transposed else
                 (filters, channels // groups))
        self.operands = [torch.randn(images, channels, *size), torch.randn(*shape, *kernel)]
        if last:
            self.operands = [x.to(memory_format=LAST[x.dim()]) for x in self.operands]
        if bias:
            self.operands.append(torch.randn(filters))
        self.operands = [x.to(dtype) for x in self.operands]

    def call_all(self, *operands):
        return self.call(*operands, **self.options)

    def run(self, dtype=None):
        """The result and the gradients, computed in dtype or that of the operands."""
        return with_gradients(self.call_all, *(
            x.to(dtype or x.dtype) for x in self.operands), rounded=self.operands[0].dtype)


def rows():
    for row in SHAPES:
        yield row, False
    for row in TRANSPOSED:
        yield row, True


class Convolution(TestCase):
    def test_against_float64(self):
        """One rounding of the exact result; the strides are PyTorch's."""
        for row, transposed in rows():
            for dtype in (*HALF, torch.float32):
                for last, reproducible in ((False, True), (True, True), (True, False)):
                    one = Operation(row, transposed, dtype, last, bias=not last)
                    use(False)
                    stock = one.run()
                    swamp_torch.enable(half_precision=True, reproducible=reproducible)
                    ours = one.run()
                    exact = one.run(torch.float64)
                    eps = EPS.get(dtype, 0) + 2.0 ** -20
                    for x, y, z in zip(ours, stock, exact, strict=True):
                        message = (row, transposed, dtype, last)
                        self.assertEqual(*((one.dtype, one.shape, [
                            step for step, size in zip(one.stride(), one.shape)
                            if size > 1]) for one in (x, y)), message)
                        # A bias's gradient may cancel out.
                        self.assertLessEqual(error(x, z), eps * z.norm().item()
                                             + 2.0 ** -18, message)

    def test_order_of_the_sum(self):
        """The bits are those of the product of the windows and the weight."""
        swamp_torch.enable(reproducible=True)
        for dtype in (*HALF, torch.float32):
            x, w = torch.randn(2, 5, 9, 8).to(dtype), torch.randn(40, 5, 3, 2).to(dtype)
            found = F.conv2d(x, w, padding=1, stride=2)
            windows = F.unfold(x.float(), (3, 2), padding=1, stride=2).to(dtype)
            windows = windows.view(2, 5, 6, -1).permute(0, 3, 2, 1).reshape(-1, 30)
            product = windows @ w.permute(2, 3, 1, 0).reshape(30, 40)
            self.assert_same(found.permute(0, 2, 3, 1).reshape(-1, 40), product, dtype)

    def test_same_bits(self):
        """The bits do not depend on the memory format."""
        swamp_torch.enable(reproducible=True)
        for row, transposed in rows():
            for dtype in (torch.bfloat16, torch.float32):
                ours = [Operation(row, transposed, dtype, last).run()
                        for last in (False, True)]
                for x, y in zip(*ours, strict=True):
                    self.assert_same(x.contiguous(), y.contiguous(), (row, dtype))

    def test_groups(self):
        """A group has the bits of a convolution of it alone, which is a product."""
        swamp_torch.enable(reproducible=True)
        for row, transposed in rows():
            groups = row[5].get("groups", 1)
            for dtype in (*HALF, torch.float32) if groups > 1 else ():
                one = Operation(row, transposed, dtype)
                together = one.run()
                one.options = dict(one.options, groups=1)
                gradient = randn(*together[0].shape, dtype=dtype, seed=1).chunk(groups, 1)
                parts = [x.chunk(groups, dim) for x, dim in
                         zip(one.operands, (1, 0, 0), strict=True)]
                for i in range(groups):
                    leaves = [x[i].detach().requires_grad_() for x in parts]
                    y = one.call(*leaves, **one.options)
                    y.backward(gradient[i])
                    alone = [y.detach(), *(x.grad for x in leaves)]
                    for x, whole, dim in zip(alone, together, (1, 1, 0, 0), strict=True):
                        self.assert_same(whole.chunk(groups, dim)[i].contiguous(),
                                         x.contiguous(), (row, dtype, i))

    def test_padding_by_name(self):
        """The same bits as with numbers, forward and backward. padding="valid" makes
        lists of one number."""
        swamp_torch.enable(reproducible=True)
        for dtype in (*HALF, torch.float32):
            for kernel, name, numbers in (((3, 2), "valid", dict(padding=0, stride=2)),
                                          ((3, 5), "same", dict(padding=(2, 4), dilation=2)),
                                          ((1,), "valid", dict(padding=0)),
                                          ((2, 1, 3), "valid", dict(padding=0, groups=5))):
                size = (7, 6, 5)[:len(kernel)]
                options = dict(numbers, padding=name)
                seen = []
                for one in (numbers, options):
                    row = (2, 5, 20, size, kernel, one)
                    seen.append(Operation(row, False, dtype).run())
                for x, y in zip(*seen, strict=True):
                    self.assert_same(x, y, (dtype, kernel, name))

    def test_unusual(self):
        """Errors, empty tensors and mixed dtypes are PyTorch's."""
        def t(*shape, dtype=torch.float16):
            return torch.ones(shape, dtype=dtype)

        conv = torch.ops.aten.convolution

        calls = {
            "channels": lambda: F.conv2d(t(2, 3, 5, 5), t(4, 2, 3, 3)),
            "dtype": lambda: F.conv2d(t(2, 3, 5, 5), t(4, 3, 3, 3, dtype=torch.bfloat16)),
            "bias": lambda: F.conv2d(t(2, 3, 5, 5), t(4, 3, 3, 3), t(3)),
            "kernel": lambda: F.conv2d(t(2, 3, 2, 2), t(4, 3, 3, 3)),
            "stride": lambda: F.conv2d(t(2, 3, 5, 5), t(4, 3, 3, 3), stride=0),
            "padding": lambda: F.conv2d(t(2, 3, 5, 5), t(4, 3, 3, 3), padding=-1),
            "groups": lambda: F.conv2d(t(2, 4, 5, 5), t(3, 2, 3, 3), groups=2),
            "empty": lambda: F.conv2d(t(0, 3, 5, 5), t(4, 3, 3, 3)),
            "no batch": lambda: F.conv2d(t(3, 5, 5), t(4, 3, 3, 3)),
            "same": lambda: F.conv2d(t(1, 1, 4, 4), t(1, 1, 2, 2), padding="same"),
            "one number": lambda: conv(t(1, 1, 4, 4), t(1, 1, 2, 2), None, [1], [0],
                                       [1], False, [0], 1),
            "far": lambda: F.conv1d(t(1, 2, 10), t(2, 1, 3), groups=2,
                                    stride=2**28 + 1),
            "dilation": lambda: F.conv1d(t(1, 2, 10), t(2, 1, 1), groups=2,
                                         dilation=2**28 + 1),
            "output padding": lambda: F.conv_transpose2d(
                t(1, 1, 4, 4), t(1, 1, 2, 2), output_padding=3),
        }
        refused = assert_as_stock(self, calls)
        self.assertTrue(0 < len(refused) < len(calls), refused)

    def test_numbers(self):
        """inf and nan, and a window of nothing but padding."""
        use(True)
        for dtype in HALF:
            x, w = torch.ones(1, 1, 4, 4, dtype=dtype), torch.ones(1, 1, 2, 2, dtype=dtype)
            x[0, 0, 0, 0], x[0, 0, 3, 3] = torch.inf, torch.nan
            y = F.conv2d(x, w, padding=2)[0, 0]
            self.assertEqual(y[0].tolist(), [0] * 7)
            self.assertEqual(y[1, 1:3].tolist(), [torch.inf] * 2)
            self.assertTrue(y[4:6, 4:6].isnan()[1].any())
            values = torch.tensor([torch.nan, torch.inf, -torch.inf, 1], dtype=dtype)
            for groups in (4, 1):
                w = torch.ones(4, 4 // groups, 3, 3, dtype=dtype, requires_grad=True)
                x = values.view(1, 4, 1, 1).repeat(1, 1, 6, 6)
                F.conv2d(x, w, groups=groups).sum().backward()
                found = w.grad[:, 0] if groups == 4 else w.grad[0]
                one = 0x7e00 if dtype == torch.float16 else 0x7fc0
                self.assertEqual(found[0].view(torch.int16).unique().tolist(), [one])
                self.assertEqual(found[1:, 0, 0].tolist(), [torch.inf, -torch.inf, 16])


if __name__ == "__main__":
    main()
