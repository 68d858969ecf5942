"""Measures swamp, PyTorch and others on the same tensors, in turn: see run."""
import argparse
import ctypes
import gc
import json
import math
import os
import pathlib
import re
import sys
import time

sys.dont_write_bytecode = True  # the source tree may be read-only
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

OUT = ROOT / "build/peers"
BEGIN = "<!-- made by bench/peers/run, not by hand -->"
END = "<!-- end of what bench/peers/run made -->"
ROWS_BEGIN = "<!-- rows: made by bench/peers/run, not by hand -->"
MODELS_BEGIN = "<!-- models: made by bench/peers/run, not by hand -->"
ROW_PEERS = ["torch", "oneDNN", "torch.compile", "Megatron", "swamp"]
MODELS = {"gpt2-small": "GPT-2 small", "bert-base": "BERT-base",
          "resnet50": "ResNet-50"}
LISTS = {**MODELS, "10000x16": "10000 x 16", "1000x100": "1000 x 100",
         "1000x10000": "1000 x 10000", "148x100000": "148 x 100000"}
DTYPES = ("float32", "bfloat16", "float16")
FROM_PYTHON = ["swamp_torch", "torch fused", "torch foreach", "DeepSpeed"]
FROM_C = ["swamp C ABI", "OpenMP loop", "Eigen"]

LR, BETAS, EPS, DECAY, STEP = 1e-5, (0.9, 0.999), 1e-8, 0.01, 10
SCALE = -1.0  # flips the sign: it cannot be skipped, and no value drifts


class Arrays:
    """Weights, gradients and moments. Float32 gradients belong to float32 weights.
    Else the float32 weights are masters, and there are 16-bit weights with
    gradients, and float32 copies of the gradients for those who need them."""

    def __init__(self, counts, dtype):
        generator = torch.Generator().manual_seed(1)
        self.mixed = dtype != torch.float32

        def make(scale):
            return [torch.randn(c, generator=generator) * scale for c in counts]

        self.masters = [torch.nn.Parameter(t) for t in make(0.02)]
        self.copies = make(1e-3)
        self.exp_avgs = make(1e-3)
        self.exp_avg_sqs = [t.square_().add_(1e-7) for t in make(1e-3)]
        self.gradients = self.copies
        self.model = None
        if self.mixed:
            self.gradients = [t.to(dtype) for t in self.copies]
            self.model = [torch.nn.Parameter(p.detach().to(dtype))
                          for p in self.masters]
            for p, g in zip(self.model, self.gradients):
                p.grad = g
        for p, g in zip(self.masters, self.copies):
            p.grad = g
        self.norm = torch.linalg.vector_norm(torch.stack(
            [torch.linalg.vector_norm(g.double()) for g in self.copies])).item()

    def lists(self):
        return native.Lists(
            len(self.masters), *(native.tensors(values) for values in (
                self.masters, self.gradients, self.exp_avgs, self.exp_avg_sqs,
                self.model, self.copies)))

    def optimizer(self, make, step):
        """One on the masters; step() makes the step count of its state."""
        made = make(self.masters)
        for p, m, v in zip(self.masters, self.exp_avgs, self.exp_avg_sqs):
            made.state[p] = {"step": step(), "exp_avg": m, "exp_avg_sq": v}
        return made


def scaler():
    made = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=10**9)
    made.scale(torch.ones(1))  # makes the scale's tensor
    return made


def swamp_torch_step(arrays, max_norm):
    """What a user of swamp_torch writes."""
    params = arrays.model if arrays.mixed else arrays.masters
    optimizer = swamp_torch.AdamW(
        params, lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY,
        max_norm=max_norm)
    count = torch.tensor(float(STEP))  # shared, as after equally many steps
    for p, master, m, v in zip(params, arrays.masters, arrays.exp_avgs,
                               arrays.exp_avg_sqs):
        state = {"step": count, "exp_avg": m, "exp_avg_sq": v}
        if arrays.mixed:
            state["master_param"] = master.detach()
        optimizer.state[p] = state
    grad_scaler = scaler()

    def step():
        # As after backward(): the scaler checks the gradients once per step.
        grad_scaler.step(optimizer)
        grad_scaler.update()
    return rows.with_swamp(step)


def steps_alone(arrays, rounds):
    """Milliseconds of optimizer.step() without a scaler, in turn; and the part of
    swamp's that is not in its kernel's call, in percent: the least of all steps."""
    params = arrays.model if arrays.mixed else arrays.masters
    numbers = dict(lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    ours = swamp_torch.AdamW(params, **numbers)
    stock = torch.optim.AdamW(arrays.masters, fused=True, **numbers)
    ours.step()  # makes the state and the lists
    lists, inside = ours._collected.lists, 0.0

    class Timed:
        """The lists; counts the time of their steps."""

        def __getattr__(self, name):
            return getattr(lists, name)

        def step(self, *args):
            nonlocal inside
            begin = time.perf_counter()
            lists.step(*args)
            inside += time.perf_counter() - begin
    ours._collected.lists = Timed()
    best = dict.fromkeys(("swamp", "torch", "python"), float("inf"))
    for turn in range(10 * rounds + 1):
        for name, optimizer in (("swamp", ours), ("torch", stock)):
            inside, begin = 0.0, time.perf_counter()
            optimizer.step()
            whole = time.perf_counter() - begin
            if turn == 0:
                continue  # makes the state
            best[name] = min(best[name], 1e3 * whole)
            if name == "swamp":
                best["python"] = min(best["python"], 100 * (1 - inside / whole))
    return best


def torch_step(arrays, optimizer, max_norm):
    """GradScaler if gradients are float32; else the steps of Megatron-LM, with
    copies that were allocated before."""
    if not arrays.mixed:
        grad_scaler = scaler()

        def step():
            if max_norm:
                grad_scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(arrays.masters, max_norm)
            grad_scaler.step(optimizer)
            grad_scaler.update()
        return step

    found = torch.zeros(1)
    inverse = torch.tensor([1 / SCALE])

    def step():
        found.zero_()
        torch._foreach_copy_(arrays.copies, arrays.gradients)
        torch._amp_foreach_non_finite_check_and_unscale_(arrays.copies, found,
                                                         inverse)
        assert found.item() == 0
        if max_norm:
            torch.nn.utils.clip_grad_norm_(arrays.masters, max_norm)
        optimizer.step()
        torch._foreach_copy_(arrays.model, arrays.masters)
    return torch.no_grad()(step)


def step_traffic(arrays):
    """The memory traffic of a step in two passes: the first reads the gradients,
    the second reads them again, updates masters and moments, and writes the
    model's weights."""
    read, update, write = ([(t.data_ptr(), t.nbytes, access) for t in listed]
                           for listed, access in (
                               (arrays.gradients, native.READ),
                               (arrays.masters + arrays.exp_avgs
                                + arrays.exp_avg_sqs, native.UPDATE),
                               (arrays.model or [], native.WRITE)))
    count = len(read)
    columns = [read, *(update[i * count:(i + 1) * count] for i in range(3))]
    columns += [write] if write else []
    return [native.Traffic(list(zip(read))), native.Traffic(list(zip(*columns)))]


def step_cases(arrays, clip, swamp, naive):
    # Larger than the norm: every peer computes it, and no gradient shrinks.
    max_norm = 2 * arrays.norm if clip else 0.0

    def adamw(**how):
        return arrays.optimizer(
            lambda p: torch.optim.AdamW(p, lr=LR, betas=BETAS, eps=EPS,
                                        weight_decay=DECAY, **how),
            lambda: torch.tensor(float(STEP)))
    cases = {"swamp_torch": swamp_torch_step(arrays, max_norm),
             "torch fused": torch_step(arrays, adamw(fused=True), max_norm),
             "torch foreach": torch_step(arrays, adamw(foreach=True), max_norm)}
    if DeepSpeedCPUAdam is not None:
        cases["DeepSpeed"] = torch_step(arrays, arrays.optimizer(
            lambda p: DeepSpeedCPUAdam(p, lr=LR, betas=BETAS, eps=EPS,
                                       weight_decay=DECAY, adamw_mode=True),
            lambda: STEP), max_norm)
    lists = arrays.lists()
    options = native.Options(
        ctypes.sizeof(native.Options), 1 / SCALE, max_norm, LR, *BETAS, EPS,
        DECAY, STEP, 1, 0)
    cases["swamp C ABI"] = lambda: swamp.step(lists, options)
    if naive:
        numbers = native.Numbers(1 / SCALE, max_norm, LR, *BETAS, EPS, DECAY,
                                 STEP)
        cases["OpenMP loop"] = lambda: naive.step("naive_step", lists, numbers)
        cases["Eigen"] = lambda: naive.step("eigen_step", lists, numbers)
        cases.update(naive.rooflines(step_traffic(arrays)))
    return cases


def unscale_cases(gradients, inv_scale):
    """PyTorch's operator, with its own kernel and with swamp's."""
    found, factor = torch.zeros(1), torch.full((1,), inv_scale)

    def unscale(tensors=gradients):
        torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, factor)
    copies = [g.clone() for g in gradients]
    unscale(copies)
    ours = rows.with_swamp(unscale)
    with rows.switched(ours):
        ours()
    if found.item() != 0 or not all(map(torch.equal, copies, gradients)):
        sys.exit("peers: swamp's unscale and PyTorch's give different bits")
    return {"swamp": ours, "torch": unscale}


def counts_of(name, naive):
    if name in MODELS:
        return naive.counts(name)
    tensors, elements = map(int, name.split("x"))
    return [elements] * tensors


def measure(name, dtypes, options, swamp, naive, results):
    counts = counts_of(name, naive)
    for dtype in dtypes:
        arrays = Arrays(counts, getattr(torch, dtype))
        measured = []
        for clip in (False, True):
            cases = step_cases(arrays, clip, swamp, naive)
            key = f"{name}/{dtype}/{'clip' if clip else 'no clip'}"
            results["steps"][key] = rows.least(cases, options.rounds,
                                                options.slice)
            measured.append(results["steps"][key])
            print("measured", key, flush=True)
            del cases
            gc.collect()
        if naive:  # the traffic is the same with and without clipping
            roofline = min(times["roofline"] for times in measured)
            for times in measured:
                times["roofline"] = roofline
        results["alone"][f"{name}/{dtype}"] = steps_alone(arrays, options.rounds)
        for inv_scale in (-1.0, 1.0):
            results["unscale"][f"{name}/{dtype}/{inv_scale:g}"] = rows.least(
                unscale_cases(arrays.gradients, inv_scale), options.rounds,
                options.slice)
        del arrays
        gc.collect()


def facts():
    versions = {"swamp": torch.ops.swamp.version(), "PyTorch": torch.__version__}
    if DeepSpeedCPUAdam is not None:
        versions["DeepSpeed"] = DEEPSPEED
    return {"cpu": machine.cpu(), "threads": torch.get_num_threads(),
            "versions": versions, "date": time.strftime("%Y-%m-%d")}


def time_text(milliseconds):
    digits = 2 if milliseconds < 10 else 1 if milliseconds < 100 else 0
    return f"{milliseconds:.{digits}f}"


def versions_text(facts):
    return ", ".join(f"{n} {v}" for n, v in facts["versions"].items())


def peers_of(peers, results):
    return [p for p in peers if any(p in times for times in results.values())]


def table(words, numbers, rows):
    """A Markdown table; `words` and `numbers` are the names of its columns."""
    lines = [[*words, *numbers], ["---"] * len(words) + ["--:"] * len(numbers)]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in [*lines, *rows])


def cells(several, peers):
    """The times of each peer, one for each of `several` measurements."""
    return [" / ".join(time_text(times[p]) for times in several if p in times)
            for p in peers]


def ratio(several, ours="swamp", other="torch"):
    return " / ".join(f"{times[other] / times[ours]:.2f}" for times in several
                      if ours in times and other in times)


def folded(results, pattern=r"/[^/]*$"):
    """{key: measurements} of those whose keys differ only in what fits the pattern."""
    found = {}
    for key, times in results.items():
        found.setdefault(re.sub(pattern, "", key), []).append(times)
    return found


def split_key(key):
    """The cells of "list/dtype"."""
    name, *others = key.split("/")
    return [LISTS.get(name, name), *others]


def step_sentence(results):
    """How much longer PyTorch's steps of the models take, as a sentence."""
    def span(part, ours, other):
        ratios = [times[other] / times[ours] for key, times in results[part].items()
                  if key.split("/")[0] in MODELS]
        return f"{min(ratios):.2f} to {max(ratios):.2f} times" if ratios else "?"
    return (
        "A whole step takes PyTorch's fused AdamW "
        f"{span('steps', 'swamp_torch', 'torch fused')} swamp's time for GPT-2, BERT "
        "and ResNet-50, with GradScaler, and with the float32 copies that it needs of "
        "16-bit gradients; `optimizer.step()` alone takes "
        f"{span('alone', 'swamp', 'torch')}, because both wait for memory.\n")


def tables(results):
    """Two Markdown tables."""
    facts, steps = results["facts"], results["steps"]
    peers = peers_of(FROM_PYTHON + FROM_C + ["roofline"], steps)
    unscale = folded(results["unscale"])
    text = (f"Milliseconds of one step, without / with clipping, {facts['cpu']}, "
            f"{facts['threads']} threads, {versions_text(facts)}, {facts['date']}. "
            f"{step_sentence(results)}\n")
    text += table(["parameters", "gradients"], [*peers, "fused / swamp_torch"],
                  [[*split_key(key), *cells(several, peers),
                    ratio(several, "swamp_torch", "torch fused")]
                   for key, several in folded(steps).items()])
    text += ("\nMilliseconds of `optimizer.step()` alone, torch on float32 copies, the "
             "part of swamp_torch's that Python takes; and of "
             "`_amp_foreach_non_finite_check_and_unscale_`, called from Python, with "
             "`inv_scale` -1 / 1.\n\n")
    both = ("swamp", "torch")
    return text + table(
        ["parameters", "gradients"],
        ["swamp_torch", "torch fused", "fused / swamp_torch", "Python",
         "unscale, swamp", "torch", "torch / swamp"],
        [[*split_key(key), *cells([times], both), ratio([times]),
          f"{times['python']:.1f} %", *cells(unscale[key], both), ratio(unscale[key])]
         for key, times in results["alone"].items()])


def row_table(results):
    """Two Markdown tables of what rows.py measures."""
    measured = results["rows"]
    facts, all_times = measured["facts"], measured["times"]
    peers = peers_of((*ROW_PEERS, "roofline"), all_times)
    text = (f"Milliseconds, {facts['cpu']}, "
            f"{facts['threads']} threads, {versions_text(facts)}, {facts['date']}; "
            "*Megatron* is its formula in PyTorch, *roofline* the traffic of the "
            "bytes that must be read and written, of attention and products their "
            "multiply-adds.\n\n")
    text += table(["operator", "dtype"], [*peers, "torch / swamp"],
                  [[name + ", forward / backward" * (len(several) > 1), dtype,
                    *cells(several, peers), ratio(several)]
                   for key, several in folded(
                       all_times, ", (forward|backward)(?=/)").items()
                   for name, dtype in [key.split("/")]])
    memory = measured.get("memory")
    if not memory:
        return text
    columns = peers_of(["logits", "torch", "torch.compile", "Megatron", "swamp"],
                       memory)
    return text + (
        "\nMiB of memory that loss and gradients need at their peak, beside what "
        "they are computed from: logits; input and weight of a linear layer; "
        "LLaMA's weights.\n\n") + table(
        ["operator", "dtype"], columns,
        [[*key.split("/"), *(f"{found[c]:.0f}" if c in found else "" for c in columns)]
         for key, found in memory.items()])


def model_table(results):
    """The Markdown table of README.md: tokens and images per second."""
    measured = results["rows"]
    times, of = measured["times"], measured["facts"]
    per_iteration = {"GPT": (rows.GPT_ROWS * rows.GPT["context"], "tokens"),
                     "ResNet": (rows.RESNET["images"], "images")}
    lines = []
    for model, (count, unit) in per_iteration.items():
        stock = None
        for dtype in ("float32", "bfloat16", "float16"):
            found = {key: row for key, row in times.items()
                     if key.startswith(f"{model} of") and key.endswith("/" + dtype)}
            speeds = [count * 1e3 / min(row[peer] for row in found.values())
                      if found and all(peer in row for row in found.values())
                      else None for peer in ("torch", "torch.compile", "swamp")]
            stock = stock or speeds[0]
            title = next(iter(found), model).split(",")[0]
            lines.append([f"{title}, {unit}/s", dtype, *map(speed_text, speeds),
                          *(ratio_text(speeds[2] / base) if speeds[2] and base
                            else "" for base in (speeds[0], stock))])
    return (f"One training iteration (loss, gradients, clipping, AdamW) of a GPT-2 "
            f"and a ResNet-50, {of['cpu']}, {of['threads']} threads, "
            f"{versions_text(of)}, {of['date']}; of autocast and 16-bit weights "
            "the faster, for each column; swamp's float32 with "
            "`reproducible=True`.\n\n") + table(
        ["model", "dtype"],
        ["PyTorch", "torch.compile", "swamp", "swamp / PyTorch",
         "swamp / PyTorch's float32"], lines)


def ratio_text(ratio):
    return f"{ratio:.{1 if ratio >= 10 else 2}f}"


def speed_text(speed):
    """Three digits."""
    if speed is None:
        return "not measured"
    digits = max(0, 2 - math.floor(math.log10(speed)))
    return f"{float(f'{speed:.3g}'):.{digits}f}"


def step_picture(results, out):
    """The time of a step with clipping over the roofline's, of the models: a point
    for each dtype of the gradients, and a line from the least to the largest."""
    ratios = {}
    for key, times in results["steps"].items():
        model, dtype, clip = key.split("/")
        if clip == "clip" and model in MODELS:
            for peer in FROM_PYTHON + FROM_C:
                if peer in times:
                    ratios.setdefault(peer, {}).setdefault(model, {})[dtype] = (
                        times[peer] / times["roofline"])
    if not ratios:
        return
    models = list(next(iter(ratios.values())))
    drawn = plot.figure(11, 4.2)
    axes = drawn.subplots()
    for j, (peer, by_model) in enumerate(ratios.items()):
        for i, by_dtype in enumerate(by_model.values()):
            x = i + (j + 0.5) / len(ratios) * 0.8 - 0.4
            axes.plot([x, x], [min(by_dtype.values()), max(by_dtype.values())],
                      color=f"C{j}", label="" if i else peer)
            for dtype, marker in zip(DTYPES, "osd"):
                if dtype in by_dtype:
                    axes.plot(x, by_dtype[dtype], marker, color=f"C{j}")
    for dtype, marker in zip(DTYPES, "osd"):
        axes.plot([], [], marker, color="black", label=dtype)
    axes.set_yscale("log", base=2)
    axes.set_ylim(bottom=0.5)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.axhline(1, color="black", linestyle="--")
    axes.grid(axis="y", linestyle=":")
    axes.set_xticks(range(len(models)), [MODELS[model] for model in models])
    axes.set_ylabel("time of a step with clipping over the roofline's")
    axes.legend(ncol=5, fontsize="small")
    plot.write(drawn, out)


def iteration_picture(results, out):
    """The parts of an iteration of the GPT, one bar for each dtype and peer. A bar
    that is far longer than the others is cut."""
    data = results.get("iteration", {})
    if not data:
        return
    keys = [f"{dtype}/{peer}" for dtype in ("float32", "bfloat16", "float16")
            for peer in ("torch", "swamp")]
    total = {key: sum(data[key].values()) for key in keys}
    longest = 1.1 * max(t for t in total.values() if t < 5 * total["float32/torch"])
    drawn = plot.figure(11, 3.7)
    axes = drawn.subplots()
    begin = [0.0] * len(keys)
    for name in next(iter(data.values())):
        times = [data[key][name] for key in keys]
        axes.barh(keys, times, left=begin, label=name)
        begin = [sum(pair) for pair in zip(begin, times)]
    for i, key in enumerate(keys):
        cut = total[key] > longest
        axes.text(min(longest, total[key]), i, f" {total[key]:.0f} ms", va="center")
        if cut:  # a break mark
            axes.plot([0.97 * longest, 0.98 * longest], [i + 0.5, i - 0.5],
                      color="white", linewidth=6)
    axes.set_xlim(0, longest)
    axes.set_yticks(range(len(keys)), [key.replace("/torch", ", PyTorch").replace(
        "/swamp", ", swamp") for key in keys])
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of one iteration of a GPT-2 of 30 million parameters")
    axes.legend(fontsize="small")
    plot.write(drawn, out)


def row_label(name):
    """The name of a row without its sizes."""
    for pattern, text in (
            (r" \[[^]]*\]| 768 -> \d+|, \d+ tokens| of \d+ million parameters", ""),
            (r", one iteration|, forward \+ backward", ""),
            (r"\.(half|bfloat16)\(\)", "16-bit weights")):
        name = re.sub(pattern, text, name)
    return name


def row_picture(results, out):
    """PyTorch's time over swamp's, of all rows but those of products: a bar for each
    dtype, to the left if PyTorch is faster, and a mark for torch.compile."""
    data, compiled = {}, {}
    for key, times in results["rows"]["times"].items():
        name, dtype = key.split("/")
        if "swamp" in times and "torch" in times and not name.startswith("product"):
            row = data.setdefault(row_label(name), {})
            row[dtype] = times["torch"] / times["swamp"]
            if "torch.compile" in times:
                compiled[row_label(name), dtype] = times["torch.compile"] / times["swamp"]
    if not data:
        return
    drawn = plot.figure(11, 1.2 + 0.22 * len(data))
    axes = drawn.subplots()
    for j, dtype in enumerate(DTYPES):
        found = [(i + 0.27 * (j - 1), row[dtype])
                 for i, row in enumerate(data.values()) if dtype in row]
        axes.barh([y for y, _ in found], [ratio - 1 for _, ratio in found], 0.25,
                  left=1, label=dtype)
        marks = [(compiled[name, dtype], i + 0.27 * (j - 1))
                 for i, name in enumerate(data) if (name, dtype) in compiled]
        axes.plot(*zip(*marks), "|", color="black", markersize=6,
                  label="" if j else "torch.compile")
    axes.set_xscale("log")
    axes.set_xticks(ticks := (0.5, 1, 2, 5, 10, 20, 50, 100), map(str, ticks))
    axes.axvline(1, color="black", linestyle="--")
    axes.grid(axis="x", linestyle=":")
    axes.set_yticks(range(len(data)), data)
    axes.invert_yaxis()
    axes.set_xlabel("PyTorch's time over swamp's")
    axes.legend(ncol=4)
    plot.write(drawn, out)


def main():
    parser = argparse.ArgumentParser(prog="bench/peers/run")
    parser.add_argument("--list", action="append", choices=LISTS)
    parser.add_argument("--gradients", action="append", choices=DTYPES)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--part", choices=("steps", "rows", "models", "offload",
                                           "operators"))
    parser.add_argument("--row", default="", help="a part of a function's name")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--readme", action="store_true")
    parser.add_argument("--quick", action="store_true",
                        help="two short lists, one round: that it runs")
    options = parser.parse_args()
    options.slice = 0.06
    naive = None if options.quick else rows.naive()
    swamp = native.Swamp(os.environ["SWAMP_PEERS_LIBRARY"])
    torch.ops.swamp.set_active(False)
    if options.part == "offload":
        import offload  # uses this module
        for name in options.list or ["gpt2-small", "148x100000"]:
            print(offload.table(offload.measure(name, options, naive, swamp)))
        return
    if options.part == "operators":
        import operators
        operators.print_table(options)
        return
    results = {"steps": {}, "alone": {}, "unscale": {}, "rows": {}, "others": {}}
    lists = options.list or list(LISTS)
    if options.quick:
        options.rounds, options.slice, lists = 1, 0.001, ["100x16", "10x1000"]
    file = OUT / "results.json"
    if (options.list or options.gradients or options.part) and file.exists():
        results.update(json.loads(file.read_text()))

    def used_by_others(part, since, keeps):
        # What was kept may have been measured beside others.
        before = results["others"].get(part, 0.0) if keeps else 0.0
        results["others"][part] = max(since.share(), before)

    if options.part in (None, "steps"):
        results["facts"] = facts()
        others = machine.Others()
        for name in lists:
            measure(name, options.gradients or DTYPES, options, swamp, naive,
                    results)
            used_by_others("steps", others, options.list or options.gradients)
            if not options.quick:
                file.write_text(json.dumps(results, indent=1))
    if options.part != "steps":
        others = machine.Others()
        models = options.part == "models"
        before = results["rows"] if options.row or models else {}
        results["rows"] = {
            "facts": facts(),
            "times": {**before.get("times", {}), **rows.measure(options)},
            "memory": {**before.get("memory", {}),
                       **({} if options.quick or models
                          else rows.memory(options))}}
        if options.row in "gpt" or models:
            results["iteration"] = rows.gpt_parts(options.rounds)
        used_by_others("rows", others, options.row or models)
    if not options.quick:
        file.write_text(json.dumps(results, indent=1))
    row_text = row_table(results) if results["rows"] else ""
    text = tables(results) if results["steps"] else ""
    model_text = model_table(results) if results["rows"] else ""
    print(*([model_text] if options.part == "models" else
            [row_text, text, model_text]), sep="\n")
    if options.readme:
        machine.require_alone("peers", max(
            results["others"][part] for part in
            {None: ("steps", "rows"), "models": ("rows",)}.get(
                options.part, (options.part,))))
    if options.quick:
        return
    (OUT / "table.md").write_text("\n".join((text, row_text, model_text)))
    bench, top = ROOT / "bench/README.md", ROOT / "README.md"
    # The table of the rows is not replaced by one of the models only.
    has_rows = any(not key.startswith(("GPT", "ResNet"))
                   for key in results["rows"].get("times", {}))
    for parts, begin, document, page, name, draw, of in (
            (("steps",), BEGIN, bench, text, "steps", step_picture, None),
            (("rows", "models") if has_rows else (), ROWS_BEGIN, bench, row_text,
             "rows", row_picture, None),
            (("rows", "models"), MODELS_BEGIN, top, model_text, "iteration",
             iteration_picture, "time of an iteration of the GPT by part"
             if results.get("iteration") else None)):
        if options.part is not None and options.part not in parts:
            continue
        picture = OUT / f"{name}.svg"
        draw(results, picture)
        if options.readme:
            shows = f"\n![{of}](bench/peers/{name}.svg)\n" if of else ""
            replace_in(document, begin, page + shows)
            if picture.exists():
                (ROOT / f"bench/peers/{name}.svg").write_bytes(
                    picture.read_bytes())


def replace_in(document, begin, text):
    before, rest = document.read_text().split(begin)
    after = rest.split(END, 1)[1]
    document.write_text(f"{before}{begin}\n\n{text}\n{END}{after}")


try:
    import torch
    import swamp_torch
except ImportError as no_torch:
    print(f"peers: {no_torch}")
    sys.exit(77)  # CTest's "skipped"
import machine  # noqa: E402
import native  # noqa: E402
import plot  # noqa: E402
import rows  # noqa: E402
try:
    import deepspeed
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    DEEPSPEED = deepspeed.__version__
except Exception as no_deepspeed:  # of any type
    print("peers: no DeepSpeed:", str(no_deepspeed).splitlines()[0])
    DeepSpeedCPUAdam = None

if __name__ == "__main__":
    main()
