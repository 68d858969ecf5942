#!/usr/bin/env python3
"""Draws how the operator's cost grows with bytes, tensors, threads and slaves.

Runs `swamp_bench --benchmark_filter=^scaling` (a minute or two, 1 GiB), or reads
what such a run has written with --benchmark_out, and draws the fastest repetition
of every case. OMP_NUM_THREADS sets the larger number of threads. The picture of
bench/ is not replaced if other processes used more than 0.05 of a core meanwhile.
"""
import argparse
import json
import pathlib
import sys

sys.dont_write_bytecode = True  # the source tree may be read-only
import machine  # noqa: E402
import table  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parent / "scaling.svg"


def figure(width, height):
    """An empty figure of matplotlib; the sizes are inches."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        sys.exit("pictures need matplotlib: apt-get install python3-matplotlib, or "
                 "pip install matplotlib")
    return Figure((width, height), layout="constrained")


def write(drawn, out):
    """Writes a figure as an SVG whose words are text, the same for the same data."""
    import matplotlib
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "swamp"}):
        drawn.savefig(out, format="svg", metadata={"Date": None})


# Each panel: its family, what is on the axes, what the time of a point is divided
# by, and whether the axes are logarithmic.
PANELS = [
    ("bytes", "bytes of one float32 tensor", "ns per element", lambda x: x / 4,
     True, True),
    ("tensors", "tensors of 16 elements", "ns per tensor", lambda x: x, True, True),
    ("threads", "threads, in memory", "speed over 1 thread", None, False, False),
    ("slaves", "logical slaves, 1000 x 10000", "time over 2 slaves", None, True,
     False),
]


def points(cases):
    """{(family, threads): [(argument, nanoseconds)]}, sorted"""
    found = {}
    for case in cases.values():
        if not case.name.startswith("scaling/"):
            continue
        threads = int(case.arguments["threads"])
        family, argument = next(iter(case.arguments.items()))
        if case.path == "scaling/memory":
            family, argument, threads = "threads", threads, 0
        found.setdefault((family, threads), []).append(
            (int(argument), case.nanoseconds))
    return {key: sorted(listed) for key, listed in found.items()}


def curves_of(family, divisor, found):
    """{threads: [(x, y)]} of a panel."""
    curves = {}
    for (of, threads), listed in sorted(found.items()):
        first = listed[0][1]
        if of == family:
            curves[threads] = [
                (x, time / divisor(x) if divisor else
                 first / time if family == "threads" else time / first)
                for x, time in listed]
    return curves


def draw(found, out):
    drawn = figure(10.2, 6.4)
    for axes, (family, x_name, y_name, divisor, x_log, y_log) in zip(
            drawn.subplots(2, 2).flat, PANELS):
        axes.set(xlabel=x_name, ylabel=y_name)
        axes.grid(True, linestyle=":")
        if x_log:
            axes.set_xscale("log", base=10 if family == "tensors" else 2)
        if y_log:
            axes.set_yscale("log")
        curves = curves_of(family, divisor, found)
        for threads, curve in curves.items():
            axes.plot(*zip(*curve), marker="s", markersize=4,
                      label=f"{threads} thread{'s' if threads != 1 else ''}")
        if family == "bytes":
            axes.xaxis.set_major_formatter(lambda x, _: table.size_text(int(x)))
        if family == "threads" and curves:
            axes.set_xticks([x for x, _ in next(iter(curves.values()))])
        if not y_log:
            axes.set_ylim(bottom=0)
        if len(curves) > 1:
            axes.legend()
    write(drawn, out)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bench", metavar="PROGRAM", default=table.PROGRAM,
                        help="default: build/release/bin/swamp_bench")
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path,
                        help="what a run has written with --benchmark_out")
    parser.add_argument("--out", metavar="FILE.svg", default=OUT,
                        help="default: bench/scaling.svg")
    options = parser.parse_args()
    others = machine.Others()
    try:
        report = (json.loads(options.json.read_text()) if options.json
                  else table.measure(options.bench, [
                      "--benchmark_filter=^scaling", "--memory_mib=1024",
                      "--benchmark_repetitions=9", "--benchmark_min_time=0.01"]))
        found = points(table.read(report))
        if not found:
            sys.exit("plot.py: the run has no case of scaling/")
        if not options.json and options.out == OUT:
            machine.require_alone("plot.py", others.share())
        draw(found, options.out)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"plot.py: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
