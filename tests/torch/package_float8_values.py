"""swamp_torch.float8's values of codes and the products of them: against the codes,
exact sums, other CPUs and compiled code; the cache of weights."""

import itertools
import json

from support import CI, TestCase, caught, main, on_threads, python  # first: for python()
from package_float8 import (HIDDEN, RECIPES, TOKENS, WIDTH, config_of, decibels,
                            make_model, train)

import torch

from swamp_torch import _float8_products, float8

E2M1 = torch.float4_e2m1fn_x2
# Scaling, format, block (0: the scaling's), whether along columns too.
BLOCKS = [
    *((scaling, torch.float8_e4m3fn, 0, True) for scaling in (
        "mx_floor", "mx_ceil", "mx_even", "mx_rceil", "te_mxfp8", "microxcaling",
        "te_block", "te_block_power_of_2")),
    ("te_mxfp8", torch.float8_e5m2, 0, True), ("mx_floor", "float6_e3m2fn", 0, True),
    ("mx_floor", "mxint8", 64, True), ("torchao_float8", "hifloat8", 32, True),
    ("te_nvfp4", E2M1, 0, True), ("torchao_nvfp4", E2M1, 0, True),
    ("torchao_float8", torch.float8_e5m2fnuz, 0, False),
    ("torchao_float8_power_of_2", torch.float8_e4m3fn, 0, False)]


def products(name, options, dtype, scale=1.0, model=None):
    """Output and gradients of a layer."""
    torch.manual_seed(2)
    layer = model or float8.Float8Linear(WIDTH, HIDDEN, config=config_of(name, options),
                                         dtype=dtype)
    x = (torch.randn(TOKENS, WIDTH) * scale).to(dtype).requires_grad_()
    grad = torch.randn(TOKENS, HIDDEN).to(dtype)
    output = layer(x)
    output.backward(grad)
    return [one.detach() for one in (output, x.grad, layer.weight.grad)]


def digests():
    """Of the results of every recipe, on an ISA of the environment."""
    return [[float(one.float().double().abs().sum()) for one in
             products(name, options, torch.bfloat16)] for name, options, _ in RECIPES]


class Values(TestCase):
    def test_values(self):
        """Values are those of the codes, with the same random bits."""
        for (scaling, format, block, both), dtype, square in itertools.product(
                BLOCKS, (torch.bfloat16, torch.float32), (False, True)):
            if square and not both:
                continue
            torch.manual_seed(3)
            x = torch.randn(96, 160).to(dtype)
            is_four = format is E2M1
            how = dict(block=block, square=square, policy="saturate", seed=7,
                       tensor_amax=float8.amax(x) if is_four else None,
                       rounding="stochastic" if is_four else None)
            for hadamard in (False, both and not square):
                codes = float8.quantize_blocks(x, format, scaling, columns=both,
                                               hadamard=hadamard, **how)
                found = float8.quantized_values(x, format, scaling, columns=both,
                                                hadamard=hadamard, **how)
                for code, values, turn in zip(codes, (found.rows, found.columns),
                                              (False, True)):
                    if code is None:
                        self.assertIsNone(values)
                        continue
                    again = float8.dequantize_blocks(
                        code, scaling, format=format, block=block, square=square,
                        tensor_amax=how["tensor_amax"])
                    again = again.t() if turn else again
                    if is_four:  # the factor of the tensor is not in the values
                        values = values.float() * (how["tensor_amax"] / 2688)
                        self.assertGreater(decibels(values, again), 130)
                    else:
                        self.assert_same(values.float(), again.contiguous())
                self.assertEqual(found.amax, float8.amax(x) if not hadamard
                                 else found.amax)

    def test_counts(self):
        x = torch.tensor([[1000.0, 448.0, 1e-9, 0.0]]).repeat(32, 8)
        found = float8.quantized_values(x, torch.float8_e4m3fn, "mx_floor")
        # 1000 / 2 is beyond the largest number, 448; 1e-9 becomes 0.
        self.assertEqual([int(one) for one in found[3:]], [256, 256])
        found = float8.quantized_values(x, torch.float8_e4m3fn, "te_mxfp8",
                                        rows=False, columns=True)
        self.assertIsNone(found.rows)
        self.assertEqual([int(one) for one in found[3:]], [0, 0])

    def test_sums(self):
        """Float32 sums are near the exact ones, of the same codes."""
        for name, options, _ in RECIPES:
            if name == "nvfp4":  # the random bits differ
                options = {**options, "disable_stochastic_rounding": True}
            for dtype, least in ((torch.float32, 118), (torch.bfloat16, 60)):
                for a, b in zip(*(products(name, {**options, "accumulation": sums},
                                           dtype) for sums in ("float32", "exact"))):
                    self.assertGreater(decibels(a, b), least, (name, options, dtype))
        self.assertIn("accumulation: got 'double', expected one of",
                      caught(lambda: config_of("mxfp8", {"accumulation": "double"}))[1])

    def test_dtype(self):
        """What the scales decide, tensors without memory have, too."""
        x = torch.randn(32, 128)
        for scaling, dtype in (
                ("te_block", torch.float32), ("te_block_power_of_2", torch.bfloat16),
                ("torchao_float8", torch.float32),
                ("torchao_float8_power_of_2", torch.bfloat16)):
            for one in (x, x.to("meta")):
                found = float8.quantized_values(one, torch.float8_e4m3fn, scaling)
                self.assertEqual(found.rows.dtype, dtype, (scaling, one.device))

    def test_float32(self):
        """If bfloat16 lacks bits, values are float32, also in compiled code."""
        for name in ("mxfp8", "te_block"):
            x = torch.full((32, 128), 2.0 ** -133) * torch.linspace(1, 2, 128)
            scaling = {"mxfp8": "te_mxfp8", "te_block": "te_block_power_of_2"}[name]
            found = float8.quantized_values(x, torch.float8_e4m3fn, scaling)
            wide = float8.quantized_values(x * 2.0 ** 60, torch.float8_e4m3fn, scaling)
            self.assertEqual(found.rows.dtype, torch.float32)
            self.assertEqual(wide.rows.dtype, torch.bfloat16)
            exact, eager = (products(name, {"accumulation": sums}, torch.float32,
                                     2.0 ** -133) for sums in ("exact", "float32"))
            for a, b in zip(eager[:2], exact[:2]):
                self.assertGreater(decibels(a, b), 100, name)
            # A compiler for each recipe takes long.
            for backend in ("aot_eager", *["inductor"] * (CI or name == "mxfp8")):
                torch._dynamo.reset()
                torch.manual_seed(2)
                layer = float8.Float8Linear(WIDTH, HIDDEN, config=config_of(name, {}))
                with torch.no_grad():
                    layer.bias.zero_()
                compiled = torch.compile(layer, fullgraph=True, backend=backend)
                again = []
                for model in (layer, compiled):
                    layer.weight.grad = None
                    torch.manual_seed(2)
                    x = (torch.randn(TOKENS, WIDTH) * 2.0 ** -133).requires_grad_()
                    output = model(x)
                    output.backward(torch.ones_like(output))
                    again.append((output.detach(), x.grad, layer.weight.grad))
                for a, b in zip(*again):
                    self.assert_same(a, b, backend)

    def test_machines(self):
        """The same bits on any number of threads and every ISA."""
        one, two, three = on_threads(digests, (1, 2, 3))
        self.assertEqual(one, two)
        self.assertEqual(one, three)
        for isa in ("avx2", "scalar"):
            done = python("import json, package_float8_values as t\n"
                          "print(json.dumps(t.digests()))", SWAMP_ISA=isa)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout.splitlines()[-1]), one, isa)

    def test_cached_weights(self):
        """A weight is quantized once for the micro batches of a step."""
        for name, options, _ in RECIPES:
            plain, cached = (make_model(name, options) for _ in range(2))
            inputs = [torch.randn(TOKENS, WIDTH).bfloat16() for _ in range(3)]
            seen, quantized = [], _float8_products._quantized

            def count(x, role, *rest):
                seen.append(role)
                return quantized(x, role, *rest)

            for step in range(2):
                for x in inputs:
                    plain(x).float().sum().backward()
                _float8_products._quantized = count
                seen.clear()
                try:
                    with float8.cached_weights(cached):
                        for x in inputs:
                            cached(x).float().sum().backward()
                        with torch.no_grad():
                            cached(inputs[0])
                finally:
                    _float8_products._quantized = quantized
                # The weight of each layer; of delayed scaling in each pass.
                self.assertEqual(seen.count("weight"),
                                 8 if name == "te_delayed_hybrid" else 2, name)
                with torch.no_grad():
                    plain(inputs[0])
                    for a, b in zip(plain.parameters(), cached.parameters()):
                        self.assert_same(a.grad, b.grad, name)
                        for one in a, b:
                            one -= 0.01 * one.grad
                            one.grad = None
            cache = next(m for m in cached.modules()
                         if isinstance(m, float8.Float8Linear))._cache
            self.assertIsNone(cache)

    def test_training(self):
        """Trains as with exact sums."""
        for name in ("te_current", "mxfp8", "hif8"):
            losses = [train(make_model(name, {"accumulation": sums}), 30)[0][-5:].mean()
                      for sums in ("float32", "exact")]
            self.assertLess(abs(losses[0] / losses[1] - 1), 0.02, name)


if __name__ == "__main__":
    main()
