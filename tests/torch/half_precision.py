"""What the tests of swamp_torch.enable(half_precision=True) and (reproducible=True)
share, with the calls of PyTorch's operators that these replace."""

import math

import support

import torch

import swamp_torch

F = torch.nn.functional
HALF = (torch.float16, torch.bfloat16)
EPS = {torch.float16: 2.0 ** -11, torch.bfloat16: 2.0 ** -8}


def classes(x):
    """A class for each row of x, whose classes are in dimension 1."""
    shape = x.shape[:1] + x.shape[2:]
    return torch.arange(shape.numel()).view(shape) % x.shape[1]


def attend(*mask, swap=False, **options):
    """A call of attention with a mask of a shape, or without; `swap`: heads and rows of
    the operands are in the other order in memory."""
    def call(q, *kv):
        bias = ((torch.arange(math.prod(mask)) * 37 % 101 - 50).view(mask) / 16
                ).to(q.dtype) if mask else None
        if swap:
            q, *kv = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, *kv))
        return F.scaled_dot_product_attention(q, *kv, attn_mask=bias, **options)
    return call


def power(k):
    return lambda x: x.abs().clamp(0.125).pow(k)


WIDE = [(6, 1000)]
# name, call, shapes of its inputs. Tests that take long run only the first call of
# those whose names begin with the same word.
CALLS = [
    ("log_softmax", lambda x: F.log_softmax(x, -1), WIDE),
    ("log_softmax_1", lambda x: F.log_softmax(x, 1), [(2, 300, 9)]),
    ("log_softmax wide", lambda x: F.log_softmax(x, -1, dtype=torch.float32), [(150, 1000)]),
    ("softmax wide", lambda x: F.softmax(x, -1, dtype=torch.float32), [(3, 70, 640)]),
    ("cross_entropy", lambda x: F.cross_entropy(x, classes(x)), WIDE),
    ("cross_entropy none", lambda x: F.cross_entropy(
        x, classes(x), reduction="none", label_smoothing=0.1, ignore_index=3), WIDE),
    ("images", lambda x: F.cross_entropy(x, classes(x), reduction="sum"), [(2, 50, 3)]),
    ("weights", lambda x: F.cross_entropy(
        x, classes(x), torch.arange(x.shape[1]).to(x.dtype) / 4 + 0.5, ignore_index=2,
        label_smoothing=0.1, reduction="none"), [(4, 6)]),
    ("layer_norm", lambda x, w, b: F.layer_norm(x, w.shape, w, b),
     [(2, 30, 40), (40,), (40,)]),
    ("layer_norm_2", lambda x, w, b: F.layer_norm(x, w.shape, w, b),
     [(2, 30, 40), (30, 40), (30, 40)]),
    ("layer_norm plain", lambda x: F.layer_norm(x, x.shape[-1:]), [(2, 30, 40)]),
    ("native_layer_norm", lambda x, w: torch.native_layer_norm(
        x, w.shape, w, None, 1e-5)[0], [(2, 30, 40), (40,)]),
    ("rms_norm", lambda x, w: F.rms_norm(x, w.shape, w), [(2, 30, 40), (40,)]),
    ("rms_norm_2", lambda x: F.rms_norm(x, x.shape[-2:]), [(2, 30, 40)]),
    ("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), [(3, 6, 15, 17), (6,), (6,)]),
    ("group_norm last", lambda x, w, b: F.group_norm(
        x.contiguous(memory_format=torch.channels_last), 2, w, b),
     [(3, 6, 20, 21), (6,), (6,)]),
    ("norm", lambda x: x.norm(dim=-1), [(5, 3, 300)]),
    ("norm of all", torch.norm, WIDE),
    ("norm 1 2", lambda x: x.norm(dim=(1, 2), keepdim=True), [(5, 30, 70)]),
    ("norm 0", lambda x: x.norm(dim=0), [(500, 9)]),
    ("mm", torch.mm, [(64, 64), (64, 64)]),
    ("bmm", torch.bmm, [(2, 3, 4), (2, 4, 5)]),
    ("addmm", torch.addmm, [(5,), (3, 4), (4, 5)]),
    ("baddbmm", torch.baddbmm, [(2, 1, 5), (2, 3, 4), (2, 4, 5)]),
    ("linear", F.linear, [(2, 3, 4), (5, 4), (5,)]),
    ("dot", torch.dot, [(3000,), (3000,)]),
    ("mv", torch.mv, [(60, 500), (500,)]),
    ("mv transposed", lambda x, y: torch.mv(x.t(), y), [(500, 60), (500,)]),
    ("addmv", lambda b, x, y: torch.addmv(b, x, y, beta=0.5, alpha=2),
     [(60,), (60, 500), (500,)]),
    ("conv2d", F.conv2d, [(2, 3, 5, 4), (4, 3, 3, 2), (4,)]),
    ("conv_transpose1d", F.conv_transpose1d, [(2, 3, 5), (3, 4, 2)]),
    ("max_pool1d", lambda x: F.max_pool1d(x, 2), [(2, 3, 8)]),
    *((f"attention {i}", call, [(2, 4, q, 16), *[(2, heads, k, 16)] * 2])
      for i, (q, heads, k, call) in enumerate((
          (33, 4, 33, attend()), (33, 4, 33, attend(swap=True, is_causal=True)),
          (40, 4, 70, attend(scale=0.3)),
          (300, 2, 200, attend(is_causal=True, enable_gqa=True)),
          (33, 1, 33, attend(33, 33, swap=True, enable_gqa=True)),
          (33, 4, 20, attend(1, 20)), (33, 4, 20, attend(2, 1, 33, 20)),
          (33, 4, 20, attend(1, 4, 33, 20, swap=True)), (33, 4, 20, attend(2, 4, 1, 20))))),
    *((f"pow {k}", power(k), WIDE) for k in (3, 2, -1, -2, 0.5)),
    ("silu", F.silu, WIDE),
    ("silu_", lambda x: F.silu(x.clone(), inplace=True), WIDE),
    ("gelu", F.gelu, WIDE),
    ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), WIDE),
    ("tanh", torch.tanh, WIDE),
    ("sigmoid", torch.sigmoid, WIDE),
    ("softplus", lambda x: F.softplus(x, 1.5, 3), WIDE),
    ("exp", torch.exp, WIDE),
    ("log", lambda x: x.abs().clamp(0.125).log(), WIDE),
    ("log1p", lambda x: x.abs().log1p(), WIDE),
    ("expm1", torch.expm1, WIDE),
    ("mish", F.mish, WIDE),
    ("mish_", lambda x: F.mish(x.clone(), inplace=True), WIDE),
    ("elu", lambda x: F.elu(x, 1.5), WIDE),
    ("elu_", lambda x: F.elu(x.clone(), 2, inplace=True), WIDE),
    ("celu", lambda x: F.celu(x, 2.0), WIDE),
    ("selu", F.selu, WIDE),
    ("clamp", lambda x: x.clamp(-0.3, 0.7), WIDE),
    ("clamp_min", lambda x: x.clamp_min(-0.3), WIDE),
    ("clamp_max", lambda x: x.clamp_max(0.3), WIDE),
    ("relu6", lambda x: F.relu6(4 * x), WIDE),
    ("relu", F.relu, WIDE),
    ("relu_", lambda x: F.relu(x.clone(), inplace=True), WIDE),
    ("leaky_relu", lambda x: F.leaky_relu(x, 0.3), WIDE),
    ("hardtanh", lambda x: F.hardtanh(x, -0.3, 0.7), WIDE),
    ("prelu", F.prelu, [(2, 3, 40, 40), (3,)]),
    *((f"{name} {reduction}", lambda x, y, call=call, reduction=reduction: call(
        x, y, reduction), 2 * WIDE) for reduction in ("mean", "none", "sum")
      for name, call in (
          ("mse_loss", lambda x, y, r: F.mse_loss(x, y, reduction=r)),
          ("huber_loss", lambda x, y, r: F.huber_loss(x, y, reduction=r, delta=0.7)),
          ("smooth_l1_loss", lambda x, y, r: F.smooth_l1_loss(x, y, reduction=r)))),
    ("hardswish", lambda x: F.hardswish(4 * x), WIDE),
    ("hardsigmoid", lambda x: F.hardsigmoid(4 * x), WIDE),
    ("add", torch.add, [*WIDE, (1000,)]),
    ("add all", torch.add, 2 * WIDE),
    ("add to a row", torch.add, [(1, 1000), *WIDE]),
    ("add_", lambda x, y: x.clone().add_(y), [(2, 3, 40, 40), (3, 1, 1)]),
    ("sub", torch.sub, [(2, 3, 40, 40), (40, 40)]),
    ("sub from a column", torch.sub, [(6, 1), *WIDE]),
    ("sub_", lambda x, y: x.clone().sub_(y), 2 * WIDE),
    ("mul", torch.mul, [*WIDE, (6, 1)]),
    ("outer", torch.outer, [(60,), (500,)]),
    ("mul of a column", torch.mul, [(2, 30, 1), (1, 500)]),
    ("sub of a column", torch.sub, [(500,), (2, 30, 1)]),
    ("mul_", lambda x, y: x.clone().mul_(y), [*WIDE, (1000,)]),
    ("mul of a number", lambda x: 0.3 * x, WIDE),
    ("sub from a number", lambda x: 1 - x, WIDE),
    ("add with alpha", lambda x, y: x.add(y, alpha=0.3), 2 * WIDE),
    ("maximum", torch.maximum, 2 * WIDE),
    ("minimum", torch.minimum, [*WIDE, (1000,)]),
    ("addcmul", lambda x, y, z: x.addcmul(y, z, value=0.3), 3 * WIDE),
    ("addcmul_", lambda x, y, z: x.clone().addcmul_(y, z), 3 * WIDE),
    ("addcdiv", lambda x, y, z: x.addcdiv(y, z.abs().clamp(0.5), value=0.3), 3 * WIDE),
    ("lerp", lambda x, y: x.lerp(y, 0.3), 2 * WIDE),
    ("lerp_", lambda x, y: x.clone().lerp_(y, 0.7), 2 * WIDE),
    ("lerp tensor", lambda x, y, z: x.lerp(y, z), 3 * WIDE),
    ("mean", torch.mean, WIDE),
    ("mean of rows", lambda x: x.mean(-1), WIDE),
    ("mean of images", lambda x: x.mean((2, 3), keepdim=True), [(2, 30, 20, 20)]),
    ("mean of columns", lambda x: x.mean(0), WIDE),
    ("mean of images last", lambda x: x.contiguous(memory_format=torch.channels_last)
     .mean((2, 3)), [(2, 70, 8, 9)]),
    ("mean of few", lambda x: x.mean(1), [(30, 5, 90)]),
    ("sum of few", lambda x: x.sum(1, keepdim=True), [(30, 5, 90)]),
    ("sum of 2", lambda x: x.sum(0), [(2, 30, 150)]),
    ("repeated", lambda x: x[:, None].expand(-1, 3, -1).flatten(0, 1), [(30, 160)]),
    ("sum", torch.sum, WIDE),
    ("sum of rows", lambda x: x.sum(-1), WIDE),
    ("sum of channels", lambda x: x.sum((0, 2, 3)), [(2, 30, 20, 20)]),
    ("nll_loss", lambda x: F.nll_loss(x, classes(x), ignore_index=3), WIDE),
    ("nll_loss sum", lambda x: F.nll_loss(x, classes(x), reduction="sum"), [(2, 50, 70)]),
    ("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1), [(2, 30, 20, 20)]),
    ("avg_pool2d last", lambda x: F.avg_pool2d(
        x.contiguous(memory_format=torch.channels_last), 2), [(2, 30, 20, 20)]),
    ("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 7), [(2, 30, 20, 20)]),
    ("max of rows", lambda x: x.max(-1).values, WIDE),
    ("gather", lambda x: x.gather(1, torch.arange(x.numel()).view(x.shape) * 3 % x.shape[1]),
     WIDE),
    ("index_select", lambda x: x.index_select(1, torch.arange(x.shape[1]).flip(0)), WIDE),
    ("cumsum", lambda x: x.cumsum(-1), WIDE),
    ("flip", lambda x: x.flip(-1), WIDE),
    ("rows by index", lambda x: x[torch.arange(2 * len(x)) * 7 % len(x)], [(30, 200)]),
    ("index_add", lambda x, y: x.index_add(0, torch.arange(y.shape[0]) % 4, y),
     [(8, 100), (60, 100)]),
    ("index_add_", lambda x, y: x.clone().index_add_(-3, torch.arange(y.shape[0]) % 4, y),
     [(4, 10, 20), (60, 10, 20)]),
    ("scatter_add", lambda x, y: x.scatter_add(
        0, (torch.arange(y.shape[0]) % 4)[:, None].expand(y.shape), y),
     [(8, 100), (60, 100)]),
]
# Only `reproducible` replaces these.
REPRODUCIBLE = [
    ("exp2", torch.exp2, WIDE),
    ("rsqrt", lambda x: x.abs().clamp(0.125).rsqrt(), WIDE),
    ("logsigmoid", F.logsigmoid, WIDE),
    ("glu", F.glu, WIDE),
    ("glu 0", lambda x: F.glu(x, 0), WIDE),
    ("pow_1.75", power(1.75), WIDE),
    ("pow -0.5", power(-0.5), WIDE),
    ("pow 5", lambda x: x.pow(5), WIDE),
    ("pow_base", lambda x: torch.pow(1.5, x), WIDE),
]
CALLS += REPRODUCIBLE


def use(ours):
    """Computes with swamp's kernels from now on, or with PyTorch's own."""
    swamp_torch.enable(half_precision=ours)


def use_reproducible(ours):
    swamp_torch.enable(reproducible=ours, unreproducible="ignore")


def both(call, use=use):
    """What call() gives with PyTorch's own kernels, then with swamp's: results, or
    errors."""
    seen = []
    for ours in (False, True):
        use(ours)
        seen.append(support.caught(call))
    return seen


def assert_as_stock(test, calls, use=use):
    """Each call gives what it gives with PyTorch's own kernels: the same bits, or the
    same error. Returns the names of those that are errors."""
    refused = set()
    for name, call in calls.items():
        stock, ours = both(call, use)
        test.assertIs(type(ours), type(stock), (name, ours, stock))
        if isinstance(stock, torch.Tensor):
            test.assert_same(ours, stock, name)
        elif isinstance(stock, list):
            for one, other in zip(ours, stock, strict=True):
                test.assert_same(one, other, name)
        else:
            test.assertEqual(ours, stock, name)
            refused.add(name)
    return refused


def error(result, exact):
    return (result.double() - exact).norm().item()


def integers(*shape, seed=0):
    """float64 numbers from -1 to 1, made of integers: torch.randn() depends on the CPU's
    vectors."""
    n = torch.arange(math.prod(shape)).view(shape)
    return ((n * 7919 + n * n % 1009 * 31 + seed * 104729) % 2003 - 1001).double() / 1001


def randn(*shape, dtype=torch.float32, layout="rows", seed=0):
    """A tensor of a shape and a layout of its last two dimensions."""
    torch.manual_seed(seed + sum(shape))
    if layout == "rows":
        return torch.randn(shape).to(dtype)
    *batch, m, n = shape
    if layout == "columns":
        return torch.randn(*batch, n, m).to(dtype).mT
    if layout == "slice":
        return torch.randn(*batch, m, n + 5).to(dtype)[..., 2:n + 2]
    if layout == "steps":
        return torch.randn(*batch, m, 2 * n).to(dtype)[..., ::2]
    if layout == "expanded":
        return torch.randn(*batch, 1, n).to(dtype).expand(*batch, m, n)
    if layout == "shared":  # by all matrices of a batch
        return torch.randn(m, n).to(dtype).expand(*batch, m, n)
    raise ValueError(layout)


def with_gradients(call, *inputs, rounded=None):
    """The result of a call, then the gradients of its inputs, for a random gradient of
    the result, which is rounded to a dtype, or to that of the result."""
    inputs = [x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
              for x in inputs]
    y = call(*inputs)
    g = randn(*y.shape, dtype=rounded or y.dtype, seed=1).to(y.dtype)
    kept = g.clone()
    y.backward(g)
    assert support.same(g, kept), "the incoming gradient was written"
    return [y.detach(), *(x.grad for x in inputs)]
