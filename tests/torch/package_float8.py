"""swamp_torch.float8: casts and scales against the golden data and PyTorch's own
casts, layers against torchao (if it is installed) and float32, states, ranks."""

import copy
import importlib.util
import io
import json
import math
import pathlib
import pickle
import tempfile

from support import TestCase, caught, main, on_threads, run_ranks

import torch
from torch.distributed.checkpoint.state_dict import (get_model_state_dict,
                                                     set_model_state_dict)

from swamp_torch import float8

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/float8"
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
FORMATS = {"e4m3": E4M3, "e5m2": E5M2, "e2m1": torch.float4_e2m1fn_x2}
HAS_TORCHAO = importlib.util.find_spec("torchao") is not None


def golden(name):
    with open(GOLDEN / f"{name}.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def words(text, digits):
    """The numbers of so many hexadecimal digits each in a text."""
    return [int(text[i:i + digits], 16) for i in range(0, len(text), digits)]


def floats(text):
    """float32 from a text, or a list of texts, of their bits."""
    return torch.tensor(words("".join(text), 8), dtype=torch.uint32).view(
        torch.float32)


def octets(text):
    return torch.tensor(words(text, 2), dtype=torch.uint8)


def of_bfloat16(row, *sizes):
    return torch.tensor(words(row["bf16"], 4), dtype=torch.uint16).view(
        torch.bfloat16).view(*sizes)


INPUTS = {row["name"]: of_bfloat16(row, row["rows"], row["cols"])
          for row in golden("blocks/inputs")}


def flat(codes):
    return codes.contiguous().view(torch.uint8).flatten()


def same_floats(a, b):
    """Whether two float32 tensors have the same bits, or are nan together."""
    a, b = a.flatten(), b.flatten()
    equal = a.view(torch.int32) == b.view(torch.int32)
    return bool((equal | (a.isnan() & b.isnan())).all())


class Casts(TestCase):
    def test_torch(self):
        """All float16 and bfloat16 numbers, with the policy of PyTorch 2.13."""
        bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            x = (bits.view(torch.bfloat16).float() if dtype == torch.float32
                 else bits.view(dtype))
            finite = x.float()
            for format in (E4M3, E5M2, torch.float8_e4m3fnuz,
                           torch.float8_e5m2fnuz):
                message = (dtype, format)
                found = float8.quantize(x, format, policy="torch")
                stock = x.to(format)
                self.assertTrue(torch.equal(flat(found.codes), flat(stock)),
                                message)
                self.assertEqual(found.codes.dtype, format)
                self.assertEqual(int(found.nan_count), int(x.isnan().sum()))
                self.assertEqual(int(found.flushed), int(
                    ((stock.float() == 0) & (x != 0)).sum()), message)
                beyond = finite.abs() > torch.finfo(format).max
                near = finite.abs() < torch.finfo(format).max * 1.1
                self.assertLessEqual(int((beyond & ~near).sum()),
                                     int(found.saturated), message)
                self.assertLessEqual(int(found.saturated), int(beyond.sum()))
                wide = float8.dequantize(found.codes, torch.float32)
                self.assertTrue(same_floats(wide, stock.float()), message)

    def test_torch_powers(self):
        """float8_e8m0fnu, as PyTorch 2.13."""
        bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
        for dtype in (torch.bfloat16, torch.float16):
            x = bits.view(dtype)
            found = float8.quantize(x, torch.float8_e8m0fnu, policy="torch")
            stock = x.to(torch.float8_e8m0fnu)
            self.assertTrue(torch.equal(flat(found.codes), flat(stock)), dtype)
            self.assertTrue(same_floats(float8.dequantize(found.codes),
                                        stock.float()), dtype)

    def test_scale_and_shape(self):
        x = torch.randn(6, 8)
        for format, sizes in (("hifloat8", (6, 8)), ("float6_e2m3fn", (6, 8)),
                              ("mxint8", (6, 8)), ("float4_e2m1fn_x2", (6, 4)),
                              (E4M3, (6, 8))):
            found = float8.quantize(x.t().contiguous().t(), format, 0.5)
            self.assertEqual(found.codes.shape, sizes)
            self.assertEqual(float(found.amax), float(x.abs().max()))
            back = float8.dequantize(found.codes, scale=2.0, format=format)
            self.assertLess(float((back - x).abs().max()), 0.6)

    def test_stochastic(self):
        x = torch.full((1 << 16,), 1 + 1 / 32)
        sums = [float8.dequantize(float8.quantize(
            x, E4M3, rounding="stochastic", seed=seed).codes).mean()
            for seed in (1, 2)]
        self.assertNotEqual(*sums)
        for mean in sums:
            self.assertLess(abs(mean - x[0]), 2e-3)
        a, b = on_threads(lambda: float8.quantize(
            x, E4M3, rounding="stochastic", seed=3).codes)
        self.assertTrue(torch.equal(flat(a), flat(b)))


def block_codes(row, scaling, **how):
    """The golden codes and scales of a row, and those of quantize_blocks(), also
    of both directions at once."""
    x = INPUTS[row["input"]]
    columns = row.get("dir") == "col"
    format = FORMATS[row.get("fmt", "e2m1")]
    if "te_nvfp4" in scaling:
        how["tensor_amax"] = float8.amax(x)
    policy = "saturate" if "torchao" in row["recipe"] else "cuda_saturate"
    for both in (False, True):
        found = float8.quantize_blocks(
            x, format, scaling, rows=both or not columns,
            columns=both or columns, policy=policy, **how)
        yield found[1 if columns else 0]


def operand_cast(format):
    """The cast of a tensor to a format of float8."""
    cast = float8.CastConfig(target_dtype=getattr(torch, format))
    return float8.Float8LinearConfig(cast_config_input=cast).casts()["input"]


class Golden(TestCase):
    """tests/golden/float8/blocks and products, bit for bit."""

    def check(self, row, found, scales):
        message = {key: row[key] for key in row if len(str(row[key])) < 40}
        codes = octets(row["codes"])
        known = torch.ones(len(codes), dtype=torch.bool)
        if found.scales.dtype == torch.float8_e8m0fnu:  # ff: the codes are open
            known = (octets(scales) != 0xff).repeat_interleave(
                len(codes) // len(octets(scales)))
        self.assertTrue(torch.equal(flat(found.codes)[known], codes[known]),
                        message)
        if found.scales.dtype == torch.float32:
            self.assertTrue(same_floats(found.scales, floats(scales)), message)
        else:
            self.assertTrue(torch.equal(flat(found.scales), octets(scales)),
                            message)

    def test_mxfp8(self):
        for row in golden("blocks/te_mxfp8"):
            for found in block_codes(row, "te_mxfp8"):
                self.check(row, found, row["scales"])

    def test_blocks_of_128(self):
        for row in golden("blocks/te_block"):
            scaling = "te_block_power_of_2" if row["pow2"] else "te_block"
            for found in block_codes(row, scaling,
                                     square=row["tile"] == "128x128"):
                self.check(row, found, row["scale_inv"])

    def test_nvfp4(self):
        for row in golden("blocks/te_nvfp4"):
            square = row["tile"] == "16x16"
            for found in block_codes(row, "te_nvfp4", square=square):
                self.check(row, found, row["scales"])
            if "codes_stochastic" in row:
                x = INPUTS[row["input"]]
                found, _ = float8.quantize_blocks(
                    x, FORMATS["e2m1"], "te_nvfp4",
                    tensor_amax=floats(row["global_amax"]),
                    rounding="stochastic", policy="cuda_saturate",
                    random=octets(row["random_octets"]).view_as(x))
                self.check({**row, "codes": row["codes_stochastic"]}, found,
                           row["scales"])

    def test_torchao_mx(self):
        for row in golden("blocks/torchao_mx"):
            for found in block_codes(row, f"mx_{row['mode']}"):
                self.check(row, found, row["scales"])

    def test_rows_and_tensors(self):
        """torchao's and Transformer Engine's, by the casts of the layers."""
        for row in golden("blocks/torchao_float8") + golden("blocks/te_current"):
            x, format = INPUTS[row["input"]], FORMATS[row["fmt"]]
            te = row["recipe"].startswith("te")
            kind = (float8.ScalingGranularity.AXISWISE if "rowwise" in
                    row["recipe"] else float8.ScalingGranularity.TENSORWISE)
            name = "te.Float8CurrentScaling" if te else None
            cast = float8.CastConfig(float8.ScalingType.DYNAMIC, kind, format,
                                     name)
            config = float8.Float8LinearConfig(
                *[cast] * 6, round_scales_to_power_of_2="rowwise" in row["recipe"],
                options={"use_power_2_scales": row["pow2"]} if te else {})
            found = float8._along_rows(x, config.casts()["input"], "input",
                                       None, None)
            self.assertTrue(torch.equal(flat(found.codes),
                                        octets(row["codes"])), row["recipe"])
            self.assertTrue(same_floats(found.scales.float(),
                                        1 / floats(row["scale"])))

    def test_products(self):
        """Sums of codes, and with scales of tensors; NVFP4's reference."""
        for row in golden("products/exact"):
            (a, x), (b, y) = (
                (octets(row[f"codes_{n}"]).view(-1, row["K"]).view(
                    getattr(torch, row[n])), row[n]) for n in ("a", "b"))
            for scales, name in (((1.0, 1.0), "sums"), (tuple(
                    floats(row[f"scale_inv_{n}"]) for n in "ab"), "out")):
                factors = [torch.as_tensor(s).float() for s in scales]
                found = float8._product(*(float8._Operand(
                    codes, factor, None, operand_cast(format))
                    for codes, factor, format in zip(
                        (a, b), factors, (x, y))), torch.float32)
                self.assertTrue(same_floats(found, floats(row[name])), name)
        cast = config_of("nvfp4", {}).casts()["input"]
        for row in golden("products/nvfp4"):
            found = float8._product(*(float8._Operand(
                octets(row[f"codes_{n}"]).view(-1, row["K"] // 2).view(
                    FORMATS["e2m1"]),
                octets(row[f"scales_{n}"]).view(-1, row["K"] // 16).view(E4M3),
                floats(row[f"amax_{n}"]), cast) for n in ("x", "w")),
                torch.float32)
            self.assertTrue(same_floats(found, floats(row["out"])))

    def test_hadamard(self):
        for row in golden("blocks/te_rht"):
            x = INPUTS[row["input"]].t()
            self.assert_same(float8.hadamard_transform(x),
                             of_bfloat16(row, *x.shape))


class Scales(TestCase):
    """tests/golden/float8/scales, bit for bit."""

    def test_delayed(self):
        for row in golden("scales/te_delayed"):
            manager = float8.ScaleManager(
                "te.DelayedScaling", 1, 1, fused=row["fused"],
                margin=row["margin"], amax_history_len=row["amax_history_len"],
                amax_compute_algo=row["amax_compute_algo"])
            at = 0 if row["fmt"] == "e4m3" else 1
            for step in row["steps"]:
                amax = torch.full((2,), -1.0)
                amax[at] = floats(step["reduced"])
                manager.observe_all(amax)
                manager.update()
                manager = pickle.loads(pickle.dumps(copy.deepcopy(manager)))
                scale, scale_inv = manager.scales()
                self.assertTrue(same_floats(scale[at], floats(step["scale"])))
                self.assertTrue(same_floats(scale_inv[at],
                                            floats(step["scale_inv"])))
                key = f"amax_history_{('fwd', 'bwd')[at]}"
                self.assertTrue(same_floats(manager.state_dict()[key],
                                            floats(step["history"])), row)

    def test_current(self):
        for row in golden("scales/te_current"):
            manager = float8.ScaleManager(
                "te.Float8CurrentScaling", 1, 1, use_power_2_scales=row["pow2"],
                amax_epsilon=float(floats(row["eps"])))
            manager.observe_all(floats(row["amax"]).expand(2))
            at = 0 if row["fmt"] == "e4m3" else 1
            for found, name in zip(manager.scales(), ("scale", "scale_inv")):
                self.assertTrue(same_floats(found[at], floats(row[name])), row)

    def test_nvfp4(self):
        for row in golden("scales/te_nvfp4"):
            manager = float8.ScaleManager("te.NVFP4BlockScaling", 1)
            manager.observe_all(floats(row["global_amax"]))
            self.assertTrue(same_floats(manager.scales()[0],
                                        floats(row["s_enc"])), row)
            amax = floats([block["amax"] for block in row["blocks"]])
            factor, _, codes = manager.block_scales(0, amax)
            self.assertEqual(codes.tolist(), words(
                "".join(block["e4m3"] for block in row["blocks"]), 2))
            self.assertTrue(same_floats(factor, floats(
                [block["factor"] for block in row["blocks"]])))


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


X = torch.ones(4, 32)
DELAYED = layer_of("te_delayed_hybrid", amax_history_len=4).state_dict()
# What is called, the type of the error, and what its text has.
ERRORS = [
    (lambda: float8.quantize(X, "float9"), ValueError,
     "format: got 'float9', expected one of 'float8_e4m3fn'"),
    (lambda: float8.quantize(X, E4M3, 0.0), RuntimeError,
     "options.scale: got 0, expected a finite number larger than 0"),
    (lambda: float8.quantize(X, E4M3, math.nan), RuntimeError, "options.scale: got"),
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


if __name__ == "__main__":
    main()
