"""Megatron-LM's own classes on CPU tensors, with the modules of
swamp_torch.megatron.install(). Skipped without support.has_megatron().
"""

import sys
import unittest.mock
import warnings

from support import NO_MEGATRON, TestCase, has_megatron, main, run_ranks
from half_precision import EPS, HALF

if not has_megatron():
    print(NO_MEGATRON)
    sys.exit(77)

import torch

import swamp_torch

swamp_torch.megatron.install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of apex and TransformerEngine, missing
    from megatron.core import parallel_state
    from megatron.core.fusions.fused_softmax import FusedScaleMaskSoftmax
    from megatron.core.tensor_parallel.layers import \
        ColumnParallelLinear, RowParallelLinear, \
        linear_with_grad_accumulation_and_async_allreduce
    from megatron.core.model_parallel_config import ModelParallelConfig
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.utils import attention_mask_func

CAUSAL, PADDING = AttnMaskType.causal, AttnMaskType.padding
# Above 0: of float16, and of swamp's exponential.
LEAST = {torch.float16: 2.0 ** -24, torch.bfloat16: 2.0 ** -125}


def module(dtype, mask_type, fused, scale):
    return FusedScaleMaskSoftmax(dtype == torch.float16, dtype == torch.bfloat16,
                                 mask_type, fused, attention_mask_func, True, scale)


def unit(x):
    """The distance of two 16-bit numbers of the size of x."""
    _, exponent = torch.frexp(x.double())
    result = EPS[x.dtype] * 2.0 ** exponent.double()
    return torch.where(x == 0, LEAST[x.dtype], result.clamp(LEAST[x.dtype]))


class Softmax(TestCase):
    def check(self, dtype, mask_type, shape, mask, scale, message):
        """Compares with the path in PyTorch, whose scale is not rounded."""
        fused = module(dtype, mask_type, True, scale)
        rounded = None if scale is None else torch.tensor(scale).to(dtype).item()
        plain = module(dtype, mask_type, False, rounded)
        self.assertTrue(fused.is_kernel_available(mask, *shape), message)
        torch.manual_seed(sum(shape))
        x, g = torch.randn(shape).mul(2).to(dtype), torch.randn(shape).to(dtype)
        full = mask
        if mask_type == CAUSAL:
            full = torch.ones(shape[2:], dtype=torch.bool).triu(1)[None, None]
        results = []
        for one, m in ((fused, mask), (plain, full)):
            inputs = x.clone().requires_grad_()
            with unittest.mock.patch.object(
                    FusedScaleMaskSoftmax, "forward_fused_softmax", autospec=True,
                    side_effect=FusedScaleMaskSoftmax.forward_fused_softmax) as spy:
                y = one(inputs, m)
            self.assertEqual(spy.called, one is fused)
            y.backward(g.clone())
            results.append((y.detach(), inputs.grad))
        (y, dx), (expected, exact) = results
        self.assertEqual((y.dtype, dx.dtype), (dtype, dtype))
        if mask is not None and mask_type != CAUSAL:
            hidden = mask.bool().all(-1, keepdim=True).expand(shape)
            self.assertTrue((y[hidden] == 0).all() and (dx[hidden] == 0).all())
            uniform = torch.tensor(1 / shape[-1]).to(dtype)
            self.assertTrue((expected[hidden] == uniform).all())
            y, expected = y[~hidden], expected[~hidden]
            dx, exact = dx[~hidden], exact[~hidden]
            g = g[~hidden]
        # One rounding of nearly the same float32 numbers.
        differing = (y != expected) & (expected.double() > LEAST[dtype])
        self.assertLess(differing.double().mean(), 2e-4, message)
        self.assertTrue(((y.double() - expected.double()).abs()
                         <= unit(expected)).all(), message)
        # The fused backward has the rounded probabilities, as apex's.
        terms = (rounded or 1) * (g.double().abs() + g.abs().max())
        bound = (2 * unit(exact)
                 + terms * (2 * EPS[dtype] * y.double() + LEAST[dtype]))
        self.assertTrue(((dx.double() - exact.double()).abs() <= bound).all(),
                        message)

    def test_masks(self):
        for dtype in HALF:
            for scale in (None, 7.0, 96 ** -0.5):
                for b, heads, rows, columns in ((2, 4, 16, 20), (2, 4, 64, 64),
                                                (1, 4, 24, 1000), (2, 2, 8, 4096)):
                    shape = (b, heads, rows, columns)
                    torch.manual_seed(columns)
                    some = torch.rand(b, 1, rows, columns) < 0.3
                    rest = some.clone()
                    rest[:, :, 3] = True
                    cases = [(PADDING, shape, None), (PADDING, shape, some),
                             (PADDING, shape, rest), (PADDING, shape, rest[:1]),
                             (PADDING, shape, rest.byte())]
                    square = (b, heads if rows != 16 else 8, columns, columns)
                    if columns <= 1000 and square[0] * square[1] % 8 == 0:
                        cases.append((CAUSAL, square, None))
                        # The kernel ignores the mask of causal attention.
                        cases.append((CAUSAL, square, torch.ones(
                            1, 1, columns, columns, dtype=torch.bool)))
                    for mask_type, size, mask in cases:
                        if mask is not None and mask.dtype == torch.uint8:
                            y = [module(dtype, mask_type, True, scale)(
                                torch.ones(size, dtype=dtype), m)
                                for m in (mask, mask.bool())]
                            self.assert_same(*y)
                            continue
                        self.check(dtype, mask_type, size, mask, scale,
                                   (dtype, scale, size, mask_type, mask is None))

    def test_every_mask_type(self):
        shape = (2, 4, 32, 32)
        for dtype in HALF:
            for mask_type in AttnMaskType:
                for mask in (None, torch.ones(1, 1, 32, 32).triu(1).bool()):
                    self.check(dtype, mask_type, shape, mask, 0.5, mask_type)

    def test_causal_of_1000_columns(self):
        for dtype in HALF:
            self.check(dtype, CAUSAL, (2, 2, 1000, 1000), None, 0.125, dtype)

    def test_gradient_of_a_sum(self):
        """It has one element of memory, which the operator cannot write."""
        for dtype in HALF:
            for mask_type, mask in ((CAUSAL, None), (PADDING, None), (
                    PADDING, torch.zeros(1, 1, 32, 32, dtype=torch.bool))):
                x = torch.randn(2, 4, 32, 32).to(dtype).requires_grad_()
                y = module(dtype, mask_type, True, None)(x, mask)
                y.sum().backward()
                self.assertLess(x.grad.abs().max(), 4 * EPS[dtype])
                x.grad = None
                y = module(dtype, mask_type, True, None)(x, mask)
                y.transpose(1, 2).backward(torch.ones(2, 32, 4, 32, dtype=dtype))
                self.assertLess(x.grad.abs().max(), 4 * EPS[dtype])

    def test_not_fused(self):
        """Megatron-LM's own conditions still choose its path in PyTorch."""
        for dtype, shape in ((torch.float32, (2, 4, 32, 32)),
                             (torch.float16, (2, 4, 30, 32)),
                             (torch.float16, (2, 4, 32, 16)),
                             (torch.float16, (1, 3, 32, 32)),
                             (torch.bfloat16, (2, 4, 32, 4100))):
            one = module(dtype, PADDING, True, None)
            self.assertFalse(one.is_kernel_available(None, *shape))
            x = torch.randn(shape).to(dtype)
            self.assert_same(one(x, None), x.float().softmax(-1).to(dtype))


class OneRank:
    def rank(self):
        return 0

    def size(self):
        return 1


class GradientAccumulation(TestCase):
    def test_main_grad(self):
        for dtype in (*HALF, torch.float32):
            for main in (torch.float32, *((dtype,) if dtype in HALF else ())):
                for bias in (False, True):
                    torch.manual_seed(7)
                    x = torch.randn(5, 4, 24).to(dtype).requires_grad_()
                    weight = torch.randn(40, 24).to(dtype).requires_grad_()
                    b = torch.zeros(40, dtype=dtype).requires_grad_() if bias else None
                    weight.main_grad = torch.randn(40, 24).to(main)
                    exact = weight.main_grad.double()
                    for _ in range(3):
                        g = torch.randn(5, 4, 40).to(dtype)
                        y = linear_with_grad_accumulation_and_async_allreduce(
                            x, weight, b, True, False, False, tp_group=OneRank())
                        y.backward(g)
                        exact += (g.flatten(0, 1).double().t()
                                  @ x.detach().flatten(0, 1).double())
                    self.assertIsNone(weight.grad)
                    rounding = 0 if main == torch.float32 else 3 * EPS[main]
                    torch.testing.assert_close(
                        weight.main_grad.double(), exact, rtol=1e-5 + rounding,
                        atol=1e-4 + 8 * rounding)


def sequence_parallel(rank, ranks):
    """What two layers compute that divide their weights over the ranks, and their input
    and output by rows: tensors, and the dimension that is divided."""
    swamp_torch.enable(half_precision=True, reproducible=True)
    parallel_state.initialize_model_parallel(ranks)
    results = []
    for dtype in (*HALF, torch.float32):
        for main in (False, True):
            torch.manual_seed(11)
            config = ModelParallelConfig(
                tensor_model_parallel_size=ranks, sequence_parallel=ranks > 1,
                use_cpu_initialization=True, params_dtype=dtype,
                gradient_accumulation_fusion=main)
            options = dict(config=config, init_method=torch.nn.init.xavier_normal_,
                           bias=True, skip_bias_add=False)
            up = ColumnParallelLinear(24, 64, gather_output=False, **options)
            down = RowParallelLinear(64, 24, input_is_parallel=True, **options)
            x, g = (torch.randn(8, 3, 24).to(dtype).chunk(ranks)[rank] for _ in range(2))
            x.requires_grad_()
            if main:
                for layer in (up, down):
                    layer.weight.main_grad = torch.zeros(layer.weight.shape)
            with unittest.mock.patch.object(torch.cuda, "current_device", lambda: "cpu"):
                h = up(x)[0]
                y = down(h.relu())[0]
                y.backward(g)
            of_up, of_down = (layer.weight.main_grad if main else layer.weight.grad
                              for layer in (up, down))
            results.append([(h.detach(), 2), (of_up, 0), (up.bias.grad, 0), (of_down, 1),
                            (y.detach(), 0), (x.grad, 0)])
    return results


class SequenceParallel(TestCase):
    def test_as_one_rank(self):
        """What is not a sum over the ranks has the bits of one rank."""
        one, = run_ranks(sequence_parallel, 1)
        for ranks in (2, 4):
            parts = run_ranks(sequence_parallel, ranks)
            for row, (whole, *of_ranks) in enumerate(zip(one, *parts)):
                for number, (exact, dim) in enumerate(whole):
                    joined = torch.cat([part[number][0] for part in of_ranks], dim)
                    with self.subTest(ranks=ranks, row=row, number=number):
                        if number < 4:
                            self.assert_same(joined, exact)
                        else:
                            unit = 2 * ranks * EPS.get(exact.dtype, 2.0 ** -24)
                            torch.testing.assert_close(
                                joined, exact, rtol=unit,
                                atol=unit * exact.abs().max().item())


if __name__ == "__main__":
    main()
