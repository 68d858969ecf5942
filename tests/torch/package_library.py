"""import swamp_torch: quiet, right version only, and a way back to stock.

usage: package_library.py FOLDER
"""

import inspect
import threading
import typing
import unittest

from package import python

import torch

import swamp_torch


def stock_kernel_runs():
    """Stock unscales tensor by tensor until one is bad; swamp validates first."""
    first, bad = torch.full((3,), 8.0), torch.ones(3, dtype=torch.int32)
    try:
        torch._amp_foreach_non_finite_check_and_unscale_(
            [first, bad], torch.zeros(()), torch.tensor(0.5))
    except NotImplementedError:
        return first[0].item() == 4.0
    raise AssertionError("an int32 gradient was taken")


class Import(unittest.TestCase):
    def test_prints_nothing(self):
        done = python("import swamp_torch", PYTHONWARNINGS="ignore")
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, "", ""))

    def test_version(self):
        torch_version = torch.__version__.split("+")[0]
        self.assertTrue(
            swamp_torch.__version__.endswith("+torch" + torch_version))
        self.assertEqual(swamp_torch.info()["torch"], torch_version)

    def refused(self, before, *words):
        done = python(before + "try:\n"
                      "  import swamp_torch\n"
                      "except ImportError as error:\n"
                      "  print(error)\n"
                      "print('libswamp' in open('/proc/self/maps').read())\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        text, loaded = done.stdout.rstrip("\n").rsplit("\n", 1)
        self.assertEqual(loaded, "False")
        for word in words:
            self.assertIn(word, text)

    def test_other_pytorch(self):
        for other in ("2.12.1+cpu", "2.13.0a0+git1234", "2.1.0", "1.13.1"):
            self.refused(f"import torch; torch.__version__ = '{other}'\n",
                         "was built for PyTorch " + torch.__version__[:6],
                         "and this is PyTorch " + other,
                         "`pip install torch==", "toolchain/wheel")

    def test_no_pytorch(self):
        self.refused("import sys; sys.modules['torch'] = None\n",
                     "needs PyTorch " + torch.__version__[:6],
                     "there is none: `pip install torch==")

    def test_library_is_there_already(self):
        """A second copy would end the process."""
        done = python(
            "import os, shutil, sys, tempfile, torch\n"
            "import importlib.util\n"
            "here = importlib.util.find_spec('swamp_torch')"
            ".submodule_search_locations[0]\n"
            "names = {}\n"
            "exec(open(here + '/_build.py').read(), names)\n"
            "torch.ops.load_library(os.path.join(here, names['LIBRARY']))\n"
            "import swamp_torch\n"
            "print(swamp_torch.is_active())\n")
        self.assertEqual((done.returncode, done.stdout), (0, "True\n"),
                         done.stderr)


class Active(unittest.TestCase):
    def tearDown(self):
        swamp_torch.enable()

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
        """Only swamp looks at SWAMP_BACKEND; neither does in update_scale, whose
        results are the same."""
        done = python(
            "import torch, swamp_torch\n"
            "def run():\n"
            "  x, found = torch.full((5,), 6.), torch.zeros(())\n"
            "  scale, tracker = torch.tensor(4.), torch.tensor(0).int()\n"
            "  try:\n"
            "    torch._amp_foreach_non_finite_check_and_unscale_(\n"
            "        [x], found, torch.tensor(.5))\n"
            "  except RuntimeError: print('refused', end=' ')\n"
            "  torch._amp_update_scale_(scale, tracker, found, 2., .5, 1)\n"
            "  print(x[0].item(), scale.item(), tracker.item())\n"
            "run(); swamp_torch.disable(); run(); swamp_torch.enable(); run()\n",
            SWAMP_BACKEND="nonsense")
        self.assertEqual(done.stdout, "refused 6.0 8.0 0\n"
                         "3.0 8.0 0\nrefused 6.0 8.0 0\n", done.stderr)

    def test_while_others_work(self):
        stop, wrong = threading.Event(), []

        def work():
            while not stop.is_set():
                x = [torch.full((4000,), 6.0) for _ in range(5)]
                found = torch.zeros(())
                torch._amp_foreach_non_finite_check_and_unscale_(
                    x, found, torch.tensor(0.5))
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

    def test_by_name_stays(self):
        swamp_torch.disable()
        self.assertEqual(swamp_torch.any_nonfinite(torch.tensor(torch.inf)), 1)


class Functions(unittest.TestCase):
    def test_any_nonfinite(self):
        good, bad = torch.ones(3, 4), torch.tensor([1.0, torch.nan]).half()
        for tensors, want in ((good, 0), (bad, 1), ([good, bad], 1), ([], 0),
                              ((t for t in (bad, good)), 1)):
            found = swamp_torch.any_nonfinite(tensors)
            self.assertEqual((found.dtype, found.shape, found.item()),
                             (torch.float32, (), want))
        with self.assertRaises(NotImplementedError):
            swamp_torch.any_nonfinite([torch.ones(3, dtype=torch.int32)])

    def test_check_finite_is_deprecated(self):
        for value, want in ((1.0, 0), (torch.nan, 1)):
            with self.assertWarnsRegex(FutureWarning, "use any_nonfinite") as w:
                found = swamp_torch.check_finite(torch.tensor([value]))
            self.assertEqual((found.item(), w.filename), (want, __file__))

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

    def test_documented_and_typed(self):
        for name in swamp_torch.__all__:
            thing = getattr(swamp_torch, name)
            if not callable(thing):
                continue
            self.assertTrue(inspect.getdoc(thing), name)
            members = [thing]
            if inspect.isclass(thing):
                members = [m for n, m in vars(thing).items()
                           if inspect.isfunction(m) and n in (
                               "__init__", "add_param_group", "step",
                               "load_state_dict", "reload_model_params",
                               "state_dict")]
                self.assertEqual(len(members), 6)
            for member in members:
                hints = typing.get_type_hints(inspect.unwrap(member))
                self.assertIn("return", hints, member)


if __name__ == "__main__":
    unittest.main()
