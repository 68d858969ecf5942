#!/usr/bin/env python3
"""`swamp scan` against numpy, on files that numpy and safetensors wrote.

usage: scan_real.py PROGRAM [--gib N]

Writes files of every format, dtype and order, scans them and compares counts,
first index and extremes with what numpy says. --gib N compares speeds instead:
on files of N GiB, scan beside numpy.isfinite. Exits with 77 (skipped) where
numpy or safetensors cannot be imported.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

try:
    import numpy as np
    import safetensors.numpy
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None


def arrays(rng):
    """Arrays with and without inf and nan, of every dtype there is."""
    dtypes = ["float16", "float32", "float64", "complex64", "complex128"]
    if ml_dtypes is not None:
        dtypes += [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
                   ml_dtypes.float8_e5m2]
    made = {}
    for dtype in map(np.dtype, dtypes):
        for shape in [(), (1,), (0, 3), (7,), (33, 65), (3, 50, 41), (200001,)]:
            for planted in [0, 5]:
                values = (rng.standard_normal(shape) * 10).astype(dtype)
                if dtype.kind == "c":
                    values = values * (1 + 2j)
                flat = values.reshape(-1)
                for i in range(min(planted, flat.size)):
                    special = [np.inf, -np.inf, np.nan][i % 3]
                    flat[rng.integers(flat.size)] = special
                name = f"{dtype.name}.{len(made)}"
                made[name] = flat.reshape(shape)
    return made


def expected(array):
    elements = array.reshape(-1)  # C order
    flat = elements
    if flat.dtype.kind == "c":  # real and imaginary parts
        flat = flat.view(flat.real.dtype)
    flat = flat.astype("float64")  # exact
    bad = ~np.isfinite(flat)
    fine = flat[~bad]
    return {
        "shape": list(array.shape),
        "count": elements.size,
        "inf": int(np.isinf(flat).sum()),
        "nan": int(np.isnan(flat).sum()),
        "first": (int(np.argmax(bad)) * elements.size // flat.size
                  if bad.any() else None),
        "min": float(fine.min()) if fine.size else None,
        "max": float(fine.max()) if fine.size else None,
        "absmax": float(np.abs(fine).max()) if fine.size else None,
    }


def scan(program, path):
    done = subprocess.run([program, "scan", "--json", path],
                          capture_output=True, text=True)
    if done.returncode not in (0, 1, 2) or not done.stdout:
        sys.exit(f"swamp scan {path}: {done.returncode}: {done.stderr}")
    *lines, last = [json.loads(line) for line in done.stdout.splitlines()]
    dirty = any(line.get("inf", 0) + line.get("nan", 0) for line in lines)
    code = 2 if last["totals"]["unsupported"] else int(dirty)
    if done.returncode != code:
        sys.exit(f"swamp scan {path}: exit code {done.returncode}")
    return lines


def compare(program, path, wanted):
    """wanted: name -> array; None for a name means any."""
    lines = scan(program, path)
    if len(lines) != len(wanted):
        sys.exit(f"{path}: {len(lines)} tensors, expected {len(wanted)}")
    for line in lines:
        array = wanted.get(line["name"], next(iter(wanted.values())))
        if not line["scanned"]:
            # npy has no names for the dtypes of ml_dtypes.
            nameless = path.endswith(".npy") and array.dtype.isbuiltin != 1
            if array.dtype.kind not in "iub" and not nameless:
                sys.exit(f"{path}: not scanned: {line}")
            continue
        for key, value in expected(array).items():
            if line[key] != value:
                sys.exit(f"{path}: {line}: {key}: expected {value}")
    return sum(line["scanned"] for line in lines)


def check(program, folder):
    rng = np.random.default_rng(1)
    made = arrays(rng)
    made["ints"] = np.arange(5)
    made["flags"] = np.array([True, False])
    path = os.path.join(folder, "all.safetensors")
    known = {n: a for n, a in made.items() if a.dtype != "complex128"}
    safetensors.numpy.save_file(known, path, metadata={"format": "np"})
    compared = compare(program, path, known)
    plain = {n: a for n, a in made.items() if a.dtype.kind in "fciub"
             and a.dtype.itemsize > 1 or a.dtype.kind == "b"}
    for save in (np.savez, np.savez_compressed):
        path = os.path.join(folder, save.__name__ + ".npz")
        save(path, **plain)
        compared += compare(program, path, plain)
    for name, array in made.items():
        for order in "CF":
            for byte_order in "<>":
                # asarray alone may keep the order of an array of two orders
                written = np.array(array, order=order)
                if array.dtype.kind in "fc" and array.dtype.isbuiltin == 1:
                    written = written.astype(
                        array.dtype.newbyteorder(byte_order), order=order)
                path = os.path.join(folder, "one.npy")
                np.save(path, written)
                compared += compare(program, path, {"array": array})
    print(f"{compared} tensors: swamp scan and numpy agree")


def best_of(runs, work):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def speed(program, folder, gib):
    """Interleaved, files in the page cache; whole processes for swamp."""
    for name in ["float32", "float16"]:
        count = int(gib * 2**30) // np.dtype(name).itemsize
        block = np.random.default_rng(2).standard_normal(1 << 20)
        array = np.resize(block.astype(name), count)
        npy = os.path.join(folder, "big.npy")
        np.save(npy, array)
        tensors = os.path.join(folder, "big.safetensors")
        safetensors.numpy.save_file({"w": array}, tensors)
        del array

        def with_numpy():
            assert np.isfinite(np.load(npy, mmap_mode="r")).all()

        for path in [npy, tensors]:
            swamp, other = [], []
            for _ in range(3):
                swamp.append(best_of(1, lambda: scan(program, path)))
                other.append(best_of(1, with_numpy))
            size = os.path.getsize(path) * 1e-9
            print(f"{name} {os.path.basename(path)} {size:.2f} GB: swamp scan "
                  f"{size / min(swamp):.2f} GB/s, numpy.isfinite "
                  f"{size / min(other):.2f} GB/s "
                  f"({min(other) / min(swamp):.1f} times)", flush=True)
            text = subprocess.run([program, "scan", path],
                                  capture_output=True, text=True).stdout
            print("  " + text.splitlines()[-1], flush=True)
        os.remove(npy)
        os.remove(tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--gib", type=float)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.gib:
            speed(options.program, folder, options.gib)
        else:
            check(options.program, folder)


main()
