"""Every operator of PyTorch that enable(half_precision=True) replaces, with PyTorch's
own kernels and with swamp's: on PyTorch's own samples (OpInfo), and under torch.func,
forward-mode and second derivatives, checkpoints, traces, export and compile. These and
every operator swamp::*: on tensors whose values are not those in their memory; what
these write counts once in the versions."""

import random
import unittest

from support import CI, FORMS, TestCase, a_fifth, caught, main, same
import half_precision
from half_precision import EPS, HALF, error, use

import torch
import torch.distributed as dist
from torch.autograd import forward_ad
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import swamp_torch

try:
    from torch.testing._internal.common_methods_invocations import op_db
except ImportError as missing:  # expecttest is missing
    print(f"PyTorch's samples are skipped: {missing}")
    op_db = None

F = torch.nn.functional
func = torch.func


OPERATORS = {
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "matmul", "nn.functional.linear",
    "log_softmax", "nn.functional.cross_entropy", "nn.functional.layer_norm",
    "native_layer_norm", "nn.functional.rms_norm",
    "nn.functional.scaled_dot_product_attention",
    "nn.functional.silu", "nn.functional.gelu", "nn.functional.softplus", "tanh",
    "norm", "linalg.vector_norm", "nn.functional.group_norm", "mv", "addmv", "dot",
    "nn.functional.max_pool1d", "sigmoid", "exp", "exp2", "expm1", "log", "log1p", "rsqrt", "pow",
    *(f"nn.functional.{name}" for name in ("mish", "elu", "celu", "selu", "logsigmoid", "glu")),
    *(f"nn.functional.conv{kind}{d}d" for kind in ("", "_transpose") for d in (1, 2, 3))}


def tensors(value):
    """The tensors in a result or in arguments, in their order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return ([t for one in value for t in tensors(one)]
            if isinstance(value, (list, tuple)) else [])


def cast(value, dtype):
    """The floating-point tensors in arguments with another dtype."""
    if isinstance(value, torch.Tensor):
        return (value.detach().to(dtype).requires_grad_(value.requires_grad)
                if value.is_floating_point() else value)
    if isinstance(value, dict):
        return {key: cast(one, dtype) for key, one in value.items()}
    return (type(value)(cast(one, dtype) for one in value)
            if isinstance(value, (list, tuple)) else value)


def with_gradients(call, *arguments, **options):
    """The tensors that a call returns, and the gradients of its inputs."""
    found = tensors(call(*arguments, **options))
    inputs = [t for t in tensors([arguments, options]) if t.requires_grad]
    outputs = [t for t in found if t.requires_grad]
    if inputs and outputs:
        grads = torch.autograd.grad(
            outputs, inputs, [torch.linspace(-1, 1, t.numel(), dtype=t.dtype)
                              .view(t.shape) for t in outputs], allow_unused=True)
        found += [t for t in grads if t is not None]
    return found


def form(found):
    """What must be as PyTorch's: an error, or all but the values."""
    return (found if isinstance(found, tuple) else
            [(t.dtype, t.shape, t.stride(), t.requires_grad) for t in found])


class Comparison(TestCase):
    def compare(self, message, dtype, call, of_stock=None, of_float64=None):
        """call(dtype) returns tensors of the same form with swamp's kernels as with
        PyTorch's own, and the same bits in float32 unless `reproducible` is on.
        Other values are as near to those of float64, within a factor of 2; the
        sharp bounds are in package_row_overrides.py and package_products.py.
        Of PyTorch's kernels and of float64, of_stock and of_float64 may be shorter ways
        to the same results. Returns whether PyTorch refuses the call."""
        use(False)
        stock = caught(lambda: (of_stock or call)(dtype))
        exact = caught(lambda: (of_float64 or call)(torch.float64))
        use(True)
        ours = caught(lambda: call(dtype))
        self.assertEqual(form(ours), form(stock), message)
        if isinstance(stock, tuple):
            return True
        if dtype is torch.float32 or isinstance(exact, tuple):
            self.assertTrue(all(map(same, ours, stock)), message)
            if dtype is not torch.float32 or isinstance(exact, tuple):
                return False
            swamp_torch.enable(reproducible=True)
            ours = caught(lambda: call(dtype))
            self.assertEqual(form(ours), form(stock), message)
        for a, b, c in zip(ours, stock, exact):
            if a.is_floating_point() and c.isfinite().all() and b.isfinite().all():
                self.assertLessEqual(
                    error(a, c), 2 * error(b, c)
                    + 2 * EPS.get(dtype, 2.0 ** -20) * c.norm().item()
                    + 1e-5,  # of sums of about 1 that cancel
                    message)
        return False


@unittest.skipIf(op_db is None, "see above")
class Samples(Comparison):
    def test_samples(self):
        found = set()
        for op in op_db:
            if op.name not in OPERATORS:
                continue
            found.add(op.name)
            dtypes = list(enumerate((*HALF, torch.float32)))
            # Outside of CI each operator has one of the dtypes.
            for j, dtype in dtypes if CI else [dtypes[len(found) % 3]]:
                samples = list(op.sample_inputs("cpu", dtype, requires_grad=True))
                if op.error_inputs_func is not None:
                    samples += [e.sample_input for e in op.error_inputs("cpu")]
                for i, sample in a_fifth(list(enumerate(samples)), j):
                    if sample.kwargs.get("dropout_p"):
                        continue
                    self.compare(
                        (op.name, dtype, i), dtype, lambda dtype: with_gradients(
                            op.op, *cast((sample.input, *sample.args), dtype),
                            **cast(sample.kwargs, dtype)))
        self.assertEqual(found, OPERATORS)


def strided(layout, shape, dtype):
    """A tensor of a shape and an order in memory."""
    torch.manual_seed(0)
    if layout == "steps":
        return torch.randn(*shape[:-1], 2 * shape[-1]).to(dtype)[..., ::2]
    if layout == "reversed":
        return torch.randn(shape[::-1]).to(dtype).permute(*range(len(shape))[::-1])
    if layout == "expanded":
        return torch.randn(1, *shape[1:]).to(dtype).expand(shape)
    x = torch.randn(shape).to(dtype)
    if layout == "channels_last" and len(shape) == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    return x


def zeros(x):
    return torch.zeros(x.shape[:1] + x.shape[2:], dtype=torch.long)


STRIDED = {
    "mean": lambda x: F.cross_entropy(x, zeros(x)),
    "none": lambda x: F.cross_entropy(x, zeros(x), reduction="none"),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "mm": lambda x: x @ x.mT,
}


# Operators of each element, by their number of tensors.
ELEMENTS = {
    1: (F.relu, F.hardtanh, F.hardswish, F.silu, F.elu, F.softplus, F.logsigmoid, F.gelu,
        torch.tanh, torch.exp, torch.log1p, torch.sqrt, lambda x: x ** 3, lambda x: 2.0 ** x,
        lambda x: x * 0.5 + 1, lambda x: F.leaky_relu(x, 0.1), lambda x: x.clamp(-1, 1),
        lambda x: torch.exp(x, out=x.new_empty(0))),
    2: (torch.add, torch.mul, torch.maximum, F.mse_loss, F.huber_loss,
        lambda x, y: torch.sub(x, y, alpha=0.5), lambda x, y: torch.lerp(x, y, 0.3),
        lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
        lambda x, y: F.mse_loss(x, y, reduction="none")),
    3: (torch.addcmul, torch.addcdiv, torch.lerp)}


def any_order(rng, shape, dtype):
    """A tensor of a shape, perhaps without some dimensions, in any order in memory and
    with any strides of dimensions of one element."""
    shape = [size if rng.random() < 0.8 else 1 for size in shape][rng.choice((0, 0, 0, 1)):]
    order = sorted(range(len(shape)), key=lambda _: rng.random() if rng.random() < 0.5 else 1)
    x = torch.rand([shape[i] for i in order]).to(dtype).permute(
        [order.index(i) for i in range(len(shape))])
    return x.as_strided(shape, [rng.choice((0, 1, 7, step)) if size == 1 else step
                                for size, step in zip(shape, x.stride())])


class Forms(Comparison):
    """Dtypes, strides and errors of what the samples do not have."""

    def test_strides_of_elements(self):
        """PyTorch computes the strides of a result from those of all operands."""
        for seed in range(1000 if CI else 200):
            rng = random.Random(seed)
            count, dtype = rng.randrange(1, 4), rng.choice((*HALF, torch.float32))
            call = rng.choice(ELEMENTS[count])
            shape = rng.choice(((70, 96), (6, 1, 9, 100), (1, 8, 9, 64), (3, 1, 1, 2000),
                                (70, 1, 70), (2, 3, 1, 12, 64), (4, 5)))
            inputs = [any_order(rng, shape, dtype) for _ in range(count)]
            found = []
            for switches in ({}, dict(half_precision=True), dict(reproducible=True)):
                swamp_torch.enable(**switches)
                found.append(call(*inputs))
            for ours in found[1:]:
                self.assertEqual(form([ours]), form(found[:1]), seed)
                torch.testing.assert_close(ours, found[0], rtol=0.02, atol=0.02)

    def test_strides(self):
        for name, call in STRIDED.items():
            for shape in ((4, 5), (2, 5, 3), (2, 5, 3, 4), (2, 5, 1, 4), (1, 5, 1, 1)):
                for layout in ("rows", "steps", "reversed", "expanded",
                               "channels_last"):
                    for dtype in HALF:
                        self.compare(
                            (name, shape, layout, dtype), dtype,
                            lambda dtype: with_gradients(call, strided(
                                layout, shape, dtype).requires_grad_()))

    def test_dtypes_of_weight_and_bias(self):
        kinds = (None, torch.float16, torch.bfloat16, torch.float32, torch.float64)
        for dtype in HALF:
            for w in kinds:
                for b in kinds:
                    def norm(call, dtype, *more):
                        # As float64, both are.
                        vectors = [None if kind is None else torch.ones(
                            3, dtype=dtype if dtype is torch.float64 else kind)
                            for kind in (w, b)]
                        return with_gradients(
                            call, torch.arange(6.0).view(2, 3).to(dtype), (3,),
                            *vectors, *more)

                    message = (dtype, w, b)
                    self.compare(message, dtype, lambda d: norm(F.layer_norm, d))
                    self.compare(message, dtype, lambda d: norm(
                        torch.native_layer_norm, d, 1e-5))
                    if b is None:
                        self.compare(message, dtype, lambda d: with_gradients(
                            F.rms_norm, torch.arange(6.0).view(2, 3).to(d), (3,),
                            None if w is None else torch.ones(
                                3, dtype=d if d is torch.float64 else w)))

    def test_empty(self):
        for dtype in HALF:
            for shape in ((0,), (2, 0), (0, 3), (2, 0, 3), (2, 3, 0), (0, 0, 3)):
                for reduction in ("mean", "sum", "none"):
                    self.compare(
                        (dtype, shape, reduction), dtype,
                        lambda dtype: with_gradients(
                            F.cross_entropy, torch.ones(shape, dtype=dtype),
                            torch.zeros(shape[:1] + shape[2:] if shape[1:] else (),
                                        dtype=torch.long), reduction=reduction))


def few(n):
    return 4 if n > 5 else n


# The first call of each first word, with small tensors; PyTorch's grid_sample is computed
# in float32 from 4096 elements on.
CALLS = list({name.split()[0]: (name.split()[0], call, [
    tuple(map(few, shape)) for shape in shapes])
    for name, call, shapes in reversed(half_precision.CALLS)}.values()) + [
    ("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False),
     [(2, 3, 27, 26), (2, 3, 4, 2)])]


def scalar(call):
    return lambda *inputs: call(*inputs).float().square().sum()


def all_of(inputs):
    return tuple(range(len(inputs)))


def leaves(inputs):
    return [x.detach().clone().requires_grad_() for x in inputs]


def examples(inputs):
    """The first input as a batch of three examples, and in_dims of vmap."""
    return ([torch.stack([inputs[0], inputs[0] / 2, -inputs[0]]), *inputs[1:]],
            (0, *[None] * (len(inputs) - 1)))


def vmap(call, inputs):
    batch, dims = examples(inputs)
    return func.vmap(call, dims)(*batch)


def jvp(call, inputs):
    return func.jvp(call, tuple(inputs), tuple(x.cos() for x in inputs))


def dual(call, inputs):
    with forward_ad.dual_level():
        return list(forward_ad.unpack_dual(call(
            *(forward_ad.make_dual(x, x.cos()) for x in inputs))))


def second(call, inputs):
    """Gradients, and those of a function of them."""
    inputs = leaves(inputs)
    first = torch.autograd.grad(scalar(call)(*inputs), inputs, create_graph=True,
                                allow_unused=True)
    used = [g for g in first if g is not None and g.requires_grad]
    return [*used, *(g for g in torch.autograd.grad(
        sum(g.float().square().sum() for g in used), inputs, allow_unused=True)
        if g is not None)]


def checkpointed(call, inputs, reentrant):
    inputs = leaves(inputs)
    y = checkpoint(call, *inputs, use_reentrant=reentrant)
    y.float().square().sum().backward()
    return [y, *(x.grad for x in inputs if x.grad is not None)]


def autocast(call, inputs):
    """Of float32 inputs; float64 is as it is."""
    dtype = inputs[0].dtype
    if dtype is torch.float64:
        return with_gradients(call, *leaves(inputs))
    with torch.autocast("cpu", dtype):
        return with_gradients(call, *leaves(x.float() for x in inputs))


def autocast_half(call, inputs):
    """Of 16-bit inputs, to the other 16-bit dtype."""
    dtype = inputs[0].dtype
    if dtype is torch.float64:
        return with_gradients(call, *leaves(inputs))
    with torch.autocast("cpu", HALF[dtype is HALF[0]]):
        return with_gradients(call, *leaves(inputs))


def inference(call, inputs):
    with torch.inference_mode():
        return call(*(x.clone() for x in inputs)).clone()


def of_pytorch(graph):
    """A graph runs in a process that has no swamp."""
    for node in graph.graph.nodes:
        assert "swamp" not in str(node.target), graph.code
    return graph


class Module(torch.nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, *inputs):
        return self.call(*inputs)


def exported(call, inputs):
    graph = torch.export.export(Module(call), tuple(inputs)).module()
    return of_pytorch(graph)(*inputs)


def traced(call, inputs):
    """By TorchScript."""
    graph = torch.jit.trace(call, tuple(inputs), check_trace=False)
    assert "swamp::" not in str(graph.inlined_graph)
    return graph(*inputs)


@torch._dynamo.config.patch(recompile_limit=1000)
def compiled(call, inputs):
    return with_gradients(torch.compile(call, backend="aot_eager"), *leaves(inputs))


def distributed(call, inputs):
    """As DTensors, the first of them sharded."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    inputs = [distribute_tensor(x, mesh, [Replicate() if i else Shard(0)])
              .requires_grad_() for i, x in enumerate(inputs)]
    with implicit_replication():
        return [t.full_tensor() if isinstance(t, DTensor) else t
                for t in with_gradients(call, *inputs)]


TRANSFORMS = {
    "gradients": lambda call, xs: with_gradients(call, *leaves(xs)),
    "grad": lambda call, xs: func.grad(scalar(call), all_of(xs))(*xs),
    "vmap": vmap,
    "vmap(grad)": lambda call, xs: vmap(func.grad(scalar(call), all_of(xs)), xs),
    "vjp": lambda call, xs: func.vjp(call, *xs)[1](call(*xs)),
    "jvp": jvp,
    "jacrev": lambda call, xs: func.jacrev(call)(*xs),
    "jacfwd": lambda call, xs: func.jacfwd(call)(*xs),
    "hessian": lambda call, xs: func.hessian(scalar(call))(*xs),
    "forward AD": dual,
    "create_graph": second,
    "checkpoint": lambda call, xs: checkpointed(call, xs, False),
    "checkpoint, reentrant": lambda call, xs: checkpointed(call, xs, True),
    "autocast": autocast,
    "autocast of 16 bits": autocast_half,
    "inference_mode": inference,
    # It would trace arguments that have a default.
    "make_fx": lambda call, xs: of_pytorch(make_fx(lambda *x: call(*x))(*xs))(*xs),
    "make_fx(grad)": lambda call, xs: of_pytorch(
        make_fx(func.grad(scalar(call)))(*xs))(*xs),
    "export": exported,
    "jit.trace": traced,
    "compile": compiled,
    "DTensor": distributed,
}
# The same results without what takes time: a graph that is recorded, and DTensors.
EAGER = {
    **dict.fromkeys(("make_fx", "export", "jit.trace"), lambda call, xs: call(*xs)),
    "make_fx(grad)": lambda call, xs: func.grad(scalar(call))(*xs),
    **dict.fromkeys(("compile", "DTensor"), TRANSFORMS["gradients"]),
}


# PyTorch has no forward derivative of its attention, of grid_sample and of 16-bit glu, no
# second one of attention and hardsigmoid, and no DTensors of logsigmoid and prelu, of
# gradients of four others, and convolutions that are not distributed by image.
REFUSED = {("DTensor", "conv2d"), ("DTensor", "conv_transpose1d"),
           ("DTensor", "logsigmoid"), ("DTensor", "prelu"), ("DTensor", "avg_pool2d"),
           ("create_graph", "attention"),
           ("create_graph", "hardsigmoid"), ("hessian", "hardsigmoid"),
           *(("DTensor", operator) for operator in (
               "hardsigmoid", "hardswish", "hardtanh", "relu6")),
           *((transform, operator) for operator in ("attention", "grid_sample")
             for transform in ("jvp", "jacfwd", "hessian", "forward AD")),
           *((transform, "glu") for transform in (
               "jvp", "jacfwd", "hessian", "forward AD"))}


class Transforms(Comparison):
    def test_transforms(self):
        # What is in EAGER has one dtype for each operator. Outside of CI a tenth: each
        # transform of a fifth of the operators, in one dtype, and each operator by a fifth
        # of the transforms.
        for name, operator, call, shapes, dtype in [
                (name, *operator, dtype) for i, name in enumerate(TRANSFORMS)
                for j, operator in enumerate(CALLS) for k, dtype in enumerate(HALF)
                if (name not in EAGER or (i + j + k) % 2 == 0 if CI else
                    (i + 2 * j + 5 * k) % 10 == 0)]:
            if name == "DTensor" and operator == "attention":
                continue  # PyTorch refuses its gradient, after 10 seconds
            torch.manual_seed(0)
            inputs = [torch.randn(s) for s in shapes]
            way, eager = [lambda dtype, how=how: tensors(how(call, cast(inputs, dtype)))
                          for how in (TRANSFORMS[name], EAGER.get(name, TRANSFORMS[name]))]
            # PyTorch refuses some operators of DTensors.
            refused = self.compare((name, operator, dtype), dtype, way,
                                   of_stock=way if name == "DTensor" else eager,
                                   of_float64=eager)
            with self.subTest((name, operator, dtype)):
                self.assertEqual(refused, (name, operator) in REFUSED)

    def test_create_graph_of_float32(self):
        """Second derivatives of what `reproducible` replaces."""
        for name, call, shapes in a_fifth(CALLS):
            torch.manual_seed(0)
            inputs = [torch.randn(s) for s in shapes]
            refused = self.compare(name, torch.float32, lambda dtype: tensors(
                second(call, cast(inputs, dtype))))
            self.assertEqual(refused, ("create_graph", name) in REFUSED, name)


def plain(x):
    """A contiguous tensor with the values of x in memory, of which x is independent."""
    return x.clone(memory_format=torch.contiguous_format) if isinstance(
        x, torch.Tensor) else [plain(one) for one in x] if isinstance(x, list) else x


def written(schema):
    return [i for i, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write]


def own_operators():
    """Arguments of every operator swamp::* that takes tensors."""
    torch.manual_seed(0)
    r, one, zero = torch.randn, torch.ones(()), torch.zeros(())
    x, w, b, target = r(4, 32), r(32), r(32), torch.tensor([1, 0, 3, 2])
    image, heads, mean, lse = r(2, 2, 4, 4), r(1, 2, 4, 8), r(4, 1), r(4)
    experts = torch.tensor([[0, 1], [1, 2], [2, 0], [0, 2]])
    positions = torch.tensor([[0, 0], [1, 0], [1, 1], [2, 2]], dtype=torch.int32)
    token_of, routed = torch.tensor([2, 0, 1, 3]), torch.rand(4, 3)
    some = [r(5), r(3, 4)]
    codes = x.to(torch.float8_e4m3fn)
    scales = torch.rand(4, 1).to(torch.float8_e8m0fnu)
    adam = [[r(5)], [r(5)], [r(5)], [torch.rand(5)], [r(5).half()], zero, zero, one]
    return [
        ("attention", [heads, heads, heads, image[:1]]),
        ("attention_backward", [heads, heads, heads, heads, heads, r(1, 2, 4)]),
        ("cross_entropy", [x, target]),
        ("cross_entropy_backward", [one, x, target, lse, one.double(), 2, -100, 0.0]),
        ("_cross_entropy", [x, target, w, 1, -100, 0.1, 0.0]),
        ("_cross_entropy_backward", [one, x, target, lse, one.double(), 2, -100, 0.0, w]),
        ("quantize", [x, 4, 1.0, 2, 0, 0, torch.arange(128).view(4, 32).byte()]),
        ("_quantize_by", [x, r(4, 1).exp(), 4]),
        ("dequantize", [codes, 4, torch.float32]),
        ("amax", [x]),
        ("hadamard_transform", [x]),
        ("quantize_blocks", [x, 10, 6, True, False, 0, False, one]),
        ("dequantize_blocks", [codes, scales, 4, 0, torch.float32]),
        ("_scaled_product", [codes, scales, 4, 0, False, None, codes, scales, 4, 0,
                            False, None, torch.float32, [one]]),
        ("_amax_and_seen", [x]),
        ("_values_by", [x, r(4, 1).exp(), 4]),
        ("quantized_values", [x, 10, 6, True, True, 0, False, one]),
        ("quantized_values", [x, 4, 10, True, True, 0, False, None, 0, 0, False, None,
                              None, None, r(4).exp(), r(32).exp(), True]),
        ("_block_amax", [x, True, True, False]),
        ("_value_product", [x, x, r(4).exp(), None, None, None, torch.float32, [one]]),
        ("unscale_", [some, zero, one / 2]),
        ("any_nonfinite", [some]),
        ("grad_norm_and_check", [some, zero, one / 2]),
        ("mixed_precision_adamw_", adam),
        ("foreach_lerp_", [some, [r(5), r(3, 4)], 0.25]),
        ("foreach_zero_", [some]),
        ("wgrad_gemm_accum", [r(4, 8), r(4, 3), r(3, 8)]),
        ("_product_part", [r(4, 8), r(8, 3), r(4 * 32), True, True]),
        ("_linear_cross_entropy", [x, r(6, 32), r(6), target, None, 1, -100, 0.0,
                                  [True] * 3, 0]),
        ("moe_histogram", [experts, 3]),
        ("moe_positions", [experts, 3]),
        ("moe_apply_capacity", [routed, routed > 0.3, 2]),
        ("moe_permutation", [experts, positions, 3, 8]),
        ("moe_permute", [x, token_of]),
        ("moe_unpermute", [x, token_of, torch.rand(4), 4]),
        ("_moe_dot", [x, token_of, x]),
        ("moe_aux_loss", [routed, torch.tensor([3, 2, 3]), 4, 2, 0.1]),
        ("_moe_aux_loss_backward", [one, routed, torch.tensor([3, 2, 3]), 4, 2, 0.1]),
        ("moe_z_loss", [x, 0.1]),
        ("_moe_z_loss_backward", [one, x, r(2, 4), 0.1]),
        ("layer_norm", [x, w, b, 1e-5]),
        ("layer_norm_backward", [x, x, mean, mean, w, [True] * 3]),
        ("rms_norm", [x, w, 1e-5]),
        ("rms_norm_backward", [x, x, mean, w, [True] * 2]),
        ("activation", [x, "gelu"]),
        ("activation_backward", [x, r(4, 32), "gelu"]),
        ("gated_activation", [x, r(4, 32), "silu"]),
        ("gated_activation_backward", [x, r(4, 32), r(4, 32), "silu"]),
        ("residual_add_", [x, r(4, 32), w]),
        ("_residual_add", [x, r(4, 32), w]),
        ("_embedding_dense_backward", [x, target, 5, -1, False]),
        ("_index_put_sum", [x, [target % 4], r(4, 32)]),
        ("_log_softmax", [x, 1]),
        ("_log_softmax_backward", [x, x, 1]),
        ("_current_scale", [torch.rand(3), "te.Float8CurrentScaling"]),
        ("scaled_softmax", [image, 0.5]),
        ("scaled_masked_softmax", [image, image[:1, :1] > 0, 0.5]),
        ("scaled_upper_triang_masked_softmax", [r(2, 4, 4), 0.5]),
        ("scaled_softmax_backward", [image, image, 0.5]),
        ("_scaled_softmax_backward", [image, image, 0.5]),
        # Other arguments of these.
        ("activation", [x.bfloat16(), "tanh"]),
        ("activation", [x, "elu", 1.5, 20.0, 1.25, 0.75]),
        ("gated_activation", [x.half()]),
        ("gated_activation_backward", [x[:, ::2], x]),
        ("attention", [h.half() for h in (heads, heads, heads)]),
        ("cross_entropy", [x.bfloat16(), target]),
        ("cross_entropy_backward", [one, x, target, torch.stack([lse, lse / 9]),
                                    one.double(), 2, -100, 0.1]),
        ("_linear_cross_entropy", [x, r(6, 32), r(6), target, None, 0, -100, 0.1,
                                   [False] * 3, 4]),
        ("layer_norm", [x.bfloat16(), None, None, 1e-5]),
        ("layer_norm_backward", [x, x, mean, mean, None, [True, False, False]]),
        ("wgrad_gemm_accum", [r(4, 8).half(), r(4, 3).half(), r(3, 8)]),
        ("any_nonfinite", [[r(5), r(4).half(), r(8, 8)[:, ::2], torch.empty(0)]]),
        ("grad_norm_and_check", [[r(5), r(4).half()], zero, one]),
        ("foreach_lerp_", [[r(5), r(4).half()], [r(5), r(4).half()], 0.5]),
        ("moe_histogram", [routed > 0.3, 3]),
        ("moe_positions", [routed > 0.3, 3, 3]),
        ("moe_permute", [x.bfloat16(), token_of, torch.rand(4)]),
        ("moe_unpermute", [x.bfloat16(), token_of, None, 4]),
    ]


NUMBERS = {"mixed_precision_adamw_": dict(
    lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, max_norm=0.5)}
SCHEMAS = {s.name.removeprefix("swamp::"): s for s in torch._C._jit_get_all_schemas()
           if s.name.startswith("swamp::")}


def named(name, arguments):
    """The arguments of an operator swamp::* by their names."""
    names = [a.name for a in SCHEMAS[name].arguments]
    return {**dict(zip(names, arguments)), **NUMBERS.get(name, {})}


# One-element arguments that are written and not returned.
REFUSED_NUMBERS = {("unscale_", 1), ("grad_norm_and_check", 1),
                   ("mixed_precision_adamw_", 5)}


def attention_of_rows(*inputs):
    return F.scaled_dot_product_attention(*(
        x if x.stride(-1) == 1 else x.contiguous() for x in inputs))


class Memory(TestCase):
    """Each argument in turn has another form: the results, and what was written, have
    the bits of the call with its contiguous copy; or there is an error."""

    def run_forms(self, name, call, arguments, writes, refused=(), skipped=()):
        places = [(i, j) for i, one in enumerate(arguments)
                  for j in (range(len(one)) if isinstance(one, list) else (None,))
                  if isinstance(one if j is None else one[j], torch.Tensor)]
        for i, j in places:
            for kind, (form, has_result) in FORMS.items():
                if kind in skipped:
                    continue
                ours = plain(arguments)
                old = ours[i] if j is None else ours[i][j]
                try:
                    new = form(old)
                except (RuntimeError, TypeError, NotImplementedError):
                    continue  # PyTorch has no such tensor of this dtype
                theirs = plain(arguments)
                for some, tensor in ((ours, new),
                                     (theirs, plain(new if has_result else old))):
                    if j is None:
                        some[i] = tensor
                    else:
                        some[i][j] = tensor
                is_error = i in writes and (kind == "zero" or "expanded" in kind)
                is_error |= i in refused and ("neg" in kind or kind == "imaginary")
                with self.subTest((name, i, j, kind)):
                    versions = [t._version for t in tensors([ours[k] for k in writes])]
                    found = caught(lambda: call(*ours))
                    if (isinstance(found, tuple) and found
                            and isinstance(found[0], str)):
                        self.assertTrue(is_error or not has_result, found)
                        continue
                    if kind in ("meta", "conjugate", "sparse"):
                        continue  # other values, or PyTorch's kernel
                    found, expected = tensors([found]), tensors([call(*theirs)])
                    if has_result:
                        here, there = (tensors([some[k] for k in writes])
                                       for some in (ours, theirs))
                        self.assertEqual([t._version - v for t, v in zip(here, versions)],
                                         [t._version for t in there])
                        found += plain(here)
                        expected += there
                    self.assert_same([t.resolve_neg() for t in found], expected)

    def test_own_operators(self):
        self.assertEqual({name for name, _ in own_operators()}, {
            name for name, s in SCHEMAS.items()
            # Their tensors are the state of float8 layers.
            if name not in ("_begin_pass", "_observe", "_update_scales")
            and any("Tensor" in str(a.type) for a in s.arguments)})
        for name, arguments in own_operators():
            def call(*arguments):
                return getattr(torch.ops.swamp, name)(**named(name, arguments))

            ours, writes = plain(arguments), written(SCHEMAS[name])
            before = [[(t._version, t.clone()) for t in tensors([one])] for one in ours]
            call(*ours)
            for i, one in enumerate(ours):
                for t, (version, values) in zip(tensors([one]), before[i]):
                    self.assertLessEqual(t._version - version, i in writes, name)
                    self.assertTrue(t._version > version or same(t, values), name)
            self.run_forms(name, call, arguments, writes,
                           [i for other, i in REFUSED_NUMBERS if other == name])

    def test_opcheck(self):
        """PyTorch's own checks of schema, autograd, fake tensors and compile."""
        for name, arguments in a_fifth(own_operators()):
            if any(t.element_size() == 1 and t.is_floating_point()
                   for t in tensors(arguments)) or name == "quantize":
                continue  # opcheck() itself cannot compute with these
            differentiable = (not written(SCHEMAS[name]) and "backward" not in name
                              and name not in ("_index_put_sum", "_moe_dot", "_residual_add")
                              and (name, len(arguments)) != ("attention", 4))  # a mask
            for grad in (False, True)[:1 + differentiable]:
                ours = plain(arguments)
                for t in tensors(ours):
                    t.requires_grad_(grad and t.is_floating_point())
                with self.subTest((name, grad)):
                    torch.library.opcheck(getattr(torch.ops.swamp, name), (),
                                          named(name, ours))

    def test_replaced_operators(self):
        for switches in (dict(half_precision=True, attention=True),
                         dict(reproducible=True)):
            swamp_torch.enable(**switches)
            dtypes = (*HALF, torch.float32)[:2 + ("reproducible" in switches)]
            for number, (name, call, shapes) in enumerate(CALLS):
                if name == "attention":  # of other strides it is PyTorch's
                    call = attention_of_rows
                for dtype in dtypes if CI else dtypes[number % len(dtypes):][:1]:
                    torch.manual_seed(0)
                    inputs = [torch.randn(s).to(dtype) for s in shapes]

                    def gradients(*all_of_it):
                        *xs, factor = all_of_it
                        xs = [x.detach().requires_grad_() for x in xs]
                        y = call(*xs)
                        grads = torch.autograd.grad(y, xs, factor, allow_unused=True)
                        return [y, *(g for g in grads if g is not None)]

                    factor = torch.randn_like(call(*inputs))
                    # PyTorch's results or gradients of these lose the sign of a product
                    # with 0, and its group_norm does not take zero tensors.
                    self.run_forms((name, dtype), gradients, [*inputs, factor], (),
                                   skipped=["zero"] * (name in (
                                       "group_norm", "norm", "mv", "addmv", "dot",
                                       "log1p", "rsqrt", "mul", "mul_", "outer", "addcmul",
                                       "addcmul_", "addcdiv")) +
                                   # PyTorch's index_add crashes.
                                   ["mkldnn"] * name.startswith("index_add"))
        use(False)


if __name__ == "__main__":
    main()
