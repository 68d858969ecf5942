#!/usr/bin/env python3
"""Runs swamp_bench, or reads the JSON of a run, and prints tables of ratios.

A case counts with its fastest repetition, because noise only adds time. Its label
names the cases that it is compared with; of several, the fastest counts. The ratio
is speed over speed: 1.00 is as fast, 0.50 takes twice the time.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/swamp_bench"
MIB = 1 << 20
NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}

# The families in the order of the tables: the first part of a case's name, and
# what its cases are compared with. Other operators of rows follow.
OF_ROWS = "rows; roofline: the fastest loop of the same bytes"
FAMILIES = {
    "unscale": "the operator on one tensor; roofline: the fastest in-place loop",
    "check": "inv_scale 1, which only reads; roofline: the fastest reading loop",
    "list": "time per small tensor; else roofline: the in-place loop in memory",
    "norm": "norm and check; roofline: the fastest reading loop",
    "cast": "casts; roofline: the fastest loop over as many arrays",
    "accumulate": "sums; roofline: the fastest loop over as many arrays",
    "lerp": "moving averages; roofline: the fastest loop over as many arrays",
    "zero": "zeros; roofline: the fastest loop over as many arrays",
    "step": "optimizer steps; roofline: the fastest loop over as many arrays",
    "cross_entropy": "rows of 50304 classes; backward in place",
    "activation": "float32 computed in double; swiglu: two inputs",
    "moe": "rows of 1024 columns, in the order of a permutation",
    "residual_add": "16-bit or float32 and a bias into float32",
    "product": "roofline: as many float32 multiply-adds in registers",
    "depthwise": "convolutions; roofline as for products",
    "generate": "one row times a matrix of 4096 columns; one query, 8 heads of 64",
    "transfer": "transfer modes, unscale float32, compared with view",
    "checker": "transfer mode check compared with copy",
    "spawn": "spawn and join; host: with OpenMP's empty parallel for",
    "threshold": "a spawn compared with the master alone, by traffic",
    "claims": "long launches, threads that claim slaves compared with fixed shares",
    "scaling": "unscale float32 with more threads, bytes, tensors, slaves",
    "tuning": "the numbers of runtime/tuning.h, compared with the default",
}
# The least ratio, or for lists the most nanoseconds per tensor, to aim for.
AIMS = [
    (r"unscale/float32/bytes:{memory}/", 0.95),
    (r"unscale/b?float16/bytes:{memory}/", 0.85),
    (r"norm/float32/bytes:{memory}/", 0.9),
    (r"product/(forward|gradient_.|logits)/float(32|16)/", 0.88),
    (r"transfer/copy/bytes:{memory}/", 0.7),
    (r"checker/.*/check/", 0.25),
    (r"spawn/(backend|job)/openmp/host", 0.77),
    (r"spawn/(backend|job)/openmp/slaves:384", 0.33),
    (r"list/10000x16/.*/threads:1$", 6),
]
QUICK = "|".join([
    r"unscale/(float32|bfloat16)/bytes:{memory}/",
    r"roofline/scale/prefetch:(0|4096)/bytes:{memory}/",
    r"list/10000x16/float32/",
    r"step/adam/(float32|bfloat16_bfloat16)/bytes:{memory}/",
    r"roofline/in:2/inout:3/out:2/prefetch:(0|4096)/.*/bytes:{memory}/",
    r"roofline/in:4/inout:3/out:0/prefetch:(0|4096)/.*/bytes:{memory}/",
    r"spawn/(empty_omp|job/(openmp|threads/host))",
])


class Case:
    """One case: its fastest repetition, and how much slower the others were."""

    def __init__(self, name, runs):
        best = min(runs, key=lambda run: run["real_time"])
        self.name = name
        self.nanoseconds = best["real_time"] * NANOSECONDS[best["time_unit"]]
        self.bytes_per_second = best.get("bytes_per_second")
        self.flops = best.get("flops")
        self.items_per_second = best.get("items_per_second")
        self.label = best.get("label", "")
        self.path, self.arguments = split(name)
        self.spread = (statistics.median(run["real_time"] for run in runs)
                       / best["real_time"])

    def speed(self):
        return self.flops or self.bytes_per_second or 1e9 / self.nanoseconds


def split(name):
    """'a/b/key:1/c' -> ('a/b/c', {'key': '1'})"""
    parts = name.split("/")
    return ("/".join(part for part in parts if ":" not in part),
            dict(part.split(":") for part in parts if ":" in part))


def read(report):
    """The cases of a run by name, as they were registered."""
    runs = {}
    for line in sorted(report["benchmarks"], key=lambda line: (
            line["family_index"], line["per_family_instance_index"])):
        if line.get("error_occurred"):
            sys.exit(f"table.py: {line['name']}: {line['error_message']}")
        elif line.get("run_type") != "aggregate":
            name = line["run_name"].removesuffix("/real_time")
            runs.setdefault(name, []).append(line)
    return {name: Case(name, listed) for name, listed in runs.items()}


def compared_with(case, cases):
    """The fastest of the cases that the label of `case` names, or None."""
    path, named = split(case.label)

    def fits(other):
        if other.path != path:
            return False
        for key, value in other.arguments.items():
            wanted = named.get(key, case.arguments.get(key, value))
            # A loop on one thread wins if the data is too small to share.
            if value != wanted and not (
                    (path.split("/")[0], key, value) ==
                    ("roofline", "threads", "1")):
                return False
        return True

    return max(filter(fits, cases.values()), key=Case.speed, default=None)


def size_text(count):
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            break
        count /= 1024
    else:
        unit = "GiB"
    return f"{count:g} {unit}"


def digits(value):
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def speed_text(case):
    if case.flops:
        return digits(case.flops / 1e9) + " GF/s"
    if case.items_per_second:
        return digits(1e9 / case.items_per_second) + " ns"
    if case.bytes_per_second and "bytes" in case.arguments:
        return digits(case.bytes_per_second / 1e9) + " GB/s"
    time = case.nanoseconds
    for unit in ("ns", "us", "ms"):
        if time < 1000:
            break
        time /= 1000
    return f"{digits(time)} {unit}"


def aim_text(case, ratio, memory):
    for pattern, aim in AIMS:
        if re.match(pattern.format(memory=memory), case.name):
            if ratio is None:
                ok = 1e9 / case.items_per_second <= aim
                return "ok" if ok else f">{aim:g}"
            return "ok" if ratio is not None and ratio >= aim else f"<{aim:g}"
    return ""


def columns(name, size, threads, measured, against, ratio, aim):
    if len(name) > 34:
        name = name.replace("bfloat16", "bf16")
    return (f"  {name:<34}{size:>8}{threads:>4}{measured:>10}{against:>10}"
            f" {ratio:>6}{aim:>5}").rstrip()


def row(case, other, context, aims):
    size = case.arguments.get("bytes")
    name = "/".join(part for part in case.name.split("/")[1:]
                    if not part.startswith(("bytes:", "threads:")))
    ratio = case.speed() / other.speed() if other else None
    memory = int(context["memory_mib"]) * MIB
    return columns(name or case.path, size_text(int(size)) if size else "",
                   case.arguments.get("threads", context["threads"]),
                   speed_text(case), speed_text(other) if other else "",
                   f"{ratio:.2f}" if other else "",
                   aim_text(case, ratio, memory) if aims else "")


def print_tables(report, aims):
    cases, context = read(report), report["context"]
    others = {case: compared_with(case, cases) for case in cases.values()
              if case.label}
    print(f"{context['cpu']}, {context['machine']}; swamp {context['version']}")
    print(columns("", "size", "thr", "measured", "against", "ratio",
                  "aim" if aims else ""))
    for family in dict.fromkeys([*FAMILIES, *(name.split("/")[0] for name in cases)]):
        if family == "roofline":
            continue
        # A case that others are compared with has no row itself.
        rows = [row(case, others.get(case), context, aims)
                for case in cases.values()
                if case.name.split("/")[0] == family
                and others.get(case) is not case
                and (case in others or case not in others.values())]
        if rows:
            print(f"{family}: {FAMILIES.get(family, OF_ROWS)}", *rows, sep="\n")
    spread = statistics.median(case.spread for case in cases.values())
    if spread > 1.25:
        print(f"This machine is busy: half of the repetitions took {spread:.1f} "
              "times the fastest or\nmore. The fastest count, but the ratios may "
              "be off.")


def measure(program, options):
    """The JSON of a run in which the repetitions of all cases are shuffled, so
    that a noisy moment does not hit one side of a ratio alone."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "bench.json"
        done = subprocess.run(
            [program, "--benchmark_enable_random_interleaving=true", *options,
             f"--benchmark_out={out}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"table.py: {program} failed:\n{done.stderr.strip()}")
        return json.loads(out.read_text())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter,
        usage="bench/table.py [--quick] [--json FILE] [SWAMP_BENCH-OPTION...]",
        epilog="Other options go to swamp_bench, e.g. "
               "--benchmark_filter=^spawn.\nAn exit code of 0 does not mean that "
               "the aims are reached.")
    parser.add_argument("--quick", action="store_true",
                        help="some telling cases only, without aims: 15 s, 256 MiB")
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path,
                        help="what a run has written with --benchmark_out")
    parser.add_argument("--memory_mib", metavar="N", type=int,
                        help="size of the cases in memory (quick: 256, else 512)")
    parser.add_argument("--bench", metavar="PROGRAM", default=PROGRAM,
                        help="default: build/release/bin/swamp_bench")
    options, others = parser.parse_known_args()
    try:
        if options.json:
            report = json.loads(options.json.read_text())
        else:
            mib = options.memory_mib or (256 if options.quick else 512)
            own = ([f"--memory_mib={mib}", "--benchmark_repetitions=9",
                    "--benchmark_min_time=0.00001", "--benchmark_filter=^("
                    + QUICK.format(memory=mib * MIB) + ")"] if options.quick
                   else [f"--memory_mib={mib}", "--benchmark_repetitions=9",
                         "--benchmark_min_time=0.01"])
            print("table.py: measuring, about "
                  + ("15 s" if options.quick else "20 minutes without a filter"),
                  file=sys.stderr)
            report = measure(options.bench, own + others)
        print_tables(report, aims=not options.quick)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"table.py: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
