"""swamp_torch.AdamW: masters, max_norm, found_inf, and what it refuses. Its bits, in
the place of PyTorch's classes, are in package_drop_in.py."""

import itertools
import math
import warnings

import optimizers
from optimizers import NAMES, OPTIMIZERS, give_grads
from support import FORMS, TestCase, Wrapper, a_fifth, caught, main

import torch

import swamp_torch
from swamp_torch import AdamW, clip_grad_norm_

# Multiples of 64: PyTorch's vector body, whose bits are promised.
SHAPES = [(64,), (128, 96), (3, 64), (0,), (32768,)]
HYPER = dict(lr=1e-2, betas=(0.8, 0.99), eps=1e-7, weight_decay=0.1)


def params(dtype=torch.float32, seed=1, shapes=SHAPES):
    return optimizers.params(shapes, (dtype,), seed)


class Bits(TestCase):
    def test_mixed_dtypes_in_one_group(self):
        mixed = params(torch.float32) + params(torch.bfloat16, 2)
        mixed[1], mixed[7] = mixed[7], mixed[1]
        alone = [p.detach().clone().requires_grad_() for p in mixed]
        optimizer = AdamW(mixed, **HYPER)
        singles = [AdamW([p], **HYPER) for p in alone]
        for step in range(3):
            give_grads(mixed, step)
            give_grads(alone, step)
            optimizer.step()
            for one in singles:
                one.step()
        self.assert_same(mixed, alone)

    def test_clipping_of_one_group(self):
        ours, theirs = params(), params()
        a = AdamW([{"params": ours[:2], "max_norm": 0.25},
                   {"params": ours[2:]}], **HYPER)
        b = torch.optim.AdamW(theirs, fused=True, **HYPER)
        give_grads(ours, 0)
        give_grads(theirs, 0)
        a.step()
        coefficient = 0.25 / (a.grad_norm.item() + 1e-6)
        for p in theirs[:2]:
            p.grad *= coefficient
        b.step()
        self.assert_same(ours, theirs)

    def test_no_clipping(self):
        ours, theirs = params(), params()
        a = AdamW([{"params": ours[:2], "max_norm": None},
                   {"params": ours[2:]}], max_norm=None, **HYPER)
        b = AdamW(theirs, **HYPER)
        for some, optimizer in ((ours, a), (theirs, b)):
            give_grads(some, 0)
            optimizer.step()
            self.assertIsNone(optimizer.grad_norm)
        self.assert_same(ours, theirs)


class Scaler(TestCase):
    def test_float16_weights(self):
        """A skipped step changes nothing: the run equals one without a scaler."""
        weights = params(torch.float16)
        optimizer = AdamW(weights, max_norm=0.5, **HYPER)
        masters = [torch.nn.Parameter(p.detach().float()) for p in weights]
        reference = torch.optim.AdamW(masters, fused=True, **HYPER)
        scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
        scaler.scale(torch.ones(()))
        for step in range(4):
            scale = scaler.get_scale()
            give_grads(weights, step, scale)
            if step == 1:
                weights[4].grad[30000] = math.nan
            scaler.step(optimizer)
            scaler.update()
            self.assertEqual(optimizer.skipped, step == 1)
            self.assertFalse(hasattr(optimizer, "found_inf"))
            if step == 1:
                self.assertEqual(scaler.get_scale(), scale / 2)
            else:
                coefficient = 0.5 / (optimizer.grad_norm.item() + 1e-6)
                for p, q in zip(weights, masters):
                    q.grad = p.grad.float() * (1 / scale) * coefficient
                reference.step()
            self.assert_same(weights, [q.half() for q in masters])
        self.assertEqual(optimizer.state[weights[0]]["step"], 3)

    def test_any_found_inf_skips(self):
        for found in (1.0, 2.0, -1.0, math.inf, math.nan):
            some = params(torch.bfloat16)
            give_grads(some, 0)
            before = [p.detach().clone() for p in some]
            optimizer = AdamW(some, max_norm=1.0, **HYPER)
            optimizer.grad_scale = torch.tensor(4.0)
            optimizer.found_inf = torch.full((1,), found)
            optimizer.step()
            self.assert_same(some, before)
            self.assertEqual(len(optimizer.state), 0)
            self.assertTrue(optimizer.skipped)
        optimizer.found_inf = 0  # GradScaler's, if there are no gradients
        optimizer.step()
        self.assertFalse(optimizer.skipped)
        self.assertEqual(len(optimizer.state), len(some))

    def test_no_gradients(self):
        some = params()
        optimizer = AdamW(some, max_norm=1.0, **HYPER)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(torch.ones(()))
        scaler.step(optimizer)
        optimizer.step()
        self.assertEqual(len(optimizer.state), 0)

    def test_odd_scales(self):
        """Unscaled as by scaler.unscale_()."""
        ours, theirs = params(), params()
        scale = torch.tensor(1000.0 / 3)
        give_grads(ours, 0, 300)
        give_grads(theirs, 0, 300)
        a = AdamW(ours, **HYPER)
        a.grad_scale, a.found_inf = scale, torch.zeros(())
        a.step()
        torch._amp_foreach_non_finite_check_and_unscale_(
            [p.grad for p in theirs], torch.zeros(()),
            scale.double().reciprocal().float())
        torch.optim.AdamW(theirs, fused=True, **HYPER).step()
        self.assert_same(ours, theirs)

    def test_unscale_grads(self):
        """The gradients after scaler.step(), as PyTorch's fused step leaves them."""
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for found, max_norm in ((0.0, 0.0), (0.0, 0.5), (1.0, 0.0)):
                ours, theirs = params(dtype), params(dtype)
                give_grads(ours, 0, 64)
                give_grads(theirs, 0, 64)
                a = AdamW(ours, max_norm=max_norm, unscale_grads=True, **HYPER)
                b = torch.optim.AdamW(theirs, fused=True, **HYPER)
                for optimizer in (a, b):
                    optimizer.grad_scale = torch.tensor(64.0)
                    optimizer.found_inf = torch.tensor(found)
                    optimizer.step()
                self.assert_same([p.grad for p in ours], [p.grad for p in theirs])

    def test_alone_nothing_is_checked(self):
        p = params(shapes=[(64,)])[0]
        p.grad = torch.full((64,), math.nan)
        optimizer = AdamW([p])
        optimizer.step()
        self.assertTrue(p.isnan().all())
        self.assertFalse(optimizer.skipped)


# Whose values are not those in its memory, or not in order.
GRADIENTS = {name: form for name, (form, has_result) in FORMS.items() if has_result}


class Forms(TestCase):
    def both(self, make, dtype, change, options, steps=2):
        """The parameters, states and gradients after some steps, with change() and
        without."""
        results = []
        for changed in (True, False):
            p, q = params(dtype, shapes=[(64, 80), (5, 7)])
            optimizer = make([p, q], **options)
            for step in range(steps):
                give_grads(optimizer, step, 8.0)
                change(changed, optimizer, p)
                if options.get("unscale_grads"):
                    optimizer.grad_scale = torch.tensor(8.0)
                optimizer.step()
            results.append([t.detach().clone() for t in (
                *optimizers.tensors(optimizer), p.grad, q.grad)])
        self.assert_same(*results, (make, dtype, options))

    def test_gradients(self):
        for kind, make, dtype, options in a_fifth([*itertools.product(
                GRADIENTS, OPTIMIZERS.values(),
                (torch.float32, torch.bfloat16, torch.float16),
                ({}, {"max_norm": 0.5}, {"unscale_grads": True}))]):
            if (kind == "imaginary" and dtype is not torch.float32  # PyTorch has none
                    or "expanded" in kind and "unscale_grads" in options):  # not written
                continue

            def change(changed, optimizer, p):
                new = GRADIENTS[kind](p.grad)
                p.grad = new if changed else new.clone()

            with self.subTest(kind):
                self.both(make, dtype, change, options)

    def test_parameters_and_states(self):
        for name, make in OPTIMIZERS.items():
            for dtype in (torch.float32, torch.bfloat16):
                def parameter(changed, optimizer, p):
                    if changed and not p.is_neg():
                        p.data = torch._neg_view(-p.data)

                def state(changed, optimizer, p):
                    for key, value in optimizer.state.get(p, {}).items():
                        if changed and value.dtype in (torch.float32, torch.bfloat16):
                            optimizer.state[p][key] = torch._neg_view(-value)

                self.both(make, dtype, parameter, {})
                if "8" not in name:  # of which there are no such codes
                    self.both(make, dtype, state, {})

    def test_clip(self):
        for kind in ("neg", "neg, steps", "imaginary"):
            for dtype in (torch.float32, torch.float16, torch.float64):
                if kind == "imaginary" and dtype is torch.float16:
                    continue
                results = []
                for changed in (True, False):
                    p = params(dtype, shapes=[(8, 8)])[0]
                    give_grads([p], 0)
                    new = GRADIENTS[kind](p.grad)
                    p.grad = new if changed else new.clone()
                    norm = clip_grad_norm_([p], 0.25)
                    results.append([norm, p.grad.clone()])
                self.assert_same(*results, (kind, dtype))

    def test_moving_average(self):
        for kind, form in GRADIENTS.items():
            theirs = torch.ones(6, 8)
            ours = torch._neg_view(-theirs.clone())
            new = form(torch.randn(6, 8))
            update = swamp_torch.get_ema_multi_avg_fn(0.9)
            update([ours], [new], 1)
            update([theirs], [new.clone()], 1)
            self.assert_same(ours.clone(), theirs, kind)

    def test_wrappers(self):
        """PyTorch steps them, or there is an error before anything is written."""
        for make in OPTIMIZERS.values():
            p, q = params(shapes=[(64,), (64,)])
            give_grads([p, q], 0)
            try:
                p.grad = Wrapper(p.grad)
            except (RuntimeError, TypeError):
                pass
            before = [p.detach().clone(), q.detach().clone()]
            try:
                make([p, q]).step()
            except (RuntimeError, TypeError, NotImplementedError):
                self.assert_same([p.detach(), q.detach()], before)
        held = torch.randn(8)
        for call in (lambda x: swamp_torch.grad_norm_and_check(
                         [x], torch.zeros(()), torch.ones(())),
                     lambda x: swamp_torch.any_nonfinite([x]),
                     lambda x: torch.ops.swamp.foreach_zero_([x])):
            self.assertEqual(type(caught(lambda: call(Wrapper(held)))),
                             type(caught(lambda: call(held))))


class Protocol(TestCase):
    def test_zero_grad_of_any_gradient(self):
        shape = (6, 8)
        makes = {
            "nan": lambda p: torch.full(shape, math.nan),
            "transposed": lambda p: torch.ones(8, 6).t(),
            "holes": lambda p: torch.ones(6, 16)[:, ::2],
            "bfloat16": lambda p: torch.ones(shape, dtype=torch.bfloat16),
            "float64": lambda p: torch.ones(shape, dtype=torch.float64),
            "graph": lambda p: torch.autograd.grad(
                p.square().sum(), p, create_graph=True)[0],
            "sparse": lambda p: torch.ones(shape).to_sparse(),
            "negated": lambda p: torch._neg_view(torch.ones(shape)),
            "imaginary": lambda p: torch.complex(
                torch.ones(shape), torch.ones(shape)).conj().imag,
            "none": lambda p: None,
        }
        for name, make in makes.items():
            dtype = {"bfloat16": torch.bfloat16,
                     "float64": torch.float64}.get(name, torch.float32)
            p, other = (torch.nn.Parameter(torch.ones(shape, dtype=dtype))
                        for _ in range(2))
            optimizer = AdamW([p, other])
            p.grad, other.grad = make(p), torch.ones(shape, dtype=dtype)
            grad = p.grad
            version = 0 if grad is None else grad._version
            optimizer.zero_grad(set_to_none=False)
            with self.subTest(name):
                self.assertEqual(other.grad.abs().sum(), 0)
                self.assertIs(p.grad, grad)
                if grad is None:
                    continue
                self.assertFalse(grad.requires_grad)
                self.assertGreater(grad._version, version)
                self.assertTrue(torch.equal(grad.to_dense(),
                                            torch.zeros(shape, dtype=dtype)))
        # Two parameters with one gradient, which overlaps itself in the list.
        a, b = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))
        a.grad = b.grad = torch.ones(4)
        AdamW([a, b]).zero_grad(set_to_none=False)
        self.assert_same([a.grad], [torch.zeros(4)])
        AdamW([a, b]).zero_grad()
        self.assertIsNone(a.grad)

    def test_refused(self):
        p = params(shapes=[(64,)])[0]
        for numbers, words in (
                (dict(lr=-1.0), "Invalid learning rate: -1.0"),
                (dict(lr=torch.ones(2)), "Tensor lr must be 1-element"),
                (dict(lr=math.nan), "Invalid learning rate: nan"),
                (dict(betas=(1.0, 0.9)), "Invalid beta parameter at index 0: 1"),
                (dict(betas=(0.9, -1.0)), "Invalid beta parameter at index 1"),
                (dict(eps=-1.0), "Invalid epsilon value: -1.0"),
                (dict(weight_decay=-1.0), "Invalid weight_decay value: -1.0"),
                *((dict(max_norm=bad), f"max_norm: got {got}, expected a number")
                  for bad, got in ((-1.0, "-1.0"), (math.nan, "nan"),
                                   ("inf", "'inf'"), ([1.0], r"\[1.0\]"),
                                   (torch.ones(2), r"tensor\(\[1., 1.\]\)")))):
            with self.assertRaisesRegex(ValueError, words):
                AdamW([p], **numbers)
        other = torch.nn.Parameter(torch.ones(64))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's, of the same
            with self.assertRaisesRegex(
                    ValueError, r"params\[2\]: got params\[0\] again, expected"):
                AdamW([p, other, p])
        with self.assertRaisesRegex(ValueError, "more than one parameter group"):
            AdamW([{"params": [p]}, {"params": [other, p]}])
        optimizer = AdamW([p])
        optimizer.param_groups[0]["max_norm"] = "inf"
        with self.assertRaisesRegex(ValueError, "max_norm: got 'inf', expected"):
            optimizer.step()
        optimizer.param_groups[0]["max_norm"] = None
        for bad in (dict(lr=-1.0), dict(eps=math.nan)):
            with self.assertRaisesRegex(ValueError, "Invalid"):
                optimizer.add_param_group({"params": [torch.ones(2)], **bad})
            self.assertEqual(len(optimizer.param_groups), 1)
        for bad in (torch.ones(3).double(), torch.ones(3, dtype=torch.complex64)):
            bad.requires_grad_().grad = torch.ones_like(bad)
            clips = AdamW([other, bad], max_norm=1.0)
            with self.assertRaisesRegex(
                    ValueError, r"param_groups\[0\]\['params'\]\[1\]: got torch."):
                clips.step()
        clips = AdamW([other], max_norm=1.0, differentiable=True)
        other.grad = torch.ones_like(other)
        with self.assertRaisesRegex(ValueError, "got differentiable=True, expected"):
            clips.step()
        with self.assertRaisesRegex(TypeError, "params argument given"):
            AdamW(p)
        with self.assertRaisesRegex(ValueError, "empty parameter list"):
            AdamW([])
        p.grad = torch.ones(64).to_sparse()
        with self.assertRaisesRegex(RuntimeError, "sparse gradients"):
            optimizer.step()

    def test_lazy_modules(self):
        """A parameter that has no shape before the first forward pass."""
        for name in NAMES:
            results = []
            for one in (getattr(swamp_torch, name), getattr(torch.optim, name)):
                torch.manual_seed(0)
                model = torch.nn.Sequential(
                    torch.nn.Linear(8, 8), torch.nn.LazyLinear(8),
                    torch.nn.LazyLinear(1))
                optimizer = one(model.parameters(), lr=0.1)
                optimizer.load_state_dict(optimizer.state_dict())
                model[0].weight.grad = torch.ones(8, 8)
                optimizer.step()
                for step in range(3):
                    optimizer.zero_grad(set_to_none=bool(step % 2))
                    model(torch.ones(4, 8)).square().sum().backward()
                    optimizer.step()
                results.append((optimizer.state_dict(), [
                    p.detach().clone() for p in model.parameters()]))
                torch.manual_seed(0)
                again = torch.nn.Sequential(
                    torch.nn.Linear(8, 8), torch.nn.LazyLinear(8),
                    torch.nn.LazyLinear(1))
                other = one(again.parameters(), lr=0.1)
                other.load_state_dict(results[0][0])
                again(torch.ones(4, 8)).sum().backward()
                other.step()
                results[-1][1].extend(p.detach() for p in again.parameters())
            for a, b in zip(results[0][1], results[1][1]):
                torch.testing.assert_close(a, b)


if __name__ == "__main__":
    main()
