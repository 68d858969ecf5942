"""swamp_torch.float8's layers against torchao (if it is installed) and float32,
states, errors. The golden data: package_float8_golden.py."""

import copy
import functools
import importlib.util
import io
import itertools
import json
import math
import pathlib
import pickle
import re
import tempfile

from package_float8_golden import E4M3, flat, same_floats
from support import TestCase, a_fifth, caught, main, on_threads

import torch
import torch.utils.checkpoint
from torch.distributed.checkpoint.state_dict import (get_model_state_dict,
                                                     set_model_state_dict)

import swamp_torch
from swamp_torch import _float8_products, float8

HAS_TORCHAO = importlib.util.find_spec("torchao") is not None

# Recipe, options, and the least signal-to-noise ratio in decibels of output,
# gradient of the input and gradient of the weight.
RECIPES = [
    ("tensorwise", {}, 24), ("rowwise", {}, 28), ("rowwise_with_gw_hp", {}, 28),
    ("te_delayed_hybrid", {}, 24), ("te_current", {}, 24),
    ("te_current", {"use_power_2_scales": True}, 24), ("te_block", {}, 28),
    ("te_block", {"power_2_scale": False}, 28), ("mxfp8", {}, 28),
    ("mxfp8", {"accumulation": "exact"}, 28), ("nvfp4", {"accumulation": "exact"}, 15),
    ("te_delayed_hybrid", {"accumulation": "exact"}, 24),
    ("nvfp4", {}, 15), ("nvfp4", {"disable_stochastic_rounding": True,
                                  "disable_rht": True,
                                  "disable_2d_quantization": True}, 17),
    ("hif8", {}, 24),
]
TOKENS, WIDTH, HIDDEN = 64, 96, 128


def config_of(name, options):
    return float8.Float8LinearConfig.from_recipe_name(name, **options)


def make_model(name, options, dtype=torch.bfloat16, seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, HIDDEN), torch.nn.GELU(),
        torch.nn.Linear(HIDDEN, WIDTH)).to(dtype)
    if name is None:
        return model
    return float8.convert_to_float8_training(model,
                                             config=config_of(name, options))


def train(model, steps, first=0, rank=0):
    """Losses of some steps of SGD, and the last gradients."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(100 * step + rank)
        x = torch.randn(4, TOKENS // 4, WIDTH, generator=generator).to(
            next(model.parameters()).dtype)
        loss = (model(x) - x).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), [p.grad.clone() for p in model.parameters()]


def decibels(ours, exact):
    ours, exact = ours.detach().double(), exact.detach().double()
    noise = float((ours - exact).square().sum())
    return (10 * math.log10(float(exact.square().sum()) / noise) if noise
            else math.inf)


class Layers(TestCase):
    def test_error(self):
        """Products are near those of float32."""
        for name, options, least in RECIPES:
            for dtype in (torch.bfloat16, torch.float32, torch.float16):
                torch.manual_seed(1)
                linear = torch.nn.Linear(WIDTH, HIDDEN)
                wide = copy.deepcopy(linear)
                layer = float8.convert_to_float8_training(
                    linear.to(dtype), config=config_of(name, options))
                x = torch.randn(TOKENS, WIDTH)
                ours, exact = (x.clone().to(t).requires_grad_()
                               for t in (dtype, torch.float32))
                grad = torch.randn(TOKENS, HIDDEN) * 0.1
                outputs = layer(ours), wide(exact)
                for output in outputs:
                    output.backward(grad.to(output.dtype))
                self.assertEqual(outputs[0].dtype, dtype)
                for a, b in (outputs, (ours.grad, exact.grad),
                             (layer.weight.grad, wide.weight.grad),
                             (layer.bias.grad, wide.bias.grad)):
                    self.assertEqual(a.dtype, dtype)
                    self.assertGreater(decibels(a, b), least,
                                       (name, options, dtype))

    def test_training_and_threads(self):
        stock = train(make_model(None, {}), 12)[0][-1]
        for name, options, least in RECIPES:
            losses = on_threads(
                lambda: train(make_model(name, options), 12))
            self.assert_same(losses[0][0], losses[1][0], name)
            self.assert_same(losses[0][1], losses[1][1], name)
            self.assertLess(abs(losses[0][0][-1] - stock), 0.1 * stock,
                            (name, options))

    def test_resume(self):
        """State dicts, a copy and a pickle go on with the same bits."""
        for name, options, _ in RECIPES:
            whole = train(make_model(name, options), 6)
            model = make_model(name, options)
            train(model, 3)
            file = io.BytesIO()
            torch.save(model.state_dict(), file)
            file.seek(0)
            other, third = (make_model(name, options, seed=s) for s in (1, 2))
            other.load_state_dict(torch.load(file))
            set_model_state_dict(third, get_model_state_dict(model))
            for again in (other, third, copy.deepcopy(model),
                          pickle.loads(pickle.dumps(model))):
                found = train(again, 3, 3)
                self.assert_same(found[0], whole[0][3:], name)
                self.assert_same(found[1], whole[1], name)

    def test_delayed_state(self):
        """Transformer Engine's keys; the scales are those of its rule."""
        model = make_model("te_delayed_hybrid", {"amax_history_len": 4})
        train(model, 1)
        state = model.state_dict()
        for key, sizes in (("scale_fwd", [3]), ("amax_history_fwd", [4, 3]),
                           ("scale_bwd", [2]), ("amax_history_bwd", [4, 2])):
            self.assertEqual(list(state[f"0.{key}"].shape), sizes)
        amax = state["0.amax_history_fwd"][0]
        self.assertTrue((amax[:2] > 0).all() and (state["0.scale_fwd"] == 1).all())
        with torch.no_grad():
            model(torch.ones(16, WIDTH).bfloat16() * 1e4)  # does not count
        model.eval()
        model(torch.ones(16, WIDTH).bfloat16())  # ends no step
        self.assertTrue((model.state_dict()["0.scale_fwd"] == 1).all())
        float8.update_scales(model)
        state = model.state_dict()
        self.assert_same(state["0.scale_fwd"][:2], 448 / amax[:2])
        self.assert_same(state["0.amax_history_fwd"][-1], amax)

    def test_conversion(self):
        model = torch.nn.ModuleDict({
            "a": torch.nn.Linear(32, 32), "skip": torch.nn.Linear(32, 32),
            "inner": torch.nn.Sequential(torch.nn.Linear(32, 32, bias=False))})
        model["shared"] = model["a"]
        before = dict(model.named_parameters())
        names = []

        def keep(module, name):
            names.append(name)
            return name != "skip"

        converted = float8.convert_to_float8_training(
            model, module_filter_fn=keep)
        self.assertIs(converted, model)
        self.assertEqual(names, ["a", "skip", "inner.0"])
        self.assertIs(model["a"], model["shared"])
        self.assertEqual([isinstance(module, float8.Float8Linear) for module in
                          (model["a"], model["skip"], model["inner"][0])],
                         [True, False, True])
        after = dict(model.named_parameters())
        self.assertEqual(before.keys(), after.keys())
        for name, parameter in after.items():
            self.assertIs(parameter, before[name])
        root = float8.convert_to_float8_training(torch.nn.Linear(16, 16))
        self.assertIsInstance(root, float8.Float8Linear)

    def test_what_a_layer_keeps(self):
        """Hooks, whose handles stay valid, and other attributes."""
        linear = torch.nn.Linear(32, 32)
        seen = []
        handles = [
            linear.register_forward_pre_hook(lambda *_: seen.append("pre")),
            linear.register_forward_hook(lambda *_: seen.append("post")),
            linear.register_full_backward_hook(lambda *_: seen.append("back"))]
        linear.is_expert = True
        linear.register_buffer("steps", torch.ones(1))
        linear.eval()
        model = float8.convert_to_float8_training(
            torch.nn.Sequential(linear), config=config_of("mxfp8", {}))
        x = torch.randn(16, 32, requires_grad=True)
        for again in (model, copy.deepcopy(model)):
            again(x).sum().backward()
        self.assertEqual(seen, ["pre", "post", "back"] * 2)
        for handle in handles:
            handle.remove()
        model(x).sum().backward()
        self.assertEqual(len(seen), 6)
        self.assertTrue(model[0].is_expert and not model[0].training)
        self.assertEqual(list(model.state_dict()), ["0.weight", "0.bias", "0.steps"])

    def test_hooks_of_loading(self):
        """They have the new layer as their module, also if an error came first."""
        layer = torch.nn.Linear(32, 32)
        seen = []
        handle = layer.register_load_state_dict_pre_hook(
            lambda module, *_: seen.append(module))
        model = torch.nn.Sequential(layer, torch.nn.LazyLinear(32))
        caught(lambda: float8.convert_to_float8_training(model))
        model.load_state_dict(model.state_dict())
        self.assertIs(seen.pop(), layer)
        del model[1], layer
        float8.convert_to_float8_training(model)
        model.load_state_dict(model.state_dict())
        self.assertIs(seen.pop(), model[0])
        handle.remove()
        model.load_state_dict(model.state_dict())
        self.assertEqual(seen, [])

    def test_attention_of_torch(self):
        """Whose out_proj is not called."""
        model = torch.nn.TransformerEncoderLayer(32, 2, 64)
        float8.convert_to_float8_training(model)
        self.assertEqual([type(layer).__name__ for layer in (
            model.self_attn.out_proj, model.linear1)],
            ["NonDynamicallyQuantizableLinear", "Float8Linear"])

    def test_evaluation(self):
        """Without gradients there are no casts for them, which need even sizes."""
        for name, options, _ in RECIPES:
            model = make_model(name, {**options})
            x = torch.randn(16, WIDTH).bfloat16()
            with torch.no_grad():
                whole, part = model(x), model(x[:5])
            self.assertEqual(part.shape, (5, WIDTH))
            if name in ("rowwise", "mxfp8", "hif8"):
                self.assert_same(part, whole[:5])

    def test_weights_of_others(self):
        """A weight that a hook computes, and parametrizations after the
        conversion, have gradients."""
        def weight_norm(module):
            import warnings
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return torch.nn.utils.weight_norm(module)

        old = float8.convert_to_float8_training(
            torch.nn.Sequential(weight_norm(torch.nn.Linear(32, 32))),
            config=config_of("te_delayed_hybrid", {}))
        new = float8.convert_to_float8_training(torch.nn.Linear(32, 32),
                                                config=config_of("mxfp8", {}))
        torch.nn.utils.parametrizations.weight_norm(new)
        for model, count in ((old, 3), (new, 3)):
            model(torch.randn(16, 32)).square().sum().backward()
            gradients = [p.grad for p in model.parameters()]
            self.assertEqual(len(gradients), count)
            self.assertTrue(all(g.any() for g in gradients))

    def test_refused_layers(self):
        """An error names the layer, and changes nothing."""
        class Scaled(torch.nn.Linear):
            def forward(self, x):
                return 2 * super().forward(x)

        def subclass(**others):
            layer = torch.nn.Linear(32, 32)
            layer.__class__ = type("Scaled", (torch.nn.Linear,), others)
            return layer

        wrapped = torch.nn.Linear(32, 32)
        wrapped.forward = functools.partial(torch.nn.Linear.forward, wrapped)
        for layer, text, recipe in (
                *((subclass(**{method: lambda *_, **__: {}}),
                   f"a {method}() of its own", "mxfp8") for method in (
                       "__call__", "_save_to_state_dict", "_load_from_state_dict",
                       "get_extra_state", "set_extra_state", "state_dict")),
                (subclass(weight=property(lambda layer: layer._parameters["weight"])),
                 "a weight or bias that its class computes", "mxfp8"),
                (Scaled(32, 32), "a forward() of its own", "mxfp8"),
                (wrapped, "a forward() of its own", "mxfp8"),
                (torch.nn.utils.parametrizations.weight_norm(
                    torch.nn.Linear(32, 32)), "parametrizations", "mxfp8"),
                (torch.nn.LazyLinear(32), "no sizes before", "mxfp8"),
                (torch.nn.Linear(31, 32), "in_features: got 31, expected a "
                 "multiple of 16", "nvfp4"),
                (torch.nn.Linear(32, 31), "out_features: got 31, expected a "
                 "multiple of 16", "nvfp4")):
            model = torch.nn.Sequential(torch.nn.Linear(32, 32),
                                        torch.nn.Sequential(layer))
            first = model[0]

            def convert(**filters):
                return caught(lambda: float8.convert_to_float8_training(
                    model, config=config_of(recipe, {}), **filters))

            found = convert()
            self.assertEqual(found[0], "ValueError")
            self.assertRegex(found[1], r"^1\.0[:.]")
            self.assertIn(text, found[1])
            self.assertIs(model[0], first)
            self.assertEqual(len(model._forward_pre_hooks), 0)
            convert(module_filter_fn=lambda module, name: name != "1.0")
            self.assertIsInstance(model[0], float8.Float8Linear)
            self.assertIs(model[1][0], layer)

    def test_autocast(self):
        model = make_model("mxfp8", {}, torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            output = model(torch.randn(32, WIDTH))
        self.assertEqual(output.dtype, torch.bfloat16)
        output.float().square().sum().backward()
        self.assertEqual(model[0].weight.grad.dtype, torch.float32)

    def test_nonfinite(self):
        """An inf or nan reaches a gradient, and the next step works. With
        propagate_nonfinite=False it reaches what torchao's casts let it."""
        for name, options, _ in RECIPES:
            for bad, place, frozen, propagates in itertools.product(
                    (math.inf, -math.inf, math.nan),
                    ("input", "weight", "grad_output"), (False, True),
                    (True, False)):
                layer = float8.convert_to_float8_training(
                    torch.nn.Linear(32, 64).bfloat16(), config=config_of(
                        name, {**options, "propagate_nonfinite": propagates}))
                layer.weight.requires_grad_(not frozen)
                x, grad = torch.randn(16, 32), torch.randn(16, 64)
                if place == "weight":
                    with torch.no_grad():
                        layer.weight[3, 5] = bad
                else:
                    (x if place == "input" else grad)[3, 5] = bad
                x = x.bfloat16().requires_grad_()
                y = layer(x)
                y.backward(grad.bfloat16())
                found = x.grad if frozen else layer.weight.grad
                what = (name, options, bad, place, frozen)
                if propagates:
                    self.assertTrue(found.isnan().any(), what)
                    self.assertTrue(x.grad.isnan().any(), what)
                if name in ("tensorwise", "rowwise") and place == "input":
                    self.assertTrue(y[3].isnan().any(), what)
                if not propagates and name == "te_block" and bad == math.inf:
                    self.assertTrue(found.isfinite().all(), what)
                if place != "weight":
                    layer(torch.ones(16, 32).bfloat16()).sum().backward()

    def test_overflow(self):
        """GradScaler skips the steps that it skips without float8, and finite steps
        have the same bits if nothing propagates."""
        for name, options, _ in [(None, {}, 0), *RECIPES]:
            model = make_model(name, options, torch.float16)
            for layer in (model[0], model[2]):
                layer.bias = None
            optimizer = swamp_torch.AdamW(model.parameters(), lr=1e-3)
            scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 32)
            skipped = []
            for _ in range(6):
                x = torch.randn(TOKENS, WIDTH).half()
                optimizer.zero_grad()
                scaler.scale((model(x) - x).float().square().sum()).backward()
                for p in model.parameters():  # of another optimizer, perhaps
                    self.assertFalse(p.grad.isfinite().all(), (name, options))
                scaler.step(optimizer)
                skipped.append(bool(optimizer.skipped))
                scaler.update()
            self.assertEqual(skipped, [True] * 6, (name, options))
            if name is not None:
                runs = [train(make_model(name, {**options,
                                                "propagate_nonfinite": on}), 2)
                        for on in (True, False)]
                self.assert_same(runs[0][0], runs[1][0], name)
                self.assert_same(runs[0][1], runs[1][1], name)

    def test_no_tokens(self):
        """Gradients are zero, also of a model with a token before."""
        compiled_recipes = RECIPES[1::5]  # the others are compiled with tokens
        for recipe in RECIPES:
            name, options, _ = recipe
            for shape in ((0, WIDTH), (2, 0, WIDTH)):
                for compiled in (False, True):
                    model = make_model(name, options)
                    if compiled:
                        if shape != (0, WIDTH) or recipe not in compiled_recipes:
                            continue
                        torch._dynamo.reset()
                        model = torch.compile(model, backend="aot_eager")
                    x = torch.zeros(shape).bfloat16().requires_grad_()
                    y = model(x)
                    y.sum().backward()
                    self.assertEqual((y.shape, x.grad.shape), (shape, shape))
                    for p in model.parameters():
                        self.assertTrue((p.grad == 0).all(), (name, options))
            for inputs, outputs in ((0, 32), (32, 0)):  # no channels
                layer = float8.Float8Linear(32, 32, bias=False,
                                            config=config_of(name, options))
                layer.weight = torch.nn.Parameter(torch.zeros(outputs, inputs))
                x = torch.ones(16, inputs, requires_grad=True)
                y = layer(x)
                y.sum().backward()
                self.assert_same(y, torch.zeros(16, outputs), (name, options))
                self.assert_same(x.grad, torch.zeros(16, inputs))

    def test_compile(self):
        for name, options, _ in a_fifth(RECIPES):
            losses = []
            for compiled in (False, True):
                model = make_model(name, options)
                if compiled:
                    torch._dynamo.reset()
                    model = torch.compile(model, backend="aot_eager",
                                          fullgraph=True)
                losses.append(train(model, 3))
            self.assert_same(losses[0][0], losses[1][0], (name, options))
            self.assert_same(losses[0][1], losses[1][1], (name, options))

    def test_compile_copies(self):
        """More copies of a model than dynamo's limit of recompilations."""
        torch._dynamo.reset()
        model = make_model("te_delayed_hybrid", {})
        for _ in range(torch._dynamo.config.recompile_limit + 2):
            one = torch.compile(copy.deepcopy(model), backend="eager",
                                fullgraph=True)
            one(torch.randn(16, WIDTH).bfloat16()).sum().backward()

    def test_report(self):
        model = make_model("te_current", {})
        with self.assertRaisesRegex(ValueError, "model: got one without records"):
            float8.report(model)
        with float8.recording(model):
            train(model, 1)
        losses = train(model, 1)[0]
        file = io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            plot = f"{folder}/a.svg"
            if importlib.util.find_spec("matplotlib") is None:
                with self.assertRaisesRegex(ImportError, "plot: .*matplotlib"):
                    float8.report(model, file=file, plot=plot)
                plot = None
            rows = float8.report(model, file=file, plot=plot)
            picture = plot and pathlib.Path(plot).read_text("utf-8")
        self.assertEqual([(row.layer, row.tensor) for row in rows], [
            (layer, tensor) for layer in ("0", "2") for tensor in
            ("input", "weight", "output", "grad_output", "grad_input",
             "grad_weight") if (layer, tensor) != ("0", "grad_input")])
        for row in rows:
            self.assertGreater(row.snr, 20, row)
            if row.amax is not None:
                largest = 448 if "grad" not in row.tensor else 57344
                self.assertAlmostEqual(row.scale * row.amax / largest, 1, 5)
                self.assertEqual(row.saturated, 0)
        self.assertEqual(len(file.getvalue().splitlines()), 1 + len(rows))
        if picture:
            for name in {row.tensor for row in rows}:
                self.assertIn(f">{name}<", picture)
            # The marks of the input in two layers, and in the legend.
            self.assertEqual(len(re.findall("<use [^>]*fill: #1f77b4", picture)), 3)
        again = make_model("te_current", {})
        train(again, 1)
        self.assert_same(train(again, 1)[0], losses)  # recording changes nothing

    def test_report_of_nothing(self):
        """No tokens, zeros, inf and nan have a report."""
        for name, options, _ in RECIPES:
            for x in (torch.zeros(0, WIDTH), torch.zeros(16, WIDTH),
                      torch.full((16, WIDTH), math.inf),
                      torch.full((16, WIDTH), math.nan)):
                model = make_model(name, options)
                with float8.recording(model):
                    model(x.bfloat16()).float().square().sum().backward()
                rows = float8.report(model, file=io.StringIO())
                self.assertEqual(len(rows), 11)
                if not x.numel():
                    self.assertEqual((rows[0].amax, rows[0].scale), (0, None))
                elif not x.any():
                    self.assertEqual((rows[0].amax, rows[0].flushed,
                                      rows[0].snr), (0, 0, math.inf))


class Torchao(TestCase):
    """torchao 0.18: the codes and scales of all six casts, and the results."""

    def test_linear(self):
        if not HAS_TORCHAO:
            self.skipTest("torchao is not installed (toolchain/torch-clients)")
        from torchao.float8 import float8_linear
        from torchao.float8.config import Float8LinearConfig
        for name in ("tensorwise", "rowwise", "rowwise_with_gw_hp"):
            for scale in (1.0, 1e-20, 1e20):
                self.compare(float8_linear, Float8LinearConfig, name, scale)

    def compare(self, theirs, config_class, name, scale):
        import dataclasses
        torch.manual_seed(3)
        linear = torch.nn.Linear(WIDTH, HIDDEN, bias=False).bfloat16()
        x = (torch.randn(TOKENS, WIDTH) * scale).bfloat16()
        grad = torch.randn(TOKENS, HIDDEN).bfloat16() / 64
        config = dataclasses.replace(config_class.from_recipe_name(name),
                                     emulate=True)
        casts, operands = [], []

        def record_cast(*args, **kwargs):
            casts.append(cast(*args, **kwargs))
            return casts[-1]

        def record_product(a, b, dtype, *seen):
            operands.extend((a, b))
            return product(a, b, dtype, *seen)

        results = []
        cast, product = theirs.hp_tensor_to_float8_dynamic, _float8_products._product
        try:
            theirs.hp_tensor_to_float8_dynamic = record_cast
            _float8_products._product = record_product
            for make in (
                    lambda: theirs.Float8Linear.from_float(
                        copy.deepcopy(linear), config),
                    lambda: float8.Float8Linear.from_float(
                        copy.deepcopy(linear), config)):
                layer, leaf = make(), x.clone().requires_grad_()
                if isinstance(layer, float8.Float8Linear):  # for the codes
                    layer._state = layer._state._replace(exact=True)
                output = layer(leaf)
                output.backward(grad)
                results.append((output, leaf.grad, layer.weight.grad))
        finally:
            theirs.hp_tensor_to_float8_dynamic = cast
            _float8_products._product = product
        # torchao's order: input, weight^T, grad_output, weight^T, then grad_output
        # and input along the other dimension.
        seen = [casts[0], casts[1], casts[2], casts[3], *casts[4:]]
        turned = (False, True, False, False, True, True)
        self.assertEqual(len(seen), 4 if name == "rowwise_with_gw_hp" else 6)
        for one, other, turn in zip(seen, operands, turned):
            codes, factor = one._data, one._scale
            if turn:
                codes, factor = codes.t(), factor.t() if factor.dim() else factor
            self.assertEqual(codes.dtype, other.codes.dtype)
            self.assertTrue(torch.equal(flat(codes), flat(other.codes)),
                            (name, scale))
            self.assertTrue(same_floats(factor.reciprocal().contiguous(),
                                        other.scales.contiguous()))
        for theirs_one, ours in zip(*results):
            self.assertGreater(decibels(ours, theirs_one), 40, (name, scale))

    def test_own_config(self):
        """A configuration of ours has the casts of torchao's of the same name."""
        if not HAS_TORCHAO:
            self.skipTest("torchao is not installed (toolchain/torch-clients)")
        from torchao.float8.config import Float8LinearConfig
        for name in ("tensorwise", "rowwise", "rowwise_with_gw_hp"):
            self.assertEqual(
                float8.Float8LinearConfig.casts(
                    Float8LinearConfig.from_recipe_name(name)),
                config_of(name, {}).casts())


def layer_of(name="tensorwise", **options):
    return float8.convert_to_float8_training(
        torch.nn.Linear(32, 32), config=config_of(name, options))


def load(name, state, **options):
    layer_of(name, **options).load_state_dict(state)


def manager(name="te.DelayedScaling", **options):
    return float8.ScaleManager(name, 1, 1, **options)


X = torch.ones(4, 32)
FLOAT4 = torch.float4_e2m1fn_x2
BLOCKS = float8.quantize_blocks(X, E4M3, "te_mxfp8")[0]
DELAYED = layer_of("te_delayed_hybrid", amax_history_len=4).state_dict()
# What is called, the type of the error, and what its text has.
ERRORS = [
    (lambda: float8.quantize(X, "float9"), ValueError,
     "format: got 'float9', expected one of 'float8_e4m3fn'"),
    (lambda: float8.quantize(X, E4M3, 0.0), RuntimeError,
     "options.scale: got 0, expected a finite number larger than 0"),
    (lambda: float8.quantize(X, E4M3, math.nan), RuntimeError,
     "options.scale: got nan, expected a finite number larger than 0"),
    (lambda: float8.dequantize(X.to(E4M3), scale=math.inf), RuntimeError,
     "scale: got inf, expected a finite number"),
    (lambda: float8.quantize(X, E4M3, rounding="near"), ValueError,
     "rounding: got 'near', expected one of 'nearest_even'"),
    (lambda: float8.quantize(X, E4M3, policy="gpu"), ValueError,
     "policy: got 'gpu', expected one of 'saturate'"),
    (lambda: float8.quantize(X.double(), E4M3), NotImplementedError,
     "not implemented for 'Double'"),
    (lambda: float8.quantize(X, "hifloat8", rounding="nearest_even"),
     NotImplementedError, "options.rounding: got nearest_even, expected"),
    (lambda: float8.quantize(X[:, :3], "float4_e2m1fn_x2"), RuntimeError,
     "x: got the shape [4, 3], expected an even last dimension"),
    (lambda: float8.quantize(X, E4M3, rounding="stochastic",
                             random=torch.ones(4, dtype=torch.uint8)),
     RuntimeError, "random: got the shape [4] of Byte, expected [4, 32]"),
    (lambda: float8.dequantize(torch.ones(3, dtype=torch.uint8)), ValueError,
     "format: got None, expected the name of a format"),
    (lambda: float8.quantize(X, E4M3, rounding="down"), NotImplementedError,
     "options.rounding: got down, expected nearest_even, nearest_away or"),
    (lambda: float8.dequantize(X, format=E4M3), RuntimeError,
     "codes: got Float on cpu, expected Float8_e4m3fn"),
    (lambda: float8.quantize_blocks(X, E4M3, "mx"), ValueError,
     "scaling: got 'mx', expected one of 'mx_floor'"),
    (lambda: float8.quantize_blocks(X, E4M3, "te_mxfp8", block=24), RuntimeError,
     "options.block: got 24, expected 16, 32, 64 or 128"),
    (lambda: float8.quantize_blocks(X, E4M3, "te_mxfp8", block=-3), RuntimeError,
     "block: got -3, expected at least 0 (0: that of the scaling)"),
    (lambda: float8.dequantize_blocks(BLOCKS, "te_mxfp8", block=-32),
     RuntimeError, "block: got -32, expected at least 0"),
    (lambda: float8.quantize_blocks(X[0], E4M3, "te_mxfp8"), RuntimeError,
     "x: got the shape [32], expected a matrix"),
    (lambda: float8.quantize_blocks(X, E4M3, "te_nvfp4",
                                    tensor_amax=float8.amax(X)),
     NotImplementedError,
     "rows.codes.dtype: got float8_e4m3fn, expected a format"),
    *((call, RuntimeError, "tensor_amax: got nan, expected the largest magnitude")
      for scaling in ("te_nvfp4", "torchao_nvfp4") for call in (
          lambda: float8.quantize_blocks(X, FLOAT4, scaling),
          lambda: float8.quantize_blocks(X, FLOAT4, scaling, columns=True),
          lambda: float8.dequantize_blocks(float8.quantize_blocks(
              X, FLOAT4, scaling, tensor_amax=float8.amax(X))[0], scaling))),
    (lambda: float8.quantize_blocks(X, E4M3, "te_mxfp8", rows=False),
     RuntimeError, "rows: got null, expected codes along rows or"),
    (lambda: float8.hadamard_transform(X[:, :8]), RuntimeError,
     "x.columns: got 8, expected a multiple of 16"),
    (lambda: float8.ScaleManager("te", 1), RuntimeError,
     "recipe: got 'te', expected one of "),
    (lambda: manager().block_scales(-1, X), RuntimeError,
     "index: got -1, expected at least 0 and less than 2"),
    (lambda: manager().observe_all(torch.tensor([1.0, -3.0])), RuntimeError,
     "te.DelayedScaling: amax[1]: got -3, expected at least 0, nan, or -1"),
    (lambda: manager().load_state_dict(manager("msamp").state_dict()),
     RuntimeError, "swamp.scaler: got 'msamp', expected 'te.DelayedScaling'"),
    (lambda: manager().load_state_dict({"recipe": "MXFP8BlockScaling"}),
     RuntimeError, "recipe: got 'MXFP8BlockScaling', expected 'DelayedScaling'"),
    (lambda: manager().load_state_dict({}), RuntimeError,
     "scale_fwd: got nothing, expected a list"),
    (lambda: manager().load_state_dict(manager(amax_history_len=4).state_dict()),
     RuntimeError, "amax_history_fwd: got a list of 4, expected a list of 1024"),
    (lambda: float8.Float8LinearConfig.from_recipe_name("fp8"), ValueError,
     "recipe_name: got 'fp8', expected one of 'tensorwise'"),
    (lambda: config_of("te_delayed_hybrid", {"amax_history_len": 0}),
     RuntimeError, "amax_history_len: got 0, expected an integer, at least 1"),
    (lambda: config_of("te_current", {"margin": 1}), RuntimeError,
     "te.Float8CurrentScaling: got the option 'margin', expected one of"),
    *((lambda name=name, option=option: config_of(name, {option: 1}), ValueError,
       f"{name}: option: got '{option}', expected one of ")
      for name, option in (
          ("tensorwise", "margin"), ("rowwise", "power_2_scale"),
          ("rowwise_with_gw_hp", "scaling"), ("te_block", "disable_rht"),
          ("mxfp8", "margin"), ("nvfp4", "amax_history_len"), ("hif8", "x"))),
    (lambda: float8.Float8LinearConfig(cast_config_input=float8.CastConfig(
        float8.ScalingType.DISABLED)), ValueError,
     "cast_config_input, cast_config_weight: got one that is DISABLED"),
    (lambda: float8.convert_to_float8_training(torch.nn.Linear(8, 8),
                                               config="mxfp8"), ValueError,
     "config: got 'mxfp8', expected a Float8LinearConfig"),
    (lambda: load("te_delayed_hybrid", DELAYED, amax_history_len=8),
     RuntimeError, "amax_history_fwd: got a list of 4, expected a list of 8"),
    (lambda: load("mxfp8", DELAYED), RuntimeError,
     "Unexpected key(s) in state_dict: \"scale_fwd\""),
    (lambda: load("te_delayed_hybrid", layer_of("mxfp8").state_dict()),
     RuntimeError, "Missing key(s) in state_dict: \"scale_fwd\""),
    (lambda: load("nvfp4", layer_of("mxfp8").state_dict()),
     RuntimeError, "Missing key(s) in state_dict: \"rounding_seed\""),
    (lambda: layer_of("nvfp4")(torch.ones(10, 32)), ValueError,
     "(root): got 10 tokens, expected a multiple of 16"),
    (lambda: layer_of("te_delayed_hybrid").double()(
        torch.ones(32, 16).double().t().requires_grad_()), NotImplementedError,
     "not implemented for 'Double'"),
    (lambda: torch.nn.Sequential(layer_of("nvfp4", disable_rht=True))(
        torch.ones(3, 32)), ValueError, "got 3 tokens, expected a multiple of 2"),
    *((lambda key=key, bad=bad: load(
        "te_delayed_hybrid", {**DELAYED, key: torch.full_like(DELAYED[key], bad)},
        amax_history_len=4), RuntimeError,
       f"{key}[0]{'[0]' if 'history' in key else ''}: got {shown}"
       + (", expected at least 0, or nan" if "history" in key else
          "" if bad == 1e-45 else ", expected a finite number larger than 0"))
      for key, bad, shown in (
          ("scale_fwd", math.nan, "nan"), ("scale_bwd", 0.0, "0.0"),
          ("scale_fwd", -1.0, "-1.0"), ("scale_bwd", math.inf, "inf"),
          ("scale_fwd", 1e-45, "1.4"), ("amax_history_fwd", -0.0, "-0.0"),
          ("amax_history_fwd", -1.0, "-1.0"))),
    *((lambda seed=seed: load("nvfp4", {
        **layer_of("nvfp4").state_dict(), "rounding_seed": seed}), RuntimeError,
       "rounding_seed: got ")
      for seed in (torch.tensor(math.nan), torch.ones(2, dtype=torch.int64))),
]


class Errors(TestCase):
    def test_errors(self):
        for call, kind, text in ERRORS:
            found = caught(call)
            self.assertIsInstance(found, tuple, text)
            self.assertEqual(found[0], kind.__name__, found)
            self.assertIn(text, found[1])

    def test_nothing_is_written(self):
        """A state that is refused changes no scale."""
        model = layer_of("te_delayed_hybrid", amax_history_len=4)
        bad = {**DELAYED, "scale_fwd": torch.full((3,), 2.0),
               "amax_history_bwd": torch.zeros(3, 2)}
        self.assertEqual(caught(lambda: model.load_state_dict(bad))[0],
                         "RuntimeError")
        self.assertTrue((model.state_dict()["scale_fwd"] == 1).all())
        for name in ("te.DelayedScaling", "msamp", "mindspeed.delayed"):
            one = manager(name)
            one.observe_all(torch.tensor([3.0, 5.0]))
            one.update()
            before = str(one.state_dict())
            good = json.loads(one._manager.state_dict())
            for key in good:  # one entry is of another shape, or lacks
                for bad in ({**good, key: [1.0, "x"]},
                            {k: v for k, v in good.items() if k != key}):
                    if key in bad or key not in ("recipe", "swamp"):
                        self.assertIsInstance(
                            caught(lambda: one.load_state_dict(bad)), tuple, key)
                    self.assertEqual(str(one.state_dict()), before)


if __name__ == "__main__":
    main()
