"""swamp::wgrad_gemm_accum and swamp_torch.megatron."""

import sys

from support import TestCase, main
from half_precision import EPS, HALF, use

import torch

import swamp_torch.megatron


def tearDownModule():
    use(None)


class Wgrad(TestCase):
    def test_accumulates_in_float32(self):
        for on in (None, "float32", "onednn"):
            use(on)
            for dtype in (*HALF, torch.float32):
                for rows in ((50,), (5, 10), (2, 5, 5), (20_000,)):
                    x = torch.randn(*rows, 24).to(dtype)
                    dy = torch.randn(*rows, 40).to(dtype)
                    grad = torch.randn(40, 24)
                    exact = grad.double() + dy.flatten(0, -2).double().t() @ \
                        x.flatten(0, -2).double()
                    version = grad._version
                    torch.ops.swamp.wgrad_gemm_accum(x, dy, grad)
                    torch.testing.assert_close(grad.double(), exact, rtol=1e-4,
                                               atol=1e-3)
                    self.assertEqual(grad._version, version + 1)

    def test_is_not_rounded_to_16_bits(self):
        """2000 gradients of 2^-12: their 16-bit sum would stay below 1."""
        for dtype in HALF:
            x = torch.full((1, 1), 2.0 ** -6).to(dtype)
            grad = torch.ones(1, 1)
            for _ in range(2000):
                torch.ops.swamp.wgrad_gemm_accum(x, x, grad)
            self.assertEqual(grad.item(), 1 + 2000 * 2.0 ** -12)

    def test_half_main_grad(self):
        for way in (None, "float32", "onednn"):
            use(way)
            for dtype in HALF:
                x, dy = torch.randn(60, 24).to(dtype), torch.randn(60, 40).to(dtype)
                grad = torch.randn(40, 24).to(dtype)
                exact = grad.double() + dy.double().t() @ x.double()
                torch.ops.swamp.wgrad_gemm_accum(x, dy, grad)
                torch.testing.assert_close(grad.double(), exact, rtol=EPS[dtype],
                                           atol=EPS[dtype] / 8)

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

    def test_opcheck(self):
        torch.library.opcheck(
            torch.ops.swamp.wgrad_gemm_accum,
            (torch.ones(5, 3).half(), torch.ones(5, 4).half(), torch.zeros(4, 3)))

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


if __name__ == "__main__":
    main()
