"""What swamp_torch writes counts in the versions of tensors: once for each write, as
with PyTorch's own operators, so that a backward pass that needs the old values raises.
package_operators.py tests the operators swamp::*; clip_grad_norm_(), zero_grad() and
moving averages call one of them once."""

from optimizers import CASES
from support import DTYPES, TestCase, main

import torch

import swamp_torch
from swamp_torch import AdamW

HALF = (torch.float16, torch.bfloat16)
FLOATS = DTYPES[:3]


def spread(tensor):
    """The same values in other layouts: the kernels write a copy of some."""
    holes = torch.empty(*tensor.shape[:-1], 2 * tensor.shape[-1],
                        dtype=tensor.dtype)[..., ::2]
    turned = torch.empty(tensor.shape[::-1], dtype=tensor.dtype).t()
    return [tensor, *(t.copy_(tensor) for t in (turned, holes))]


def model(dtype, layout=0, shape=(6, 8)):
    p = torch.nn.Parameter(spread(torch.randn(shape).to(dtype))[layout])
    p.grad = torch.randn(shape).to(dtype)
    return p


def rows():
    """name: class, dtype, layout and shape of a parameter, and options."""
    for dtype in FLOATS:
        for layout in range(3):
            here = f"{dtype}, layout {layout}"
            for name, options in [*CASES, ("AdamW", {"max_norm": 0.1})]:
                yield (f"{name} {options} {here}",
                       getattr(swamp_torch, name), dtype, layout, (6, 8), options)
            for moments in ("float32", "bfloat16", "8bit", "float8"):
                for rounding in ("stochastic", "kahan"):
                    yield (f"AdamW {moments} {rounding} {here}", AdamW, dtype, layout,
                           (64, 80), dict(master_weights=False, moments=moments,
                                          rounding=rounding))


class Versions(TestCase):
    def test_step(self):
        """Weights, masters, moments and counts, of a step that is not the first; of a
        skipped one nothing."""
        for name, make, dtype, layout, shape, options in rows():
            params = [model(dtype, layout, shape), model(dtype, 0, shape)]
            optimizer = make(params, lr=0.1, **options)
            optimizer.step()
            written = params + [t for p in params for t in optimizer.state[p].values()]
            every = written + [p.grad for p in params]
            values = [t.detach().clone() for t in written]
            for skips in (True, False):
                before = [t._version for t in every]
                with self.subTest(name, skips=skips), torch.random.fork_rng():
                    if skips:
                        optimizer.found_inf, optimizer.grad_scale = torch.ones(2)
                    optimizer.step()
                    optimizer.found_inf = optimizer.grad_scale = None
                    self.assertEqual(
                        [t._version - v for t, v in zip(every, before)],
                        [int(not skips)] * len(written) + [0] * len(params))
                    # Else the row is about nothing.
                    self.assertEqual(skips, all(map(torch.equal, written, values)))

    def test_as_pytorchs_operators(self):
        """Of the operators that swamp replaces, PyTorch counts the writes."""
        def seen():
            t = torch.randn
            found = [torch.zeros(()), torch.ones(()), torch.ones((), dtype=torch.int)]
            grads = [t(8), t(8, 8).half()]
            torch._amp_foreach_non_finite_check_and_unscale_(
                grads, found[0], torch.tensor(0.5))
            torch._amp_update_scale_(found[1], found[2], found[0], 2.0, 0.5, 1)
            tensors = grads + found
            for dtype in HALF:
                a, b = t(64, 64).to(dtype), t(2, 64, 64).to(dtype)
                out, wide = torch.empty_like(a), torch.empty_like(b)
                torch.mm(a, a, out=out)
                torch.addmm(out, a, a, out=out)
                out.addmm_(a, a)
                torch.bmm(b, b, out=wide)
                wide.baddbmm_(b, b)
                normed = torch.empty_like(a)
                torch.log_softmax(a, -1, out=normed)
                tensors += [a, b, out, wide, normed]
            return [one._version for one in tensors]

        with swamp_torch.disabled():
            expected = seen()
        self.assertEqual(seen(), expected)
        swamp_torch.enable(half_precision=True)
        try:
            self.assertEqual(seen(), expected)
        finally:
            swamp_torch.enable()

    def test_backward_through_a_clipped_gradient(self):
        """It would be wrong without a word."""
        for dtype in DTYPES:
            p = torch.nn.Parameter(torch.full((8,), 3.0, dtype=dtype))
            p.grad, = torch.autograd.grad((p ** 3).sum(), p, create_graph=True)
            penalty = p.grad.square().sum()
            swamp_torch.clip_grad_norm_([p], 0.1)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace"):
                penalty.backward()


if __name__ == "__main__":
    main()
