"""enable(reproducible=True) gives the same weights on every CPU and any number of
threads: tiny models of transformers, trained in processes whose vectors and threads
differ, and by two ranks.

usage: every_cpu.py PATH [unittest's arguments]
       every_cpu.py PATH --table [--steps N] [--operators] [--isa NAME,...] [--few]
                    [--ranks] [--under COMMAND] [MODEL...]
--table prints a digest of the weights after N steps (20) for each model and dtype, or
the settings with which they differ; --operators names the operators that, with equal
inputs, have other results there. --isa takes other settings, with one thread each, and
--few batches of one sequence of 32 tokens, or one image: less work for slow kernels.
--ranks takes one rank that accumulates two batches, and two ranks.
--under runs the processes by a command, such as "qemu-x86_64 -cpu Haswell".
"""

import contextlib
import hashlib
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import unittest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
from support import CI, PATH, TestCase, declare_torchvision, main, python, run_ranks

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

if importlib.util.find_spec("transformers") is None:
    print("skipped: transformers is not installed (toolchain/torch-clients)")
    sys.exit(77)

declare_torchvision()
import transformers as hf

import package_unreproducible
import swamp_torch
from half_precision import integers

DTYPES = ("float32", "bfloat16", "float16")
STEPS = 2
VOCABULARY, WIDTH, TOKENS, BATCH, SIZE, CLASSES = 1000, 192, 128, 4, 64, 10
# Sums over more than 32768 elements are those that PyTorch divides between threads.
assert BATCH * TOKENS * WIDTH > 2 * 32768
ENCODER = dict(hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4,
               intermediate_size=2 * WIDTH)
DECODER = dict(vocab_size=VOCABULARY, num_key_value_heads=2, pad_token_id=0,
               bos_token_id=1, eos_token_id=2, **ENCODER)
# class, configuration
MODELS = {
    "GPT-2": (hf.GPT2LMHeadModel, hf.GPT2Config(
        vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=2, n_head=4, n_positions=TOKENS,
        bos_token_id=1, eos_token_id=2)),
    "LLaMA": (hf.LlamaForCausalLM, hf.LlamaConfig(**DECODER)),
    "Qwen3": (hf.Qwen3ForCausalLM, hf.Qwen3Config(head_dim=48, **DECODER)),
    "Mixtral": (hf.MixtralForCausalLM, hf.MixtralConfig(
        num_local_experts=4, num_experts_per_tok=2, **DECODER)),
    "BERT": (hf.BertForMaskedLM, hf.BertConfig(vocab_size=VOCABULARY, **ENCODER)),
    "ViT": (hf.ViTForImageClassification, hf.ViTConfig(
        image_size=SIZE, patch_size=8, num_labels=CLASSES, **ENCODER)),
    "ResNet-50": (hf.ResNetForImageClassification, hf.ResNetConfig(
        embedding_size=16, hidden_sizes=[32, 64, 128, 256], depths=[3, 4, 6, 3],
        num_labels=CLASSES)),
}
# For torch.compile, which takes long.
SMALL = {
    "small GPT-2": (hf.GPT2LMHeadModel, hf.GPT2Config(
        vocab_size=VOCABULARY, n_embd=64, n_layer=1, n_head=4, n_positions=TOKENS,
        bos_token_id=1, eos_token_id=2)),
    "small ResNet": (hf.ResNetForImageClassification, hf.ResNetConfig(
        embedding_size=16, hidden_sizes=[32], depths=[1], num_labels=CLASSES)),
}


def model_of(name, dtype):
    kind, config = {**MODELS, **SMALL}[name]
    model = kind(config).train()
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            value = integers(*p.shape, seed=i)
            if p.dim() > 1:  # else a bias, or the weight of a norm
                value = value * (p[0].numel() / 2) ** -0.5
            p.copy_(value if p.dim() > 1 else p + value / 16)
    return model.to(dtype)


def batch_of(name, seed, dtype):
    if "image" in {**MODELS, **SMALL}[name][0].__name__.lower():
        pixels = integers(BATCH, 3, SIZE, SIZE, seed=seed)
        labels = (torch.arange(BATCH) * 3 + seed) % CLASSES
        return dict(pixel_values=pixels.to(dtype), labels=labels)
    n = torch.arange(BATCH * TOKENS).view(BATCH, TOKENS)
    ids = 3 + (n * 31 + n * n % 89 + seed * 17) % (VOCABULARY - 3)
    return dict(input_ids=ids, labels=ids)


def digest(tensors):
    """Of the bytes of all tensors in a tree."""
    found = hashlib.sha256()
    for x in tree_leaves(tensors):
        if isinstance(x, torch.Tensor) and x.layout == torch.strided:
            x = x.detach().resolve_conj().contiguous()
            found.update(str((x.dtype, x.shape)).encode())
            found.update(x.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:12]


class Log(TorchDispatchMode):
    """Keeps the name, shapes, and digests of inputs and outputs of each operator."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        inputs = digest((args, kwargs))
        shapes = " ".join(str(list(x.shape)) for x in tree_leaves((args, kwargs))
                          if isinstance(x, torch.Tensor))
        out = function(*args, **(kwargs or {}))
        if "empty" not in str(function):  # its result is not initialised
            self.calls.append((str(function), shapes, inputs, digest(out)))
        return out


def train(name, dtype, steps, log=contextlib.nullcontext(), parts=(0,), of=1, wrap=None):
    """Returns a digest of the weights and statistics after `steps` steps. A step sums
    the gradients of `of` batches, of which this process computes `parts`."""
    dtype = getattr(torch, dtype)
    model = model_of(name, dtype)
    wrapped = wrap(model) if wrap else model
    optimizer = swamp_torch.AdamW(model.parameters(), lr=1e-3, max_norm=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0,
                                  enabled=dtype == torch.float16)
    with log:
        for step in range(steps):
            for seed in (of * step + part for part in parts):
                torch.manual_seed(seed)  # dropout
                loss = wrapped(**batch_of(name, seed, dtype)).loss
                scaler.scale(loss.float() / of).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return digest(model.state_dict())


def child(threads, steps, models, reproducible=True, operators=False, compiled=False,
          few=False):
    """Prints the digests of a process, or the calls of its operators, as JSON."""
    if few:
        globals().update(BATCH=1, TOKENS=32)
    capability = torch.backends.cpu.get_cpu_capability().lower()
    assert capability == os.environ.get("ATEN_CPU_CAPABILITY", capability), (
        "PyTorch read ATEN_CPU_CAPABILITY before it was set")
    torch.set_num_threads(threads)
    if reproducible:
        swamp_torch.enable(half_precision=True, reproducible=True)
    found = {"arithmetic": digest(package_unreproducible.composed_results())}
    for name, dtype in models:
        log = Log() if operators else contextlib.nullcontext()
        last = train(name, dtype, steps, log, wrap=torch.compile if compiled else None)
        found[f"{name} {dtype}"] = log.calls if operators else last
    print(json.dumps(found))


# name: the CPU's flag, ATEN_CPU_CAPABILITY, and other variables. MKL and oneDNN choose
# their kernels themselves.
_SSE = dict(ONEDNN_MAX_CPU_ISA="SSE41", MKL_ENABLE_INSTRUCTIONS="SSE4_2")
ISAS = {"avx512": ("avx512f", "avx512", dict(SWAMP_ISA="avx512")),
        "avx2": ("avx2", "avx2", dict(SWAMP_ISA="avx2", ONEDNN_MAX_CPU_ISA="AVX2",
                                      MKL_ENABLE_INSTRUCTIONS="AVX2")),
        "default": ("avx2", "default", dict(SWAMP_ISA="avx2", **_SSE)),
        # Only with --isa: they emulate fused multiply-add.
        "sse4": ("sse4_1", "default", dict(SWAMP_ISA="sse4", **_SSE)),
        "scalar": ("sse2", "default", dict(SWAMP_ISA="scalar", **_SSE)),
        # Whatever the CPU has.
        "any": ("sse2", None, {})}
under = []  # the command of --under


def settings(all_of_them):
    """The names of settings that this CPU has, with numbers of threads: all pairs, or so
    many that each occurs."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        flags = set(file.read().split())
    names = [name for name in ("avx512", "avx2", "default") if ISAS[name][0] in flags]
    pairs = [(name, threads) for name in names for threads in (1, 2, 3, 7)]
    few = [(names[0], 7), *[(names[0], 2)] * CI, (names[len(names) // 2], 3),
           (names[-1], 1)]
    return pairs if all_of_them else few


def run(setting, models, steps, **options):
    name, threads = setting
    _, capability, variables = ISAS[name]
    if capability:
        variables = dict(ATEN_CPU_CAPABILITY=capability, **variables)
    code = (f"import sys; sys.path[:0] = [{os.path.dirname(__file__)!r}, {PATH!r}]\n"
            f"import every_cpu\nevery_cpu.child({threads}, {steps}, {models!r}, "
            f"**{options})")
    done = (subprocess.run([*under, sys.executable, "-c", code, PATH], text=True,
                           capture_output=True, env={**os.environ, **variables})
            if under else python(code, **variables))
    if done.returncode != 0:
        raise AssertionError(f"{setting}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def differing_operators(setting, first, model):
    """The calls that have equal inputs and other results than with the first setting,
    once for each operator."""
    ours, theirs = (run(one, [model], 1, operators=True)[" ".join(model)]
                    for one in (setting, first))
    found = {}
    for (name, shapes, *a), (_, _, *b) in zip(ours, theirs):
        if a[0] == b[0] and a[1] != b[1]:
            found.setdefault(name, shapes)
    return [f"{name} {shapes}" for name, shapes in found.items()]


def table(models, steps, operators, isas, few, ranks):
    """Prints a table of the digests in Markdown."""
    pairs = [(name, dtype) for name in models for dtype in DTYPES]
    chosen = [(name, 1) for name in isas.split(",")] if isas else settings(True)
    if ranks:
        swamp_torch.enable(half_precision=True, reproducible=True)
        digests = [[train(*pair, steps, parts=(0, 1), of=2) for pair in pairs],
                   *run_ranks(on_rank, 2, pairs, steps)]
        names = [" ".join(pair) for pair in pairs]
        found = {one: dict(zip(names, values)) for one, values in zip(
            [("ranks", 1), ("rank 0 of", 2), ("rank 1 of", 2)], digests)}
    else:
        found = {one: run(one, pairs, steps, few=few) for one in chosen}
    first, notes = next(iter(found)), []
    print(f"| model | {' | '.join(DTYPES)} |\n|---|{'---|' * len(DTYPES)}")
    for name in models:
        cells = []
        for dtype in DTYPES:
            key = f"{name} {dtype}"
            wrong = [one for one in found if found[one][key] != found[first][key]]
            cells.append("differs: " + ", ".join(f"{isa} {threads}"
                                                 for isa, threads in wrong)
                         if wrong else found[first][key])
            for one in wrong[:1] + wrong[-1:] if operators else ():
                notes.append((key, one, differing_operators(one, first, (name, dtype))))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(f"\n{steps} steps; vectors and threads: "
          + ", ".join(f"{isa} {threads}" for isa, threads in found))
    for key, one, calls in notes:
        print(f"{key}, {one}:", *(calls or ["no operator with equal inputs"]),
              sep="\n  ")


def sums(group, bucket):
    """A hook of DDP that does not divide by the number of ranks: a float16 gradient
    may be so small that its half is rounded."""
    work = torch.distributed.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def summed(model):
    model = DistributedDataParallel(model)
    model.register_comm_hook(None, sums)
    return model


def on_rank(rank, ranks, models, steps):
    """The digests of a rank that computes one of the batches of each step."""
    swamp_torch.enable(half_precision=True, reproducible=True)
    return [train(name, dtype, steps, parts=(rank,), of=ranks, wrap=summed)
            for name, dtype in models]


class EveryCpu(TestCase):
    def test_settings(self):
        pairs = [(name, dtype) for i, name in enumerate(MODELS)
                 for j, dtype in enumerate(DTYPES) if CI or i % len(DTYPES) == j]
        first, *others = settings(False)
        expected = run(first, pairs, STEPS)  # also of composed arithmetic
        wrong = {}
        for one in others:
            for key, value in run(one, pairs, STEPS).items():
                if value != expected[key]:
                    wrong.setdefault(key, []).append(one)
        self.assertEqual(wrong, {})

    @unittest.skipUnless(CI, "for its time")
    def test_compiled(self):
        """Code of torch.compile has the same bits on any number of threads."""
        pairs = [(name, "float32") for name in SMALL]
        name = settings(False)[0][0]
        self.assertEqual(*(run((name, threads), pairs, 8, compiled=True)
                           for threads in (1, 2)))

    def test_stock_differs(self):
        """With PyTorch's own kernels the weights depend on the setting."""
        pairs = [("LLaMA", "float32")]
        first, *_, last = (run(one, pairs, 1, reproducible=False)
                           for one in settings(False))
        for key in first:
            self.assertNotEqual(first[key], last[key], key)

    def test_ranks(self):
        """Two ranks of DDP have the weights of one that accumulates their batches."""
        swamp_torch.enable(half_precision=True, reproducible=True)
        pairs = [(name, dtype) for name in ("LLaMA", "GPT-2")[:1 + CI] for dtype in DTYPES]
        one = [train(name, dtype, STEPS, parts=(0, 1), of=2) for name, dtype in pairs]
        self.assertEqual(run_ranks(on_rank, 2, pairs, STEPS), [one, one])


if __name__ == "__main__":
    if "--table" not in sys.argv:
        main()
    words = sys.argv[3:]

    def value_of(option, default):
        if option not in words:
            return default
        at = words.index(option)
        return (words.pop(at), words.pop(at))[1]
    steps, isas = int(value_of("--steps", 20)), value_of("--isa", None)
    under[:] = shlex.split(value_of("--under", ""))
    table([w for w in words if not w.startswith("--")] or list(MODELS), steps,
          "--operators" in words, isas, "--few" in words, "--ranks" in words)
