"""swamp_torch: the import, the switch back to stock PyTorch, and the functions."""

import copy
import importlib.util
import inspect
import itertools
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import typing

from support import DTYPES, TestCase, main, python, unscale

import torch

import swamp_torch


def minor_of(version):
    return ".".join(version.split(".")[:2])


MINOR = minor_of(torch.__version__)


def stock_kernel_runs():
    """Stock unscales tensor by tensor until one is bad; swamp validates all first."""
    first, bad = torch.full((3,), 8.0), torch.ones(3, dtype=torch.int32)
    try:
        unscale([first, bad], torch.zeros(()), torch.tensor(0.5))
    except NotImplementedError:
        return first[0].item() == 4.0
    raise AssertionError("an int32 gradient was taken")


class Import(TestCase):
    def test_prints_nothing(self):
        """Not even PyTorch's warning of replaced kernels; its others pass."""
        for code, warning in (("", "^$"), ("torch.ones(2, 2).to_sparse_csr()",
                                           "Sparse CSR tensor support is in beta")):
            done = python(f"import torch, swamp_torch\n{code}")
            self.assertEqual((done.returncode, done.stdout), (0, ""))
            self.assertRegex(done.stderr, warning)

    def test_unknown_variable(self):
        done = python("import swamp_torch", SWAMP_ISA="",
                      SWAMP_FOO="1", SWAMP_BACKENT="serial")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertRegex(
            done.stderr, r"UserWarning: environment: got (SWAMP_FOO, )?SWAMP_BACKENT "
            r"\(did you mean SWAMP_BACKEND\?\)(, SWAMP_FOO)?, expected variables that "
            "swamp knows")
        self.assertIn("SWAMP_FOO", done.stderr)

    def test_version(self):
        info = swamp_torch.info()
        self.assertEqual(swamp_torch.__version__, info["version"])
        self.assertEqual(torch.ops.swamp.version(), info["version"])
        self.assertRegex(info["version"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(minor_of(info["torch"]), MINOR)
        self.assertIn(info["isa"], info["available"]["isa"])
        for key in ("machine", "core_groups", "slaves_per_group", "ldm_bytes", "backend",
                    "transfer", "bind", "cpu", "cores", "threads", "topology", "compiler",
                    "products"):
            self.assertIn(key, info)

    def imported(self, *versions):
        """Of an import with each version of PyTorch, or with none for None: what it
        says, and whether the library is loaded then."""
        done = python(f"""import os, sys, torch
for version in {versions}:
  if os.fork() == 0:
    if version:
      torch.__version__ = version
    else:
      sys.modules["torch"] = None
    try:
      import swamp_torch
      text = "active" if swamp_torch.is_active() else "not active"
    except ImportError as error:
      text = str(error)
    print(text, "libswamp" in open("/proc/self/maps").read(), sep="\\n",
          end="\\0", flush=True)
    os._exit(0)
  os.wait()
""")
        self.assertEqual(done.returncode, 0, done.stderr)
        results = done.stdout.split("\0")[:-1]
        self.assertEqual(len(results), len(versions), done.stderr)
        return [result.rsplit("\n", 1) for result in results]

    def test_other_pytorch(self):
        versions = ("2.9.1+cpu", MINOR + ".0a0+git1234", "2.1.0", MINOR, "99.0.0",
                    None)
        for version, (text, loaded) in zip(versions, self.imported(*versions)):
            self.assertEqual(loaded, "False", version)
            self.assertNotIn("\n", text)
            for word in (f"{sys.executable} has {version and 'PyTorch ' + version or 'no '}",
                         "expected PyTorch " + MINOR, "`pip install torch==",
                         "--no-build-isolation"):
                self.assertIn(word, text)

    def test_other_release_of_the_same_minor_version(self):
        versions = [MINOR + other for other in (".0", ".97", ".0+cpu", ".1+cu130")]
        for version, result in zip(versions, self.imported(*versions)):
            self.assertEqual(result, ["active", "True"], version)

    def test_library_is_there_already(self):
        """Registering the operators a second time would end the process."""
        done = python(
            "import os, shutil, sys, tempfile, torch\n"
            "import importlib.util\n"
            "here = importlib.util.find_spec('swamp_torch')"
            ".submodule_search_locations[0]\n"
            "names = {}\n"
            "exec(open(here + '/_build.py').read(), names)\n"
            f"library = names['LIBRARIES']['{MINOR}']\n"
            "torch.ops.load_library(os.path.join(here, library))\n"
            "import swamp_torch\n"
            "print(swamp_torch.is_active())\n")
        self.assertEqual((done.returncode, done.stdout), (0, "True\n"),
                         done.stderr)


    def test_names_in_documents(self):
        """Modules for other packages are imported when they are first used."""
        root = pathlib.Path(__file__).parents[2]
        names = {name for folder in (".", "bench", "include/swamp", "master/aten/python")
                 for name in re.findall(r"\bswamp_torch((?:\.\w+)+)",
                                        (root / folder / "README.md").read_text())}
        self.assertLessEqual({".lightning.MixedPrecision", ".transformers.apply"}, names)
        done = python(
            "import sys, swamp_torch\n"
            "print([n for n in ('lightning', 'transformers') if n in sys.modules])\n"
            f"for name in {sorted(names)}:\n"
            "  try: eval('swamp_torch' + name)\n"
            "  except ModuleNotFoundError as error: assert error.name in name, error\n"
            "try: swamp_torch.nosuch\n"
            "except AttributeError as error: print(error)\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            done.stdout, "[]\nmodule 'swamp_torch' has no attribute 'nosuch'\n")


class Active(TestCase):
    def test_stock_and_back(self):
        self.assertTrue(swamp_torch.is_active())
        self.assertFalse(stock_kernel_runs())
        for _ in range(2):
            swamp_torch.disable()
            swamp_torch.disable()
            self.assertFalse(swamp_torch.is_active())
            self.assertTrue(stock_kernel_runs())
            swamp_torch.enable()
            self.assertTrue(swamp_torch.is_active())
            self.assertFalse(stock_kernel_runs())

    def test_both_operators(self):
        """Only swamp reads SWAMP_BACKEND, and not in update_scale, whose results are
        the same."""
        done = python(
            "import torch, swamp_torch\n"
            "def run():\n"
            "  x, found = torch.full((5,), 6.), torch.zeros(())\n"
            "  scale, tracker = torch.tensor(4.), torch.tensor(0).int()\n"
            "  try:\n"
            "    torch._amp_foreach_non_finite_check_and_unscale_(\n"
            "        [x], found, torch.tensor(.5))\n"
            "  except RuntimeError as error: print(error, end=' ')\n"
            "  torch._amp_update_scale_(scale, tracker, found, 2., .5, 1)\n"
            "  print(x[0].item(), scale.item(), tracker.item())\n"
            "run(); swamp_torch.disable(); run(); swamp_torch.enable(); run()\n",
            SWAMP_BACKEND="nonsense")
        refused = "swamp: .*SWAMP_BACKEND.*nonsense(?s:.*) 6.0 8.0 0\n"
        self.assertRegex(done.stdout, f"^{refused}3.0 8.0 0\n{refused}$", done.stderr)

    def test_while_others_work(self):
        stop, wrong = threading.Event(), []

        def work():
            while not stop.is_set():
                x = [torch.full((4000,), 6.0) for _ in range(5)]
                found = torch.zeros(())
                unscale(x, found, torch.tensor(0.5))
                if found.item() or any((t != 3.0).any() for t in x):
                    wrong.append(x)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(20000):
            swamp_torch.disable()
            swamp_torch.enable()
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_disabled(self):
        names = ("half_precision", "attention", "reproducible")

        def switches():
            return tuple(swamp_torch.is_active(**{name: True}) for name in names)

        for chosen in itertools.product((False, True), repeat=3):
            swamp_torch.enable(**dict(zip(names, chosen)))
            with self.assertRaises(KeyError), swamp_torch.disabled():
                self.assertTrue(stock_kernel_runs())
                self.assertFalse(any(switches()))
                with swamp_torch.disabled():
                    pass
                self.assertFalse(swamp_torch.is_active())
                raise KeyError
            self.assertTrue(swamp_torch.is_active())
            self.assertEqual(switches(), chosen)

    def test_by_name_stays(self):
        swamp_torch.disable()
        self.assertEqual(swamp_torch.any_nonfinite(torch.tensor(torch.inf)), 1)


class Functions(TestCase):
    def test_any_nonfinite(self):
        base = torch.ones(60, 80)
        base[7, 9] = math.inf
        good, bad = torch.ones(3, 4), torch.tensor([1.0, torch.nan]).half()
        rows = [([], 0), ([torch.empty(0)], 0), ([torch.empty(3, 0)], 0), (good, 0),
                (bad, 1), ((t for t in (bad, good)), 1)]
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
            answer = swamp_torch.any_nonfinite(tensors)
            self.assertEqual(
                (answer.item(), answer.dtype, answer.shape, answer.device),
                (expected, torch.float32, (), torch.device("cpu")), tensors)
        leaf = torch.ones(3, requires_grad=True)
        product = leaf * 2
        self.assertFalse(swamp_torch.any_nonfinite([product, leaf]).requires_grad)
        product.sum().backward()
        self.assertEqual(leaf.grad.tolist(), [2.0, 2.0, 2.0])
        for wrong, text in ((torch.ones(3, dtype=torch.int32),
                             "^\"any_nonfinite_cpu\" not implemented for 'Int'"),
                            (torch.eye(3).to_sparse(), "takes strided CPU")):
            with self.assertRaisesRegex(NotImplementedError, text):
                swamp_torch.any_nonfinite([torch.ones(3), wrong])

    def test_unscale_writes_nothing(self):
        """In an error, unlike PyTorch's; and if inv_scale is 1."""
        for wrong, error in ((torch.ones(3, dtype=torch.int32), NotImplementedError),
                             (torch.ones(1).expand(4), RuntimeError)):
            good, found = torch.tensor([1.0, math.inf]), torch.zeros(())
            with self.assertRaises(error):
                unscale([good, good[:1], wrong], found, torch.tensor(0.5))
            self.assertEqual((good.tolist(), found.item()), ([1.0, math.inf], 0.0))
        # 0x7f81 is a signalling nan that PyTorch rewrites.
        bits = torch.tensor([0x7f81, 0x3f80, 0x7f80], dtype=torch.int16)
        grads = bits.view(torch.bfloat16)
        unscale([grads, grads[::2]], found, torch.tensor(1.0))
        self.assertEqual((bits.tolist(), found.item()), ([0x7f81, 0x3f80, 0x7f80], 1.0))

    def test_compiled_unscale(self):
        def step(x, found, inv_scale):
            y = x * 3
            unscale([y], found, inv_scale)
            return y

        found = torch.zeros(())
        answer = torch.compile(step, backend="aot_eager", fullgraph=True)(
            torch.tensor([1.0, math.inf]), found, torch.tensor(0.5))
        self.assertEqual((answer.tolist(), found.item()), ([1.5, math.inf], 1.0))

    def test_saturated(self):
        """The largest float16 counts if asked for; no other number or dtype does."""
        for value, dtype, want in (
                (65504, torch.float16, 1), (-65504, torch.float16, 1),
                (65472, torch.float16, 0), (65504, torch.float32, 0),
                (torch.inf, torch.float16, 1), (3.3895e38, torch.bfloat16, 0)):
            tensor = torch.ones(3, 40000, dtype=dtype)
            tensor[2, 39999] = value
            for form in (tensor, tensor.t(), tensor[1:, 1::2], tensor.neg()):
                with self.subTest(value=value, dtype=dtype, shape=form.shape):
                    some = [torch.ones(5), form, torch.zeros(0).half()]
                    self.assertEqual(swamp_torch.any_nonfinite(some, True), want)
                    self.assertEqual(swamp_torch.any_nonfinite(some),
                                     value == torch.inf)

    def test_not_a_tensor(self):
        one = torch.ones(())
        for call, name in (
                (swamp_torch.any_nonfinite, "tensors"),
                (lambda t: swamp_torch.grad_norm_and_check(t, one, one), "grads")):
            for value, words in ((None, "None"), (1.0, "float"), ([], "list")):
                with self.assertRaisesRegex(
                        TypeError,
                        rf"^{name}\[1\]: got {words}, expected a Tensor$"):
                    call([torch.ones(3), value])
            with self.assertRaisesRegex(TypeError, f"^{name}: got None, expected"):
                call(None)

    def test_grad_norm_and_check(self):
        found = torch.zeros(1)
        for grads in (torch.tensor([6.0, 8.0]),
                      (g for g in torch.tensor([[6.0], [8.0]]))):
            norm = swamp_torch.grad_norm_and_check(grads, found,
                                                   torch.tensor(0.5))
            self.assertEqual((norm.dtype, norm.item(), found.item()),
                             (torch.float64, 5.0, 0.0))
        swamp_torch.grad_norm_and_check(torch.tensor(torch.inf), found,
                                        torch.ones(()))
        self.assertEqual(found.item(), 1.0)
        with self.assertRaisesRegex(RuntimeError, "inv_scale must be a float"):
            swamp_torch.grad_norm_and_check([], found, torch.ones(()).double())

    def test_float8_gradients(self):
        """Those of swamp's operators; PyTorch's refuses them."""
        codes = torch.arange(256, dtype=torch.uint8)
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            all_codes = codes.view(dtype)
            finite = all_codes[all_codes.float().isfinite()]
            for inverse in (0.3, 0.5, 3.0, 1.0):
                scale = torch.tensor(inverse)
                want = (all_codes.float() * scale).to(dtype)
                # Dense, misaligned to words, strided rows, and single elements.
                for view in (lambda t: t, lambda t: t[1:],
                             lambda t: t.view(4, 64)[:, 10:],
                             lambda t: t[::3]):
                    grad, found = all_codes.clone(), torch.zeros(())
                    swamp_torch.unscale_(view(grad), found, scale)
                    self.assertEqual(found, 1)
                    got, to = view(grad).float(), view(want).float()
                    self.assertTrue(torch.equal(got.nan_to_num(1e9),
                                                to.nan_to_num(1e9)))
                    self.assertTrue(swamp_torch.any_nonfinite(view(grad)))
                found = torch.zeros(())
                norm = swamp_torch.grad_norm_and_check(
                    [finite, torch.ones(3)], found, scale)
                values = torch.cat([finite.float(), torch.ones(3)]) * scale
                self.assertAlmostEqual(
                    float(norm), float(values.double().norm()), delta=1e-9 * norm)
                self.assertEqual(found, 0)
                self.assertEqual(swamp_torch.any_nonfinite(finite), 0)
            for some in ([all_codes, all_codes[1:]],
                         [all_codes.as_strided((9, 9), (3, 2), 90)]):
                with self.assertRaisesRegex(RuntimeError, "shares memory with itself"):
                    swamp_torch.unscale_(some, found, torch.tensor(0.5))
                self.assertEqual(swamp_torch.any_nonfinite(some), 1)
            self.assertTrue(torch.equal(all_codes.view(torch.uint8), codes))
            with self.assertRaisesRegex(NotImplementedError, "not implemented"):
                torch._amp_foreach_non_finite_check_and_unscale_(
                    [all_codes], found, scale)
        with self.assertRaisesRegex(NotImplementedError,
                                    "\"unscale_cpu\" not implemented for 'Char'"):
            swamp_torch.unscale_(codes.view(torch.int8), found, scale)

    def test_documented_and_typed(self):
        for name in swamp_torch.__all__:
            thing = getattr(swamp_torch, name)
            if not callable(thing):
                continue
            self.assertTrue(inspect.getdoc(thing), name)
            members = [thing]
            if inspect.isclass(thing):
                members = [getattr(thing, n) for n in (
                    "__init__", "add_param_group", "step", "load_state_dict",
                    "reload_model_params", "state_dict")]
            for member in members:
                hints = typing.get_type_hints(inspect.unwrap(member))
                self.assertIn("return", hints, member)

    def test_arguments_of_the_program(self):
        """python -m swamp_torch refuses them before it measures."""
        with tempfile.NamedTemporaryFile() as short:
            for arguments, text in (
                    (["/nowhere"], "TEXT: [Errno 2] No such file or directory: '/nowhere'"),
                    (["/"], "TEXT: [Errno 21] Is a directory: '/'"),
                    ([short.name], f"TEXT: {short.name}: got 0 bytes, expected at least 66"),
                    ([__file__, "0"], "STEPS: got 0, expected at least 1")):
                ran = python("import runpy, sys\n"
                             f"sys.argv = ['swamp_torch', *{arguments!r}]\n"
                             "runpy.run_module('swamp_torch', run_name='__main__')")
                self.assertEqual((ran.returncode, ran.stdout), (2, ""))
                self.assertTrue(ran.stderr.endswith(f"error: {text}\n"), ran.stderr)

    def test_pages(self):
        """pdoc makes a page of each module, in which it understands every reference."""
        if not importlib.util.find_spec("pdoc"):
            self.skipTest("pdoc is not installed (toolchain/torch-clients)")
        late = ["swamp_torch.offload", "swamp_torch.tensor_parallel"]
        modules = ["swamp_torch", *late, *(f"swamp_torch.{name}" for name in (
            "float8", "functional", "megatron", "moe", "nn"))]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "pdoc", "-d", "restructuredtext",
                            "--no-show-source", "-o", folder, "swamp_torch", *late], check=True,
                           env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
            for module in modules:
                page = pathlib.Path(folder, *module.split(".")).with_suffix(".html")
                text = page.read_text()
                self.assertNotRegex(text, ":(attr|class|data|func|meth|mod):`", module)
                for name, thing in vars(importlib.import_module(module)).items():
                    if (getattr(thing, "__module__", None) == module
                            and not name.startswith("_")):
                        self.assertIn(f'id="{name}"', text)


STOCK = torch.nn.utils.clip_grad_norm_


def clip_params(*dtypes, seed=0, factor=1.0):
    torch.manual_seed(seed)
    result = []
    for i, dtype in enumerate(dtypes):
        p = torch.nn.Parameter(torch.zeros(7, 9 + i, dtype=dtype))
        p.grad = (torch.randn(7, 9 + i) * factor).to(dtype)
        result.append(p)
    return result


def clip_both(make, *args, **kwargs):
    ours, theirs = make(), make()
    norm = swamp_torch.clip_grad_norm_(ours, *args, **kwargs)
    expected = STOCK(theirs, *args, **kwargs)
    return ours, theirs, norm, expected


class Clip(TestCase):
    def near(self, ours, theirs, rtol):
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a.grad, b.grad, rtol=rtol, atol=0,
                                       equal_nan=True)

    def test_clipped(self):
        for dtypes, rtol in (([torch.float32] * 5, 1e-5),
                             ([torch.float64] * 3, 1e-5),
                             ([torch.bfloat16] * 3, 1e-2),
                             ([torch.float16, torch.float32], 2e-3)):
            ours, theirs, norm, expected = clip_both(
                lambda: clip_params(*dtypes), 0.5)
            torch.testing.assert_close(norm.double(), expected.double(),
                                       rtol=rtol, atol=0)
            self.near(ours, theirs, rtol)
            self.assertEqual(norm.shape, ())
            self.assertIs(norm.dtype, torch.float64 if torch.float64 in dtypes
                          else torch.float32)

    def test_clip_rule(self):
        for max_norm, norm, megatron, mindspore in (
                (1e-7, 2e-7, 1e-7 / (2e-7 + 1e-6), 0.5), (1.0, 4.0, 1 / (4 + 1e-6), 0.25),
                (1.0, 0.5, 1, 1), (1.0, 0.0, 1, 1), (0.0, 2.0, 0, 0)):
            for rule, factor in (("megatron", megatron), ("mindspore", mindspore)):
                param = torch.nn.Parameter(torch.zeros(3))
                param.grad = torch.tensor([0.0, -norm, 0.0])
                swamp_torch.clip_grad_norm_([param], max_norm, clip_rule=rule)
                want = (param.grad.new_tensor(-norm) * factor).item()
                self.assertEqual(param.grad[1].item(), want, (max_norm, norm, rule))
                if max_norm == 0:
                    continue
                param.grad = torch.tensor([0.0, -norm, 0.0])
                optimizer = swamp_torch.SGD([param], lr=1.0, max_norm=max_norm,
                                            clip_rule=rule)
                optimizer.step()
                self.assertEqual(param[1].item(), -want)
        with self.assertRaisesRegex(ValueError, "^clip_rule: got 'none', expected one"):
            swamp_torch.clip_grad_norm_([param], 1.0, clip_rule="none")
        with self.assertRaisesRegex(ValueError, "that swamp does not compute"):
            swamp_torch.clip_grad_norm_([param], 1.0, 1.0, clip_rule="mindspore")

    def test_bits_of_the_product(self):
        for dtype in DTYPES:
            ours, before = clip_params(dtype), clip_params(dtype)
            norm = swamp_torch.grad_norm_and_check(
                [before[0].grad], torch.zeros(()), torch.ones(())).item()
            swamp_torch.clip_grad_norm_(ours, 0.3)
            factor = 0.3 / (norm + 1e-6)
            if dtype is not torch.float64:
                factor = torch.tensor(factor).float().item()
            wide = torch.promote_types(dtype, torch.float32)
            want = (before[0].grad.to(wide) * factor).to(dtype)
            self.assert_same(ours[0].grad, want, dtype)

    def test_below_the_limit_nothing_is_written(self):
        ours = clip_params(torch.float32, torch.float16)
        versions = [p.grad._version for p in ours]
        before = [p.grad.clone() for p in ours]
        swamp_torch.clip_grad_norm_(iter(ours), 1e9)
        for p, b, version in zip(ours, before, versions):
            self.assert_same(p.grad, b)
            self.assertEqual(p.grad._version, version)

    def test_float16_does_not_overflow_the_norm(self):
        ours = clip_params(torch.float16, factor=2e4)
        wide = ours[0].grad.double()
        norm = swamp_torch.clip_grad_norm_(ours[0], 1.0)  # one parameter, bare
        self.assertAlmostEqual(norm.item(), wide.norm().item(), delta=1.0)
        self.assertTrue(math.isfinite(norm.item()))
        self.assertTrue(torch.allclose(ours[0].grad.double(), wide / norm,
                                       atol=1e-3))

    def test_not_finite(self):
        for value in (math.inf, -math.inf, math.nan):
            def make():
                made = clip_params(torch.float32, torch.float16)
                made[0].grad[2, 3] = value
                return made

            ours, theirs, norm, expected = clip_both(make, 1.0)
            self.assertEqual(norm.isnan(), expected.isnan())
            self.near(ours, theirs, 0)
            texts = []
            for clip in (swamp_torch.clip_grad_norm_, STOCK):
                made = make()
                before = [p.grad.clone() for p in made]
                with self.assertRaises(RuntimeError) as caught:
                    clip(made, 1.0, error_if_nonfinite=True)
                texts.append(str(caught.exception))
                for p, b in zip(made, before):
                    self.assert_same(p.grad, b)
            self.assertEqual(texts[0], texts[1])

    def test_other_norms(self):
        """Other norms and layouts call torch.nn.utils, with the same bits."""
        def sparse():
            p = torch.nn.Parameter(torch.zeros(4, 4))
            p.grad = torch.sparse_coo_tensor(
                [[0, 2]], torch.tensor([[1.0] * 4, [2.0] * 4]), (4, 4),
                check_invariants=True)
            return [p]

        for norm_type in (1.0, 3, math.inf, "inf"):
            ours, theirs, norm, expected = clip_both(
                lambda: clip_params(torch.float32, torch.float32), 0.7, norm_type)
            self.assert_same(norm, expected)
            for a, b in zip(ours, theirs):
                self.assert_same(a.grad, b.grad)
        outcomes = []
        for clip in (swamp_torch.clip_grad_norm_, STOCK):
            made = sparse()
            try:
                outcomes.append((clip(made, 0.5).item(),
                                 made[0].grad.to_dense().tolist()))
            except Exception as error:
                outcomes.append((type(error), str(error)))
        self.assertEqual(outcomes[0], outcomes[1])

    def test_empty_gradients(self):
        """They have no part in any norm; PyTorch refuses them for some orders."""
        for norm_type in (math.inf, -math.inf, -1.0, 1.0, 2.0):
            for dtype in (torch.float32, torch.bfloat16):
                ours, theirs = clip_params(dtype, dtype), clip_params(dtype, dtype)
                for shape in ((0,), (3, 0)):
                    ours.append(torch.nn.Parameter(torch.zeros(shape, dtype=dtype)))
                    ours[-1].grad = torch.zeros(shape, dtype=dtype)
                norm = swamp_torch.clip_grad_norm_(ours, 0.3, norm_type)
                expected = swamp_torch.clip_grad_norm_(theirs, 0.3, norm_type)
                self.assert_same(norm, expected)
                for a, b in zip(ours, theirs):
                    self.assert_same(a.grad, b.grad)
                empty = swamp_torch.clip_grad_norm_(ours[2:], 0.3, norm_type)
                self.assertEqual(empty, 0)

    def test_refused(self):
        for some in (clip_params(torch.float32), []):
            with self.assertRaisesRegex(TypeError,
                                        "^max_norm: got None, expected a number"):
                swamp_torch.clip_grad_norm_(some, None)
        for bad in (-1.0, -1e-30, math.nan, -math.inf, "1", [1.0],
                    torch.tensor(-1.0), torch.ones(2)):
            for norm_type in (2.0, 1.0, math.inf):
                for dtype in DTYPES:
                    some = clip_params(dtype)
                    with self.assertRaisesRegex(
                            ValueError, "^max_norm: got .*, expected a number, at "
                            "least 0$"):
                        swamp_torch.clip_grad_norm_(some, bad, norm_type)
                    self.assert_same(some[0].grad, clip_params(dtype)[0].grad)
        for good in (0, 0.5, torch.tensor(0.5), math.inf):
            ours, theirs, _, _ = clip_both(lambda: clip_params(torch.float32), good)
            self.near(ours, theirs, 1e-5)

    def test_nothing(self):
        p = torch.nn.Parameter(torch.ones(3))
        for nothing in ([], [p]):
            norm = swamp_torch.clip_grad_norm_(nothing, 1.0)
            self.assert_same(norm, STOCK(nothing, 1.0))
        with_grad = clip_params(torch.float32)
        alone = copy.deepcopy(with_grad)
        alone[0].grad = with_grad[0].grad.clone()
        self.assertEqual(swamp_torch.clip_grad_norm_([p] + with_grad, 0.1),
                         swamp_torch.clip_grad_norm_(alone, 0.1))
        self.assert_same(with_grad[0].grad, alone[0].grad)

    def test_stock_kernels_give_the_same(self):
        ours, theirs = clip_params(torch.float32), clip_params(torch.float32)
        swamp_torch.clip_grad_norm_(ours, 0.3)
        swamp_torch.disable()
        try:
            swamp_torch.clip_grad_norm_(theirs, 0.3)
        finally:
            swamp_torch.enable()
        self.assert_same(ours[0].grad, theirs[0].grad)


if __name__ == "__main__":
    main()
