"""PyTorch's two operators through its dispatcher, with swamp and with stock."""

import itertools
import math
import unittest
import warnings

from support import (AnyNan, DTYPES, caught, is_active, main, run_with_stock, same,
                     same_as_stock, unscale, update_scale)

import torch

INF, NAN = math.inf, math.nan


def setUpModule():
    torch.set_num_threads(2)
    run_with_stock(Unscale, UpdateScale)


def f32(value=0.0, shape=()):
    return torch.full(shape, value, dtype=torch.float32)


def i32(value=0):
    return torch.tensor(value, dtype=torch.int32)


def twenty(poison=None, view=lambda t: t, dtype=torch.float32):
    base = torch.full((20, 20), 4.0, dtype=dtype)
    if poison is not None:
        base[2, 2] = poison
    return view(base)


VIEWS = {"contiguous": lambda t: t, "t()": lambda t: t.t(),
         "[:, :5]": lambda t: t[:, :5]}


def strided(dtype):
    base = torch.arange(1.0, 1.0 + 6 * 8 * 10 * 4).reshape(6, 8, 10, 4)
    base = base.to(dtype)
    flat = base.flatten()
    return base, [
        base[:, ::2], base[..., 1], base[1:5, 2:7, 3:9, 1:3],
        base.permute(3, 1, 0, 2), base[:, :, 5:].transpose(0, 2), base[::5],
        flat[3::7], base[2, 3], base.narrow(3, 1, 2),
        flat.as_strided((5, 3), (7, 2)), flat.as_strided((40, 40), (41, 1)),
        flat.as_strided((3, 2, 50), (600, 300, 1)),
        base.contiguous(memory_format=torch.channels_last)]


def lists_that_overlap(base):
    return [[base, base], [base, base, base[3:7]],
            [base[:60], base[40:]], [base[40:], base[:60]],
            [base[::2], base[1::2]], [base[::2], base],
            [base[10:20], base[50:60], base[15:55]],
            [base.view(10, 10), base.view(10, 10).t()],
            [base[:50], base[50:]], [base[50:], base[:50]],
            [base[:1]] * 5 + [base[20:]],
            [base[i:i + 2] for i in range(99)],
            [base[i:i + 1] for i in (5, 3, 7, 3)],
            [base[:0], base, base[100:]]]


FOREIGN = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32,
           torch.int64, torch.complex64, torch.complex128, torch.complex32,
           torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32]


class Unscale(unittest.TestCase):
    @same_as_stock()
    def test_upstream_unscale(self):
        seen = []
        for dtype, first, second in itertools.product(
                (torch.float32, torch.float64), VIEWS, VIEWS):
            for poison, where in itertools.product((None, INF, NAN), (0, 1)):
                tensors = [twenty(poison if where == 0 else None, VIEWS[first],
                                  dtype),
                           twenty(poison if where == 1 else None, VIEWS[second],
                                  dtype)]
                found = f32(0.0, (1,))
                unscale(tensors, found, f32(0.25, (1,)))
                assert found.item() == (0.0 if poison is None else 1.0)
                clean = tensors[1 - where]
                assert torch.equal(clean, torch.ones_like(clean))
                seen += tensors
        return seen

    @same_as_stock()
    def test_upstream_mixed_dtypes(self):
        tensors = [twenty(dtype=d) for d in (torch.float32, torch.float64,
                                             torch.float16, torch.bfloat16)]
        found = f32(0.0, (1,))
        unscale(tensors, found, f32(0.25, (1,)))
        assert found.item() == 0.0
        assert all(torch.equal(t, torch.ones_like(t)) for t in tensors)

    @same_as_stock(*[(d, v) for d in DTYPES for v in (INF, -INF, NAN)])
    def test_bad_everywhere(self, parameter):
        """Every lane, every offset of a tail, every tensor of the list."""
        dtype, value = parameter
        seen = []
        for count in (1, 2, 15, 16, 17, 31, 33, 47, 65):
            for place in range(count):
                tensors = [torch.arange(count).to(dtype) for _ in range(3)]
                tensors[place % 3][place] = value
                found = f32()
                unscale(tensors, found, f32(0.7))
                assert found.item() == 1.0
                seen += tensors
        return seen

    @same_as_stock(*DTYPES[:2])
    def test_all_bits(self, dtype):
        seen = []
        for inv_scale in (1.0, 0.7, 2.0 ** -16, 3.0, 0.0, -1.0, INF, 1e-40):
            tensor = torch.arange(-32768, 32768, dtype=torch.int16).view(dtype)
            unscale([tensor], f32(), f32(inv_scale))
            seen.append(tensor)
        return seen

    @same_as_stock(*[0.0, -0.0, 1.0, -1.0, 0.1, 1e-45, 3e38, INF, -INF, NAN])
    def test_inv_scales(self, value):
        values = [0.0, -0.0, 1.0, -3.5, 1e-30, 65504.0, 1e38, INF, -INF, NAN, 1e-7]
        seen = []
        for dtype in DTYPES:
            for flush in (False, True):
                torch.set_flush_denormal(flush)
                tensor, found = torch.tensor(values * 5).to(dtype), f32()
                unscale([tensor], found, f32(value))
                torch.set_flush_denormal(False)
                seen += [AnyNan(tensor) if math.isnan(value) else tensor, found]
        return seen

    @same_as_stock()
    def test_made_infinite_is_not_found(self):
        tensor, found = torch.tensor([6e4, 1.0], dtype=torch.float16), f32()
        unscale([tensor], found, f32(2.0))
        assert found.item() == 0.0 and tensor[0].item() == INF
        return tensor

    @same_as_stock()
    def test_float64_times_float32_inverse(self):
        tensor = torch.tensor([3.0], dtype=torch.float64)
        unscale([tensor], f32(), f32(0.1))
        assert tensor.item() == 3.0 * f32(0.1).double().item()

    @same_as_stock()
    def test_found_inf_is_sticky(self):
        seen = []
        for value in (0.0, 1.0, 2.0, -1.0, NAN):
            found = f32(value)
            unscale([torch.ones(3)], found, f32(0.5))
            assert repr(found.item()) == repr(value)
            unscale([torch.tensor([INF])], found, f32(0.5))
            assert found.item() == 1.0
            unscale([torch.ones(3)], found, f32(0.5))
            seen.append(found)
        return seen

    @same_as_stock()
    def test_empty_lists(self):
        found = f32(3.0)
        unscale([], found, f32(0.5))
        unscale([], torch.zeros(0), torch.zeros(2, dtype=torch.int32))
        unscale([torch.empty(0), torch.empty(3, 0).t()], found, f32(0.5))
        unscale([torch.empty(1, 0).expand(4, 0)], found, f32(0.5))
        assert found.item() == 3.0

    @same_as_stock()
    def test_shapes(self):
        seen = []
        for shape in ((), (1,), (1, 1), (3,), (2, 3, 4), (1, 5, 1), (7, 1)):
            for one in ((), (1,), (1, 1, 1)):
                tensor, found = torch.full(shape, 8.0), f32(0.0, one)
                unscale([tensor], found, f32(0.25, one))
                assert (tensor == 2.0).all()
                seen += [tensor, found]
        return seen

    @same_as_stock(*range(13))
    def test_strided_views(self, index):
        """The memory between the elements must not change."""
        seen = []
        for dtype in DTYPES:
            base, views = strided(dtype)
            view, found = views[index], f32()
            unscale([view, torch.ones(4, dtype=dtype)], found, f32(0.3))
            assert found.item() == 0.0
            seen += [base.clone(), view.clone(), found]
            view[(0,) * view.dim()] = NAN
            unscale([view], found, f32(0.3))
            assert found.item() == 1.0
            seen += [base, view]
        return seen

    @same_as_stock()
    def test_large_strided(self):
        """On several threads."""
        seen = []
        for dtype in DTYPES:
            base = torch.linspace(-3, 3, 400 * 600).reshape(400, 600).to(dtype)
            tensors = [base[:, ::2], base.t()[1::2, 5:300]]
            unscale(tensors[:1], f32(), f32(0.3))
            unscale(tensors[1:], f32(), f32(0.3))
            unscale([base[:, 100:]], f32(), f32(0.3))
            seen.append(base)
        return seen

    @same_as_stock()
    def test_elements_that_share_memory(self):
        seen = []
        for dtype in DTYPES:
            for size, stride in (((3, 3), (2, 1)), ((4, 50), (3, 1)),
                                 ((5, 4), (1, 1)), ((2, 40, 3), (20, 1, 7))):
                base = torch.linspace(1, 2, 100).to(dtype)
                base[7] = INF
                found = f32()
                unscale([base.as_strided(size, stride)], found, f32(0.3))
                seen += [base, found]
        return seen

    @same_as_stock(*range(14))
    def test_overlapping_lists(self, index):
        seen = []
        for dtype in DTYPES:
            for inv_scale in (0.3, 1.0):
                base = torch.linspace(1, 2, 100).to(dtype)
                base[7] = INF
                found = f32()
                unscale(lists_that_overlap(base)[index], found, f32(inv_scale))
                seen += [base, found]
        return seen

    @same_as_stock()
    def test_many_tensors_in_any_order(self):
        """Enough tensors for the radix sort of any_overlap(); finds a duplicate."""
        seen = []
        for twice in (False, True):
            base = torch.linspace(1, 2, 40000)
            order = torch.randperm(10000, generator=torch.Generator().manual_seed(3))
            tensors = [base[4 * i:4 * i + 3] for i in order.tolist()]
            if twice:
                tensors.append(tensors[1234])
            unscale(tensors, f32(), f32(0.3))
            seen.append(base)
        return seen

    @same_as_stock()
    def test_large_overlap(self):
        """Large enough for several threads, which would lose updates."""
        seen = []
        for dtype in DTYPES:
            base = torch.linspace(1, 2, 100).to(dtype)
            unscale([base[9:], base[:-9]] * 5000, f32(), f32(1.0001))
            seen.append(base)
        return seen

    @same_as_stock()
    def test_found_inf_in_the_list(self):
        seen = []
        for start in (3.0, 0.5, INF, NAN):
            for order in ("first", "last", "only", "within"):
                base = torch.linspace(1, 2, 50)
                base[30] = start
                found = base[30]
                bad = torch.tensor([INF, 2.0])
                unscale({"first": [found, bad], "last": [bad, found],
                         "only": [found], "within": [base, bad, base]}[order],
                        found, f32(0.5))
                seen += [base, bad]
        return seen

    @same_as_stock(*itertools.product(DTYPES, (0.5, 1.0)))
    def test_found_inf_at_every_place(self, parameter):
        """Every place of found_inf and of a bad element, in a tensor of two pairs
        of vectors and a tail."""
        dtype, inv_scale = parameter
        seen = []
        words = 37
        count = words * 4 // dtype.itemsize
        for place, bad in itertools.product(range(words), range(count)):
            memory = torch.linspace(1, 2, 40 * 4 // dtype.itemsize).to(dtype)
            base, found = memory[:count], memory.view(torch.float32)[place]
            base[bad] = INF
            unscale([base], found, f32(inv_scale))
            seen.append(memory)
        return torch.stack(seen)

    @same_as_stock()
    def test_inv_scale_in_the_list(self):
        seen = []
        for place in (0, 1, 7, 8, 15, 16, 17, 39):
            base, other = torch.full((40,), 2.0), torch.full((20,), 10.0)
            base[place] = 3.0
            found = f32()
            unscale([base, other], found, base[place])
            seen += [base, other, found]
        base = torch.full((40,), 1.0)
        base[20] = INF
        unscale([base, base[::3]], base[5], base[9])
        return seen + [base]

    @same_as_stock()
    def test_found_inf_is_inv_scale(self):
        both, bad, other = f32(0.5), torch.tensor([INF, 2.0]), torch.ones(3)
        unscale([bad, other], both, both)
        return both, bad, other

    @same_as_stock()
    def test_subclasses(self):
        class Sub(torch.Tensor):
            pass
        sub, parameter = torch.ones(2).as_subclass(Sub), \
            torch.nn.Parameter(torch.ones(2))
        unscale([sub, parameter], f32(), f32(0.5))
        return type(sub).__name__, sub.as_subclass(torch.Tensor), parameter.data

    @same_as_stock()
    def test_misaligned_memory(self):
        seen = []
        for dtype in DTYPES:
            memory = bytearray(bytes(range(1, 201)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tensor = torch.frombuffer(memory, dtype=dtype, count=20, offset=1)
            found = f32()
            unscale([tensor, torch.ones(2)], found, f32(0.5))
            seen += [tensor, found]
        return seen

    @same_as_stock()
    def test_lazily_copied(self):
        tensor = torch.ones(8)
        copy = torch._lazy_clone(tensor)
        unscale([copy], f32(), f32(0.5))
        other = torch._lazy_clone(tensor)
        unscale([tensor, other], f32(), f32(0.25))
        return tensor, copy, other

    @same_as_stock()
    def test_lazily_copied_inv_scale(self):
        """inv_scale gets another address when its storage gets its own memory."""
        seen = []
        for place in (0, 9, 39):
            base = torch.linspace(1, 2, 40)
            copy = torch._lazy_clone(base)
            found = f32()
            unscale([copy, torch.ones(3)], found, copy[place])
            seen += [base, copy, found]
        return seen

    @same_as_stock()
    def test_flushed_on_every_thread(self):
        """On every thread denormals are flushed as on the caller's."""
        seen = []
        threads = torch.get_num_threads()
        torch.ones(1 << 20).mul_(2)  # starts the workers without flush-to-zero
        for count in (1, threads) if is_active() else (1,):
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
    main()
