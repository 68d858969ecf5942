"""Random lists of random views, with swamp and with stock. CMakeLists.txt runs it on
several machines."""

import math
import random
import unittest

from support import AnyNan, BITS, main, same_as_stock, unscale

import torch

import swamp_torch

SEED = 20261121
ROUNDS = 400
INV_SCALES = [1.0, 0.5, 2.0 ** -16, 0.7, 1 / 3, 65536.0, 0.0, -1.0, 1e-40, 3.4e38,
              float("inf"), 1 / 12345.678]
MANTISSAS = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23,
             torch.float64: 52}  # bits


def specials(dtype):
    """The edges of the zero, subnormal, normal and non-finite ranges, as integers."""
    width, step = 8 * dtype.itemsize, 1 << MANTISSAS[dtype]
    sign = 1 << (width - 1)
    top = sign - step
    bits = [exponent | low for exponent in (0, step, top // 2 // step * step, top - step,
                                            top)
            for low in (0, 1, step // 2 - 1, step // 2, step // 2 + 1, step - 1)]
    return torch.tensor(bits + [b - sign for b in bits], dtype=BITS[dtype])


def storage(rng, dtype, count):
    """Random bits, every eighth special, mostly finite."""
    info = torch.iinfo(BITS[dtype])
    generator = torch.Generator().manual_seed(rng.getrandbits(40))
    bits = torch.randint(info.min, info.max, (count,), dtype=BITS[dtype],
                         generator=generator)
    some = specials(dtype)
    bits[::8] = some[torch.randint(0, len(some), bits[::8].shape, generator=generator)]
    bits = bits.view(dtype)
    if rng.random() < 0.6:
        bits = torch.where(torch.isfinite(bits), bits,
                           torch.ones((), dtype=dtype))
    return bits.clone()


def view(rng, base):
    """Any view that stock takes, also with several elements at one address."""
    count = base.numel()
    kind = rng.randrange(8)
    if kind <= 1:
        begin = rng.randrange(count)
        return base[begin:rng.randrange(begin, count + 1)]
    if kind == 2:
        return base[rng.randrange(9)::rng.randrange(1, 6)]
    if kind == 3:
        return base[rng.randrange(count)]  # 0-dim
    rows = rng.randrange(1, 9)
    matrix = base[:count // rows * rows].view(rows, -1)
    if kind == 4:
        return matrix.t()
    if kind == 5:
        column = rng.randrange(matrix.shape[1])
        return matrix[rng.randrange(rows):, column:][::rng.choice([1, 1, 2])]
    if kind == 6:
        size = [rng.randrange(1, 4) for _ in range(4)]
        cube = base[:math.prod(size)].view(size).permute(rng.sample(range(4), 4))
        return cube[:, ::rng.choice([1, 2])]
    size = [rng.randrange(0, 5) for _ in range(rng.randrange(1, 4))]
    stride = [rng.randrange(1, 12) for _ in size]
    return base.as_strided(size, stride, rng.randrange(count // 2))


def one_round(seed):
    rng = random.Random(SEED + seed)
    # Above 32768 elements stock's threads race for elements that share memory.
    large = seed % 10 == 0
    count = rng.choice([40000, 70001] if large else [150, 300, 2000, 20000])
    bases = [storage(rng, rng.choice(list(BITS)), count)
             for _ in range(rng.randrange(1, 5))]
    if large:
        tensors = [base[rng.randrange(9)::rng.randrange(1, 4)] if rng.random() < 0.5
                   else base[:count // 200 * 200].view(200, -1).t()[rng.randrange(3)::2, 5:]
                   for base in bases]
    else:
        tensors = [view(rng, rng.choice(bases))
                   for _ in range(rng.choice([1, 2, 5, 40, 300]))]
        # Long lists of random views nearly always overlap; make some that do not.
        if rng.random() < 0.5:
            tensors = [t for t in bases[0].split(rng.randrange(1, 70))]
            rng.shuffle(tensors)
    scale = rng.choice(INV_SCALES + [min(3e38, rng.lognormvariate(0, 20))])
    found, inv_scale = torch.tensor(0.0), torch.tensor(scale)
    any_nan = False
    floats = [b for b in bases if b.dtype == torch.float32]
    if floats and not large and rng.random() < 0.15:
        place = rng.choice(floats)
        where = rng.randrange(count)
        if rng.random() < 0.5:
            found = place[where]
        else:
            inv_scale, any_nan = place[where], True
    # PyTorch's other threads would not flush.
    torch.set_num_threads(2 if swamp_torch.is_active() else 1)
    torch.set_flush_denormal(seed % 3 == 0)
    unscale(tensors, found, inv_scale)
    torch.set_flush_denormal(False)
    if any_nan:  # inv_scale itself may have been nan
        return [AnyNan(base) for base in bases], AnyNan(found.clone())
    return bases, found.clone()


class Fuzz(unittest.TestCase):
    @same_as_stock(*range(ROUNDS))
    def test_round(self, seed):
        return one_round(seed)


if __name__ == "__main__":
    main()
