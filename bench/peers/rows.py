"""Measures swamp's and PyTorch's row operators and products: see run."""
import contextlib
import copy
import ctypes
import functools
import importlib.util
import math
import os
import re
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch.profiler import record_function

import native
import swamp_torch
from swamp_torch import functional

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
HEADS, QUERIES = 24, 1024
TOKENS, CLASSES = 1024, 50304
WIDTH, HIDDEN = 768, 3072
NORM_ROWS, NORM_WIDTH = 8192, 1024
ATTENTION = (4, 12, 1024, 64)
GPT_ROWS = 2  # each as long as the context
GPT = dict(width=384, layers=6, heads=6, context=256)
RESNET = dict(layers=(3, 4, 6, 3), images=8, size=224)
LLAMA = dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=4,
             num_attention_heads=8, num_key_value_heads=4, vocab_size=32000,
             max_position_embeddings=512)
# Larger than the caches of most CPUs.
GENERATED = dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                 num_attention_heads=32, num_key_value_heads=8, vocab_size=32000,
                 max_position_embeddings=2048)
PROMPT = 64
QUICK = dict(HEADS=2, QUERIES=32, TOKENS=64, CLASSES=512, WIDTH=32, HIDDEN=64,
             NORM_ROWS=64, NORM_WIDTH=64, ATTENTION=(1, 2, 32, 16),
             GPT=dict(width=32, layers=1, heads=2, context=16),
             RESNET=dict(layers=(1,), images=2, size=32),
             LLAMA=dict(LLAMA, hidden_size=32, intermediate_size=64, vocab_size=512,
                        num_hidden_layers=1, max_position_embeddings=16),
             GENERATED=dict(LLAMA, hidden_size=32, intermediate_size=64, vocab_size=512,
                            num_hidden_layers=1))
SCALE = 1 / math.sqrt(96)
SLOW = 10_000  # milliseconds
STEP = "optimizer step"
# The parts of an iteration, and the operators and gradients that they consist of:
# the outermost one that fits decides.
PARTS = {"attention": r"scaled_dot_product|attention|ScaledDot",
         "linear": r"aten::linear|AddmmBackward|MmBackward|ViewBackward0|TBackward"
                   r"|aten::(addmm|mm|matmul)",
         "norms, activation": r"layer_norm|LayerNorm|gelu|Gelu",
         "loss": r"cross_entropy|CrossEntropy|log_softmax|LogSoftmax|nll_loss|Nll",
         STEP: STEP}


def name_of(dtype):
    return str(dtype).split(".")[1]


def randn(*shape, dtype):
    return torch.randn(*shape).to(dtype)


def forward_and_backward(function, inputs, gradient):
    """Two calls: the forward pass without autograd, and the gradients of inputs."""
    result = function()

    def forward():
        with torch.no_grad():
            function()

    def backward():
        torch.autograd.grad(result, inputs, gradient, retain_graph=True)
    return forward, backward


def both(function, inputs, gradient):
    def call():
        torch.autograd.grad(function(), inputs, gradient)
    return call


@functools.cache
def naive():
    """The library of run, or None."""
    path = os.environ.get("PEERS_NAIVE", "build/peers/libnaive.so")
    return native.Naive(os.path.abspath(path)) if os.path.exists(path) else None


def roofline(*passes):
    """The memory traffic of passes, each of arrays of (bytes, access)."""
    if naive() is None:
        return {}
    # The passes share arrays of the same size.
    memory = [torch.ones(max(of[i][0] for of in passes if i < len(of)),
                         dtype=torch.uint8) for i in range(max(map(len, passes)))]
    calls = naive().rooflines([native.Traffic([[
        (array.data_ptr(), size, access)
        for array, (size, access) in zip(memory, arrays)]]) for arrays in passes])
    for call in calls.values():
        call.memory = memory  # lives as long
    return calls


def multiply_adds(flops, dtype):
    """So many floating-point operations in registers, as fused multiply-adds."""
    return ({} if naive() is None
            else naive().multiply_adds(flops, dtype == torch.bfloat16))


# Each of the following returns {row: {peer: call}} for a dtype. The roofline is
# that of the bytes that an operator has to read and write, in the same memory if
# it works in place.

def linear(dtype):
    x = randn(TOKENS, WIDTH, dtype=dtype).requires_grad_()
    weight = (randn(HIDDEN, WIDTH, dtype=dtype) * 0.02).requires_grad_()
    gradient = randn(TOKENS, HIDDEN, dtype=dtype)
    call = both(lambda: F.linear(x, weight), (x, weight), gradient)
    rows = {"torch": call, "swamp": with_swamp(call, reproducible=True)}
    return {f"Linear {WIDTH} -> {HIDDEN}, {TOKENS} tokens, forward + backward":
            rows}


# name, batch, m, n, k, and whether a and b are transposed in memory
PRODUCTS = (("768 to 3072, forward", 1, 1024, 3072, 768, False, True),
            ("its gradient of x", 1, 1024, 768, 3072, False, False),
            ("its gradient of w", 1, 3072, 768, 1024, True, False),
            ("3072 to 768, forward", 1, 1024, 768, 3072, False, True),
            ("logits", 1, 512, 50304, 768, False, True),
            ("48 heads", 48, 1024, 1024, 64, False, True),
            ("64 x 64 x 64", 1, 64, 64, 64, False, False),
            ("8192 x 64 x 64", 1, 8192, 64, 64, False, False),
            ("1 row", 1, 1, 3072, 768, False, True),
            ("8 rows", 1, 8, 3072, 768, False, True))


def products(dtype):
    """The roofline is the time of the multiply-adds."""
    rows = {}
    for name, batch, m, n, k, a_columns, b_columns in PRODUCTS:
        def matrices(rows, columns, by_columns):
            shape = (columns, rows) if by_columns else (rows, columns)
            x = randn(batch, *shape, dtype=dtype)
            x = x.mT if by_columns else x
            return x[0] if batch == 1 else x

        a, b = matrices(m, k, a_columns), matrices(k, n, b_columns)
        out = torch.empty(*a.shape[:-1], n, dtype=dtype)
        product = torch.mm if batch == 1 else torch.bmm
        # Each call repeats a short product, so that Python's part is small.
        repeats = max(1, int(1e8 / (2 * batch * m * n * k)))

        def repeated(call, repeats=repeats):
            def calls():
                for _ in range(repeats):
                    call()
            return calls

        call = repeated(functools.partial(product, a, b, out=out))
        cases = {"torch": call, "swamp": with_swamp(call, reproducible=True)}
        one_dnn = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
        if batch == 1 and dtype == torch.float32 and one_dnn is not None:
            cases["oneDNN"] = repeated(functools.partial(
                one_dnn, a.contiguous(), b.t().contiguous(), None, "none", [], ""))
        cases.update(multiply_adds(2 * batch * m * n * k * repeats, dtype))
        rows[f"product {name}, [{m}, {k}] [{k}, {n}]"
             + (f" {repeats} times" if repeats > 1 else "")] = cases
    return rows


def softmax(dtype):
    shape = (HEADS, QUERIES, QUERIES)
    mask = torch.ones(QUERIES, QUERIES, dtype=torch.bool).triu(1)

    def megatron(x):
        """What FusedScaleMaskSoftmax does without apex."""
        scores = (x.float() * SCALE).masked_fill(mask, -10000.0)
        return torch.softmax(scores, -1).to(dtype)
    return {
        **pair(f"scale + causal mask + softmax {list(shape)}", dtype, [shape], megatron,
               lambda x: functional.scaled_upper_triang_masked_softmax(x, SCALE), 0.5),
        **pair(f"softmax {list(shape)}", dtype, [shape], lambda x: torch.softmax(x, -1),
               functional.scaled_softmax)}


def losses(dtype, rows, classes):
    """Inputs, and {peer: the mean loss of these logits}."""
    # Without a temporary, which peak_memory() would count.
    logits = torch.empty(rows, classes, dtype=dtype).normal_().requires_grad_()
    targets = torch.randint(0, classes, (rows,))

    def autocast():
        if dtype == torch.float32:
            return F.cross_entropy(logits, targets)
        with torch.autocast("cpu", dtype=dtype):
            return F.cross_entropy(logits, targets)
    return (logits,), {
        "torch": autocast,
        "Megatron": lambda: MegatronCrossEntropy.apply(logits.float(),
                                                       targets).mean(),
        "swamp": lambda: functional.cross_entropy(logits, targets)}


def linear_losses(dtype, rows, classes):
    """Inputs, and {peer: the mean loss of the logits of a linear layer}."""
    x = torch.empty(rows, WIDTH, dtype=dtype).normal_().requires_grad_()
    weight = torch.empty(classes, WIDTH, dtype=dtype).normal_(0, 0.02).requires_grad_()
    targets = torch.randint(0, classes, (rows,))
    peers = {"torch": lambda: F.cross_entropy(F.linear(x, weight), targets),
             "swamp": lambda: functional.linear_cross_entropy(x, weight, targets)}
    if dtype == torch.float16:
        del peers["torch"]  # its products take minutes
    return (x, weight), peers


def cross_entropy(dtype):
    (logits,), peers = losses(dtype, TOKENS, CLASSES)
    one = torch.ones(())
    calls = {peer: both(loss, (logits,), one) for peer, loss in peers.items()}
    read = (logits.nbytes, native.READ)
    calls.update(roofline((read,), (read, (logits.nbytes, native.WRITE))))
    return {f"cross entropy [{TOKENS}, {CLASSES}], forward + backward": calls}


def linear_cross_entropy(dtype):
    inputs, peers = linear_losses(dtype, TOKENS, CLASSES)
    one = torch.ones(())
    return {f"linear {WIDTH} -> {CLASSES} + cross entropy, {TOKENS} tokens, "
            "forward + backward": {peer: both(loss, inputs, one)
                                   for peer, loss in peers.items()}}


def status(name):
    """MiB of this process: VmHWM, the peak, or VmRSS."""
    with open("/proc/self/status") as file:
        line = next(x for x in file if x.startswith(name))
    return int(line.split()[1]) / 1024


def peak_memory(make, peer, dtype, rows, classes):
    """The MiB that loss and gradients of this process need in addition to the inputs
    that make() makes."""
    inputs, peers = make(dtype, 2, 64)
    peers[peer]().backward()  # the first call allocates what later ones reuse
    inputs, peers = make(dtype, rows, classes)
    before = status("VmHWM")
    peers[peer]().backward()
    return status("VmHWM") - before


def llama_memory(peer, dtype):
    """The MiB that loss and gradients of LLaMA need in addition to the weights."""
    loss_of, model = next_token_loss(), llama_model().to(dtype)
    if peer == "swamp":
        swamp_torch.enable(half_precision=dtype != torch.float32)
        apply_swamp(model)
    called = torch.compile(model) if peer == "torch.compile" else model
    loss_of(called).backward()
    model.zero_grad()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak begins again
    before = status("VmRSS")
    loss_of(called).backward()
    return status("VmHWM") - before


def memory(options):
    """{"row/dtype": {peer: MiB}}, each from a process of its own, with the heap
    that a user has."""
    env = {name: value for name, value in os.environ.items()
           if not name.startswith("MALLOC_")}
    folder = os.path.dirname(os.path.abspath(__file__))

    def of_process(call):
        code = (f"import sys; sys.path.insert(0, {folder!r})\n"
                f"import rows, torch\nprint(rows.{call})")
        return float(subprocess.run(
            [sys.executable, "-B", "-c", code], env=env, text=True, check=True,
            stdout=subprocess.PIPE).stdout)
    results = {}

    def of_losses(name, make, tokens):
        for dtype in DTYPES:
            sizes = f"{dtype}, {tokens}, {CLASSES}"
            results[f"{name}, {tokens} tokens/{name_of(dtype)}"] = {
                "logits": tokens * CLASSES * dtype.itemsize / 2 ** 20,
                **{peer: of_process(
                    f"peak_memory(rows.{make.__name__}, {peer!r}, {sizes})")
                   for peer in make(dtype, 2, 64)[1]}}

    if options.row in "memory":
        of_losses("cross entropy", losses, TOKENS)
        for tokens in (TOKENS, 8 * TOKENS):
            of_losses("linear + cross entropy", linear_losses, tokens)
    if options.row not in "memory" and options.row not in "llama" or not HAS_LLAMA:
        return results
    for dtype in (torch.bfloat16, torch.float32):
        tokens = 2 * LLAMA["max_position_embeddings"]
        results[f"LLaMA, one iteration/{name_of(dtype)}"] = {
            "logits": tokens * LLAMA["vocab_size"] * dtype.itemsize / 2 ** 20,
            **{peer: of_process(f"llama_memory({peer!r}, {dtype})")
               for peer in ("torch", "torch.compile", "swamp")
               if options.compile or peer != "torch.compile"}}
    return results


class MegatronCrossEntropy(torch.autograd.Function):
    """The steps of Megatron-LM's vocab-parallel cross entropy, on one rank."""

    @staticmethod
    def forward(ctx, logits, targets):
        shifted = logits - logits.max(-1).values.unsqueeze(-1)
        rows = torch.arange(targets.numel())
        predicted = shifted[rows, targets].clone()
        probabilities = torch.exp(shifted, out=shifted)
        total = probabilities.sum(-1)
        probabilities.div_(total.unsqueeze(-1))
        ctx.save_for_backward(probabilities, rows, targets)
        return total.log() - predicted

    @staticmethod
    def backward(ctx, gradient):
        probabilities, rows, targets = ctx.saved_tensors
        probabilities[rows, targets] -= 1
        probabilities.mul_(gradient.unsqueeze(-1))
        return probabilities, None


def norms(dtype):
    shapes = [(NORM_ROWS, NORM_WIDTH), (NORM_WIDTH,), (NORM_WIDTH,)]
    rows = {}
    for title, name, count in (("LayerNorm", "layer_norm", 3), ("RMSNorm", "rms_norm", 2)):
        rows.update(pair(f"{title} {list(shapes[0])}", dtype, shapes[:count], *(
            lambda x, w, *b, f=getattr(module, name): f(x, w.shape, w, *b)
            for module in (F, functional))))
    return rows


def residual_add(dtype):
    residual = torch.randn(NORM_ROWS, NORM_WIDTH)
    x = randn(NORM_ROWS, NORM_WIDTH, dtype=dtype)
    bias = torch.randn(NORM_WIDTH).to(dtype)
    return {f"float32 residual += x + bias [{NORM_ROWS}, {NORM_WIDTH}]": {
        **roofline(((residual.nbytes, native.UPDATE), (x.nbytes, native.READ))),
        "torch": lambda: residual.add_(x + bias),
        "swamp": lambda: functional.residual_add(residual, x, bias,
                                                 inplace=True)}}


def pair(name, dtype, shapes, stock, ours, share=1.0):
    """The rows of a forward and a backward pass of functions of random tensors, whose
    results have the first one's shape. torch.compile has both. Of the first one only
    this share has to be read; 0: no roofline."""
    inputs = [randn(*shape, dtype=dtype).requires_grad_() for shape in shapes]
    gradient = randn(*shapes[0], dtype=dtype)
    rows = {f"{name}, {which}": {} for which in ("forward", "backward")}
    functions = {"torch": stock, "swamp": ours}
    if compiled:
        functions["torch.compile"] = torch.compile(stock)
    for peer, function in functions.items():
        calls = forward_and_backward(functools.partial(function, *inputs), inputs, gradient)
        for row, call in zip(rows.values(), calls):
            row[peer] = call
    if share:
        read = (int(share * gradient.nbytes), native.READ)
        write = (gradient.nbytes, native.WRITE)
        for row, arrays in zip(rows.values(), ((read, write), (read, read, write))):
            row.update(roofline(arrays))
    return rows


def attention(dtype):
    """The roofline is the time of the multiply-adds: 2 products forward and 5
    backward, of the scores that causal attention does not hide."""
    batch, heads, tokens, channels = ATTENTION
    found = {}
    for causal in (False, True):
        rows = pair(
            f"{'causal ' * causal}attention {list(ATTENTION)}", dtype, [ATTENTION] * 3,
            functools.partial(F.scaled_dot_product_attention, is_causal=causal),
            lambda *x, causal="top_left" if causal else "none":
            functional.attention(*x, causal=causal)[0], share=0)
        scores = batch * heads * tokens * ((tokens + 1) / 2 if causal else tokens)
        for row, products in zip(rows.values(), (2, 5)):
            row.update(multiply_adds(2 * products * scores * channels, dtype))
        found.update(rows)
    return found


compiled = False
OPERATORS = (linear, products, softmax, cross_entropy, linear_cross_entropy, norms,
             residual_add, attention)


def with_swamp(call, **switches):
    """PyTorch's operators are swamp's during the call, by these options of
    enable()."""
    def active():
        call()
    active.switches = switches
    return active


class Gpt(torch.nn.Module):
    """GPT-2's layers; 30 million parameters."""

    def __init__(self, width, layers, heads, context):
        super().__init__()
        self.heads = heads
        self.tokens = torch.nn.Embedding(CLASSES, width)
        self.places = torch.nn.Embedding(context, width)
        self.layers = torch.nn.ModuleList()
        for _ in range(layers):
            self.layers.append(torch.nn.ModuleDict({
                "norm1": torch.nn.LayerNorm(width),
                "qkv": torch.nn.Linear(width, 3 * width),
                "out": torch.nn.Linear(width, width),
                "norm2": torch.nn.LayerNorm(width),
                "up": torch.nn.Linear(width, 4 * width),
                "down": torch.nn.Linear(4 * width, width)}))
        self.norm = torch.nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                torch.nn.init.normal_(parameter, std=0.02)

    def forward(self, ids):
        h = self.tokens(ids) + self.places.weight[:ids.size(1)]
        for layer in self.layers:
            q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                       for part in layer["qkv"](layer["norm1"](h)).chunk(3, -1))
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            h = h + layer["out"](attended.transpose(1, 2).flatten(2))
            h = h + layer["down"](F.gelu(layer["up"](layer["norm2"](h))))
        return F.linear(self.norm(h), self.tokens.weight)


class Bottleneck(torch.nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.layers = torch.nn.Sequential(
            *normalized(inputs, width, 1), torch.nn.ReLU(),
            *normalized(width, width, 3, stride), torch.nn.ReLU(),
            *normalized(width, outputs, 1))
        self.shortcut = torch.nn.Sequential(*normalized(
            inputs, outputs, 1, stride) if inputs != outputs else ())

    def forward(self, x):
        return F.relu(self.layers(x) + self.shortcut(x))


def normalized(inputs, outputs, kernel, stride=1):
    return (torch.nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2,
                            bias=False), torch.nn.BatchNorm2d(outputs))


def resnet_model(layers):
    """ResNet-50's layers, if layers are 3, 4, 6, 3; 26 million parameters."""
    blocks, inputs = [], 64
    for stage, count in enumerate(layers):
        width = 64 << stage
        for i in range(count):
            blocks.append(Bottleneck(inputs, width,
                                     2 if stage > 0 and i == 0 else 1))
            inputs = 4 * width
    return torch.nn.Sequential(
        *normalized(3, 64, 7, 2), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1),
        *blocks, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(inputs, 1000))


def train_step(model, dtype, loss_of, half, ours):
    """One iteration: loss, gradients, clipping, AdamW. If `half`, weights are 16-bit
    and PyTorch's optimizer has float32 masters; else autocast computes in the dtype.
    `ours`: swamp's optimizer, which has the masters itself, and clips. A 16-bit loss
    cannot hold the default scale."""
    weights = list((model.to(dtype) if half else model).parameters())
    masters = ([w.detach().float() for w in weights] if half and not ours
               else weights)
    optimizer = (swamp_torch.AdamW(masters, lr=1e-5, max_norm=1.0) if ours else
                 torch.optim.AdamW(masters, lr=1e-5, fused=True))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** (12 if half else 16),
                                  enabled=dtype == torch.float16)

    def step():
        model.zero_grad()
        with torch.autocast("cpu", dtype=dtype,
                            enabled=not half and dtype != torch.float32):
            loss = loss_of(model)
        scaler.scale(loss).backward()
        with record_function(STEP):
            for master, weight in zip(masters, weights):
                if master is not weight:
                    master.grad = weight.grad.float()
            if not ours:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(masters, 1.0)
            scaler.step(optimizer)
            scaler.update()
            if masters is not weights:
                with torch.no_grad():
                    torch._foreach_copy_(weights, masters)
    return step


def iterations(name, dtype, make_model, loss_of, change=None):
    """The rows of one iteration of a model, which change() makes use swamp."""
    torch.manual_seed(1)
    model = make_model()
    millions = sum(p.numel() for p in model.parameters()) / 1e6
    name = f"{name} of {millions:.0f} million parameters, {{}}, one iteration"

    def peers(half, ours, **switches):
        def step(own, run=None):
            one = copy.deepcopy(model)
            called = run(one) if run else one
            return train_step(one, dtype, lambda _: loss_of(called), half, own)
        found = {"torch": step(False)}
        if compiled:
            found["torch.compile"] = step(False, torch.compile)
            found["torch.compile"]()  # compiles, which is not measured
        found["swamp"] = step(ours, change)
        if change is None:
            switches = switches or {"reproducible": True}
        if switches:
            found["swamp"] = with_swamp(found["swamp"], **switches)
        return found
    if dtype == torch.float32:
        return {name.format("float32"): peers(False, True)}
    short = {torch.float16: ".half()", torch.bfloat16: ".bfloat16()"}[dtype]
    return {name.format("autocast"): peers(False, False, half_precision=True),
            name.format(short): peers(True, True, half_precision=True)}


def gpt(dtype):
    ids = torch.randint(0, CLASSES, (GPT_ROWS, GPT["context"] + 1))

    def next_token_loss(model):
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1),
                               ids[:, 1:].flatten())
    return iterations("GPT", dtype, lambda: Gpt(**GPT), next_token_loss)


HAS_LLAMA = importlib.util.find_spec("transformers") is not None


def llama_model(sizes=None):
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(**sizes or LLAMA, use_cache=False)).train()


def apply_swamp(model):
    from swamp_torch.transformers import apply
    return apply(model)


def next_token_loss():
    """The loss of a model of transformers."""
    ids = torch.randint(0, LLAMA["vocab_size"],
                        (2, LLAMA["max_position_embeddings"]))
    return lambda model: model(input_ids=ids, labels=ids).loss


def llama(dtype):
    """LLaMA of transformers, against swamp_torch.transformers.apply()."""
    if not HAS_LLAMA or dtype == torch.float16:  # PyTorch's takes minutes
        return {}
    return iterations("LLaMA", dtype, llama_model, next_token_loss(), apply_swamp)


def generate(dtype):
    """One token of a LLaMA, after others; the roofline reads the weights."""
    if not HAS_LLAMA:
        return {}
    model = llama_model(GENERATED).to(dtype).eval()
    ids = torch.randint(0, GENERATED["vocab_size"], (1, PROMPT + 1))
    with torch.no_grad():
        cache = model(ids[:, :-1], use_cache=True).past_key_values

    @torch.no_grad()
    def token():
        model(ids[:, -1:], cache=cache, use_cache=True)
        cache.crop(-1)

    switches = dict(half_precision=True, reproducible=dtype == torch.float32)
    rows = {"torch": token, "swamp": with_swamp(token, **switches)}
    if compiled:
        from transformers import StaticCache
        fixed = StaticCache(config=model.config, max_cache_len=2 * PROMPT)
        run = torch.compile(model, fullgraph=True)
        with torch.no_grad():
            model(ids[:, :-1], cache=fixed, use_cache=True)

        @torch.no_grad()
        def compiled_token():
            for layer in fixed.layers:
                layer.cumulative_length.fill_(PROMPT)
            run(ids[:, -1:], cache=fixed, use_cache=True,
                position_ids=torch.tensor([[PROMPT]]))
        rows["torch.compile"] = compiled_token
        rows["swamp, torch.compile"] = with_swamp(compiled_token, **switches)
        for name in ("torch.compile", "swamp, torch.compile"):
            with switched(rows[name]):
                rows[name]()  # compiles, which is not measured
    if naive() is not None:
        rows.update(naive().rooflines([native.Traffic([
            # Four streams are faster than one.
            [(w.data_ptr() + i * w.nbytes // 4, w.nbytes // 4, native.READ)
             for i in range(4)] for w in model.parameters()
            if w.dim() == 2 and w is not model.get_input_embeddings().weight])]))
    millions = sum(p.numel() for p in model.parameters()) / 1e6
    return {f"LLaMA of {millions:.0f} million parameters, one token after {PROMPT}": rows}


def resnet(dtype):
    images, size = RESNET["images"], RESNET["size"]
    x = torch.randn(images, 3, size, size)
    x = x.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (images,))

    def loss(model):
        kind = next(model.parameters()).dtype
        return F.cross_entropy(model(x.to(kind)), labels)
    return iterations("ResNet", dtype, lambda: resnet_model(RESNET["layers"]).to(
        memory_format=torch.channels_last), loss)


def parts_of(call):
    """{part: milliseconds} of one call, whose sum is its time."""
    with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        begin = time.perf_counter()
        call()
        whole = (time.perf_counter() - begin) * 1e3
    parts = dict.fromkeys(PARTS, 0.0)
    for event in profile.events():
        outer, found = event, None
        while outer is not None:  # the last one that fits is the outermost
            found = next((part for part, names in PARTS.items()
                          if re.search(names, outer.name)), found)
            outer = outer.cpu_parent
        if found:
            parts[found] += event.self_cpu_time_total / 1e3
    parts["other"] = max(0.0, whole - sum(parts.values()))
    return parts


def gpt_parts(rounds):
    """{"dtype/peer": {part: milliseconds}} of the fastest iteration of the GPT,
    whose 16-bit rows have 16-bit weights."""
    results = {}
    for dtype in DTYPES:
        torch.manual_seed(1)
        peers = list(gpt(dtype).values())[-1]
        for turn in range(rounds + 1):  # the first is not counted, except if slow
            for peer in ("torch", "swamp"):
                key = f"{name_of(dtype)}/{peer}"
                before = results.get(key)
                if before and sum(before.values()) > SLOW:
                    continue
                with switched(peers[peer]):
                    parts = parts_of(peers[peer])
                if turn < 2 or sum(parts.values()) < sum(before.values()):
                    results[key] = parts
        print("measured the parts of the GPT in", name_of(dtype), flush=True)
    return results


@contextlib.contextmanager
def switched(call):
    """What a call of with_swamp() needs."""
    switches = getattr(call, "switches", None)
    if switches is not None:
        swamp_torch.enable(**switches)
    try:
        yield
    finally:
        if switches is not None:
            swamp_torch.disable()


def least(cases, rounds, seconds):
    """Milliseconds of each case: the fastest call, in turns. The first call of a
    turn is not counted, except if the case is so slow that it is the only one. Of
    the rooflines the fastest counts."""
    best = dict.fromkeys(cases, math.inf)

    def timed(call):
        begin = time.perf_counter()
        call()
        return (time.perf_counter() - begin) * 1e3

    for turn in range(rounds):
        for name, call in cases.items():
            if turn > 0 and best[name] > SLOW:
                continue
            with switched(call):
                first = timed(call)
                if first > SLOW:
                    best[name] = min(best[name], first)
                    continue
                end = time.perf_counter() + seconds
                while True:
                    best[name] = min(best[name], timed(call))
                    if time.perf_counter() >= end:
                        break
            time.sleep(0.02)  # idle threads of OpenMP spin for a while
    rooflines = [name for name in best if name.startswith("roofline")]
    if rooflines:
        best["roofline"] = min(map(best.pop, rooflines))
    return best


def measure(options):
    """{"row/dtype": {peer: milliseconds}}"""
    global compiled
    models = options.part == "models"
    compiled = options.compile or models
    if options.quick:
        globals().update(QUICK)
    results = {}
    for make in (gpt, resnet) if models else (*OPERATORS, gpt, llama, generate, resnet):
        if options.row not in make.__name__:
            continue
        for dtype in DTYPES:
            torch.manual_seed(1)
            for row, cases in make(dtype).items():
                times = least(cases, options.rounds, options.slice)
                results[f"{row}/{name_of(dtype)}"] = times
                print(f"{row}, {name_of(dtype)}:", ", ".join(
                    f"{peer} {time:.2f}" for peer, time in times.items()),
                    flush=True)
    return results
