"""swamp::wgrad_gemm_accum and swamp_torch.megatron."""

import sys

from support import TestCase, main
from half_precision import EPS, HALF, use

import torch

import swamp_torch.megatron


class Wgrad(TestCase):
    def test_against_float64(self):
        rows = [(dtype, torch.float32, sizes) for dtype in (*HALF, torch.float32)
                for sizes in ((50,), (5, 10), (2, 5, 5), (20_000,))]
        rows += [(dtype, dtype, (60,)) for dtype in HALF]
        torch.manual_seed(0)
        for on in (False, True):
            use(on)
            for dtype, main_dtype, sizes in rows:
                x, dy = (torch.randn(*sizes, n).to(dtype) for n in (24, 40))
                grad = torch.randn(40, 24).to(main_dtype)
                terms = [one.flatten(0, -2).double() for one in (dy, x)]
                exact = grad.double() + terms[0].t() @ terms[1]
                # Of the terms' magnitudes: rounding errors of sums grow with these.
                total = grad.double().abs() + terms[0].abs().t() @ terms[1].abs()
                version = grad._version
                torch.ops.swamp.wgrad_gemm_accum(x, dy, grad)
                error = (grad.double() - exact).abs()
                allowed = EPS.get(main_dtype, 0) * exact.abs() + 1e-6 * total
                self.assertTrue((error <= allowed).all(), (dtype, main_dtype, sizes))
                self.assertEqual(grad._version, version + 1)

    def test_is_not_rounded_to_16_bits(self):
        """2000 gradients of 2^-12: their 16-bit sum would stay below 1."""
        for dtype in HALF:
            x = torch.full((1, 1), 2.0 ** -6).to(dtype)
            grad = torch.ones(1, 1)
            for _ in range(2000):
                torch.ops.swamp.wgrad_gemm_accum(x, x, grad)
            self.assertEqual(grad.item(), 1 + 2000 * 2.0 ** -12)

    def test_nothing_to_add(self):
        grad = torch.ones(4, 3)
        torch.ops.swamp.wgrad_gemm_accum(torch.ones(0, 3).half(),
                                         torch.ones(0, 4).half(), grad)
        self.assert_same(grad, torch.ones(4, 3))

    def test_errors(self):
        x, dy, grad = torch.ones(5, 3).half(), torch.ones(5, 4).half(), \
            torch.zeros(4, 3)
        rows = [
            ((x.double(), dy, grad), "input: got the dtype Double"),
            ((x, dy.float(), grad), "grad_output: got the dtype Float, expected Half"),
            ((x, dy, grad.double()), "main_grad: got the dtype Double"),
            ((x, dy, grad.bfloat16()), "main_grad: got the dtype BFloat16"),
            ((x[0], dy, grad), "input: got 1 dimensions"),
            ((x[:3], dy, grad), "grad_output: got 5 rows, expected 3, as input"),
            ((x, dy, grad.t()), r"main_grad: got the shape \[3, 4\], expected"),
            ((x, dy, grad[:1].expand(4, 3)), "unsupported operation"),
            ((x, dy, grad.clone().requires_grad_()), "a leaf Variable"),
        ]
        for arguments, text in rows:
            with self.assertRaisesRegex(RuntimeError, text):
                torch.ops.swamp.wgrad_gemm_accum(*arguments)
        self.assert_same(grad, torch.zeros(4, 3))

    def test_megatron(self):
        name = "fused_weight_gradient_mlp_cuda"
        self.assertNotIn(name, sys.modules)
        try:
            swamp_torch.megatron.install()
            import fused_weight_gradient_mlp_cuda as module
            x, dy = torch.ones(2, 5, 3).half(), torch.ones(2, 5, 4).half()
            for function, right, wrong in (
                    (module.wgrad_gemm_accum_fp32, torch.float32, torch.float16),
                    (module.wgrad_gemm_accum_fp16, torch.float16, torch.float32)):
                grad = torch.ones(4, 3, dtype=right)
                function(x, dy, grad)
                self.assert_same(grad, torch.full((4, 3), 11.0, dtype=right))
                with self.assertRaisesRegex(RuntimeError, "^main_grad: got"):
                    function(x, dy, grad.to(wrong))
        finally:
            sys.modules.pop(name, None)


SOFTMAX = ("scaled_softmax_cuda", "scaled_masked_softmax_cuda",
           "scaled_upper_triang_masked_softmax_cuda")


class Softmax(TestCase):
    """The modules called as Megatron-LM calls them; package_megatron_lm.py runs
    Megatron-LM itself."""

    def setUp(self):
        swamp_torch.megatron.install()
        self.addCleanup(lambda: [sys.modules.pop(name, None) for name in (
            *SOFTMAX, "fused_weight_gradient_mlp_cuda")])

    def calls(self, dtype, scale):
        """(module, forward's arguments, what swamp's operator returns)"""
        x = torch.randn(2, 4, 8, 8).mul(2).to(dtype)
        # apex rounds the scale of the forward.
        ops, rounded = torch.ops.swamp, scale.to(dtype).item()
        mask = torch.rand(2, 1, 8, 8) < 0.3
        mask[:, :, 1] = True
        masked = ops.scaled_masked_softmax(x, mask, rounded)
        single, some, triangle = (sys.modules[name] for name in SOFTMAX)
        return [(single, (x, scale), ops.scaled_softmax(x, rounded)),
                *((some, (x, m, scale), masked) for m in (
                    # Of a byte mask, apex masks where it is 1.
                    mask, mask.byte(), mask.byte() + 2 * ~mask)),
                (triangle, (x.flatten(0, 1), scale),
                 ops.scaled_upper_triang_masked_softmax(x.flatten(0, 1), rounded))]

    def test_forward_and_backward(self):
        """The operators' bits; package_rows.py compares them with float64."""
        for dtype in HALF:
            for scale in (1.0, 96 ** -0.5):
                number = torch.tensor(scale)
                for module, arguments, expected in self.calls(dtype, number):
                    y = module.forward(*arguments)
                    self.assert_same(y, expected)
                    g = torch.randn(y.shape).to(dtype)
                    # The scale is not rounded here.
                    expected = torch.ops.swamp.scaled_softmax_backward(
                        g.clone(), y, number.item())
                    result = module.backward(g, y, number)
                    self.assertEqual(result.data_ptr(), g.data_ptr())
                    self.assert_same(result, expected)

    def test_gradients_that_cannot_be_written(self):
        """The gradient of sum() has one element of memory."""
        number = torch.tensor(0.5)
        for dtype in HALF:
            for module, arguments, _ in self.calls(dtype, number):
                y = module.forward(*arguments)
                one = torch.ones((), dtype=dtype)
                for g in (one.expand(y.shape), torch.ones_like(y.mT).mT):
                    kept = torch.ones_like(y)
                    expected = module.backward(kept, y, number)
                    self.assert_same(module.backward(g, y, number), expected)
                self.assertEqual(one.item(), 1)

    def test_batch_per_block(self):
        function = sys.modules[SOFTMAX[1]].get_batch_per_block
        for key_len, expected in ((16, 16), (17, 8), (32, 8), (128, 8), (129, 4),
                                  (4096, 4)):
            self.assertEqual(function(64, key_len, 2, 4), expected)


if __name__ == "__main__":
    main()
