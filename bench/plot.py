#!/usr/bin/env python3
"""Draws how the operator's cost grows with bytes, tensors, threads and slaves.

Runs `swamp_bench --benchmark_filter=^scaling` (a minute or two, 1 GiB), or reads
what such a run has written with --benchmark_out, and draws the fastest repetition
of every case. OMP_NUM_THREADS sets the larger number of threads. The picture of
bench/ is not replaced if other processes used more than 0.05 of a core meanwhile.
"""
import argparse
import json
import math
import pathlib
import sys

sys.dont_write_bytecode = True  # the source tree may be read-only
import machine  # noqa: E402
import table  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parent / "scaling.svg"


COLORS = ("#9400d3", "#009e73", "#56b4e9", "#e69f00", "#f0e442", "#0072b2",
          "#e51e10")


class Picture:
    """An SVG with a line for each of its parts."""

    def __init__(self, width, height):
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
            f'height="{height}" font-family="sans" font-size="12" '
            'text-anchor="middle">', '<rect width="100%" height="100%" fill="white"/>']

    def text(self, x, y, words, more=""):
        self.lines.append(f'<text x="{x:.1f}" y="{y:.1f}"{more}>{words}</text>')

    def name_axis(self, x, y, words):
        self.text(x, y, words, f' transform="rotate(-90 {x} {y})"')

    def path(self, places, color, more=' stroke-dasharray="1,4"'):
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        self.lines.append(f'<path d="M{way}" fill="none" stroke="{color}"{more}/>')

    def box(self, x, y, width, height, color):
        self.lines.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                          f'height="{height:.1f}" fill="{color}"/>')

    def legend(self, x, y, name, color):
        self.box(x - 5, y - 24, 10, 10, color)
        self.text(x, y, name)

    def write(self, out):
        pathlib.Path(out).write_text("\n".join([*self.lines, "</svg>"]) + "\n")


def axis(low, high, begin, end, log):
    """A function from values to pixels."""
    place = math.log if log else float
    return lambda value: begin + (end - begin) * (
        (place(value) - place(low)) / (place(high) - place(low)))


# Each panel: its family, what is on the axes, what the time of a point is divided
# by, the values on the x axis (threads: those of the run), and whether the axes
# are logarithmic.
PANELS = [
    ("bytes", "bytes of one float32 tensor", "ns per element", lambda x: x / 4,
     [2 ** n for n in range(10, 31, 5)], True, True),
    ("tensors", "tensors of 16 elements", "ns per tensor", lambda x: x,
     [10 ** n for n in range(7)], True, True),
    ("threads", "threads, in memory", "speed over 1 thread", None, [], False, False),
    ("slaves", "logical slaves, 1000 x 10000", "time over 2 slaves", None,
     [2 ** n for n in range(1, 10)], True, False),
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


def draw_panel(picture, left, top, panel, found):
    family, x_name, y_name, divisor, x_ticks, x_log, y_log = panel
    curves = curves_of(family, divisor, found)
    if not curves:
        return
    right, bottom = left + 400, top + 230
    x_ticks = x_ticks or [x for x, _ in next(iter(curves.values()))]
    values = [y for curve in curves.values() for _, y in curve]
    y_ticks = ([10.0 ** n for n in range(math.floor(math.log10(min(values))),
                                         math.ceil(math.log10(max(values))) + 1)]
               if y_log else
               [n / 2 for n in range(max(4, math.ceil(2 * max(values))) + 1)])
    x_of = axis(x_ticks[0], max(x_ticks[-1], x_ticks[0] + 1), left, right, x_log)
    y_of = axis(y_ticks[0], y_ticks[-1], bottom, top, y_log)
    for tick in x_ticks:
        picture.path([(x_of(tick), bottom), (x_of(tick), top)], "black")
        picture.text(x_of(tick), bottom + 18,
                     table.size_text(tick) if family == "bytes" else f"{tick:,}")
    for tick in y_ticks:
        picture.path([(left, y_of(tick)), (right, y_of(tick))], "black")
        picture.text(left - 20, y_of(tick) + 4, f"{tick:g}")
    picture.name_axis(left - 48, (top + bottom) // 2, y_name)
    picture.text((left + right) / 2, bottom + 40, x_name)
    for number, (threads, curve) in enumerate(curves.items()):
        places = [(x_of(x), y_of(y)) for x, y in curve]
        picture.path(places, COLORS[number], ' stroke-width="2"')
        for x, y in places:
            picture.box(x - 3, y - 3, 6, 6, COLORS[number])
        if len(curves) > 1:
            picture.legend(right - 40, top + 28 + 34 * number,
                           f"{threads} thread{'s' if threads != 1 else ''}",
                           COLORS[number])


def draw(found, out):
    picture = Picture(1020, 640)
    for number, panel in enumerate(PANELS):
        draw_panel(picture, 75 + 500 * (number % 2), 20 + 320 * (number // 2),
                   panel, found)
    picture.write(out)


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
