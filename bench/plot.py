#!/usr/bin/env python3
"""Draws how the operator's cost grows with bytes, tensors, threads and slaves; with
--critical_path, how training steps scale to 192 slaves, and prints the table.

Runs `swamp_bench --benchmark_filter=^scaling` (a minute or two, 1 GiB), or reads
what such a run has written with --benchmark_out, and draws the fastest repetition
of every case. OMP_NUM_THREADS sets the larger number of threads. With --critical_path
the run is `swamp_bench --critical_path` (10 minutes, 4 GiB). The picture of bench/
is not replaced if other processes used more than 0.05 of a core meanwhile.
"""
import argparse
import io
import json
import pathlib
import re
import sys

sys.dont_write_bytecode = True  # the source tree may be read-only
import machine  # noqa: E402
import table  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parent


def figure(width, height):
    """An empty figure of matplotlib; the sizes are inches."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        sys.exit("pictures need matplotlib: apt-get install python3-matplotlib, or "
                 "pip install matplotlib")
    return Figure((width, height), layout="constrained")


def compact(svg):
    """An SVG of matplotlib with a line for each thing drawn, and coordinates of two
    digits after the point."""
    svg = re.sub(r"\s*\n(?! {0,3}<[^/])\s*", " ", svg)
    return re.sub("<[^>]*>", lambda tag: re.sub(
        r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", tag[0]), svg) + "\n"


def write(drawn, out):
    """Writes a figure as an SVG whose words are text, the same for the same data."""
    import matplotlib
    svg = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "swamp",
                                "font.sans-serif": ["DejaVu Sans"]}):
        drawn.savefig(svg, format="svg", metadata=dict.fromkeys(
            ("Creator", "Date", "Format", "Type")))
    out.write_text(compact(svg.getvalue()), encoding="utf-8")


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


STEPS = {"GPT-2 small": lambda name: not name.startswith("resnet/"),
         "ResNet-50": lambda name: name.startswith("resnet/")}


def paths(report):
    """{operator: {slaves: counters}} of a run with --critical_path, and the same for
    the sums of the steps, in milliseconds."""
    found = {}
    for line in report["benchmarks"]:
        family, *name, slaves = line["run_name"].removesuffix(
            "/iterations:1/manual_time").split("/")
        if family == "critical_path":
            found.setdefault("/".join(name), {})[int(slaves.split(":")[1])] = line
    for step, has in STEPS.items():
        parts = [of for name, of in found.items() if has(name)
                 and next(iter(of.values()))["calls"] != 0]
        sums = found[step] = {}
        for slaves in set.intersection(*map(set, parts)) if parts else ():
            lines = [of[slaves] for of in parts]
            total = sums[slaves] = {
                key: sum(line[key] * line["calls"] for line in lines)
                for key in ("alone_ms", "launches", "real_ms")
                if all(key in line for line in lines)}
            for key in ("efficiency_5us", "efficiency_10us", "efficiency_20us",
                        "balance"):
                total[key] = total["alone_ms"] / sum(
                    line["alone_ms"] / line[key] * line["calls"] for line in lines)
            total["master_percent"] = sum(
                line["alone_ms"] * line["master_percent"] * line["calls"]
                for line in lines) / total["alone_ms"]
    return {name: of for name, of in found.items() if of}


def print_paths(found):
    every = list(found.values())
    slaves = sorted(set.union(*map(set, every)))
    threads = [n for n in slaves if all("real_ms" in of.get(n, ()) for of in every)]
    real = [f"real / predicted, {n} threads" for n in threads[-1:]]
    print("|", " | ".join(["operator", "ms alone", *map(str, slaves), "balance at 64",
                           "master %", "launches", *real]), "|")
    print("|---" * (len(slaves) + 5 + len(real)) + "|")
    for name, of in found.items():
        first, last = of[min(of)], of.get(64, of[max(of)])
        columns = [f"{of[n]['efficiency_10us']:.2f}" if n in of else ""
                   for n in slaves]
        columns += [f"{last['balance']:.2f}", f"{last['master_percent']:.2f}",
                    f"{last['launches']:.0f}"]
        columns += [f"{of[n]['real_ms'] * n * of[n]['efficiency_10us'] / first['alone_ms']:.2f}"
                    for n in threads[-1:]]
        print(f"| `{name}` | {first['alone_ms']:.1f} |", " | ".join(columns), "|")


def draw_paths(found, out):
    """Milliseconds of a step over slaves: predicted, ideal, and measured where the
    computer has as many threads."""
    steps = [step for step in STEPS if step in found]
    drawn = figure(4 * max(1, len(steps)), 4)
    for axes, step in zip(drawn.subplots(1, len(steps), squeeze=False)[0], steps):
        sums = found[step]
        slaves = sorted(sums)
        alone = [sums[n]["alone_ms"] for n in slaves]
        axes.set(title=step, xlabel="slaves", ylabel="ms a step")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.grid(True, linestyle=":")
        axes.plot(slaves, [t / n for t, n in zip(alone, slaves)],
                  linestyle="--", label="one thread's time / slaves")
        axes.plot(slaves, [t / n / sums[n]["efficiency_10us"]
                           for t, n in zip(alone, slaves)],
                  marker="s", markersize=4, label="predicted, spawn of 10 us")
        real = [(1, alone[0])] if alone else []
        real += [(n, sums[n]["real_ms"]) for n in slaves if "real_ms" in sums[n]]
        if real:
            axes.plot(*zip(*real), marker="o", linestyle="", label="measured")
        axes.set_xticks([1, *slaves], [str(n) for n in (1, *slaves)])
        axes.legend()
    write(drawn, out)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bench", metavar="PROGRAM", default=table.PROGRAM,
                        help="default: build/release/bin/swamp_bench")
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path,
                        help="what a run has written with --benchmark_out")
    parser.add_argument("--critical_path", action="store_true",
                        help="the steps of GPT-2 small and ResNet-50")
    parser.add_argument("--out", metavar="FILE.svg", type=pathlib.Path,
                        help="default: bench/scaling.svg or critical_path.svg")
    options = parser.parse_args()
    name = "critical_path" if options.critical_path else "scaling"
    out = options.out or FOLDER / f"{name}.svg"
    others = machine.Others()
    try:
        report = (json.loads(options.json.read_text()) if options.json
                  else table.measure(options.bench, ["--critical_path"])
                  if options.critical_path
                  else table.measure(options.bench, [
                      "--benchmark_filter=^scaling", "--memory_mib=1024",
                      "--benchmark_repetitions=9", "--benchmark_min_time=0.01"]))
        found = (paths(report) if options.critical_path
                 else points(table.read(report)))
        if not found:
            sys.exit(f"plot.py: the run has no case of {name}/")
        if not options.json and options.out is None:
            machine.require_alone("plot.py", others.share())
        if options.critical_path:
            print_paths(found)
            draw_paths(found, out)
        else:
            draw(found, out)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"plot.py: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
