"""PyTorch's operators in front of which swamp has a kernel. With reproducible=True those
whose bits depend on the threads or the CPU: index_put, the gradient of x[index] and prod
run on one thread; the others warn once, or raise, and have the same results. With
half_precision=True some of 16 bits are computed in float32."""

import threading
import warnings

from support import TestCase, caught, main, on_threads
from half_precision import HALF, randn

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import swamp_torch


def sampled(x):
    return F.grid_sample(x.reshape(1, 2, 4, 8), x.reshape(1, 4, 8, 2),
                         align_corners=False)


def resized(mode, size, dimensions=2, **more):
    return lambda x: F.interpolate(x.reshape(1, 2, *([4, 8], [32], [4, 2, 4])[
        (2, 1, 3).index(dimensions)]), size=size, mode=mode, **more)


def backward(call):
    """The gradient of a call."""
    def gradient(x):
        x = x.clone().requires_grad_()
        y = call(x)
        return torch.autograd.grad(y, x, y.detach())[0]
    return gradient


# operator: a call with a tensor [8, 8] of numbers from 0.1 to 0.9, and a dtype in which
# it depends on the CPU
CALLS = {
    "erf": (torch.erf, torch.bfloat16),
    "asin": (torch.asin, torch.bfloat16),
    "acos": (torch.acos, torch.float16),
    "sinh": (torch.sinh, torch.float32),
    "cosh": (torch.cosh, torch.float32),
    "atanh": (torch.atanh, torch.float32),
    "atan2": (lambda x: torch.atan2(x, 1 - x), torch.float32),
    "lgamma": (torch.lgamma, torch.float32),
    "digamma": (torch.digamma, torch.float32),
    "i0": (torch.i0, torch.float32),
    "special_i0e": (torch.special.i0e, torch.float16),
    "special_i1": (torch.special.i1, torch.float32),
    "special_ndtri": (torch.special.ndtri, torch.float32),
    "logaddexp": (lambda x: torch.logaddexp(x, 1 - x), torch.float32),
    "logaddexp2": (lambda x: torch.logaddexp2(x, 1 - x), torch.float32),
    "softshrink": (F.softshrink, torch.bfloat16),
    "pow.Tensor_Tensor": (lambda x: x ** x, torch.float32),
    "pow_.Tensor": (lambda x: x.clone().pow_(x), torch.float32),
    "linalg_vector_norm": (lambda x: x.norm(dim=-1), torch.float32),
    "_weight_norm_interface": (lambda x: torch._weight_norm(x, x[:, :1]), torch.bfloat16),
    "linalg_cross": (lambda x: torch.linalg.cross(x[:, :3], x[:, 3:6]), torch.float32),
    "polygamma": (lambda x: torch.polygamma(1, x), torch.float32),
    "linalg_qr": (lambda x: torch.linalg.qr(x)[1], torch.float32),
    "_linalg_svd": (torch.linalg.svdvals, torch.float32),
    "addcmul": (lambda x: torch.addcmul(x, x, x, value=0.3), torch.float16),
    "addr": (lambda x: x.addr(x[0], x[1]), torch.float32),
    "lerp.Scalar": (lambda x: x.lerp(1 - x, 0.3), torch.float32),
    "lerp.Tensor": (lambda x: x.lerp(1 - x, x), torch.float32),
    "upsample_linear1d": (resized("linear", 9, 1), torch.float32),
    "upsample_bilinear2d": (resized("bilinear", (5, 7)), torch.float32),
    "upsample_trilinear3d": (resized("trilinear", (5, 3, 3), 3), torch.float16),
    "upsample_bicubic2d": (resized("bicubic", (5, 7)), torch.float16),
    "_upsample_bilinear2d_aa": (resized("bilinear", (3, 5), antialias=True),
                                torch.float32),
    "_upsample_bicubic2d_aa": (resized("bicubic", (3, 5), antialias=True), torch.float32),
    "upsample_linear1d_backward": (backward(resized("linear", 9, 1)), torch.float32),
    "upsample_bilinear2d_backward": (backward(resized("bilinear", (5, 7))),
                                     torch.bfloat16),
    "upsample_trilinear3d_backward": (backward(resized("trilinear", (5, 3, 3), 3)),
                                      torch.bfloat16),
    "grid_sampler_2d": (sampled, torch.float32),
    "grid_sampler_2d_backward": (backward(sampled), torch.float32),
    "normal_": (lambda x: torch.manual_seed(0) and x.clone().normal_(), torch.float32),
}
IDS = torch.arange(300) % 50
PAIR = [3, 3], [1, 1], [1, 1], [1, 1]
# operator: its arguments; tuples are the shapes of tensors. Those of 16 bits are computed
# in float32.
WIDENED = {
    "amax": [(65, 70), [-1]],
    "amin": [(65, 7, 10), [0, 2], True],
    "argmax": [(65, 70), -1],
    "argmin": [(65, 70)],
    "col2im": [(2, 27, 81), [9, 9], *PAIR],
    "_embedding_bag_dense_backward": [
        (60, 90), IDS, torch.arange(300) // 5, torch.full((60,), 5),
        torch.empty(0, dtype=torch.long), 50, False, 1, None],
    "grid_sampler_2d": [(2, 5, 21, 20), (2, 8, 9, 2), 0, 0, False],
    "grid_sampler_2d_backward": [(2, 5, 8, 9), (2, 5, 21, 20), (2, 8, 9, 2), 0, 1, True,
                                 [True, True]],
    "grid_sampler_3d": [(2, 3, 9, 10, 11), (2, 4, 5, 6, 3), 0, 0, False],
    "grid_sampler_3d_backward": [(2, 3, 4, 5, 6), (2, 3, 9, 10, 11), (2, 4, 5, 6, 3), 0, 1,
                                 True, [True, False]],
    "mse_loss_backward": [(), (60, 70), (60, 70), 1],
}
# The same of tensors that are computed slice by slice.
SLICED = [
    ("amax", [(2100, 520), [-1]]),
    ("amax", [(3, 700, 520), [0, -1], True]),
    ("amin", [(700, 1600), [0]]),
    ("argmax", [(3, 700, 520), 2]),
    ("argmin", [(3, 700, 520), -3, True]),
    ("col2im", [(7, 27, 6561), [81, 81], *PAIR]),
]
# Operators that run on one thread.
ALONE = {"_index_put_impl_", "put_", "prod"}


def numbers(dtype=torch.float32):
    return ((torch.arange(64) * 7919 % 101 + 13) / 126).view(8, 8).to(dtype)


def messages(call):
    """The warnings of swamp_torch that a call gives."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in found if "reproducible" in str(one.message)]


def tensors_of(arguments, dtype, layout="rows", rows=None):
    """The arguments of a row of WIDENED; with `rows`, that many of the tensors."""
    return [one if not isinstance(one, tuple)
            else randn(dtype=dtype) if not one
            else randn(*one, dtype=dtype, layout=layout, seed=i)[:rows]
            for i, one in enumerate(arguments)]


def results(name, arguments, **switches):
    """What an operator returns, or its error."""
    swamp_torch.enable(unreproducible="ignore", **switches)
    found = caught(lambda: getattr(torch.ops.aten, name)(*arguments))
    return [found] if isinstance(found, torch.Tensor) else list(found)


class Widened(TestCase):
    def tearDown(self):
        swamp_torch.enable()

    def assert_results(self, ours, theirs, message):
        for a, b in zip(ours, theirs, strict=True):
            if isinstance(b, torch.Tensor):
                self.assert_same(a, b, message)
                self.assertEqual(a.stride(), b.stride(), message)
            else:
                self.assertEqual(a, b, message)

    def test_rounded_once(self):
        """Of any layout the results are float32's, rounded, with PyTorch's strides."""
        for name, row in (*WIDENED.items(), *SLICED):
            for dtype in HALF[name == "mse_loss_backward":]:
                for layout in ("rows", "columns", "slice", "steps", "expanded"):
                    ours = tensors_of(row, dtype, layout)
                    stock = results(name, ours)
                    expected = [x if x is None else torch.empty_like(x).copy_(y)
                                for x, y in zip(stock, results(name, [
                                    x.float() if isinstance(x, torch.Tensor)
                                    and x.dtype == dtype else x for x in ours]))]
                    for switch in ("half_precision", "reproducible"):
                        depends = "2d" in name and switch == "reproducible"  # on the CPU
                        self.assert_results(results(name, ours, **{switch: True}),
                                            stock if depends else expected,
                                            (name, dtype, layout, switch))

    def test_anything_else_is_stock(self):
        """Small and empty tensors, other dtypes, and two of them."""
        for name, row in WIDENED.items():
            rows = (None,) if "bag" in name else (None, 0, 1)
            calls = [tensors_of(row, dtype, rows=k) for k in rows
                     for dtype in (*HALF, torch.float32, torch.float64)
                     if k is not None or dtype not in HALF]
            if name == "mse_loss_backward":  # large ones
                calls.append(tensors_of([(), *[(2049, 2050)] * 2, 1], torch.bfloat16))
            ours = tensors_of(row, torch.float16)
            last = max(i for i, x in enumerate(ours) if isinstance(x, torch.Tensor)
                       and x.is_floating_point())
            ours[last] = ours[last].double()
            for arguments in (*calls, ours):
                self.assert_results(results(name, arguments, half_precision=True),
                                    results(name, arguments), name)


class Unreproducible(TestCase):
    def tearDown(self):
        swamp_torch.enable()

    def test_table(self):
        """CALLS, ALONE and WIDENED have all operators that swamp registers, but for those
        that write their result in place."""
        registered = {
            name[len("aten::"):] for name in
            torch._C._dispatch_get_registrations_for_dispatch_key("BackendSelect")
            if "unreproducible" in torch._C._dispatch_dump(name)}
        known = {*CALLS, *ALONE, *WIDENED}
        in_place = {"_.".join(name.split(".")) if "." in name else name + "_"
                    for name in known}
        self.assertEqual(registered - (in_place - known), known)
        self.assertLessEqual({"sinh_", "lerp_.Scalar", "addcmul_"}, registered)

    def test_actions(self):
        for name, (call, dtype) in CALLS.items():
            x = numbers(dtype)
            with self.subTest(name):
                swamp_torch.enable()
                stock = call(x)
                self.assertEqual(messages(lambda: call(x)), [])
                swamp_torch.enable(reproducible=True)
                found = messages(lambda: self.assert_same(call(x), stock))
                short = name.split(".")[0]
                self.assertEqual(sum(f"aten::{short} " in text for text in found), 1,
                                 found)
                self.assertEqual(messages(lambda: call(x)), [])  # once
                swamp_torch.enable(reproducible=True)
                self.assertEqual(messages(lambda: call(x)), found)
                swamp_torch.enable(reproducible=True, unreproducible="ignore")
                self.assertEqual(messages(lambda: self.assert_same(call(x), stock)), [])
                swamp_torch.enable(reproducible=True, unreproducible="raise")
                short = short.removesuffix("_backward")
                with self.assertRaisesRegex(RuntimeError,
                                            f"got aten::{short}(_backward)?,.*CPU"):
                    call(x)
                self.assertEqual(messages(lambda: call(x.double())), [])
        with self.assertRaisesRegex(RuntimeError, "got aten::sinh_,"):
            torch.ones(3).sinh_()
        with self.assertRaisesRegex(ValueError, "unreproducible: got 'error', expected"):
            swamp_torch.enable(reproducible=True, unreproducible="error")

    def test_only_cpu_tensors_that_compute(self):
        swamp_torch.enable(reproducible=True, unreproducible="raise")
        torch.sinh(numbers().to("meta"))
        with FakeTensorMode():
            torch.sinh(torch.ones(3, 3))
        swamp_torch.enable(reproducible=True)
        x = numbers().requires_grad_()

        def batched():
            self.assert_same(torch.vmap(torch.sinh)(x), torch.sinh(x))
            self.assert_same(torch.func.grad(lambda y: torch.sinh(y).sum())(x.detach()),
                             torch.autograd.grad(torch.sinh(x).sum(), x)[0])
        found = messages(batched)
        self.assertEqual(len(found), 2, found)  # sinh and cosh
        compiled = torch.compile(lambda y: y.index_put((torch.tensor([1, 1]),),
                                                       y[:2], accumulate=True).sinh(),
                                 backend="aot_eager")
        self.assert_same(compiled(x), x.index_put((torch.tensor([1, 1]),), x[:2],
                                                  accumulate=True).sinh())

    def test_one_thread(self):
        """Sums of float32 by index, and products of all elements, have the bits that
        one thread gives."""
        rows = torch.arange(5000) * 7919 % 31
        values = ((torch.arange(5000 * 65) * 7919 % 200003) / 50000 - 2).view(5000, 65)
        for dtype in (torch.float32, torch.bfloat16):
            x = values.to(dtype)
            weight = x[:31].clone().requires_grad_()

            def sums():
                return [x[:31].index_put((rows,), x, accumulate=True),
                        torch.autograd.grad(weight[rows], weight, x)[0],
                        torch.autograd.grad(weight[rows, rows], weight, x[:, 0])[0],
                        x[0].put(rows[:, None].expand(-1, 65) % 7, x, accumulate=True),
                        torch.autograd.grad(weight.take(rows), weight, x[:, 0])[0],
                        (1 + x / 1000).prod()]
            swamp_torch.enable(reproducible=True, unreproducible="raise")
            one, *others = on_threads(sums, (1, 2, 3, 7, 2, 2))
            for other in others:
                self.assert_same(other, one)
            swamp_torch.enable()
            self.assert_same(on_threads(sums, (1,))[0], one)

    def test_threads_stay(self):
        """Neither this nor another thread keeps one thread."""
        swamp_torch.enable(reproducible=True)
        counts = []

        def work():
            torch.zeros(3).index_put_((torch.tensor([1]),), torch.ones(1), True)
            counts.append(torch.get_num_threads())

        def check(expected):
            work()
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            with self.assertRaises(IndexError):
                torch.zeros(3).index_put_((torch.tensor([9]),), torch.ones(1), True)
            self.assertEqual(counts[-2:] + [torch.get_num_threads()], [expected] * 3)
        for count in (3, 1):
            on_threads(lambda: check(count), (count,))


if __name__ == "__main__":
    main()
