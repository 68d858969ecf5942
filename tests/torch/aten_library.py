"""What the library adds to PyTorch: quiet loading, its own operators, errors that
change nothing, the environment."""

import json
import math
import unittest
import warnings

from support import DTYPES, PATH, main, python, unscale

import torch


def check(tensors):
    return torch.ops.swamp.any_nonfinite(tensors)


class Loading(unittest.TestCase):
    def test_prints_nothing(self):
        done = python("import sys, torch\n"
                      "torch.ops.load_library(sys.argv[1])\n")
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, "", ""))

    def test_other_warnings_pass(self):
        done = python("import sys, torch\n"
                      "torch.ops.load_library(sys.argv[1])\n"
                      "torch.ones(2, 2).to_sparse_csr()\n")
        self.assertIn("Sparse CSR tensor support is in beta", done.stderr)

    def test_twice(self):
        torch.ops.load_library(PATH)
        for operator in ("_amp_foreach_non_finite_check_and_unscale_",
                         "_amp_update_scale_"):
            self.assertRegex(torch._C._dispatch_dump(f"aten::{operator}"),
                             "\nCPU: .*master/aten")

    def test_bad_environment(self):
        code = ("import sys, torch\n"
                "torch.ops.load_library(sys.argv[1])\n"
                "x = torch.ones(3)\n"
                "try:\n"
                "  torch._amp_foreach_non_finite_check_and_unscale_(\n"
                "      [x], torch.zeros(()), torch.tensor(.5))\n"
                "except RuntimeError as error:\n"
                "  print(type(error).__name__, error, x)\n")
        done = python(code, SWAMP_ISA="quick")
        self.assertRegex(done.stdout, "^RuntimeError swamp: .*SWAMP_ISA.*quick"
                         "(?s:.*)1., 1., 1.")
        done = python(code, SWAMP_BACKEND="athread")
        self.assertIn("SWAMP_BACKEND", done.stdout)


class Information(unittest.TestCase):
    def test_version(self):
        self.assertRegex(torch.ops.swamp.version(), r"^\d+\.\d+\.\d+$")

    def test_info(self):
        info = json.loads(torch.ops.swamp.info())
        self.assertEqual(info["version"], torch.ops.swamp.version())
        self.assertEqual(info["torch"], torch.__version__.split("+")[0])
        self.assertIn(info["isa"], info["available"]["isa"])
        for key in ("machine", "core_groups", "slaves_per_group", "ldm_bytes",
                    "backend", "transfer", "bind", "cpu", "cores", "threads",
                    "topology", "compiler", "products"):
            self.assertIn(key, info)


class AnyNonfinite(unittest.TestCase):
    def test_answers(self):
        base = torch.ones(60, 80)
        base[7, 9] = math.inf
        rows = [([], 0), ([torch.empty(0)], 0), ([torch.empty(3, 0)], 0)]
        rows += [([base[0], view, view], expected) for view, expected in (
            (base[:, 10:], 0), (base[:, 9:], 1), (base.t()[9], 1), (base[::7], 1),
            (base[::2], 0), (base[7, 9].expand(5, 5), 1), (base[0, :1].expand(5), 0),
            (base[7].expand(3, 80), 1))]
        for dtype in DTYPES:
            rows += [([torch.ones(100, dtype=dtype), torch.full((40, 50), x).to(dtype)], y)
                     for x, y in ((1, 0), (math.inf, 1), (-math.inf, 1), (math.nan, 1))]
            for place in range(67):
                tensor = torch.ones(67, dtype=dtype)
                tensor[place] = math.nan
                rows += [([tensor], 1), ([tensor[:place]], 0)]
        for tensors, expected in rows:
            answer = check(tensors)
            self.assertEqual(
                (answer.item(), answer.dtype, answer.shape, answer.device),
                (expected, torch.float32, (), torch.device("cpu")), tensors)

    def test_writes_nothing(self):
        values = torch.tensor([1.0, math.nan, 2.0]).half()
        bits = values.view(torch.int16).clone()
        check([values, values])
        self.assertTrue(torch.equal(values.view(torch.int16), bits))
        self.assertEqual(values._version, 0)

    def test_gradients(self):
        leaf = torch.ones(3, requires_grad=True)
        product = leaf * 2
        self.assertFalse(check([product, leaf]).requires_grad)
        product.sum().backward()
        self.assertEqual(leaf.grad.tolist(), [2.0, 2.0, 2.0])

    def test_errors(self):
        with self.assertRaisesRegex(
                NotImplementedError,
                "^\"any_nonfinite_cpu\" not implemented for 'Int'"):
            check([torch.ones(3), torch.ones(3, dtype=torch.int32)])
        with self.assertRaisesRegex(NotImplementedError, "takes strided CPU"):
            check([torch.eye(3).to_sparse()])

    def test_compile_of_the_overridden(self):
        def step(x, found, inv_scale):
            y = x * 3
            torch._amp_foreach_non_finite_check_and_unscale_([y], found,
                                                             inv_scale)
            return y

        compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
        found = torch.zeros(())
        answer = compiled(torch.tensor([1.0, math.inf]), found,
                          torch.tensor(0.5))
        self.assertEqual((answer.tolist(), found.item()),
                         ([1.5, math.inf], 1.0))


class Errors(unittest.TestCase):
    """Unlike stock, an error changes nothing."""

    def test_nothing_is_written(self):
        for bad, error in ((torch.ones(3, dtype=torch.int32),
                            NotImplementedError),
                           (torch.ones(1).expand(4), RuntimeError)):
            good = torch.tensor([1.0, math.inf])
            found = torch.zeros(())
            with self.assertRaises(error):
                unscale([good, good[:1], bad], found, torch.tensor(0.5))
            self.assertEqual((good.tolist(), found.item()),
                             ([1.0, math.inf], 0.0))

    def test_inv_scale_one_only_reads(self):
        # 0x7f81 is a signalling nan that stock rewrites.
        bits = torch.tensor([0x7f81, 0x3f80, 0x7f80], dtype=torch.int16)
        grads, found = bits.view(torch.bfloat16), torch.zeros(())
        unscale([grads, grads[::2]], found, torch.tensor(1.0))
        self.assertEqual(bits.tolist(), [0x7f81, 0x3f80, 0x7f80])
        self.assertEqual(found.item(), 1.0)


if __name__ == "__main__":
    torch.ops.load_library(PATH)
    warnings.simplefilter("ignore")
    main()
