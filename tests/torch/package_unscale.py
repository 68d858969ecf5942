"""PyTorch's two operators through its dispatcher, with swamp and with stock."""

import itertools
import math
import unittest
import warnings
from typing import NamedTuple

from support import (AnyNan, DTYPES, caught, main, same, same_as_stock, unscale,
                     update_scale)

import torch

import swamp_torch

INF, NAN = math.inf, math.nan


def f32(value=0.0, shape=()):
    return torch.full(shape, value, dtype=torch.float32)


def i32(value=0):
    return torch.tensor(value, dtype=torch.int32)


VIEWS = (lambda t: t, lambda t: t.t(), lambda t: t[:, :5])


FOREIGN = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32,
           torch.int64, torch.complex64, torch.complex128, torch.complex32,
           torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32]


class Call(NamedTuple):
    """A call, and the memory that is compared after it, with found_inf."""
    tensors: list
    inverse: object = 0.3
    found: object = 0.0
    memory: object = None  # None: the tensors
    flush: bool = False  # denormal numbers


# The table of unscale: name, and a generator of calls for a dtype.


def upstream(dtype):
    """PyTorch's own test."""
    for first, second, where, poison in itertools.product(
            VIEWS, VIEWS, (0, 1), (None, INF, NAN)):
        bases = [torch.full((20, 20), 4.0, dtype=dtype) for _ in range(2)]
        if poison is not None:
            bases[where][2, 2] = poison
        yield Call([first(bases[0]), second(bases[1])], f32(0.25, (1,)),
                   f32(0.0, (1,)), bases)
    yield Call([torch.full((20, 20), 4.0, dtype=d) for d in DTYPES], 0.25)


def every_place(dtype):
    """Every lane, every offset of a tail, every tensor of the list."""
    for value in (INF, -INF, NAN):
        for count in (1, 2, 15, 16, 17, 31, 33, 47, 65):
            for place in range(count):
                tensors = [torch.arange(count).to(dtype) for _ in range(3)]
                tensors[place % 3][place] = value
                yield Call(tensors, 0.7)


def numbers(dtype):
    """All numbers of 16 bits, and some of every dtype."""
    values = [0.0, -0.0, 1.0, -3.5, 1e-30, 6e4, 65504.0, 1e38, INF, -INF, NAN, 1e-7]
    for inverse in (0.0, -0.0, 1.0, -1.0, 0.1, 0.7, 2.0, 3.0, 2.0 ** -16, 1e-40, 1e-45,
                    3e38, INF, -INF, NAN):
        for flush in (False, True):
            yield Call([torch.tensor(values * 5).to(dtype)], inverse, flush=flush)
        if dtype.itemsize == 2:
            yield Call([torch.arange(-32768, 32768, dtype=torch.int16).view(dtype)],
                       inverse)


def found_before(dtype):
    """found_inf is never cleared."""
    for value in (0.0, 1.0, 2.0, -1.0, NAN):
        found = f32(value)
        for x in (1.0, INF, 1.0):
            yield Call([torch.full((3,), x, dtype=dtype)], 0.5, found)


def empty(dtype):
    yield Call([], 0.5, 3.0)
    yield Call([], torch.zeros(2, dtype=torch.int32), torch.zeros(0))
    for make in (lambda x: x, lambda x: torch.empty(3, 0).t(),
                 lambda x: torch.empty(1, 0).expand(4, 0)):
        yield Call([make(torch.empty(0, dtype=dtype))], 0.5, 3.0)


def shapes(dtype):
    for shape in ((), (1,), (1, 1), (3,), (2, 3, 4), (1, 5, 1), (7, 1)):
        for one in ((), (1,), (1, 1, 1)):
            yield Call([torch.full(shape, 8.0, dtype=dtype)], f32(0.25, one),
                       f32(0.0, one))


def overlaps(dtype):
    """Of long lists; package_fuzz.py has short ones, and views of all kinds."""
    # Enough for several threads, which would lose updates.
    base = torch.linspace(1, 2, 100).to(dtype)
    yield Call([base[9:], base[:-9]] * 5000, 1.0001, memory=[base])
    # Enough for the radix sort of any_overlap(), which finds a duplicate.
    order = torch.randperm(10000, generator=torch.Generator().manual_seed(3)).tolist()
    for more in ([], [order[1234]]):
        base = torch.linspace(1, 2, 40000).to(dtype)
        yield Call([base[4 * i:4 * i + 3] for i in order + more], memory=[base])


def found_in_the_list(dtype):
    """At every place, with a bad element at every place, in a tensor of two pairs of
    vectors and a tail."""
    words = 37
    count = words * 4 // dtype.itemsize
    for inverse, place, bad in itertools.product((0.5, 1.0), range(words),
                                                 range(count)):
        memory = torch.linspace(1, 2, 40 * 4 // dtype.itemsize).to(dtype)
        memory[bad] = INF
        yield Call([memory[:count]], inverse, memory.view(torch.float32)[place],
                   [memory])
    for start, order in itertools.product(
            (3.0, 0.5, INF, NAN), ("first", "last", "only", "within")):
        base, bad = torch.linspace(1, 2, 50), torch.tensor([INF, 2.0]).to(dtype)
        base[30] = start
        found = base[30]
        yield Call({"first": [found, bad], "last": [bad, found], "only": [found],
                    "within": [base, bad, base]}[order], 0.5, found, [base, bad])


def inverse_in_the_list(dtype):
    for place in (0, 1, 7, 8, 15, 16, 17, 39):
        base, other = torch.full((40,), 2.0), torch.full((20,), 10.0, dtype=dtype)
        base[place] = 3.0
        yield Call([base, other], base[place])
    base = torch.full((40,), 1.0)
    base[20] = INF
    yield Call([base, base[::3]], base[9], base[5], [base])
    both, bad = f32(0.5), torch.tensor([INF, 2.0]).to(dtype)
    yield Call([bad, torch.ones(3)], both, both)


def misaligned(dtype):
    memory = bytearray(bytes(range(1, 201)))
    tensor = torch.frombuffer(memory, dtype=dtype, count=20, offset=1)
    yield Call([tensor, torch.ones(2)], 0.5)


def lazily_copied(dtype):
    """inv_scale gets another address when its storage gets its own memory."""
    base = torch.ones(8, dtype=dtype)
    copy = torch._lazy_clone(base)
    yield Call([copy], 0.5, memory=[base, copy])
    other = torch._lazy_clone(base)
    yield Call([base, other], 0.25, memory=[base, copy, other])
    for place in (0, 9, 39):
        base = torch.linspace(1, 2, 40)
        copy = torch._lazy_clone(base)
        yield Call([copy, torch.ones(3, dtype=dtype)], copy[place], memory=[base, copy])


TABLE = (upstream, every_place, numbers, found_before, empty, shapes, overlaps,
         found_in_the_list, inverse_in_the_list, misaligned, lazily_copied)


class Unscale(unittest.TestCase):
    @same_as_stock(*itertools.product([row.__name__ for row in TABLE], DTYPES))
    def test_table(self, parameter):
        name, dtype = parameter
        seen = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of memory that is misaligned
            for call in globals()[name](dtype):
                found, inverse = (x if isinstance(x, torch.Tensor) else f32(x)
                                  for x in (call.found, call.inverse))
                any_nan = bool((inverse != inverse).any())
                torch.set_flush_denormal(call.flush)
                unscale(call.tensors, found, inverse)
                torch.set_flush_denormal(False)
                memory = call.tensors if call.memory is None else call.memory
                seen += [AnyNan(t.clone()) if any_nan else t.clone() for t in memory]
                seen.append(found.clone())
        return seen

    @same_as_stock()
    def test_subclasses(self):
        class Sub(torch.Tensor):
            pass
        sub, parameter = torch.ones(2).as_subclass(Sub), \
            torch.nn.Parameter(torch.ones(2))
        unscale([sub, parameter], f32(), f32(0.5))
        return type(sub).__name__, sub.as_subclass(torch.Tensor), parameter.data

    @same_as_stock()
    def test_flushed_on_every_thread(self):
        """On every thread denormals are flushed as on the caller's."""
        seen = []
        threads = torch.get_num_threads()
        torch.ones(1 << 20).mul_(2)  # starts the workers without flush-to-zero
        for count in (1, threads) if swamp_torch.is_active() else (1,):
            torch.set_num_threads(count)
            found_here = []
            for dtype in DTYPES:
                tiny = torch.finfo(dtype).tiny
                base = torch.linspace(0, 4 * tiny, 300000, dtype=torch.float64)
                base = base.to(dtype)
                torch.set_flush_denormal(True)
                unscale([base[::2]], f32(), f32(0.3))
                unscale([base.view(3, -1)[:, 1::3]], f32(), f32(0.3))
                torch.set_flush_denormal(False)
                found_here.append(base)
            assert not seen or all(map(same, seen, found_here))
            seen = found_here
        torch.set_num_threads(threads)
        return seen

    @same_as_stock()
    def test_autograd_and_versions(self):
        leaf = torch.ones(3, requires_grad=True)
        product = leaf * 2
        found, inv_scale = f32(), f32(0.5).requires_grad_()
        unscale([product, leaf], found, inv_scale)
        versions = [t._version for t in (leaf, product, found)]
        product.sum().backward()
        with torch.inference_mode():
            inference = torch.ones(3)
            scale, tracker = f32(4.0), i32(1)
        unscale([inference], f32(), f32(0.5))
        error = caught(lambda: update_scale(scale, tracker, f32(), 2.0, 0.5, 2))
        assert error[0] == "RuntimeError", error
        return (versions, leaf.grad, leaf, product, inference, scale, tracker,
                error)

    @same_as_stock()
    def test_out_and_functional_variants(self):
        op = torch.ops.aten._amp_foreach_non_finite_check_and_unscale
        update = torch.ops.aten._amp_update_scale
        source, out = torch.full((3,), 8.0), torch.empty(3)
        found = f32()
        op.out([source], found, f32(0.5), out=[out])
        scale, tracker = f32(4.0), i32(1)
        return (source, out, found, op([source], found, f32(0.5)),
                update(scale, tracker, found, 2.0, 0.5, 2), scale, tracker)

    @same_as_stock(*FOREIGN)
    def test_foreign_dtype(self, dtype):
        seen = []
        for count in (0, 3):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tensor = torch.zeros(count, dtype=dtype)
            seen.append(caught(lambda: unscale([tensor], f32(), f32(0.5))))
            assert seen[-1][0] == "NotImplementedError", seen
        return seen

    @same_as_stock()
    def test_unscale_errors(self):
        one, good = f32(), f32(0.5)
        calls = [
            ([torch.ones(1).expand(4)], one, good),
            ([torch.ones(1, dtype=torch.int32).expand(4)], one, good),
            ([torch.ones(3, 1).expand(3, 2)], one, good),
            ([torch.ones(3)], one, torch.ones(2)),
            ([torch.ones(3)], one, torch.ones(0)),
            ([torch.ones(3)], torch.ones(2), good),
            ([torch.ones(3)], one, good.double()),
            ([torch.ones(3)], one.half(), good),
            ([torch.ones(3)], torch.ones(2), torch.ones(2).double()),
            ([torch.ones(3, dtype=torch.int32)], one.half(), good),
            ([torch.ones(3, 3).to_sparse()], one, good),
            ([torch.ones(3, 3).to_mkldnn()], one, good),
            ([torch.ones(3)], torch.ones(1).to_sparse(), good),
            ([None], one, good),
            ([torch.ones(3, device="meta")], one, good),
            ([torch.ones(3)], one, good.to("meta")),
            ([torch.ones(3, dtype=torch.complex64).conj().imag], one, good),
            ([torch._efficientzerotensor(3)], one, good),
        ]
        return [caught(lambda c=c: unscale(*c)) for c in calls]


class UpdateScale(unittest.TestCase):
    @same_as_stock()
    def test_upstream_update_scale(self):
        scale, tracker, found = f32(4.0, (1,)), torch.zeros(1, dtype=torch.int32), \
            f32(0.0, (1,))
        seen = []
        for value in (0.0, 0.0, 1.0):
            found.fill_(value)
            assert update_scale(scale, tracker, found, 2.0, 0.25, 2) is scale
            seen.append((scale.item(), tracker.item()))
        assert seen == [(4.0, 1), (8.0, 0), (2.0, 0)]
        return seen

    @same_as_stock()
    def test_update_scale_errors(self):
        calls = [
            (f32(4.0), torch.zeros(2, dtype=torch.int32), f32()),
            (f32(4.0, (2,)), i32(), f32()), (f32(4.0), i32(), f32(0.0, (0,))),
            (f32(4.0), i32().long(), f32()), (f32(4.0).double(), i32(), f32()),
            (f32(4.0), i32(), f32().half()),
            (f32(4.0, (2,)).double(), i32().long().expand(3), f32(0, (3,)).half()),
            (f32(4.0, (2,)).double(), i32().long(), f32(0, (3,)).half()),
            (f32(4.0).double(), i32().long(), f32().half()),
            (f32(4.0), i32(), f32().to("meta")), (f32(4.0), i32().to("meta"), f32()),
            (f32(4.0, (1,)).to_sparse(), i32(), f32()),
            (f32(4.0).requires_grad_(), i32(), f32()),
        ]
        seen = [caught(lambda c=c: update_scale(*c, 2.0, 0.5, 2)) for c in calls]
        assert all(isinstance(s, tuple) for s in seen), seen
        return seen

    @same_as_stock()
    def test_update_scale_values(self):
        seen = []
        for scale, tracker, found, growth, backoff, interval in itertools.product(
                (0.0, 1.0, 3.3, 1e38, 2.0 ** -149, INF, NAN),
                (0, 1, 5, -1, 2 ** 31 - 1), (0.0, -0.0, 1.0, 2.0, -1.0, NAN),
                (2.0, 1.1, 16.0, INF), (0.5, 0.0, 0.7), (1, 2, 6, 0, -1, 2000)):
            if tracker == 2 ** 31 - 1 and found == 0.0:
                continue  # undefined in stock
            current, count = f32(scale), i32(tracker)
            update_scale(current, count, f32(found), growth, backoff, interval)
            seen.append((current.item(), count.item()))
        return seen

    @same_as_stock()
    def test_update_scale_aliases(self):
        scale = f32(4.0)
        update_scale(scale, i32(), scale, 2.0, 0.5, 2)
        assert scale.item() == 2.0
        base = torch.tensor([3.0, 0.0])
        update_scale(base[0], i32(1), base[1], 2.0, 0.5, 2)
        return scale, base


if __name__ == "__main__":
    torch.set_num_threads(2)
    main()
