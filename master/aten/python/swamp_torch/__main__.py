"""``python -m swamp_torch``: what is installed, what is active after the import, and
a measurement of this machine that takes at most 5 seconds. With TEXT also trains small
transformers on that file in 16 bits, with stock PyTorch's kernels and with swamp's,
which takes about two minutes: first the optimizer's step under autocast, whose bits
must be equal, then the whole training, in which swamp's losses and gradients must not
be worse. Exit code: 1 if they are."""

import argparse
import os
import sys
import time
from typing import Callable, List, Tuple

import torch

from . import AdamW, _demo, disabled, enable, info, is_active

_SECONDS = 0.2  # of each figure


def _linear(dtype: torch.dtype, ours: bool) -> Callable[[], object]:
    layer = torch.nn.Linear(768, 768, dtype=dtype)
    x = torch.randn(128, 768, dtype=dtype, requires_grad=True)
    return lambda: layer(x).sum().backward()


def _attention(dtype: torch.dtype, ours: bool) -> Callable[[], object]:
    q, k, v = (torch.randn(1, 8, 256, 64, dtype=dtype, requires_grad=True)
               for _ in range(3))
    return lambda: torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True).sum().backward()


def _step(dtype: torch.dtype, ours: bool) -> Callable[[], object]:
    weights = [torch.randn(512, 512, dtype=dtype, requires_grad=True)
               for _ in range(16)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    return (AdamW(weights) if ours else
            torch.optim.AdamW(weights, fused=True)).step


_CASES: List[Tuple[str, Callable[[torch.dtype, bool], Callable[[], object]]]] = [
    ("Linear", _linear), ("attention", _attention), ("AdamW step", _step)]


def _milliseconds(run: Callable[[], object]) -> float:
    """The shortest call of those that _SECONDS allow; the first one, which also
    allocates, counts only if it takes as long as that."""
    times: List[float] = []
    while sum(times) < _SECONDS:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times[1:] or times) * 1000


def _measure(case: Callable[[torch.dtype, bool], Callable[[], object]],
             dtype: torch.dtype, ours: bool) -> float:
    with disabled():
        if ours:
            enable(half_precision=True)
        return _milliseconds(case(dtype, ours))


def _seconds_of_others() -> float:
    """Processor time that other processes have used, if Linux tells it."""
    try:
        with open("/proc/stat") as file:
            ticks = [int(word) for word in file.readline().split()[1:8]]
    except OSError:
        return 0.0
    used = sum(ticks) - ticks[3] - ticks[4]  # idle, and waiting for files
    return used / os.sysconf("SC_CLK_TCK") - time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m swamp_torch", description=__doc__)
    parser.add_argument("text", metavar="TEXT", nargs="?", help="a file to train on")
    parser.add_argument("steps", metavar="STEPS", nargs="?", type=int,
                        help="of the first part (default: 40); the second is short")
    arguments = parser.parse_args()
    if arguments.steps is not None and arguments.steps < 1:
        parser.error(f"STEPS: got {arguments.steps}, expected at least 1")
    try:
        text = None if arguments.text is None else _demo.read(arguments.text)
    except (OSError, ValueError) as error:
        parser.error(f"TEXT: {error}")
    machine = info()
    print(f"swamp_torch {machine['version']}, built for PyTorch {machine['torch']}")
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{machine['cpu']}, ISA {machine['isa']}, backend {machine['backend']}, "
          f"transfer {machine['transfer']}")
    switches = {"GradScaler's operators": is_active(),
                "half_precision": is_active(half_precision=True),
                "attention": is_active(attention=True),
                "reproducible": is_active(reproducible=True)}
    print("active: " + ", ".join(n for n, on in switches.items() if on)
          + "; swamp_torch.enable() can switch on: "
          + ", ".join(f"{n}=True" for n, on in switches.items() if not on))
    print(f"{'milliseconds, forward and backward':36}{'float32':>9}{'stock':>9}"
          f"{'swamp':>9}{'stock/swamp':>13}", flush=True)
    torch.manual_seed(0)
    start, others = time.perf_counter(), _seconds_of_others()
    for name, case in _CASES:
        reference = _measure(case, torch.float32, False)
        for dtype in (torch.float16, torch.bfloat16):
            stock, swamp = (_measure(case, dtype, ours) for ours in (False, True))
            print(f"{name + ', ' + str(dtype)[6:]:36}{reference:9.2f}{stock:9.2f}"
                  f"{swamp:9.2f}{stock / swamp:13.2f}", flush=True)
    busy = (_seconds_of_others() - others) / (time.perf_counter() - start)
    if busy > 0.1:
        print(f"This machine is busy: other processes used {busy:.1f} of "
              f"{os.cpu_count()} cores meanwhile. Run this again when it is idle.")
    if text is not None:
        print()
        if not _demo.main(arguments.text, text, arguments.steps or 40,
                          arguments.steps is not None):
            sys.exit(1)


if __name__ == "__main__":
    main()
