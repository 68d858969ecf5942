"""Measures everybody in turn; the least of several rounds counts."""
import argparse
import gc
import json
import os
import pathlib
import time

import torch

import report
import steps
from lists import LISTS
from native import Naive, Swamp

OUT = pathlib.Path("build/peers")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16,
          "float16": torch.float16}


def least(cases, rounds):
    """Milliseconds of each case: one untimed round, then the least of all."""
    best = {}
    for turn in range(rounds + 1):
        for name, call in cases.items():
            begin = time.perf_counter()
            call()
            taken = (time.perf_counter() - begin) * 1e3
            if turn > 0:
                best[name] = min(taken, best.get(name, taken))
    return best


def measure(name, dtypes, rounds, swamp, naive, results):
    _, counts = LISTS[name]
    for dtype in dtypes:
        arrays = steps.Arrays(counts(), DTYPES[dtype])
        for clip in (False, True):
            cases = steps.step_cases(arrays, clip, swamp, naive)
            key = f"{name}/{dtype}/{'clip' if clip else 'no clip'}"
            results["steps"][key] = least(cases, rounds)
            print(key, {n: round(t, 3) for n, t in
                        results["steps"][key].items()}, flush=True)
            del cases
            gc.collect()
        for kernel, (ours, theirs) in steps.kernel_cases(arrays,
                                                         swamp).items():
            both = least({"swamp": ours, "peer": theirs}, rounds)
            results["kernels"][f"{name}/{kernel}"] = both
            print(name, kernel, both, flush=True)
        del arrays, ours, theirs
        gc.collect()


def facts(swamp):
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo")
                if line.startswith("model name")), "unknown")
    versions = {"swamp": swamp.version(), "PyTorch": torch.__version__}
    if steps.DeepSpeedCPUAdam is not None:
        import deepspeed
        versions["DeepSpeed"] = deepspeed.__version__
    return {"cpu": cpu, "threads": torch.get_num_threads(),
            "versions": versions, "date": time.strftime("%Y-%m-%d")}


def main():
    parser = argparse.ArgumentParser(prog="bench/peers/run")
    parser.add_argument("--list", action="append", choices=LISTS)
    parser.add_argument("--gradients", action="append", choices=DTYPES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-readme", action="store_true")
    options = parser.parse_args()
    swamp = Swamp(os.path.abspath("build/release/lib/libswamp.so"))
    naive = Naive(os.path.abspath(OUT / "libnaive.so"))
    if steps.DeepSpeedCPUAdam is None:
        print("peers: no DeepSpeed:", steps.NO_DEEPSPEED)
    file = OUT / "results.json"
    results = {"steps": {}, "kernels": {}}
    if (options.list or options.gradients) and file.exists():
        results = json.loads(file.read_text())
    results["facts"] = facts(swamp)
    for name in options.list or LISTS:
        measure(name, options.gradients or DTYPES, options.rounds, swamp, naive, results)
        file.write_text(json.dumps(results, indent=1))
    report.write(results, OUT, readme=not options.no_readme)


if __name__ == "__main__":
    main()
