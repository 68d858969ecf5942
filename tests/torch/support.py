"""What the tests of swamp_torch share. They are tests of the standard library's unittest.

usage: TEST.py PATH [unittest's arguments]   (`run` runs several in one go)
PATH is the folder that holds the package, or - for the installed one. Exits 77 if torch
or its version is missing.
"""

import functools
import gc
import importlib
import importlib.util
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import types
import unittest

sys.dont_write_bytecode = True  # the source tree may be read-only
# Where a CPU has AMX, products stay PyTorch's, most of them; tests are of swamp's.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
try:
    import torch
except ImportError:
    print("skipped: this python has no torch")
    sys.exit(77)

# Not one of swamp's variables, of which the import would warn.
built_for = os.environ.pop("SWAMP_ATEN_TORCH", "")
if not torch.__version__.startswith(built_for):
    print(f"skipped: libswamp_aten was built for PyTorch {built_for}, and this "
          f"python has {torch.__version__}")
    sys.exit(77)

if len(sys.argv) < 2:
    print(f"usage: {os.path.basename(sys.argv[0])} PATH", file=sys.stderr)
    sys.exit(2)
PATH = os.path.abspath(sys.argv[1]) if sys.argv[1] != "-" else "-"
if os.path.isdir(PATH):
    sys.path.insert(0, PATH)


def _start_server():
    """Forks a process for python() before the library is loaded, because importing
    torch takes a second of processor time. Returns the connection to it."""
    ours, theirs = multiprocessing.Pipe()
    if os.fork() != 0:
        theirs.close()
        return ours
    ours.close()
    gc.freeze()  # else each child would collect all objects of torch as it ends
    while True:
        try:
            code, environment = theirs.recv()
        except EOFError:
            os._exit(0)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            pid = os.fork()
            if pid == 0:
                signal.alarm(3000)  # a hang is a failure
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                os.environ.update(environment)
                sys.argv = ["-c", PATH]
                exec(code, {"__name__": "__main__"})
                sys.exit()
            _, status = os.waitpid(pid, 0)
            out.seek(0)
            err.seek(0)
            theirs.send(subprocess.CompletedProcess(
                code, os.waitstatus_to_exitcode(status),
                out.read().decode(), err.read().decode()))


DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
BITS = {torch.float16: torch.int16, torch.bfloat16: torch.int16,
        torch.float32: torch.int32, torch.float64: torch.int64}


def run_ranks(work, ranks, *arguments):
    """What work(rank, ranks, *arguments) returns in each of `ranks` processes of one
    thread, which are connected by gloo, and which run the test's file again."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/call", "wb") as file:
            pickle.dump((work.__name__, arguments), file)
        done = python(f"import support\nsupport._fork_ranks({sys.argv[0]!r}, {ranks}, "
                      f"{folder!r})", **os.environ)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        return [torch.load(f"{folder}/{rank}.pt") for rank in range(ranks)]


def _fork_ranks(path, ranks, folder):
    """In a process of python(): runs each rank in a fork, and ends all if one fails."""
    processes = set()
    for rank in range(ranks):
        process = os.fork()
        if process == 0:
            return _on_rank(path, rank, ranks, folder)
        processes.add(process)
    while processes:
        process, status = os.wait()
        processes.discard(process)
        if status != 0:
            for other in processes:
                os.kill(other, signal.SIGKILL)
            sys.exit(f"run_ranks: a process ended with {status}")


def _on_rank(path, rank, ranks, folder):
    signal.alarm(3000)
    torch.set_num_threads(1)
    # Those of this folder may be half imported, because the server was forked by the
    # import of this file.
    here = os.path.dirname(__file__)
    for name, other in list(sys.modules.items()):
        if (name != __name__
                and os.path.dirname(getattr(other, "__file__", None) or "") == here):
            del sys.modules[name]
    # As multiprocessing does it: what is pickled may be of __main__.
    module = types.ModuleType("__mp_main__")
    module.__file__ = sys.argv[0] = path
    sys.argv[1:] = [PATH]
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    with open(path) as file:
        exec(compile(file.read(), path, "exec"), module.__dict__)
    with open(f"{folder}/call", "rb") as file:
        work, arguments = pickle.load(file)
    # The address of this host may not be one that gloo can reach.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    torch.save(getattr(module, work)(rank, ranks, *arguments), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


# Whether everything is tested. toolchain/check leaves out some, for its time.
CI = os.environ.get("CI") == "true"


def a_fifth(items, number=0):
    """All items in CI, else every fifth; `number` says which."""
    return items if CI else items[number % 5::5]


def main():
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])


def python(code, **environment):
    """Runs code in a process of its own that has imported torch and finds the package."""
    _server.send((code, environment))
    return _server.recv()


def in_threads(work, count=3):
    """Calls work(number) in several Python threads at once."""
    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def growth(setup, first, call):
    """MiB by which a call makes the highest memory of a process grow, after setup and a
    first call, which allocates what others use again. All three are code."""
    done = python(f"""
import resource, torch
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
{setup}
{first}
before = peak()
{call}
print(peak() - before)
""")
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return float(done.stdout)


def on_threads(call, counts=(1, 2)):
    """What call() returns with each number of threads."""
    before = torch.get_num_threads()
    try:
        return [torch.set_num_threads(count) or call() for count in counts]
    finally:
        torch.set_num_threads(before)


def unscale(tensors, found_inf, inv_scale):
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, found_inf,
                                                     inv_scale)


def update_scale(*args):
    return torch._amp_update_scale_(*args)


def caught(call):
    """The type and text of the error that call() raises, else its result."""
    try:
        return call()
    except Exception as error:
        # What follows lists source files and registered kernels.
        text = str(error).split("\nException raised")[0]
        return type(error).__name__, text.split(" This could be because")[0]


def has_megatron():
    """Whether megatron.core can be imported: the package megatron-core, or, if
    MEGATRON_LM is set, that checkout of github.com/NVIDIA/Megatron-LM."""
    if os.environ.get("MEGATRON_LM"):
        sys.path.insert(0, os.environ["MEGATRON_LM"])
    return importlib.util.find_spec("megatron") is not None


NO_MEGATRON = ("skipped: megatron-core is not installed (toolchain/torch-clients), and "
               "MEGATRON_LM is not set to a checkout")


@functools.cache
def declare_torchvision():
    """PyPI's torchvision needs CUDA for its own operators and does not import without
    them, nor do the packages that use it. No test calls them."""
    try:
        importlib.import_module("torchvision")
    except ImportError:
        pass
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(
                f"{name}(Tensor dets, Tensor scores, float threshold) -> Tensor")
        return library  # lives as long as the cache


def same(a, b, any_nan=False):
    """Whether two tensors have the same dtype, shape and bits; any_nan: a nan may
    have any payload."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    if a.element_size() == 1:  # torch.equal() does not take all of them
        a, b = a.view(torch.uint8), b.view(torch.uint8)
    if a.dtype not in BITS:
        return torch.equal(a, b)
    a, b = a.detach().contiguous(), b.detach().contiguous()
    equal = a.view(BITS[a.dtype]) == b.view(BITS[b.dtype])
    if any_nan:
        equal = equal | (torch.isnan(a) & torch.isnan(b))
    return bool(equal.all())


class Subclass(torch.nn.Parameter):
    """A class that adds nothing."""


class Wrapper(torch.Tensor):
    """A class that keeps its elements in another tensor."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        args, kwargs = torch.utils._pytree.tree_map(
            lambda x: x.held if isinstance(x, cls) else x, (args, kwargs or {}))
        return function(*args, **kwargs)


def neg(x):
    """x with a lazy minus sign."""
    return torch._neg_view(x.neg())


def expanded(x):
    return x[:1].expand(x.shape) if x.dim() else x


def steps(x):
    """x with holes between its elements."""
    return torch.stack([x, x], -1)[..., 0]


# Forms of a tensor x, and whether there are results: those of the form's contiguous
# copy. Otherwise there may also be an error.
FORMS = {
    "neg": (neg, True),
    "zero": (lambda x: torch._efficientzerotensor(x.shape, dtype=x.dtype), True),
    "imaginary": (lambda x: torch.complex(x, -x).conj().imag, True),
    "steps": (steps, True),
    "turned": (lambda x: x.t().contiguous().t() if x.dim() == 2 else x, True),
    "expanded": (expanded, True),
    "neg, steps": (lambda x: torch._neg_view(steps(x.neg())), True),
    "neg, expanded": (lambda x: torch._neg_view(expanded(x.neg())), True),
    "lazy clone": (torch._lazy_clone, True),
    "subclass": (lambda x: Subclass(x, requires_grad=False), True),
    "wrapper": (Wrapper, False),
    "conjugate": (lambda x: torch.complex(x, x).conj(), False),
    "meta": (lambda x: x.to("meta"), False),
    "sparse": (lambda x: x.to_sparse(), False),
    "mkldnn": (lambda x: x.to_mkldnn(), False),
}


class TestCase(unittest.TestCase):
    def tearDown(self):
        import swamp_torch
        swamp_torch.enable()  # as after the import

    def assert_same(self, ours, theirs, message=None):
        """Two tensors, or two lists of them, have the same bits."""
        if isinstance(ours, torch.Tensor):
            ours, theirs = [ours], [theirs]
        for a, b in zip(ours, theirs, strict=True):
            self.assertTrue(same(a, b), (a, b) if message is None else message)


class AnyNan:
    """A tensor in which a nan may have any payload, because inv_scale was nan."""

    def __init__(self, tensor):
        self.tensor = tensor


def difference(stock, ours, place="result"):
    """Returns where and how two observations differ, or None."""
    keys = ()
    if type(stock) is not type(ours):
        equal = False
    elif isinstance(stock, AnyNan):
        equal = same(stock.tensor, ours.tensor, True)
    elif isinstance(stock, torch.Tensor):
        # PyTorch's own 16-bit payloads differ between its vectors and the rest.
        equal = (same(stock, ours, stock.element_size() == 2)
                 and stock.stride() == ours.stride())
    elif isinstance(stock, dict):
        keys, equal = stock.keys(), stock.keys() == ours.keys()
    elif isinstance(stock, (list, tuple)):
        keys, equal = range(len(stock)), len(stock) == len(ours)
    else:  # repr(): 0.0 is not -0.0, and nan is nan
        equal = repr(stock) == repr(ours)
    if not equal:
        return f"{place}: stock {stock}, swamp {ours}"
    found = (difference(stock[key], ours[key], f"{place}[{key}]")
             for key in keys)
    return next(filter(None, found), None)


def same_as_stock(*parameters):
    """Makes a test of a method that returns what it observed: tensors, numbers,
    texts, and lists, tuples and dicts of those. It runs with PyTorch's own kernels,
    then with swamp's; the result must be the same, and what it asserts must hold both
    times. With parameters, the method is called with each.
    """
    def decorate(method):
        @functools.wraps(method)
        def test(self):
            import swamp_torch

            def observe(*parameter):
                torch.manual_seed(1)
                return method(self, *parameter)

            def observed():
                return ({str(p): observe(p) for p in parameters}
                        if parameters else observe())
            with swamp_torch.disabled():
                stock = observed()
            found = difference(stock, observed())
            self.assertIsNone(found, found)
        return test
    return decorate


# Last, because the server's processes use this file.
_server = _start_server()
