"""swamp::grad_norm_and_check, swamp::mixed_precision_adamw_ and
swamp::foreach_lerp_ give the bits of PyTorch 2.13's own operators, called one after another."""

import itertools
import math

from support import DTYPES, TestCase, main, on_threads, python

import torch

import swamp_torch  # noqa: F401 has the operators

norm_and_check = torch.ops.swamp.grad_norm_and_check
adamw = torch.ops.swamp.mixed_precision_adamw_
lerp = torch.ops.swamp.foreach_lerp_

# Multiples of 64: PyTorch's vector body, whose bits are promised.
SHAPES = [(64,), (128, 96), (3, 64), (0,), (32768,)]
HYPER = dict(lr=1e-2, beta1=0.9, beta2=0.999, weight_decay=0.1, eps=1e-8)


class Model:
    """Masters, moments, 16-bit weights and gradients of some parameters."""

    def __init__(self, seed, gradient_dtype, model_dtype, scale=1024.0):
        torch.manual_seed(seed)
        self.params = [torch.randn(s) for s in SHAPES]
        self.exp_avgs = [torch.randn(s) * 0.1 for s in SHAPES]
        self.exp_avg_sqs = [torch.rand(s) * 0.01 for s in SHAPES]
        self.grads = [(torch.randn(s) * scale).to(gradient_dtype)
                      for s in SHAPES]
        self.model = [] if model_dtype is None else [
            torch.zeros(s, dtype=model_dtype) for s in SHAPES]
        self.step = torch.tensor(3.0)

    def lists(self):
        return (self.params, self.grads, self.exp_avgs, self.exp_avg_sqs,
                self.model)

    def all(self):
        return [t for some in self.lists() for t in some] + [self.step]


def expected_step(m, inv_scale, max_norm, norm):
    """The step by PyTorch's own operators."""
    grads = [g.float() * inv_scale for g in m.grads]
    if max_norm > 0:
        coefficient = max_norm / (norm + 1e-6)
        if coefficient < 1:
            grads = [g * coefficient for g in grads]
    m.step += 1
    steps = [m.step.clone() for _ in m.params]
    torch._fused_adamw_(
        m.params, grads, m.exp_avgs, m.exp_avg_sqs, [], steps,
        lr=HYPER["lr"], beta1=HYPER["beta1"], beta2=HYPER["beta2"],
        weight_decay=HYPER["weight_decay"], eps=HYPER["eps"], amsgrad=False,
        maximize=False)
    for weight, master in zip(m.model, m.params):
        weight.copy_(master)


class Adamw(TestCase):
    def test_bits(self):
        for gradient, model, max_norm, given in itertools.product(
                (torch.float32, torch.float16, torch.bfloat16),
                (None, torch.float16, torch.bfloat16), (0.0, 0.5, 1e9), (True, False)):
            with self.subTest(gradient=gradient, model=model, max_norm=max_norm,
                              given=given):
                ours, theirs = (Model(7, gradient, model) for _ in range(2))
                inv_scale = torch.tensor(1 / 1024)
                found = torch.zeros(())
                norm = norm_and_check(ours.grads, found, inv_scale)
                self.assertEqual(found.item(), 0)
                before = [g.clone() for g in ours.grads]
                adamw(*ours.lists(), ours.step, found, inv_scale,
                      norm if given else None, max_norm=max_norm, **HYPER)
                expected_step(theirs, 1 / 1024, max_norm, norm.item())
                self.assert_same(ours.all(), theirs.all())
                self.assert_same(ours.grads, before)

    def test_overflow_touches_nothing(self):
        for found in (1.0, 2.0, -1.0, math.nan):
            m, untouched = (Model(9, torch.float16, torch.float16)
                            for _ in range(2))
            adamw(*m.lists(), m.step, torch.tensor(found), torch.tensor(1.0),
                  max_norm=1.0, **HYPER)
            self.assert_same(m.all(), untouched.all())

    def test_overlapping_lists(self):
        """Tensors that share memory are stepped in the order of the list, as by
        PyTorch's operator."""
        views = {"twice": lambda t: [t[:12800]] * 20 + [t[12800:]],
                 "partly": lambda t: [t[64 * i:64 * i + 12800]
                                      for i in range(20)],
                 "interleaved": lambda t: [t.view(-1, 2)[:, i % 2]
                                           for i in range(20)]}
        for name, view in views.items():
            torch.manual_seed(14)
            bases = [torch.randn(25600), torch.randn(25600), torch.rand(25600)]
            ours, theirs = ([view(b.clone()) for b in bases] for _ in range(2))
            grads = [torch.randn(p.shape) for p in ours[0]]
            adamw(ours[0], grads, *ours[1:], [], torch.zeros(()),
                  torch.zeros(()), torch.ones(()), **HYPER)
            for p, g, m, v in zip(theirs[0], grads, *theirs[1:]):
                dense = [t.clone() for t in (p, m, v)]
                torch._fused_adamw_(
                    *([t] for t in (dense[0], g, *dense[1:])), [],
                    [torch.ones(())], amsgrad=False, maximize=False, **HYPER)
                for t, d in zip((p, m, v), dense):
                    t.copy_(d)
            self.assert_same(itertools.chain(*ours), itertools.chain(*theirs), name)

    def test_overlap_within_a_parameter(self):
        flat = torch.rand(2, 64)
        columns = torch.rand(64, 4)
        model = torch.zeros(128, dtype=torch.float16)
        good = dict(step=torch.zeros(()), found_inf=torch.zeros(()),
                    inv_scale=torch.ones(()), **HYPER)

        def lists(*tensors, model=()):
            names = ("master_params", "grads", "exp_avgs", "exp_avg_sqs")
            return dict(zip(names, [[t] for t in tensors]),
                        model_params=list(model))

        def own():
            return torch.rand(64)

        for bad, words in (
                (lists(flat[0], own(), flat[0], own()),
                 r"exp_avgs\[0\]: got memory of master_params\[0\], expected"),
                (lists(own(), flat[1], own(), flat.view(-1)[32:96]),
                 r"exp_avg_sqs\[0\]: got memory of grads\[0\], expected"),
                (lists(model.view(torch.float32), own(), own(), own(),
                       model=[model[:64]]),
                 r"model_params\[0\]: got memory of master_params\[0\], exp")):
            before = {name: [t.clone() for t in some]
                      for name, some in bad.items()}
            with self.assertRaisesRegex(RuntimeError, words):
                adamw(**bad, **good)
            for name, some in bad.items():
                self.assert_same(some, before[name], words)
        # The second tensor lies between the elements of the first.
        dense = [c.clone() for c in columns.unbind(1)]
        adamw(**lists(*dense), **good)
        adamw(**lists(*columns.unbind(1)), **{**good, "step": torch.zeros(())})
        self.assert_same(columns.unbind(1), dense)

    def test_lazily_copied(self):
        """Addresses are read after all lazy copies have been made."""
        def run(clone):
            base = torch.linspace(1, 2, 192)
            one, other = clone(base), clone(base)
            del base
            p = torch.zeros(64)
            adamw([p], [one[:64]], [one[64:128]], [other[8:72]], [],
                  torch.zeros(()), torch.zeros(()), torch.ones(()), **HYPER)
            return p, one, other

        self.assert_same(run(torch._lazy_clone), run(torch.clone))

    def test_an_error_keeps_no_copies(self):
        code = ("import torch, swamp_torch\n"
                "wide = [torch.ones(64, 2) for _ in range(4)]\n"
                "p, g, m, v = [w[:, 0] for w in wide]\n"
                "before = p._use_count()\n"
                "try:\n"
                "  torch.ops.swamp.mixed_precision_adamw_([p], [g], [m], [v], [],"
                " torch.zeros(()), torch.zeros(()), torch.ones(()), lr=1., "
                "beta1=.9, beta2=.9, weight_decay=0., eps=1.)\n"
                "except RuntimeError as error:\n"
                "  print('SWAMP_ISA' in str(error), p._use_count() - before)\n")
        done = python(code, SWAMP_ISA="quick")
        self.assertEqual(done.stdout, "True 0\n", done.stderr)

    def refused(self, text, change):
        m = Model(10, torch.float16, torch.float16)
        args = dict(master_params=m.params, grads=m.grads, exp_avgs=m.exp_avgs,
                    exp_avg_sqs=m.exp_avg_sqs, model_params=m.model,
                    step=m.step, found_inf=torch.zeros(()),
                    inv_scale=torch.ones(()), **HYPER)
        change(args)
        before = [t.clone() for t in m.all()]
        with self.assertRaisesRegex(RuntimeError, text):
            adamw(**args)
        self.assert_same(m.all(), before)

    def test_refused(self):
        def drop(name):
            return lambda a: a.update({name: a[name][:-1]})

        for name in ("grads", "exp_avgs", "exp_avg_sqs", "model_params"):
            self.refused(f"{name}: got 4 tensors, expected 5, as master_params",
                         drop(name))
        for bad in (-1.0, math.nan, -math.inf):
            self.refused(f"max_norm: got {bad:g}, expected a number, at least 0",
                         lambda a: a.update(max_norm=bad))

        def last(name, tensor):
            return lambda a: a.update({name: a[name][:-1] + [tensor]})

        self.refused(r"grads\[4\]: got the shape \[3\], expected \[32768\]",
                     last("grads", torch.zeros(3).half()))
        self.refused(r"grads\[4\]: got the dtype Double, expected Half or "
                     "BFloat16 or Float", last("grads",
                                               torch.zeros(32768).double()))
        self.refused(r"model_params\[4\]: got the dtype Float, expected Half or "
                     "BFloat16", last("model_params", torch.zeros(32768)))
        self.refused("unsupported operation: more than one element",
                     last("exp_avgs", torch.zeros(1).expand(32768)))
        self.refused("found_inf must be a 1-element tensor",
                     lambda a: a.update(found_inf=torch.zeros(2)))
        self.refused("inv_scale must be a float tensor",
                     lambda a: a.update(inv_scale=torch.ones(()).double()))
        self.refused("step must be a float tensor",
                     lambda a: a.update(step=torch.tensor(3)))
        for step in (0.5, -1.0, math.nan, math.inf, 2.0 ** 53, 1e30):
            self.refused(f"step: got {step:.6g}, expected a whole number from 0 to "
                         r"2\^53 - 1".replace("+", r"\+"),
                         lambda a: a.update(step=torch.tensor(step)))
        self.refused("grad_norm must be a 1-element tensor",
                     lambda a: a.update(grad_norm=torch.zeros(2)))

    def test_leaves(self):
        m = Model(11, torch.float32, None)
        one = (torch.zeros(()), torch.ones(()))
        m.params[0].requires_grad_()
        with self.assertRaisesRegex(RuntimeError, "a leaf Variable"):
            adamw(*m.lists(), m.step, *one, **HYPER)
        with torch.no_grad():
            adamw(*m.lists(), m.step, *one, **HYPER)


class Norm(TestCase):
    def test_against_double(self):
        torch.manual_seed(2)
        grads = [torch.randn(1000).to(d) for d in DTYPES]
        found = torch.zeros(())
        norm = norm_and_check(grads, found, torch.tensor(0.25))
        self.assertEqual((norm.dtype, norm.shape, found.item()),
                         (torch.float64, (), 0.0))
        expected = math.sqrt(sum(
            float(((g.double() if g.dtype == torch.float64 else g.float())
                   * 0.25).double().square().sum()) for g in grads))
        self.assertTrue(math.isclose(norm.item(), expected, rel_tol=1e-12))

    def test_threads_do_not_matter(self):
        torch.manual_seed(3)
        grads = [torch.randn(n) for n in (100, 300000, 8192, 70000, 5)]
        norms = on_threads(lambda: norm_and_check(
            grads, torch.zeros(()), torch.tensor(0.3)).item(), (1, 2, 3))
        self.assertEqual(len(set(norms)), 1)

    def test_finds(self):
        for bad in (math.inf, -math.inf, math.nan):
            for dtype in DTYPES:
                grads = [torch.ones(300, dtype=dtype), torch.ones(20, 20)]
                grads[0][299] = bad
                found = torch.zeros(1)
                norm = norm_and_check(grads, found, torch.ones(1))
                self.assertEqual(found.item(), 1)
                self.assertFalse(math.isfinite(norm.item()))
                grads[0][299] = 0
                norm_and_check(grads, found, torch.ones(1))
                self.assertEqual(found.item(), 1)  # never cleared

    def test_empty(self):
        found = torch.zeros(())
        self.assertEqual(norm_and_check([], found, torch.ones(())).item(), 0)
        self.assertEqual(
            norm_and_check([torch.zeros(0)], found, torch.ones(())).item(), 0)

    def test_refused(self):
        with self.assertRaisesRegex(RuntimeError, r"grads\[0\]: got the dtype Int"):
            norm_and_check([torch.ones(3, dtype=torch.int32)], torch.zeros(()),
                           torch.ones(()))
        with self.assertRaisesRegex(RuntimeError, "found_inf must be a 1-element"):
            norm_and_check([torch.ones(3)], torch.zeros(2), torch.ones(()))


class Lerp(TestCase):
    def test_bits(self):
        torch.manual_seed(14)
        shapes = [*SHAPES, (), (7,), (3, 5)]
        for dtype, wide, weight in itertools.product(
                DTYPES[:3], (False, True), (0.001, 1 - 0.999, 0.5, 0.7, 1.0)):
            out = [torch.randn(s).to(torch.float32 if wide else dtype)
                   for s in shapes]
            new = [torch.randn(s).to(dtype) for s in shapes]
            expected = [t.clone() for t in out]
            torch._foreach_lerp_(expected, [t.to(out[0].dtype) for t in new],
                                 weight)
            before = out[1]._version
            lerp(out, new, weight)
            with self.subTest(dtype=dtype, wide=wide, weight=weight):
                self.assert_same(out, expected)
                self.assertEqual(out[1]._version, before + 1)

    def test_overlapping(self):
        """Tensors that share memory are computed in the order of the list."""
        base, shared = torch.randn(4, 6), torch.randn(10)
        out = [shared[:6], shared[4:]]
        copy = shared.clone()
        torch._foreach_lerp_([copy[:6], copy[4:]], [base[0], base[1]], 0.3)
        lerp(out, [base[0], base[1]], 0.3)
        self.assert_same([shared], [copy])

    def test_errors(self):
        x = torch.ones(3)
        for out, new, text in (
                ([x, x.half()], [x, x], r"input\[0\]: got the dtype Float, "
                 "expected Half"),
                ([x], [x, x], "input: got 2 tensors, expected 1, as out"),
                ([x], [torch.ones(4)], r"input\[0\]: got the shape \[4\]"),
                ([x], [x], r"input\[0\]: got memory of out\[0\]"),
                ([x.double()], [x], r"out\[0\]: got the dtype Double"),
                ([torch.ones(1).expand(3)], [x], "single memory location")):
            with self.subTest(text), self.assertRaisesRegex(RuntimeError, text):
                lerp(out, new, 0.5)
        self.assert_same([x], [torch.ones(3)])


if __name__ == "__main__":
    main()
