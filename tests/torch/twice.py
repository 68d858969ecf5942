"""Runs cases with stock PyTorch, loads libswamp_aten, runs them again, compares.

A case is a function without arguments that returns what it observed: tensors,
numbers, texts, and lists, tuples and dicts of those. An exception is observed as
its type and text. What a case asserts must hold both times.
"""

import os
import sys
import traceback

sys.dont_write_bytecode = True  # the source tree may be read-only
try:
    import torch
except ImportError:
    print("skipped: this python has no torch")
    sys.exit(77)

built_for = os.environ.get("SWAMP_ATEN_TORCH", "")
if not torch.__version__.startswith(built_for):
    print(f"skipped: libswamp_aten was built for PyTorch {built_for}, and this "
          f"python has {torch.__version__}")
    sys.exit(77)

BITS = {torch.float16: torch.int16, torch.bfloat16: torch.int16,
        torch.float32: torch.int32, torch.float64: torch.int64}
UNSCALE = "aten::_amp_foreach_non_finite_check_and_unscale_"
UPDATE = "aten::_amp_update_scale_"


class AnyNan:
    """A tensor whose nan may have any payload: inv_scale was nan."""

    def __init__(self, tensor):
        self.tensor = tensor


def unscale(tensors, found_inf, inv_scale):
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, found_inf,
                                                     inv_scale)


def update_scale(*args):
    return torch._amp_update_scale_(*args)


def is_active(operator=UNSCALE):
    """Whether a CPU tensor's call of the operator comes to swamp."""
    for line in torch._C._dispatch_dump(operator).splitlines():
        if line.startswith("CPU: "):
            return "master/aten" in line
    return False


def load(path):
    torch.ops.load_library(path)
    for operator in (UNSCALE, UPDATE):
        assert is_active(operator), torch._C._dispatch_dump(operator)


def same_tensor(a, b, any_nan=False):
    if (a.dtype, a.shape, a.stride()) != (b.dtype, b.shape, b.stride()):
        return False
    if a.dtype not in BITS:
        return torch.equal(a, b)
    a, b = a.detach().contiguous(), b.detach().contiguous()
    equal = a.view(BITS[a.dtype]) == b.view(BITS[b.dtype])
    # PyTorch's own payloads differ between a vector's body and the tail.
    if any_nan or a.element_size() == 2:
        equal = equal | (torch.isnan(a) & torch.isnan(b))
    return bool(equal.all())


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, AnyNan):
        return same_tensor(a.tensor, b.tensor, True)
    if isinstance(a, torch.Tensor):
        return same_tensor(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return repr(a) == repr(b)
    return a == b


def observe(case):
    torch.manual_seed(1)
    try:
        return case()
    except AssertionError:
        raise
    except Exception as error:  # its type and text are what is compared
        return type(error).__name__, str(error).split("\nException raised")[0]


def observe_all(cases, who):
    seen, failures = {}, 0
    for name, case in cases.items():
        try:
            seen[name] = observe(case)
        except AssertionError:
            failures += 1
            print(f"FAILED {name} with {who}:")
            traceback.print_exc(file=sys.stdout)
    return seen, failures


def main(cases):
    if len(sys.argv) != 2:
        print(f"usage: {os.path.basename(sys.argv[0])} LIBSWAMP_ATEN",
              file=sys.stderr)
        sys.exit(2)
    assert not is_active()
    stock, failures = observe_all(cases, "stock")
    load(sys.argv[1])
    ours, more = observe_all(cases, "swamp")
    failures += more
    for name in stock.keys() & ours.keys():
        if not same(stock[name], ours[name]):
            failures += 1
            print(f"FAILED {name}:\n  stock {stock[name]}\n"
                  f"  swamp {ours[name]}")
    print(f"torch {torch.__version__}: {len(cases)} cases, {failures} failed")
    sys.exit(1 if failures else 0)
