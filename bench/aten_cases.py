"""What aten_bench.py measures, and the process that runs it: stock PyTorch, or
PyTorch with libswamp_aten. Commands come as lines of JSON, as do answers."""

import ctypes
import json
import sys
import time
import zlib

DTYPES = ("float32", "bfloat16", "float16")
BITS = {"float32": 32, "bfloat16": 16, "float16": 16}


class Case:
    """A list of `count` tensors of `elements` each, and the ratio it should
    reach with 2 threads; `step` is an optimizer's whole step over it."""

    def __init__(self, name, dtype, count, elements, floor=None, inv_scale=-1.0,
                 step=False):
        self.name = name
        self.dtype = dtype
        self.count = count
        self.elements = elements
        self.floor = floor
        # -1 changes the bits and never drifts to 0, inf or subnormals.
        self.inv_scale = inv_scale
        self.step = step


def cases(large_mi, quick):
    """All of them; a quick run has the same with less in them."""
    large = large_mi << 20
    size = f"{large_mi} Mi"
    shrink = 16 if quick else 1
    found = [Case(f"1 x {size}", dtype, 1, large, floor)
             for dtype, floor in zip(DTYPES, (1.1, 4.0, 2.1))]
    found.append(Case(f"1 x {size}, inv_scale 1", "float32", 1, large, 1.6,
                      inv_scale=1.0))
    found += [Case("148 x 100k", dtype, 148, 100000 // shrink, floor)
              for dtype, floor in zip(DTYPES, (1.2, 4.0, 2.0))]
    found.append(Case("1000 x 10000", "bfloat16", 1000, 10000 // shrink, 10.0))
    found.append(Case("10000 x 16", "float32", 10000 // shrink, 16, 2.8))
    found.append(Case("1000 x 100", "float32", 1000, 100, 3.2))
    found += [Case("step, 148 x 100k", dtype, 148, 100000 // shrink, step=True)
              for dtype in DTYPES]
    return found


def tensors(case, dtype=None):
    import torch
    generator = torch.Generator().manual_seed(7)
    dtype = getattr(torch, dtype or case.dtype)
    # Each from the allocator, as gradients come.
    return [torch.empty(case.elements, dtype=dtype).normal_(generator=generator)
            for _ in range(case.count)]


def unscale_call(case):
    """The call, and the tensors that it writes."""
    import torch
    grads = tensors(case)
    found_inf = torch.zeros(1)
    inv_scale = torch.full((1,), case.inv_scale)
    unscale = torch._amp_foreach_non_finite_check_and_unscale_

    def call():
        unscale(grads, found_inf, inv_scale)
    return call, grads + [found_inf]


MAX_NORM = 1e6  # a bound that is not reached: gradients do not drift to 0
ADAMW = {"lr": 1e-4, "weight_decay": 0.01, "eps": 1e-8}


def step_call(case, swamp):
    """From gradients to 16-bit weights. Stock needs gradients of its masters'
    dtype: those of 16 bits are copied first."""
    import torch
    grads = tensors(case)
    model_dtype = case.dtype if BITS[case.dtype] == 16 else "bfloat16"
    masters = tensors(case, "float32")
    model = [m.to(getattr(torch, model_dtype)) for m in masters]
    scaler = torch.amp.GradScaler("cpu", init_scale=-1.0)
    if swamp:
        ops = torch.ops.swamp
        firsts = [torch.zeros_like(m) for m in masters]
        seconds = [torch.zeros_like(m) for m in masters]
        step, found, tracker = torch.zeros(()), torch.zeros(1), torch.zeros(
            1, dtype=torch.int32)
        scale, inv_scale = torch.full((1,), -1.0), torch.full((1,), -1.0)

        def call():
            found.zero_()
            norm = ops.grad_norm_and_check(grads, found, inv_scale)
            ops.mixed_precision_adamw_(
                masters, grads, firsts, seconds, model, step, found, inv_scale,
                norm, beta1=0.9, beta2=0.999, max_norm=MAX_NORM, **ADAMW)
            torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 2000)
        return call, masters + model
    wide = grads[0].dtype == torch.float32
    for master, grad in zip(masters, grads):
        master.grad = grad if wide else torch.empty_like(master)
    own = [m.grad for m in masters]
    optimizer = torch.optim.AdamW(masters, fused=True, **ADAMW)
    scaler.scale(torch.zeros(()))  # makes the scale's tensor

    @torch.no_grad()
    def call():
        if not wide:
            torch._foreach_copy_(own, grads)
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(masters, MAX_NORM)
        scaler.step(optimizer)
        scaler.update()
        torch._foreach_copy_(model, masters)
    return call, masters + model


def digest(written):
    """A check sum of every bit."""
    crc = 0
    for tensor in written:
        size = tensor.numel() * tensor.element_size()
        crc = zlib.crc32((ctypes.c_char * size).from_address(tensor.data_ptr()),
                         crc)
    return crc


def measure(call, seconds, calls):
    """The fastest of as many calls as fit, at least `calls`, in seconds."""
    clock = time.perf_counter
    call()  # wakes the threads and warms the caches the other has cooled
    best, count, end = float("inf"), 0, clock() + seconds
    while True:
        begin = clock()
        call()
        now = clock()
        best = min(best, now - begin)
        count += 1
        if count >= calls and now >= end:
            return best


def is_swamp(torch):
    name = "aten::_amp_foreach_non_finite_check_and_unscale_"
    for line in torch._C._dispatch_dump(name).splitlines():
        if line.startswith("CPU: "):
            return "master/aten" in line
    return False


def worker(library, large_mi, quick):
    """Serves one aten_bench.py; `library` is empty for stock."""
    import torch
    if library:
        torch.ops.load_library(library)
    assert is_swamp(torch) == bool(library), "the other kernel is registered"
    listed = cases(large_mi, quick)
    info = {"torch": torch.__version__, "threads": torch.get_num_threads(),
            "capability": torch.backends.cpu.get_cpu_capability()}
    if library:
        info["swamp"] = torch.ops.swamp.version()
        info["machine"] = json.loads(torch.ops.swamp.info())
    print(json.dumps(info), flush=True)
    call = written = None
    for line in sys.stdin:
        command = json.loads(line)
        answer = None
        if "case" in command:
            call = written = None  # first the old memory, then the new
            case = listed[command["case"]]
            call, written = (step_call(case, bool(library)) if case.step
                             else unscale_call(case))
        elif "digest" in command:
            call()
            answer = digest(written)
        else:
            torch.set_num_threads(command["threads"])
            answer = measure(call, command["seconds"], command["calls"])
            # The idle threads of OpenMP spin for a while: not in the other's
            # time.
            time.sleep(command["pause"])
        print(json.dumps(answer), flush=True)
