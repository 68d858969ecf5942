"""swamp_torch.clip_grad_norm_ beside torch.nn.utils.clip_grad_norm_.

usage: package_clip.py FOLDER
"""

import copy
import math
import unittest

from package import same

import torch

import swamp_torch

STOCK = torch.nn.utils.clip_grad_norm_


def params(*dtypes, seed=0, factor=1.0):
    torch.manual_seed(seed)
    result = []
    for i, dtype in enumerate(dtypes):
        p = torch.nn.Parameter(torch.zeros(7, 9 + i, dtype=dtype))
        p.grad = (torch.randn(7, 9 + i) * factor).to(dtype)
        result.append(p)
    return result


def both(make, *args, **kwargs):
    ours, theirs = make(), make()
    norm = swamp_torch.clip_grad_norm_(ours, *args, **kwargs)
    expected = STOCK(theirs, *args, **kwargs)
    return ours, theirs, norm, expected


class Clip(unittest.TestCase):
    def near(self, ours, theirs, rtol):
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a.grad, b.grad, rtol=rtol, atol=0,
                                       equal_nan=True)

    def test_clipped(self):
        for dtypes, rtol in (([torch.float32] * 5, 1e-5),
                             ([torch.float64] * 3, 1e-5),
                             ([torch.bfloat16] * 3, 1e-2),
                             ([torch.float16, torch.float32], 2e-3)):
            ours, theirs, norm, expected = both(lambda: params(*dtypes), 0.5)
            torch.testing.assert_close(norm.double(), expected.double(),
                                       rtol=rtol, atol=0)
            self.near(ours, theirs, rtol)
            self.assertEqual(norm.shape, ())
            self.assertIs(norm.dtype, torch.float64 if torch.float64 in dtypes
                          else torch.float32)

    def test_bits_of_the_product(self):
        for dtype in (torch.float32, torch.float16, torch.bfloat16,
                      torch.float64):
            ours, before = params(dtype), params(dtype)
            norm = swamp_torch.grad_norm_and_check(
                [before[0].grad], torch.zeros(()), torch.ones(())).item()
            swamp_torch.clip_grad_norm_(ours, 0.3)
            factor = 0.3 / (norm + 1e-6)
            if dtype is not torch.float64:
                factor = torch.tensor(factor).float().item()
            wide = torch.promote_types(dtype, torch.float32)
            want = (before[0].grad.to(wide) * factor).to(dtype)
            self.assertTrue(same(ours[0].grad, want), dtype)

    def test_below_the_limit_nothing_is_written(self):
        ours = params(torch.float32, torch.float16)
        versions = [p.grad._version for p in ours]
        before = [p.grad.clone() for p in ours]
        swamp_torch.clip_grad_norm_(iter(ours), 1e9)
        for p, b, version in zip(ours, before, versions):
            self.assertTrue(same(p.grad, b))
            self.assertEqual(p.grad._version, version)

    def test_float16_does_not_overflow_the_norm(self):
        ours = params(torch.float16, factor=2e4)
        wide = ours[0].grad.double()
        norm = swamp_torch.clip_grad_norm_(ours[0], 1.0)  # one parameter, bare
        self.assertAlmostEqual(norm.item(), wide.norm().item(), delta=1.0)
        self.assertTrue(math.isfinite(norm.item()))
        self.assertTrue(torch.allclose(ours[0].grad.double(), wide / norm,
                                       atol=1e-3))

    def test_not_finite(self):
        for value in (math.inf, -math.inf, math.nan):
            def make():
                made = params(torch.float32, torch.float16)
                made[0].grad[2, 3] = value
                return made

            ours, theirs, norm, expected = both(make, 1.0)
            self.assertEqual(norm.isnan(), expected.isnan())
            self.near(ours, theirs, 0)
            texts = []
            for clip in (swamp_torch.clip_grad_norm_, STOCK):
                made = make()
                before = [p.grad.clone() for p in made]
                with self.assertRaises(RuntimeError) as caught:
                    clip(made, 1.0, error_if_nonfinite=True)
                texts.append(str(caught.exception))
                for p, b in zip(made, before):
                    self.assertTrue(same(p.grad, b))
            self.assertEqual(texts[0], texts[1])

    def test_pytorchs_own(self):
        """Other norms and layouts are torch.nn.utils', bit for bit."""
        def sparse():
            p = torch.nn.Parameter(torch.zeros(4, 4))
            p.grad = torch.sparse_coo_tensor(
                [[0, 2]], torch.tensor([[1.0] * 4, [2.0] * 4]), (4, 4),
                check_invariants=True)
            return [p]

        for norm_type in (1.0, 3, math.inf, "inf"):
            ours, theirs, norm, expected = both(
                lambda: params(torch.float32, torch.float32), 0.7, norm_type)
            self.assertTrue(same(norm, expected))
            for a, b in zip(ours, theirs):
                self.assertTrue(same(a.grad, b.grad))
        outcomes = []
        for clip in (swamp_torch.clip_grad_norm_, STOCK):
            made = sparse()
            try:
                outcomes.append((clip(made, 0.5).item(),
                                 made[0].grad.to_dense().tolist()))
            except Exception as error:
                outcomes.append((type(error), str(error)))
        self.assertEqual(outcomes[0], outcomes[1])

    def test_refused(self):
        for some in (params(torch.float32), []):
            with self.assertRaisesRegex(TypeError,
                                        "^max_norm: got None, expected a number"):
                swamp_torch.clip_grad_norm_(some, None)

    def test_nothing(self):
        p = torch.nn.Parameter(torch.ones(3))
        for nothing in ([], [p]):
            norm = swamp_torch.clip_grad_norm_(nothing, 1.0)
            self.assertTrue(same(norm, STOCK(nothing, 1.0)))
        with_grad = params(torch.float32)
        alone = copy.deepcopy(with_grad)
        alone[0].grad = with_grad[0].grad.clone()
        self.assertEqual(swamp_torch.clip_grad_norm_([p] + with_grad, 0.1),
                         swamp_torch.clip_grad_norm_(alone, 0.1))
        self.assertTrue(same(with_grad[0].grad, alone[0].grad))

    def test_stock_kernels_give_the_same(self):
        ours, theirs = params(torch.float32), params(torch.float32)
        swamp_torch.clip_grad_norm_(ours, 0.3)
        swamp_torch.disable()
        try:
            swamp_torch.clip_grad_norm_(theirs, 0.3)
        finally:
            swamp_torch.enable()
        self.assertTrue(same(ours[0].grad, theirs[0].grad))


if __name__ == "__main__":
    unittest.main()
