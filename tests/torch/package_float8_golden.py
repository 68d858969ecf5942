"""swamp_torch.float8's casts, products and scales against the golden data and
PyTorch's own casts, bit for bit."""

import copy
import importlib.util
import json
import pathlib
import pickle

from support import TestCase, main, on_threads

import torch

from swamp_torch import _float8_products, float8

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/float8"
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
FORMATS = {"e4m3": E4M3, "e5m2": E5M2, "e2m1": torch.float4_e2m1fn_x2}


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


def bytes_from(text):
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

    def test_numpy_dtypes(self):
        """ml_dtypes 0.6 and en_dtypes 0.0.4, where they are installed: all bfloat16
        and float16 numbers."""
        bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
        rows = [("ml_dtypes", name, name, "ml_dtypes") for name in (
            "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
            "float6_e2m3fn", "float6_e3m2fn")] + [
                ("en_dtypes", "hifloat8", "hifloat8", "overflow")]
        for module, dtype, format, policy in rows:
            with self.subTest(dtype):
                if importlib.util.find_spec(module) is None:
                    self.skipTest(f"no {module}")
                other = getattr(importlib.import_module(module), dtype)
                for half in (torch.bfloat16, torch.float16):
                    x = bits.view(half).float()
                    found = float8.quantize(bits.view(half), format, policy=policy)
                    theirs = torch.from_numpy(
                        x.numpy().astype(other).view("uint8").copy())
                    self.assertTrue(torch.equal(flat(found.codes), theirs), half)

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

    def test_nan(self):
        """A nan stays one, alone and among zeros, in each format that has it."""
        x = torch.zeros(200)
        x[:64] = x[150] = float("nan")
        for format in (E4M3, E5M2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
                       "hifloat8", torch.float8_e8m0fnu):
            codes = float8.quantize(x, format).codes
            back = float8.dequantize(codes, format=format)
            self.assertTrue(torch.equal(back.isnan(), x.isnan()), format)

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


# A golden file of blocks, the scaling of a row, and the field of its scales.
BLOCKS = [("te_mxfp8", lambda row: "te_mxfp8", "scales"),
          ("te_block", lambda row: "te_block" + "_power_of_2" * row["pow2"],
           "scale_inv"),
          ("te_nvfp4", lambda row: "te_nvfp4", "scales"),
          ("torchao_mx", lambda row: f"mx_{row['mode']}", "scales")]


def operand_cast(format):
    """The cast of a tensor to a format of float8."""
    cast = float8.CastConfig(target_dtype=getattr(torch, format))
    return float8.Float8LinearConfig(cast_config_input=cast).casts()["input"]


class Golden(TestCase):
    """tests/golden/float8/blocks and products, bit for bit."""

    def check(self, found, codes, scales, message):
        codes = bytes_from(codes)
        known = torch.ones(len(codes), dtype=torch.bool)
        if found.scales.dtype == torch.float8_e8m0fnu:  # ff: the codes are open
            known = (bytes_from(scales) != 0xff).repeat_interleave(
                len(codes) // len(bytes_from(scales)))
        self.assertTrue(torch.equal(flat(found.codes)[known], codes[known]),
                        message)
        self.assertTrue(
            same_floats(found.scales, floats(scales))
            if found.scales.dtype == torch.float32
            else torch.equal(flat(found.scales), bytes_from(scales)), message)

    def test_blocks(self):
        """Rows or columns, and both at once; stochastic rounding."""
        for file, scaling, scales in BLOCKS:
            for row in golden(f"blocks/{file}"):
                message = {key: row[key] for key in row if len(str(row[key])) < 40}
                x, column = INPUTS[row["input"]], row.get("dir") == "col"
                how = {"policy": "saturate" if "torchao" in file else
                       "cuda_saturate"}
                if file == "te_nvfp4":
                    how["tensor_amax"] = float8.amax(x)
                format = FORMATS[row.get("fmt", "e2m1")]
                for both in (False, True):
                    found = float8.quantize_blocks(
                        x, format, scaling(row), rows=both or not column,
                        columns=both or column,
                        square=row.get("tile") in ("128x128", "16x16"), **how)
                    self.check(found[column], row["codes"], row[scales], message)
                if "codes_stochastic" in row:
                    found, _ = float8.quantize_blocks(
                        x, format, scaling(row), rounding="stochastic",
                        random=bytes_from(row["random_octets"]).view_as(x), **how)
                    self.check(found, row["codes_stochastic"], row[scales], message)

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
            found, _ = _float8_products._along_rows(
                x, config.casts()["input"], "input", None, None)
            self.assertTrue(torch.equal(flat(found.codes),
                                        bytes_from(row["codes"])), row["recipe"])
            self.assertTrue(same_floats(found.scales.float(),
                                        1 / floats(row["scale"])))

    def test_products(self):
        """Sums of codes, and with scales of tensors; NVFP4's reference."""
        for row in golden("products/exact"):
            (a, x), (b, y) = (
                (bytes_from(row[f"codes_{n}"]).view(-1, row["K"]).view(
                    getattr(torch, row[n])), row[n]) for n in ("a", "b"))
            for scales, name in (((1.0, 1.0), "sums"), (tuple(
                    floats(row[f"scale_inv_{n}"]) for n in "ab"), "out")):
                factors = [torch.as_tensor(s).float() for s in scales]
                found = _float8_products._product(*(_float8_products.Operand(
                    codes, factor, None, operand_cast(format))
                    for codes, factor, format in zip(
                        (a, b), factors, (x, y))), torch.float32, True)
                self.assertTrue(same_floats(found, floats(row[name])), name)
        cast = float8.Float8LinearConfig.from_recipe_name("nvfp4").casts()[
            "input"]
        for row in golden("products/nvfp4"):
            found = _float8_products._product(*(_float8_products.Operand(
                bytes_from(row[f"codes_{n}"]).view(-1, row["K"] // 2).view(
                    FORMATS["e2m1"]),
                bytes_from(row[f"scales_{n}"]).view(-1, row["K"] // 16).view(E4M3),
                floats(row[f"amax_{n}"]), cast) for n in ("x", "w")),
                torch.float32, True)
            self.assertTrue(same_floats(found, floats(row["out"])))

    def test_hadamard(self):
        for row in golden("blocks/te_rht"):
            x = INPUTS[row["input"]].t()
            self.assert_same(float8.hadamard_transform(x),
                             of_bfloat16(row, *x.shape))


def members(*names, **others):
    """Options that are fields of a golden row, or follow from it."""
    return lambda row: {
        **{option: row[field] for option, field in
           ((name.partition("=")[0], name.rpartition("=")[2]) for name in names)},
        **{option: value(row) if callable(value) else value
           for option, value in others.items()}}


# A golden file, its recipe, the fields of scale, inverse and stored scale, the
# options, whether amax is of a block; and the fields of "blocks". `swamp replay`
# checks all files; these are of each kind that Python handles.
HYBRID = {"fp8_format": "HYBRID"}
SCALES = [
    ("te_delayed", "te.DelayedScaling", ("scale", "scale_inv"), members(
        "fused", "margin", "amax_history_len", "amax_compute_algo")),
    ("te_current", "te.Float8CurrentScaling", ("scale", "scale_inv"), members(
        "use_power_2_scales=pow2",
        amax_epsilon=lambda row: float(floats(row["eps"])))),
    ("te_block", "te.Float8BlockScaling", ("scale", "scale_inv"), members(
        "power_2_scale=pow2", "input_dtype=input", **HYBRID), True),
    ("te_mxfp8", "te.MXFP8BlockScaling", ("factor", None, "e8m0"),
     members(**HYBRID), True),
    ("te_nvfp4", "te.NVFP4BlockScaling", ("s_enc",), members(), False,
     ("factor", None, "e4m3")),
    ("torchao_nvfp4", "torchao.nvfp4", (None, "per_tensor_scale"), members(),
     False, ("factor", None, "e4m3")),
]


class Scales(TestCase):
    """tests/golden/float8/scales, bit for bit."""

    def check(self, found, fields, rows):
        for tensor, field in zip(found, fields):
            if field is None:
                continue
            golden = [row[field] for row in rows]
            self.assertTrue(
                same_floats(tensor, floats(golden)) if tensor.is_floating_point()
                else torch.equal(tensor, bytes_from("".join(golden))), rows)

    def replay(self, row, name, fields, options, is_block=False, of_blocks=()):
        manager = float8.ScaleManager(name, 1, 1, **options(row))
        at = int(row.get("fmt") == "e5m2")
        for step in row.get("steps", [row]):
            amax = floats(next(step[key] for key in (
                "amax", "reduced", "global_amax", "tensor_amax")
                if key in step))
            if is_block:
                self.check(manager.block_scales(at, amax), fields, [step])
                continue
            seen = torch.full((2,), -1.0)
            seen[at] = amax
            manager.observe_all(seen)
            if "steps" not in row:  # in time
                self.check([s[at:at + 1] for s in manager.scales()], fields, [row])
            manager.update()
            self.check([s[at:at + 1] for s in manager.scales()], fields, [step])
            if of_blocks:
                amax = floats([block["amax"] for block in row["blocks"]])
                self.check(manager.block_scales(at, amax), of_blocks,
                           row["blocks"])
            if "history" in step:
                manager = pickle.loads(pickle.dumps(copy.deepcopy(manager)))
                key = f"amax_history_{('fwd', 'bwd')[at]}"
                self.check([manager.state_dict()[key]], ["history"], [step])

    def test_golden(self):
        for file, *how in SCALES:
            for row in golden(f"scales/{file}"):
                self.replay(row, *how)


if __name__ == "__main__":
    main()
