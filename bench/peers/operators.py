"""Operators of models whose 16-bit kernels in PyTorch are slow: see run."""
import functools

import torch
import torch.nn.functional as F

import rows

OURS, FORWARD, FLOAT32 = "swamp", "swamp (forward)", "PyTorch's float32"
BITS, TABLE = "PyTorch's of integers", "table (forward)"
# Operators that take a few operations have SMALL tensors.
IMAGES, TOKENS_BY_WIDTH, SMALL = (8, 64, 28, 28), (512, 768), (96, 768)
ROWS_BACK, COLUMNS_BACK = torch.arange(96).flip(0), torch.arange(768).flip(0)
LOSSES = {"mse_loss": F.mse_loss, "smooth_l1_loss": F.smooth_l1_loss,
          "huber_loss": F.huber_loss}
# Whose kernels they are after enable(half_precision=True), the call, and the shapes of
# its tensors.
OPERATORS = {
    "pow 2": ("float16: swamp", lambda x: x.pow(2), TOKENS_BY_WIDTH),
    "pow 3": (OURS, lambda x: x.pow(3), TOKENS_BY_WIDTH),
    "pow 0.5": ("float16: PyTorch's sqrt", lambda x: x.abs().pow(0.5), TOKENS_BY_WIDTH),
    "norm": ("float16: swamp", torch.norm, TOKENS_BY_WIDTH),
    "normalize": ("float16: swamp", F.normalize, TOKENS_BY_WIDTH),
    "cosine_similarity": ("float16: swamp", F.cosine_similarity, TOKENS_BY_WIDTH,
                          TOKENS_BY_WIDTH),
    "group_norm": ("float16: swamp", lambda x, w, b: F.group_norm(x, 8, w, b), IMAGES,
                   (64,), (64,)),
    "gelu": ("float16: swamp (backward)", F.gelu, TOKENS_BY_WIDTH),
    "argmax": (FLOAT32, lambda x: x.argmax(-1), TOKENS_BY_WIDTH),
    "max_pool1d": (FLOAT32, lambda x: F.max_pool1d(x, 2), (8, 64, 512)),
    "grid_sample": (FLOAT32, lambda x, g: F.grid_sample(x, g / 3, align_corners=False),
                    IMAGES, (8, 28, 28, 2)),
    "grid_sample 3d": (FLOAT32, lambda x, g: F.grid_sample(
        x, g / 3, align_corners=False), (2, 16, 8, 14, 14), (2, 8, 14, 14, 3)),
    "unfold": (FLOAT32 + " (backward)", lambda x: F.unfold(x, 3, padding=1), IMAGES),
    "embedding_bag": (FLOAT32 + " (backward)", lambda w: F.embedding_bag(
        torch.arange(4096).view(8, 512) % 2048, w), (2048, 768)),
    "clamp": (FORWARD, lambda x: x.clamp(-0.5, 0.5), SMALL),
    "relu": (OURS, F.relu, SMALL),
    "relu6, hardtanh": (OURS, F.relu6, SMALL),
    "leaky_relu": (OURS, F.leaky_relu, SMALL),
    "prelu": (FORWARD, F.prelu, (2, 64, 24, 24), (64,)),
    "hardswish": (FORWARD, F.hardswish, SMALL),
    "hardsigmoid": (OURS, F.hardsigmoid, SMALL),
    "x + bias": (FORWARD, torch.add, SMALL, (768,)),
    "x + y": (OURS, torch.add, SMALL, SMALL),
    "x + 1": (OURS, lambda x: x + 1, SMALL),
    "1 - x": (OURS, lambda x: 1 - x, SMALL),
    "x * 0.5": (OURS, lambda x: x * 0.5, SMALL),
    "x * y": (OURS, torch.mul, SMALL, SMALL),
    "x * row": (OURS, torch.mul, SMALL, (768,)),
    "x * column": (OURS, torch.mul, SMALL, (96, 1)),
    "outer": (OURS, torch.outer, (96,), (768,)),
    **{name: (OURS, call, SMALL, SMALL) for name, call in LOSSES.items()},
    **{name + ", none": (OURS, functools.partial(call, reduction="none"), SMALL, SMALL)
       for name, call in LOSSES.items()},
    "binary_cross_entropy": (FLOAT32, lambda x, y: F.binary_cross_entropy(
        x.sigmoid(), y.sigmoid()), SMALL, SMALL),
    "index_add": (FORWARD, lambda x, y: x.index_add(0, ROWS_BACK, y), SMALL, SMALL),
    "scatter_add": (FORWARD, lambda x, y: x.scatter_add(
        0, ROWS_BACK.view(-1, 1).expand(SMALL), y), SMALL, SMALL),
    "maximum": (FORWARD, torch.maximum, SMALL, SMALL),
    "addcmul": (FORWARD, lambda x, y, z: x.addcmul(y, z, value=0.5), SMALL, SMALL, SMALL),
    "addcdiv": (FORWARD, lambda x, y, z: x.addcdiv(y, z, value=0.5), SMALL, SMALL, SMALL),
    "lerp": (FORWARD, lambda x, y: x.lerp(y, 0.3), SMALL, SMALL),
    "lerp by a tensor": (FORWARD, torch.lerp, SMALL, SMALL, SMALL),
    "x + 0.5 * y": (FORWARD, lambda x, y: x.add(y, alpha=0.5), SMALL, SMALL),
    "mean": (FORWARD, torch.mean, SMALL),
    "mean of rows": (FORWARD, lambda x: x.mean(-1), SMALL),
    "mean of columns": (FORWARD, lambda x: x.mean(0), SMALL),
    "mean of images": (FORWARD, lambda x: x.mean((2, 3)), IMAGES),
    "cumsum": (OURS, lambda x: x.cumsum(-1), SMALL),
    "flip": (BITS, lambda x: x.flip(-1), SMALL),
    "x[rows]": ("swamp (backward)", lambda x: x[ROWS_BACK], SMALL),
    "amax": (FORWARD, lambda x: x.amax(-1), SMALL),
    "amin": (FORWARD, lambda x: x.amin(-1), SMALL),
    "amax of columns": (FORWARD, lambda x: x.amax(0), SMALL),
    "max of rows": (FLOAT32 + ", of integers", lambda x: x.max(-1).values, SMALL),
    "var": (FLOAT32 + " (forward)", torch.var, SMALL),
    "logsumexp": (FLOAT32 + " (forward)", lambda x: x.logsumexp(-1), SMALL),
    "interpolate linear": (FLOAT32 + " (forward)", lambda x: F.interpolate(
        x, scale_factor=2, mode="linear"), (2, 64, 512)),
    "exp": (FORWARD, torch.exp, SMALL),
    "log": (FORWARD, lambda x: x.abs().log(), SMALL),
    "sigmoid": (FORWARD, torch.sigmoid, SMALL),
    "silu": (FORWARD, F.silu, SMALL),
    "tanh": (FORWARD, torch.tanh, SMALL),
    "softplus": (FORWARD, F.softplus, SMALL),
    "mish": (OURS, F.mish, SMALL),
    "elu": (FORWARD, F.elu, SMALL),
    "glu": (FORWARD, F.glu, SMALL),
    "sum of channels": (FORWARD, lambda x: x.sum((0, 2, 3)), IMAGES),
    "group_norm, channels last": (OURS, lambda x, w, b: F.group_norm(
        x.contiguous(memory_format=torch.channels_last), 8, w, b), IMAGES, (64,), (64,)),
    "avg_pool2d": (FLOAT32 + " (backward)", lambda x: F.avg_pool2d(x, 2), IMAGES),
    "adaptive_avg_pool2d": (FLOAT32 + " (backward)", lambda x: F.adaptive_avg_pool2d(x, 7),
                            IMAGES),
    "cross_entropy of images": (FLOAT32, lambda x: F.cross_entropy(x, torch.zeros(
        8, 28, 28, dtype=torch.long)), IMAGES),
    "index_select": (FORWARD, lambda x: x.index_select(1, COLUMNS_BACK), SMALL),
    "gather": (BITS, lambda x: x.gather(1, COLUMNS_BACK.repeat(96, 1)), SMALL),
    **{name: (TABLE, getattr(torch, name), SMALL) for name in ("sin", "cos", "erfc")},
    "log2": (TABLE, lambda x: torch.log2(x.abs() + 1), SMALL),
    "logit": (TABLE, lambda x: torch.logit(x, 1e-3), SMALL),
    "x > 0": (TABLE, lambda x: x > 0, SMALL),
    "repeated heads": (OURS + " (backward)", lambda x: x[:, :, None].expand(
        2, 4, 4, 96, 64).reshape(2, 16, 96, 64), (2, 4, 96, 64)),
    "mean of images, channels last": (FORWARD, lambda x: x.contiguous(
        memory_format=torch.channels_last).mean((2, 3)), IMAGES),
    "mv": (OURS, torch.mv, SMALL, (768,)),
    "dot": ("swamp (float16: with AMX-FP16)", torch.dot, (73728,), (73728,)),
}


def print_table(options):
    """The table of OPERATORS in Markdown: forward / backward, times over those of
    float32 tensors with PyTorch's own kernels; of swamp, then of PyTorch."""
    print("| operator | kernels | bfloat16 | PyTorch's own | float16 | PyTorch's own |\n"
          "|---|---|--:|--:|--:|--:|")
    for name, (whose, function, *shapes) in OPERATORS.items():
        if options.row not in name:
            continue
        cases = {}
        for dtype in rows.DTYPES:
            torch.manual_seed(1)
            inputs = [rows.randn(*shape, dtype=dtype).requires_grad_() for shape in shapes]
            result = function(*inputs)
            calls = rows.forward_and_backward(
                functools.partial(function, *inputs), inputs, torch.ones_like(result)
            )[:1 + result.requires_grad]
            for i, call in enumerate(calls):
                cases[f"{dtype} {i} stock"] = call
                if dtype != torch.float32:
                    cases[f"{dtype} {i} swamp"] = rows.with_swamp(call, half_precision=True)
        times = rows.least(cases, options.rounds, options.slice)
        cells = (" / ".join(
            f"{times[f'{dtype} {i} {peer}'] / times[f'{torch.float32} {i} stock']:.1f}"
            for i in range(len(calls)))
            for dtype in (torch.bfloat16, torch.float16) for peer in ("swamp", "stock"))
        print(f"| {name} | {whose} | {' | '.join(cells)} |", flush=True)
