"""libswamp, through its C ABI, gives the bits of stock PyTorch's operators."""

import ctypes
import math
import random
import struct
import unittest
from ctypes import (POINTER, c_char_p, c_double, c_float, c_int, c_int32,
                    c_int64, c_size_t, c_uint32, c_uint64, c_void_p)

from support import BITS, DTYPES, PATH, main, same, unscale, update_scale

import torch

SEED = 20240917
INV_SCALES = [1.0, 0.5, 2.0 ** -16, 0.7, 1 / 3, 1e-3, 65536.0, 0.0, -1.0,
              math.inf, 1e-40, 3.4e38, 1 / 12345.678, math.nan]
DTYPE_CODES = {torch.float16: 0, torch.bfloat16: 1, torch.float32: 2,
               torch.float64: 3}


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("count", c_size_t), ("dtype", c_int)]


class Config(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("machine", c_char_p),
                ("backend", c_char_p), ("transfer", c_char_p),
                ("core_groups", c_uint32), ("slaves_per_group", c_uint32),
                ("ldm_bytes", c_size_t), ("isa", c_char_p), ("bind", c_char_p)]


class Report(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("tensor", c_uint64),
                ("index", c_uint64), ("tensor_count", c_uint64),
                ("element_count", c_uint64)]


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.swamp_last_error.restype = c_char_p
        self.lib.swamp_version.restype = c_char_p
        self.lib.swamp_machine_create.argtypes = [POINTER(Config),
                                                  POINTER(c_void_p)]
        self.lib.swamp_machine_destroy.argtypes = [c_void_p]
        unscale = "swamp_amp_foreach_non_finite_check_and_unscale_report"
        self._unscale = getattr(self.lib, unscale)
        self._unscale.argtypes = [c_void_p, POINTER(Tensor), c_size_t,
                                  POINTER(c_float), POINTER(c_float),
                                  POINTER(Report)]
        self._update_scale = self.lib.swamp_amp_update_scale
        self._update_scale.argtypes = [POINTER(c_float), POINTER(c_int32),
                                       POINTER(c_float), c_double, c_double,
                                       c_int64]

    def _check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.swamp_last_error().decode())

    def machine(self, **fields):
        config = Config(struct_size=ctypes.sizeof(Config))
        for name, value in fields.items():
            setattr(config, name,
                    value.encode() if isinstance(value, str) else value)
        machine = c_void_p()
        self._check(self.lib.swamp_machine_create(ctypes.byref(config),
                                                  ctypes.byref(machine)))
        return machine

    def unscale(self, tensors, found_inf, inv_scale, machine=None):
        """Returns found_inf and the report; the tensors change in place."""
        views = (Tensor * max(1, len(tensors)))()
        for view, tensor in zip(views, tensors):
            assert tensor.is_contiguous()
            view.data = tensor.data_ptr() if tensor.numel() else None
            view.count = tensor.numel()
            view.dtype = DTYPE_CODES[tensor.dtype]
        found = c_float(found_inf)
        report = Report(struct_size=ctypes.sizeof(Report))
        self._check(self._unscale(machine, views, len(tensors),
                                  ctypes.byref(found),
                                  ctypes.byref(c_float(inv_scale)),
                                  ctypes.byref(report)))
        return found.value, report

    def update_scale(self, scale, tracker, found_inf, growth, backoff,
                     interval):
        scale, tracker = c_float(scale), c_int32(tracker)
        self._check(self._update_scale(
            ctypes.byref(scale), ctypes.byref(tracker),
            ctypes.byref(c_float(found_inf)), growth, backoff, interval))
        return scale.value, tracker.value


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
    unscale(tensors, found, inverse)
    torch.set_num_threads(2)
    return found.item()


def mixed_list(generator, rng, make):
    tensors = []
    for _ in range(rng.randrange(1, 40)):
        dtype = rng.choice(DTYPES)
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
        # The payload of a nan counts for float32 and float64 only, and not if
        # inv_scale is nan itself.
        any_nan = a.element_size() == 2 or math.isnan(inv_scale)
        assert same(a, b, any_nan), f"tensor {index}: {a.dtype} x {inv_scale}"
    expect_report(report, tensors)


MACHINES = {
    "default": None,
    "copy": dict(transfer="copy", core_groups=2, slaves_per_group=4,
                 ldm_bytes=8192),
    "threads": dict(backend="threads", core_groups=1, slaves_per_group=3)}


class Differential(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(2)
        cls.library = Library(PATH)
        cls.machines = {name: fields and cls.library.machine(**fields)
                        for name, fields in MACHINES.items()}

    @classmethod
    def tearDownClass(cls):
        for machine in cls.machines.values():
            cls.library.lib.swamp_machine_destroy(machine)

    def on_every_machine(self, test):
        """Calls test(machine), with and without flush-to-zero."""
        for flush in (False, True):
            for name, machine in self.machines.items():
                if not torch.set_flush_denormal(flush):
                    continue
                try:
                    with self.subTest(machine=name, flush=flush):
                        test(machine)
                finally:
                    torch.set_flush_denormal(False)

    def test_patterns(self):
        def test(machine):
            generator = torch.Generator().manual_seed(SEED)
            for inv_scale in INV_SCALES:
                for dtype in (torch.float16, torch.bfloat16):
                    compare(self.library, machine, [all_patterns(dtype)],
                            inv_scale)
                for dtype in DTYPES:
                    compare(self.library, machine,
                            [any_bits(dtype, 10007, generator)], inv_scale)

        self.on_every_machine(test)

    def test_lists(self):
        def test(machine):
            generator = torch.Generator().manual_seed(SEED)
            rng = random.Random(SEED)
            for turn in range(60):
                make = finite_bits if turn % 3 == 0 else any_bits
                tensors = mixed_list(generator, rng, make)
                inv_scale = rng.choice(INV_SCALES + [rng.lognormvariate(0, 20)])
                compare(self.library, machine, tensors, min(inv_scale, 3e38),
                        rng.choice([0.0, 1.0, 2.0]))
            compare(self.library, machine, [], 0.5, 3.0)

        self.on_every_machine(test)

    def test_update_scale(self):
        for flush in (False, True):
            if not torch.set_flush_denormal(flush):
                continue
            try:
                with self.subTest(flush=flush):
                    self.compare_update_scale(random.Random(SEED))
            finally:
                torch.set_flush_denormal(False)

    def compare_update_scale(self, rng):
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
            ours = self.library.update_scale(scale, tracker, found, growth,
                                             backoff, interval)
            current = torch.tensor([scale], dtype=torch.float32)
            count = torch.tensor([tracker], dtype=torch.int32)
            update_scale(current, count,
                         torch.tensor([found], dtype=torch.float32), growth,
                         backoff, interval)
            self.assertEqual(
                repr(ours), repr((current.item(), count.item())),
                (scale, tracker, found, growth, backoff, interval))


if __name__ == "__main__":
    main()
