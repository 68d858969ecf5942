"""Compares libswamp with stock PyTorch's CPU operators, bit for bit.

usage: differential.py LIBSWAMP
Exits 0 when equal, 1 when not, 77 when torch is missing.
"""

import math
import random
import struct
import sys

try:
    import torch
except ImportError:
    print("skipped: this python has no torch")
    sys.exit(77)

sys.dont_write_bytecode = True  # the source tree may be read-only
from swamp_library import DTYPES, Library  # noqa: E402

SEED = 20240917
BITS = {torch.float16: torch.int16, torch.bfloat16: torch.int16,
        torch.float32: torch.int32, torch.float64: torch.int64}
INV_SCALES = [1.0, 0.5, 2.0 ** -16, 0.7, 1 / 3, 1e-3, 65536.0, 0.0, -1.0,
              math.inf, 1e-40, 3.4e38, 1 / 12345.678, math.nan]


def float32(value):
    return torch.tensor(value, dtype=torch.float32).item()


def specials(dtype):
    """The edges of the zero, subnormal, normal and non-finite ranges."""
    mantissa, width = {torch.float16: (10, 16), torch.bfloat16: (7, 16),
                       torch.float32: (23, 32), torch.float64: (52, 64)}[dtype]
    step, sign = 1 << mantissa, 1 << (width - 1)
    top = sign - step
    patterns = []
    for exponent in (0, step, top // 2 // step * step, top - step, top):
        for low in (0, 1, step // 2 - 1, step // 2, step // 2 + 1, step - 1):
            patterns += [exponent | low, exponent | low | sign]
    signed = [p - (1 << width) if p >= sign else p for p in patterns]
    return torch.tensor(signed, dtype=BITS[dtype])


def any_bits(dtype, count, generator):
    """Random bit patterns, every eighth special."""
    info = torch.iinfo(BITS[dtype])
    bits = torch.randint(info.min, info.max, (count,), dtype=BITS[dtype],
                         generator=generator)
    special = specials(dtype)
    places = torch.rand(count, generator=generator) < 1 / 8
    chosen = torch.randint(0, len(special), (count,), generator=generator)
    return torch.where(places, special[chosen], bits).view(dtype)


def finite_bits(dtype, count, generator):
    values = any_bits(dtype, count, generator)
    one = torch.ones((), dtype=dtype)
    return torch.where(torch.isfinite(values), values, one)


def all_patterns(dtype):
    return torch.arange(-32768, 32768, dtype=torch.int16).view(dtype)


def stock(tensors, found_inf, inv_scale):
    # One thread: torch's workers do not see this thread's flush-to-zero.
    torch.set_num_threads(1)
    found = torch.tensor([found_inf], dtype=torch.float32)
    inverse = torch.tensor([inv_scale], dtype=torch.float32)
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, inverse)
    torch.set_num_threads(2)
    return found.item()


def same(ours, theirs, inv_scale):
    """Bits; nan payloads count for float32 and float64 only, and not when
    inv_scale is nan itself."""
    equal = ours.view(BITS[ours.dtype]) == theirs.view(BITS[ours.dtype])
    if ours.element_size() == 2 or math.isnan(inv_scale):
        equal |= torch.isnan(ours) & torch.isnan(theirs)
    return bool(equal.all())


def mixed_list(generator, rng, make):
    tensors = []
    for _ in range(rng.randrange(1, 40)):
        dtype = rng.choice(list(DTYPES))
        count = rng.choice([0, 1, rng.randrange(100), rng.randrange(3000),
                            rng.choice([8191, 8192, 8193, 20001])])
        skip = rng.randrange(8)  # odd starts
        tensors.append(make(dtype, count + skip, generator)[skip:])
    return tensors


def expect_report(report, tensors):
    dirty = [(t, torch.nonzero(~torch.isfinite(x)).flatten())
             for t, x in enumerate(tensors)]
    dirty = [(t, where) for t, where in dirty if len(where)]
    expected = (0, 0, 0, 0)
    if dirty:
        expected = (dirty[0][0], dirty[0][1][0].item(), len(dirty),
                    sum(len(where) for _, where in dirty))
    found = (report.tensor, report.index, report.tensor_count,
             report.element_count)
    assert found == expected, f"report {found}, expected {expected}"


def compare(library, machine, tensors, inv_scale, found_inf=0.0):
    inv_scale = float32(inv_scale)
    ours = [t.clone() for t in tensors]
    theirs = [t.clone() for t in tensors]
    got, report = library.unscale(ours, found_inf, inv_scale, machine)
    want = stock(theirs, found_inf, inv_scale)
    assert got == want, f"found_inf {got}, torch {want}"
    for index, (a, b) in enumerate(zip(ours, theirs)):
        assert same(a, b, inv_scale), f"tensor {index}: {a.dtype} x {inv_scale}"
    expect_report(report, tensors)


def test_patterns(library, machine):
    generator = torch.Generator().manual_seed(SEED)
    for inv_scale in INV_SCALES:
        for dtype in (torch.float16, torch.bfloat16):
            compare(library, machine, [all_patterns(dtype)], inv_scale)
        for dtype in DTYPES:
            compare(library, machine, [any_bits(dtype, 10007, generator)],
                    inv_scale)


def test_lists(library, machine):
    generator = torch.Generator().manual_seed(SEED)
    rng = random.Random(SEED)
    for turn in range(60):
        make = finite_bits if turn % 3 == 0 else any_bits
        tensors = mixed_list(generator, rng, make)
        inv_scale = rng.choice(INV_SCALES + [rng.lognormvariate(0, 20)])
        compare(library, machine, tensors, min(inv_scale, 3e38),
                rng.choice([0.0, 1.0, 2.0]))
    compare(library, machine, [], 0.5, 3.0)


def test_update_scale(library, _):
    rng = random.Random(SEED)

    def any_float():
        bits = rng.getrandbits(32)
        return rng.choice([0.0, 1.0, 65536.0, 1e-40, 3e38, math.inf, math.nan,
                           struct.unpack("f", struct.pack("I", bits))[0]])

    for _ in range(5000):
        scale = rng.choice([any_float(), 2.0 ** rng.randrange(-149, 128)])
        tracker = rng.choice([0, 1, 5, -3, rng.randrange(2 ** 31 - 1)])
        found = rng.choice([0.0, 0.0, -0.0, 1.0, 2.0, -1.0, any_float()])
        growth = rng.choice([2.0, 1.1, 1.5, math.inf, rng.uniform(0, 1e3)])
        backoff = rng.choice([0.5, 0.7, 0.0, 1 / 3, rng.uniform(0, 2)])
        interval = rng.choice([1, 2, 6, 0, -2, tracker + 1, 2000, 2 ** 40])
        ours = library.update_scale(scale, tracker, found, growth, backoff,
                                    interval)
        current = torch.tensor([scale], dtype=torch.float32)
        count = torch.tensor([tracker], dtype=torch.int32)
        torch._amp_update_scale_(current, count,
                                 torch.tensor([found], dtype=torch.float32),
                                 growth, backoff, interval)
        theirs = (current.item(), count.item())
        assert repr(ours) == repr(theirs), (
            f"{ours}, torch {theirs}, of "
            f"{(scale, tracker, found, growth, backoff, interval)}")


def main(path):
    library = Library(path)
    torch.set_num_threads(2)
    machines = {"default": None,
                "copy": library.machine(transfer="copy", core_groups=2,
                                        slaves_per_group=4, ldm_bytes=8192),
                "threads": library.machine(backend="threads", core_groups=1,
                                           slaves_per_group=3)}
    failures = 0
    for flush in (False, True):
        if not torch.set_flush_denormal(flush):
            continue
        for test in (test_patterns, test_lists, test_update_scale):
            for name, machine in machines.items():
                if test is test_update_scale and name != "default":
                    continue
                where = f"{test.__name__}, machine {name}, flush {flush}"
                try:
                    test(library, machine)
                except AssertionError as error:
                    failures += 1
                    print(f"FAILED {where}: {error}")
    torch.set_flush_denormal(False)
    for machine in machines.values():
        library.lib.swamp_machine_destroy(machine)
    print(f"torch {torch.__version__}, swamp "
          f"{library.lib.swamp_version().decode()}: {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1]))
