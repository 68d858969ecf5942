"""swamp_torch.AdamW with less memory: without masters, bfloat16, 8-bit and float8
moments."""

import copy
import importlib.util
import io
import itertools
import math
import pickle
import unittest
import unittest.mock

import optimizers
from optimizers import CASES, tensors
from support import TestCase, a_fifth, main, on_threads

import torch

import swamp_torch
from swamp_torch import Adam, AdamW, clip_grad_norm_

# Odd counts, several blocks, and tensors on both sides of the 4096 elements from
# which moments are 8-bit.
SHAPES = [(64,), (67, 65), (17, 300), (5000,), (4095,)]
HALVES = (torch.bfloat16, torch.float16)
# Options, and the bytes of a parameter of 2 bytes with its gradient.
STOCHASTIC = {"master_weights": False}
KAHAN = {"master_weights": False, "rounding": "kahan"}
OPTIONS = [({**weights, **moments}, bytes - less)
           for weights, bytes in (({}, 16), (STOCHASTIC, 12), (KAHAN, 14))
           for moments, less in (({}, 0), ({"moments": "bfloat16"}, 4),
                                 ({"moments": "8bit"}, 6),
                                 ({"moments": "float8"}, 6))]
CODES = (torch.uint8, torch.float8_e4m3fn)
MOMENTS = ("exp_avg", "exp_avg_sq")


def params(dtypes=HALVES, shapes=SHAPES):
    return optimizers.params(shapes, dtypes)


def run(*arguments, **options):
    return tensors(optimizers.run(*arguments, **options))


def make(some=None, kind=AdamW, **options):
    some = some or params()
    return kind([{"params": some[:2]}, {"params": some[2:], "lr": 5e-3}],
                **{"lr": 1e-2, "weight_decay": 0.1, **options})


def dynamic_map(signed):
    """bitsandbytes.functional.create_dynamic_map, for 8 bits."""
    data = []
    for i in range(7):
        items = 2 ** i + 1 if signed else 2 ** (i + 1) + 1
        bounds = torch.linspace(0.1, 1, items, dtype=torch.float64)
        means = 10.0 ** (i - 6) * (bounds[:-1] + bounds[1:]) / 2
        data += means.tolist() + ((-means).tolist() if signed else [])
    return torch.tensor(sorted(data + [0.0, 1.0]), dtype=torch.float64)


def dequantized(codes, absmax, signed):
    """What the codes mean, literally."""
    if codes.dtype is torch.uint8:
        values = dynamic_map(signed)[codes.long().flatten()]
    else:  # the rest of torchao's dequantize()
        values, absmax = codes.flatten().float(), absmax.clip(1e-12) / 448
    factors = absmax.to(values.dtype).repeat_interleave(256)[:values.numel()]
    return (values * factors).view(codes.shape)


class Memory(TestCase):
    def test_bytes(self):
        """Bytes of a parameter with its gradient and its state."""
        for options, expected in OPTIONS:
            with self.subTest(options):
                p = torch.nn.Parameter(torch.randn(1 << 16).bfloat16())
                p.grad = torch.ones_like(p)
                optimizer = AdamW([p], **options)
                optimizer.step()
                total = 2 * p.numel() * p.element_size() + sum(
                    t.numel() * t.element_size()
                    for name, t in optimizer.state[p].items() if name != "step")
                # Two floats for each block of 256.
                self.assertLess(abs(total / p.numel() - expected), 0.04)

    def test_close_to_masters(self):
        """A few steps: as with float32 masters, but for the rounding."""
        for options, _ in OPTIONS[1:]:
            for name in ({}, {"maximize": True, "max_norm": 0.5}):
                with self.subTest({**options, **name}):
                    starts, exact = params(), make(**name)
                    run(exact)
                    optimizer = make(**name, **options)
                    run(optimizer)
                    for a, b in zip(params(), optimizer.state):
                        self.assertFalse(torch.equal(a, b))
                    # Each step rounds the weight by less than the distance of its
                    # neighbours, and the moments change the update, about lr, by
                    # less than a tenth. Weights that did not move are outside.
                    for g, h in zip(optimizer.param_groups, exact.param_groups):
                        for a, b in zip(g["params"], h["params"]):
                            eps = torch.finfo(a.dtype).eps
                            start = starts.pop(0).detach().double()
                            a, b = a.detach().double(), b.detach().double()
                            bound = 3.5 * eps * b.abs() + 0.3 * g["lr"]
                            self.assertLess(
                                float(((a - b).abs() / bound).max()), 1)
                            moved = (start - b).abs() > bound
                            self.assertGreater(float(moved.double().mean()), 0.1)

    def test_same_bits_on_any_number_of_threads(self):
        for options, _ in OPTIONS:
            self.assert_same(*on_threads(lambda: run(make(seed=7, **options)), (1, 4)))

    def test_seed(self):
        """Another seed gives other bits, and so does the place of a parameter."""
        options = {**STOCHASTIC, "moments": "bfloat16"}
        first = run(make(seed=1, **options))
        self.assert_same(first, run(make(seed=1, **options)))
        self.assertFalse(all(map(torch.equal, first,
                                 run(make(seed=2, **options)))))
        a, b = (torch.nn.Parameter(torch.ones(1000).bfloat16())
                for _ in range(2))
        a.grad, b.grad = (torch.full_like(p, 0.1) for p in (a, b))
        AdamW([a, b], lr=1e-3, **STOCHASTIC).step()
        self.assertFalse(torch.equal(a, b))

    def test_scaler_and_layouts(self):
        """GradScaler's scale and other layouts change no bit."""
        for options, _ in OPTIONS:
            with self.subTest(options):
                plain, scaled = params(), params()
                first = AdamW(plain, **options)
                second = AdamW(scaled, **options)
                scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
                for p, q in zip(plain, scaled):
                    p.grad = torch.full_like(p, 0.25)
                    q.grad = torch.full_like(q, 1.0)
                first.step()
                scaler.scale(torch.ones(()))  # makes the scale
                scaler.step(second)
                self.assert_same(tensors(first), tensors(second))
        for options, _ in OPTIONS:
            with self.subTest(options):
                base = torch.randn(70, 80).bfloat16()
                results = []
                turned = lambda t: t.t().contiguous().t()
                if options in (STOCHASTIC, {**STOCHASTIC, "moments": "bfloat16"}):
                    turned = torch.clone  # the random bits follow the memory
                for layout in (torch.clone, turned,
                               lambda t: t.new_zeros(70, 90)[:, 5:85].copy_(t)):
                    p = torch.nn.Parameter(layout(base))
                    p.grad = base.clone()
                    optimizer = AdamW([p], lr=1e-2, **options)
                    optimizer.step()
                    results.append(p.detach().clone())
                    m = optimizer.state[p]["exp_avg"]
                    self.assertEqual(m.stride() == (1, 70), p.t().is_contiguous()
                                     and m.dtype not in CODES)
                self.assert_same(results[1:], results[:1] * 2)

    def test_resumed_run_has_the_same_bits(self):
        """Of each rule and each storage, saved and loaded, copied and pickled in the
        middle."""
        def loaded(optimizer, state_dict, **options):
            some = [torch.nn.Parameter(p.detach().clone())
                    for g in optimizer.param_groups for p in g["params"]]
            result = make(some, **options)
            result.load_state_dict(state_dict)
            return result

        def saved(optimizer, **options):
            file = io.BytesIO()
            torch.save(optimizer.state_dict(), file)
            file.seek(0)
            return loaded(optimizer, torch.load(file, weights_only=True),
                          **options)

        ways = {"state_dict": lambda o, **options: loaded(o, o.state_dict(),
                                                          **options),
                "torch.save": saved,
                "deepcopy": lambda o, **_: copy.deepcopy(o),
                "pickle": lambda o, **_: pickle.loads(pickle.dumps(o))}
        rows = [{**options, "seed": 3} for options, _ in OPTIONS] + [
            {**options, "kind": getattr(swamp_torch, kind)} for kind, options in CASES]
        for options, name in itertools.product(rows, ways):
            if name == "pickle" and options.get("moments") == "float8":
                continue  # PyTorch 2.13 cannot unpickle a float8 tensor
            with self.subTest(name, **options):
                straight, stopped = (
                    make(params((torch.float32, *HALVES)), max_norm=0.7, **options)
                    for _ in range(2))
                straight = run(straight, 0, 6)
                run(stopped)
                before = tensors(stopped)
                # The seed is that of the state dict.
                resumed = ways[name](stopped, **{k: v for k, v in options.items()
                                                 if k != "seed"})
                self.assertEqual(resumed.param_groups[0]["max_norm"], 0.7)
                self.assertTrue(resumed._step_supports_amp_scaling)
                resumed = run(resumed, 3)
                self.assert_same(tensors(stopped), before)
                self.assert_same(resumed, straight)

    def test_converts_other_states(self):
        """State dicts of any storage, and of torch.optim, can be loaded into any
        other: the state becomes that of the optimizer."""
        sources = []
        for options, _ in OPTIONS:
            source = make(**options)
            run(source)
            sources.append((source, source.state_dict()))
        stock = torch.optim.AdamW([{"params": params()[:2]},
                                   {"params": params()[2:]}])
        run(stock)
        sources.append((stock, stock.state_dict()))
        exact = sources[0][0]
        for (source, state), (options, _) in a_fifth([
                *itertools.product(sources, OPTIONS)]):
            with self.subTest(options):
                some = [torch.nn.Parameter(p.detach().clone())
                        for g in source.param_groups for p in g["params"]]
                target = make(some, **options)
                target.load_state_dict(state)
                like = make(params(), **options)
                run(like)
                for p, q, r in zip(some, like.state, exact.state):
                    got, want = target.state[p], like.state[q]
                    self.assertEqual({n: t.dtype for n, t in got.items()
                                      if n != "master_param"},
                                     {n: t.dtype for n, t in want.items()
                                      if n != "master_param"})
                    self.assertEqual(got["step"], 3)
                    if source is stock:
                        continue
                    m = got["exp_avg"]
                    if m.dtype in CODES:
                        m = dequantized(m, got["absmax"][:, 0], True)
                    true = exact.state[r]["exp_avg"].double()
                    error = (m.double() - true).abs().max() / true.abs().max()
                    # Twice rounded to e4m3, of which half a place is 1/28.
                    self.assertLess(float(error), 0.08)
                before = [p.detach().double() for p in some]
                run(target)
                if source is stock:
                    continue  # which has made nan of float16
                # Three steps of about lr, and three distances of neighbours.
                for p, old in zip(some, before):
                    moved = (p.detach().double() - old).abs()
                    bound = 0.05 + 3 * 2.0 ** -7 * old.abs()
                    self.assertTrue(bool((moved <= bound).all()))
                    self.assertGreater(float(moved.mean()), 0)

    def test_masters_and_compensations(self):
        """A compensation is what the parameter lacks of the master."""
        exact = make()
        run(exact)
        kahan = make([torch.nn.Parameter(p.detach().clone())
                      for g in exact.param_groups for p in g["params"]], **KAHAN)
        kahan.load_state_dict(exact.state_dict())
        for p, q in zip(exact.state, kahan.state):
            master = exact.state[p]["master_param"]
            both = q.float() + kahan.state[q]["compensation"].float()
            self.assertLess(float((both - master).detach().abs().max()),
                            2.0 ** -14 * float(master.abs().max()))
        back = make([torch.nn.Parameter(q.detach().clone()) for q in kahan.state])
        back.load_state_dict(kahan.state_dict())
        for q, r in zip(kahan.state, back.state):
            both = q.float() + kahan.state[q]["compensation"].float()
            master = back.state[r]["master_param"]
            self.assertLess(float(((both - master) / both).detach().abs().max()),
                            2.0 ** -15)
            # The parameter is the rounded master: nothing else wrote it.
            self.assert_same([master.to(q.dtype)], [q.detach()])

    def test_parameters_written_by_others(self):
        """A written parameter loses its compensation, another keeps it."""
        p = torch.nn.Parameter(torch.ones(100).bfloat16())
        q = torch.nn.Parameter(torch.ones(100).bfloat16())
        for x in (p, q):
            x.grad = torch.full_like(x, 0.1)
        optimizer = AdamW([p, q], lr=1e-3, weight_decay=0.0, **KAHAN)
        optimizer.step()
        kept = optimizer.state[q]["compensation"].clone()
        self.assertTrue(bool((kept != 0).all()))
        with torch.no_grad():
            p.copy_(torch.full((100,), 1e-3))
            q.copy_(q.clone())
        optimizer.param_groups[0]["lr"] = 0.0
        optimizer.step()
        self.assertEqual(float(optimizer.state[p]["compensation"].abs().max()), 0)
        self.assert_same([optimizer.state[q]["compensation"]], [kept])

    def test_float32_parameters(self):
        """Moments of less memory of float32 parameters; small tensors and the other
        options are as ever."""
        for moments in ("float32", "bfloat16", "8bit", "float8"):
            for kind in (AdamW, Adam):
                some = params((torch.float32,))
                exact = params((torch.float32,))
                first = kind(some, lr=1e-2, weight_decay=0.1, moments=moments,
                             **STOCHASTIC)
                second = kind(exact, lr=1e-2, weight_decay=0.1)
                run(first)
                run(second)
                for p, q in zip(some, exact):
                    same = moments == "float32" or (moments != "bfloat16"
                                                    and p.numel() < 4096)
                    self.assertEqual(torch.equal(p, q), same)
                    error = (p - q).detach().abs()
                    self.assertLess(float(error.mean()), 2e-3)
                    self.assertLess(float(error.max()), 3e-2)

    def test_wide_gradients(self):
        """Gradients of 3.5 to 18 decades in a block, and then small ones: no update
        is far above lr, also from the state of float32 moments."""
        for decades, converted in itertools.product((3.5, 8, 18), (False, True)):
            with self.subTest(decades=decades, converted=converted):
                torch.manual_seed(5)
                p = torch.nn.Parameter(torch.zeros(8192))
                optimizer = AdamW([p], lr=1e-3, weight_decay=0.0, moments=(
                    "float32" if converted else "8bit"))
                grad = 10.0 ** (-decades * torch.rand(8192))
                for _ in range(3):
                    before = p.detach().clone()
                    p.grad = grad
                    optimizer.step()
                    self.assertLess(float((p.detach() - before).abs().max()), 3e-3)
                    grad = grad * 1e-2
                    optimizer.param_groups[0]["moments"] = "8bit"
                self.assertGreater(int(optimizer.state[p]["exp_avg_sq"].min()), 0)

    def test_order_of_memory(self):
        """Blocks of 8-bit moments do not depend on the strides, which may change, in
        a model or by a state dict."""
        def contiguous(tensor):
            return tensor.contiguous()

        def last(tensor):
            return tensor.contiguous(memory_format=torch.channels_last)

        def stepped(optimizer, p, first):
            for step in range(first, first + 3):
                torch.manual_seed(step)
                # Blocks of very different sizes.
                size = 10.0 ** -(torch.arange(4608) // 256 % 4)
                p.grad = (torch.randn(4608) * size).view(p.shape).to(p.dtype)
                optimizer.step()

        eight = [o for o, _ in OPTIONS if o.get("moments") in ("8bit", "float8")]
        for options, dtype, (before, after), loaded in a_fifth([*itertools.product(
                eight, (torch.float32, torch.bfloat16),
                itertools.product((contiguous, last), repeat=2), (False, True))]):
            with self.subTest(dtype=dtype, before=before, after=after,
                              loaded=loaded, **options):
                results = []
                for one, other in ((contiguous, contiguous), (before, after)):
                    torch.manual_seed(4)
                    p = torch.nn.Parameter(one(torch.randn(16, 32, 3, 3).to(dtype)))
                    optimizer = AdamW([p], lr=1e-2, seed=2, **options)
                    stepped(optimizer, p, 0)
                    if loaded:
                        p = torch.nn.Parameter(other(p.detach()))
                        state = optimizer.state_dict()
                        optimizer = AdamW([p], lr=1e-2, seed=2, **options)
                        optimizer.load_state_dict(state)
                    else:
                        p.data = other(p.data)
                    stepped(optimizer, p, 3)
                    results.append(tensors(optimizer))
                self.assert_same(*results)

    def test_defaults_of_pytorch(self):
        """The default dtype and device, which are for the user's tensors, change
        nothing."""
        for (options, _), first in itertools.product(OPTIONS, ({}, None)):
            with self.subTest(options, first=first):
                results = []
                for dtype, device in ((torch.float32, "cpu"),
                                      (torch.float64, "meta")):
                    optimizer = make(max_norm=0.5, **(options if first is None
                                                      else first))
                    run(optimizer, 0, 1)
                    for group in optimizer.param_groups:
                        group.update(options)
                    try:
                        torch.set_default_dtype(dtype)
                        with torch.device(device):
                            optimizer.step()
                            clip_grad_norm_(optimizers.all_params(optimizer), 0.1)
                            optimizer.load_state_dict(optimizer.state_dict())
                            optimizer.step()
                    finally:
                        torch.set_default_dtype(torch.float32)
                    results.append(run(optimizer, 1, 1))
                self.assert_same(*results)

    def test_refuses(self):
        cases = [
            ({"rounding": "nearest"}, "rounding: got 'nearest', expected one of "
             "'stochastic', 'kahan'"),
            ({"rounding": "kahan"}, "rounding: got 'kahan' with master_weights=True, "
             "expected master_weights=False: masters are not rounded"),
            ({"moments": "float16"}, "moments: got 'float16', expected one of "
             "'float32', 'bfloat16', '8bit', 'float8'"),
            ({"master_weights": 2}, "master_weights: got 2, expected one of True, "
             "False"),
            ({"seed": -1}, "seed: got -1, expected a whole number from 0 to "
             "2^63 - 1"),
            ({"amsgrad": True, "moments": "8bit"}, "amsgrad: got True, expected "
             "False with master_weights=False or moments other than 'float32'"),
            ({"amsgrad": True, "master_weights": False}, "amsgrad: got True, "
             "expected False with master_weights=False or moments other than "
             "'float32'")]
        for options, text in cases:
            with self.subTest(options), self.assertRaises(ValueError) as caught:
                make(**options)
            self.assertEqual(str(caught.exception), text)
        # A group is checked with the defaults of the others.
        AdamW([dict(params=params(), rounding="kahan")], master_weights=False)
        # A state dict that cannot be loaded changes nothing.
        optimizer = make(moments="8bit", **STOCHASTIC)
        run(optimizer)
        before = tensors(optimizer)
        amsgrad = make(amsgrad=True)
        run(amsgrad)
        broken = optimizer.state_dict()
        broken = {**broken, "state": {i: {k: v for k, v in s.items()
                                          if k != "absmax"}
                                      for i, s in broken["state"].items()}}
        for state, text in ((amsgrad.state_dict(), "amsgrad: got True"),
                            (broken, r"state\[1\]\['absmax'\]: got None")):
            with self.assertRaisesRegex(ValueError, text):
                optimizer.load_state_dict(state)
            self.assert_same(tensors(optimizer), before)
            self.assertEqual(optimizer.param_groups[0]["moments"], "8bit")
        for (options, _), name, value in a_fifth([*itertools.product(
                OPTIONS, ("exp_avg", "exp_avg_sq", "master_param"),
                (torch.zeros(1), torch.zeros(65, 67), 3.0))]):
            with self.subTest(options, name=name, value=value):
                optimizer = make(**options)
                run(optimizer)
                before = tensors(optimizer)
                broken = make()
                run(broken)
                broken = broken.state_dict()
                broken["state"][1][name] = value
                got = (f"the shape {tuple(value.shape)}"
                       if isinstance(value, torch.Tensor) else "3.0")
                with self.assertRaises(ValueError) as caught:
                    optimizer.load_state_dict(broken)
                self.assertEqual(
                    str(caught.exception), f"state[1]['{name}']: got {got}, "
                    "expected the shape (67, 65), that of the parameter")
                self.assert_same(tensors(optimizer), before)
                run(optimizer)

    def test_refuses_gradients(self):
        """Those of another dtype, before any state is converted."""
        for options, _ in OPTIONS[1:]:
            with self.subTest(options):
                optimizer = make()
                run(optimizer)
                p = optimizer.param_groups[1]["params"][1]  # 5000 elements
                p.grad_dtype = None
                p.grad = torch.ones(p.shape)
                for group in optimizer.param_groups:
                    group.update(options)
                before = tensors(optimizer)
                text = (r"param_groups\[1\]\['params'\]\[1\]\.grad: got "
                        rf"torch.float32, expected {p.dtype}, the dtype of")
                for _ in range(2):
                    with self.assertRaisesRegex(RuntimeError, text):
                        optimizer.step()
                    self.assert_same(tensors(optimizer), before)
                # And after the state was collected.
                p.grad = torch.ones_like(p)
                optimizer.step()
                p.grad = torch.ones(p.shape)
                with self.assertRaisesRegex(
                        RuntimeError, r"grads\[\d+\]: got the dtype Float, "
                        "expected (Half|BFloat16), as (model_)?params"):
                    optimizer.step()

    def test_changed_group(self):
        """A group may change how it stores its state between steps."""
        optimizer = make()
        run(optimizer)
        for group in optimizer.param_groups:
            group.update(STOCHASTIC, moments="bfloat16")
        run(optimizer, 3)
        for state in optimizer.state.values():
            self.assertIs(state["exp_avg"].dtype, torch.bfloat16)
            self.assertNotIn("master_param", state)
            self.assertEqual(float(state["step"]), 6)
        default = {"master_weights": True, "rounding": "stochastic",
                   "moments": "float32"}
        for (old, _), (new, _) in a_fifth([*itertools.product(OPTIONS, OPTIONS)]):
            for amsgrad in (False,) if new else (False, True):
                with self.subTest(old=old, new=new, amsgrad=amsgrad):
                    changed = make(**old)
                    run(changed)
                    like = make(amsgrad=amsgrad, **new)
                    run(like)
                    sums = [p.detach().float() + s["compensation"].float()
                            for p, s in changed.state.items()
                            if "compensation" in s]
                    for group in changed.param_groups:
                        group.update({**default, **new}, amsgrad=amsgrad)
                    lrs = [g["lr"] for g in changed.param_groups]
                    for group in changed.param_groups:
                        group["lr"] = 0.0  # does not change weights
                    run(changed, 3, 1)
                    for p, total in zip(changed.state, sums):
                        master = changed.state[p].get("master_param")
                        if master is not None:
                            self.assertLess(float(
                                ((master - total) / total).abs().max()), 2.0 ** -15)
                    for group, lr in zip(changed.param_groups, lrs):
                        group["lr"] = lr
                    run(changed, 4, 1)
                    for got, want in zip(changed.state.values(),
                                         like.state.values()):
                        self.assertEqual({n: t.dtype for n, t in got.items()},
                                         {n: t.dtype for n, t in want.items()})
        optimizer.param_groups[0]["moments"] = "4bit"
        with self.assertRaisesRegex(ValueError, "moments: got '4bit'"):
            run(optimizer, 6, 1)

    def test_small_updates_are_not_lost(self):
        """Updates far below the distance of neighbours: nearest rounding keeps the
        weights, and v where beta2 does not change it."""
        def stepped(kind, **options):
            p = torch.nn.Parameter(torch.ones(4096).bfloat16())
            optimizer = kind([p], lr=1e-4, weight_decay=0.0, eps=1e-30, **options)
            p.grad = torch.full_like(p, 1.0)
            for _ in range(300):
                optimizer.step()
            moved = 1 - float(p.detach().double().mean())
            p.grad.zero_()
            v = optimizer.state[p]["exp_avg_sq"]
            if v.dtype in CODES:
                return moved, None
            before = float(v.double().mean())
            for _ in range(500):
                optimizer.step()
            after = float(optimizer.state[p]["exp_avg_sq"].double().mean())
            return moved, after / before

        moved, decayed = stepped(torch.optim.AdamW)
        self.assertEqual(moved, 0)
        self.assertEqual(decayed, 1)
        for options, _ in OPTIONS:
            with self.subTest(options):
                moved, decayed = stepped(AdamW, **options)
                # Half a distance of neighbours, for the last rounding.
                self.assertLess(abs(moved - 0.03), 2.0 ** -9)
                if decayed is not None:
                    self.assertLess(abs(decayed - 0.999 ** 500), 0.01)

    def test_codes(self):
        """8-bit moments follow float32 ones, also by bitsandbytes' own decoder."""
        some = params((torch.float32,), [(67, 65), (8192,)])
        exact = params((torch.float32,), [(67, 65), (8192,)])
        optimizer = AdamW(some, moments="8bit")
        run(optimizer, count=1)
        other = AdamW(exact)
        run(other, count=1)
        for p, q in zip(some, exact):
            got, want = optimizer.state[p], other.state[q]
            for index, name in enumerate(MOMENTS):
                true = want[name].double()
                absmax = got["absmax"][:, index]
                near = dequantized(got[name], absmax, index == 0)
                # The nearest number of the map; v above 0 is not 0.
                table = dynamic_map(index == 0)[index:]
                scale = absmax.double().repeat_interleave(256)[:true.numel()]
                ratio = true.flatten() / scale
                nearest = (ratio[:, None] - table).abs().amin(1) * scale
                self.assertTrue(bool(((near - true).abs().flatten()
                                      <= nearest * 1.0001 + 1e-6 * scale).all()))
                self.assertGreater(int((nearest > 1e-3 * scale).sum()), 0)
                blocks = torch.nn.functional.pad(
                    true.flatten(), (0, -true.numel() % 256)).view(-1, 256)
                self.assert_same([absmax], [blocks.abs().amax(1).float()])
                top = near.flatten()[true.abs().argmax()]
                # The signed map has no code for -1.
                self.assertLess(abs(abs(float(top / true.abs().max())) - 1), 0.01)

    def test_float8(self):
        """The codes are those of torchao's quantize_fp8(), literally, for the moments
        of a step with float32 moments from the values of the codes before it."""
        for factor in (1.0, 1e-14, 1e10, float("inf"), float("nan")):
            p = torch.nn.Parameter(torch.randn(8192 + 77))
            optimizer = AdamW([p], moments="float8")
            optimizer.state[p].update(
                step=torch.tensor(0.0), absmax=torch.zeros(33, 2),
                **{name: torch.zeros(p.shape).to(CODES[1]) for name in MOMENTS})
            for step in range(4):
                state = optimizer.state[p]
                q = torch.nn.Parameter(p.detach().clone())
                exact = AdamW([q])
                exact.state[q] = {"step": torch.tensor(float(step)), **{
                    name: dequantized(state[name], state["absmax"][:, index], True)
                    for index, name in enumerate(MOMENTS)}}
                optimizers.give_grads(optimizer, step)
                p.grad *= 10.0 ** -(torch.arange(p.numel()) // 300 % 5)
                p.grad[300] *= factor
                q.grad = p.grad
                optimizer.step()
                exact.step()
                for name in MOMENTS:
                    blocks = torch.nn.functional.pad(
                        exact.state[q][name], (0, -p.numel() % 256)).view(-1, 256)
                    scale = blocks.abs().amax(-1).clip(1e-12) / 448
                    codes = (blocks / scale.view(-1, 1)).to(CODES[1])
                    codes = codes.view(-1)[:p.numel()].float()
                    found = state[name].float()
                    # PyTorch's nan may be negative.
                    self.assertTrue(torch.equal(codes.isnan(), found.isnan()))
                    self.assert_same(found.nan_to_num(), codes.nan_to_num())
                    self.assertEqual(bool(found.isnan().any()),
                                     not math.isfinite(factor))
                self.assertTrue(torch.equal(p.nan_to_num(), q.nan_to_num()))

    def test_torchao(self):
        """torchao's AdamWFp8 rounds v = lerp(v, g * g) once more than PyTorch's fused
        kernel and swamp: nearly all codes are equal, the others neighbours."""
        if importlib.util.find_spec("torchao") is None:
            self.skipTest("torchao is not installed (toolchain/torch-clients)")
        from torchao.optim import AdamWFp8
        ours, theirs = (torch.nn.Parameter(torch.linspace(-1, 1, 1 << 16))
                        for _ in range(2))
        options = dict(lr=1e-3, weight_decay=0.1)
        first = AdamW([ours], moments="float8", **options)
        second = AdamWFp8([theirs], **options)
        with unittest.mock.patch("torch.compile", lambda f, **_: f):
            for step in range(5):
                for optimizer in (first, second):
                    optimizers.give_grads(optimizer, step)
                    optimizer.step()
        self.assertLess(float((ours - theirs).detach().abs().max()), 1e-4)
        for index, name in enumerate(MOMENTS):
            got, want = first.state[ours][name], second.state[theirs][name]
            a, b = (x.view(torch.uint8).int() for x in (got, want.codes))
            self.assertLessEqual(int((a - b).abs().max()), 1)
            self.assertLess(float((a != b).double().mean()), 1e-3)
            scale = first.state[ours]["absmax"][:, index].clip(1e-12) / 448
            self.assertLess(float((scale / want.scale - 1).abs().max()), 1e-6)

    def test_bitsandbytes_reads_the_codes(self):
        try:
            from bitsandbytes import functional
        except ImportError:
            raise unittest.SkipTest("bitsandbytes is not installed")
        p = torch.nn.Parameter(torch.randn(8192 + 77))
        optimizer = AdamW([p], moments="8bit")
        for _ in range(5):
            p.grad = torch.randn_like(p)
            optimizer.step()
        state = optimizer.state[p]
        for index, name in enumerate(MOMENTS):
            signed = index == 0
            code = functional.create_dynamic_map(signed)
            absmax = state["absmax"][:, index].contiguous()
            theirs = functional.dequantize_blockwise(
                state[name], absmax=absmax, code=code, blocksize=256)
            ours = dequantized(state[name], absmax, signed)
            self.assertLess(float(((theirs.double() - ours).abs()
                                   / (ours.abs() + 1e-30)).max()), 1e-5)


if __name__ == "__main__":
    main()
