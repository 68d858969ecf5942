#!/usr/bin/env python3
"""Draws how the operator's cost grows with bytes, tensors, threads and slaves.

Runs `swamp_bench --benchmark_filter=^scaling` (a minute or two, 1 GiB), or reads
what such a run has written with --benchmark_out, and draws the fastest repetition
of every case. Needs gnuplot. OMP_NUM_THREADS sets the larger number of threads.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True  # the source tree may be read-only
import table  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parent / "scaling.svg"


def draw(script, out):
    """Runs gnuplot for an SVG and removes what makes its files large: empty groups,
    attributes with SVG's default value, and invisible digits."""
    svg = subprocess.run(["gnuplot"], input=script, text=True, check=True,
                         stdout=subprocess.PIPE).stdout
    pathlib.Path(out).write_text(shrink(svg))


def shrink(svg):
    svg = svg.replace(' stroke-linecap="butt" stroke-linejoin="miter"', "")
    before = None
    while svg != before:
        before = svg
        svg = re.sub(r"<g [^>]*>\s*</g>\n?", "", svg)
    svg = re.sub(r"(\d+\.\d)\d+", r"\1", svg)
    return re.sub(r"\n\s*\n+", "\n", svg)


# Each curve: its family, what is on the axes, what the time of a point is divided
# by, and how gnuplot draws the axes.
CURVES = [
    ("bytes", "bytes of one float32 tensor", "ns per element", lambda x: x / 4,
     'set logscale x 2; set logscale y; set format x "%.0b %BB"; '
     'set xrange [512:2147483648]; set xtics 1024, 32'),
    ("tensors", "tensors of 16 elements", "ns per tensor", lambda x: x,
     'set logscale xy; set format x "10^{%L}"; set xrange [0.7:1500000]'),
    ("threads", "threads, in memory", "speed over 1 thread", None,
     "set xtics 1; set xrange [0.9:*]; set yrange [0:*]"),
    ("slaves", "logical slaves, 1000 x 10000", "time over 2 slaves", None,
     "set logscale x 2; set xrange [1.5:512]; set yrange [0:2]"),
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


def script_of(found):
    script = ['set terminal svg size 1000,640 font "sans,12" background "white"',
              "set multiplot layout 2,2", "set grid"]
    for family, x_name, y_name, divisor, setup in CURVES:
        keys = sorted(key for key in found if key[0] == family)
        plots = []
        for number, key in enumerate(keys):
            first = found[key][0][1]
            block = f"$data_{family}_{number}"
            script.append(f"{block} << END")
            for x, time in found[key]:
                y = (time / divisor(x) if divisor else
                     first / time if family == "threads" else time / first)
                script.append(f"{x} {y:.4g}")
            script.append("END")
            title = (f'title "{key[1]} thread{"s" if key[1] != 1 else ""}"'
                     if key[1] and len(keys) > 1 else "notitle")
            plots.append(f"{block} using 1:2 with linespoints pt 7 lw 2 {title}")
        if plots:
            script += ["unset logscale; set format; set autoscale; set xtics auto",
                       setup, f'set xlabel "{x_name}"', f'set ylabel "{y_name}"',
                       "plot " + ", ".join(plots)]
    return "\n".join(script) + "\n"


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
    try:
        report = (json.loads(options.json.read_text()) if options.json
                  else table.measure(options.bench, [
                      "--benchmark_filter=^scaling", "--memory_mib=1024",
                      "--benchmark_repetitions=9", "--benchmark_min_time=0.01"]))
        found = points(table.read(report))
        if not found:
            sys.exit("plot.py: the run has no case of scaling/")
        draw(script_of(found), options.out)
    except (OSError, ValueError, KeyError,
            subprocess.CalledProcessError) as error:
        sys.exit(f"plot.py: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
