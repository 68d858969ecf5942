#!/usr/bin/env python3
"""Measures libswamp_aten against stock PyTorch, through Python, and prints a
Markdown table.

Stock and swamp are two processes, of which one runs at a time: for every case
they take turns, and each counts with its fastest call, as noise only adds time.
Before that both make one call on equal tensors, and their bits are compared.

  python bench/aten_bench.py build/release/lib/libswamp_aten.so
"""

import argparse
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys

sys.dont_write_bytecode = True  # the source tree may be read-only
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import aten_cases  # noqa: E402

SIDES = ("stock", "swamp")


class Process:
    """One side; ask() has it do something and waits."""

    def __init__(self, library, options):
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), library, "--worker",
             "--large-mi", str(options.large_mi)]
            + ["--quick"] * options.quick,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.info = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("aten_bench: a measured process has ended; its last words "
                     "are above")
        return json.loads(line)

    def ask(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def header(sides, options):
    stock, swamp = (sides[s].info for s in SIDES)
    return (f"{cpu_model()}, {os.cpu_count()} CPUs, "
            f"{platform.system()} {platform.release()}; "
            f"Python {platform.python_version()}, PyTorch {stock['torch']} "
            f"({stock['capability']}), swamp {swamp['swamp']} "
            f"({swamp['machine'].get('isa', '?')}); "
            f"{options.rounds} turns each"
            + ("; quick: short lists, no figures" if options.quick else ""))


def text_of(seconds):
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def row(case, threads, best, quick):
    """A line of the table; the last column is GB/s of an unscale, of which an
    element counts read and written, or ns a tensor where tensors are short."""
    ratio = best["stock"] / best["swamp"]
    floor = case.floor if threads > 1 and not quick else None
    if case.elements < 1000:
        speed = " / ".join(f"{best[s] / case.count * 1e9:.0f}" for s in SIDES)
        speed += " ns a tensor"
    elif case.step:
        speed = ""
    else:
        gigabytes = 2 * case.count * case.elements * \
            aten_cases.BITS[case.dtype] / 8 / 1e9
        speed = " / ".join(f"{gigabytes / best[s]:.1f}" for s in SIDES)
        speed += " GB/s"
    aim = "" if floor is None else ("ok" if ratio >= floor else "below")
    return (f"| {case.name} | {case.dtype} | {threads} "
            f"| {text_of(best['stock'])} | {text_of(best['swamp'])} "
            f"| {ratio:.2f} | {'' if floor is None else f'{floor:g}'} "
            f"| {aim} | {speed} |")


def run_case(sides, index, case, options):
    for name in SIDES:
        sides[name].ask(case=index)
    digests = [sides[name].ask(digest=True) for name in SIDES]
    if digests[0] != digests[1]:
        sys.exit(f"aten_bench: {case.name} {case.dtype}: the bits differ")
    best = {(n, s): float("inf") for n in options.threads for s in SIDES}
    for turn in range(options.rounds):
        for threads in options.threads:
            for name in SIDES[::1 if turn % 2 == 0 else -1]:
                time = sides[name].ask(
                    threads=threads, seconds=options.slice_ms / 1e3,
                    calls=1 if options.quick else 3,
                    pause=options.pause_ms / 1e3)
                best[threads, name] = min(best[threads, name], time)
    for threads in options.threads:
        print(row(case, threads, {s: best[threads, s] for s in SIDES},
                  options.quick),
              flush=True)


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("library", help="libswamp_aten.so")
    parser.add_argument("--quick", action="store_true",
                        help="short lists, seconds: that all of it runs")
    parser.add_argument("--filter", default="", metavar="REGEX",
                        help="only cases whose 'NAME DTYPE' has a match")
    parser.add_argument("--threads", default="", metavar="N,...",
                        help="default: 1,2")
    parser.add_argument("--rounds", type=int, metavar="N",
                        help="turns of each side (default 7, quick 1)")
    parser.add_argument("--large-mi", type=int, metavar="N",
                        help="Mi elements of the large tensor (64, quick 1)")
    parser.add_argument("--slice-ms", type=int, metavar="N",
                        help="length of a turn (default 60, quick 1)")
    parser.add_argument("--pause-ms", type=int, metavar="N",
                        help="pause after a turn (default 15, quick 0)")
    parser.add_argument("--worker", action="store_true",
                        help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name, full, quick in (("rounds", 7, 1), ("large_mi", 64, 1),
                              ("slice_ms", 60, 1), ("pause_ms", 15, 0)):
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else full)
        if getattr(options, name) < (0 if name.endswith("_ms") else 1):
            parser.error(f"--{name.replace('_', '-')}: too small")
    try:
        options.threads = [int(n)
                           for n in (options.threads or "1,2").split(",")]
    except ValueError:
        parser.error(f"--threads {options.threads}: expected numbers")
    if min(options.threads) < 1:
        parser.error("--threads: expected at least 1")
    try:
        options.filter = re.compile(options.filter)
    except re.error as error:
        parser.error(f"--filter: {error}")
    return options


def require_torch():
    """Exits with 77, CTest's "skipped", where nothing can be measured."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        print("aten_bench: this python has no torch")
        sys.exit(77)
    built_for = os.environ.get("SWAMP_ATEN_TORCH", "")
    if not version.startswith(built_for):
        print(f"aten_bench: libswamp_aten was built for PyTorch {built_for}, "
              f"and this python has {version}")
        sys.exit(77)


def main():
    options = parse(sys.argv[1:])
    if options.worker:
        library = options.library if options.library != "stock" else ""
        aten_cases.worker(library, options.large_mi, options.quick)
        return
    chosen = [(i, c) for i, c in enumerate(
        aten_cases.cases(options.large_mi, options.quick))
        if options.filter.search(f"{c.name} {c.dtype}")]
    if not chosen:
        sys.exit(f"aten_bench: no case matches {options.filter.pattern!r}")
    require_torch()
    library = os.path.abspath(options.library)
    sides = {"stock": Process("stock", options),
             "swamp": Process(library, options)}
    print(header(sides, options))
    print()
    print("| list | dtype | threads | stock | swamp | ratio | floor | aim "
          "| stock / swamp |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for index, case in chosen:
        run_case(sides, index, case, options)
    for side in sides.values():
        side.close()


main()
