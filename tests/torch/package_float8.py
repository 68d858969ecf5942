"""swamp_torch.float8's layers against torchao (if it is installed) and float32,
states, ranks, errors. The golden data: package_float8_golden.py."""

import copy
import importlib.util
import io
import json
import math
import pathlib
import pickle
import tempfile

from package_float8_golden import E4M3, flat, same_floats
from support import TestCase, caught, main, on_threads, run_ranks

import torch
from torch.distributed.checkpoint.state_dict import (get_model_state_dict,
                                                     set_model_state_dict)

from swamp_torch import float8

HAS_TORCHAO = importlib.util.find_spec("torchao") is not None

# Recipe, options, and the least signal-to-noise ratio in decibels of output,
# gradient of the input and gradient of the weight.
RECIPES = [
    ("tensorwise", {}, 24), ("rowwise", {}, 28), ("rowwise_with_gw_hp", {}, 28),
    ("te_delayed_hybrid", {}, 24), ("te_current", {}, 24),
    ("te_current", {"use_power_2_scales": True}, 24), ("te_block", {}, 28),
    ("te_block", {"power_2_scale": False}, 28), ("mxfp8", {}, 28),
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

    def test_autocast(self):
        model = make_model("mxfp8", {}, torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            output = model(torch.randn(32, WIDTH))
        self.assertEqual(output.dtype, torch.bfloat16)
        output.float().square().sum().backward()
        self.assertEqual(model[0].weight.grad.dtype, torch.float32)

    def test_nonfinite(self):
        """An inf or nan reaches the output, and the next step works."""
        for name, options, _ in RECIPES:
            for bad in (math.inf, math.nan):
                model = make_model(name, options)
                x = torch.randn(32, WIDTH).bfloat16()
                x[3, 5] = bad
                y = model(x)
                y.float().sum().backward()
                train(model, 1)
                if name in ("tensorwise", "rowwise"):
                    self.assertTrue(y[3].isnan().any(), (name, bad))

    def test_compile(self):
        for name, options, _ in RECIPES:
            losses = []
            for compiled in (False, True):
                model = make_model(name, options)
                if compiled:
                    torch._dynamo.reset()
                    model = torch.compile(model, backend="aot_eager")
                losses.append(train(model, 3))
            self.assert_same(losses[0][0], losses[1][0], (name, options))
            self.assert_same(losses[0][1], losses[1][1], (name, options))

    def test_report(self):
        model = make_model("te_current", {})
        with self.assertRaisesRegex(ValueError, "model: got one without records"):
            float8.report(model)
        with float8.recording(model):
            train(model, 1)
        losses = train(model, 1)[0]
        file = io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            rows = float8.report(model, file=file, plot=f"{folder}/a.svg")
            picture = pathlib.Path(f"{folder}/a.svg").read_text("utf-8")
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
        self.assertEqual(picture.count("<circle"), len(rows))
        again = make_model("te_current", {})
        train(again, 1)
        self.assert_same(train(again, 1)[0], losses)  # recording changes nothing


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

        def record_product(a, b, dtype):
            operands.extend((a, b))
            return product(a, b, dtype)

        results = []
        cast, product = theirs.hp_tensor_to_float8_dynamic, float8._product
        try:
            theirs.hp_tensor_to_float8_dynamic = record_cast
            float8._product = record_product
            for make in (
                    lambda: theirs.Float8Linear.from_float(
                        copy.deepcopy(linear), config),
                    lambda: float8.Float8Linear.from_float(
                        copy.deepcopy(linear), config)):
                layer, leaf = make(), x.clone().requires_grad_()
                output = layer(leaf)
                output.backward(grad)
                results.append((output, leaf.grad, layer.weight.grad))
        finally:
            theirs.hp_tensor_to_float8_dynamic = cast
            float8._product = product
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


def delayed_on_rank(rank, ranks, folder):
    """Parameters, scales and amax after some steps with DistributedDataParallel,
    and those of a run that resumes in the middle."""
    outcomes = []
    for resumed in (False, True):
        model = make_model("te_delayed_hybrid", {"amax_history_len": 3})
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        train(parallel, 3, 0, rank)
        if resumed:
            torch.save(model.state_dict(), f"{folder}/{rank}.state")
            model = make_model("te_delayed_hybrid", {"amax_history_len": 3},
                               seed=5)
            model.load_state_dict(torch.load(f"{folder}/{rank}.state"))
            parallel = torch.nn.parallel.DistributedDataParallel(model)
        losses, gradients = train(parallel, 3, 3, rank)
        float8.update_scales(model)
        outcomes.append((losses, gradients, dict(model.state_dict())))
    return outcomes


def sharded_on_rank(rank, ranks, name, options):
    """Losses and whole parameters with FSDP2, with equal data on all ranks, and
    without it."""
    from torch.distributed.fsdp import fully_shard
    outcomes = []
    for sharded in (False, True):
        model = make_model(name, options)
        if sharded:
            for layer in (model[0], model[2]):
                fully_shard(layer, mesh=torch.distributed.init_device_mesh(
                    "cpu", (ranks,)))
            fully_shard(model, mesh=torch.distributed.init_device_mesh(
                "cpu", (ranks,)))
        losses, _ = train(model, 3)
        outcomes.append((losses, [
            p.full_tensor() if hasattr(p, "full_tensor") else p.detach()
            for p in model.parameters()]))
    return outcomes


class Ranks(TestCase):
    def test_delayed(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = run_ranks(delayed_on_rank, 2, folder)
        for one in ranks:
            for whole, resumed in zip(one[0], one[1]):
                if isinstance(whole, dict):
                    whole, resumed = (list(x.values()) for x in (whole, resumed))
                self.assert_same(whole, resumed)
        first, second = (one[0][2] for one in ranks)
        for key in first:  # the scales and amax of both ranks are equal
            self.assert_same(first[key], second[key], key)

    def test_sharded(self):
        for name in ("te_delayed_hybrid", "mxfp8"):
            for whole, sharded in run_ranks(sharded_on_rank, 2, name, {}):
                self.assert_same(whole[0], sharded[0], name)
                self.assert_same(whole[1], sharded[1], name)


def layer_of(name="tensorwise", **options):
    return float8.convert_to_float8_training(
        torch.nn.Linear(32, 32), config=config_of(name, options))


def load(name, state, **options):
    layer_of(name, **options).load_state_dict(state)


def manager(name="te.DelayedScaling", **options):
    return float8.ScaleManager(name, 1, 1, **options)


X = torch.ones(4, 32)
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
    (lambda: float8.quantize_blocks(X, E4M3, "te_nvfp4"), NotImplementedError,
     "rows.codes.dtype: got float8_e4m3fn, expected a format"),
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
    (lambda: layer_of("nvfp4")(torch.ones(10, 32)), RuntimeError,
     "expected a multiple of 16"),
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
