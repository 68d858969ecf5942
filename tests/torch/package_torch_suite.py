"""PyTorch's own tests of optimizers, schedulers, averages and GradScaler, with
swamp_torch's classes instead of torch.optim's.

They are not in PyTorch's wheel: `toolchain/torch-clients PYTHON pytorch-tests` gets
them as Debian has them, of another release than the installed one.
"""

import importlib
import os
import sys
import unittest

import support  # finds the package
from optimizers import NAMES

import torch

import swamp_torch

# What cannot pass, and why.
EXPECTED = {
    "test_errors_": "PyTorch warns of a parameter that occurs twice in a group, whose "
                    "step count is then counted twice; swamp_torch raises ValueError",
    "verbose_deprecation_warning": "an argument that newer releases do not have",
}


def folder_of_tests():
    for folder in os.environ.get("PYTHONPATH", "").split(":"):
        tests = os.path.join(folder, "pytorch-tests", "test")
        if os.path.isfile(os.path.join(tests, "test_optim.py")):
            return tests
    print("skipped: PyTorch's tests are not here: toolchain/torch-clients PYTHON "
          "pytorch-tests, which is part of toolchain/check --clients")
    sys.exit(77)


def substitute():
    """The gradients of torch.optim's fused classes are unscaled after a step."""
    for name in NAMES:
        base = getattr(swamp_torch, name)

        def unscales(self, *args, base=base, **options):
            base.__init__(self, *args, **{"unscale_grads": True, **options})

        theirs = getattr(torch.optim, name)
        ours = type(name, (base,), {"__init__": unscales, "__module__": __name__})
        globals()[name] = ours  # for pickle
        setattr(torch.optim, name, ours)
        setattr(sys.modules[theirs.__module__], name, ours)


def wanted(test):
    """Whether a test is of these classes or of a scheduler, or of GradScaler."""
    name = test.id()
    if "TestTorchDeviceType" in name:
        return "_grad_scal" in name or "gradscaler" in name
    if name.startswith("test_torch."):
        return False
    kind = getattr(torch.optim, name.split("_cpu_")[0].split("_")[-1], None)
    return kind is None or kind.__module__ == __name__


class Result(unittest.TextTestResult):
    def _unexpected(self, test, record, error):
        for words, reason in EXPECTED.items():
            if words in test.id():
                self.addExpectedFailure(test, error)
                return
        record(test, error)

    def addError(self, test, error):
        self._unexpected(test, super().addError, error)

    def addFailure(self, test, error):
        self._unexpected(test, super().addFailure, error)


def run():
    tests = folder_of_tests()
    os.chdir(tests)
    sys.path.insert(0, tests)
    substitute()
    # Names that the release of the tests imports and that newer ones lack.
    for module, names in {"common_cuda": {"tf32_is_not_fp32": lambda: False},
                          "common_mkldnn": {"bf32_on_and_off":
                                            lambda *_, **__: lambda test: test}}.items():
        module = importlib.import_module(f"torch.testing._internal.{module}")
        for name, value in names.items():
            if not hasattr(module, name):
                setattr(module, name, value)
    modules = [importlib.import_module(name) for name in ("test_optim", "test_torch")]
    load = unittest.TestLoader().loadTestsFromTestCase  # their load_tests() is for CI
    suite = unittest.TestSuite(
        test for module in modules for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, unittest.TestCase)
        for test in load(kind) if wanted(test))
    result = unittest.TextTestRunner(resultclass=Result).run(suite)
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 300 else 1)


if __name__ == "__main__":
    run()
